"""Which eager calls onnxruntime computes faster than NumPy, and which sizes a model of such a call leaves open.

Operands are inputs of the model, weights too, as they may change from call to call: one model serves all layers. Only
weights of convolutions are held by it, since onnxruntime has much faster kernels for those that are constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from lucid.core.graph.types import DType, TensorType, bool_, float32
from lucid.core.graph.values import Attributes
from lucid.ops.creation import full
from lucid.ops.linalg import linear
from lucid.ops.shaping import concat, transpose, unsqueeze
from lucid.ops.tensor.tensor import Tensor

SHARED = 1 << 16
"""With fewer numbers, one thread takes less time for a pass over them than sharing it takes."""

SCORES = 1 << 18
"""The same for the scores of attention."""

FEW_ROWS = 64
"""A product of up to as many rows with a large weight is computed as the transpose of weight times rows: onnxruntime
copies the second operand into its own order in each call, where the weight would be most of the work."""

LARGE_WEIGHT = 1 << 21

MANY_ROWS, NARROW, WIDER = 512, 192, 3
"""A product of at least so many rows of up to so many numbers, whose result is at least so many times as wide, has its
bias as one more row of the weight: copying the rows beside a column of ones takes less time than a pass over the
result."""

HELD = 1 << 20
"""The most numbers of a weight that is held: comparing a larger one with the call's takes as long as it saves."""

HELD_IN_ALL = 1 << 23
"""The most numbers of all weights that are held: onnxruntime takes up to twenty times their memory for the branches of
one model, and reads all of them again where another is added."""

HELD_AT_ONCE = 48
"""The most weights of one shape that are held: models have fewer convolutions of one kind, and a weight that changes
from call to call is a new one each time."""

Shape: TypeAlias = tuple[int, ...]
Shapes: TypeAlias = Sequence[Shape | None]
Axes: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True)
class Layout:
    """How a call is a run of a model.

    Args:
        axes: the sizes of each operand, a name for an open one; None for an operand that is absent.
        shape: the shape in which the first operand is given.
        attributes: of the op, by name.
        shared: whether all threads share the work, or one does it.
        held: whether all operands but the first are constants of the model.
        instead: what the model computes, if not the op.
        unfolded: the sizes of the first operand in its own shape, if the model may have its axes in any order.
    """

    axes: tuple[Axes | None, ...]
    shape: Shape
    attributes: tuple[tuple[str, Any], ...]
    shared: bool = True
    held: bool = False
    instead: Callable[..., Tensor] | None = None
    unfolded: Axes | None = None


def layout(
    name: str, operands: Sequence[Tensor | None], attributes: Attributes, results: Sequence[TensorType]
) -> Layout | None:
    """The layout of a call of the op of this name; None if NumPy computes it."""
    if name not in LEAST or len(results) != 1:
        return None
    kinds = [tensor.dtype for tensor in operands if tensor is not None]
    if kinds[0] != float32 or not {*kinds} <= _TYPES.get(name, {float32}):
        return None
    shapes = [None if tensor is None else _sizes(tensor.shape) for tensor in operands]
    result = _sizes(results[0].shape)
    if any(0 in shape for shape in (*shapes, result) if shape is not None):  # some kernels refuse them
        return None
    if max(math.prod(shapes[0] or ()), math.prod(result)) < LEAST[name]:
        return None
    return _READERS[name](shapes, attributes, result)


def _sizes(shape: Sequence[Any]) -> Shape:
    return tuple(map(int, shape))


def _of_elements(shapes: Shapes, attributes: Attributes, result: Shape) -> Layout:
    """Each number on its own, so in any shape."""
    numbers = math.prod(result)
    return Layout((("elements",),), (numbers,), tuple(attributes.items()), numbers >= SHARED)


def _of_pairs(shapes: Shapes, attributes: Attributes, result: Shape) -> Layout:
    """Numbers of two operands that are broadcast."""
    names = tuple(f"axis_{axis}" for axis in range(len(result)))
    axes = tuple(None if shape is None else _broadcast(shape, names, result) for shape in shapes)
    return Layout(axes, shapes[0] or (), tuple(attributes.items()), unfolded=axes[0])


def _of_rows(*axes: Axes, shared: bool = False) -> Callable[[Shapes, Attributes, Shape], Layout | None]:
    """Rows of the first operand, whatever its leading axes are: it is given as one matrix."""

    def read(shapes: Shapes, attributes: Attributes, result: Shape) -> Layout | None:
        first, others = shapes[0], zip(shapes[1:], axes[1:], strict=True)
        if not first or any(shape is not None and len(shape) != len(named) for shape, named in others):
            return None
        if attributes.get("axes", 1) != 1 or attributes.get("axis", -1) not in (-1, len(first) - 1):
            return None
        found: list[Axes | None] = [None if s is None else named for s, named in zip(shapes, axes, strict=True)]
        last = tuple((name, -1 if name == "axis" else value) for name, value in attributes.items())
        rows = (math.prod(first[:-1]), first[-1])
        unfolded = (*(f"axis_{axis}" for axis in range(len(first) - 1)), axes[0][-1])
        return Layout(tuple(found), rows, last, shared or math.prod(rows) >= SHARED, unfolded=unfolded)

    return read


_product = _of_rows(("rows", "inner"), ("columns", "inner"), ("columns",), shared=True)


