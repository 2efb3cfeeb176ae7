"""The attention contract, on every path: eager, the graph interpreter, and each ONNX form at each opset.

A case is a call of attention; a form is a way to export it. Every case is traced once with symbolic sizes, run at sizes
that the trace never saw, and compared with the float64 reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn, ops
from lucid.core.process.context import evaluating
from lucid.export import ExportError
from lucid.nn import functional as F
from lucid.ops.attention.call import AttentionCall, AttentionOptions
from tests.combinations import covering, in_pairs, pairs
from tests.reference import attention as reference
from tests.reference import pack

TOLERANCE = 2e-6  # absolute, for unit-normal inputs in float32

H, D = 4, 8
BATCHES = (1, 3)
LENGTHS = (1, 2, 7, 33)


def random_mask(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Masks half of the keys; some queries see none."""
    mask = rng.random(shape) < 0.5
    mask.reshape(-1, shape[-1])[::3] = False
    return mask


def additive(shape: tuple[int, ...], rng: np.random.Generator, excluded: float = -np.inf) -> np.ndarray:
    return np.where(random_mask(shape, rng), rng.standard_normal(shape), excluded).astype(np.float32)


Make = Callable[[int, int, int, np.random.Generator], np.ndarray]


@dataclass(frozen=True, eq=False)  # a case is itself alone, so what is computed of it can be kept
class Case:
    """Attributes of `ops.attention`, and functions that make the optional inputs."""

    name: str
    attributes: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, tuple[tuple[Any, ...], str, Make]] = field(default_factory=dict)
    kv_heads: int = H
    value_width: int = D

    def __str__(self) -> str:
        return self.name


def bool_input(*shape: Any) -> tuple[tuple[Any, ...], str, Make]:
    return shape, "bool", lambda n, l, s, rng: random_mask(concrete(shape, n, l, s), rng)


def float_input(*shape: Any, excluded: float = -np.inf) -> tuple[tuple[Any, ...], str, Make]:
    return shape, "float32", lambda n, l, s, rng: additive(concrete(shape, n, l, s), rng, excluded)


def sinks_input() -> tuple[tuple[Any, ...], str, Make]:
    return (H,), "float32", lambda n, l, s, rng: 3 * rng.standard_normal(H).astype(np.float32)


def concrete(shape: tuple[Any, ...], n: int, l: int, s: int) -> tuple[int, ...]:
    return tuple({"N": n, "L": l, "S": s}.get(size, size) for size in shape)


LOWEST = float(np.finfo(np.float32).min)

