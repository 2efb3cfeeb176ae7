"""Models with quantized weights: `lucid.quantize`, the modules, their state, and what is exported of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import lucid
from lucid import nn
from lucid.core.graph.types import Array
from lucid.export import ExportError, Target, explain, to_onnx
from lucid.models.gpt2 import GPT2, GPT2Config
from lucid.models.llama import Llama, LlamaConfig
from lucid.nn import functional as F
from lucid.quantization import Blocks
from lucid.runtime import Session
from tests.combinations import in_pairs

STANDARD, CONTRIB = "ai.onnx DequantizeLinear, MatMul", "com.microsoft MatMulNBits"
FORMATS = [(4, True), (4, False), (8, True), (8, False)]


class Network(nn.Module):
    """A table that is also the output layer, and a layer whose inputs the block does not divide."""

    def __init__(self) -> None:
        self.table = nn.Embedding(4096, 40)
        self.up, self.down = nn.Linear(40, 70), nn.Linear(70, 40, bias=False)
        self.head = nn.Linear(40, 4096, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: lucid.Tensor) -> lucid.Tensor:
        x = self.table(ids)
        return self.head(x + self.down(F.relu(self.up(x))))

    def input_specs(self) -> dict[str, lucid.TensorType]:
        return {"ids": lucid.spec("N", "L", dtype=lucid.int64)}


@pytest.fixture
def network() -> Network:
    lucid.manual_seed(0)
    return Network()


IDS = np.array([[3, 1, 29], [0, 7, 7]])


def relative(got: Array, want: Array) -> float:
    return float(np.abs(got - want).max() / np.abs(want).max())


def of_bits(model: nn.Module) -> list[str]:
    return [path for path, module in model.named_modules() if isinstance(module, nn.QuantizedWeight)]


# The model ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bits", "symmetric"), FORMATS)
def test_the_result_has_the_same_modules_and_computes_nearly_the_same(
    bits: int, symmetric: bool, network: Network
) -> None:
    small = lucid.quantize(network, bits, block=16, symmetric=symmetric)
    assert type(small) is Network
    assert relative(small(IDS).numpy(), network(IDS).numpy()) < {4: 0.2, 8: 0.01}[bits]
    assert of_bits(network) == []  # it is not changed


def test_a_product_is_that_with_the_weight_the_codes_stand_for(network: Network) -> None:
    small = lucid.quantize(network, block=16)
    weight: Any = small.up.weight
    rows = lucid.ops.quantized_linear(
        np.eye(40, dtype=np.float32), weight.packed, weight.scales, weight.zero_points, bits=4, block=16
    )
    assert np.abs(rows.numpy().T - network.up.weight.numpy()).max() <= weight.scales.numpy().max()
    x = np.random.default_rng(0).standard_normal((3, 40)).astype(np.float32)
    assert relative(small.up(x).numpy(), x @ rows.numpy() + small.up.bias.numpy()) < 1e-6


def test_a_shared_weight_stays_shared_and_all_else_is_that_of_the_model(network: Network) -> None:
    small = lucid.quantize(network)
    assert small.table.weight is small.head.weight
    assert small.up.bias is network.up.bias
    assert sorted(of_bits(small)) == ["down.weight", "table.weight", "up.weight"]


def test_methods_that_look_at_more_lose_less(network: Network) -> None:
    ids = np.random.default_rng(0).integers(0, 30, (40, 8))
    expected = network(ids).numpy()
    lost = {}
    for name, options in {
        "rtn": {"method": "rtn"},
        "fit": {},
        "search": {"search": True},
        "hqq": {"method": "hqq"},
        "gptq": {"method": "gptq", "calibration": [ids]},
        "by name": {"method": "gptq", "calibration": iter([{"ids": ids[:20]}, {"ids": ids[20:]}])},
        "by position": {"method": "gptq", "calibration": [(ids[:20],), (lucid.tensor(ids[20:]),)]},
    }.items():
        small = lucid.quantize(network, 4, block=16, skip="table", **options)
        lost[name] = float(np.square(small(ids).numpy() - expected).mean())
    assert lost["gptq"] < lost["search"] < lost["rtn"] and max(lost["hqq"], lost["fit"]) < lost["rtn"]
    assert lost["by name"] == pytest.approx(lost["gptq"], rel=0.01)
    assert lost["by position"] == pytest.approx(lost["gptq"], rel=0.01)


def test_small_tables_stay_as_they_are_unless_a_layer_shares_them(network: Network) -> None:
    network.positions = nn.Embedding(512, 40)  # type: ignore[attr-defined]
    usual = ["down.weight", "table.weight", "up.weight"]
    assert sorted(of_bits(lucid.quantize(network))) == usual
    small = lucid.quantize(network, smallest_table=4097)
    assert sorted(of_bits(small)) == usual and small.table.weight is small.head.weight
    assert "positions.weight" in of_bits(lucid.quantize(network, smallest_table=512))
    with pytest.raises(ValueError, match="Embedding has no linear layers and no embedding tables of 4096 rows"):
        lucid.quantize(nn.Embedding(512, 32))


def test_layers_that_are_skipped_keep_their_weights(network: Network) -> None:
    small = lucid.quantize(network, skip=["head", "d*"])
    assert of_bits(small) == ["up.weight"]  # the table is the head's weight
    assert small.down.weight is network.down.weight


def bits_of(model: nn.Module) -> dict[str, int]:
    return {path: module.bits for path, module in model.named_modules() if isinstance(module, nn.QuantizedWeight)}


@pytest.mark.parametrize(
    ("bits", "expected"),
    [
        ({"up": 8, "*": 4}, {"table.weight": 4, "up.weight": 8, "down.weight": 4}),
        ({"*": 4, "up": 8}, {"table.weight": 4, "up.weight": 4, "down.weight": 4}),  # the first that matches
        ({"up": None, "*": 8}, {"table.weight": 8, "down.weight": 8}),
        ({"d*": 8}, {"down.weight": 8}),
        ({"head": 8, "*": 4}, {"table.weight": 8, "up.weight": 4, "down.weight": 4}),  # the table is the head's weight
    ],
)
def test_bits_by_layer(bits: dict[str, int | None], expected: dict[str, int], network: Network) -> None:
    small = lucid.quantize(network, bits, block=16)
    assert bits_of(small) == expected
    assert relative(small(IDS).numpy(), network(IDS).numpy()) < 0.2
    session = Session(to_onnx(small, target=Target("cpu", accuracy_level=0)), threads=1)
    assert relative(session(IDS).numpy(), small(IDS).numpy()) < 2e-6


def test_what_is_skipped_is_so_whatever_bits_say(network: Network) -> None:
    assert bits_of(lucid.quantize(network, {"up": 8, "*": 4}, skip="up")) == {"table.weight": 4, "down.weight": 4}


@pytest.mark.parametrize("symmetric", [True, False])
def test_the_state_goes_to_a_file_and_back(symmetric: bool, network: Network, tmp_path: Path) -> None:
    small = lucid.quantize(network, block=16, symmetric=symmetric)
    state = small.state_dict()
    assert state["up.weight.packed"].shape == (70, 3, 8) and state["up.weight.packed"].dtype == lucid.uint8
    assert state["up.weight.scales"].shape == (70, 3)
    assert ("up.weight.zero_points" in state) is not symmetric
    lucid.save(tmp_path / "small.safetensors", state)
    other = lucid.quantize(Network(), block=16, symmetric=symmetric)
    other.load_state_dict(lucid.load(tmp_path / "small.safetensors"))
    np.testing.assert_array_equal(other(IDS).numpy(), small(IDS).numpy())


def test_a_quantized_weight_is_printed_with_its_bits(network: Network) -> None:
    assert "(weight): QuantizedWeight(70, 40, bits=4, block=32)" in repr(lucid.quantize(network))


def test_scales_may_be_wider_than_the_weights(network: Network) -> None:
    half = Network()
    half.load_state_dict(network.state_dict())
    half.to("float16")
    small = lucid.quantize(half, block=16, dtype="float32")
    weight: Any = small.up.weight
    assert weight.scales.dtype == lucid.float32 and weight.dtype == lucid.float32
    wide: Any = lucid.quantize(half.to("float32"), block=16).up.weight
    np.testing.assert_array_equal(weight.scales.numpy(), wide.scales.numpy())


def test_progress_is_told_before_each_layer(network: Network) -> None:
    events: list[tuple[str, int, int]] = []
    lucid.quantize(network, skip="down", progress=lambda *each: events.append(each))
    assert events == [("table", 0, 3), ("up", 1, 3), ("head", 2, 3)]


# Errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 3}, "bits is 3, expected one of 4, 8"),
        ({"bits": {"up": 3, "*": 4}}, "bits is 3, expected one of 4, 8"),
        ({"bits": {"lm_head": 8, "*": 4}}, "bits names 'lm_head', which no layer has; there are table, up, down, head"),
        ({"bits": {}}, "bits is {}, expected 4, 8, or bits by pattern"),
        ({"block": 24}, "block is 24, expected a power of two from 16 to 2048"),
        ({"block": 8}, "block is 8"),
        ({"method": "awq"}, "method is 'awq', expected one of fit, rtn, hqq, gptq"),
        (
            {"method": "gptq"},
            'method="gptq" with no calibration; method="gptq" needs calibration, the others take none',
        ),
        ({"calibration": [IDS]}, 'method="fit" with calibration'),
        ({"method": "hqq", "symmetric": True}, 'method="hqq" finds zero points; leave out symmetric=True'),
        ({"method": "hqq", "search": True}, 'search is for method="rtn", and the method is "hqq"'),
        ({"activations": "dynamic", "bits": 8, "dtype": "float32"}, "dtype is for weights in blocks, and activations"),
        ({"skip": "lm_head"}, "skip names 'lm_head', which no layer has; there are table, up, down, head"),
    ],
)
def test_options_that_do_not_exist(options: dict[str, Any], message: str, network: Network) -> None:
    with pytest.raises(ValueError, match=message):
        lucid.quantize(network, **options)


def test_layers_of_a_small_model_are_named_in_full() -> None:
    layer = nn.Linear(32, 32)
    with pytest.raises(ValueError, match="which no layer has; there are first$"):
        lucid.quantize(nn.ModuleDict({"first": layer}), 4, skip="x")
    with pytest.raises(ValueError, match="which no layer has; the model is itself the only one, which [*] names$"):
        lucid.quantize(layer, 4, skip="x")


def test_calibration_that_cannot_be_learnt_from(network: Network) -> None:
    network.spare = nn.Linear(40, 16)  # type: ignore[attr-defined]  # nothing calls it
    with pytest.raises(ValueError, match=r"quantize: spare.weight \[16, 40\]: no call of the calibration reaches it"):
        lucid.quantize(network, method="gptq", calibration=[IDS])
    with pytest.raises(ValueError, match="call 1 of the calibration has tokens, and the model takes ids: missing"):
        lucid.quantize(network, method="gptq", calibration=[IDS, {"tokens": IDS}])
    for one, kind in (({"x": np.zeros((1, 32))}, "dict"), (3, "int")):
        with pytest.raises(TypeError, match=rf"quantize: calibration is a {kind}, expected a list of calls: \[call"):
            lucid.quantize(nn.Linear(32, 4), method="gptq", calibration=one)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"call 0 of the calibration: x has nan at \[0, 1\], expected finite numbers"):
        lucid.quantize(nn.Linear(2, 2), method="gptq", calibration=[np.array([[1, np.nan]], np.float32)])
    table = network.table.weight.numpy().copy()
    table[7, 3] = np.nan
    network.table.weight.assign(table)
    with pytest.raises(ValueError, match="the inputs have nan at"):
        lucid.quantize(network, method="gptq", calibration=[IDS])


def test_bits_and_blocks_may_be_numpys() -> None:
    small = lucid.quantize(nn.Linear(64, 4), np.int64(4), block=np.int64(16))
    lucid.testing.assert_parity(small, lucid.spec("N", 64))


@pytest.mark.parametrize("index", [-1, 4096])
def test_an_index_outside_a_table(index: int, network: Network) -> None:
    for model in (network, lucid.quantize(network)):
        with pytest.raises(IndexError, match=rf"indices range from {min(index, 0)} to {max(index, 0)}.* has 4096 rows"):
            model(np.array([[0, index]]))


def test_a_model_is_quantised_once(network: Network) -> None:
    with pytest.raises(ValueError, match="the model has been quantized before; quantize the one with float weights"):
        lucid.quantize(lucid.quantize(network))


def test_a_model_without_such_layers() -> None:
    with pytest.raises(ValueError, match="LayerNorm has no linear layers and no embedding tables of 4096 rows"):
        lucid.quantize(nn.LayerNorm(8))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_named(value: float, network: Network) -> None:
    weight = network.down.weight.numpy().copy()
    weight[3, 4] = value
    network.down.weight.assign(weight)
    with pytest.raises(ValueError, match=rf"quantize: down.weight \[40, 70\]: fit: the weight is {value} at \[3, 4\]"):
        lucid.quantize(network)


def test_a_state_that_does_not_fit(network: Network) -> None:
    small = lucid.quantize(network, block=16)
    weight: Any = small.up.weight
    with pytest.raises(ValueError, match=r"scales is \[70, 2\], expected \[70, 3\] for 40 inputs in 4 bits and blocks"):
        lucid.ops.quantized_linear(
            np.zeros((1, 40), np.float32), weight.packed, weight.scales.numpy()[:, :2], bits=4, block=16
        )
    with pytest.raises(TypeError, match="packed is float32"):
        lucid.ops.quantized_linear(np.zeros((1, 40), np.float32), weight.scales, weight.scales, bits=4, block=16)


# Exported -------------------------------------------------------------------------------------------------------------


@in_pairs(provider=["any", "cpu", "portable"], opset=[17, 21, 24], bits=[4, 8], symmetric=[True, False])
def test_level_0_is_exact(provider: Any, opset: int, bits: int, symmetric: bool, network: Network) -> None:
    small = lucid.quantize(network, bits, block=16, symmetric=symmetric)
    session = Session(to_onnx(small, target=Target(provider, opset, accuracy_level=0)), threads=1)
    assert relative(session(IDS).numpy(), small(IDS).numpy()) < 2e-6


@in_pairs(provider=["any", "cpu", "portable"], bits=[4, 8], dtype=["float64", "float16", "bfloat16"])
def test_other_element_types(provider: Any, bits: int, dtype: Any) -> None:
    """ONNX has no DequantizeLinear of float64."""
    within = {"float64": 1e-14, "float16": 1e-3, "bfloat16": 1e-2}[dtype]
    small = lucid.quantize(nn.Linear(64, 32, dtype=dtype), bits, block=16)
    x = lucid.tensor(np.random.default_rng(0).standard_normal((3, 64)).tolist()).astype(dtype)
    for level in (0, 4):
        session = Session(
            to_onnx(small, lucid.spec("N", 64, dtype=dtype), target=Target(provider, accuracy_level=level)), threads=1
        )
        allowed = within if level == 0 or dtype != "float16" else 0.02
        assert relative(session(x).numpy().astype(float), small(x).numpy().astype(float)) < allowed


class Table(nn.Module):
    quantizable: ClassVar[dict[str, Any]] = {"table": "table"}

    def __init__(self, read: Callable[[Any], lucid.Tensor]) -> None:
        self.table, self.read = nn.Parameter(lucid.randn(50, 40)), read

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        return x + self.read(self.table)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(
    "read", [lambda t: t[:-1], lambda t: t[-3:], lambda t: t[45:100], lambda t: t[-1], lambda t: t[7:3], lambda t: t[:]]
)
def test_rows_of_a_table_are_read_as_those_of_a_tensor(read: Callable[[Any], lucid.Tensor], bits: int) -> None:
    lucid.manual_seed(0)
    model, x = Table(read), lucid.zeros(1, 40)
    small, expected = lucid.quantize(model, bits, smallest_table=1), model(x).numpy()
    assert small(x).shape == expected.shape
    for provider in ("any", "cpu"):
        got = Session(to_onnx(small, (1, 40), target=provider), threads=1)(x).numpy()
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, atol=0.3)


def test_rows_of_a_table_up_to_symbolic_sizes() -> None:
    class Positions(nn.Module):
        quantizable: ClassVar[dict[str, Any]] = {"table": "table"}

        def __init__(self) -> None:
            self.table = nn.Parameter(lucid.randn(50, 40))

        def forward(self, x: lucid.Tensor) -> lucid.Tensor:
            return x + self.table[-x.shape[0] :] + self.table[: x.shape[0]]

    small, x = lucid.quantize(Positions(), 8, smallest_table=1), lucid.zeros(3, 40)
    got = Session(to_onnx(small, ("L", 40), target="cpu"), threads=1)(x).numpy()
    np.testing.assert_allclose(got, small(x).numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("level", [0.0, 4.0, False])
def test_a_level_is_a_whole_number(level: Any) -> None:
    with pytest.raises(ExportError, match="accuracy_level .* is not supported: choose 4, inputs of products rounded"):
        Target("any", accuracy_level=level)


def test_formats_are_whole_numbers_and_scales_floats() -> None:
    for options in ({"bits": 4.0}, {"block": 32.0}):
        with pytest.raises(ValueError, match=r"(bits is 4\.0|block is 32\.0), expected"):
            lucid.quantize(nn.Linear(64, 8), **options)
    with pytest.raises(TypeError, match="quantize: dtype is int8, expected a floating-point type, that of the scales"):
        lucid.quantize(nn.Linear(64, 8), dtype="int8")


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("provider", ["any", "cpu", "portable"])
def test_level_0_keeps_nan(provider: Any, bits: int) -> None:
    """Level 4 may lose it: docs/limitations.md."""
    small = lucid.quantize(nn.Linear(64, 32), bits, block=32)
    x = lucid.tensor([[math.nan] + [1.0] * 63, [1.0] * 64])
    session = Session(to_onnx(small, ("N", 64), target=Target(provider, accuracy_level=0)), threads=1)
    assert np.isnan(session(x).numpy()).all(1).tolist() == [True, False]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("optimize", [False, True])
def test_products_of_half_precision_after_each_other(dtype: Any, optimize: bool) -> None:
    """Without optimisation onnxruntime's float16 MatMulNBits gave 0 after a node that it computes in float32."""
    lucid.manual_seed(0)
    small = lucid.quantize(nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 16)).to(dtype))
    x = lucid.randn(3, 64).astype(dtype)
    model = to_onnx(small, lucid.spec("N", 64, dtype=dtype), target="cpu")
    got = Session(model, threads=1, optimize=optimize)(x).numpy().astype(float)
    assert relative(got, small(x).numpy().astype(float)) < 0.03
    if dtype == "bfloat16":  # in float32, by the form for float32
        assert [node.op_type for node in model.graph.node].count("MatMulNBits") == 2


