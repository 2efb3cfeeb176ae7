"""The forms tuned for onnxruntime's CPU provider: exact like all others, at the lengths where their blocks begin and
end, and for adversarial inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import ops
from lucid.export import Target
from lucid.export.form import Form
from lucid.export.forms import FORMS
from lucid.export.forms.attention import cpu as attention_cpu
from lucid.export.forms.attention import thresholds
from lucid.export.forms.attention.plan import SHARED as ON_ALL_THREADS
from lucid.export.forms.attention.plan import SHARED_IF_LONG as ON_ALL_THREADS_IF_LONG
from lucid.export.forms.attention.thresholds import (
    FEW_HEADS,
    HANDED_ON_ABOVE,
    LONG,
    LONG_IF_CAPPED,
    NARROW,
    REACH,
    ROWS_HANDED_ON,
    ROWS_HANDED_ON_IF_GROUPED,
    ROWS_IF_CAPPED,
    SHARED,
    SHARED_IF_PACKED,
    SHARED_IF_PACKED_AND_CAUSAL,
    SHORT,
    SHORT_IF_CAPPED,
    SHORT_IF_MASKED,
    SHORT_IF_NOT_CAUSAL,
    TILED,
    TILED_IF_SPLIT,
    UNBOUNDED,
    WHOLE,
    WIDE,
)
from lucid.runtime.subgraphs import nodes_inside
from tests.combinations import covering, in_pairs, parameters
from tests.reference import attention as reference
from tests.reference import pack
from tests.test_attention import (
    BATCHES,
    CASES,
    LAYOUTS,
    LENGTHS,
    Case,
    arrays_of,
    bool_input,
    check,
    expected,
    float_input,
    function_of,
    packed_arrays,
    sizes,
)
from tests.test_attention import specs_of as cross_specs

H, D = 4, 8

SELF = [
    Case("causal", {"is_causal": True}),
    Case("causal, scaled", {"is_causal": True, "scale": 0.7}),
    Case("causal, grouped heads", {"is_causal": True}, kv_heads=2),
    Case("causal, key mask", {"is_causal": True}, {"key_mask": bool_input("N", "L")}),
    Case("causal, mask", {"is_causal": True}, {"mask": bool_input("N", 1, "L", "L")}),
    Case("causal, masks", {"is_causal": True}, {"mask": bool_input("L", "L"), "key_mask": bool_input("N", "L")}),
    Case("key mask", {}, {"key_mask": bool_input("N", "L")}),
    Case("mask", {}, {"mask": bool_input("L", "L")}),
    Case("mask of keys", {}, {"mask": bool_input("N", 1, 1, "L")}),
    Case("masks", {}, {"mask": bool_input("N", 1, "L", "L"), "key_mask": bool_input("N", "L")}),
    Case("causal, softcap", {"is_causal": True, "softcap": 2.0}, {"key_mask": bool_input("N", "L")}, kv_heads=2),
]


def specs_of(case: Case, packed: bool, length: Any = "L", batch: Any = "N") -> dict[str, lucid.TensorType]:
    """Specs of self-attention: as many keys as queries."""
    names = {"N": batch, "L": length, "S": length}
    specs = {}
    for name, spec in cross_specs(case, packed).items():
        specs[name] = lucid.spec(*[names.get(str(size), size) for size in spec.shape], dtype=spec.dtype)
    return specs


def export(case: Case, packed: bool, length: Any = "L", batch: Any = "N") -> Any:
    return lucid.export.to_onnx(function_of(case, packed), kwargs=specs_of(case, packed, length, batch), target="cpu")


def forms(case: Case, packed: bool, length: Any = "L") -> list[str]:
    explanation = lucid.export.explain(function_of(case, packed), kwargs=specs_of(case, packed, length), target="cpu")
    return [decision.taken for decision in explanation.attention]


def form_of(name: str) -> tuple[Form, ...]:
    return tuple(form for form in attention_cpu.FORMS if form.name == name)


@cache
def self_attention(case: Case, n: int, length: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Inputs, and what the reference gives for them: computed once for all layouts and ways to hide keys."""
    arrays = arrays_of(case, n, length, length)
    return arrays, reference(**arrays, **case.attributes)[0]


def check_run(session: Any, case: Case, packed: bool, n: int, length: int) -> None:
    arrays, want = self_attention(case, n, length)
    got = session.run(packed_arrays(arrays) if packed else arrays)["output"]
    check(got, pack(want) if packed else want, (n, length))
    dead = ~want.any(-1)
    assert not (got if not packed else got.reshape(n, length, H, D).transpose(0, 2, 1, 3))[dead].any()


@pytest.mark.parametrize("packed", [False, True], ids=["4-D", "packed"])
@pytest.mark.parametrize("case", SELF, ids=str)
def test_any_length(case: Case, packed: bool) -> None:
    blocks = case.attributes.get("is_causal", False)  # else little is hidden, and filling costs more than it saves
    assert forms(case, packed) == ["query blocks" if blocks else "ai.onnx Attention"]
    session = lucid.runtime.Session(export(case, packed), threads=1)
    for n, length in ((3, 1), (2, 7), (1, 32), (3, 33), (2, 64), (1, WHOLE), (2, WHOLE + 1), (1, 300)):
        check_run(session, case, packed, n, length)


def test_no_query_is_refused_by_the_node_and_not_by_the_sizes_around_it() -> None:
    """As in every form with onnxruntime's Attention; the number of blocks was once divided by 0."""
    session = lucid.runtime.Session(export(SELF[0], True), threads=1)
    empty = {name: np.zeros((2, 0, int(shape[-1])), np.float32) for name, (_, shape) in session.inputs.items()}
    with pytest.raises(ValueError, match="query has L = 0 at axis 1") as error:
        session.run(empty)
    assert "Q sequence length must be greater than 0" in str(error.value.__cause__)


def test_long_lengths_take_more_blocks() -> None:
    case = SELF[3]
    session = lucid.runtime.Session(export(case, True), threads=1)
    for length in (1024, 1031):
        q = np.random.default_rng(length).standard_normal((3, 1, length, H * D)).astype(np.float32)
        keep = np.ones((1, length), bool)
        keep[:, -40:] = keep[:, :3] = False
        got = session.run({"query": q[0], "key": q[1], "value": q[2], "key_mask": keep})["output"]
        tensors = [lucid.tensor(x.reshape(1, length, H, D).transpose(0, 2, 1, 3)).astype("float64") for x in q]
        want = ops.attention(*tensors, None, lucid.tensor(keep), is_causal=True)
        check(got, pack(want.numpy()), length)


def test_every_number_and_size_of_blocks() -> None:
    """Queries of 0 weigh all keys that they see equally, so the output is the mean of the values so far."""
    session = lucid.runtime.Session(export(replace(SELF[0], kv_heads=H), True), threads=1)
    for length in (WHOLE + 1, 513, 1025, 2050, LONG + 1):
        values = np.random.default_rng(length).standard_normal((2, length, H * D)).astype(np.float32)
        zeros = np.zeros_like(values)
        got = session.run({"query": zeros, "key": zeros, "value": values})["output"]
        want = values.cumsum(1, np.float64) / np.arange(1, length + 1)[:, None]
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-6)


