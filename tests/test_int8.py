"""Weights and inputs of products in 8 bits: `lucid.quantize(..., activations=...)`, eagerly and exported."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import lucid
from lucid import nn
from lucid.core.graph.types import Array
from lucid.export import Target, explain, to_onnx
from lucid.models.vision.vit import ViT
from lucid.nn import functional as F
from lucid.runtime import Session
from tests.combinations import in_pairs
from tests.models import goldens
from tests.models.zoo import ZOO

WAYS = ("dynamic", "dynamic_rows", "static")
NODES = {  # that onnxruntime makes of a layer, besides those that only round the input
    "dynamic": {"DynamicQuantizeMatMul": 1},
    "dynamic_rows": {"QuantizeLinear": 1, "MatMulIntegerToFloat": 1},
    "static": {"QuantizeLinear": 1, "MatMulIntegerToFloat": 1},
}
SLOW = {"MatMul", "Gemm", "MatMulInteger", "DequantizeLinear", "MatMulNBits"}


class Network(nn.Module):
    """A table that is also the output layer, and two layers with one input."""

    def __init__(self) -> None:
        self.table = nn.Embedding(4096, 40)
        self.gate, self.up, self.down = nn.Linear(40, 70), nn.Linear(40, 70, bias=False), nn.Linear(70, 40)
        self.head = nn.Linear(40, 4096, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: lucid.Tensor) -> lucid.Tensor:
        x = self.table(ids)
        return self.head(x + self.down(F.silu(self.gate(x)) * self.up(x)))

    def input_specs(self) -> dict[str, lucid.TensorType]:
        return {"ids": lucid.spec("N", "L", dtype=lucid.int64)}


@pytest.fixture
def network() -> Network:
    lucid.manual_seed(0)
    return Network()


IDS = np.array([[3, 1, 29], [0, 7, 7]])
CALLS = [np.random.default_rng(number).integers(0, 100, (4, 8)) for number in range(3)]


def in_8_bits(model: Any, activations: Any, **options: Any) -> Any:
    calls = CALLS if activations == "static" else None
    return lucid.quantize(model, 8, activations=activations, **{"calibration": calls, **options})


def size(model: nn.Module) -> int:
    return sum(parameter.numpy().nbytes for parameter in model.parameters())


def relative(got: Array, want: Array) -> float:
    return float(np.abs(got - want).max() / np.abs(want).max())


def optimized(model: onnx.ModelProto, folder: Path) -> Counter[str]:
    """How many nodes of which kind onnxruntime is left with."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return Counter(node.op_type for node in onnx.load(folder / "optimized.onnx").graph.node)


# The model ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_the_result_computes_nearly_the_same_with_bytes(way: str, network: Network) -> None:
    small = in_8_bits(network, way)
    assert type(small) is Network and small.table.weight is small.head.weight
    assert small.up.weight.codes.dtype == lucid.int8 and small.up.weight.codes.shape == (70, 40)
    assert relative(small(IDS).numpy(), network(IDS).numpy()) < 0.05
    assert isinstance(network.up.weight, nn.Parameter)


def test_a_row_is_rounded_by_itself_or_with_all_others() -> None:
    """What the same row gives beside another one that is a hundred times as large."""
    lucid.manual_seed(0)
    layer = nn.Linear(64, 32)
    row = np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)
    both, expected = np.concatenate([row, 100 * row[:, ::-1]]), layer(row).numpy()
    alone, beside = ({way: in_8_bits(layer, way)(x).numpy()[:1] for way in WAYS[:2]} for x in (row, both))
    np.testing.assert_array_equal(alone["dynamic_rows"], beside["dynamic_rows"])
    assert relative(alone["dynamic"], expected) < 0.02 < 0.2 < relative(beside["dynamic"], expected)
    assert relative(beside["dynamic_rows"], expected) < 0.02


def test_rows_of_one_number_and_empty_inputs(network: Network) -> None:
    for way in WAYS:
        small = in_8_bits(network, way)
        x = np.stack([np.zeros(40), np.full(40, -2.5)]).astype(np.float32)
        assert relative(small.up(x).numpy(), network.up(x).numpy()) < 0.1
        assert small(np.zeros((0, 3), np.int64)).shape == (0, 3, 4096)
        session = Session(to_onnx(small))
        assert session(np.zeros((0, 3), np.int64)).shape == (0, 3, 4096)


@pytest.mark.parametrize("way", WAYS)
def test_the_state_goes_to_a_file_and_back(way: str, network: Network, tmp_path: Path) -> None:
    small = in_8_bits(network, way)
    state = small.state_dict()
    assert {key for key in state if key.startswith("up.")} == {"up.weight.codes", "up.weight.scales"} | (
        {"up.weight.input_scale", "up.weight.input_zero_point"} if way == "static" else set()
    )
    lucid.save(tmp_path / "small.safetensors", state)
    other = in_8_bits(Network(), way)
    other.load_state_dict(lucid.load(tmp_path / "small.safetensors"))
    np.testing.assert_array_equal(other(IDS).numpy(), small(IDS).numpy())


