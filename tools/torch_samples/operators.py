"""How each of torch's operators is called in Lucid.

A mapping has torch's signature. What it returns is the call of Lucid, or several, each for one of torch's results; where
Lucid lacks an option it says so. Operators without an entry have no namesake in Lucid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from tools.torch_samples.calls import Wanted, call, needs

Mapped = Wanted | list[Wanted]
OPERATORS: dict[str, Callable[..., Mapped]] = {}


def maps(*names: str) -> Callable[[Callable[..., Mapped]], Callable[..., Mapped]]:
    """Register the mapping of operators of torch by name; a variant's name follows a dot."""

    def register(mapping: Callable[..., Mapped]) -> Callable[..., Mapped]:
        OPERATORS.update(dict.fromkeys(names, mapping))
        return mapping

    return register


def _named(lucid: str) -> Callable[..., Mapped]:
    return lambda *arguments: call(lucid, *arguments)


def _reflected(lucid: str) -> Callable[..., Mapped]:
    def mapping(x: Any, y: Any) -> Mapped:
        needs(isinstance(x, torch.Tensor), "a reflected operator of a number")
        return call(lucid, y, x)

    return mapping


# The same arguments in the same order, under a name of Lucid's.
SAME = {
    "abs": "abs", "neg": "neg", "exp": "exp", "log": "log", "sqrt": "sqrt", "reciprocal": "reciprocal", "sin": "sin",
    "cos": "cos", "tanh": "tanh", "erf": "erf", "floor": "floor", "ceil": "ceil", "round": "round", "sign": "sign",
    "isnan": "isnan", "sigmoid": "sigmoid", "logical_not": "logical_not", "bitwise_not": "logical_not",
    "mul": "mul", "true_divide": "div", "floor_divide": "floor_div", "remainder": "mod", "pow": "pow",
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
    "maximum": "maximum", "minimum": "minimum", "max.binary": "maximum", "min.binary": "minimum",
    "logical_and": "logical_and", "logical_or": "logical_or", "logical_xor": "logical_xor",
    "bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_xor": "logical_xor",
    "clamp_min": "maximum", "clamp_max": "minimum",
    "matmul": "matmul", "mm": "matmul", "bmm": "matmul", "mv": "matmul", "dot": "matmul",
    "masked_fill": "masked_fill", "T": "T", "mT": "mT",
    "unsqueeze": "unsqueeze", "transpose": "transpose",
    "nn.functional.linear": "linear", "nn.functional.relu": "relu", "nn.functional.silu": "silu",
}  # fmt: skip
REFLECTED = {
    "__radd__": "add", "__rmul__": "mul", "__rsub__": "sub", "__rdiv__": "div", "__rmod__": "mod", "__rpow__": "pow",
    "__rmatmul__": "matmul", "__rand__": "logical_and", "__ror__": "logical_or", "__rxor__": "logical_xor",
}  # fmt: skip
CASTS = {
    "float": torch.float32, "double": torch.float64, "half": torch.float16, "bfloat16": torch.bfloat16,
    "char": torch.int8, "byte": torch.uint8, "int": torch.int32, "long": torch.int64, "bool": torch.bool,
}  # fmt: skip
OPERATORS |= {torch_name: _named(name) for torch_name, name in SAME.items()}
OPERATORS |= {torch_name: _reflected(name) for torch_name, name in REFLECTED.items()}


# Elementwise ----------------------------------------------------------------------------------------------------------


def _cast(dtype: torch.dtype) -> Callable[..., Mapped]:
    def mapping(x: Any, memory_format: Any = None) -> Mapped:
        return call("astype", x, dtype)

    return mapping


OPERATORS |= {name: _cast(dtype) for name, dtype in CASTS.items()}


@maps("to")
def to(x: Any, *arguments: Any, **options: Any) -> Mapped:
    given = [a for a in (*arguments, *options.values()) if isinstance(a, (torch.dtype, torch.Tensor))]
    needs(len(given) == 1, "to: a device without an element type")
    return call("astype", x, given[0].dtype if isinstance(given[0], torch.Tensor) else given[0])