@pytest.mark.parametrize(("bits", "symmetric"), FORMATS)
@pytest.mark.parametrize("provider", ["any", "cpu"])
def test_level_4_rounds_the_inputs_of_products(
    provider: Any, bits: int, symmetric: bool, network: Network, tmp_path: Path
) -> None:
    small = lucid.quantize(network, bits, block=16, symmetric=symmetric)
    to_onnx(small, target=provider, path=tmp_path / "model.onnx")
    assert 1e-5 < relative(Session(tmp_path / "model.onnx")(IDS).numpy(), small(IDS).numpy()) < 0.03


def test_the_level_of_standard_products_is_in_the_file(network: Network, tmp_path: Path) -> None:
    """`Session` asks onnxruntime for it: its default is 4."""
    small = lucid.quantize(network, block=16)
    path = tmp_path / "model.onnx"
    model = to_onnx(small, target=Target(accuracy_level=0), path=path)
    for source in (path, str(path), model, path.read_bytes()):
        assert relative(Session(source)(IDS).numpy(), small(IDS).numpy()) < 2e-6
    other = Session(path, config={"session.qdq_matmulnbits_accuracy_level": "4"})  # what is asked for by name counts
    assert relative(other(IDS).numpy(), small(IDS).numpy()) > 1e-5