@pytest.mark.parametrize("ranges", ["minmax", "percentile", "entropy"])
def test_ranges_are_those_of_the_calibration(ranges: Any, network: Network) -> None:
    """An input larger than all those of the calibration is clipped."""
    weight = in_8_bits(network, "static", ranges=ranges).up.weight
    seen = np.concatenate([network.table(ids).numpy().reshape(-1) for ids in CALLS])
    step, zero = weight.input_scale.item(), weight.input_zero_point.item()
    low, high = -zero * step, (255 - zero) * step
    if ranges == "minmax":
        assert low == pytest.approx(seen.min(), abs=step) and high == pytest.approx(seen.max(), abs=step)
    else:
        assert seen.min() - step < low < high < seen.max() + step
    x = np.full((1, 40), 2 * high, np.float32)
    assert relative(lucid.quantize(network, 8).up(x).numpy(), weight(2 * x).numpy()) > 0.4


def test_a_weight_is_printed_with_the_mode_of_its_activations(network: Network) -> None:
    assert "(weight): Int8Weight(70, 40, activations='static')" in repr(in_8_bits(network, "static"))


def test_joined_projections_of_attention_keep_their_ranges() -> None:
    lucid.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64).eval()
    x = lucid.randn(2, 5, 32)
    for way in WAYS:
        small = in_8_bits(layer, way, calibration=[x] if way == "static" else None)
        assert isinstance(small.self_attn.in_proj_weight, nn.Int8Weight)
        assert relative(small(x).numpy(), layer(x).numpy()) < 0.05
        lucid.testing.assert_parity(small, target="cpu", providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("activations", [None, *WAYS])
def test_tables_that_are_only_indexed_have_a_scale_for_each_row(activations: Any) -> None:
    """With inputs of products in 8 bits or not; if such a table is multiplied all the same, inputs are not rounded."""
    lucid.manual_seed(0)
    model = nn.Sequential(nn.Embedding(4096, 40), nn.Linear(40, 8))
    small = in_8_bits(model, activations)
    table: Any = small[0].weight
    assert {key: value.shape for key, value in table.state_dict().items()} == {"codes": (4096, 40), "scales": (4096,)}
    assert relative(table[lucid.tensor(IDS)].numpy(), model[0](IDS).numpy()) < 0.005
    lucid.testing.assert_parity(small, lucid.spec("N", 3, dtype="int64"), target="cpu", providers=["cpu"])
    if activations in (None, "static"):
        assert repr(table) == "Int8Weight(4096, 40)"
        x = np.random.default_rng(0).standard_normal((3, 40)).astype(np.float32)
        assert relative(F.linear(x, table).numpy(), x @ table[:].numpy().T) < 1e-6
        session = Session(to_onnx(lambda x: F.linear(x, table), ("N", 40)))
        assert relative(session(x).numpy(), x @ table[:].numpy().T) < 1e-6


def test_a_model_in_8_bits_is_as_large_as_its_codes_and_scales(network: Network) -> None:
    """A table has a scale for each row; products, and tables that are in one, for each block."""
    network.other = nn.Embedding(4096, 40)
    small: Any = lucid.quantize(network, 8, block=16, symmetric=True)
    assert size(small.other) == 4096 * (40 + 4)
    assert size(small.table) == 4096 * 3 * (16 + 4)
    assert size(small.up) == 70 * 3 * (16 + 4)
    assert isinstance(lucid.quantize(network, 4).other.weight, nn.QuantizedWeight)
    tied = lucid.quantize(nn.TiedEmbedding(7, 40), 8, block=16, symmetric=True)  # of any size, as it is in products
    assert size(tied) == 7 * 3 * (16 + 4)
    half = lucid.quantize(nn.Embedding(5, 40, dtype="float16"), 8, smallest_table=1, dtype="float32")
    assert (half.weight.dtype, size(half)) == (lucid.float32, 5 * 44)


# Errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activations": "int8"}, "activations is 'int8', expected one of dynamic, dynamic_rows, static, or None"),
        ({"bits": 4}, "activations='dynamic' goes with weights in 8 bits, and bits is 4; give bits=8"),
        ({"bits": {"up": 4, "*": 8}}, "bits is 4; give bits=8"),
        ({"block": 32}, "block with activations='dynamic', where each row of a weight has one scale"),
        ({"symmetric": True, "search": True}, "leave out symmetric, search"),
        ({"method": "hqq"}, "leave out method"),
        ({"activations": "static"}, "activations='static' with no calibration"),
        ({"calibration": CALLS}, "activations='dynamic' with calibration"),
        ({"activations": "static", "calibration": []}, "the calibration has no calls"),
        ({"activations": "static", "calibration": CALLS, "ranges": "mse"}, "ranges is 'mse' with activations='static'"),
        ({"ranges": "minmax"}, "ranges is 'minmax' with activations='dynamic', expected one of minmax, percentile"),
        ({"activations": None, "ranges": "minmax"}, "ranges is 'minmax', which is for activations=\"static\""),
        ({"skip": "lm_head"}, "skip names 'lm_head', which no layer has"),
        ({"activations": "static", "calibration": [{"tokens": IDS}]}, "call 0 of the calibration has tokens"),
    ],
)
def test_options_that_do_not_exist(options: dict[str, Any], message: str, network: Network) -> None:
    with pytest.raises(ValueError, match=message):
        lucid.quantize(network, **{"bits": 8, "activations": "dynamic", **options})


