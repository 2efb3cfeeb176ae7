"""`to_onnx(dtype=)`: weights stored in half precision; computed in float32, or in half where the target gains."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import lucid
from lucid import Tensor, nn
from lucid.core.graph.graph import Graph
from lucid.core.graph.types import as_dtype
from lucid.export import ExportError, Target, WeightWarning, explain, to_onnx
from lucid.export.half_precision import halved
from lucid.export.options import ExportOptions
from lucid.models.gpt2 import GPT2, GPT2Config
from lucid.models.llama import Llama
from lucid.models.t5 import T5
from lucid.runtime import Session
from lucid.testing import Overflow, assert_parity, bisect, half_precision_overflow
from lucid.testing.in_float64 import run_in_float64
from lucid.tracing.parts import TracedPart, part_of
from tests.combinations import first_of_each, in_pairs, turns
from tests.models import goldens
from tests.models.zoo import ZOO, Entry, reader
from tests.test_cli import data as data  # the command line, in this process
from tests.test_native_forms import optimised

HALVES = ("float16", "bfloat16")
ON_CPU = ("any", "cpu", "portable")
ONE_OF_EACH = [next(entry for entry in ZOO if entry.name == name) for name in dict.fromkeys(e.name for e in ZOO)]
ONE_OF_EACH_CLASS = first_of_each(ONE_OF_EACH, reader)
FLOAT, FLOAT16 = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16
both = pytest.mark.parametrize("dtype", HALVES)


def str_of(value: Entry | str) -> str:
    return value if isinstance(value, str) else value.variant


def rounded(model: nn.Module, dtype: str) -> lucid.Graph:
    """The graph of a model whose weights are then rounded to half precision; what tracing computed from them is not."""
    graph = lucid.trace(model.to("float64").to("float32"))  # in arrays of its own, which the graph shares
    for array in (weight.numpy() for weight in model.state_dict().values() if weight.dtype.kind == "float"):
        array.flags.writeable = True
        array[...] = array.astype(as_dtype(dtype).numpy)
    return graph


def operators(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def stored(model: onnx.ModelProto) -> Mapping[str, int]:
    """The element type of each initializer that is not a small constant."""
    return {t.name: t.data_type for t in model.graph.initializer if np.prod(t.dims) > 16}


# On a CPU: stored in half precision, computed in float32 -------------------------------------------------------------


@pytest.mark.parametrize(("entry", "dtype"), turns(ONE_OF_EACH_CLASS, HALVES), ids=str_of)
def test_a_file_in_half_precision_computes_the_model_with_rounded_weights(entry: Entry, dtype: str) -> None:
    """Within 5e-6 of the float64 result with rounded weights, which is much further from the one with exact weights."""
    exported = Session(to_onnx(entry.traced(), dtype=dtype), threads=1)
    case = goldens.cases(entry.variant)[0]
    feeds = goldens.as_exported(case.inputs, exported.inputs)
    arrays = [feeds[name] for name in exported.inputs]
    expected = run_in_float64(rounded(entry.load(), dtype), arrays)
    for got, want in zip(exported.run(feeds).values(), expected, strict=True):
        assert got.dtype == np.float32
        assert np.abs(got - want).max() <= 5e-6 * np.abs(want).max()


@both
@pytest.mark.parametrize("target", [*ON_CPU, "openvino", "webgpu"])
def test_a_file_holds_every_weight_in_half_under_its_name_and_otherwise_casts_alone(target: str, dtype: str) -> None:
    for entry in (ONE_OF_EACH[0], ONE_OF_EACH[3]):
        plain, half = (to_onnx(entry.traced(), target=target, dtype=d) for d in (None, dtype))
        assert stored(half).keys() == stored(plain).keys()
        weights = {name for name, kind in stored(plain).items() if kind == FLOAT}
        assert {stored(half)[name] for name in weights} == {onnx.TensorProto.DataType.Value(dtype.upper())}
        assert (operators(half) - operators(plain)).keys() == {"Cast"}
        assert not operators(plain) - operators(half)
        taken, as_plain = (explain(entry.traced(), target=target, dtype=d).decisions for d in (dtype, None))
        assert [d.taken for d in taken] == [d.taken for d in as_plain]


@both
def test_a_large_file_is_half_as_large(dtype: str) -> None:
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256))
    sizes = [to_onnx(model, ("N", 256), dtype=stored_dtype).ByteSize() for stored_dtype in (dtype, None)]
    assert 0.5 <= sizes[0] / sizes[1] < 0.502


@both
@pytest.mark.parametrize("target", ON_CPU)
def test_onnxruntime_widens_weights_when_it_loads_them(target: str, dtype: str, tmp_path: Path) -> None:
    """It runs the nodes that it runs for float32, and no Cast of a weight; on "cpu" that of rows read of a table."""
    model = ONE_OF_EACH[0].load()  # BERT, which looks up words alone
    plain, half = (Counter(optimised(to_onnx(model, target=target, dtype=d), tmp_path)) for d in (None, dtype))
    assert half - plain == Counter({"Cast": 1} if target == "cpu" else {})
    assert not plain - half
    assert (", tables as they are read" in str(explain(model, target=target, dtype=dtype).weights)) == (target == "cpu")


class Tied(nn.Embedding):
    def forward(self, indices: Tensor) -> Tensor:
        return super().forward(indices) @ self.weight.T


def test_a_tied_weight_is_stored_once_and_so_is_one_of_two_branches() -> None:
    lucid.manual_seed(0)
    names = [t.name for t in to_onnx(GPT2(GPT2Config(50, 32, 2, 4)), dtype="float16").graph.initializer]
    assert sum("wte" in name for name in names) == 1
    assert len(stored(to_onnx(Tied(30, 8), dtype="float16"))) == 1
    t5 = T5.from_pretrained(goldens.folder("t5/v1_0"))
    merged = to_onnx(t5, part="decoder_merged", dtype="float16")
    inside = [n for node in merged.graph.node for a in node.attribute for n in a.g.node if n.op_type == "Cast"]
    assert not {name for node in inside for name in node.input} & {t.name for t in merged.graph.initializer}
    assert set(stored(merged)) == set(stored(to_onnx(t5, part="decoder_merged")))


def test_a_number_computed_from_weights_while_tracing_is_computed_before_rounding() -> None:
    class Offset(nn.Module):
        def __init__(self) -> None:
            self.weight = nn.Parameter(np.full((40,), 1e-4, np.float32))

        def forward(self, x: Tensor) -> Tensor:
            return x * (1 + self.weight)

    exported = to_onnx(Offset(), (40,), dtype="bfloat16")
    assert stored(exported) == {"weight.add(1)": FLOAT}
    assert Session(exported)(np.ones(40, np.float32)).numpy()[0] == np.float32(1.0001)


@in_pairs(target=ON_CPU, dtype=HALVES, keep=[True, False])
def test_attention_and_steps_with_caches(target: str, dtype: str, keep: bool) -> None:
    """Inputs, outputs and caches keep their types, unless asked otherwise."""
    lucid.manual_seed(0)
    options: dict[str, Any] = {"target": target, "dtype": dtype, "keep_io_types": keep}
    kind = as_dtype("float32" if keep else dtype)
    assert_parity(nn.MultiHeadAttention(16, 4), sizes=[{"N": 2, "L": 5, "S": 4}], **options)
    llama = Llama.from_pretrained(goldens.folder("llama/llama3"))
    for cache in ("growing", "fixed"):
        part = part_of(llama, cache=cache, capacity=8 if cache == "fixed" else None)  # type: ignore[arg-type]
        exported = to_onnx(llama, cache=cache, capacity=8 if cache == "fixed" else None, **options)  # type: ignore[arg-type]
        session = Session(exported, threads=1)
        ends = {**session.inputs, **session.outputs}
        assert {t for t, _ in ends.values() if t.kind == "float"} == {kind}
        assert_parity(part.function, kwargs=part.inputs, exported=exported, sizes=part.sizes, **options)


@pytest.mark.parametrize("target", [*ON_CPU, "cuda"])
def test_weights_in_few_bits_keep_their_forms(target: str) -> None:
    lucid.manual_seed(0)
    model = lucid.quantize(nn.Sequential(nn.Linear(64, 32), nn.LayerNorm(32)), bits=4)
    options: dict[str, Any] = {"target": Target(target, accuracy_level=0)}
    plain, half = (explain(model, ("N", 64), dtype=dtype, **options).decisions for dtype in (None, "float16"))
    forms = [[d.taken for d in taken if d.op == "quantized_linear"] for taken in (plain, half)]
    assert forms[0] == forms[1] != []
    if target != "cuda":
        assert_parity(model, ("N", 64), dtype="float16", **options)


# On a GPU: computed in half precision ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("entry", "dtype"), turns(ONE_OF_EACH_CLASS, HALVES[::-1]), ids=str_of)
def test_a_gpu_computes_in_half_precision(entry: Entry, dtype: str) -> None:
    """Weights have no casts, only inputs and outputs; but for experts and, in bfloat16, transposed convolutions, which
    are computed in float32. The result is that in float64 but for rounding."""
    graph = entry.traced().graph
    exported = to_onnx(graph, target="cuda", dtype=dtype)  # passes ONNX's checker and shape inference
    weights = {
        name for name, kind in stored(exported).items() if kind == onnx.TensorProto.DataType.Value(dtype.upper())
    }
    casts = [node for node in exported.graph.node if node.op_type == "Cast"]
    widened = {name for node in exported.graph.node if node.op_type == "ConvTranspose" for name in node.input}
    casts = [node for node in casts if dtype != "bfloat16" or not widened & {*node.output}]
    read = {name for node in casts for name in node.input if ".experts." not in name}
    assert len(weights) > 8 and not read & weights
    case = goldens.cases(entry.variant)[0]
    names = [value.name for value in graph.inputs]
    arrays = [goldens.as_exported(case.inputs, names)[name] for name in names]
    half = half_of(graph, dtype)
    half.verify()
    moved = goes_through_other_experts(graph, half, arrays)
    for got, want in zip(half.run(arrays), run_in_float64(graph, arrays), strict=True):
        assert got.dtype == np.float32
        differ = np.abs(got - want) if moved is None else np.abs(got - want)[~moved]
        assert differ.max() <= (0.01 if dtype == "float16" else 0.06) * np.abs(want).max()


def goes_through_other_experts(graph: Graph, half: Graph, arrays: list[np.ndarray]) -> np.ndarray | None:
    """The tokens (N, L) for which rounding changes which experts are best in a layer; at most one in eight."""
    chosen = []
    for each in (graph, half):
        routed = [node for node in each.nodes() if node.op.name == "mixture_of_experts"]
        if not routed:
            return None
        logits = Graph(each.inputs, {str(layer): node.inputs[1] for layer, node in enumerate(routed)})  # type: ignore[misc]
        best = [
            np.argsort(-scores.astype(np.float64), -1)[..., : node.attributes["k"]]
            for node, scores in zip(routed, logits.run(arrays), strict=True)
        ]
        chosen.append(np.sort(np.stack(best), -1))
    moved: np.ndarray = (chosen[0] != chosen[1]).any((0, -1))
    assert moved.mean() <= 1 / 8
    return moved


def test_what_a_gpu_computes_in_float16_a_cpu_computes_too() -> None:
    assert_parity(ONE_OF_EACH[3].load(), target="cuda", dtype="float16", sizes=[{"N": 2, "L": 7}])


def test_positions_angles_and_masks_are_exact_on_a_gpu() -> None:
    """Positions beyond 2048 have no float16; their sines are computed in float32 and rounded once."""
    weight = nn.Linear(1, 1, bias=False)

    def model(x: Tensor, positions: Tensor) -> Tensor:
        return weight(x) + lucid.ops.sin(positions.astype("float32"))[:, None]

    positions = np.arange(60000, 60040)
    (sines,) = for_a_gpu(model, ("L", 1), lucid.spec("L", dtype="int64")).run(
        [np.zeros((40, 1), np.float32), positions]
    )
    assert np.array_equal(sines[:, 0], np.sin(positions.astype(np.float32)).astype(np.float16))

    def masked(x: Tensor, keep: Tensor) -> Tensor:
        return lucid.ops.attention(x, x, x, lucid.ops.where(keep, 0.0, lucid.float32.lowest))

    graph = for_a_gpu(masked, (1, 2, "L", 8), lucid.spec("L", "L", dtype="bool"))
    (node,) = (node for node in graph.nodes() if node.op.name == "attention")
    assert [value.type.dtype.name for value in node.inputs[:4] if value is not None] == ["float16"] * 3 + ["float32"]


def for_a_gpu(model: Any, *inputs: Any) -> lucid.Graph:
    return half_of(lucid.trace(model, *inputs), "float16")


def half_of(graph: lucid.Graph, dtype: str) -> lucid.Graph:
    """The graph stored and computed in half precision."""
    half = halved(TracedPart(graph), ExportOptions("cuda", dtype))
    assert half is not None
    return half.traced.graph


def test_a_gpu_keeps_caches_in_half_precision_if_asked() -> None:
    llama = Llama.from_pretrained(goldens.folder("llama/llama3"))
    half = to_onnx(llama, target="cuda", cache="growing", dtype="float16", keep_io_types=False)
    ends = [*half.graph.input, *half.graph.output]
    assert {
        v.type.tensor_type.elem_type for v in ends if v.name not in ("input_ids", "attention_mask", "position_ids")
    } == {FLOAT16}


def test_an_op_that_takes_no_half_precision_is_named() -> None:
    @lucid.ops.op.primitive(kernel=lambda x: x, rule=only_float32)
    def float32_alone(x: Tensor) -> Tensor:  # type: ignore[empty-body]
        """For this test."""

    with pytest.raises(ExportError, match="float32_alone: cannot be computed in float16: got float16"):
        to_onnx(lambda x: float32_alone(x * 2), (3,), target="cuda", dtype="float16")


def only_float32(x: Any) -> Any:
    if x.dtype != lucid.float32:
        raise TypeError(f"got {x.dtype}")
    return x


# What half precision cannot hold --------------------------------------------------------------------------------------


def linear(weight: float) -> nn.Linear:
    model = nn.Linear(20, 20)
    model.load_state_dict({"weight": np.full((20, 20), weight, np.float32), "bias": np.ones(20, np.float32)})
    return model


def test_a_weight_beyond_the_largest_float16_is_named_and_stays_float32_where_it_can() -> None:
    model, x = linear(1e5), np.ones((1, 20), np.float32)
    with pytest.warns(
        WeightWarning,
        match=r"beyond 65504, the largest float16; they are stored in float32: weight\.?T? \(up to 1e\+05\)",
    ):
        exported = to_onnx(model, ("N", 20), dtype="float16")
    assert Session(exported)(x).numpy()[0, 0] == np.float32(2e6 + 1)
    with pytest.warns(WeightWarning, match="they are stored as the largest one: weight"):
        exported = to_onnx(model, ("N", 20), dtype="float16", target="cuda")
    (matrix,) = (onnx.numpy_helper.to_array(t) for t in exported.graph.initializer if len(t.dims) == 2)
    assert (matrix == 65504).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        to_onnx(model, ("N", 20), dtype="bfloat16")
        to_onnx(linear(65510), ("N", 20), dtype="float16")  # rounds to 65504


def test_weights_that_become_zero_are_named() -> None:
    model = linear(1.0)
    model.weight.numpy()[0] = 1e-8
    with pytest.warns(WeightWarning, match=r"become zero in float16, whose smallest is 6e-08: weight \(5\.0%\)"):
        to_onnx(model, ("N", 20), dtype="float16")


def test_a_number_that_keeps_a_divisor_from_zero_does_not_become_zero() -> None:
    x = lucid.ones(2, 4)
    model = to_onnx(lambda x: nn.functional.normalize(x * 2) - 1e-9, x, target="cuda", dtype="float16")
    numbers = {float(array) for array in map(onnx.numpy_helper.to_array, model.graph.initializer) if not array.shape}
    assert {2.0, as_dtype("float16").smallest} <= numbers and not numbers & {0.0, -0.0}


def test_nan_does_not_become_zero() -> None:
    model = linear(1.0)
    model.weight.numpy()[0] = np.nan
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        to_onnx(model, ("N", 20), dtype="float16")
    assert not any("become zero" in str(one.message) for one in recorded)


def test_layers_whose_numbers_overflow_are_found_on_data() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.small, self.large = linear(1.0), linear(200.0)

        def forward(self, x: Tensor) -> Tensor:
            return self.large(self.small(x)) / 1000

    x = np.zeros((3, 20), np.float32)
    x[0] = 1
    assert half_precision_overflow(Model(), x) == (Overflow("large", "linear", 84001.0, pytest.approx(1 / 3)),)
    assert str(half_precision_overflow(Model(), x)[0]) == "large: linear gives up to 8.4e+04 (33.3% too large)"
    assert half_precision_overflow(Model(), x / 2) == ()
    assert half_precision_overflow(Model(), x, dtype="bfloat16") == ()
    with pytest.raises(TypeError, match=r"x is float32\[N, 20\], expected an array"):
        half_precision_overflow(Model(), lucid.spec("N", 20))
    with pytest.raises(TypeError, match="dtype is int8, expected float16 or bfloat16"):
        half_precision_overflow(Model(), x, dtype="int8")


# Arguments ------------------------------------------------------------------------------------------------------------


def test_arguments_that_do_not_exist() -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(ExportError, match=r"dtype is int8, expected float16 or bfloat16; model.to\(...\)"):
        to_onnx(model, ("N", 2), dtype="int8")
    with pytest.raises(TypeError, match="dtype 'half' is not one of"):
        to_onnx(model, ("N", 2), dtype="half")
    with pytest.raises(ExportError, match="keep_io_types=False is for exports in half precision"):
        explain(model, ("N", 2), keep_io_types=False)


def test_explain_says_what_is_stored_and_computed_in_which_type() -> None:
    model = nn.Linear(20, 30)
    assert str(explain(model, ("N", 20), dtype="float16")).splitlines()[1] == (
        "630 weights are stored in float16 and widened to float32 once, at load"
    )
    assert explain(model, ("N", 20), dtype="bfloat16", target="cuda").weights == (
        "630 weights are stored in bfloat16 and computed in it"
    )
    assert explain(model, ("N", 20)).weights == ""


def test_a_difference_in_half_precision_is_found() -> None:
    model = nn.Linear(20, 20)
    right = to_onnx(model, ("N", 20), dtype="float16")
    assert bisect(model, ("N", 20), exported=right, dtype="float16") is None
    assert "output" in str(bisect(model, ("N", 20), exported=right))  # without dtype: weights are not rounded


def test_the_command_line_exports_and_verifies_half_precision(data: Callable[..., Any], tmp_path: Path) -> None:
    source = ("nn.MultiHeadAttention", "--set", "embed_dim=16", "--set", "num_heads=4")
    path = tmp_path / "half.onnx"
    report = data("export", *source, "-o", path, "--dtype", "float16")
    assert report["weights"] == "1,088 weights are stored in float16 and widened to float32 once, at load"
    assert report["parity"]["passed"]
    assert data("verify", *source, path, "--dtype", "float16")["passed"]
    assert not data("verify", *source, path, code=1)["passed"]
    report = data("export", *source, "-o", path, "--dtype", "bfloat16", "--half-io-types")
    assert report["parity"]["passed"]
    assert {t.type.tensor_type.elem_type for t in onnx.load(path).graph.output} == {onnx.TensorProto.BFLOAT16}