@pytest.mark.parametrize("provider", ["any", "cpu", "portable"])
@pytest.mark.parametrize("bits", [4, 8])
def test_parity_is_that_of_level_0_and_says_what_level_4_adds(provider: Any, bits: int, network: Network) -> None:
    report = lucid.testing.assert_parity(
        lucid.quantize(network, bits, block=16), target=provider, providers=["CPUExecutionProvider"]
    )
    assert report.passed and report.max_abs < 1e-5
    if provider == "portable":  # its weights are widened, and its products exact
        assert not report.rounded
        return
    assert 1e-4 < report.rounded["CPUExecutionProvider"] < 0.05
    assert "compared at accuracy level 0; level 4 adds up to 0.0" in str(report)


@pytest.mark.parametrize("provider", ["any", "cpu"])
def test_parity_of_an_export_that_is_given_is_that_of_level_0_too(
    provider: Any, network: Network, tmp_path: Path
) -> None:
    small = lucid.quantize(network, block=16)
    path = tmp_path / "model.onnx"
    to_onnx(small, target=provider, path=path, external_data=True)
    before = path.read_bytes()
    for exported in (path, to_onnx(small, target=provider)):
        report = lucid.testing.assert_parity(small, exported=exported, providers=["CPUExecutionProvider"])
        assert report.max_abs < 1e-5 and 1e-4 < report.rounded["CPUExecutionProvider"] < 0.05
    assert path.read_bytes() == before
    assert lucid.testing.bisect(small, exported=to_onnx(small, target=provider), target=provider) is None
    with pytest.raises(lucid.testing.ParityError):
        lucid.testing.assert_parity(small, exported=to_onnx(lucid.quantize(network, 8, block=16), target=provider))