def test_a_layer_adds_few_nodes() -> None:
    def nodes(graph: Any) -> int:
        inner = [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]
        return len(graph.node) + sum(map(nodes, inner))

    def layers(count: int) -> Callable[[lucid.Tensor, lucid.Tensor], lucid.Tensor]:
        def model(x: lucid.Tensor, keep: lucid.Tensor) -> lucid.Tensor:
            for _ in range(count):
                x = ops.attention(x, x, x, None, keep, heads=2, is_causal=True)
            return x

        return model

    specs = [lucid.spec("N", "L", 8), lucid.spec("N", "L", dtype=lucid.bool_)]
    one, two, three = (nodes(lucid.export.to_onnx(layers(n), *specs, target="cpu").graph) for n in (1, 2, 3))
    assert three - two == two - one <= 15


HIDDEN = ["the lowest number", "the bounded number"]


@pytest.fixture(params=HIDDEN)
def hidden(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What hides keys in causal blocks: one number up to a length, the other beyond; here both in short texts, so that
    references are fast."""
    if request.param == "the bounded number":
        monkeypatch.setattr(thresholds, "UNBOUNDED", 0)


def test_short_causal_texts_have_no_bound() -> None:
    """A bound reads all operands, and saves nothing where scores are as large as those of trained models."""
    causal, masked, mask_alone = SELF[0], SELF[3], SELF[6]
    for case, length, bounds in (
        (causal, SHORT + 1, 0),
        (causal, UNBOUNDED, 0),
        (causal, UNBOUNDED + 1, 1),
        (masked, UNBOUNDED, 0),
        (masked, UNBOUNDED + 1, 1),
        (mask_alone, SHORT_IF_NOT_CAUSAL + 1, 1),
    ):
        nodes = [node.op_type for node in export(case, False, length).graph.node]
        assert nodes.count("Exp") == bounds, (case, length)


def test_layers_share_the_triangle_of_hidden_keys() -> None:
    """One more layer adds nodes for its queries, its copies of keys and its product, and no others."""

    def model(layers: int) -> Any:
        def stack(x: lucid.Tensor) -> lucid.Tensor:
            for _ in range(layers):
                x = ops.attention(x, x, x, is_causal=True)
            return x

        return lucid.export.to_onnx(stack, lucid.spec(1, 4, 256, 8), target="cpu").graph

    one, two = model(1), model(2)
    more = [node.op_type for node in two.node]
    for node in one.node:
        more.remove(node.op_type)
    # the second layer reads one tensor as queries, keys and values, so each copy of it is made once
    assert sorted(more) == ["Attention"] * 4 + ["Concat"] + ["Gather"] * 3 + ["Split"]
    assert len(two.initializer) == len(one.initializer)


FIXED = [
    row for row in product(SELF[:4], [65, 77, 128, 130, 197, 600], LAYOUTS, HIDDEN) if row[0] is SELF[0] or row[1] < 600
]


@pytest.mark.parametrize(
    "case,length,packed,hidden", [parameters(row) for row in covering(FIXED, lambda row: row)], indirect=["hidden"]
)
def test_fixed_length(case: Case, length: int, packed: bool, hidden: None) -> None:
    """Length 600 runs in one case only, since the reference is slow."""
    if case is SELF[3]:
        length += SHORT_IF_MASKED  # fewer are not cut
    assert "query blocks" in forms(case, packed, length)
    session = lucid.runtime.Session(export(case, packed, length, 2), threads=1)
    check_run(session, case, packed, 2, length)


@in_pairs(
    shape=[("L", 1), (1,), (1, 1), ("N", 1, "L", 1)],
    heads=[H, 1],
    options=[{}, {"softcap": 5.0}],
    keys=[SHORT_IF_NOT_CAUSAL + 8, "S"],
)
def test_a_mask_that_is_one_for_all_keys(
    shape: tuple[Any, ...], heads: int, options: dict[str, Any], keys: int | str
) -> None:
    """Such a mask hides all keys from a query, or none."""
    form = "query blocks" if heads == H else "query blocks, in products"
    length, draw = SHORT_IF_NOT_CAUSAL + 1, np.random.default_rng(0)
    masks = lucid.spec(*({"L": length, "N": 1}.get(size, size) for size in shape), dtype=bool)
    query = lucid.spec(1, heads, length, D)
    others = [lucid.spec(1, heads, keys, D)] * 2
    call = lambda q, k, v, mask: ops.attention(q, k, v, mask, **options)  # noqa: E731
    if keys != "S":
        (decision,) = lucid.export.explain(call, query, *others, masks, target="cpu").attention
        assert decision.taken == ("query blocks" if options else form)
    session = lucid.runtime.Session(lucid.export.to_onnx(call, query, *others, masks, target="cpu"), threads=1)
    arrays = [
        draw.standard_normal((1, heads, n, D)).astype(np.float32) for n in (length, *[SHORT_IF_NOT_CAUSAL + 8] * 2)
    ]
    mask = draw.random(masks.shape) < 0.7
    want = ops.attention.expand([*map(lucid.Tensor, (*arrays, mask)), None, None, None], _attributes(options))[
        0
    ].numpy()
    np.testing.assert_allclose(session(*arrays, mask).numpy(), want, rtol=1e-5, atol=1e-5)


def _attributes(options: dict[str, Any]) -> dict[str, Any]:
    return {**ops.attention.defaults, **options}


def test_few_queries_have_no_blocks() -> None:
    causal, masked, capped = SELF[0], SELF[3], replace(SELF[10], inputs={})
    for case, short in ((causal, SHORT), (masked, SHORT_IF_MASKED)):
        assert forms(case, False, short) == ["ai.onnx Attention"]
        assert forms(case, False, short + 1) == ["query blocks"]
    assert forms(capped, False, SHORT_IF_CAPPED) == ["products, for their tanh"]
    assert forms(capped, False, SHORT_IF_CAPPED + 1) == ["query blocks"]
    assert forms(SELF[10], False, SHORT_IF_MASKED) == ["products, for their tanh"]
    assert forms(SELF[10], False, SHORT_IF_MASKED + 1) == ["query blocks"]
    assert forms(SELF[6], False, SHORT_IF_NOT_CAUSAL) == ["ai.onnx Attention"]
    assert forms(SELF[6], False, SHORT_IF_NOT_CAUSAL + 1) == ["query blocks"]


@pytest.mark.parametrize("keys", [1, 77, SHORT_IF_NOT_CAUSAL, SHORT_IF_NOT_CAUSAL + 1])
def test_few_keys_are_not_filled_however_many_queries_there_are(keys: int) -> None:
    """A bound on the scores reads all queries, which takes as long as computing these few scores."""
    specs = [lucid.spec(2, H, 300, D), *[lucid.spec(2, H, keys, D)] * 2, lucid.spec(2, keys, dtype="bool")]

    def model(q: lucid.Tensor, k: lucid.Tensor, v: lucid.Tensor, kept: lucid.Tensor) -> lucid.Tensor:
        return ops.attention(q, k, v, None, kept)

    (decision,) = lucid.export.explain(model, *specs, target="cpu").attention
    few = keys <= SHORT_IF_NOT_CAUSAL
    assert decision.taken == ("ai.onnx Attention" if few else "query blocks")
    assert few == any(f"scores of {keys} keys are too few" in why for _, why in decision.refused)
    rng = np.random.default_rng(keys)
    q, k, v = (rng.standard_normal(spec.shape).astype(np.float32) for spec in specs[:3])
    kept = rng.random((2, keys)) < 0.7
    kept[1] = False
    session = lucid.runtime.Session(lucid.export.to_onnx(model, *specs, target="cpu"), threads=1)
    want = ops.attention(*(lucid.tensor(x).astype("float64") for x in (q, k, v)), None, lucid.tensor(kept))
    check(session(q, k, v, kept).numpy(), want.numpy(), keys)


HANDED_ON = "query blocks, keys handed on"


def test_blocks_of_many_queries_hand_their_keys_on() -> None:
    causal, grouped, capped = SELF[0], SELF[2], SELF[10]
    for case, length, form in (
        (causal, HANDED_ON_ABOVE, "query blocks"),
        (causal, HANDED_ON_ABOVE + 1, HANDED_ON),
        (causal, ROWS_HANDED_ON[-1][0], HANDED_ON),
        (causal, ROWS_HANDED_ON[-1][0] + 1, "query blocks"),
        (grouped, ROWS_HANDED_ON_IF_GROUPED[-1][0], HANDED_ON),
        (grouped, ROWS_HANDED_ON_IF_GROUPED[-1][0] + 1, "query blocks"),
        (capped, HANDED_ON_ABOVE + 1, "query blocks"),
    ):
        assert forms(case, False, length) == [form], (case, length)
    case = replace(causal, kv_heads=H)
    check_run(lucid.runtime.Session(export(case, True, HANDED_ON_ABOVE + 1, 1)), case, True, 1, HANDED_ON_ABOVE + 1)


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 32 queries at most that hand their keys on from 3 queries to 80, so that references are fast."""
    for limit, length in (("SHORT", 2), ("SHORT_IF_MASKED", 2), ("HANDED_ON_ABOVE", 2)):
        monkeypatch.setattr(thresholds, limit, length)
    for limits in ("ROWS_HANDED_ON", "ROWS_HANDED_ON_IF_GROUPED"):
        monkeypatch.setattr(thresholds, limits, ((5, 2), (80, 32)))


@pytest.mark.usefixtures("few_rows")
@in_pairs(case=SELF[:6], packed=LAYOUTS, hidden=HIDDEN, indirect=["hidden"])
def test_keys_handed_on(case: Case, packed: bool, hidden: None) -> None:
    """Two blocks, neither of which reads a cache; three blocks, with and without a smaller first one."""
    for length, rows in ((3, [1, 2]), (33, [16, 17]), (77, [25, 26, 26]), (80, [26, 27, 27])):
        assert forms(case, packed, length) == [HANDED_ON]
        exported = export(case, packed, length, 2)
        blocks = [node for node in exported.graph.node if node.op_type == "Attention"]
        assert [len(node.input) for node in blocks] == [4, *[6] * (len(rows) - 2), 4]
        check_run(lucid.runtime.Session(exported, threads=2), case, packed, 2, length)


@pytest.mark.usefixtures("few_rows", "hidden")
def test_keys_handed_on_with_values_of_another_width() -> None:
    specs = [lucid.spec("N", 3, 77, width) for width in (8, 8, 5)]
    model = lucid.export.to_onnx(ops.attention, *specs, kwargs={"is_causal": True}, target="cpu")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((2, *spec.shape[1:])).astype(np.float32) for spec in specs]
    want = ops.attention(*(lucid.tensor(x).astype("float64") for x in arrays), is_causal=True)
    check(lucid.runtime.Session(model, threads=1)(*arrays).numpy(), want.numpy(), 77)


