"""Targets "portable", "openvino" and "webgpu": the whole contract in independent runtimes, from ops that they have.

OpenVINO is a test extra (the `openvino` wheel); without it its part is skipped. docs/portable.md has the table of ops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import lucid
from lucid import Tensor, nn, ops
from lucid.core.targets.runtimes import REGIONS_OF_POSITIONS, RUNTIMES
from lucid.export import ExportError, Target, to_onnx
from lucid.models.bert import Bert
from lucid.models.clip import CLIP
from lucid.models.gpt2 import GPT2
from lucid.models.llama import Llama
from lucid.models.t5 import T5
from lucid.models.vision.vit import ViT
from lucid.models.whisper import Whisper
from lucid.runtime import Session
from tests.combinations import in_pairs, pairs, parameters, turns
from tests.models import goldens
from tests.reference import attention as reference
from tests.reference import pack
from tests.samples import SAMPLES
from tests.test_attention import (
    BATCHES,
    CASES,
    WEIGHTS,
    Case,
    D,
    H,
    arrays_of,
    check,
    concrete,
    expected,
    function_of,
    packed_arrays,
    random_mask,
    sizes,
    specs_of,
)
from tests.test_ops import traced

Arrays = Mapping[str, np.ndarray]
Run = Callable[[Arrays], dict[str, np.ndarray]]

# The ops of portable models. OpenVINO and TensorRT have all of them. CoreML, QNN and WebGPU, as providers of
# onnxruntime, lack integer arithmetic on sizes and masks, which onnxruntime computes on the CPU: docs/portable.md.
PORTABLE = frozenset(
    """
    Abs Add And ArgMax Cast Concat ConstantOfShape Conv Cos CumSum Div Equal Erf Exp Expand Floor Gather GatherND
    Greater GreaterOrEqual Less LayerNormalization LessOrEqual Log MatMul Max Min Mod Mul Neg Not Or Pad Pow Range
    Reciprocal ReduceMax ReduceMean ReduceMin ReduceSum Relu Reshape Shape Sigmoid Sign Sin Slice Softmax Softplus Split
    Sqrt Squeeze Sub Tanh Tile Transpose Unsqueeze Where
    """.split()
)

# The further ops of the other targets.
NEWER = {
    "portable": frozenset(),
    "openvino": frozenset({"Gelu", "RMSNormalization", "RotaryEmbedding"}),
    "webgpu": frozenset({"Gelu"}),
}


def in_onnxruntime(model: onnx.ModelProto) -> Run:
    return Session(model, threads=1).run


def in_reference(model: onnx.ModelProto) -> Run:
    evaluator = ReferenceEvaluator(model)
    return lambda feeds: dict(zip(evaluator.output_names, evaluator.run(None, dict(feeds)), strict=True))


@cache
def openvino_core() -> Any:
    """Starting one takes as long as compiling a small model."""
    import openvino  # noqa: PLC0415  # a test extra

    return openvino.Core()


def in_openvino(model: onnx.ModelProto) -> Run:
    core = openvino_core()
    # Processors with AMX would compute in bfloat16 by default. Threads of its own would take longer than the models.
    hints = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0, "INFERENCE_NUM_THREADS": 1}
    compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", hints)
    names = [output.get_any_name() for output in compiled.outputs]
    inputs = {name for port in compiled.inputs for name in port.get_names()}  # OpenVINO drops inputs that are not used

    def run(feeds: Arrays) -> dict[str, np.ndarray]:
        # Arrays that it shares must live until the next run: otherwise it damages memory that others have by then.
        outputs = compiled({name: array for name, array in feeds.items() if name in inputs}, share_inputs=False)
        return {name: outputs[name] for name in names}

    return run


class Place(NamedTuple):
    """A runtime, and the target of the models that it runs here."""

    target: str
    start: Callable[[onnx.ModelProto], Run]

    def __call__(self, model: Any, *inputs: Any, **options: Any) -> Run:
        return self.start(export(model, *inputs, target=self.target, **options))


without_openvino = pytest.mark.skipif(find_spec("openvino") is None, reason="the openvino package is not installed")
PLACES = [
    pytest.param(Place("portable", in_onnxruntime), id="onnxruntime"),
    pytest.param(Place("portable", in_reference), id="reference"),
    pytest.param(Place("portable", in_openvino), id="openvino", marks=without_openvino),
    pytest.param(Place("openvino", in_openvino), id="tuned for openvino", marks=without_openvino),
    # Models for WebGPU are run on the CPU: this tests the graph, not the device.
    pytest.param(Place("webgpu", in_onnxruntime), id="tuned for webgpu"),
]
everywhere = pytest.mark.parametrize("place", PLACES)


def export(model: Any, *inputs: Any, target: str = "portable", **options: Any) -> onnx.ModelProto:
    exported = to_onnx(model, *inputs, target=target, **options)
    opset = RUNTIMES[target].opset
    assert [(entry.domain, entry.version) for entry in exported.opset_import] == [("", opset)]
    lacking = ops_of(exported) - PORTABLE - NEWER[target]
    assert not lacking, lacking
    return exported


def ops_of(model: onnx.ModelProto) -> set[str]:
    assert not any(attribute.HasField("g") for node in model.graph.node for attribute in node.attribute)
    return {node.op_type for node in model.graph.node}


# The contract ---------------------------------------------------------------------------------------------------------


def ones(case: Case, n: int, l: int, s: int) -> dict[str, np.ndarray]:
    """Packed arrays of any size, 0 included."""
    widths = {"query": (l, H * D), "key": (s, case.kv_heads * D), "value": (s, case.kv_heads * case.value_width)}
    arrays = {name: np.ones((n, *shape), np.float32) for name, shape in widths.items()}
    return arrays | {name: np.ones(concrete(shape, n, l, s), dtype) for name, (shape, dtype, _) in case.inputs.items()}


# In OpenVINO cases take turns at the two targets, whose graphs are the same: test_attention_for_openvino_is_portable.
IN_OPENVINO = [place for place in PLACES if "openvino" in str(place.id)]
ELSEWHERE = [place for place in PLACES if place not in IN_OPENVINO]


@pytest.mark.parametrize(
    "case,place", [parameters(row) for row in [*product(CASES, ELSEWHERE), *turns(CASES, IN_OPENVINO)]]
)
def test_contract(case: Case, place: Place) -> None:
    """Of packed queries, keys and values, empty ones too."""
    run = place(function_of(case, packed=True), kwargs=specs_of(case, packed=True))
    for n, l, s in sizes():
        want, _ = expected(case.name, n, l, s)
        check(run(packed_arrays(arrays_of(case, n, l, s)))["output"], pack(want), (n, l, s))
    for n, l, s in [(0, 2, 3), (2, 0, 3), (2, 3, 0), (0, 0, 0)]:
        output = run(ones(case, n, l, s))["output"]
        np.testing.assert_array_equal(output, np.zeros((n, l, H * case.value_width), np.float32))


# Models of target "openvino" are left out: their graphs are those of target "portable", and what OpenVINO makes of ops
# at the newer opset is seen in packed models, which have the same ops and more.
# The cases take turns at the others: what differs from packed models, which are run in all, is a reshape.
IN_4_AXES = [place for place in PLACES if place.id != "tuned for openvino"]


@pytest.mark.parametrize("case,place", [parameters(row) for row in turns(CASES, IN_4_AXES)])
def test_contract_in_4_axes(case: Case, place: Place) -> None:
    run = place(function_of(case, packed=False), kwargs=specs_of(case, packed=False))
    for n, l, s in sizes():
        want, _ = expected(case.name, n, l, s)
        check(run(arrays_of(case, n, l, s))["output"], want, (n, l, s))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_attention_for_openvino_is_portable(case: Case, packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Except for positions, which are compared in another way for tract."""
    monkeypatch.delitem(RUNTIMES["portable"].faults, REGIONS_OF_POSITIONS)  # type: ignore[arg-type]
    call, specs = function_of(case, packed), specs_of(case, packed)
    tuned, portable = (export(call, kwargs=specs, target=target) for target in ("openvino", "portable"))
    assert tuned.graph == portable.graph