CASES = [
    Case("plain"),
    Case("causal", {"is_causal": True}),
    Case("scale", {"scale": 0.3}),
    Case("negative scale", {"scale": -0.3}),
    Case("zero scale", {"scale": 0.0}),
    Case("softcap", {"softcap": 1.5}),
    Case("softcap and mask", {"softcap": 1.5}, {"mask": bool_input("L", "S")}),
    Case("bool mask (L, S)", {}, {"mask": bool_input("L", "S")}),
    Case("bool mask (N, 1, 1, S)", {}, {"mask": bool_input("N", 1, 1, "S")}),
    Case("bool mask (N, H, L, S)", {}, {"mask": bool_input("N", H, "L", "S")}),
    Case("bool mask (H, L, 1)", {}, {"mask": bool_input(H, "L", 1)}),
    Case("bool mask (S)", {}, {"mask": bool_input("S")}),
    Case("float mask (L, S)", {}, {"mask": float_input("L", "S")}),
    Case("float mask (1, H, L, S)", {}, {"mask": float_input(1, H, "L", "S")}),
    Case("float mask, finfo.min", {}, {"mask": float_input("N", 1, 1, "S", excluded=LOWEST)}),
    Case("key mask", {}, {"key_mask": bool_input("N", "S")}),
    Case("float key mask", {}, {"key_mask": float_input("N", "S")}),
    Case("key mask, causal", {"is_causal": True}, {"key_mask": bool_input("N", "S")}),
    Case("key mask and bool mask", {}, {"mask": bool_input("L", "S"), "key_mask": bool_input("N", "S")}),
    Case("key mask and float mask", {}, {"mask": float_input("L", "S"), "key_mask": bool_input("N", "S")}),
    Case("float key mask and bool mask", {}, {"mask": bool_input(H, "L", "S"), "key_mask": float_input("N", "S")}),
    Case("causal and bool mask", {"is_causal": True}, {"mask": bool_input("L", "S")}),
    Case("causal and float mask", {"is_causal": True}, {"mask": float_input("N", 1, "L", "S")}),
    Case("window", {"window": 3, "is_causal": True}),
    Case("window of one", {"window": 1, "is_causal": True}),
    Case("window to the past only", {"window": 2}),
    Case("window to the future only", {"window_after": 1}),
    Case("window on both sides", {"window": 2, "window_after": 1}),
    Case("window on both sides, key mask", {"window": 2, "window_after": 3}, {"key_mask": bool_input("N", "S")}),
    Case("window on both sides, causal", {"window": 2, "window_after": 3, "is_causal": True}),
    Case("window and key mask", {"window": 3, "is_causal": True}, {"key_mask": bool_input("N", "S")}),
    Case("grouped heads", kv_heads=2),
    Case("one key head", {"is_causal": True}, kv_heads=1),
    Case("grouped heads, mask per head", {}, {"mask": bool_input("N", H, "L", "S")}, kv_heads=2),
    Case("wide values", value_width=12),
    Case("sinks", {}, {"sinks": sinks_input()}),
    Case(
        "sinks, causal",
        {"is_causal": True},
        {"key_mask": bool_input("N", "S"), "sinks": sinks_input()},
        kv_heads=2,
    ),
    Case("sinks, window", {"is_causal": True, "window": 3}, {"mask": float_input("L", "S"), "sinks": sinks_input()}),
]
WEIGHTS = [
    case
    for case in CASES
    if case.name in ("plain", "causal", "key mask, causal", "float mask (L, S)", "grouped heads", "sinks, causal")
]

FORMS = [(17, "auto"), (18, "auto"), (23, "auto"), (24, "auto"), (23, "expanded"), (26, "auto")]
LAYOUTS = [pytest.param(False, id="4-D"), pytest.param(True, id="packed")]


