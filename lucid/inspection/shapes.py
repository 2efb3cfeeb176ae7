"""The shape of every value of a model, for given values of its symbolic sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TypeAlias

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, ValueInfoProto

from lucid.core.sizes.dims import Dim, SymbolicSizeError, dim, evaluate, names_of
from lucid.export.onnx_file.element_codes import element_name
from lucid.runtime.constant_sizes import made_of_constants
from lucid.runtime.requirements import limits_of
from lucid.runtime.subgraphs import graphs_inside

Known: TypeAlias = tuple[int | None, ...]
MAX_SIZE = (1 << 31) - 1  # of one axis
_MAX_PROPAGATED = 1 << 20
_LISTS = (AttributeProto.INTS, AttributeProto.FLOATS, AttributeProto.STRINGS)
_BATCH, _LENGTH = 1, 128  # default sizes: of the first axis of an input, of any other


def free_sizes(model: ModelProto) -> dict[str, int]:
    """The symbolic sizes of the inputs with a default value each; one without a name is named after its axis."""
    free: dict[str, int] = {}
    limits = limits_of(model)
    least = {str(size): min(least, MAX_SIZE) for size, least, _ in limits.refusing}
    most = {**limits.explaining, **{str(size): most for size, _, most in limits.refusing if most is not None}}
    for value in real_inputs(model.graph):
        for axis, size in enumerate(value.type.tensor_type.shape.dim):
            if not size.HasField("dim_value"):
                for name in _names_in(_name(value, axis)):
                    usual = _LENGTH if axis else _BATCH
                    free.setdefault(name, max(min(usual, most.get(name, usual)), least.get(name, 0)))
    return free


def real_inputs(graph: GraphProto) -> list[ValueInfoProto]:
    """The inputs that are not weights (old files list weights as inputs too)."""
    weights = {tensor.name for tensor in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    return [value for value in graph.input if value.name not in weights]


def _name(value: ValueInfoProto, axis: int) -> str:
    name = str(value.type.tensor_type.shape.dim[axis].dim_param)
    return name or f"{value.name}.{axis}"


def _names_in(text: str) -> list[str]:
    """The names in a size such as ``3*L``. A text in another notation is a name itself, and so is ``seq-len``."""
    if not re.search(r"\w-\w", text):
        with suppress(ValueError):
            return sorted(names_of([dim(text)]))
    return [text]


def inferred(model: ModelProto, sizes: Mapping[str, int]) -> ModelProto:
    """A copy with these values of its symbolic sizes, and the types of its values as far as onnx finds them."""
    bound = ModelProto()
    bound.CopyFrom(model)
    for value in real_inputs(bound.graph):
        for axis, size in enumerate(value.type.tensor_type.shape.dim):
            if not size.HasField("dim_value"):
                _bind(size, _name(value, axis), sizes)
    for graph in graphs_inside(bound.graph):
        for value in (*graph.output, *graph.value_info):
            for size in value.type.tensor_type.shape.dim:
                if not size.HasField("dim_value"):
                    _bind(size, size.dim_param, sizes)
    # Data propagation takes fifty bytes or more for each element of a shape that onnx computes.
    propagate = made_of_constants(bound) <= _MAX_PROPAGATED
    # onnx raises these for a model that contradicts itself, and for a node without the inputs that its op needs.
    with suppress(onnx.shape_inference.InferenceError, ValueError):
        bound = onnx.shape_inference.infer_shapes(bound, data_prop=propagate)
    return bound


def shapes_of(model: ModelProto) -> dict[str, Known]:
    """Shapes by value name, of an `inferred` model; None for a size that cannot be known without running it."""
    shapes: dict[str, Known] = {}
    for graph in graphs_inside(model.graph):
        shapes |= {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
        for value in (*graph.input, *graph.value_info, *graph.output):
            if value.type.tensor_type.HasField("shape"):
                dims = value.type.tensor_type.shape.dim
                shapes.setdefault(value.name, tuple(d.dim_value if d.HasField("dim_value") else None for d in dims))
        for node in graph.node:
            if node.op_type == "Constant" and node.output:
                shapes.setdefault(node.output[0], _constant_shape(node))
    return shapes


def _bind(field: onnx.TensorShapeProto.Dimension, text: str, sizes: Mapping[str, int]) -> None:
    value = size_of(text, sizes)
    field.Clear()
    if value is not None:
        field.dim_value = value


def size_of(text: str, sizes: Mapping[str, int]) -> int | None:
    """The value of a size, which may be a sum or product of others; None if it is not known."""
    if text in sizes:
        return sizes[text]
    if not text:
        return None
    try:
        size = dim(text)
        return evaluate(size, sizes) if isinstance(size, Dim) else size
    except (ValueError, KeyError, SymbolicSizeError, ZeroDivisionError):
        return None  # another tool's notation


def _constant_shape(node: onnx.NodeProto) -> Known:
    for attribute in node.attribute:
        if attribute.HasField("t"):
            return tuple(attribute.t.dims)
        if attribute.type in _LISTS:
            return (len(attribute.ints) + len(attribute.floats) + len(attribute.strings),)
    return ()


def type_text(value: ValueInfoProto) -> str:
    """The type of an input or output as text: float32[N, L, 512]."""
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        return value.type.WhichOneof("value") or "unknown"
    name = element_name(tensor.elem_type)
    if not tensor.HasField("shape"):
        return f"{name}[...]"
    sizes = [str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim]
    return f"{name}[{', '.join(sizes)}]"