@everywhere
@pytest.mark.parametrize("case", WEIGHTS, ids=str)
def test_weights(case: Case, place: Place) -> None:
    run = place(function_of(case, True, need_weights=True), kwargs=specs_of(case, True))
    for n, l, s in sizes():
        want, weights = expected(case.name, n, l, s)
        got = run(packed_arrays(arrays_of(case, n, l, s)))
        check(got["output_0"], pack(want), (n, l, s))
        check(got["output_1"], weights, (n, l, s))


@in_pairs(causal=[False, True], masked=[False, True], place=PLACES)
def test_cache(causal: bool, masked: bool, place: Place) -> None:
    def step(query: Any, key: Any, value: Any, past_key: Any, past_value: Any, mask: Any = None) -> Any:
        return ops.attention(query, key, value, mask, None, past_key, past_value, is_causal=causal)

    specs = {name: lucid.spec("N", H, "L", D) for name in ("query", "key", "value")}
    specs |= {name: lucid.spec("N", H, "P", D) for name in ("past_key", "past_value")}
    if masked:
        specs["mask"] = lucid.spec("N", 1, "L", "P + L", dtype=lucid.bool_)
    run = place(step, kwargs=specs, output_names=["output", "present_key", "present_value"])
    for n, l, past in pairs(BATCHES, (1, 3, 17), (0, 1, 6)):
        rng = np.random.default_rng([n, l, past])
        arrays = {name: rng.standard_normal((n, H, l, D)).astype(np.float32) for name in ("query", "key", "value")}
        arrays |= {name: rng.standard_normal((n, H, past, D)).astype(np.float32) for name in ("past_key", "past_value")}
        if masked:
            arrays["mask"] = random_mask((n, 1, l, past + l), rng)
        want, _ = reference(**arrays, is_causal=causal)
        outputs = run(arrays)
        check(outputs["output"], want, (n, l, past))
        for name in ("key", "value"):
            joined = np.concatenate([arrays[f"past_{name}"], arrays[name]], 2)
            np.testing.assert_array_equal(outputs[f"present_{name}"], joined)