def arrays_of(case: Case, n: int, l: int, s: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng([seed, n, l, s])
    drawn = {
        "query": rng.standard_normal((n, H, l, D)),
        "key": rng.standard_normal((n, case.kv_heads, s, D)),
        "value": rng.standard_normal((n, case.kv_heads, s, case.value_width)),
    }
    arrays = {name: array.astype(np.float32) for name, array in drawn.items()}
    return arrays | {name: make(n, l, s, rng) for name, (_, _, make) in case.inputs.items()}


def specs_of(case: Case, packed: bool) -> dict[str, lucid.TensorType]:
    if packed:
        shapes = [("N", "L", H * D), ("N", "S", case.kv_heads * D), ("N", "S", case.kv_heads * case.value_width)]
    else:
        shapes = [("N", H, "L", D), ("N", case.kv_heads, "S", D), ("N", case.kv_heads, "S", case.value_width)]
    specs = {name: lucid.spec(*shape) for name, shape in zip(("query", "key", "value"), shapes, strict=True)}
    return specs | {name: lucid.spec(*shape, dtype=dtype) for name, (shape, dtype, _) in case.inputs.items()}


def function_of(case: Case, packed: bool, **more: Any) -> Callable[..., Any]:
    heads = {"heads": H, "kv_heads": case.kv_heads} if packed else {}

    def run(query: Any, key: Any, value: Any, mask: Any = None, key_mask: Any = None, sinks: Any = None) -> Any:
        return ops.attention(query, key, value, mask, key_mask, sinks=sinks, **heads, **case.attributes, **more)

    return run


@cache
def expected(name: str, n: int, l: int, s: int) -> tuple[np.ndarray, np.ndarray]:
    """The reference's output and weights of a case; each is computed once for all forms."""
    case = next(case for case in CASES if case.name == name)
    return reference(**arrays_of(case, n, l, s), **case.attributes)


def batches_and_lengths(batches: Sequence[int], lengths: Sequence[int]) -> list[tuple[int, int, int]]:
    """Batches, queries and keys, of which any two meet; any batch meets as many keys as queries, fewer and more."""
    return covering(product(batches, lengths, lengths), lambda row: (*row, np.sign(row[2] - row[1])))


SIZES = batches_and_lengths(BATCHES, LENGTHS)


def sizes() -> Iterator[tuple[int, int, int]]:
    return iter(SIZES)


def check(got: np.ndarray, want: np.ndarray, where: object) -> None:
    assert got.shape == want.shape, where
    assert not np.isnan(got).any(), where
    assert np.abs(got - want).max(initial=0) <= TOLERANCE, where


def packed_arrays(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: pack(a) if name in ("query", "key", "value") else a for name, a in arrays.items()}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_eager(case: Case) -> None:
    for n, l, s in sizes():
        arrays = arrays_of(case, n, l, s)
        want, weights = expected(case.name, n, l, s)
        tensors = {name: lucid.tensor(array) for name, array in arrays.items()}
        check(function_of(case, packed=False)(**tensors).numpy(), want, (n, l, s))
        got, got_weights = function_of(case, packed=False, need_weights=True)(**tensors)
        check(got.numpy(), want, (n, l, s))
        check(got_weights.numpy(), weights, (n, l, s))
        packed = {name: lucid.tensor(array) for name, array in packed_arrays(arrays).items()}
        check(function_of(case, packed=True)(**packed).numpy(), pack(want), (n, l, s))


@in_pairs(case=CASES, form=FORMS, packed=LAYOUTS)
def test_exported(case: Case, form: tuple[int, str], packed: bool) -> None:
    opset, attention = form
    graph = lucid.trace(function_of(case, packed), kwargs=specs_of(case, packed))
    session = lucid.runtime.Session(lucid.export.to_onnx(graph, opset=opset, attention=attention), threads=1)
    for n, l, s in sizes():
        arrays = arrays_of(case, n, l, s)
        want, _ = expected(case.name, n, l, s)
        got = session.run(packed_arrays(arrays) if packed else arrays)["output"]
        check(got, pack(want) if packed else want, (n, l, s))


@pytest.mark.parametrize(("opset", "attention"), FORMS)
@pytest.mark.parametrize("case", WEIGHTS, ids=str)
def test_exported_weights(case: Case, opset: int, attention: str) -> None:
    function = function_of(case, packed=True, need_weights=True)
    exported = lucid.export.to_onnx(function, kwargs=specs_of(case, True), opset=opset, attention=attention)
    session = lucid.runtime.Session(exported, threads=1)
    for n, l, s in sizes():
        arrays = arrays_of(case, n, l, s)
        want, weights = expected(case.name, n, l, s)
        got = session.run(packed_arrays(arrays))
        check(got["output_0"], pack(want), (n, l, s))
        check(got["output_1"], weights, (n, l, s))


@in_pairs(form=FORMS, causal=[False, True], masked=[False, True])
def test_cache(form: tuple[int, str], causal: bool, masked: bool) -> None:
    """With cached keys a causal query i sees keys up to i + past; the present keys and values come back."""
    opset, attention = form

    def step(query: Any, key: Any, value: Any, past_key: Any, past_value: Any, mask: Any = None) -> Any:
        return ops.attention(query, key, value, mask, None, past_key, past_value, is_causal=causal)

    shapes = {name: ("N", H, length, D) for name, length in [("query", "L"), ("key", "L"), ("value", "L")]}
    specs = {name: lucid.spec(*shape) for name, shape in shapes.items()}
    specs |= {name: lucid.spec("N", H, "P", D) for name in ("past_key", "past_value")}
    if masked:
        specs["mask"] = lucid.spec("N", 1, "L", "P + L", dtype=lucid.bool_)
    graph = lucid.trace(step, kwargs=specs)
    session = lucid.runtime.Session(lucid.export.to_onnx(graph, opset=opset, attention=attention), threads=1)
    for n, l, past in [*pairs(BATCHES, (1, 3), (1, 6)), *pairs(BATCHES, (1, 3), (0,))]:
        rng = np.random.default_rng([n, l, past])
        arrays = {name: rng.standard_normal((n, H, l, D)).astype(np.float32) for name in ("query", "key", "value")}
        arrays |= {name: rng.standard_normal((n, H, past, D)).astype(np.float32) for name in ("past_key", "past_value")}
        if masked:
            arrays["mask"] = random_mask((n, 1, l, past + l), rng)
        want, _ = reference(**arrays, is_causal=causal)
        keys = np.concatenate([arrays["past_key"], arrays["key"]], 2)
        results = [graph(*arrays.values())]
        if past or attention == "expanded" or opset < 23:  # onnxruntime's Attention refuses an empty cache
            results.append(tuple(session.run(arrays).values()))
        for output, present_key, present_value in results:
            check(output, want, (n, l, past))
            np.testing.assert_array_equal(present_key, keys)
            assert present_value.shape == keys.shape


@pytest.mark.parametrize("provider", ["any", "cpu", "portable"])
def test_cache_and_more_new_keys_than_queries(provider: str) -> None:
    """onnxruntime (to 1.31.1) then lets a single causal query see every key if is_causal is set."""

    def step(query: Any, key: Any, past: Any) -> Any:
        return ops.attention(query, key, key, None, None, past, past, is_causal=True)[0]

    specs = [("N", H, "L", D), ("N", H, "S", D), ("N", H, "P", D)]
    session = lucid.runtime.Session(lucid.export.to_onnx(step, *specs, target=provider), threads=1)
    for l, s, past in product((1, 2), (1, 3), (1, 6)):
        rng = np.random.default_rng([l, s, past])
        q, k, p = (rng.standard_normal((2, H, length, D)).astype(np.float32) for length in (l, s, past))
        want, _ = reference(q, k, k, past_key=p, past_value=p, is_causal=True)
        for got in (step(*map(lucid.tensor, (q, k, p))), session(q, k, p)):
            check(got.numpy(), want, (l, s, past))


def test_weights_of_two_sizes_in_one_model() -> None:
    """onnxruntime would infer that both are empty, and put one into the other's memory."""
    first, second = nn.MultiHeadAttention(4, 1), nn.MultiHeadAttention(4, 1, add_bias_kv=True)

    def model(x: Any) -> Any:
        output, _ = first(x, need_weights=True, average_attn_weights=False)
        return second(output, x, x, need_weights=True)[1]

    session = lucid.runtime.Session(lucid.export.to_onnx(model, (2, "L", 4)))
    for length in (1, 2, 5):
        x = lucid.randn(2, length, 4)
        check(session(x).numpy(), model(x).numpy(), length)


def test_float64_keeps_its_digits_through_every_factor() -> None:
    """onnxruntime makes a factor float32 when it folds it into a product, whatever the type of the scores."""

    def capped(query: Any, key: Any) -> Any:
        return ops.attention(query, key, key, softcap=3.0, scale=0.3)

    specs = [lucid.spec("N", H, length, D, dtype="float64") for length in ("L", "S")]
    session = lucid.runtime.Session(lucid.export.to_onnx(capped, *specs, attention="expanded"))
    q, k = (np.random.default_rng(i).standard_normal((2, H, 5 + i, D)) for i in range(2))
    np.testing.assert_allclose(session(q, k).numpy(), capped(*map(lucid.tensor, (q, k))).numpy(), atol=1e-14)


@pytest.mark.parametrize("case", [c for c in CASES if c.name != "wide values"], ids=str)
def test_empty_sizes(case: Case) -> None:
    """No queries: an empty output. No keys: zeros. Eagerly and in the expanded form."""
    function = function_of(case, packed=True)
    exported = lucid.export.to_onnx(function, kwargs=specs_of(case, True), attention="expanded")
    session = lucid.runtime.Session(exported, threads=1)
    for n, l, s in ((0, 2, 3), (2, 0, 3), (2, 3, 0), (0, 0, 0)):
        shapes = [(n, H, l, D), (n, case.kv_heads, s, D), (n, case.kv_heads, s, D)]
        arrays = {
            name: np.ones(shape, np.float32) for name, shape in zip(("query", "key", "value"), shapes, strict=True)
        }
        for name, (shape, dtype, _) in case.inputs.items():
            arrays[name] = np.ones(concrete(shape, n, l, s), dtype)
        want = np.zeros((n, l, H * D), np.float32)
        packed = packed_arrays(arrays)
        np.testing.assert_array_equal(function(**{k: lucid.tensor(a) for k, a in packed.items()}).numpy(), want)
        np.testing.assert_array_equal(session.run(packed)["output"], want)


def test_a_call_names_the_operands_and_options_of_the_op() -> None:
    """Order and defaults too: every path that reads calls of the op reads new arguments here."""
    named = {f.name: f.default for f in fields(AttentionCall) if f.name != "options"}
    assert tuple(named) == ops.attention.arguments
    assert tuple(name for name, default in named.items() if default is None) == ops.attention.optional
    assert asdict(AttentionOptions()) == ops.attention.defaults


@in_pairs(packed=LAYOUTS, past=[0, 5], length=[8, 200], widths=[(0, 3), (3, 0), (0, 0)])
def test_heads_of_no_width(packed: bool, past: int, length: int, widths: tuple[int, int]) -> None:
    """Scores over zero features are 0: a query gets the mean of the values that it sees. The body, and tiles."""
    width, value_width = widths
    rng = np.random.default_rng(4)
    query, key = np.zeros((2, H, length, width), np.float32), np.zeros((2, 2, past + length, width), np.float32)
    value = rng.standard_normal((2, 2, past + length, value_width)).astype(np.float32)
    new = query, key[:, :, past:], value[:, :, past:]
    earlier = [lucid.tensor(x[:, :, :past]) for x in (key, value)] if past else [None, None]
    heads = {"heads": H, "kv_heads": 2} if packed else {}
    results = ops.attention(
        *(lucid.tensor(pack(x) if packed else x) for x in new), None, None, *earlier, is_causal=True, **heads
    )
    output, *present = results if past else (results,)
    seen = np.arange(past + 1, past + length + 1)[:, None]
    mean = np.repeat(value, H // 2, 1).cumsum(2, dtype=np.float64)[:, :, past:] / seen
    np.testing.assert_allclose(output.numpy(), pack(mean) if packed else mean, rtol=0, atol=TOLERANCE)
    for cached, whole in zip(present, (key, value), strict=False):
        np.testing.assert_array_equal(cached.numpy(), whole)


def test_standard_form_refuses_sizes_known_to_be_empty() -> None:
    specs = [lucid.spec(2, H, 3, D), lucid.spec(2, H, 0, D), lucid.spec(2, H, 0, D)]
    explanation = lucid.export.explain(ops.attention, *specs)
    (decision,) = explanation.attention
    assert decision.taken == "expanded"
    assert "empty" in dict(decision.refused)["ai.onnx Attention"]


@pytest.mark.parametrize("case", [Case("plain"), Case("causal", {"is_causal": True})], ids=str)
def test_contrib_form(case: Case) -> None:
    """com.microsoft MultiHeadAttention where it is exact: packed, no mask, causal for as many keys as queries."""
    specs = {name: lucid.spec("N", "L", H * D) for name in ("query", "key", "value")}
    exported = lucid.export.to_onnx(function_of(case, packed=True), kwargs=specs, attention="contrib")
    assert [node.op_type for node in exported.graph.node] == ["MultiHeadAttention"]
    session = lucid.runtime.Session(exported, threads=1)
    for n, l in product(BATCHES, LENGTHS):
        arrays = arrays_of(case, n, l, l)
        want, _ = reference(**arrays, **case.attributes)
        check(session.run(packed_arrays(arrays))["output"], pack(want), (n, l))


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (Case("key mask", {}, {"key_mask": bool_input("N", "S")}), "does not take key_mask"),
        (Case("causal", {"is_causal": True}), "queries and keys may differ"),
        (Case("softcap", {"softcap": 2.0}), "softcap"),
        (Case("grouped", kv_heads=2), "grouped heads"),
    ],
    ids=str,
)
def test_contrib_form_refuses_what_it_would_get_wrong(case: Case, reason: str) -> None:
    with pytest.raises(ExportError, match=reason):
        lucid.export.to_onnx(function_of(case, packed=True), kwargs=specs_of(case, True), attention="contrib")