def test_calibration_that_cannot_be_learnt_from(network: Network) -> None:
    network.spare = nn.Linear(40, 16)  # type: ignore[attr-defined]  # nothing calls it
    with pytest.raises(ValueError, match=r"quantize: spare.weight \[16, 40\]: no call of the calibration reaches it"):
        in_8_bits(network, "static")
    table = network.table.weight.numpy().copy()
    table[7, 3] = np.nan
    network.table.weight.assign(table)
    with pytest.raises(ValueError, match="the inputs have nan at"):
        in_8_bits(network, "static")
    with pytest.raises(ValueError, match=r"quantize: table.weight \[4096, 40\]: by_row: the weight is nan at \[7, 3\]"):
        in_8_bits(network, "dynamic")


def test_a_model_is_quantised_once(network: Network) -> None:
    with pytest.raises(ValueError, match="the model has been quantized before"):
        lucid.quantize(in_8_bits(network, "dynamic"))


def test_operands_that_do_not_fit() -> None:
    x, codes, scales = np.zeros((2, 8), np.float32), np.zeros((4, 8), np.int8), np.ones(4, np.float32)
    ops = lucid.ops
    with pytest.raises(TypeError, match="the weight is float32"):
        ops.int8_linear_dynamic(x, x, scales)
    with pytest.raises(TypeError, match=r"the input is int8\[4, 8\], expected floating-point"):
        ops.int8_linear_rows(codes, codes, scales)
    with pytest.raises(ValueError, match=r"the input is \[2, 7\] and the weight \[4, 8\], expected the same last axis"):
        ops.int8_linear_dynamic(x[:, :7], codes, scales)
    with pytest.raises(ValueError, match=r"the weight is \[4, 8\] and the scales are \[3\], expected \(N, K\) and"):
        ops.int8_linear_dynamic(x, codes, scales[:3])
    with pytest.raises(TypeError, match="expected a floating-point number and uint8"):
        ops.int8_linear_static(x, codes, scales, np.ones((), np.float32), np.zeros((), np.int8))
    with pytest.raises(ValueError, match="expected one number each"):
        ops.int8_linear_static(x, codes, scales, scales, np.zeros((), np.uint8))
    with pytest.raises(IndexError, match="indices range from 4 to 4"):
        ops.int8_embedding(np.array([4]), codes, scales)
    with pytest.raises(ValueError, match='a grid is for "static", which needs one'):
        nn.Int8Weight(lucid.quantization.by_row(x), lucid.float32, "static")


# Exported -------------------------------------------------------------------------------------------------------------


@in_pairs(provider=["any", "cpu", "portable", "openvino", "webgpu", "cuda"], opset=[17, 21, 24], way=WAYS)
def test_a_product_has_the_same_codes_everywhere(provider: Any, opset: int, way: str, network: Network) -> None:
    small = in_8_bits(network, way)
    x = network.table(IDS)
    session = Session(to_onnx(small.up, ("N", "L", 40), target=Target(provider, opset)))
    assert relative(session(x).numpy(), small.up(x).numpy()) < 1e-6


@in_pairs(opset=[18, 23], shape=[("N", "L", 40), ("N", 40), (2, 3, 40), (6, 40), (40,)], way=WAYS)
def test_onnxruntime_multiplies_bytes(
    opset: int, shape: tuple[Any, ...], way: str, network: Network, tmp_path: Path
) -> None:
    """In products of any rank, with sizes that are known or not, and biases."""
    layer = in_8_bits(network, way).gate
    counts = optimized(to_onnx(layer, shape, opset=opset), tmp_path)
    assert not SLOW & set(counts)
    assert {kind: counts[kind] for kind in NODES[way]} == NODES[way]


