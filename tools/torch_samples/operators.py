"""How each of torch's operators is called in Lucid.

A mapping has torch's signature. It returns the call of Lucid, or several, each for one of torch's results; if Lucid
lacks an option, it says so. Operators without an entry do not exist in Lucid.
"""

from __future__ import annotations

from collections.abc import Callable
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
    types = [a for a in (*arguments, *options.values()) if isinstance(a, (torch.dtype, torch.Tensor))]
    needs(len(types) == 1, "to: a device without an element type")
    return call("astype", x, types[0].dtype if isinstance(types[0], torch.Tensor) else types[0])


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
    """The default element type of a sum."""
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
