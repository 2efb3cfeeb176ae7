"""How many elements a model's nodes compute from constants alone, however these are written, by rules for each op.

onnxruntime computes such nodes when it loads a model, and onnx when it infers shapes. Here only shapes are computed,
and the few numbers that become shapes or bounds: from `Constant` in each of its forms, from dense or sparse
initializers of the model, its branches and bodies, and from arithmetic on these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, SparseTensorProto, TensorProto, numpy_helper

from lucid.core.graph.types import Array
from lucid.runtime.subgraphs import subgraphs

MAX_MADE = 1 << 28  # elements of all tensors computed from constants together: 2 GiB of int64
_NUMBERS = (
    *(TensorProto.INT64, TensorProto.INT32, TensorProto.INT16, TensorProto.INT8),
    *(TensorProto.UINT64, TensorProto.UINT32, TensorProto.UINT16, TensorProto.UINT8),
    *(TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16),
)


def made_of_constants(model: onnx.ModelProto) -> int:
    """The number of elements that nodes compute from constants and shapes alone; the count stops beyond `MAX_MADE`."""
    known: dict[str, Value] = {}
    fixed = _fixed_shapes(model.graph)
    total = 0
    for entry in _entries(model.graph):
        if isinstance(entry, TensorProto):
            known[entry.name] = _dense(entry)
        elif isinstance(entry, SparseTensorProto):
            known[entry.values.name] = _sparse(entry)
        elif entry.output and (value := _computed(entry, known, fixed)) is not None:
            known |= dict.fromkeys(filter(None, entry.output), value)
            total += value.size * len(entry.output) if value.grown else 0
            if total > MAX_MADE:
                break
    return total


def _entries(graph: GraphProto) -> Iterator[TensorProto | SparseTensorProto | NodeProto]:
    """Initializers, then nodes, each followed by the entries of its branches and bodies."""
    waiting = [_content(graph)]
    while waiting:
        entry = next(waiting[-1], None)
        if entry is None:
            waiting.pop()
            continue
        yield entry
        if isinstance(entry, NodeProto):
            waiting += map(_content, subgraphs(entry))


def _content(graph: GraphProto) -> Iterator[TensorProto | SparseTensorProto | NodeProto]:
    yield from graph.initializer
    yield from graph.sparse_initializer
    yield from graph.node


def _fixed_shapes(graph: GraphProto) -> dict[str, tuple[int, ...]]:
    """The shapes of the inputs whose sizes are all numbers, by name."""
    shapes = {}
    for value in graph.input:
        sizes = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(size.HasField("dim_value") for size in sizes):
            shapes[value.name] = tuple(size.dim_value for size in sizes)
    return shapes


# ------------------------------------------------------------------------------------------------- in the file


def _dense(tensor: TensorProto) -> Value:
    size = math.prod(tensor.dims)
    numbers = None
    if tensor.data_type in _NUMBERS and not tensor.external_data and size <= FEW:
        numbers = numpy_helper.to_array(tensor).reshape(-1).astype(np.float64)
    return Value(size, tuple(tensor.dims), numbers)


def _sparse(tensor: SparseTensorProto) -> Value:
    """A sparse tensor: the file leaves out its zeros, so that all of it counts as made."""
    size, numbers = math.prod(tensor.dims), None
    held, places = _dense(tensor.values), _dense(tensor.indices)
    if size <= FEW and held.numbers is not None and places.numbers is not None:
        numbers = np.zeros(size)
        at = places.numbers.astype(np.int64)
        if len(tensor.dims) == 1 and at.size == held.size and ((at >= 0) & (at < size)).all():
            numbers[at] = held.numbers
        else:
            numbers = None
    return Value(size, tuple(tensor.dims), numbers, grown=True)


def _constant(node: NodeProto) -> Value | None:
    """The value of a node `Constant`, whichever attribute holds it."""
    for attribute in node.attribute:
        match attribute.type:
            case AttributeProto.TENSOR:
                return _dense(attribute.t)
            case AttributeProto.SPARSE_TENSOR:
                return _sparse(attribute.sparse_tensor)
            case AttributeProto.INT:
                return _numbers([attribute.i], ())
            case AttributeProto.FLOAT:
                return _numbers([attribute.f], ())
            case AttributeProto.INTS:
                return _numbers(attribute.ints)
            case AttributeProto.FLOATS:
                return _numbers(attribute.floats)
            case AttributeProto.STRING:
                return Value(1, ())
            case AttributeProto.STRINGS:
                return Value(len(attribute.strings), (len(attribute.strings),))
    return None


def _numbers(values: Sequence[float], shape: tuple[int, ...] | None = None) -> Value:
    size = len(values)
    numbers = np.array(values, np.float64) if size <= FEW else None
    return Value(size, (size,) if shape is None else shape, numbers)


# ------------------------------------------------------------------------------------------------- computed


def _computed(node: NodeProto, known: Mapping[str, Value], fixed: Mapping[str, tuple[int, ...]]) -> Value | None:
    """The first output of a node; None if it depends on the inputs, or its size on numbers that are not known."""
    kind = node.op_type
    if kind == "Constant":
        return _constant(node)
    if kind in ("Shape", "Size") and node.input:
        value = known.get(node.input[0])
        shape = fixed.get(node.input[0]) if value is None else value.shape
        if shape is None:
            return Value(1)
        return _numbers(shape) if kind == "Shape" else _numbers([math.prod(shape)], ())
    names = [name for name in node.input if name]
    operands = [known[name] for name in names if name in known]
    if not operands or len(operands) < len(names):
        return None
    with np.errstate(all="ignore"):
        result = RULES.get(kind, as_large)(node, operands)
    if result is None:
        return None
    grown = result.size > max(value.size for value in operands)
    return Value(
        result.size, result.shape, result.numbers, result.grown or grown or any(value.grown for value in operands)
    )


FEW = 64  # elements of a constant whose numbers are read: a shape or a bound


@dataclass(frozen=True)
class Value:
    """A value that depends on no input."""

    size: int  # how many elements it has
    shape: tuple[int, ...] | None = None  # None if it is not known
    numbers: Array | None = None  # a few numbers in float64, in their order; None of others
    grown: bool = False  # whether it has more elements than the constants of the file that it is made of


Rule = Callable[[NodeProto, Sequence[Value]], Value | None]
"""The value that a node makes of its inputs; None if its size is not known."""


def as_large(node: NodeProto, operands: Sequence[Value]) -> Value:
    """The result of most ops: as many elements as their largest input has."""
    return Value(max(value.size for value in operands))


def _filled(count: float, shape: tuple[int, ...] | None = None) -> Value | None:
    return Value(max(0, math.ceil(count)), shape, grown=True) if math.isfinite(count) else None


def _range(node: NodeProto, operands: Sequence[Value]) -> Value | None:
    numbers = [value.numbers[0] for value in operands if value.numbers is not None and value.size]
    if len(numbers) != 3 or not numbers[2]:
        return None
    start, limit, step = numbers
    result = _filled((limit - start) / step)
    return None if result is None else Value(result.size, (result.size,), grown=True)


def _of_shape(node: NodeProto, operands: Sequence[Value]) -> Value | None:
    """ConstantOfShape, Expand, Tile: the last input has the sizes, or how often each is repeated."""
    sizes = operands[-1].numbers
    if sizes is None or not np.isfinite(sizes).all():
        return None
    times = float(np.maximum(sizes, 1).prod())
    if node.op_type != "ConstantOfShape":
        return _filled(times * operands[0].size if node.op_type == "Tile" else times)
    result = _filled(times, tuple(map(int, sizes)))
    if result is None or result.size > FEW:
        return result
    filling = next((numpy_helper.to_array(a.t).reshape(-1) for a in node.attribute if a.HasField("t")), np.zeros(1))
    same = filling.size == 1 and filling.dtype.kind in "iuf" and math.prod(result.shape or ()) == result.size
    return Value(result.size, result.shape, np.full(result.size, filling[0], np.float64) if same else None, grown=True)


def _pad(node: NodeProto, operands: Sequence[Value]) -> Value | None:
    shape = operands[0].shape
    pads = operands[1].numbers if len(operands) > 1 else None
    if shape is None or pads is None or len(operands) > 3 or pads.size != 2 * len(shape):
        return as_large(node, operands)
    return _filled(float(np.maximum(np.array(shape, np.float64) + pads[: len(shape)] + pads[len(shape) :], 0).prod()))


def _resize(node: NodeProto, operands: Sequence[Value]) -> Value | None:
    """The last input has the sizes if it is the fourth, and otherwise their scales."""
    numbers = operands[-1].numbers
    if numbers is None:
        return as_large(node, operands)
    return _filled(float(numbers.prod()) * (1 if len(node.input) > 3 and node.input[3] else operands[0].size))


def _one_hot(node: NodeProto, operands: Sequence[Value]) -> Value | None:
    depth = operands[1].numbers if len(operands) == 3 else None
    return as_large(node, operands) if depth is None or not depth.size else _filled(operands[0].size * float(depth[0]))


def _concat(node: NodeProto, operands: Sequence[Value]) -> Value:
    size, numbers = sum(value.size for value in operands), [value.numbers for value in operands]
    flat = all(value.shape is not None and len(value.shape) == 1 for value in operands)
    joined = np.concatenate([each for each in numbers if each is not None]) if flat and size <= FEW else None
    whole = joined is not None and joined.size == size
    return Value(size, (size,) if flat else None, joined if whole else None, grown=len(operands) > 1)


def _same_numbers(node: NodeProto, operands: Sequence[Value]) -> Value:
    """Ops that only change the shape or the type."""
    first = operands[0]
    shape = first.shape if node.op_type in ("Identity", "Cast", "CastLike") else _new_shape(node, operands)
    fits = shape is not None and math.prod(shape) == first.size
    return Value(first.size, shape if fits else None, first.numbers)


def _new_shape(node: NodeProto, operands: Sequence[Value]) -> tuple[int, ...] | None:
    old, numbers = operands[0].shape, operands[1].numbers if len(operands) > 1 else None
    listed = next((list(a.ints) for a in node.attribute if a.name == "axes"), None)
    axes = listed if numbers is None else numbers.astype(np.int64).tolist()
    if node.op_type == "Reshape":
        return None if axes is None or old is None else _reshaped(old, axes)
    if node.op_type == "Squeeze" and old is not None:
        gone = [at for at, size in enumerate(old) if size == 1] if axes is None else [a % len(old) for a in axes if old]
        return tuple(size for at, size in enumerate(old) if at not in gone)
    if node.op_type == "Unsqueeze" and old is not None and axes is not None and len(old) + len(axes) <= FEW:
        rank = len(old) + len(axes)
        new, sizes = {axis % rank for axis in axes}, iter(old)
        return tuple(1 if at in new else next(sizes, 1) for at in range(rank))
    return None


def _reshaped(old: Sequence[int], target: Sequence[int]) -> tuple[int, ...]:
    sizes = [old[at] if size == 0 and at < len(old) else size for at, size in enumerate(target)]
    rest = math.prod(size for size in sizes if size != -1)
    return tuple(math.prod(old) // max(rest, 1) if size == -1 else size for size in sizes)


def _elementwise(compute: Callable[..., Any] | None, count: int | None = None) -> Rule:
    """Ops that broadcast `count` inputs, or any number of them; without `compute` only the shape is known."""

    def rule(node: NodeProto, operands: Sequence[Value]) -> Value | None:
        shapes = [value.shape for value in operands if value.shape is not None]
        if len(shapes) < len(operands) or len(operands) != (count or len(operands)):
            return as_large(node, operands)
        shape = _broadcast(shapes)
        if shape is None:
            return None
        size, numbers = math.prod(shape), [value.numbers for value in operands if value.numbers is not None]
        if compute is None or size > FEW or len(numbers) < len(operands):
            return Value(size, shape)
        parts = (each.reshape(own) for each, own in zip(numbers, shapes, strict=True))
        numbers_of_result = np.broadcast_to(np.asarray(compute(*parts), np.float64), shape)
        return Value(size, shape, numbers_of_result.reshape(-1))

    return rule


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    rank = max(map(len, shapes))
    aligned = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    sizes = []
    for axis in zip(*aligned, strict=True):
        others = {size for size in axis if size != 1}
        if len(others) > 1:
            return None
        sizes.append(others.pop() if others else 1)
    return tuple(sizes)


def _product(node: NodeProto, operands: Sequence[Value]) -> Value | None:
    one, other = operands[0].shape, operands[-1].shape
    if one is None or other is None or len(one) < 2 or len(other) < 2:
        return as_large(node, operands)
    before = _broadcast([one[:-2], other[:-2]]) if len(one) > 2 or len(other) > 2 else ()
    return None if before is None else Value(math.prod(shape := (*before, one[-2], other[-1])), shape)


def _gather(node: NodeProto, operands: Sequence[Value]) -> Value | None:
    """The gathered numbers of a vector; of any other input only the size: a row for each index."""
    values, places = operands[0], operands[-1]
    axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
    if values.shape is None or not values.shape:
        return as_large(node, operands)
    size = places.size * values.size // max(values.shape[axis % len(values.shape)], 1)
    if len(values.shape) > 1 or values.numbers is None or places.numbers is None or not values.size:
        return Value(size)
    at = np.clip(places.numbers, -values.size, values.size - 1).astype(np.int64)
    return Value(size, places.shape, values.numbers[at])


def _slice(node: NodeProto, operands: Sequence[Value]) -> Value | None:
    values, bounds = operands[0], [value.numbers for value in operands[1:3]]
    step = operands[4].numbers if len(operands) > 4 else np.ones(1)
    if values.numbers is None or values.shape is None or len(values.shape) != 1 or step is None or not step.all():
        return as_large(node, operands)
    limits = [int(np.clip(each[0], -FEW - 1, FEW + 1)) for each in bounds if each is not None and each.size == 1]
    if len(limits) != 2 or step.size != 1:
        return as_large(node, operands)
    picked = values.numbers[limits[0] : limits[1] : int(np.clip(step[0], -FEW, FEW)) or 1]
    return Value(picked.size, (picked.size,), picked)


def _reduced(compute: Callable[[Array], Any]) -> Rule:
    """Reductions, whose numbers are read for one axis at most."""

    def rule(node: NodeProto, operands: Sequence[Value]) -> Value:
        first = operands[0]
        if first.numbers is None or first.shape is None or len(first.shape) > 1 or not first.size:
            return Value(first.size)
        kept = next((a.i for a in node.attribute if a.name == "keepdims"), 1)
        return Value(1, (1,) * len(first.shape) if kept else (), np.array([compute(first.numbers)], np.float64))

    return rule


RULES: dict[str, Rule] = {
    "Range": _range,
    **dict.fromkeys(("ConstantOfShape", "Expand", "Tile"), _of_shape),
    **dict.fromkeys(("Resize", "Upsample"), _resize),
    "Pad": _pad,
    "OneHot": _one_hot,
    "Concat": _concat,
    **dict.fromkeys(("Identity", "Cast", "CastLike", "Reshape", "Squeeze", "Unsqueeze", "Flatten"), _same_numbers),
    "Add": _elementwise(np.add, 2),
    "Sub": _elementwise(np.subtract, 2),
    "Mul": _elementwise(np.multiply, 2),
    "Div": _elementwise(np.divide, 2),
    "Pow": _elementwise(np.power, 2),
    "Mod": _elementwise(np.fmod, 2),
    "Max": _elementwise(lambda *parts: np.maximum.reduce(np.broadcast_arrays(*parts))),
    "Min": _elementwise(lambda *parts: np.minimum.reduce(np.broadcast_arrays(*parts))),
    "Sum": _elementwise(lambda *parts: sum(parts)),
    **dict.fromkeys(("Where", "Equal", "And", "Or", "Xor"), _elementwise(None)),
    **dict.fromkeys(("Less", "LessOrEqual", "Greater", "GreaterOrEqual"), _elementwise(None)),
    "Neg": _elementwise(np.negative, 1),
    "Abs": _elementwise(np.abs, 1),
    "Ceil": _elementwise(np.ceil, 1),
    "Floor": _elementwise(np.floor, 1),
    "Sqrt": _elementwise(np.sqrt, 1),
    "Exp": _elementwise(np.exp, 1),
    "MatMul": _product,
    "Gather": _gather,
    "Slice": _slice,
    "ReduceProd": _reduced(np.prod),
    "ReduceSum": _reduced(np.sum),
    "ReduceMax": _reduced(np.max),
    "ReduceMin": _reduced(np.min),
}