def test_parity_at_level_0_says_nothing_of_others(network: Network, tmp_path: Path) -> None:
    small, exact = lucid.quantize(network, block=16), Target("cpu", accuracy_level=0)
    assert not lucid.testing.assert_parity(small, target=exact).rounded
    to_onnx(small, target=exact, path=tmp_path / "model.onnx")
    assert not lucid.testing.assert_parity(small, exported=tmp_path / "model.onnx").rounded
    assert not lucid.testing.assert_parity(network).rounded


def test_another_level_is_an_error() -> None:
    with pytest.raises(ExportError, match="accuracy_level 2 is not supported: choose 4, inputs of products rounded to"):
        Target(accuracy_level=2)


@pytest.mark.parametrize(
    ("target", "bits", "taken", "reason"),
    [
        (Target("cpu"), 4, CONTRIB, ""),
        (Target("cpu"), 8, CONTRIB, ""),
        (Target("cpu", accuracy_level=0), 8, "expanded", "unpacks the weight at each call, which takes 2 to 11 times"),
        (Target("any"), 4, STANDARD, "takes only standard ops"),
        (Target("any", 20), 4, "expanded", "needs opset 21, this export asks for 20"),
    ],
)
def test_explain_says_how_a_product_is_computed(
    target: Target, bits: int, taken: str, reason: str, network: Network
) -> None:
    (product,) = [
        d for d in explain(lucid.quantize(network, bits).up, target=target).decisions if d.op == "quantized_linear"
    ]
    assert product.taken == taken
    assert reason in " ".join(why for _, why in product.refused)