IN_PRODUCTS = "query blocks, in products"


def test_few_heads_are_products_which_all_threads_share() -> None:
    """The node computes a head on one thread."""

    def form(batch: Any, count: int, length: Any, masked: bool = True, shared: int = 1, **options: Any) -> str:
        specs = [lucid.spec(batch, some, length, D) for some in (count, count // shared, count // shared)]
        if "heads" in options:
            specs = [lucid.spec(batch, length, count * D)] * 3
        mask = [lucid.spec(batch, length, dtype="bool")] if masked else []

        def model(*operands: lucid.Tensor) -> lucid.Tensor:
            return ops.attention(*operands[:3], None, *operands[3:], **options)

        return lucid.export.explain(model, *specs, *mask, target="cpu").attention[0].taken

    node = "ai.onnx Attention"
    assert form(1, FEW_HEADS, SHARED) == form("N", 1, SHARED) == form(1, 1, SHARED, heads=1) == ON_ALL_THREADS
    assert form(1, FEW_HEADS + 1, SHARED) == form(2, 2, SHARED) == node
    assert form(1, 1, SHARED - 1) == form("8*N", 1, SHARED) == node
    assert form(1, 1, "L") == form(1, 3, "L", heads=3) == form(1, 2, "L", window=9) == ON_ALL_THREADS_IF_LONG
    assert form(1, 4, "L") == form(1, 2, "L", shared=2) == node
    assert form(1, 2, SHARED, shared=2) == ON_ALL_THREADS
    assert form(1, 3, SHORT_IF_MASKED, is_causal=True) == ON_ALL_THREADS
    assert form(1, 1, SHORT_IF_NOT_CAUSAL + 1) == form(1, 3, SHARED, False, is_causal=True) == IN_PRODUCTS
    assert form(1, 3, SHORT_IF_MASKED + 1, is_causal=True) == IN_PRODUCTS
    assert form(1, 3, HANDED_ON_ABOVE + 1, False, is_causal=True) == IN_PRODUCTS
    assert form(1, 1, "L", is_causal=True) == form(1, 4, SHARED, False, is_causal=True) == "query blocks"
    assert form("N", 1, 33, False, heads=1) == "three products"
    assert form("N", 2, 33, False, heads=2) == node


def test_layers_of_few_heads_of_any_length_share_their_masks() -> None:
    def layers(x: lucid.Tensor, kept: lucid.Tensor) -> lucid.Tensor:
        for _ in range(2):
            x = ops.attention(x, x, x, None, kept)
        return x

    exported = lucid.export.to_onnx(layers, ("N", 2, "L", D), lucid.spec("N", "L", dtype="bool"), target="cpu")
    everywhere, outside = (
        [node.op_type for node in nodes] for nodes in (nodes_inside(exported.graph.node), exported.graph.node)
    )
    assert everywhere.count("If") == 2 and everywhere.count("Where") == outside.count("Where") == 1
    assert everywhere.count("Expand") == outside.count("Expand") == 1


def test_few_packed_heads_are_split_for_products_where_queries_are_many() -> None:
    def form(length: Any, masked: bool, is_causal: bool = False) -> str:
        packed = lucid.spec(1, length, 3 * D)
        mask = [lucid.spec(1, length, dtype="bool")] * masked
        call = lambda q, k, v, *m: ops.attention(q, k, v, None, *m, heads=3, is_causal=is_causal)  # noqa: E731
        return lucid.export.explain(call, packed, packed, packed, *mask, target="cpu").attention[0].taken

    assert form(SHARED_IF_PACKED, True) == form(SHARED_IF_PACKED_AND_CAUSAL, False, True) == IN_PRODUCTS
    assert form(SHARED_IF_PACKED - 1, True) == form(SHARED_IF_PACKED_AND_CAUSAL - 1, False, True) == "query blocks"


@pytest.mark.parametrize("options", [{}, {"need_weights": True}], ids=str)
def test_one_packed_head_is_read_where_it_is(options: dict[str, Any]) -> None:
    specs = [lucid.spec("N", "L", 8), lucid.spec("N", "S", 8), lucid.spec("N", "S", 5)]
    model = lucid.export.to_onnx(ops.attention, *specs, kwargs={"heads": 1, **options}, target="cpu")
    assert "Transpose" not in {node.op_type for node in model.graph.node}
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((2, 7, 8), (2, 9, 8), (2, 9, 5))]
    want = ops.attention(*(lucid.tensor(x).astype("float64") for x in arrays), heads=1, **options)
    result = lucid.runtime.Session(model, threads=2)(*arrays)
    for got, exact in zip(result, want, strict=True) if options else [(result, want)]:
        check(got.numpy(), exact.numpy(), "one head")


@pytest.fixture
def all_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number of heads counts as few, and two queries count as many."""
    monkeypatch.setattr(thresholds, "FEW_HEADS", 1000)
    for limit in ("SHARED", "SHARED_IF_PACKED", "SHARED_IF_PACKED_AND_CAUSAL"):
        monkeypatch.setattr(thresholds, limit, 0)
    for limit in ("SHORT", "SHORT_IF_MASKED", "SHORT_IF_NOT_CAUSAL"):
        monkeypatch.setattr(thresholds, limit, 0)
    monkeypatch.setattr(thresholds, "ROWS", ((1000, 32),))


@pytest.mark.usefixtures("all_are_few", "hidden")
@pytest.mark.parametrize("case", SELF[:10], ids=str)
def test_blocks_in_products(case: Case) -> None:
    for length in (2, 33, 77):
        assert forms(case, False, length) == [IN_PRODUCTS]
        exported = export(case, False, length, 2)
        assert "Attention" not in {node.op_type for node in exported.graph.node}
        check_run(lucid.runtime.Session(exported, threads=2), case, False, 2, length)


@pytest.mark.parametrize("case", [case for case in CASES if "sinks" in case.inputs], ids=str)
@pytest.mark.parametrize("packed", [False, True])
def test_sinks_are_one_more_score_in_products(case: Case, packed: bool) -> None:
    """Groups of heads need as many keys as queries, or a known number; the body computes others."""
    for specs, self_attention in ((cross_specs(case, packed), False), (specs_of(case, packed), True)):
        explained = lucid.export.explain(function_of(case, packed), kwargs=specs, target="cpu")
        grouped = case.kv_heads != H
        taken = "expanded" if grouped and not self_attention else "products, with sinks"
        assert [decision.taken for decision in explained.attention] == [taken]
        exported = lucid.export.to_onnx(function_of(case, packed), kwargs=specs, target="cpu")
        session = lucid.runtime.Session(exported, threads=2)
        for n, l, s in [(n, l, l) for n, l in product(BATCHES, LENGTHS)] if self_attention else sizes():
            arrays, want = arrays_of(case, n, l, s), expected(case.name, n, l, s)[0]
            got = session.run(packed_arrays(arrays) if packed else arrays)["output"]
            check(got, pack(want) if packed else want, (n, l, s))


@pytest.mark.usefixtures("all_are_few")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_whole_contract_in_products(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every case that the form takes, at every length; the body computes the others."""
    monkeypatch.setitem(FORMS, "attention", form_of(ON_ALL_THREADS))
    others = case.kv_heads not in (None, H) or case.attributes.get("softcap") or case.attributes.get("scale", 1.0) <= 0
    others = others or "sinks" in case.inputs
    explained = lucid.export.explain(function_of(case, False), kwargs=cross_specs(case, False), target="cpu")
    assert [decision.taken for decision in explained.attention] == ["expanded" if others else ON_ALL_THREADS]
    exported = lucid.export.to_onnx(function_of(case, False), kwargs=cross_specs(case, False), target="cpu")
    session = lucid.runtime.Session(exported, threads=2)
    for n, l, s in sizes():
        arrays = arrays_of(case, n, l, s)
        check(session.run(arrays)["output"], expected(case.name, n, l, s)[0], (n, l, s))


@pytest.mark.parametrize("packed", [False, True], ids=["4-D", "packed"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_whole_contract_in_products_if_long(case: Case, packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to a length, which is one of those below, the node computes attention; beyond it, products do."""
    monkeypatch.setattr(thresholds, "FEW_HEADS", 1000)
    for limit in ("SHARED", "SHARED_IF_PACKED", "SHARED_IF_PACKED_AND_CAUSAL"):
        monkeypatch.setattr(thresholds, limit, 4)
    monkeypatch.setitem(FORMS, "attention", form_of(ON_ALL_THREADS_IF_LONG))
    exported = lucid.export.to_onnx(function_of(case, packed), kwargs=cross_specs(case, packed), target="cpu")
    session = lucid.runtime.Session(exported, threads=2)
    for n, l, s in sizes():
        arrays = arrays_of(case, n, l, s)
        want, _ = expected(case.name, n, l, s)
        got = session.run(packed_arrays(arrays) if packed else arrays)["output"]
        check(got, pack(want) if packed else want, (n, l, s))


@pytest.mark.parametrize("case", [case for case in SELF if case.attributes.get("is_causal")], ids=str)
def test_causal_blocks_of_few_heads_of_any_length_are_products(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "FEW_HEADS", 1000)
    exported = export(case, False)
    in_scan = [node for node in nodes_inside(exported.graph.node) if node.op_type == "Scan"]
    (body,) = [attribute.g for attribute in in_scan[0].attribute if attribute.name == "body"]
    grouped = case.kv_heads not in (None, H) and not case.attributes.get("softcap")
    assert ("Attention" in {node.op_type for node in body.node}) == grouped
    session = lucid.runtime.Session(exported, threads=2)
    for n, length in ((2, 7), (1, WHOLE), (2, WHOLE + 1), (1, 300)):
        check_run(session, case, False, n, length)


@pytest.mark.parametrize("packed", [False, True], ids=["4-D", "packed"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_whole_contract(case: Case, packed: bool) -> None:
    """Every case of the contract, each in its form on this target."""
    exported = lucid.export.to_onnx(function_of(case, packed), kwargs=cross_specs(case, packed), target="cpu")
    session = lucid.runtime.Session(exported, threads=1)
    for n, l, s in sizes():
        arrays = arrays_of(case, n, l, s)
        want, _ = expected(case.name, n, l, s)
        check(
            session.run(packed_arrays(arrays) if packed else arrays)["output"],
            pack(want) if packed else want,
            (n, l, s),
        )


LOCAL = [
    Case("causal window", {"is_causal": True, "window": 3}),
    Case("two sides, key mask", {"window": 4, "window_after": 2}, {"key_mask": bool_input("N", "L")}),
    Case("the key itself", {"window": 1, "window_after": 0}, {"key_mask": bool_input("N", "L")}),
    Case("softcap, scale", {"is_causal": True, "window": 5, "softcap": 2.0, "scale": 0.7}),
    Case("grouped heads", {"window": 2, "window_after": 7}, {"key_mask": bool_input("N", "L")}, kv_heads=2),
    Case("two sides, float key mask", {"window": 4, "window_after": 2}, {"key_mask": float_input("N", "L")}),
    Case(
        "softcap, float key mask", {"is_causal": True, "window": 5, "softcap": 2.0}, {"key_mask": float_input("N", "L")}
    ),
]


@pytest.mark.parametrize("packed", [False, True], ids=["4-D", "packed"])
@pytest.mark.parametrize("case", LOCAL, ids=str)
def test_windows_in_blocks(case: Case, packed: bool) -> None:
    """At one length that is fixed; at lengths around the one from which there are blocks, and with a part of one."""
    reach = case.attributes["window"] - 1 + case.attributes.get("window_after", 0)
    limit = int(NARROW.short * (NARROW.rows + reach))
    assert forms(case, packed)[0] == forms(case, packed, limit + 1)[0] == "window blocks"
    assert forms(case, packed, limit)[0] != "window blocks"
    session = lucid.runtime.Session(export(case, packed), threads=1)
    for n, length in ((3, 1), (2, 7), (1, limit), (2, limit + 1), (1, 192)):
        check_run(session, case, packed, n, length)
    check_run(lucid.runtime.Session(export(case, packed, limit + 3, 2), threads=1), case, packed, 2, limit + 3)


@pytest.mark.parametrize(
    ("options", "form"),
    [
        ({"softcap": 2.0}, "products, for their tanh"),
        ({"softcap": 2.0, "window": 2}, "products, for their tanh"),
        ({"softcap": 2.0, "is_causal": True}, "query blocks"),
        ({"softcap": 2.0, "is_causal": True, "window": 2}, "window blocks"),
    ],
    ids=str,
)
def test_the_tanh_of_capped_scores_is_an_op_of_its_own(options: dict[str, Any], form: str) -> None:
    """The node computes it number by number."""
    case = Case("", options)
    assert forms(case, True, 300) == [form]
    nodes = [node.op_type for node in export(case, True, 300).graph.node]
    assert "Tanh" in nodes and "Attention" not in nodes


@pytest.mark.parametrize("window", [None, 2])
def test_capped_scores_have_it_at_every_length(window: int | None) -> None:
    exported = export(Case("", {"softcap": 2.0, "is_causal": True, "window": window}), True)
    nodes = [node.op_type for node in nodes_inside(exported.graph.node)]
    assert nodes.count("Tanh") == 2 and "Attention" not in nodes  # a text in blocks, and one too short for them


def test_capped_scores_of_many_queries_are_computed_in_blocks_of_them() -> None:
    case = Case("", {"softcap": 2.0}, kv_heads=2)
    for packed in (False, True):
        exported = export(case, packed, LONG_IF_CAPPED)
        blocks = LONG_IF_CAPPED // ROWS_IF_CAPPED
        assert [node.op_type for node in exported.graph.node].count("Tanh") == blocks
        check_run(lucid.runtime.Session(exported, threads=2), case, packed, 1, LONG_IF_CAPPED)


TILES, TILES_IF_LONG = "MultiHeadAttention, in tiles", "MultiHeadAttention, in tiles if long"


def test_many_packed_queries_of_which_nothing_is_masked_are_computed_in_tiles() -> None:
    case = Case("", {"scale": 0.3})
    assert forms(case, True, TILED) == [TILES]
    assert forms(case, True, TILED - 1) == ["ai.onnx Attention"]
    check_run(lucid.runtime.Session(export(case, True, TILED), threads=1), case, True, 2, TILED)
    long = Target("cpu", lengths=(TILED, 4 * TILED))
    session = lucid.runtime.Session(
        lucid.export.to_onnx(function_of(case, True), kwargs=specs_of(case, True), target=long), threads=2
    )
    for n, length in ((2, 1), (1, 77), (1, TILED + 1), (1, 3 * TILED - 1)):
        check_run(session, case, True, n, length)


def test_many_split_heads_of_which_nothing_is_masked_are_joined_for_tiles() -> None:
    case = Case("", {"scale": 0.3})
    assert forms(case, False, TILED_IF_SPLIT) == [TILES]
    assert forms(case, False, TILED_IF_SPLIT - 1) == ["three products"]
    assert TILES not in forms(Case("", {"scale": -0.3}), False, TILED_IF_SPLIT)
    assert TILES not in forms(Case("", {}, kv_heads=2), False, TILED_IF_SPLIT)
    check_run(lucid.runtime.Session(export(case, False, TILED_IF_SPLIT), threads=2), case, False, 1, TILED_IF_SPLIT)
    long = Target("cpu", lengths=(TILED_IF_SPLIT, 2 * TILED_IF_SPLIT))
    model = lucid.export.to_onnx(function_of(case, False), kwargs=specs_of(case, False), target=long)
    assert "MultiHeadAttention" in [node.op_type for node in model.graph.node]
    session = lucid.runtime.Session(model, threads=2)
    for n, length in ((2, 1), (1, TILED_IF_SPLIT + 1)):
        check_run(session, case, False, n, length)


@pytest.mark.parametrize("packed", [False, True], ids=["4-D", "packed"])
@pytest.mark.parametrize("heads", [1, H])
def test_a_text_of_any_length_is_computed_in_tiles_where_it_is_long(
    packed: bool, heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("TILED", "TILED_IF_SPLIT"):
        monkeypatch.setattr(thresholds, limit, 9)
    specs = [lucid.spec("N", *([size, heads * D] if packed else [heads, size, D])) for size in ("L", "S", "S")]
    call = lambda q, k, v: ops.attention(q, k, v, heads=heads if packed else None, scale=0.3)  # noqa: E731
    for lengths, short, long in (((0, 1000), True, True), ((9, 1000), False, True), ((0, 8), True, False)):
        target = Target("cpu", lengths=lengths)
        model = lucid.export.to_onnx(call, *specs, target=target)
        written = {node.op_type for node in nodes_inside(model.graph.node)}
        assert ("MultiHeadAttention" in written, bool(written & {"Attention", "Softmax"})) == (long, short)
        session = lucid.runtime.Session(model, threads=2)
        for n, queries, keys in ((2, 1, 1), (1, 8, 30), (2, 9, 9), (1, 30, 8), (3, 33, 20)):
            rng = np.random.default_rng(n)
            shapes = [(n, *((size, heads * D) if packed else (heads, size, D))) for size in (queries, keys, keys)]
            arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
            want = call(*(lucid.tensor(x).astype("float64") for x in arrays)).numpy()
            check(session(*arrays).numpy(), want, (lengths, n, queries, keys))


def test_what_no_tiles_compute_stays_with_the_node() -> None:
    assert forms(Case("", {"scale": 0.3}), True) == forms(Case("", {}), False) == [TILES_IF_LONG]
    assert forms(Case("", {}, kv_heads=2), True) == forms(Case("", {}, kv_heads=2), False) == ["ai.onnx Attention"]
    for opset in (18, 25):  # before the node, and where onnxruntime computes it by its body
        target = Target("cpu", opset=opset)
        split, masked = Case("", {}), Case("", {}, {"key_mask": float_input("N", "L")}, kv_heads=1)
        for case, form in ((split, "three products"), (masked, "expanded")):
            explained = lucid.export.explain(function_of(case, False), kwargs=specs_of(case, False), target=target)
            assert explained.attention[0].taken == form


@pytest.mark.parametrize("opset", [24, 25])
def test_queries_of_few_heads_of_which_all_keys_have_the_lowest_number_give_0(opset: int) -> None:
    """Also in short texts: from opset 25 on, onnxruntime 1.32 has no kernel for the node, and its body gives a mean."""
    specs = [*[lucid.spec("N", 2, "L", 4)] * 3, lucid.spec("L", "L")]
    model = lucid.export.to_onnx(ops.attention, *specs, target=Target("cpu", opset=opset))
    session = lucid.runtime.Session(model, threads=1)
    for length in (2, SHARED + 1):
        mask = np.zeros((length, length), np.float32)
        mask[0] = np.finfo(np.float32).min
        values = np.ones((3, 1, 2, length, 4), np.float32)
        got = session(*values, mask).numpy()
        assert not got[:, :, 0].any()
        np.testing.assert_allclose(got[:, :, 1:], 1, rtol=1e-5)


def test_heads_that_are_joined_for_tiles_may_have_values_of_another_width() -> None:
    q, k, v = (lucid.spec(1, 3, TILED_IF_SPLIT, width) for width in (8, 8, 5))
    model = lucid.export.to_onnx(ops.attention, q, k, v, target="cpu")
    arrays = [np.random.default_rng(0).standard_normal(kind.shape).astype(np.float32) for kind in (q, k, v)]
    want = ops.attention(*map(lucid.Tensor, arrays)).numpy()
    np.testing.assert_allclose(lucid.runtime.Session(model, threads=1)(*arrays).numpy(), want, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 1e20], ids=str)
@pytest.mark.parametrize("operand", [0, 1, 2], ids=["query", "key", "value"])
def test_tiles_give_what_the_eager_kernel_gives_for_special_values(operand: int, number: float) -> None:
    arrays = np.random.default_rng(0).standard_normal((3, 1, TILED, H * D)).astype(np.float32)
    arrays[operand, 0, 300, 5] = number
    session = lucid.runtime.Session(export(Case("", {}), True, TILED, 1), threads=1)
    with np.errstate(all="ignore"):
        want = ops.attention(*map(lucid.Tensor, arrays), heads=H).numpy()
    np.testing.assert_allclose(session(*arrays).numpy(), want, rtol=1e-5, atol=3e-6)


@pytest.mark.parametrize("length", [SHORT_IF_MASKED + 1, 140])
@pytest.mark.parametrize("packed", [False, True], ids=["4-D", "packed"])
def test_a_window_that_no_query_exceeds_is_left_out(packed: bool, length: int) -> None:
    case = Case("", {"is_causal": True, "window": 140}, {"key_mask": bool_input("N", "L")})
    assert forms(case, packed, length) == ["window blocks"]
    specs = specs_of(case, packed, length)
    (decision,) = lucid.export.explain(function_of(case, packed), kwargs=specs, target="cpu").attention
    assert decision.note.startswith("a window of 140 hides none")
    assert [inner.taken for inner in decision.inside if inner.op == "attention"] == ["query blocks"]
    check_run(lucid.runtime.Session(export(case, packed, length, 2), threads=1), case, packed, 2, length)
    assert forms(case, packed, 41) != ["window blocks"]


@pytest.mark.parametrize("length", [SHORT, SHORT + 1, 140, 141])
def test_a_window_that_ends_at_its_query_is_causal(length: int) -> None:
    case = Case("", {"window": 140, "window_after": 0})
    check_run(lucid.runtime.Session(export(case, False, length, 2), threads=1), case, False, 2, length)


def test_over_a_cache_capped_scores_are_those_of_the_node() -> None:
    specs = [lucid.spec(1, H, 1, D)] * 3 + [lucid.spec(1, H, "P", D)] * 2
    step = lambda q, k, v, *past: ops.attention(q, k, v, None, None, *past, softcap=2.0)  # noqa: E731
    (decision,) = lucid.export.explain(step, *specs, target="cpu").attention
    assert decision.taken == "ai.onnx Attention"
    assert (
        "products, for their tanh",
        "the node reads a cache without copying it for groups of heads",
    ) in decision.refused


def test_a_wide_window_has_larger_blocks() -> None:
    case = Case("", {"is_causal": True, "window": REACH + 1})
    length = int(WIDE.short * (WIDE.rows + REACH)) + 5
    q = np.random.default_rng(0).standard_normal((3, 1, length, H * D)).astype(np.float32)
    got = lucid.runtime.Session(export(case, True), threads=1).run({"query": q[0], "key": q[1], "value": q[2]})
    tensors = [lucid.tensor(x.reshape(1, length, H, D).transpose(0, 2, 1, 3)).astype("float64") for x in q]
    check(got["output"], pack(ops.attention(*tensors, **case.attributes).numpy()), length)


def test_layers_with_the_same_window_share_its_masks() -> None:
    def layers(count: int) -> Callable[[lucid.Tensor, lucid.Tensor], lucid.Tensor]:
        def model(x: lucid.Tensor, keep: lucid.Tensor) -> lucid.Tensor:
            for _ in range(count):
                x = ops.attention(x, x, x, None, keep, heads=2, window=3, window_after=3)
            return x

        return model

    specs = [lucid.spec("N", "L", 8), lucid.spec("N", "L", dtype=lucid.bool_)]
    one, two = (lucid.export.to_onnx(layers(count), *specs, target="cpu").graph.node for count in (1, 2))
    assert len(two) == len(one) + 1 and two[-1].op_type == "If"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"window": 3}, "a query sees all keys on one side"),
        ({"window_after": 3}, "a query sees all keys on one side"),
        ({"window": 3, "is_causal": True}, "queries and keys may differ in number"),
    ],
)
def test_windows_that_are_not_computed_in_blocks(options: dict[str, Any], why: str) -> None:
    specs = [lucid.spec("N", H, length, D) for length in ("L", "S", "S")]
    explanation = lucid.export.explain(lambda *x: ops.attention(*x, **options), *specs, target="cpu")
    assert ("window blocks", why) in explanation.attention[0].refused


@pytest.mark.parametrize("length", [7, TILED_IF_SPLIT - 1])
def test_three_products(length: int) -> None:
    """Unmasked attention of split heads, with fewer queries than tiles are taken for."""
    specs = [lucid.spec("N", 2, length, 16)] * 3
    exported = lucid.export.to_onnx(ops.attention, *specs, target="cpu")
    assert [n.op_type for n in exported.graph.node] == ["FusedMatMul", "Softmax", "MatMul"]
    arrays = [np.random.default_rng(i).standard_normal((1, 2, length, 16)).astype(np.float32) for i in range(3)]
    got = lucid.runtime.Session(exported)(*arrays).numpy()
    want = ops.attention(*(lucid.tensor(a).astype("float64") for a in arrays))
    check(got, want.numpy(), length)


def test_returned_weights_are_those_of_the_products() -> None:
    """Also for a dynamic length, where onnxruntime's Attention node may write weights into memory of another size."""
    call = lambda q, k, v: ops.attention(q, k, v, need_weights=True)  # noqa: E731
    specs = [lucid.spec("N", 2, "L", 16)] * 3
    (decision,) = lucid.export.explain(call, *specs, target="cpu").attention
    assert decision.taken == "three products"
    session = lucid.runtime.Session(lucid.export.to_onnx(call, *specs, target="cpu"))
    arrays = [np.random.default_rng(i).standard_normal((1, 2, 9, 16)).astype(np.float32) for i in range(3)]
    want = call(*(lucid.tensor(a).astype("float64") for a in arrays))
    for got, exact in zip(session(*arrays), want, strict=True):
        check(got.numpy(), exact.numpy(), 9)


@pytest.mark.parametrize("packed", [False, True], ids=["4-D", "packed"])
@pytest.mark.parametrize("mask", [bool_input("N", H, "L", "L"), bool_input("L", "L")], ids=["of heads", "of all"])
def test_capped_scores_of_groups_are_rows_of_one_product(mask: Any, packed: bool) -> None:
    """With a mask for each head, which is added to the rows of its own head; queries that see no key give 0."""
    case = Case("", {"softcap": 2.0}, {"mask": mask}, kv_heads=2)
    exported = export(case, packed, 7)
    assert "FusedMatMul" in [node.op_type for node in exported.graph.node]
    check_run(lucid.runtime.Session(exported, threads=1), case, packed, 2, 7)


Inputs = tuple[np.ndarray, np.ndarray, np.ndarray]


def scaled(factor: float) -> Callable[[np.random.Generator, int], Inputs]:
    def make(rng: np.random.Generator, length: int) -> Inputs:
        q, k, v = rng.standard_normal((3, 1, H, length, D))
        return q * factor, k * factor, v

    return make


def one_huge_key(rng: np.random.Generator, length: int) -> Inputs:
    q, k, v = rng.standard_normal((3, 1, H, length, D))
    k[:, :, length // 2] *= 1e4
    return q, k, v


def own_score_lowest(rng: np.random.Generator, length: int) -> Inputs:
    q, _, v = rng.standard_normal((3, 1, H, length, D))
    return q, -5 * q, v


def equal_rows(rng: np.random.Generator, length: int) -> Inputs:
    q, k, v = rng.standard_normal((3, 1, H, length, D))
    return np.ones_like(q), np.ones_like(k), v


def huge_last_value(rng: np.random.Generator, length: int) -> Inputs:
    q, k, v = rng.standard_normal((3, 1, H, length, D))
    v[:, :, -1] *= 1e6
    return q, k, v


def tiny(rng: np.random.Generator, length: int) -> Inputs:
    q, k, v = rng.standard_normal((3, 1, H, length, D))
    return q * 1e-20, k * 1e-20, v


ADVERSARIES = {
    "x3": scaled(3),
    "x10": scaled(10),
    "x100": scaled(100),
    "one huge key": one_huge_key,
    "own score lowest": own_score_lowest,
    "equal rows": equal_rows,
    "huge last value": huge_last_value,
    "tiny": tiny,
}


@in_pairs(name=ADVERSARIES, fixed=[False, True], hidden=HIDDEN, indirect=["hidden"])
def test_adversarial_inputs(name: str, fixed: bool, hidden: None) -> None:
    """No worse than plain float32 attention, which also loses precision for large scores; a later value never has an
    effect."""
    for length in (40, 150, WHOLE + 98):
        case = SELF[0]
        session = lucid.runtime.Session(export(case, False, length if fixed else "L", 1 if fixed else "N"), threads=1)
        arrays = [x.astype(np.float32) for x in ADVERSARIES[name](np.random.default_rng(length), length)]
        got = session(*arrays).numpy()
        tensors = [lucid.tensor(a) for a in arrays]
        want = ops.attention(*(t.astype("float64") for t in tensors), is_causal=True).numpy()
        plain = ops.attention(*tensors, is_causal=True).numpy()
        error, usual = np.abs(got - want), np.abs(plain - want)
        assert np.isfinite(got).all()
        assert error[:, :, :-1].max() <= max(2 * usual[:, :, :-1].max(), 2e-6)


@pytest.mark.usefixtures("few_rows", "hidden")
@pytest.mark.parametrize("name", ADVERSARIES)
def test_keys_handed_on_give_the_bits_of_copies(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of blocks thus hold for both, including those with NaN and infinity."""
    arrays = [x.astype(np.float32) for x in ADVERSARIES[name](np.random.default_rng(0), 77)]
    session = session_of(SELF[0], 77)
    monkeypatch.setattr(thresholds, "ROWS", thresholds.ROWS_HANDED_ON)
    monkeypatch.setattr(thresholds, "HANDED_ON_ABOVE", 77)
    assert forms(SELF[0], False, 77) == ["query blocks"]
    copies = session_of(SELF[0], 77)
    np.testing.assert_array_equal(session(*arrays).numpy(), copies(*arrays).numpy())
    for operand, number in product(range(3), (np.nan, np.inf, -np.inf, 1e20)):
        inputs = [x.copy() for x in arrays]
        inputs[operand][0, :, 40, 5] = number
        np.testing.assert_array_equal(session(*inputs).numpy(), copies(*inputs).numpy())


@pytest.mark.usefixtures("all_are_few", "hidden")
@pytest.mark.parametrize("name", ADVERSARIES)
def test_blocks_in_products_are_those_of_nodes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of blocks thus hold for both, including those with NaN and infinity."""
    arrays = [x.astype(np.float32) for x in ADVERSARIES[name](np.random.default_rng(0), 77)]
    products = session_of(SELF[0], 77)
    monkeypatch.setattr(thresholds, "FEW_HEADS", 0)
    assert forms(SELF[0], False, 77) == ["query blocks"]
    nodes = session_of(SELF[0], 77)
    for operand, number in [(0, 1.0), *product(range(3), (np.nan, np.inf, -np.inf, 1e20))]:
        inputs = [x.copy() for x in arrays]
        inputs[operand][0, :, 40, 5] = number
        want = nodes(*inputs).numpy()
        np.testing.assert_allclose(products(*inputs).numpy(), want, rtol=1e-5, atol=1e-6 * np.nanmax(np.abs(arrays[2])))


def test_hidden_values_do_not_show() -> None:
    """Hidden keys change the output of a query by less than the precision of float32."""
    session = lucid.runtime.Session(export(SELF[0], False), threads=1)
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, H, 100, D)).astype(np.float32)
    before = session(q, k, v).numpy()[:, :, :50]
    k[:, :, 50:], v[:, :, 50:] = -k[:, :, 50:], 100.0
    np.testing.assert_allclose(session(q, k, v).numpy()[:, :, :50], before, atol=1e-7)


LARGE = [1e2, 1e6, 1e8, 1e12, 1e19, 1e30, 1e38]


def session_of(case: Case, length: int, **attributes: Any) -> lucid.runtime.Session:
    case = replace(case, attributes=case.attributes | attributes)
    return lucid.runtime.Session(export(case, False, length, 1), threads=1)


@in_pairs(reach=[1.0, 1.5, 2.0], size=[1.0, 1e-6, 1e6], hidden=HIDDEN, indirect=["hidden"])
def test_hidden_values_of_any_size_do_not_show(reach: float, size: float, hidden: None) -> None:
    """At most a billionth of the smallest visible value: scores up to the bound, values of any magnitude."""
    causal, masked = session_of(SELF[0], 100), session_of(SELF[6], 100)
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, H, 100, D)).astype(np.float32)
    q, k, v = q * np.float32(reach), k * np.float32(reach), v * np.float32(size)
    keep = np.arange(100)[None] < 50
    exact = ops.attention(*(lucid.tensor(x[:, :, :50]).astype("float64") for x in (q, k, v)), is_causal=True).numpy()
    for large in LARGE:
        v[:, :, 50:] = size * large if size * large < 1e38 else 1e38
        seen = causal(q, k, v).numpy()[:, :, :50]
        np.testing.assert_allclose(seen / size, exact / size, rtol=0, atol=2e-6 * reach**2)
        got = masked(q, k, v, keep).numpy()
        want = ops.attention(*(lucid.tensor(x).astype("float64") for x in (q, k, v)), None, lucid.tensor(keep))
        np.testing.assert_allclose(got / size, want.numpy() / size, rtol=0, atol=2e-6 * reach**2)


@in_pairs(large=LARGE, direction=[1, -1], hidden=HIDDEN, indirect=["hidden"])
def test_hidden_values_do_not_show_where_scores_are_at_their_bound(large: float, direction: int, hidden: None) -> None:
    """Visible keys score lowest and hidden ones highest: the worst case for given norms, around every bound."""
    session = session_of(SELF[0], 128, scale=1.0)
    for norm in (8, 12, 14, 16, 18, 19.9, 20, 20.1, 22, 30):
        q, k, v = np.zeros((3, 1, H, 128, D), np.float32)
        q[..., 0], k[:, :, :30, 0], k[:, :, 30:, 0], v[:, :, :30] = norm, -direction, direction, 1
        v[:, :, 30:] = large
        np.testing.assert_allclose(session(q, k, v).numpy()[:, :, :30], 1, rtol=0, atol=2e-6)


@pytest.mark.usefixtures("hidden")
def test_one_large_hidden_value_beside_nan_does_not_show() -> None:
    """A maximum ignores NaN, and may also ignore the numbers next to it."""
    session = session_of(SELF[0], 128)
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, H, 128, D)).astype(np.float32)
    v[:, :, 59, 0], v[:, :, 59, 1] = np.nan, 1e30
    want = ops.attention(*(lucid.tensor(x[:, :, :59]) for x in (q, k, v)), is_causal=True).numpy()
    np.testing.assert_allclose(session(q, k, v).numpy()[:, :, :59, 1:], want[..., 1:], rtol=0, atol=2e-6)