@maps("add")
def add(x: Any, y: Any, alpha: Any = 1) -> Mapped:
    needs(alpha == 1, "alpha: x + alpha * y")
    return call("add", x, y)


@maps("sub")
def sub(x: Any, y: Any, alpha: Any = 1) -> Mapped:
    needs(alpha == 1, "alpha: x - alpha * y")
    return call("sub", x, y)


@maps("rsub")
def rsub(x: Any, y: Any, alpha: Any = 1) -> Mapped:
    needs(alpha == 1, "alpha: y - alpha * x")
    return call("sub", y, x)


@maps("div.no_rounding_mode", "div.floor_rounding")
def div(x: Any, y: Any, rounding_mode: str | None = None) -> Mapped:
    return call({None: "div", "floor": "floor_div"}[rounding_mode], x, y)


@maps("clamp")
def clamp(x: Any, min: Any = None, max: Any = None) -> Mapped:
    return call("clip", x, min, max)


@maps("where")
def where(x: Any, condition: Any, other: Any) -> Mapped:
    # torch.where takes the condition first, its samples do not.
    return call("where", condition, x, other)


# Reductions -----------------------------------------------------------------------------------------------------------


DTYPE_OF_REDUCTION = "dtype of a reduction: x.astype(dtype) before it"


def accumulated(x: Any) -> torch.dtype:
    """The element type that a sum has by itself."""
    return x.dtype if x.dtype.is_floating_point else torch.int64


def axis_of(dim: Any) -> dict[str, Any]:
    """torch's dim as Lucid's axis; an empty tuple of torch's means all axes."""
    return {} if dim is None or dim in ((), []) else {"axis": dim}


