"""A decode step of grouped heads over a growing cache, whose heads become queries of the key head that they share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid
from lucid import ops
from lucid.core.sizes.dims import dim
from tests.combinations import in_pairs
from tests.test_attention import LAYOUTS

N, HEADS, KV_HEADS, WIDTH, PAST = 2, 6, 2, 8, 5
OPTIONS: dict[str, tuple[dict[str, Any], dict[str, tuple[Any, ...]]]] = {
    "no mask": ({}, {}),
    "causal": ({"is_causal": True}, {}),
    "causal, key mask": ({"is_causal": True}, {"key_mask": ("N", "K")}),
    "mask of each head": ({"scale": 0.3}, {"mask": ("N", HEADS, "L", "K")}),
    "masks of all": ({"softcap": 2.0}, {"mask": (1, "K"), "key_mask": ("N", "K")}),
    "window": ({"is_causal": True, "window": 3}, {}),
}


def call(options: dict[str, Any], packed: bool) -> Any:
    heads = {"heads": HEADS, "kv_heads": KV_HEADS} if packed else {}

    def attend(query: Any, key: Any, value: Any, past_key: Any, past_value: Any, mask: Any = None, **more: Any) -> Any:
        return ops.attention(query, key, value, mask, more.get("key_mask"), past_key, past_value, **heads, **options)

    return attend


def shapes(masks: dict[str, tuple[Any, ...]], packed: bool, sizes: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    n, length = sizes["N"], sizes["L"]
    operands: dict[str, tuple[Any, ...]] = {}
    for name, heads in (("query", HEADS), ("key", KV_HEADS), ("value", KV_HEADS)):
        operands[name] = (n, length, heads * WIDTH) if packed else (n, heads, length, WIDTH)
    for name in ("past_key", "past_value"):
        operands[name] = (n, KV_HEADS, sizes["P"], WIDTH)
    return operands | {name: tuple(sizes.get(str(size), size) for size in shape) for name, shape in masks.items()}


@in_pairs(name=OPTIONS, packed=LAYOUTS, fixed=[True, False])
def test_heads_of_a_group_are_queries(name: str, packed: bool, fixed: bool) -> None:
    options, masks = OPTIONS[name]
    past, length = dim("P"), 1 if fixed else dim("L")
    symbolic = shapes(masks, packed, {"N": "N", "L": length, "P": past, "K": past + length})
    kinds = {x: lucid.spec(*shape, dtype="bool" if "mask" in x else "float32") for x, shape in symbolic.items()}
    attend = call(options, packed)
    (decision,) = lucid.export.explain(attend, kwargs=kinds, target="cpu").attention
    assert decision.taken == "groups as queries"
    session = lucid.runtime.Session(lucid.export.to_onnx(attend, kwargs=kinds, target="cpu"), threads=1)
    rng = np.random.default_rng(0)
    for new in (1,) if fixed else (1, 3):
        inputs = shapes(masks, packed, {"N": N, "L": new, "P": PAST, "K": PAST + new})
        arrays = {
            x: rng.random(shape) < 0.7 if "mask" in x else rng.standard_normal(shape, np.float32)
            for x, shape in inputs.items()
        }
        exact = {x: lucid.tensor(a if "mask" in x else a.astype(np.float64)) for x, a in arrays.items()}
        for got, want in zip(session.run(arrays).values(), attend(**exact), strict=True):
            np.testing.assert_allclose(got, want.numpy(), rtol=0, atol=2e-6)


def test_no_query_is_not_taken_for_one() -> None:
    """It is the node that refuses it, as everywhere (docs/limitations.md), not a mask that does not fit."""
    options, masks = OPTIONS["window"]
    symbolic = shapes(masks, False, {"N": "N", "L": "L", "P": "P"})
    kinds = {x: lucid.spec(*shape) for x, shape in symbolic.items()}
    session = lucid.runtime.Session(lucid.export.to_onnx(call(options, False), kwargs=kinds, target="cpu"), threads=1)
    sizes = shapes(masks, False, {"N": N, "L": 0, "P": PAST})
    with pytest.raises(ValueError, match="query has L = 0 at axis 2") as error:
        session.run({x: np.zeros(shape, np.float32) for x, shape in sizes.items()})
    assert "Q sequence length must be greater than 0" in str(error.value.__cause__)


def test_one_query_beside_several_new_keys_is_left_to_the_node() -> None:
    rng, kv = np.random.default_rng(0), (N, KV_HEADS, 3, WIDTH)
    sizes = {"query": (N, HEADS, 1, WIDTH), "key": kv, "value": kv, "past_key": kv, "past_value": kv}
    arrays = {name: rng.standard_normal(shape, np.float32) for name, shape in sizes.items()}
    kinds, attend = {name: lucid.spec(*shape) for name, shape in sizes.items()}, call({"is_causal": True}, False)
    (decision,) = lucid.export.explain(attend, kwargs=kinds, target="cpu").attention
    assert dict(decision.refused)["groups as queries"] == "queries and new keys may differ in number"
    session = lucid.runtime.Session(lucid.export.to_onnx(attend, kwargs=kinds, target="cpu"), threads=1)
    exact = attend(**{name: lucid.tensor(array.astype(np.float64)) for name, array in arrays.items()})
    for got, want in zip(session.run(arrays).values(), exact, strict=True):
        np.testing.assert_allclose(got, want.numpy(), rtol=0, atol=2e-6)


def test_explanation_says_where_the_plain_node_is_as_fast() -> None:
    kinds = {x: lucid.spec(*s) for x, s in shapes({}, False, {"N": 1, "L": 4, "P": 9}).items()}
    (decision,) = lucid.export.explain(call({}, False), kwargs=kinds, target="cpu").attention
    assert decision.taken == "ai.onnx Attention"
    assert "only with a single query" in dict(decision.refused)["groups as queries"]
