"""What WebGPU's provider lacks or computes wrongly is written in another way. Numbers on a device: tests/devices."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest

import lucid
from lucid import Tensor, nn, ops
from lucid.export import explain, to_onnx
from lucid.models.llama import Llama
from lucid.models.t5 import T5
from lucid.runtime import Session
from lucid.testing import assert_parity
from tests.models import goldens

INT64 = onnx.TensorProto.INT64


def inferred(model: onnx.ModelProto) -> dict[str, int]:
    """The element type of every value."""
    shown = onnx.shape_inference.infer_shapes(model).graph
    types = {value.name: value.type.tensor_type.elem_type for value in (*shown.value_info, *shown.input)}
    return types | {tensor.name: tensor.data_type for tensor in shown.initializer}


def in_64_bits(model: onnx.ModelProto) -> Counter[str]:
    """The ops that compute with int64."""
    types = inferred(model)
    computing = set("Add Cast CumSum Equal Greater Less LessOrEqual Max Min Mul Range Sub Where".split())
    return Counter(
        node.op_type
        for node in model.graph.node
        if node.op_type in computing and any(types.get(name) == INT64 for name in node.input)
    )


def causal(query: Tensor, key: Tensor, value: Tensor) -> Any:
    return ops.attention(query, key, value, is_causal=True, window=3)


def test_masks_and_rotary_tables_are_of_32_bits() -> None:
    """Only sizes, and inputs of int64, are cast from 64 bits."""
    specs = [lucid.spec("N", 2, length, 4) for length in ("L", "S", "S")]
    model = to_onnx(causal, *specs, target="webgpu")
    assert in_64_bits(model) == {"Cast": 2}
    assert Counter(node.op_type for node in model.graph.node)["Range"] == 2
    llama = to_onnx(Llama.from_pretrained(goldens.folder("llama/llama3")), target="webgpu")
    assert in_64_bits(llama) == {"Cast": 2}  # of the length, and of the attention mask
    assert_parity(causal, *specs, target="webgpu")


def test_a_step_over_buffers_compares_positions_of_32_bits_and_writes_at_them() -> None:
    """Only sizes and the input's positions are cast from 64 bits."""
    decoder = Llama.from_pretrained(goldens.folder("llama/llama3"))
    assert in_64_bits(to_onnx(decoder, cache="fixed", target="webgpu")) == {"Cast": 4}
    buffer, new, starts = lucid.spec("N", 2, "C", 3), lucid.spec("N", 2, "L", 3), lucid.spec("N", dtype="int64")
    written = to_onnx(ops.write_at, buffer, new, starts, kwargs={"axis": 2}, target="webgpu")
    assert in_64_bits(written) == {"Cast": 2}
    session = Session(written)
    arrays = np.zeros((1, 2, 4, 3), np.float32), np.ones((1, 2, 2, 3), np.float32)
    assert session(*arrays, np.array([2]))[0, 0, :, 0].tolist() == [0, 0, 1, 1]
    for start in (-1, 3):
        with pytest.raises(Exception, match="ScatterElements got index"):
            session(*arrays, np.array([start]))


def test_relative_positions_are_of_32_bits() -> None:
    model = to_onnx(T5.from_pretrained(goldens.folder("t5/v1_1")), target="webgpu")
    assert in_64_bits(model) == {"Cast": 3}
    assert not {"Max", "Min"} & {node.op_type for node in model.graph.node}


def test_positions_that_are_asked_for_stay_in_64_bits() -> None:
    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        places = lucid.arange(x.shape[0])
        return places, (places + 1).unsqueeze(1) <= places

    model = to_onnx(both, ("N",), target="webgpu")
    assert [output.type.tensor_type.elem_type for output in model.graph.output] == [INT64, onnx.TensorProto.BOOL]
    assert_parity(both, ("N",), target="webgpu")


@pytest.mark.parametrize("other", [2**31, "x"], ids=["beyond 32 bits", "an input"])
def test_numbers_that_32_bits_may_not_hold_stay_in_64(other: Any) -> None:
    def compared(x: Tensor) -> Tensor:
        return lucid.arange(x.shape[0]) < (x if other == "x" else other)

    assert in_64_bits(to_onnx(compared, lucid.spec("N", dtype="int64"), target="webgpu"))["Less"] == 1


@pytest.mark.parametrize(
    "shapes", [((2, "N"), ("N",)), (("N",), ("N", 3)), (("N",), ("N",)), ((2, 1, 3), (3,))], ids=str
)
def test_a_vector_in_a_product_is_a_matrix(shapes: Any) -> None:
    model = to_onnx(ops.matmul, *shapes, target="webgpu")
    (product,) = (node for node in model.graph.node if node.op_type == "MatMul")
    shown = onnx.shape_inference.infer_shapes(model).graph
    ranks = {v.name: len(v.type.tensor_type.shape.dim) for v in (*shown.input, *shown.value_info)}
    assert all(ranks[name] > 1 for name in product.input)
    assert_parity(ops.matmul, *shapes, target="webgpu")


def test_operands_have_as_many_axes_as_each_other_unless_their_rows_are_multiples_of_4() -> None:
    def added(*shapes: Any) -> list[str]:
        return [node.op_type for node in to_onnx(ops.add, *shapes, target="webgpu").graph.node]

    assert added(("N", 1, "L", "S"), ("L", "S")) == ["Unsqueeze", "Add"]
    assert added(("N", "L", 64), ("L", 64)) == added(("N", "L", 6), (6,)) == added((2, 6), (2, 6)) == ["Add"]


@pytest.mark.parametrize(("channels", "out", "nodes"), [(6, 8, 3), (9, 4, 3), (6, 6, 1), (3, 8, 1), (12, 8, 1)])
def test_channels_that_its_convolution_confuses_are_more(channels: int, out: int, nodes: int) -> None:
    layer = nn.Conv2d(channels, out, 3, padding=1)
    assert len(to_onnx(layer, ("N", channels, "H", 5), target="webgpu").graph.node) == nodes
    assert_parity(layer, ("N", channels, "H", 5), target="webgpu")


@pytest.mark.parametrize("function", [lambda x: x.tan(), lambda x: x.acos(), lambda x: x.unsqueeze(()) + 1])
def test_other_ops_are_what_eager_code_computes(function: Any) -> None:
    x = lucid.tensor(np.linspace(-0.99, 0.99, 33, dtype=np.float32))
    assert_parity(function, x, target="webgpu")
    assert not {"Tan", "Acos", "Unsqueeze"} & {n.op_type for n in to_onnx(function, x, target="webgpu").graph.node}


def test_explain_tells_only_of_nodes_that_are_written_in_another_way() -> None:
    report = str(explain(nn.Linear(4, 4), ("N", 4), target="webgpu"))
    assert "positions" not in report
    assert "matrices" not in report
