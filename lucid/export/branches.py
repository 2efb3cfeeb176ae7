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
    graph = _one_of([model.graph for model in models], bits)
    graph.name = "branches"
    graph.input.extend(inputs.values())
    graph.initializer.extend(map(_default, inputs.values()))
    opsets = {opset.domain: opset.version for model in models for opset in model.opset_import}
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    joined = helper.make_model(graph, opset_imports=imports, ir_version=max(model.ir_version for model in models))
    made: bytes = joined.SerializeToString()
    return made


def selection(number: int) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]:
    """The inputs that select the model of this number, in binary; bits that are not given are not set."""
    return {_bit(bit): np.array(True) for bit in range(number.bit_length()) if number >> bit & 1}


def _bit(bit: int) -> str:
    return f"bit_{bit}"


def _one_of(graphs: Sequence[onnx.GraphProto], bits: int) -> onnx.GraphProto:
    """A graph without inputs that computes one of these, by so many lowest bits of its number."""
    if len(graphs) == 1:
        branch = onnx.GraphProto()
        branch.CopyFrom(graphs[0])
        del branch.input[:], branch.output[:]
        branch.output.append(_result(graphs[0].output[0].name))
        return branch
    half = 1 << (bits - 1)
    if len(graphs) <= half:  # the highest bit is never set
        return _one_of(graphs, bits - 1)
    branches = {"then_branch": _one_of(graphs[half:], bits - 1), "else_branch": _one_of(graphs[:half], bits - 1)}
    output = f"result_{bits}"
    choice = helper.make_node("If", [_bit(bits - 1)], [output], **branches)
    return helper.make_graph([choice], "one_of", [], [_result(output)])


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