def test_fully_masked_rows_are_exactly_zero() -> None:
    q = lucid.randn(2, H, 5, D)
    mask = np.ones((5, 5), bool)
    mask[3] = False
    for variant in (mask, np.where(mask, 0, -np.inf).astype(np.float32), np.where(mask, 0, LOWEST).astype(np.float32)):
        output, weights = ops.attention(q, q, q, lucid.tensor(variant), need_weights=True)
        assert not output.numpy()[:, :, 3].any()
        assert not weights.numpy()[:, :, 3].any()


def test_nan_is_not_hidden() -> None:
    q = np.ones((1, 1, 2, 4), np.float32)
    q[0, 0, 0, 0] = np.nan
    output = ops.attention(
        lucid.tensor(q), lucid.ones(1, 1, 3, 4), lucid.ones(1, 1, 3, 4), lucid.ones(2, 3, dtype=bool)
    )
    assert np.isnan(output.numpy()[0, 0, 0]).all()
    assert not np.isnan(output.numpy()[0, 0, 1]).any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize(
    "case", [c for c in CASES if c.name in ("plain", "causal", "key mask", "float mask, finfo.min")], ids=str
)
def test_other_element_types(dtype: str, case: Case) -> None:
    """Half precision is computed in float32 and rounded once; float64 keeps its precision."""
    arrays = arrays_of(case, 3, 7, 7)
    tensors = {n: lucid.tensor(a).astype(dtype) if a.dtype != bool else lucid.tensor(a) for n, a in arrays.items()}
    got = function_of(case, packed=False)(**tensors)
    rounded = {n: t.numpy() if t.dtype == lucid.bool_ else t.numpy().astype(np.float64) for n, t in tensors.items()}
    want, _ = reference(**rounded, **case.attributes)
    assert got.dtype.name == dtype
    np.testing.assert_allclose(
        got.numpy().astype(np.float64), want, atol={"float64": 1e-14, "float16": 1e-3}.get(dtype, 1e-2)
    )