@everywhere
def test_fully_masked_rows_are_exactly_zero(place: Place) -> None:
    specs = [lucid.spec("N", H, "L", D)] * 3
    mask = np.ones((1, 1, 5, 5), bool)
    mask[..., 3, :] = False
    arrays = {name: np.ones((2, H, 5, D), np.float32) for name in ("query", "key", "value")}
    for variant in (mask, np.where(mask, 0, -np.inf).astype(np.float32)):
        spec = lucid.spec(1, 1, "L", "L", dtype=variant.dtype.name)
        output = place(ops.attention, *specs, spec)(arrays | {"mask": variant})["output"]
        assert not output[:, :, 3].any()
        np.testing.assert_allclose(output[:, :, :3], 1, rtol=1e-6)


@in_pairs(dtype=["float32", "float16"], kv_heads=[H, 2], place=PLACES)
def test_a_first_call_with_a_single_key_spoils_none_of_the_later_ones(dtype: str, kv_heads: int, place: Place) -> None:
    """OpenVINO 2025.0 to 2026.4 computes MatMul, Softmax, MatMul wrongly after such a call."""
    case = Case("plain", kv_heads=kv_heads)
    specs = {name: lucid.spec(*spec.shape, dtype=dtype) for name, spec in specs_of(case, False).items()}
    run = place(function_of(case, False), kwargs=specs)
    for keys in (1, 2, 16, 64):
        arrays = {name: array.astype(dtype) for name, array in arrays_of(case, 2, 5, keys).items()}
        want, _ = reference(**{name: array.astype(np.float64) for name, array in arrays.items()})
        np.testing.assert_allclose(run(arrays)["output"], want, atol=2e-6 if dtype == "float32" else 2e-3)


