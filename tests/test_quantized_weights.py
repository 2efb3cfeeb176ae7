"""Which weights `lucid.quantize` quantizes, and what reads them: `nn.Module.quantizable`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest

import lucid
from lucid import nn
from lucid.core.graph.values import Constant
from lucid.export import Target, explain, to_onnx
from lucid.models.deepseek import HeadProjections, Router
from lucid.models.delightful_tts import ConformerBlock
from lucid.models.gpt2 import GPT2, GPT2Config
from lucid.models.llama import Llama, LlamaConfig
from lucid.models.parts.decoders import ClampedExperts
from lucid.models.transformer import Transformer
from lucid.models.wav2vec2 import WeightNorm
from lucid.nn import functional as F
from lucid.nn.weights.layer_weights import parameter_count, unchanged_bytes
from lucid.ops.tensor.tensor import Tensor
from lucid.quantization import Blocks, rtn
from lucid.runtime import Session
from lucid.testing import assert_parity
from tests.combinations import first_of_each, in_pairs
from tests.models import goldens
from tests.models.zoo import ZOO, Entry, reader

ATTENTION: dict[str, dict[str, Any]] = {
    "joined": {},
    "grouped": {"num_kv_heads": 2},
    "apart": {"kdim": 24, "vdim": 16},
}


def relative(got: Any, want: Any) -> float:
    return float(np.abs(np.asarray(got) - np.asarray(want)).max() / np.abs(np.asarray(want)).max())


def is_vector(shape: tuple[int, ...]) -> bool:
    """Such as a bias, also where it is stored as (1, 1, width)."""
    return sum(size > 1 for size in shape) < 2


def floats(model: nn.Module) -> list[str]:
    """The parameters that are no vectors and not quantized."""
    state = model.state_dict().items()
    numbers = {key: t.shape for key, t in state if t.dtype.kind == "float" and not key.endswith(".scales")}
    return [key for key, shape in numbers.items() if not is_vector(shape)]


def operators(model: nn.Module, target: Any) -> set[str]:
    return {node.op_type for node in to_onnx(model, target=target).graph.node}


# Attention ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ATTENTION)
def test_the_projections_of_attention_are_in_few_bits(kind: str) -> None:
    lucid.manual_seed(0)
    attention = nn.MultiHeadAttention(64, 4, **ATTENTION[kind])
    small = lucid.quantize(attention, 8, block=16)
    assert floats(small) == []
    assert ("in_proj_weight.packed" in small.state_dict()) is (kind != "apart")
    inputs = {name: lucid.randn(2, 5, spec.shape[2]) for name, spec in attention.input_specs().items()}
    assert 0 < relative(small(**inputs), attention(**inputs)) < 0.02
    for target in ("any", "cpu", "portable"):
        lucid.testing.assert_parity(small, target=target, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(("target", "suffix"), [("any", ".T"), ("cpu", "")])
def test_parts_of_joined_projections_are_stored_apart(target: str, suffix: str) -> None:
    small = lucid.quantize(nn.MultiHeadAttention(64, 4), 4, block=16)
    model = to_onnx(small, target=target)
    names = {w.name for w in model.graph.initializer}
    assert {f"in_proj_weight.{part}[{rows}]{suffix}" for rows in "qkv" for part in ("packed", "scales")} <= names
    assert not {"Gather", "Slice", "Split"} & {node.op_type for node in model.graph.node}


@pytest.mark.parametrize("cache", ["step", "attend_to"])
def test_attention_over_a_cache_reads_parts_of_the_projections(cache: str) -> None:
    lucid.manual_seed(0)
    attention = nn.MultiHeadAttention(32, 4)
    small, x = lucid.quantize(attention, 8, block=16), lucid.randn(2, 3, 32)

    def run(module: nn.MultiHeadAttention) -> Tensor:
        if cache == "attend_to":
            return module.attend_to(x, module.keys_and_values(x))
        return module.step(x, nn.KeyValueCache(lucid.zeros(2, 4, 0, 8), lucid.zeros(2, 4, 0, 8)))[0]

    assert 0 < relative(run(small), run(attention)) < 0.02


# Weights (in, out) ----------------------------------------------------------------------------------------------------


def gpt2(width: int = 64) -> GPT2:
    lucid.manual_seed(0)
    return GPT2(GPT2Config(vocab_size=4096, hidden_size=width, num_layers=2, num_heads=4, max_positions=32))


def test_weights_that_are_stored_in_out_are_in_few_bits() -> None:
    small = lucid.quantize(gpt2(), 8, block=16)
    assert floats(small) == ["transformer.wpe.weight"]
    weight: Any = small.transformer.h[0].attn.c_attn.weight
    assert weight.shape == (192, 64)
    ids = lucid.tensor([[3, 1, 4, 1, 5]])
    assert 0 < relative(small(ids), gpt2()(ids)) < 0.02


@pytest.mark.parametrize("target", ["any", "cpu"])
@pytest.mark.parametrize("bits", [4, 8])
def test_a_whole_gpt2_becomes_small(bits: int, target: str) -> None:
    model = gpt2(256)
    whole, small = (
        len(to_onnx(m, target=target).SerializeToString()) for m in (model, lucid.quantize(model, bits, symmetric=True))
    )
    # A scale for each block of 32 adds a bit to each number. With standard ops the tied table is there twice.
    assert small / whole < (bits + 1) / 32 * (1.45 if target == "any" else 1) + 0.02


# Calibration ----------------------------------------------------------------------------------------------------------


class Crossed(nn.Module):
    """Queries and keys of other numbers: parts of the joined projections are multiplied with other inputs."""

    def __init__(self) -> None:
        self.attention = nn.MultiHeadAttention(32, 4)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.attention(x, y)


def test_gptq_learns_parts_of_a_weight_from_their_own_inputs() -> None:
    lucid.manual_seed(0)
    model, numbers = Crossed(), np.random.default_rng(0)
    few, mixed = numbers.standard_normal((2, 4, 32)).astype(np.float32), None
    mixed = numbers.standard_normal((2, 32, 32)).astype(np.float32)
    x, y = (numbers.standard_normal((16, 9, 4)) @ few[i] @ mixed[i] for i in (0, 1))
    calls = [(x.astype(np.float32), y.astype(np.float32))]
    small = lucid.quantize(model, 4, block=16, method="gptq", calibration=calls)
    rounded = lucid.quantize(model, 4, block=16, search=True)

    def lost(quantized: Crossed) -> list[float]:
        weight, whole = quantized.attention.in_proj_weight, model.attention.in_proj_weight
        errors = F.linear(np.eye(32, dtype=np.float32), weight).numpy().T - whole.numpy()
        return [
            float(np.square(inputs @ errors[rows].T).sum()) for inputs, rows in ((x, slice(32)), (y, slice(32, 96)))
        ]

    for learnt, nearest in zip(lost(small), lost(rounded), strict=True):
        assert learnt < 0.5 * nearest


def test_gptq_learns_weights_that_are_stored_in_out() -> None:
    model, ids = gpt2(32), np.random.default_rng(0).integers(0, 40, (24, 8))
    expected = model(ids).numpy()
    small = lucid.quantize(model, 4, block=16, method="gptq", calibration=[ids], skip="transformer.wte")
    rounded = lucid.quantize(model, 4, block=16, search=True, skip="transformer.wte")
    assert np.square(small(ids).numpy() - expected).sum() < 0.8 * np.square(rounded(ids).numpy() - expected).sum()


def test_rows_that_the_calibration_does_not_reach_are_named() -> None:
    class QueriesOnly(nn.Module):
        def __init__(self) -> None:
            self.attention = nn.MultiHeadAttention(32, 4)

        def forward(self, x: Tensor) -> Tensor:
            keys = lucid.ones(2, 4, 3, 8)
            return self.attention.attend_to(x, nn.KeyValueCache(keys, keys))

    with pytest.raises(ValueError, match=r"attention.in_proj_weight \[96, 32\]: no call .* reaches its rows 32 to 95"):
        lucid.quantize(QueriesOnly(), method="gptq", calibration=[np.ones((2, 5, 32), np.float32)])


# Tables ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["any", "cpu"])
def test_positions_are_rows_of_a_table_in_few_bits(target: str) -> None:
    lucid.manual_seed(0)
    small = lucid.quantize(gpt2(), 8, block=16, smallest_table=1)
    assert floats(small) == []
    lucid.testing.assert_parity(small, target=target, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("rows", [slice(3), slice(2, 5), slice(None), 3, np.array([[1, 0], [6, 6]])])
def test_rows_of_a_weight_are_read_as_those_of_a_parameter(rows: Any) -> None:
    table = nn.Embedding(7, 48)
    small: Any = lucid.quantize(table, 8, block=16, smallest_table=1)
    expected = F.embedding(lucid.arange(7), small.weight).numpy()[rows]
    index = lucid.tensor(rows) if isinstance(rows, np.ndarray) else rows
    np.testing.assert_array_equal(small.weight[index].numpy(), expected)
    assert relative(expected, table.weight.numpy()[rows]) < 0.01


@in_pairs(
    weights=[(4, "zeros"), (8, "zeros"), (4, "symmetric"), (8, "symmetric"), (4, "minimums")],
    width=[48, 40],
    target=["any", "cpu"],
)
def test_a_whole_weight_is_widened_in_each_run(weights: tuple[int, str], width: int, target: str) -> None:
    """As gradients read it: a file, and onnxruntime, hold its codes alone. The last block may be padded."""
    bits, kind = weights

    class Whole(nn.Module):
        def __init__(self) -> None:
            blocks = rtn(lucid.randn(7, width).numpy(), bits, 16, kind == "symmetric")
            if kind == "minimums":
                least = -blocks.scales * np.float32(5)
                blocks = Blocks(blocks.codes, blocks.scales, None, bits, 16, least)
            self.weight: Any = nn.QuantizedWeight(blocks, lucid.float32)

        def forward(self, g: Any) -> Any:
            return g @ self.weight[:]

    model = Whole()
    graph = to_onnx(model, ("N", 7), target=target).graph
    assert "DequantizeLinear" in {node.op_type for node in graph.node}
    assert all(t.data_type != onnx.TensorProto.FLOAT or math.prod(t.dims) <= 21 for t in graph.initializer)
    assert_parity(model, ("N", 7), target=target)


def decision(model: nn.Module, target: Any) -> Any:
    (embedding,) = [d for d in explain(model, target=target).decisions if d.op == "quantized_embedding"]
    return embedding


@in_pairs(width=[48, 40], bits=[4, 8], symmetric=[True, False])
def test_onnxruntimes_own_op_reads_rows(width: int, bits: int, symmetric: bool) -> None:
    """The last block may be padded."""
    table: Any = nn.Embedding(7, width)
    table.weight = nn.QuantizedWeight(rtn(table.weight.numpy(), bits, 16, symmetric), lucid.float32)
    model = to_onnx(table, target="cpu")
    assert {node.op_type for node in model.graph.node} == {"GatherBlockQuantized"} | (
        {"Slice"} if width == 40 else set()
    )
    for ids in (np.array(3), np.array([[0, 6], [2, 2]])):
        graph = to_onnx(table, lucid.spec(*ids.shape, dtype="int64"), target="cpu")
        np.testing.assert_array_equal(Session(graph, threads=1)(ids).numpy(), table(ids).numpy())


def test_releases_that_read_zero_points_of_another_row_take_the_body() -> None:
    """Before 1.27, where a row has an odd number of blocks."""
    odd, even = (lucid.quantize(nn.Embedding(7, width), 4, block=16, smallest_table=1) for width in (48, 64))
    old = Target("cpu", onnxruntime="1.26")
    assert decision(odd, old).taken == "expanded"
    assert decision(even, old).taken == decision(odd, "cpu").taken == "com.microsoft GatherBlockQuantized"
    assert "reads them of another row in GatherBlockQuantized" in str(decision(odd, old).refused)


def test_a_table_that_is_the_output_layer_shares_its_bytes() -> None:
    small = lucid.quantize(gpt2(), 4, block=16)
    assert decision(small, "cpu").taken == "expanded"
    assert "its table is also the weight of a product, and would be stored twice" in str(decision(small, "cpu").refused)
    for target, count in (("cpu", 1), ("any", 2)):
        weights = to_onnx(small, target=target).graph.initializer
        assert len([w for w in weights if "wte.weight.packed" in w.name]) == count


# A module of one's own ------------------------------------------------------------------------------------------------


class Scaled(nn.Module):
    """A layer that says how it reads its weight."""

    quantizable: ClassVar = {"kernel": "transposed"}

    def __init__(self) -> None:
        self.kernel = nn.Parameter(lucid.randn(48, 32))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.kernel, transposed=True) * 2


@pytest.mark.parametrize("options", [{"bits": 4}, {"bits": 8, "activations": "dynamic"}], ids=["blocks", "rows"])
def test_a_model_has_as_many_parameters_in_few_bits(options: dict[str, Any]) -> None:
    """A shared weight counts once."""
    llama = Llama(LlamaConfig(64, 32, 48, num_heads=2, num_kv_heads=1, head_dim=16, windows=(None,), tied=True))
    expected = sum(parameter.numpy().size for parameter in llama.parameters())
    assert parameter_count(llama) == parameter_count(lucid.quantize(llama, **options)) == expected


def test_a_module_declares_what_may_be_in_few_bits() -> None:
    lucid.manual_seed(0)
    model, x = nn.Sequential(Scaled(), nn.Linear(32, 16)), lucid.randn(3, 48)
    small = lucid.quantize(model, 8, block=16)
    assert floats(small) == []
    assert 0 < relative(small(x), model(x)) < 0.02
    for skip in ("0", "0.kernel"):
        assert floats(lucid.quantize(model, 8, skip=skip)) == ["0.kernel"]


READS: dict[str, Callable[[Any], object]] = {
    "weight.mT": lambda w: lucid.randn(3, 32) @ w.mT,
    "weight.numpy": lambda w: w.numpy(),
    "arithmetic with a weight": lambda w: 2 * w,
    "arithmetic with a weight ": lambda w: np.ones((3, 32), np.float32) @ w,
    "matmul": lambda w: lucid.randn(3, 32) @ w,
    "linear": lambda w: lucid.ops.linear(lucid.randn(3, 32), w),
    r"weight\[\(0, 1\)\]": lambda w: w[0, 1],
    r"weight\[slice\(0, 4, 2\)": lambda w: w[0:4:2],
    "an array of a weight": lambda w: np.asarray(w),
    "iteration over a weight": lambda w: list(w),
    "multi_head_attention: query": lambda w: F.multi_head_attention_forward(w, w, w, 32, 4),
}


@pytest.mark.parametrize("asked", READS)
def test_what_else_reads_a_weight_is_told_what_to_do(asked: str) -> None:
    weight = lucid.quantize(nn.Linear(32, 32), symmetric=True).weight
    message = (
        rf"^{asked.strip()}.*: got QuantizedWeight\(32, 32, bits=4, block=32\), which is not a tensor; use "
        r"F.linear\(x, weight\), F.embedding\(indices, weight\) or weight\[rows\], or keep the parameter .*skip="
    )
    with pytest.raises((TypeError, AttributeError), match=message):
        READS[asked](weight)


def test_a_name_that_tensors_do_not_have_either() -> None:
    weight: Any = lucid.quantize(nn.Linear(32, 32)).weight
    with pytest.raises(AttributeError, match="'QuantizedWeight' object has no attribute 'colour'"):
        _ = weight.colour
    assert not hasattr(weight, "mT")


# Models ---------------------------------------------------------------------------------------------------------------

# Modules whose own weights stay: convolutions (the patches of images, the first layers that read sounds, Mamba's and
# ConvNeXt's windows), also where the filters are stored as lengths and directions; experts, as there are no
# quantized grouped products; T5's biases by distance, which are scores; DeepSeek's router, which computes in float32
# whatever the model does, and its projections of latents, as products of queries add up across the blocks.
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d, WeightNorm)
STAYS = (*CONVOLUTIONS, nn.GatedExperts, ClampedExperts, nn.RelativePositionBias, Router, HeadProjections)
# Parameters that stay: tables of positions that are no module of their own, also of DETR's queries, and DINOv2's
# registers; Swin's biases by distance, scores as well.
SCORES_AND_POSITIONS = (".relative_position_bias_table", ".position_embeddings", ".register_tokens")
SCORES_AND_POSITIONS += ("query_position_embeddings.weight",)
_ALL = [e for e in ZOO if e.variant.endswith(("/base", "llama3", "v1_1", "/window", "classifier", "gelu", "swiglu"))]
FAMILIES = first_of_each(_ALL, reader)


def stays(model: nn.Module, key: str) -> bool:
    module = dict(model.named_modules())[key.rpartition(".")[0]]
    return isinstance(module, STAYS) or key.endswith(SCORES_AND_POSITIONS)


@pytest.mark.parametrize("entry", FAMILIES, ids=lambda entry: entry.variant)
def test_every_weight_of_every_family_of_models_is_in_few_bits(entry: Entry) -> None:
    whole = entry.load()
    small = lucid.quantize(whole, 8, block=16, smallest_table=1)
    assert set(floats(small)) == {key for key in floats(whole) if stays(whole, key)}
    products = [node for node in lucid.trace(small).nodes() if node.op.name in ("linear", "matmul", "embedding")]
    constant = [v.array for node in products for v in node.inputs if isinstance(v, Constant)]
    matrices = [array for array in constant if array.dtype.kind == "f" and not is_vector(array.shape)]
    kept = [parameter.numpy() for key, parameter in whole.named_parameters() if stays(whole, key)]
    assert all(any(np.shares_memory(matrix, each) for each in kept) for matrix in matrices)
    case = goldens.cases(entry.variant)[0]
    got, expected = (m(**{name: Tensor(array) for name, array in case.inputs.items()}) for m in (small, whole))
    for one, other in zip(*(t if isinstance(t, tuple) else (t,) for t in (got, expected)), strict=True):
        assert 0 < relative(one, other) < 0.1


@pytest.mark.parametrize("option", ["skip", "bits"])
@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (
            "experts",
            r"experts.gate_up_proj \[4, 64, 32\] stays as it is, as weights of experts, .*; leave out the pattern",
        ),
        ("*.down_proj", r"experts.down_proj \[4, 32, 32\] stays as it is"),
        ("table", "table is a table of 40 rows, which stays as it is without smallest_table=40 or less"),
        ("gates", "which no layer has; there are gate"),
    ],
)
def test_a_pattern_for_weights_that_stay_says_why(pattern: str, message: str, option: str) -> None:
    model: Any = nn.MixtureOfExperts(4, 2, 32, 32)
    model.table = nn.Embedding(40, 32)
    options: dict[str, Any] = {"skip": pattern} if option == "skip" else {"bits": {pattern: 4, "*": 8}}
    with pytest.raises(ValueError, match=f"^quantize: {option} names {re.escape(repr(pattern))}, (and )?{message}"):
        lucid.quantize(model, **options)
    assert floats(lucid.quantize(model)) == ["experts.gate_up_proj", "experts.down_proj", "table.weight"]


def test_what_is_unchanged_is_counted_by_the_type_of_its_module() -> None:
    lucid.manual_seed(0)
    model = nn.Sequential(nn.MixtureOfExperts(4, 2, 32, 32), nn.LayerNorm(32), nn.Linear(32, 16))
    experts = 4 * 4 * (64 * 32 + 32 * 32)
    assert unchanged_bytes(lucid.quantize(model)) == {"GatedExperts": experts, "LayerNorm": 256, "Linear": 64}
    assert sum(unchanged_bytes(model).values()) == sum(p.numpy().nbytes for p in model.parameters())


@pytest.mark.parametrize(
    "model", [Transformer(50, 16, 2, 32, 2), ConformerBlock(dim=16, num_heads=2)], ids=["2017", "tts"]
)
def test_the_models_without_published_checkpoints(model: nn.Module) -> None:
    small = lucid.quantize(model.eval(), 8, block=16, smallest_table=1)
    convolutions = [path for path, module in model.named_modules() if isinstance(module, nn.Conv1d)]
    assert floats(small) == [f"{path}.weight" for path in convolutions]
    for target in ("any", "cpu"):
        lucid.testing.assert_parity(small, target=target, providers=["CPUExecutionProvider"])


def test_blocks_are_moved_along_the_inputs_as_they_are() -> None:
    rng = np.random.default_rng(0)
    codes, order = rng.integers(0, 16, (3, 96), np.uint8), np.roll(np.arange(96), 32)
    blocks = Blocks(codes, rng.random((3, 3), np.float32), None, 4, 32, rng.random((3, 3), np.float32))
    np.testing.assert_array_equal(blocks.columns(order).dequantized(), blocks.dequantized()[:, order])