NORMS = [(1e-24, 1e18, 1e8), (1e18, 1e-24, 1e8), (1e-30, 1e30, 10.0), (1e-20, 1e-18, 1e37), (1e20, 1e15, 1e-34)]


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize(("of_query", "of_key", "scale"), NORMS)
def test_norms_that_a_square_cannot_hold_do_not_fool_the_bound(of_query: float, of_key: float, scale: float) -> None:
    session = session_of(SELF[0], 128, scale=scale)
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, H, 128, D)).astype(np.float32)
    q, k = q * np.float32(of_query), k * np.float32(of_key)
    want = ops.attention(*(lucid.tensor(x).astype("float64") for x in (q, k, v)), is_causal=True, scale=scale).numpy()
    steep = float(of_query * of_key * scale) * D * 10
    np.testing.assert_allclose(session(q, k, v).numpy(), want, rtol=0, atol=2e-6 * max(1, steep))


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize("scale", [1e-300, 1e-37, 1e-30, 1e-19, 1e-18])
def test_the_smallest_scales(scale: float) -> None:
    """All scores are then about 0: the result is a mean."""
    session = session_of(SELF[0], 128, scale=scale)
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, H, 128, D)).astype(np.float32)
    want = np.cumsum(v.astype(np.float64), 2) / np.arange(1, 129)[:, None]
    np.testing.assert_allclose(session(q, k, v).numpy(), want, rtol=0, atol=2e-6)