def _reduction(lucid: str, whole: Callable[[Any], Any] = lambda axis: axis) -> Callable[..., Mapped]:
    def mapping(x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Mapped:
        needs(dtype in (None, accumulated(x)), DTYPE_OF_REDUCTION)
        axis = axis_of(dim)
        return call(lucid, x, **({"axis": whole(axis["axis"])} if axis else {}), keepdims=keepdim)

    return mapping


def _tuple(axis: Any) -> Any:
    return (axis,) if isinstance(axis, int) else tuple(axis)


OPERATORS |= {name: _reduction(name) for name in ("sum", "mean", "any", "all")}
OPERATORS |= {"amax": _reduction("max"), "amin": _reduction("min"), "prod": _reduction("prod", _tuple)}
OPERATORS |= {"max.reduction_no_dim": _reduction("max"), "min.reduction_no_dim": _reduction("min")}


@maps("max.reduction_with_dim")
def max_with_dim(x: Any, dim: int, keepdim: bool = False) -> Mapped:
    values = call("max", x, axis=dim, keepdims=keepdim).taking(0)
    return [values, call("argmax", x, axis=dim, keepdims=keepdim).taking(1)]


@maps("min.reduction_with_dim")
def min_with_dim(x: Any, dim: int, keepdim: bool = False) -> Mapped:
    return call("min", x, axis=dim, keepdims=keepdim).taking(0)


@maps("argmax")
def argmax(x: Any, dim: int | None = None, keepdim: bool = False) -> Mapped:
    needs(dim is not None, "argmax of all axes: x.flatten().argmax()")
    return call("argmax", x, axis=dim, keepdims=keepdim)


@maps("cumsum")
def cumsum(x: Any, dim: int, dtype: Any = None) -> Mapped:
    needs(dtype in (None, accumulated(x)), DTYPE_OF_REDUCTION)
    return call("cumsum", x, axis=dim)


@maps("var")
def var(x: Any, dim: Any = None, unbiased: Any = None, correction: Any = None, keepdim: bool = False) -> Mapped:
    biased = unbiased is False or correction == 0
    needs(biased and keepdim and dim is not None, "var: ops.variance is the biased one and keeps the axes")
    return call("variance", x, _tuple(dim))


# Shape ----------------------------------------------------------------------------------------------------------------


@maps("reshape", "view")
def reshape(x: Any, *shape: Any) -> Mapped:
    if len(shape) == 1 and isinstance(shape[0], torch.dtype):
        needs(False, "view of another element type")
    return call("reshape", x, *shape)


@maps("reshape_as", "view_as")
def reshape_as(x: Any, other: Any) -> Mapped:
    return call("reshape", x, tuple(other.shape))


@maps("flatten")
def flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Mapped:
    return call("flatten", x, start_dim, end_dim)


@maps("ravel")
def ravel(x: Any) -> Mapped:
    return call("flatten", x)


@maps("squeeze", "squeeze.multiple")
def squeeze(x: Any, dim: Any = None) -> Mapped:
    # torch keeps an axis that it was asked to drop and that has another size; Lucid raises.
    axes = range(x.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    needs(all(-x.ndim <= a < x.ndim and x.shape[a] == 1 for a in axes) or dim is None, "squeeze: axes of other sizes")
    return call("squeeze", x) if dim is None else call("squeeze", x, dim)


@maps("t")
def t(x: Any) -> Mapped:
    needs(x.ndim <= 2, "t of more than two axes: T reverses them all")
    return call("T", x)


@maps("permute")
def permute(x: Any, dims: Any) -> Mapped:
    return call("permute", x, tuple(dims))


@maps("expand", "broadcast_to")
def expand(x: Any, *shape: Any) -> Mapped:
    return call("expand", x, *shape)


@maps("expand_as")
def expand_as(x: Any, other: Any) -> Mapped:
    return call("expand", x, tuple(other.shape))


@maps("repeat", "tile")
def repeat(x: Any, *repeats: Any) -> Mapped:
    return call("repeat", x, *repeats)


@maps("split", "split.list_args", "unsafe_split", "split_with_sizes")
def split(x: Any, split_size_or_sections: Any, dim: int = 0) -> Mapped:
    return call("split", x, split_size_or_sections, dim)


@maps("chunk", "unsafe_chunk")
def chunk(x: Any, chunks: int, dim: int = 0) -> Mapped:
    return call("chunk", x, chunks, dim)


@maps("unbind")
def unbind(x: Any, dim: int = 0) -> Mapped:
    needs(dim == 0, "unbind of another axis: iteration runs over the first")
    return call("unbind", x)


@maps("flip")
def flip(x: Any, dims: Any) -> Mapped:
    axes = (dims,) if isinstance(dims, int) else tuple(dims)
    needs(len(axes) == 1, "flip of several axes: one after the other")
    return call("flip", x, axes[0])


@maps("fliplr")
def fliplr(x: Any) -> Mapped:
    return call("flip", x, 1)


@maps("flipud")
def flipud(x: Any) -> Mapped:
    return call("flip", x, 0)


@maps("cat")
def cat(tensors: Any, dim: int = 0) -> Mapped:
    needs(all(t.ndim == tensors[0].ndim for t in tensors), "cat: an empty tensor of another rank")
    return call("concat", *tensors, axis=dim)


@maps("stack")
def stack(tensors: Any, dim: int = 0) -> Mapped:
    return call("stack", *tensors, axis=dim)


@maps("nn.functional.pad.constant")
def pad(x: Any, pad: Any, mode: str = "constant", value: Any = None) -> Mapped:
    return constant_pad(x, pad, 0 if value is None else value)


@maps("constant_pad_nd")
def constant_pad(x: Any, pad: Any, value: Any = 0) -> Mapped:
    """torch gives a pair for each axis, the last axis first; Lucid what lies before each axis and what after."""
    needs(len(pad) % 2 == 0 and len(pad) <= 2 * x.ndim, "pad: torch refuses")
    needs(min(pad, default=0) >= 0, "pad by negative amounts: a slice")
    others = (0,) * (x.ndim - len(pad) // 2)
    return call("pad", x, before=(*others, *pad[-2::-2]), after=(*others, *pad[::-2]), value=value)


def _triangle(lucid: str) -> Callable[..., Mapped]:
    return lambda x, diagonal=0: call(lucid, x, diagonal=diagonal)


OPERATORS |= {name: _triangle(name) for name in ("tril", "triu")}

# Indexing -------------------------------------------------------------------------------------------------------------


@maps("__getitem__")
def getitem(x: Any, index: Any) -> Mapped:
    return call("getitem", x, *(index if isinstance(index, tuple) else (index,)))


@maps("select")
def select(x: Any, dim: int, index: int) -> Mapped:
    return call("getitem", x, *_at(x, dim, index))


@maps("narrow")
def narrow(x: Any, dim: int, start: Any, length: int) -> Mapped:
    needs(isinstance(start, int), "narrow: a tensor as the start")
    first = start + x.shape[dim] if start < 0 else start
    needs(first >= 0 <= length and first + length <= x.shape[dim], "narrow beyond the axis: slices are cut off")
    return call("getitem", x, *_at(x, dim, slice(first, first + length)))


@maps("slice")
def sliced(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Mapped:
    return call("getitem", x, *_at(x, dim, slice(start, end, step)))


def _at(x: Any, dim: int, item: Any) -> Iterable[Any]:
    """An index that applies to one axis and leaves the others."""
    axis = dim % max(x.ndim, 1)
    return (*[slice(None, None, None)] * axis, item)


@maps("index_select")
def index_select(x: Any, dim: int, index: Any) -> Mapped:
    needs(x.ndim > 0, "index_select of a tensor without axes")
    return call("take", x, index, dim)


@maps("gather")
def gather(x: Any, dim: int, index: Any, sparse_grad: bool = False) -> Mapped:
    needs(x.ndim > 0 and index.ndim == x.ndim, "gather: a tensor without axes")
    others = [i for i in range(x.ndim) if i != dim % x.ndim]
    needs(all(index.shape[i] == x.shape[i] for i in others), "gather with an index smaller in another axis")
    return call("take_along", x, index, axis=dim % x.ndim)


@maps("take_along_dim")
def take_along_dim(x: Any, indices: Any, dim: int | None = None) -> Mapped:
    needs(dim is not None, "take_along_dim of all axes: flatten first")
    return call("take_along", x, indices, axis=dim)


# Making tensors -------------------------------------------------------------------------------------------------------


def plain(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a creation that mean something here."""
    assert not options.keys() - {"dtype", "device", "requires_grad", "layout", "pin_memory"}, options
    dtype = options.get("dtype")
    return {} if dtype is None else {"dtype": dtype}


@maps("zeros")
def zeros(*shape: Any, **options: Any) -> Mapped:
    return call("zeros", *shape, **plain(options))


@maps("ones")
def ones(*shape: Any, **options: Any) -> Mapped:
    return call("ones", *shape, **plain(options))


@maps("full")
def full(shape: Any, value: Any, **options: Any) -> Mapped:
    needs("dtype" in options, "full: without an element type Lucid makes float32, torch that of the number")
    return call("full", shape, value, **plain(options))


@maps("eye")
def eye(*sizes: int, **options: Any) -> Mapped:
    return call("eye", *sizes, **plain(options))


@maps("arange")
def arange(start: Any, end: Any = None, step: Any = 1, **options: Any) -> Mapped:
    first, stop = (0, start) if end is None else (start, end)
    needs(all(type(n) is int for n in (first, stop, step)), "arange of fractions and booleans")
    return call("arange", first, stop, step, **plain(options))


@maps("scalar_tensor")
def scalar_tensor(value: Any, **options: Any) -> Mapped:
    return call("tensor", value, **plain(options))


@maps("nn.functional.one_hot")
def one_hot(x: Any, num_classes: int = -1) -> Mapped:
    needs(num_classes > 0, "one_hot: the number of classes from the values")
    return call("one_hot", x, num_classes, torch.int64)