@pytest.mark.parametrize("provider", ["any", "cpu"])
def test_explain_says_where_a_product_takes_longer_than_float32(provider: Any, network: Network) -> None:
    def why(level: int, block: int) -> str:
        target = Target(provider, accuracy_level=level)
        (product, *_) = explain(lucid.quantize(network, block=block).up, target=target).decisions
        return product.note

    assert why(4, 32) == "inputs are rounded to 8 bits, in blocks of a row"
    assert "slower for some 16 and more" in why(4, 16)
    assert why(0, 32) == "computed in float32; faster than float32 for few rows, slower for some 16 and more"
    layer, size = nn.Linear(32, 8), (8, 1)
    blocks = Blocks(np.zeros((8, 32), np.uint8), np.ones(size, np.float32), None, 4, 32, np.ones(size, np.float32))
    layer.weight = nn.QuantizedWeight(blocks, lucid.float32)
    assert "slower for some 16 and more" in explain(layer, target=provider).decisions[0].note


@pytest.mark.parametrize("provider", ["any", "cpu"])
@pytest.mark.parametrize("bits", [4, 8])
def test_the_file_is_small_and_its_weights_have_their_names(provider: Any, bits: int) -> None:
    layer = lucid.quantize(nn.Linear(512, 256), bits, symmetric=True)
    model = to_onnx(layer, target=provider)
    size = 512 * 256 * bits // 8 + 4 * 512 * 256 // 32
    assert size < len(model.SerializeToString()) < 1.05 * size
    kept = {"cpu": "weight.packed", "any": "weight.packed.T"}[provider]
    (weight,) = [w for w in model.graph.initializer if w.name == kept]
    kind = {("any", 4): onnx.TensorProto.INT4, ("any", 8): onnx.TensorProto.INT8}.get((provider, bits))
    assert weight.data_type == (kind or onnx.TensorProto.UINT8)