def _linear(shapes: Shapes, attributes: Attributes, result: Shape) -> Layout | None:
    found = _product(shapes, attributes, result)
    if found is None:
        return None
    (rows, inner), columns = found.shape, result[-1]
    if shapes[2] not in (None, (columns,)):  # a bias that is broadcast
        return None
    if rows <= FEW_ROWS and columns * inner >= LARGE_WEIGHT:
        return replace(found, instead=_of_few_rows, unfolded=None)
    if shapes[2] is None:
        return found
    if rows >= MANY_ROWS and inner <= NARROW and columns >= WIDER * inner:
        return replace(found, instead=_with_ones, unfolded=None)
    # Of a product of matrices and its bias onnxruntime makes one op, which first writes the bias to the whole result,
    # in one thread. With one more axis it adds the bias afterwards, in all threads.
    first, *others = found.axes
    return replace(found, axes=((1, *(first or ())), *others), shape=(1, *found.shape), instead=_and_bias)


def _and_bias(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    product: Tensor = linear(x, weight)
    return product + bias


def _with_ones(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    ones = full((x.shape[0], 1), 1.0, x.dtype)
    product: Tensor = linear(concat([x, ones], 1), concat([weight, unsqueeze(bias, 1)], 1))
    return product


def _of_few_rows(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product = transpose(linear(weight, x), 0, 1)
    return product if bias is None else product + bias


def _convolution(shapes: Shapes, attributes: Attributes, result: Shape) -> Layout:
    """One model for each weight's shape, for images of any size; over one or two axes, where there are kernels for
    constant weights, one for each weight."""
    first, weight = shapes[0] or (), shapes[1] or ()
    x: Axes = ("batch", first[1], *(f"length_{axis}" for axis in range(len(first) - 2)))
    held = len(first) in (3, 4) and math.prod(weight) <= HELD
    return Layout((x, *shapes[1:]), first, tuple(attributes.items()), held=held)


def _of_groups(shapes: Shapes, attributes: Attributes, result: Shape) -> Layout | None:
    """Channels of a fixed number, in images of any size. Without spatial axes a group may be a few numbers close to
    each other, for which NumPy is more exact."""
    first, channels = shapes[0] or (), result[1:2]
    if len(first) < 3:
        return None
    axes = tuple(None if shape is None else channels for shape in shapes[1:])
    x: Axes = ("batch", *channels, *(f"length_{axis}" for axis in range(len(first) - 2)))
    return Layout((x, *axes), first, tuple(attributes.items()), math.prod(result) >= SHARED)


def _attention(shapes: Shapes, attributes: Attributes, result: Shape) -> Layout | None:
    """Without a past, as such a call joins it to the keys, and without weights, which are all held."""
    query, key, value, mask, key_mask, past_key, _ = shapes
    if query is None or key is None or value is None or past_key is not None:
        return None
    if attributes["need_weights"] or attributes["dropout_p"]:
        return None
    sizes = (query[0], 0, query[-2], key[-2])  # heads are no open size
    batch, _, queries, keys = names = ("N", "H", "L", "L" if key[-2] == query[-2] else "S")
    axes: tuple[Axes | None, ...] = (
        (batch, *query[1:-2], queries, query[-1]),
        (batch, *key[1:-2], keys, key[-1]),
        (batch, *value[1:-2], keys, value[-1]),
        None if mask is None else _broadcast(mask, names, sizes),
        None if key_mask is None else (batch, keys),
        None,
        None,
    )
    scores = math.prod(query[1:-2]) * (attributes["heads"] or 1) * query[0] * query[-2] * key[-2]
    return Layout(axes, query, tuple(attributes.items()), scores >= SCORES)


def _broadcast(shape: Shape, names: Sequence[str], sizes: Shape) -> Axes:
    """The axes of an operand that is broadcast to these sizes, which have these names."""
    own = slice(len(sizes) - len(shape), None)
    return tuple(
        name if size == whole != 1 else size for size, name, whole in zip(shape, names[own], sizes[own], strict=True)
    )


_TYPES: dict[str, set[DType]] = {"attention": {float32, bool_}}
_READERS: dict[str, Callable[[Shapes, Attributes, Shape], Layout | None]] = {
    "attention": _attention,
    "conv": _convolution,
    "group_norm": _of_groups,
    "linear": _linear,
    "matmul": _of_rows(("rows", "inner"), ("inner", "columns"), shared=True),
    "layer_norm": _of_rows(("rows", "width"), ("width",), ("width",)),
    "rms_norm": _of_rows(("rows", "width"), ("width",)),
    "softmax": _of_rows(("rows", "width")),
    **dict.fromkeys(("gelu", "silu", "sigmoid", "erf", "tanh", "exp"), _of_elements),
    **dict.fromkeys(("add", "sub", "mul", "true_div"), _of_pairs),
}
LEAST = {
    **dict.fromkeys(("attention", "gelu", "silu", "sigmoid", "erf", "softmax"), 1 << 13),
    **dict.fromkeys(("layer_norm", "rms_norm", "group_norm"), 1 << 13),
    **dict.fromkeys(("linear", "matmul", "conv"), 1 << 15),
    **dict.fromkeys(("add", "sub", "mul", "true_div", "tanh", "exp"), 1 << 18),  # one fast pass in NumPy
}
"""By op, in how many numbers of the first operand or the result onnxruntime takes less time than NumPy."""
