"""Models as the branches of one, each run of which takes one of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def as_branches(serialized: Sequence[bytes]) -> bytes:
    """A model that computes what one of these computes: the one that its inputs select, see `selection`.

    The other inputs are those of all models; all have defaults, so a run is given those of its branch alone. Names
    inside the branches may be the same ones, as each is a scope of its own.

    Args:
        serialized: models of one float32 output each, without model-local functions. Those that import a domain import
            the same opset of it, and inputs of the same name have the same type.
    """
    models = [onnx.ModelProto.FromString(model) for model in serialized]
    bits = (len(models) - 1).bit_length()
    inputs = {value.name: _with_an_open_size(value) for model in models for value in model.graph.input}
    inputs |= {bit: helper.make_tensor_value_info(bit, TensorProto.BOOL, []) for bit in map(_bit, range(bits))}
    joined = onnx.ModelProto(ir_version=max(model.ir_version for model in models))
    opsets = {opset.domain: opset.version for model in models for opset in model.opset_import}
    joined.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in opsets.items())
    _write_one_of(joined.graph, [model.graph for model in models], bits)
    joined.graph.name = "branches"
    joined.graph.input.extend(inputs.values())
    joined.graph.initializer.extend(map(_default, inputs.values()))
    made: bytes = joined.SerializeToString()
    return made


def selection(number: int) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]:
    """The inputs that select the model of this number, in binary; bits that are not given are not set."""
    return {_bit(bit): np.array(True) for bit in range(number.bit_length()) if number >> bit & 1}


def _bit(bit: int) -> str:
    return f"bit_{bit}"


def _write_one_of(graph: onnx.GraphProto, choices: Sequence[onnx.GraphProto], bits: int) -> None:
    """Make a graph without inputs compute one of these, by so many lowest bits of its number.

    It is written in place, since a graph that is made on its own is copied into each one around it, with its weights.
    """
    if len(choices) == 1:
        graph.CopyFrom(choices[0])
        del graph.input[:], graph.output[:]
        graph.output.append(_result(choices[0].output[0].name))
        return
    half = 1 << (bits - 1)
    if len(choices) <= half:  # the highest bit is never set
        _write_one_of(graph, choices, bits - 1)
        return
    graph.name, output = "one_of", f"result_{bits}"
    choice = graph.node.add(op_type="If", input=[_bit(bits - 1)], output=[output])
    for name, part in (("then_branch", choices[half:]), ("else_branch", choices[:half])):
        branch = choice.attribute.add(name=name, type=onnx.AttributeProto.GRAPH)
        _write_one_of(branch.g, part, bits - 1)
    graph.output.append(_result(output))


def _result(name: str) -> onnx.ValueInfoProto:
    """A result, whose rank is open, as branches differ in it."""
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)


def _with_an_open_size(value: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    """An input with one open size at least, unless it is a number, so that its default takes no memory."""
    kind = value.type.tensor_type
    if any(dim.HasField("dim_param") for dim in kind.shape.dim):
        return value
    return helper.make_tensor_value_info(value.name, kind.elem_type, [None] * len(kind.shape.dim))


def _default(value: onnx.ValueInfoProto) -> onnx.TensorProto:
    kind = value.type.tensor_type
    sizes = [dim.dim_value for dim in kind.shape.dim]  # 0 for an open one
    return numpy_helper.from_array(np.zeros(sizes, helper.tensor_dtype_to_np_dtype(kind.elem_type)), value.name)