def test_onnx_reads_the_standard_weights_as_the_numbers_they_stand_for(tmp_path: Path) -> None:
    """With weights in the file and in a side file."""
    layer = lucid.quantize(nn.Linear(48, 33, bias=False), block=16)
    x = np.eye(48, dtype=np.float32)
    for external in (False, True):
        to_onnx(layer, path=tmp_path / "model.onnx", external_data=external)
        model = onnx.load(tmp_path / "model.onnx")
        (output,) = ReferenceEvaluator(model).run(None, {"x": x})
        assert relative(output, layer(x).numpy()) < 1e-6


# Models ---------------------------------------------------------------------------------------------------------------


def decoders() -> list[nn.CausalDecoder]:
    return [
        Llama(LlamaConfig(4096, 32, 48, 4, 2, 8, (None, None), tied=True)),
        GPT2(GPT2Config(vocab_size=4096, max_positions=32, hidden_size=32, num_layers=1, num_heads=2)),
    ]


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("cache", ["growing", "fixed"])
def test_decoders_generate_the_same_tokens_eagerly_and_exported(number: int, cache: Any) -> None:
    lucid.manual_seed(0)
    small = lucid.quantize(decoders()[number], 4, block=16)
    prompt = np.array([[3, 1, 4, 1, 5]])
    expected = lucid.generation.Generator(small).generate(prompt, max_new_tokens=8)
    for provider in ("any", "cpu"):
        session = Session(to_onnx(small, cache=cache, target=Target(provider, accuracy_level=0)))
        tokens = lucid.generation.Generator(session).generate(prompt, max_new_tokens=8)
        np.testing.assert_array_equal(tokens, expected)


LAYERS: dict[str, nn.Module] = {
    "attention": nn.MultiHeadAttention(32, 4),
    "cross-attention": nn.MultiHeadAttention(32, 4, kdim=24, vdim=16),
    "encoder": nn.TransformerEncoderLayer(32, 4, 64),
    "decoder": nn.TransformerDecoderLayer(32, 4, 64),
    "gated": nn.GatedMLP(32, 64),
}


@pytest.mark.parametrize("name", LAYERS)
def test_the_layers_of_modules_are_found(name: str) -> None:
    small = lucid.quantize(LAYERS[name].eval(), 8, block=16)
    assert of_bits(small)
    report = lucid.testing.assert_parity(small, target="cpu", providers=["CPUExecutionProvider"])
    assert report.rounded