def test_layers_with_one_input_round_it_once(network: Network, tmp_path: Path) -> None:
    for way in WAYS:
        small = in_8_bits(network, way)
        counts = optimized(to_onnx(small), tmp_path)
        assert not SLOW & set(counts)
        assert counts["QuantizeLinear"] + counts["DynamicQuantizeLinear"] + counts["DynamicQuantizeMatMul"] == 3
        assert counts["MatMulIntegerToFloat"] + counts["DynamicQuantizeMatMul"] == 4


def test_the_file_holds_bytes_once(network: Network) -> None:
    """Also the weight that is both the table and the output layer."""
    small = in_8_bits(network, "dynamic")
    sizes = Counter(onnx.TensorProto.DataType.Name(w.data_type) for w in to_onnx(small).graph.initializer if w.dims)
    assert sizes["INT8"] == 4
    whole = sum(p.numpy().nbytes for p in small.parameters())
    assert whole < len(to_onnx(small).SerializeToString()) < whole + 10000


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("provider", ["any", "cpu", "portable"])
def test_parity_is_that_of_parts(provider: Any, way: str, network: Network, tmp_path: Path) -> None:
    small = in_8_bits(network, way)
    report = lucid.testing.assert_parity(small, target=provider, providers=["CPUExecutionProvider"])
    assert report.whole["CPUExecutionProvider"] < 0.05
    assert len(report.comparisons) == 4 * 4  # the output, and what three products round
    assert "inputs of products are rounded to 8 bits, so each" in str(report)
    to_onnx(small, target=provider, path=tmp_path / "model.onnx", external_data=True)
    lucid.testing.assert_parity(small, target=provider, exported=tmp_path / "model.onnx", providers=["cpu"])


def test_parity_notices_another_scale(network: Network) -> None:
    small, other = in_8_bits(network, "static"), in_8_bits(network, "static")
    other.down.weight.input_scale.assign(np.asarray(other.down.weight.input_scale.numpy() * np.float32(1.001)))
    with pytest.raises(lucid.testing.ParityError):
        lucid.testing.assert_parity(small, exported=to_onnx(other), providers=["cpu"])


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("way", WAYS)
def test_other_element_types(way: str, dtype: Any) -> None:
    lucid.manual_seed(0)
    layer = nn.Linear(64, 32, dtype=dtype)
    x = lucid.tensor(np.random.default_rng(0).standard_normal((3, 64)).tolist()).astype(dtype)
    small = in_8_bits(layer, way, calibration=[x] if way == "static" else None)
    session = Session(to_onnx(small, lucid.spec("N", 64, dtype=dtype)))
    within = {"float64": 1e-14, "float16": 2e-3, "bfloat16": 1e-2}[dtype]
    assert relative(session(x).numpy().astype(float), small(x).numpy().astype(float)) < within


def test_half_precision_composes(network: Network) -> None:
    """Scales are stored in it."""
    for way in WAYS:
        small = in_8_bits(network, way)
        lucid.testing.assert_parity(small, dtype="float16", providers=["cpu"])


def test_explain_says_how_products_are_computed_and_where_that_is_slower(network: Network) -> None:
    def report_of(way: str, target: Any = "any") -> str:
        return str(explain(in_8_bits(network, way), target=target))

    assert "with one scale for all rows" in report_of("dynamic") and "slower" not in report_of("dynamic")
    assert "each row by itself; slower than float32 with only 70 outputs" in report_of("dynamic_rows")
    assert "with the scale that calibration found" in report_of("static")
    assert "no kernel for products of bytes" in report_of("static", "webgpu")
    assert "slower than float32 with only 2 outputs" in str(explain(in_8_bits(nn.Linear(40, 2), "dynamic"), ("N", 40)))


# Models ---------------------------------------------------------------------------------------------------------------


def images(count: int) -> Array:
    return np.random.default_rng(count).standard_normal((count, 3, 32, 32)).astype(np.float32)


@pytest.mark.parametrize("way", WAYS)
def test_a_vision_transformer(way: str, tmp_path: Path) -> None:
    """All its products are of bytes, but that of the patches, which is a convolution, and those inside attention."""
    entry = next(e for e in ZOO if isinstance(e.load(), ViT))
    model = entry.load()
    case = goldens.cases(entry.variant)[0]
    inputs = {name: lucid.Tensor(array) for name, array in case.inputs.items()}
    small = in_8_bits(model, way, calibration=[inputs] if way == "static" else None)
    products = sum(isinstance(module, nn.Int8Weight) for module in small.modules())
    counts = optimized(to_onnx(small), tmp_path)
    assert counts["MatMulIntegerToFloat"] + counts["DynamicQuantizeMatMul"] == products > 6
    lucid.testing.assert_parity(small, target="cpu", providers=["CPUExecutionProvider"])
    outputs = [out if isinstance(out, tuple) else (out,) for out in (small(**inputs), model(**inputs))]
    for small_out, whole_out in zip(*outputs, strict=True):
        assert relative(small_out.numpy(), whole_out.numpy()) < 0.15
