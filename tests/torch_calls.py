"""Calls of Lucid as data, made from samples of torch: they are replayed without torch and exported for every target.

`tools/torch_samples` draws the samples and stores some of them in `goldens/torch_samples`; both are run by this module.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import lucid
from lucid import Tensor, nn, ops
from lucid.core.graph.types import Array, DType, as_dtype
from lucid.nn import functional as F

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    # Operators
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floor_div": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "matmul": operator.matmul,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "logical_and": operator.and_,
    "logical_or": operator.or_,
    "logical_xor": operator.xor,
    "logical_not": operator.invert,
    "neg": operator.neg,
    "abs": operator.abs,
    "getitem": lambda x, *index: x[tuple(index)],
    # Elementwise
    "exp": ops.exp,
    "log": ops.log,
    "sqrt": ops.sqrt,
    "reciprocal": ops.reciprocal,
    "sin": ops.sin,
    "cos": ops.cos,
    "tanh": ops.tanh,
    "erf": ops.erf,
    "floor": ops.floor,
    "ceil": ops.ceil,
    "round": ops.round,
    "sign": ops.sign,
    "isnan": ops.isnan,
    "sigmoid": ops.sigmoid,
    "maximum": ops.maximum,
    "minimum": ops.minimum,
    "clip": ops.clip,
    "where": ops.where,
    "masked_fill": Tensor.masked_fill,
    "astype": Tensor.astype,
    # Reductions
    "sum": Tensor.sum,
    "mean": Tensor.mean,
    "max": Tensor.max,
    "min": Tensor.min,
    "prod": ops.prod,
    "any": Tensor.any,
    "all": Tensor.all,
    "argmax": Tensor.argmax,
    "cumsum": ops.cumsum,
    "variance": ops.variance,
    # Shape
    "reshape": Tensor.reshape,
    "flatten": Tensor.flatten,
    "squeeze": Tensor.squeeze,
    "unsqueeze": Tensor.unsqueeze,
    "transpose": Tensor.transpose,
    "permute": Tensor.permute,
    "T": lambda x: x.T,
    "mT": lambda x: x.mT,
    "expand": Tensor.expand,
    "repeat": Tensor.repeat,
    "split": Tensor.split,
    "chunk": Tensor.chunk,
    "unbind": lambda x: tuple(x),
    "flip": ops.flip,
    "concat": lambda *parts, axis: ops.concat(parts, axis),
    "stack": lambda *parts, axis: ops.stack(parts, axis),
    "pad": ops.pad,
    "tril": Tensor.tril,
    "triu": Tensor.triu,
    "take": ops.take,
    "take_along": ops.take_along,
    # Making tensors
    "zeros": lucid.zeros,
    "ones": lucid.ones,
    "full": lucid.full,
    "eye": lucid.eye,
    "arange": lucid.arange,
    "tensor": lucid.tensor,
    "one_hot": ops.one_hot,
    # Neural
    "linear": F.linear,
    "embedding": F.embedding,
    "relu": F.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "softplus": ops.softplus,
    "softmax": F.softmax,
    "log_softmax": F.log_softmax,
    "dropout": F.dropout,
    "layer_norm": F.layer_norm,
    "rms_norm": F.rms_norm,
    "group_norm": ops.group_norm,
    "batch_norm": ops.batch_norm,
    "conv": ops.conv,
    "max_pool": ops.max_pool,
    "average_pool": ops.average_pool,
    "adaptive_average_pool": ops.adaptive_average_pool,
    "scaled_dot_product_attention": F.scaled_dot_product_attention,
    "multi_head_attention_forward": F.multi_head_attention_forward,
}

MODULES: Mapping[str, Callable[..., nn.Module]] = {
    "AdaptiveAvgPool1d": nn.AdaptiveAvgPool1d,
    "AdaptiveAvgPool2d": nn.AdaptiveAvgPool2d,
    "AvgPool1d": nn.AvgPool1d,
    "AvgPool2d": nn.AvgPool2d,
    "BatchNorm1d": nn.BatchNorm1d,
    "Conv1d": nn.Conv1d,
    "Conv2d": nn.Conv2d,
    "Embedding": nn.Embedding,
    "GELU": nn.GELU,
    "GLU": nn.GLU,
    "GroupNorm": nn.GroupNorm,
    "LayerNorm": nn.LayerNorm,
    "Linear": nn.Linear,
    "MaxPool1d": nn.MaxPool1d,
    "MaxPool2d": nn.MaxPool2d,
    "MultiheadAttention": nn.MultiHeadAttention,
    "RMSNorm": nn.RMSNorm,
    "ReLU": nn.ReLU,
    "SiLU": nn.SiLU,
    "Softmax": nn.Softmax,
    "Tanh": nn.Tanh,
    "Transformer": nn.Transformer,
    "TransformerDecoderLayer": nn.TransformerDecoderLayer,
    "TransformerEncoder": lambda num_layers, **options: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(**options), num_layers
    ),
    "TransformerEncoderLayer": nn.TransformerEncoderLayer,
}


@dataclass(frozen=True)
class Slot:
    """A placeholder for a tensor among the arguments."""

    index: int


@dataclass(frozen=True)
class Call:
    """A call of a function or a module of Lucid; slots take the place of the tensors among its arguments.

    A module also has the arguments of its constructor and its state.
    """

    name: str
    tensors: tuple[Array, ...]
    arguments: Any = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    constructor: Mapping[str, Any] | None = None
    state: Mapping[str, Array] = field(default_factory=dict)

    def model(self) -> Callable[..., Any]:
        """The call as a function of only the tensors."""
        function = FUNCTIONS[self.name] if self.constructor is None else self._module(self.constructor)
        return lambda *tensors: function(*filled(self.arguments, tensors), **filled(self.options, tensors))

    def _module(self, constructor: Mapping[str, Any]) -> nn.Module:
        module = MODULES[self.name](**constructor)
        module.load_state_dict(dict(self.state))
        return module.eval()


def filled(tree: Any, tensors: Sequence[Any]) -> Any:
    """The tree with each slot replaced by the tensor given for it."""
    if isinstance(tree, Slot):
        return tensors[tree.index]
    if isinstance(tree, slice):
        return slice(*filled((tree.start, tree.stop, tree.step), tensors))
    if isinstance(tree, (tuple, list)):
        return type(tree)(filled(item, tensors) for item in tree)
    return {key: filled(item, tensors) for key, item in tree.items()} if isinstance(tree, dict) else tree


def encoded(tree: Any) -> Any:
    """A tree of arguments as JSON; other types become a dict with one entry."""
    if isinstance(tree, Slot):
        return {"tensor": tree.index}
    if isinstance(tree, DType):
        return {"dtype": tree.name}
    if isinstance(tree, slice):
        return {"slice": [tree.start, tree.stop, tree.step]}
    if tree is ...:
        return {"ellipsis": True}
    if isinstance(tree, tuple):
        return {"tuple": [encoded(item) for item in tree]}
    if isinstance(tree, list):
        return [encoded(item) for item in tree]
    return tree


def decoded(tree: Any) -> Any:
    """The tree of arguments that `encoded` wrote."""
    if isinstance(tree, list):
        return [decoded(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    constructors: dict[str, Callable[[Any], Any]] = {
        "tensor": Slot,
        "dtype": as_dtype,
        "slice": lambda bounds: slice(*bounds),
        "ellipsis": lambda _: ...,
        "tuple": lambda items: tuple(decoded(item) for item in items),
    }
    return constructors[kind](content)


def flat(result: Any) -> list[Array]:
    """The arrays of a result, in order; an absent one is left out."""
    if isinstance(result, Tensor):
        return [result.numpy()]
    return [array for item in result if item is not None for array in flat(item)]


def apart(array: Array) -> Array:
    """The same numbers in a non-contiguous array, with the axes in another order."""
    if not array.ndim:
        return array
    holder = np.zeros((*array.shape[::-1], 2), array.dtype).transpose(*range(array.ndim)[::-1], array.ndim)
    holder[..., 1] = array
    view: Array = holder[..., 1]
    return view


_EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
# Kernels may flush numbers below a type's smallest normal number to zero, and round near it.
_SMALLEST = {"float64": 2.0**-1021, "float32": 2.0**-125, "float16": 2.0**-24, "bfloat16": 2.0**-125}
# An elementwise function may be off by this many units of its result; a sum, of the largest input.
_UNITS = 16


def difference(got: Array, want: Array, scale: float | Array) -> str:
    """How two results differ, or an empty text: in element type, shape, positions of NaN and infinities, or by more
    than some units in the last place of the larger of the number itself and `scale`."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    if got.dtype.kind in "biu":
        wrong: Any = got != want
    else:
        x, y, kind = got.astype(np.float64), want.astype(np.float64), str(want.dtype)
        with np.errstate(all="ignore"):
            reach = np.maximum(np.where(np.isfinite(y), np.abs(y), 0.0), scale)
            allowed = _UNITS * _EPSILON[kind] * reach + _SMALLEST[kind]
            wrong = ~((x == y) | (np.isnan(x) & np.isnan(y)) | (np.abs(x - y) <= allowed))
    if not np.any(wrong):
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{got[at]} at {list(at)}, expected {want[at]}; {int(np.sum(wrong))} of {want.size} differ"


