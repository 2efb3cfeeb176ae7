"""Every op, compared with its sample: kernel, type rule, body, and every exported form at every opset."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal

import numpy as np
import onnx
import pytest

import lucid
from lucid import ops
from lucid.core.graph.types import Array, DType, TensorType
from lucid.core.graph.values import Node
from lucid.core.targets.runtimes import RUNTIMES
from lucid.export import ExportError, Target, to_onnx
from lucid.export.exporter import export_graph
from lucid.export.forms import FORMS
from lucid.export.lowering import Lowering
from lucid.export.onnx_file.writer import in_memory
from lucid.export.target import OPSETS
from lucid.ops.op import REGISTERED, Op
from lucid.ops.tensor.tensor import Tensor
from lucid.runtime import Session
from lucid.runtime.requirements import config_of
from lucid.testing.tolerance import compare
from tests.cases import case, in_one_test
from tests.combinations import turns
from tests.samples import NO_KERNEL, SAMPLES, Sample, bound

# Differences are in units of the last place of numbers around 1: kernels and references sum in different orders.
UNITS = {"float32": 16 * 2**-23, "float64": 16 * 2**-52, "float16": 4 * 2**-10, "bfloat16": 4 * 2**-7}

ON_CPU: tuple[Literal["any", "cpu", "portable"], ...] = ("any", "cpu", "portable")
RUNS = [(s, dtype) for s in SAMPLES for dtype in s.dtypes]
IDS = [f"{s.name}-{dtype}" for s, dtype in RUNS]
OPS = list(dict.fromkeys(s.op.name for s in SAMPLES))
BODIES = [(s, dtype) for s, dtype in RUNS if s.op.body is not None and s.op._kernel is not None]


def sized(runs: Sequence[tuple[Sample, DType]], op: str) -> list[tuple[Sample, DType, Mapping[str, int]]]:
    """Those of an op, at each of their sizes."""
    return [(s, dtype, sizes) for s, dtype in runs if s.op.name == op for sizes in s.sizes]


def arrays_of(s: Sample, dtype: DType, sizes: Mapping[str, int]) -> list[Array | None]:
    """Reproducible arrays for the inputs, then for the carriers."""
    generator = np.random.default_rng(sum(sizes.values()))
    return [a if a is None else a.array(dtype, sizes, generator) for a in (*s.inputs, *s.carriers)]


def eager(s: Sample, arrays: Sequence[Array | None], sizes: Mapping[str, int]) -> list[Array]:
    tensors = [a if a is None else Tensor.from_array(a) for a in arrays[: len(s.inputs)]]
    result = s.op(*tensors, **attributes_of(s, sizes))
    return [t.numpy() for t in (result if isinstance(result, tuple) else (result,))]


def attributes_of(s: Sample, sizes: Mapping[str, int]) -> dict[str, Any]:
    return {name: bound(value, sizes) for name, value in s.attributes.items()}


def check(got: Array, want: Array, name: str) -> None:
    units = UNITS.get(str(want.dtype), 0.0)
    if np.isnan(want).any():  # only in samples about NaN
        got, want = np.nan_to_num(got, nan=123.0), np.nan_to_num(want, nan=123.0)
    comparison = compare(got, want, name, rtol=units, atol=units)
    assert comparison.passed, comparison


def widened(array: Array | None) -> Array | None:
    """In float64 or int64."""
    if array is None or array.dtype == bool:
        return array
    return array.astype(np.int64 if array.dtype.kind in "iu" else np.float64)


def test_every_op_has_a_sample() -> None:
    assert set(REGISTERED) == {s.op.name for s in SAMPLES}
    assert len(set(IDS)) == len(IDS)


@pytest.mark.parametrize("op", OPS)
def test_the_kernel_gives_what_the_reference_says(op: str) -> None:
    for s, dtype, sizes in sized(RUNS, op):
        with case(f"{s.name}-{dtype} at {sizes}"), np.errstate(over="ignore"):
            arrays = arrays_of(s, dtype, sizes)
            expected = s.reference(*map(widened, arrays[: len(s.inputs)]), **attributes_of(s, sizes))
            expected = expected if isinstance(expected, tuple) else (expected,)
            for got, want in zip(eager(s, arrays, sizes), expected, strict=True):
                check(got, np.asarray(want).astype(got.dtype), s.name)


@in_one_test(SAMPLES, attrgetter("name"))
def test_the_type_rule_of_every_op_foretells_the_kernels_shape(s: Sample) -> None:
    dtype = s.dtypes[0]
    kinds = [a if a is None else a.type(dtype) for a in s.inputs]
    kinds += [None] * (0 if s.op.variadic else len(s.op.arguments) - len(kinds))
    promised = s.op.infer(kinds, s.attributes)
    for sizes in (*s.sizes, *([{"N": 0, "L": 3, "S": 4}] if s.empty else [])):
        for result, kind in zip(eager(s, arrays_of(s, dtype, sizes), sizes), promised, strict=True):
            assert TensorType(lucid.core.graph.types.as_dtype(result.dtype), result.shape) == kind.with_shape(
                bound(kind.shape, sizes)
            )


@in_one_test(dict.fromkeys(s.op.name for s, _ in BODIES))
def test_the_body_of_every_op_gives_what_the_kernel_does(op: str) -> None:
    for s, dtype, sizes in sized(BODIES, op):
        with case(f"{s.name}-{dtype} at {sizes}"):
            arrays = arrays_of(s, dtype, sizes)
            tensors = [a if a is None else Tensor.from_array(a) for a in arrays]
            tensors += [None] * (len(s.op.arguments) - len(tensors))
            body = s.op.expand(tensors, attributes_of(s, sizes))
            for got, want in zip(body, eager(s, arrays, sizes), strict=True):
                check(got.numpy(), want, f"body of {s.name}")


def traced(s: Sample, dtype: DType) -> lucid.Graph:
    def model(*tensors: Tensor) -> Any:
        rest = iter(tensors)
        return s.op(*(None if a is None else next(rest) for a in s.inputs), **s.attributes)

    return lucid.trace(model, *(a.type(dtype) for a in (*s.inputs, *s.carriers) if a is not None))


def forms(s: Sample, graph: lucid.Graph, opset: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Any]]:
    """Every form that the op can take on a CPU: each that some target accepts, and the ONNX op of the same name or the
    body. A refused form is left at once: the body, which is the longest to write, comes once, at the end."""
    served = False
    write_form, write_body, written = Lowering._written, Lowering._inline, [False]

    def within(self: Lowering, *arguments: Any) -> Any:
        outside, written[0] = written[0], True
        try:
            return write_form(self, *arguments)
        finally:
            written[0] = outside

    def refused_or_inlined(self: Lowering, node: Node, op: Op[..., Any], path: str) -> list[str]:
        if op is s.op and not written[0]:
            raise ExportError(f"{op.name}: the form refused, and its body is not asked for")
        return write_body(self, node, op, path)

    targets = [Target(provider, opset, accuracy_level=0) for provider in (*ON_CPU, "webgpu")]
    nodes = [node for node in graph.nodes() if node.op is s.op]
    for form in (form for form in FORMS.get(s.op.name, ()) if any(map(form.is_for, nodes))):
        with monkeypatch.context() as patch:
            patch.setitem(FORMS, s.op.name, (form,))
            patch.setattr(Lowering, "_written", within)
            patch.setattr(Lowering, "_inline", refused_or_inlined)
            for target in (target for target in targets if form.serves(target)):
                try:
                    assembled, lowering = export_graph(graph, target)
                except ExportError:
                    continue
                if form.name not in {name for decision in lowering.decisions for name, _ in decision.refused}:
                    served = True
                    yield form.name, in_memory(assembled)
                    break
    if s.op.body is not None or not served:
        with monkeypatch.context() as patch:
            patch.setitem(FORMS, s.op.name, ())
            yield "plain", in_memory(export_graph(graph, Target("any", opset, accuracy_level=0))[0])


def computed(model: onnx.ModelProto) -> bytes:
    """What decides how a model is computed: its graph, which version of each op its opset means, and what it asks of a
    session."""
    opset = next(entry.version for entry in model.opset_import if not entry.domain)
    ops_of_onnx = {node.op_type for node in all_nodes(model.graph) if not node.domain}
    versions = {name: onnx.defs.get_schema(name, opset).since_version for name in sorted(ops_of_onnx)}
    return model.graph.SerializeToString(deterministic=True) + repr((versions, config_of(model))).encode()


def models_of(graph: lucid.Graph, targets: Sequence[str] = ON_CPU) -> dict[str, onnx.ModelProto]:
    """The exports for targets that run on a CPU, by target; of those that compute the same, which often differ in the
    target's name alone, the first."""
    models = {target: in_memory(export_graph(graph, Target(target))[0]) for target in targets}
    first = {computed(model): target for target, model in reversed(models.items())}
    return {target: model for target, model in models.items() if target in first.values()}


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from all_nodes(inner)


