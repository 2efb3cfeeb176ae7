"""OpenVINO computes what NumPy does, at sizes that grow and shrink within one compiled model, its first call counted.

`WITHOUT_A_FORM` lists where it does not. Each of them is shown to be so still, and
docs/portable.md has them. OpenVINO is a test extra; without it these tests are skipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import Tensor, TensorType, nn, ops
from lucid.core.graph.pytree import flatten_tree
from lucid.core.graph.types import Array
from lucid.core.targets.runtimes import RUNTIMES
from lucid.export import ExportError, explain, to_onnx
from lucid.export.forms import FORMS
from lucid.models.mamba2 import Mamba2
from tests.combinations import in_pairs, pairs
from tests.models import goldens
from tests.samples import SAMPLES, Sample
from tests.test_forms_for_openvino import INTEGERS, integers
from tests.test_loops import MODELS as LOOPS
from tests.test_ops import arrays_of, eager
from tests.test_portable import in_onnxruntime, in_openvino, without_openvino

pytestmark = without_openvino
BOTH = ["openvino", "portable"]
both = pytest.mark.parametrize("target", BOTH)


def compare(model: Any, specs: Sequence[Any], calls: Sequence[Sequence[Any]], target: Any = "openvino") -> None:
    """Compare each call of one compiled model with NumPy; a call consists of shapes or arrays."""
    graph = lucid.trace(model, *specs)
    run = in_openvino(to_onnx(graph, target=target))
    for number, call in enumerate(calls):
        rng = np.random.default_rng(number)
        arrays = [
            x if isinstance(x, np.ndarray) else drawn(v.type, x, rng) for v, x in zip(graph.inputs, call, strict=True)
        ]
        outputs = run({value.name: array for value, array in zip(graph.inputs, arrays, strict=True)})
        _, expected = flatten_tree(model(*map(Tensor, arrays)), lambda item: isinstance(item, Tensor), "output")
        for got, want in zip(outputs.values(), expected.values(), strict=True):
            np.testing.assert_allclose(got, want.numpy(), rtol=1e-4, atol=1e-5, err_msg=f"call {number}")


def drawn(kind: TensorType, source: Sequence[int] | Array, rng: np.random.Generator) -> Array:
    """The array itself, or random numbers of this shape."""
    return (
        source if isinstance(source, np.ndarray) else np.asarray(rng.standard_normal(source)).astype(kind.dtype.numpy)
    )


# Every op -------------------------------------------------------------------------------------------------------------

# NumPy has no bfloat16, so OpenVINO's Python package cannot return it.
HALVES = (lucid.float16, lucid.bfloat16)
RUNS = [(s, dtype) for s in SAMPLES if s.exported and "bfloat16" not in s.name for dtype in s.dtypes]


def by_op() -> dict[str, list[tuple[Sample, lucid.DType]]]:
    """Every sample in float32, or else in its first type: so integers and booleans are there, too. Those of an op with
    the same sizes are one model, since to compile one takes longer than to run it."""
    types: dict[int, list[Any]] = {}
    for s, dtype in RUNS:
        types.setdefault(id(s), []).append((s, dtype))
    chosen = [next((run for run in runs if run[1] == lucid.float32), runs[0]) for runs in types.values()]
    runs_by_op: dict[str, list[tuple[Sample, lucid.DType]]] = {}
    for s, dtype in chosen:
        if str(dtype) not in ("float16", "bfloat16", "float64"):
            alike = s.op.name if s.sizes == SAMPLES[0].sizes else s.name
            runs_by_op.setdefault(alike, []).append((s, dtype))
    return runs_by_op


@pytest.mark.parametrize("runs", by_op().values(), ids=by_op())
def test_every_op_at_sizes_that_grow_and_shrink(runs: list[tuple[Sample, lucid.DType]]) -> None:
    def model(*tensors: Tensor) -> list[Any]:
        rest, results = iter(tensors), []
        for s, _ in runs:
            operands = [None if a is None else next(rest) for a in (*s.inputs, *s.carriers)]
            results.append(s.op(*operands[: len(s.inputs)], **s.attributes))
        return results

    specs = [a.type(dtype) for s, dtype in runs for a in (*s.inputs, *s.carriers) if a is not None]
    graph = lucid.trace(model, *specs)
    run = in_openvino(to_onnx(graph, target="openvino"))
    usual, small, large = runs[0][0].sizes
    for named in (small, usual, large, small):
        arrays = [arrays_of(s, dtype, named) for s, dtype in runs]
        inputs = [array for each in arrays for array in each if array is not None]
        outputs = run(dict(zip((value.name for value in graph.inputs), inputs, strict=True)))
        expected = [(s, want) for (s, _), each in zip(runs, arrays, strict=True) for want in eager(s, each, named)]
        for got, (s, want) in zip(outputs.values(), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=f"{s.name} at {named}")


# Loops ----------------------------------------------------------------------------------------------------------------

SIZES = [(5, 2), (7, 3), (7, 3), (1, 1), (2, 3), (20, 6), (0, 2), (3, 0), (1, 2)]  # length and batch of each call
WEIGHT = np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32) / 2
STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "in place of the element": lambda h, x: (x + h, x + h),
    "from the element on": lambda h, x: (lucid.tanh(x + h @ lucid.tensor(WEIGHT)), x * 2),
    "from the carry on": lambda h, x: (h @ lucid.tensor(WEIGHT) + x, h),
    "the element alone": lambda h, x: (x * h, None),
    "no element": lambda h, x: (h * 1.5, h + 1),
    "an element for one result of two": lambda h, x: (h * 1.5, x),
}


@in_pairs(name=STEPS, length=[5, "L"], reverse=[False, True], target=BOTH)
def test_steps(name: str, length: Any, reverse: bool, target: str) -> None:
    def loop(start: Tensor, x: Tensor) -> Any:
        return ops.scan(STEPS[name], start, x, reverse=reverse)

    lengths = (5, 5) if length == 5 else (5, 7, 1, 2, 9, 0, 3)
    compare(loop, [(2, 3), (length, 2, 3)], [[(2, 3), (l, 2, 3)] for l in lengths], target)


def test_a_result_that_depends_on_no_element_alone() -> None:
    """OpenVINO leaves out the result that is not used, and with it what reads the elements."""

    def loop(start: Tensor, x: Tensor) -> Any:
        return ops.scan(lambda h, e: ((h[0] * 1.5, h[1] + e), None), (start, start), x)[0][0]

    compare(loop, [(2, 3), ("L", 2, 3)], [[(2, 3), (l, 2, 3)] for l in (4, 6, 1)])


def test_a_loop_within_a_loop_is_refused() -> None:
    model, specs = LOOPS["a loop in a loop"]
    message = r"a loop within a loop: OpenVINO does not load one\. Write the inner .* or export with target=\"cpu\""
    with pytest.raises(ExportError, match=message):
        to_onnx(model, *specs, target="openvino")


@both
@pytest.mark.parametrize("name", [name for name in LOOPS if name != "a loop in a loop"])
def test_loops_of_any_length(name: str, target: str) -> None:
    model, (names,) = LOOPS[name]
    sizes = [{"L": l, "N": n} for l, n in SIZES if n or name != "sizes"]  # expand to 0 is an error in OpenVINO
    compare(model, [names], [[[named.get(axis, axis) for axis in names]] for named in sizes], target)


def layers() -> list[Any]:
    parameters = []
    options = pairs((nn.RNN, nn.GRU, nn.LSTM), (1, 2), (False, True), (False, True), ("LN", "L", ""))
    for kind, layers, two_way, first, open_axes in options:
        layer = kind(4, 6, num_layers=layers, bidirectional=two_way, batch_first=first)
        name = f"{layers} {kind.__name__}{' two-way' * two_way}{' batch first' * first}"
        parameters.append(pytest.param(layer, first, open_axes, id=f"{name}-{open_axes}"))
    return parameters


@pytest.mark.parametrize(("layer", "first", "open_axes"), layers())
def test_recurrent_layers(layer: nn.Module, first: bool, open_axes: str) -> None:
    def shape(length: Any, batch: Any) -> tuple[Any, ...]:
        return (batch, length, 4) if first else (length, batch, 4)

    fixed = (5 if "L" not in open_axes else "L", 2 if "N" not in open_axes else "N")
    sizes = SIZES if open_axes == "LN" else [(5, 2), (7, 2), (2, 2), (0, 2)] if open_axes else [(5, 2)] * 2
    compare(layer, [shape(*fixed)], [[shape(*size)] for size in sizes])


def test_a_planted_stale_size_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its form, two-way layers in an If use the sizes of a call before, or none, in the first call too."""
    others = tuple(form for form in FORMS["scan"] if form.name != "Scan of copies")
    monkeypatch.setitem(FORMS, "scan", others)
    layer = nn.LSTM(4, 6, num_layers=2, bidirectional=True, batch_first=True)
    with pytest.raises(AssertionError, match="call 0"):
        compare(layer, [("N", "L", 4)], [[(2, 5, 4)], [(3, 7, 4)]])