def test_explanation_says_why_blocks_do_not_serve() -> None:
    wide = lucid.export.explain(
        ops.attention, *[lucid.spec("N", H, "L", D, dtype="float64")] * 3, kwargs={"is_causal": True}, target="cpu"
    )
    assert "float32, not float64" in str(wide)
    cross = [lucid.spec("N", H, "L", D), *[lucid.spec("N", H, "S", D)] * 2]
    assert "may differ in number" in str(
        lucid.export.explain(ops.attention, *cross, kwargs={"is_causal": True}, target="cpu")
    )


EXPECTED = {
    (1, WHOLE): ["Attention"],  # no more queries than the node computes as fast
    (1, 512): ["If", "Scan", "Attention", "Attention"],
    (WHOLE + 1, 512): ["Scan", "Attention"],
}


@pytest.mark.parametrize("lengths", EXPECTED, ids=str)
def test_lengths_that_are_not_expected_have_no_branch_and_are_computed_all_the_same(lengths: tuple[int, int]) -> None:
    case, target = SELF[3], Target("cpu", lengths=lengths)
    specs = specs_of(case, True)
    exported = lucid.export.to_onnx(function_of(case, True), kwargs=specs, target=target)
    chosen = [node.op_type for node in nodes_inside(exported.graph.node) if node.op_type in ("If", "Scan", "Attention")]
    assert chosen == EXPECTED[lengths]
    session = lucid.runtime.Session(exported, threads=1)
    for n, length in ((3, 1), (2, 33), (1, WHOLE), (2, WHOLE + 1), (1, 520)):
        check_run(session, case, True, n, length)