# Each number of the result depends on one number of each operand: there is no sum with terms larger than it.
SINGLE = frozenset(
    "add sub mul div floor_div mod pow equal not_equal less less_equal greater greater_equal logical_and logical_or "
    "logical_xor logical_not neg abs getitem exp log sqrt reciprocal tanh erf floor ceil round sign isnan maximum "
    "minimum clip where masked_fill astype max min any all argmax reshape flatten squeeze unsqueeze transpose permute "
    "T mT expand repeat split chunk unbind flip concat stack pad tril triu take take_along zeros ones full eye arange "
    "tensor one_hot embedding relu dropout max_pool ReLU Tanh Embedding MaxPool1d MaxPool2d".split()
)
# One number each, times a weight from 0 to 1 that kernels compute with an absolute error: near 0 it is 1 + erf(x) or
# onnxruntime's approximation of the logistic function.
WEIGHTED = frozenset("sigmoid silu gelu softplus sin cos SiLU GELU".split())


def scale_of(call: Call, results: Sequence[Array]) -> float | Array:
    """The scale of rounding errors, besides the result: none; the number itself; or, for sums, the largest finite
    number that enters the call (at least 1, as weights are random)."""
    if call.name in SINGLE:
        return 0.0
    if call.name in WEIGHTED:
        x = np.abs(call.tensors[0].astype(np.float64))
        return np.where(np.isfinite(x), np.maximum(x, 1.0), 1.0)
    sizes = [_largest(a) for a in (*call.tensors, *call.state.values(), *results) if a.dtype.kind not in "biu"]
    if call.name == "scaled_dot_product_attention":  # an error of the scores is a factor of the weights
        query, key, value = sizes[:3]
        sizes.append(query * key * value * call.tensors[0].shape[-1] ** 0.5 / _UNITS)
    return max([1.0, *sizes])


def _largest(array: Array) -> float:
    wide = np.abs(array.astype(np.float64))
    return float(np.max(wide, initial=0.0, where=np.isfinite(wide)))