@both
def test_mamba_2_at_any_length(target: str) -> None:
    model = Mamba2.from_pretrained(goldens.folder("mamba2/base"))
    calls = [(np.arange(n * l).reshape(n, l) % 20, np.ones((n, l), np.int64)) for n, l in ((1, 5), (2, 9), (1, 3))]
    compare(model, list(model.input_specs().values()), calls, target)


# What ended the process, or was not computed --------------------------------------------------------------------------


def placed(x: Tensor) -> Tensor:
    return lucid.index_select(x, 0, lucid.zeros(0, dtype=lucid.int64))


NUMBERS: dict[str, tuple[Callable[..., Any], list[Any], list[Any]]] = {
    "dot": (lambda a, b: lucid.einsum("i,i->", a, b), [("N",)] * 2, [[(n,)] * 2 for n in (5, 3, 9)]),
    "all": (lambda a, b: lucid.einsum("ij,ij->", a, b), [("N", "L")] * 2, [[(3, 4)] * 2, [(5, 2)] * 2]),
    "product": (lambda a, b: (a @ b).reshape(()), [(1, "N"), ("N", 1)], [[(1, n), (n, 1)] for n in (5, 3)]),
    "fixed": (lambda a, b: ops.relu(a @ b).reshape(()), [(1, 5), (5, 1)], [[(1, 5), (5, 1)]]),
    "no rows": (placed, [("N", 3)], [[(2, 3)], [(4, 3)]]),
    "no rows of two": (placed, [(2, 3)], [[(2, 3)]]),
    "an empty constant": (lambda a: (a, lucid.zeros(0, 3)), [("N", 3)], [[(2, 3)]]),
}