@everywhere
def test_nor_does_it_in_attention_that_is_written_out(place: Place) -> None:
    def written(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return ops.softmax(query @ key.mT) @ value

    run = place(written, lucid.spec("N", "L", 8), *[lucid.spec("N", "S", 8)] * 2)
    for keys in (1, 2, 16, 64):
        shapes = {"query": (2, 5, 8), "key": (2, keys, 8), "value": (2, keys, 8)}
        arrays = {name: np.random.default_rng(keys).standard_normal(s, "f4") for name, s in shapes.items()}
        want = written(*map(Tensor, arrays.values())).numpy()
        np.testing.assert_allclose(run(arrays)["output"], want, atol=2e-6)


# Whole models ---------------------------------------------------------------------------------------------------------


def folders() -> Iterator[Any]:
    for family, model in {
        "bert": Bert,
        "clip": CLIP,
        "gpt2": GPT2,
        "llama": Llama,
        "t5": T5,
        "vit": ViT,
        "whisper": Whisper,
    }.items():
        folder = sorted(path for path in (goldens.ROOT / family).iterdir() if path.is_dir())[0]
        yield pytest.param(model, folder, id=family)


@pytest.mark.parametrize("target", NEWER)
@pytest.mark.parametrize(("model", "folder"), list(folders()))
def test_whole_models_are_made_of_ops_that_the_runtime_has(model: Any, folder: Path, target: str) -> None:
    export(model.from_pretrained(folder), target=target)


@everywhere
def test_bert_computes_what_transformers_does(place: Place) -> None:
    model = Bert.from_pretrained(goldens.folder("bert/base"))
    runs: dict[tuple[str, ...], Run] = {}
    for case in goldens.cases("bert/base"):
        names = tuple(case.inputs)
        if names not in runs:
            runs[names] = place(model, *[lucid.spec("N", "L", dtype=lucid.int64)] * len(names))
        case.close("last_hidden_state", runs[names](case.inputs)["last_hidden_state"], rtol=5e-5)


@everywhere
def test_gpt2_computes_what_transformers_does(place: Place) -> None:
    run = place(GPT2.from_pretrained(goldens.folder("gpt2/base")))
    for case in goldens.cases("gpt2/base"):
        case.close("logits", run(goldens.with_mask(case.inputs))["logits"], rtol=5e-5)


@everywhere
def test_a_transformer_block(place: Place) -> None:
    block = nn.TransformerEncoderLayer(32, 4, 64).eval()
    mask = lucid.spec("N", "L", dtype=lucid.bool_)
    run = place(block, ("N", "L", 32), kwargs={"src_key_padding_mask": mask})
    for n, length in ((1, 1), (2, 5), (3, 33)):
        x, ignored = lucid.randn(n, length, 32), np.zeros((n, length), bool)
        ignored[:, length // 2 + 1 :] = True
        want = block(x, src_key_padding_mask=lucid.tensor(ignored)).numpy()
        output = run({"src": x.numpy(), "src_key_padding_mask": ignored})["output"]
        np.testing.assert_allclose(output, want, rtol=1e-4, atol=5e-6)


# What is computed in another way --------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [ops.sin, ops.cos], ids=["sin", "cos"])
def test_sine_and_cosine_of_positions_are_exact_where_shaders_would_be_coarse(function: Any) -> None:
    exported = to_onnx(function, ("N",), target="webgpu")
    assert not ops_of(exported) & {"Sin", "Cos"}
    x = np.random.default_rng(0).uniform(-10_000, 10_000, 10_000).astype(np.float32)
    want = getattr(np, function.name)(x.astype(np.float64))
    np.testing.assert_allclose(Session(exported)(x), want, rtol=0, atol=1.2e-7)
    odd = np.array([0, -0.0, np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(np.isnan(Session(exported)(odd)), [False, False, True, True])


def test_openvino_takes_native_nodes_where_it_has_them() -> None:
    llama = Llama.from_pretrained(goldens.folder("llama/llama2"))
    native, portable = (export(llama, target=target) for target in ("openvino", "portable"))
    assert len(native.graph.node) <= 0.6 * len(portable.graph.node)
    assert {"RMSNormalization", "RotaryEmbedding"} <= ops_of(native)


# Every op -------------------------------------------------------------------------------------------------------------

RUNS = [(s, dtype) for s in SAMPLES if s.exported for dtype in s.dtypes]


@pytest.mark.parametrize("target", ["openvino", "webgpu"])
def test_every_op_exports_in_every_element_type_or_says_why_not(target: str) -> None:
    refused = set()
    """float64 for both targets; the other runs of an op take turns at them."""
    wide = [run for run in RUNS if run[1] == lucid.float64]
    others = [run for run in RUNS if run[1] != lucid.float64]
    in_turn = turns(others, ["openvino", "webgpu"], lambda run: run[0].op.name)
    for s, dtype in [run for run, turn in in_turn if turn == target] + wide:
        try:
            to_onnx(traced(s, dtype), target=target)
        except ExportError as error:
            assert "has no float64 kernel" in str(error)
            refused.add(s.op.name)
    without_cast = {s.op.name for s, _ in wide} - {"cast"}
    convolutions, functions = {"average_pool", "conv", "conv_transpose"}, {"erf", "gelu"}
    angles = {"acos", "asin", "atan", "atan2", "tan"}  # hyperbolic functions are computed of others
    assert refused == (without_cast if target == "openvino" else convolutions | functions | angles)


@without_openvino
@pytest.mark.parametrize(
    ("target", "width"), [("openvino", 40), ("openvino", 48), ("any", 48), ("cpu", 40), ("portable", 40)]
)
@pytest.mark.parametrize("bits", [4, 8])
def test_openvino_computes_products_in_few_bits_of_every_target(bits: int, target: Any, width: int) -> None:
    """For target "any" only weights whose rows the block divides: OpenVINO does not load others."""
    small = lucid.quantize(nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.MultiHeadAttention(64, 4)), bits, block=16)
    x = np.random.default_rng(0).standard_normal((2, 3, width)).astype(np.float32)
    (output,) = in_openvino(to_onnx(small, ("N", "L", width), target=target))({"x": x}).values()
    expected = small(Tensor(x)).numpy()
    assert np.abs(output - expected).max() < 1e-5 * np.abs(expected).max()


def compared(target: Any, length: Any) -> set[str]:
    """The comparisons in causal attention over a length."""
    specs = [lucid.spec("N", 2, length, 4)] * 3

    def causal(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)

    exported = to_onnx(causal, *specs, target=target)
    return {node.op_type for node in exported.graph.node} & {"Greater", "LessOrEqual"}


@pytest.mark.parametrize(
    ("target", "length", "op"),
    [
        ("portable", "L", "Greater"),
        ("portable", 40, ""),
        ("openvino", "L", "LessOrEqual"),
        ("webgpu", "L", "LessOrEqual"),
    ],
)
def test_tract_is_given_no_less_or_equal_of_positions(target: str, length: Any, op: str) -> None:
    """It computes a Where of such a mask wrongly, at lengths that are open; tests/consumers/test_tract.py runs it."""
    assert compared(target, length) == ({op} if op else set())


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("level", [0, 4])
def test_webgpu_reads_products_in_few_bits_as_they_are_stored(level: Any, bits: int) -> None:
    small = lucid.quantize(nn.Linear(64, 32, bias=False), bits)
    model = to_onnx(small, target=Target("webgpu", accuracy_level=level))
    assert [node.op_type for node in model.graph.node] == ["MatMulNBits"]