def test_dropout_drops_weights_and_keeps_their_mean() -> None:
    lucid.manual_seed(1)
    q = lucid.randn(1, 2, 50, 8)
    _, weights = ops.attention(q, q, q, dropout_p=0.25, need_weights=True)
    dropped = float((weights == 0.0).astype("float32").mean())
    assert 0.2 < dropped < 0.3
    assert 0.95 < float(weights.sum(-1).mean()) < 1.05


@pytest.mark.parametrize("shape", [(4, 8), (2, 3, 4, 8), (1, 2, 1, 8), (2, 2, 2, 5, 8), (1, 2, 300, 8)])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attn_mask": lucid.zeros(1)}])
def test_functional_dropout_applies_in_every_mode_as_in_torch(shape: tuple[int, ...], options: dict[str, Any]) -> None:
    lucid.manual_seed(1)
    q = lucid.randn(*shape)
    with evaluating():
        kept, some, none = (
            F.scaled_dot_product_attention(q, q, q, dropout_p=p, **options).numpy() for p in (0.0, 0.9, 1.0)
        )
        assert not np.allclose(some, kept)
        assert kept.any() and not none.any()
        assert not np.array_equal(F.dropout(q, 0.5).numpy(), q.numpy())


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (ValueError, "same head width", lambda q: ops.attention(q, lucid.randn(2, 4, 3, 5), lucid.randn(2, 4, 3, 5))),
        (ValueError, "agree in batch, heads and length", lambda q: ops.attention(q, q, lucid.randn(2, 4, 4, 8))),
        (ValueError, "batch sizes differ", lambda q: ops.attention(q, *[lucid.randn(3, 4, 3, 8)] * 2)),
        (ValueError, "multiple of the key heads", lambda q: ops.attention(q, *[lucid.randn(2, 3, 3, 8)] * 2)),
        (
            ValueError,
            "does not broadcast to the scores",
            lambda q: ops.attention(q, q, q, lucid.ones(4, 3, dtype=bool)),
        ),
        (TypeError, "expected booleans or floats", lambda q: ops.attention(q, q, q, lucid.ones(3, 3, dtype=int))),
        (TypeError, "one floating-point type", lambda q: ops.attention(q, q.astype("float64"), q)),
        (ValueError, "window is 0", lambda q: ops.attention(q, q, q, window=0)),
        (ValueError, "window_after is -1, expected a whole", lambda q: ops.attention(q, q, q, window_after=-1)),
        (TypeError, "attention: scale is 'a', expected a number", lambda q: ops.attention(q, q, q, scale="a")),
        (ValueError, "attention: scale is inf, expected a finite", lambda q: ops.attention(q, q, q, scale=np.inf)),
        (TypeError, "attention: softcap is 'a', expected a number", lambda q: ops.attention(q, q, q, softcap="a")),
        (ValueError, "attention: softcap is -1, expected a number of 0", lambda q: ops.attention(q, q, q, softcap=-1)),
        (ValueError, "got only one of past_key", lambda q: ops.attention(q, q, q, None, None, q)),
        (
            ValueError,
            "only the length may differ",
            lambda q: ops.attention(q, q, q, None, None, *[lucid.randn(2, 4, 3, 5)] * 2),
        ),
        (ValueError, "multiple of the heads", lambda q: ops.attention(*[lucid.randn(2, 3, 30)] * 3, heads=4)),
    ],
)
def test_bad_input(error: type[Exception], message: str, call: Callable[[lucid.Tensor], object]) -> None:
    with pytest.raises(error, match=message):
        call(lucid.randn(2, 4, 3, 8))


@in_pairs(heads=[None, 3], scale=[1, np.int64(2), np.float64(0.5), np.float32(0.5)], target=["any", "cpu", "portable"])
def test_a_scale_may_be_any_number(heads: int | None, scale: Any, target: str) -> None:
    call = lambda q, k, v: ops.attention(q, k, v, scale=scale, heads=heads)  # noqa: E731
    for shape in ((2, 600, 24), (2, 5, 24)) if heads else ((2, 3, 5, 8),):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        session = lucid.runtime.Session(lucid.export.to_onnx(call, *[shape] * 3, target=target), threads=1)
        np.testing.assert_allclose(session(x, x, x).numpy(), call(*[lucid.Tensor(x)] * 3).numpy(), rtol=1e-4, atol=1e-5)