@both
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_and_nothing(name: str, target: str) -> None:
    compare(*NUMBERS[name], target)


MASKS: dict[str, Callable[..., Any]] = {
    "plain": lambda q, k, v, m: ops.attention(q, k, v),
    "causal": lambda q, k, v, m: ops.attention(q, k, v, is_causal=True),
    "boolean": lambda q, k, v, m: ops.attention(q, k, v, m > 0),
    "added": ops.attention,
    "causal and boolean": lambda q, k, v, m: ops.attention(q, k, v, m > 0, is_causal=True),
}


@in_pairs(name=MASKS, sizes=["open", "no key", "queries"], target=BOTH)
def test_attention_without_keys_is_zero(name: str, sizes: str, target: str) -> None:
    batch, queries, keys = {"open": ("N", "L", "S"), "no key": ("N", "L", 0), "queries": (2, 3, "S")}[sizes]
    specs = [(batch, 2, queries, 4), *[(batch, 2, keys, 4)] * 2, (1, 1, queries, keys)]
    calls = {
        "open": [(3, 0), (3, 5), (3, 0), (7, 0), (2, 6), (0, 3)],
        "no key": [(3, 0), (5, 0), (2, 0)],
        "queries": [(3, 0), (3, 4), (3, 0)],
    }
    compare(MASKS[name], specs, [[(2, 2, l, 4), *[(2, 2, s, 4)] * 2, (1, 1, l, s)] for l, s in calls[sizes]], target)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("keys", [3, 5])