def test_windows_have_no_branch_for_lengths_that_are_not_expected() -> None:
    case = LOCAL[1]
    limit = int(NARROW.short * (NARROW.rows + 5))
    one, both = ["Attention"], ["If", "Attention", "Attention"]
    for lengths, chosen in (((0, limit), one), ((limit + 1, 4096), one), ((0, 4096), both), (None, both)):
        target = Target("cpu", lengths=lengths)
        exported = lucid.export.to_onnx(function_of(case, True), kwargs=specs_of(case, True), target=target)
        assert [
            node.op_type for node in nodes_inside(exported.graph.node) if node.op_type in ("If", "Attention")
        ] == chosen
        for length in (3, limit, limit + 1):
            check_run(lucid.runtime.Session(exported, threads=1), case, True, 2, length)


def test_the_explanation_speaks_of_expected_lengths() -> None:
    def decision(lengths: tuple[int, int]) -> Any:
        specs = specs_of(SELF[0], True)
        target = Target("cpu", lengths=lengths)
        return lucid.export.explain(function_of(SELF[0], True), kwargs=specs, target=target).attention[0]

    assert (
        "query blocks",
        "at most 192 queries are expected (lengths=(1, 100)), too few for it to be faster",
    ) in decision((1, 100)).refused
    assert "plain node" not in decision((200, 300)).note
    assert "up to 192 queries it is the plain node" in decision((1, 300)).note


@pytest.mark.parametrize("lengths", [(512, 1), (-1, 5), (1,), 512, (1.0, 2.0), (True, 5), "1:512"], ids=str)
def test_lengths_that_are_no_range_are_refused(lengths: Any) -> None:
    with pytest.raises(lucid.export.ExportError, match="expected the fewest and the most queries of an attention"):
        Target("cpu", lengths=lengths)


def test_explain_shows_the_forms_that_a_form_uses_itself() -> None:
    specs = [lucid.spec(1, H, 256, D)] * 3
    report = str(lucid.export.explain(ops.attention, *specs, kwargs={"is_causal": True, "window": 300}, target="cpu"))
    lines = [line.strip() for line in report.splitlines() if "attention  " in line or "inside" in line]
    assert lines[:2] == [
        "attention  window blocks: 20 nodes",
        "inside    query blocks, because 4 blocks of queries compute 62% of the scores at 256, the node all of them",
    ]
    assert lines[2] == "inside      ai.onnx Attention   (4 alike)"
    few = [lucid.spec(1, 1, "L", D)] * 3
    (decision,) = lucid.export.explain(ops.attention, *few, kwargs={"is_causal": True}, target="cpu").attention
    assert decision.note.endswith("each block is products, on all threads")
