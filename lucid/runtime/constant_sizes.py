"""How many elements a model's nodes compute from constants alone, however these are written.

onnxruntime computes such nodes when it loads a model, and onnx when it infers shapes. Here only shapes are computed,
and the few numbers that become shapes or bounds: those of `Constant` in each of its forms, of initializers, dense or
sparse, of the model and of branches and bodies, and what arithmetic makes of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, SparseTensorProto, TensorProto, numpy_helper

from lucid.runtime.constant_rules import FEW, RULES, Value, as_large

MAX_MADE = 1 << 28  # elements of all tensors computed from constants together: 2 GiB of int64
_NUMBERS = (
    *(TensorProto.INT64, TensorProto.INT32, TensorProto.INT16, TensorProto.INT8),
    *(TensorProto.UINT64, TensorProto.UINT32, TensorProto.UINT16, TensorProto.UINT8),
    *(TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16),
)


def made_of_constants(model: onnx.ModelProto) -> int:
    """The number of elements that the model's nodes compute from constants and shapes alone. The count stops when it
    exceeds `MAX_MADE`.
    """
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
            total += value.size * len(entry.output) if value.made else 0
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
            for attribute in entry.attribute:
                graphs = ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs)
                waiting += [_content(inner) for inner in graphs[::-1]]


def _content(graph: GraphProto) -> Iterator[TensorProto | SparseTensorProto | NodeProto]:
    yield from graph.initializer
    yield from graph.sparse_initializer
    yield from graph.node


def _fixed_shapes(graph: GraphProto) -> dict[str, tuple[int, ...]]:
    """Of the inputs whose sizes are all numbers."""
    found = {}
    for value in graph.input:
        sizes = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(size.HasField("dim_value") for size in sizes):
            found[value.name] = tuple(size.dim_value for size in sizes)
    return found


# ------------------------------------------------------------------------------------------------- in the file


def _dense(tensor: TensorProto) -> Value:
    size = math.prod(tensor.dims)
    numbers = None
    if tensor.data_type in _NUMBERS and not tensor.external_data and size <= FEW:
        numbers = numpy_helper.to_array(tensor).reshape(-1).astype(np.float64)
    return Value(size, tuple(tensor.dims), numbers)


def _sparse(tensor: SparseTensorProto) -> Value:
    """It is in the file without its zeros, so all of it is made."""
    size, numbers = math.prod(tensor.dims), None
    held, places = _dense(tensor.values), _dense(tensor.indices)
    if size <= FEW and held.numbers is not None and places.numbers is not None:
        numbers = np.zeros(size)
        at = places.numbers.astype(np.int64)
        if len(tensor.dims) == 1 and at.size == held.size and ((at >= 0) & (at < size)).all():
            numbers[at] = held.numbers
        else:
            numbers = None
    return Value(size, tuple(tensor.dims), numbers, made=True)


def _constant(node: NodeProto) -> Value | None:
    """Of a node `Constant`, whichever attribute holds it."""
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
    given = [known[name] for name in names if name in known]
    if not given or len(given) < len(names):
        return None
    with np.errstate(all="ignore"):
        found = RULES.get(kind, as_large)(node, given)
    if found is None:
        return None
    grown = found.size > max(value.size for value in given)
    return Value(found.size, found.shape, found.numbers, found.made or grown or any(value.made for value in given))