def test_float64_attention_with_as_many_heads_as_positions(keys: int, causal: bool) -> None:
    def attend(query: Tensor, key: Tensor, value: Tensor) -> Any:
        return ops.attention(query, key, value, heads=3, is_causal=causal)

    shapes = [(1, 3, 12), *[(1, keys, 12)] * 2]
    compare(attend, [lucid.spec(*shape, dtype=lucid.float64) for shape in shapes], [shapes, shapes], "portable")


@both
@pytest.mark.parametrize("op", [ops.add, ops.sub, ops.mul, lambda x, y: x // y])
def test_bytes_wrap_around(op: Any, target: str) -> None:
    for dtype in (lucid.int8, lucid.uint8):
        every = np.arange(256).astype(dtype.numpy)
        others = [every[::-1], np.full(256, 255).astype(dtype.numpy)]  # of int8, -1
        compare(
            op, [lucid.spec(256, dtype=dtype)] * 2, [[every, np.where(other, other, 1)] for other in others], target
        )


# Whole numbers, NaN, order --------------------------------------------------------------------------------------------

ENDS = [-(2**31), 1 - 2**31, -(2**24) - 1, -1, 0, 1, 3, -7, 1000, 2**24 + 1, 2**31 - 129, 2**31 - 1]


def dividends(rng: np.random.Generator) -> tuple[Array, Array]:
    """Integers of all sizes, multiples of others and their neighbours, and the ends of the type."""
    x, y = (rng.integers(-(2**31), 2**31, 100_000) >> rng.integers(0, 31, 100_000) for _ in range(2))
    y[y == 0] = 3
    half = len(x) // 2
    x[:half] = np.clip(x[:half] // y[:half] * y[:half] + rng.integers(-1, 2, half), -(2**31), 2**31 - 1)
    ends, others = (each.ravel() for each in np.meshgrid(ENDS, [each for each in ENDS if each]))
    return np.concatenate([x, ends]), np.concatenate([y, others])


DIVISIONS = [  # OpenVINO fuses each differently
    pytest.param(lambda a, b: (a // b, a % b), id="both"),
    pytest.param(lambda a, b: (a // b,), id="quotient"),
    pytest.param(lambda a, b: (a % b,), id="remainder"),
]


@in_pairs(divide=DIVISIONS, dtype=["int32", "int64"], target=BOTH)
def test_quotients_and_remainders_are_exact(divide: Callable[[Any, Any], Any], dtype: str, target: str) -> None:
    x, y = (each.astype(dtype) for each in dividends(np.random.default_rng(0)))
    graph = lucid.trace(divide, *[lucid.spec("N", dtype=dtype)] * 2)
    model = to_onnx(graph, target=target)
    feeds = dict(zip((value.name for value in graph.inputs), (x, y), strict=True))
    with np.errstate(over="ignore"):  # the lowest number by -1 is the lowest number
        expected = divide(x, y)
    for run in (in_openvino(model), in_onnxruntime(model)):
        for got, want in zip(run(feeds).values(), expected, strict=True):
            np.testing.assert_array_equal(got.astype(np.int32), want.astype(np.int32))


@pytest.mark.parametrize("divisor", [3, -3, 65537, 2**31 - 1, -1])
@pytest.mark.parametrize("divide", DIVISIONS)
def test_quotients_by_a_known_number_are_exact(divide: Callable[[Any, Any], Any], divisor: int) -> None:
    x, _ = dividends(np.random.default_rng(1))
    compare(lambda a: divide(a, divisor), [lucid.spec("N", dtype=lucid.int32)], [[x.astype(np.int32)]])


SOME_NAN = np.array([[np.nan, 1, -1, 0.5], [3, np.nan, -np.inf, np.inf], [2, -2, 0, 1]], np.float32)
LEAST, LOWEST = np.full((2, 4), -np.inf, np.float32), np.full((2, 4), np.finfo(np.float32).min)
POOL = {"kernel_shape": (2, 2), "strides": (1, 1), "pads": (0, 1, 0, 1), "dilations": (1, 1)}
KEEP_NAN: dict[str, Callable[[Tensor], Any]] = {
    "exp": ops.exp,
    "relu": ops.relu,
    "relu of a sum": lambda x: ops.relu(x + lucid.tensor([1.0, 2, 3, 4])),
    "relu of a product": lambda x: ops.relu(x @ lucid.tensor(np.eye(4, dtype=np.float32))) @ lucid.ones(4, 2),
    "maximum": lambda x: (ops.maximum(x, 0.5), ops.maximum(0.5, x), ops.maximum(x, x.flip(0))),
    "minimum": lambda x: (ops.minimum(x, 0.5), ops.minimum(0.5, x), ops.minimum(x, x.flip(1))),
    "clip": lambda x: x.clip(-1, 1),
    "reductions": lambda x: (x.amax(0), x.amin(1), x.argmax(1), x.argmin(1), x.amax()),
    "softplus": ops.softplus,
    "elu": nn.functional.elu,
    "max_pool": lambda x: ops.max_pool(x[None, None], **POOL),
    "softmax": lambda x: (ops.softmax(x), ops.softmax(x, axis=0), ops.log_softmax(x)),
    "softmax of a product": lambda x: ops.softmax(x @ lucid.tensor(np.eye(4, dtype=np.float32))),
    "softmax in a product": lambda x: (ops.softmax(x) @ lucid.ones(4, 2), x.T @ ops.softmax(x, axis=0)),
    "gelu": lambda x: (ops.gelu(x), ops.gelu(x, approximate="tanh")),
}


@pytest.mark.parametrize("name", KEEP_NAN)
def test_nan_and_infinity_are_kept(name: str) -> None:
    wide = np.repeat(SOME_NAN, 9, 0)  # as many rows as a vector of the processor has, and more
    compare(KEEP_NAN[name], [("N", 4)], [[SOME_NAN], [wide], [np.abs(SOME_NAN)], [LEAST], [LOWEST]])


@both
def test_comparisons_with_nan_are_false(target: str) -> None:
    other = SOME_NAN[::-1].copy()
    compare(lambda x, y: (x < y, x <= y, x > y, x >= y, x == y, x > 0), [("N", 4)] * 2, [[SOME_NAN, other]], target)


def test_softplus_is_right_where_it_is_small() -> None:
    x = np.linspace(-80, 20, 1001, dtype=np.float32)
    graph = lucid.trace(ops.softplus, ("N",))
    (output,) = in_openvino(to_onnx(graph, target="openvino"))({graph.inputs[0].name: x}).values()
    np.testing.assert_allclose(output, np.log1p(np.exp(x.astype(float))), rtol=2e-6)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(("size", "count", "axis"), [(8, 2, -1), (700, 300, 0), (128, 8, 1), (6, 6, -1), (4, 1, -1)])
def test_equal_elements_keep_their_order(size: int, count: int, axis: int, largest: bool) -> None:
    shape = [7, 3, 3]
    shape[axis] = size
    rng = np.random.default_rng(size)
    calls = [rng.integers(-2, 3, shape) for _ in range(2)]
    for dtype in (lucid.float32, lucid.int32):
        spec = lucid.spec(*shape, dtype=dtype)
        inputs = [[call.astype(dtype.numpy)] for call in calls]
        compare(lambda x: ops.topk(x, count, axis=axis, largest=largest), [spec], inputs)


@pytest.mark.parametrize("largest", [True, False])
def test_equal_elements_keep_their_order_at_open_sizes(largest: bool) -> None:
    rng = np.random.default_rng(0)
    calls = [rng.integers(-3, 4, (2, size)).astype(np.float32) for size in (300, 3000, 20, 21)]
    for call in calls:
        call[0, ::7], call[1, ::11] = np.nan, np.inf
    compare(lambda x: ops.topk(x, 20, largest=largest), [("N", "L")], [[call] for call in calls])
    calls += [rng.permutation(46_350)[None].astype(np.float32), calls[0][:, :1], calls[0][:, :0]]
    compare(lambda x: lucid.sort(x, descending=largest), [("N", "L")], [[call] for call in calls])


REDUCTIONS: dict[str, Callable[[Tensor, Any], Any]] = {
    "counts": lambda x, axis: ((x > 0).sum(axis) - 1, 2 * (x > 0).sum(axis, keepdims=True)),
    "sums": lambda x, axis: (3 - x.sum(axis), x.sum(axis, keepdims=True) * x),
    "extremes": lambda x, axis: (x.clip(0, 9).amax(axis) + 1, x.clip(0, 9).amin(axis, keepdims=True) - x),
}


@in_pairs(name=REDUCTIONS, axis=[None, 0, 1, 2, (0, 1), (0, 2), (1, 2)], target=BOTH)
def test_what_follows_a_reduction_of_integers_of_three_axes_is_right(name: str, axis: Any, target: str) -> None:
    for shape in ((3, 4, 5), ("N", "L", 5)):
        spec = lucid.spec(*shape, dtype=lucid.int32)
        calls = [np.arange(math.prod(size)).reshape(size) % 11 - 4 for size in ((3, 4, 5), (3, 4, 5), (2, 7, 5))]
        inputs = [[call.astype(np.int32)] for call in calls[: 2 if shape[0] == 3 else 3]]
        compare(lambda x: REDUCTIONS[name](x, axis), [spec], inputs, target)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_beyond_24_bits_are_exact(name: str, dtype: str) -> None:
    x, y = integers(dtype)
    graph = lucid.trace(INTEGERS[name], *[lucid.spec("N", 4, dtype=dtype)] * 2)
    run = in_openvino(to_onnx(graph, target="openvino"))
    for size in (300, 7, 299):
        inputs = x[:size], y[:size]
        outputs = run(dict(zip((value.name for value in graph.inputs), inputs, strict=True)))
        _, expected = flatten_tree(
            INTEGERS[name](*map(Tensor, inputs)), lambda item: isinstance(item, Tensor), "output"
        )
        for got, want in zip(outputs.values(), expected.values(), strict=True):
            np.testing.assert_array_equal(got.astype(np.int32), want.numpy().astype(np.int32), f"{size} rows")


# What no form mends ---------------------------------------------------------------------------------------------------

WITHOUT_A_FORM: dict[str, tuple[Callable[..., Any], list[Array]]] = {
    "computes float32, which loses digits beyond 2^24": (lambda x: x @ x, [np.full((2, 2), 2**13 + 1, np.int32)]),
    "computes 32 bits": (lambda x: x + 1, [np.array([2**40], np.int64)]),
}


@pytest.mark.parametrize("how", WITHOUT_A_FORM)
def test_what_no_form_mends_is_still_so(how: str) -> None:
    model, arrays = WITHOUT_A_FORM[how]
    graph = lucid.trace(model, *[lucid.spec(*x.shape, dtype=x.dtype.name) for x in arrays])
    run = in_openvino(to_onnx(graph, target="openvino"))
    outputs = run({value.name: array for value, array in zip(graph.inputs, arrays, strict=True)})
    _, expected = flatten_tree(model(*map(Tensor, arrays)), lambda item: isinstance(item, Tensor), "output")
    for got, want in zip(outputs.values(), expected.values(), strict=True):
        assert not np.allclose(got, want.numpy(), rtol=1e-13, atol=0, equal_nan=True)


def test_explain_lists_the_limits_of_openvino() -> None:
    report = explain(lambda x: x @ x, lucid.spec(4, 4, dtype=lucid.int32), target="openvino")
    assert report.limits == ("MatMul: OpenVINO computes float32, which loses digits beyond 2^24",)
    assert str(report).endswith(f"limit     {report.limits[0]}") and report.limits[0] in report._repr_html_()
    assert not explain(lambda x: x @ x, (4, 4), target="openvino").limits


def test_the_limits_of_openvino_are_recorded_and_on_the_page() -> None:
    recorded = RUNTIMES["openvino"].differs
    assert [difference.how for difference in recorded] == list(WITHOUT_A_FORM)
    page = (Path(__file__).parents[1] / "docs" / "portable.md").read_text(encoding="utf-8")
    for difference in recorded:
        assert f"| {', '.join(difference.kernels.split())} | {difference.how} | {difference.reason} |" in page