@pytest.mark.parametrize("s", SAMPLES, ids=lambda s: s.name)
def test_every_exported_form_gives_what_eager_does(s: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its element types take turns at the opsets."""
    opsets: dict[DType, list[int]] = {}
    for dtype, opset in turns(s.dtypes, OPSETS):
        opsets.setdefault(dtype, []).append(opset)
    for dtype in opsets:
        with case(dtype):
            _every_form_gives_what_eager_does(s, dtype, opsets[dtype], monkeypatch)


def _every_form_gives_what_eager_does(
    s: Sample, dtype: DType, opsets: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = traced(s, dtype)
    if not s.exported or f"{s.name}-{dtype}" in NO_KERNEL:
        with pytest.raises(ExportError, match=s.op.name):
            export_graph(graph, Target())
        return
    cases = [(sizes, arrays_of(s, dtype, sizes)) for sizes in s.sizes]
    wants = [eager(s, arrays, sizes) for sizes, arrays in cases]
    served, seen = set(), set[bytes]()
    for opset in opsets:
        for form, model in forms(s, graph, opset, monkeypatch):
            served.add(form)
            if (same := computed(model)) in seen:
                continue
            seen.add(same)
            session = Session(model, threads=1)
            for (sizes, arrays), want in zip(cases, wants, strict=True):
                inputs = [a for a in arrays if a is not None]
                outputs = session.run(dict(zip(session.inputs, inputs, strict=True)))
                for got, expected in zip(outputs.values(), want, strict=True):
                    check(got, expected, f"{s.name} as {form} at opset {opset}, {sizes}")
    assert served


def test_every_form_serves_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """No form refuses everything, except those that look at their inputs (test_portable, test_native_forms), one
    only for CUDA, two for half precision (test_attention_half, test_quantize), two of steps over buffers
    (test_buffered_attention), one of steps over a cache (test_attention_groups), three of constant weights
    (test_quantize, test_quantized_weights, test_convolution_forms), one of positions (test_portable), five of many
    queries (test_attention_cpu), those only for OpenVINO or WebGPU (test_forms_for_openvino, test_forms_for_webgpu) and
    dropout's, which says why there is none.
    """
    taken = {
        (s.op.name, form)
        for s in SAMPLES
        if s.exported and s.op.name in FORMS
        for form, _ in forms(s, traced(s, s.dtypes[0]), 24, monkeypatch)  # from 25 on Attention is not taken
    }
    others = {*RUNTIMES["openvino"].faults, *RUNTIMES["webgpu"].faults} - RUNTIMES["any"].faults.keys()
    registered = {
        (op, form.name)
        for op, listed in FORMS.items()
        for form in listed
        if form.strategy != "flash" and form.mends not in others
    }
    assert registered - taken == {
        ("add", "number second"),
        ("attention", "float32 between casts"),
        ("attention", "groups as queries"),
        ("clip", "ai.onnx Clip"),
        ("conv", "convolution over images of one line"),
        ("attention", "MultiHeadAttention, in tiles"),
        ("attention", "query blocks, keys handed on"),
        ("attention", "query blocks, in products"),
        ("attention", "products, on all threads"),
        ("attention", "products if long, on all threads"),
        ("buffered_attention", "com.microsoft GroupQueryAttention"),
        ("buffered_attention", "com.microsoft GroupQueryAttention, which writes the buffers"),
        ("dropout", "dropout"),
        ("group_norm", "ai.onnx GroupNormalization"),
        ("less_equal", "not greater"),
        ("max_pool", "ai.onnx MaxPool"),
        ("quantized_embedding", "ai.onnx DequantizeLinear"),
        ("quantized_linear", "ai.onnx DequantizeLinear, MatMul"),
        ("quantized_linear", "float32 between casts"),
        ("layer_norm", "ai.onnx LayerNormalization, apart from a sum"),
    }


def test_exports_that_compute_something_else_are_all_run() -> None:
    kind = lucid.spec("N", "L", 8)
    assert [*models_of(lucid.trace(lambda x: x + 1, kind))] == ["any"]
    assert [*models_of(lucid.trace(ops.softmax, kind))] == ["any"]
    assert [*models_of(lucid.trace(lambda x: ops.gelu(x), kind))] == ["any", "portable"]
    opsets = (to_onnx(lambda x: x.mean(-1), kind, opset=opset) for opset in (17, 18))  # the axes become an input
    assert len({computed(model) for model in opsets}) == 2
    quantized = lucid.quantize(lucid.nn.Linear(32, 8), 8)
    levels = (to_onnx(quantized, ("N", 32), target=Target(accuracy_level=level)) for level in (0, 4))
    assert len({computed(model) for model in levels}) == 2


def test_a_function_in_front_of_an_op_has_its_name() -> None:
    """So that graphs, explanations and names of weights say `reshape`, as users write it."""
    x = lucid.randn(2, 3)
    for front in (ops.reshape, ops.squeeze, ops.unsqueeze, ops.permute, ops.expand, ops.concat, ops.split, ops.take):
        assert front.__name__ in REGISTERED
        assert ops.OPS[front.__name__] is inspect.unwrap(front, stop=set(ops.OPS.values()).__contains__)
    graph = lucid.trace(lambda x: x.reshape(-1)[1:], x)
    assert [node.op.name for node in graph.nodes()] == ["reshape", "slice"]
