"""Attention that is written out: the usual ways to write it become the op and compute the same; others stay."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn, ops
from lucid.export import explain, to_onnx
from lucid.testing import assert_parity

HEADS = ("N", 4, "L", 8)
MEMORY = ("N", 4, "S", 8)
LOW = lucid.finfo(lucid.float32).min
TABLE = lucid.tril(lucid.ones(32, 32)).view(1, 1, 32, 32)
BIAS = lucid.tensor(np.random.default_rng(0).standard_normal((1, 4, 32, 32)).astype(np.float32))
Model = Callable[..., Any]


def attend(mask: Model = lambda scores: scores, scale: float = 8**-0.5) -> Model:
    """Attention of heads with a step between the scaled products and the softmax."""

    def forward(q: Any, k: Any, v: Any, *more: Any) -> Any:
        return mask(q @ k.transpose(-2, -1) * scale, *more).softmax(-1) @ v

    return forward


def triangle(scores: Any) -> Any:
    return lucid.ones(scores.shape[-2], scores.shape[-1], dtype=lucid.bool_).tril()


def added_triangle(scores: Any, low: float = -math.inf) -> Any:
    return scores + lucid.triu(lucid.full(scores.shape[-2:], low), 1)


def positions(scores: Any) -> tuple[Any, Any]:
    rows = lucid.arange(scores.shape[-2])
    return rows[:, None], rows[None, :]


def behind(scores: Any) -> Any:
    row, column = positions(scores)
    return scores.masked_fill(column > row, LOW)


def near(scores: Any) -> Any:
    row, column = positions(scores)
    return lucid.where((column <= row) & (row - column < 3), scores, -math.inf)


def buffer(scores: Any) -> Any:
    length = scores.shape[-1]
    return scores.masked_fill(TABLE[:, :, :length, :length] == 0, -math.inf)


def row_of_triangle(scores: Any) -> Any:
    """One row, which all queries share: no triangle."""
    return scores.masked_fill(TABLE[:, :, :1, : scores.shape[-1]] == 0, LOW)


def column_of_triangle(scores: Any) -> Any:
    return scores.masked_fill(lucid.ones(scores.shape[-2], 1, dtype=lucid.bool_).tril(-1), LOW)


def with_bias(scores: Any) -> Any:
    length = scores.shape[-1]
    return scores + BIAS[:, :, :length, :length]


def keys_filled(scores: Any, keys: Any) -> Any:
    return scores.masked_fill(~keys[:, None, None, :], LOW)


def keys_and_triangle(scores: Any, keys: Any) -> Any:
    return lucid.where(keys[:, None, None, :] & triangle(scores), scores, -1e9)


def keys_added(scores: Any, keys: Any) -> Any:
    return scores + (1.0 - keys[:, None, None, :].float()) * LOW


def bias_and_keys(scores: Any, keys: Any) -> Any:
    length = scores.shape[-1]
    return scores + (BIAS[:, :, :length, :length] + lucid.where(keys[:, None, None, :], 0.0, LOW))


def keys_and_triangle_added(scores: Any, keys: Any) -> Any:
    """Keys that both hide get -inf, and those that one hides the lowest number."""
    return scores + (
        added_triangle(lucid.zeros(scores.shape[-2:]), LOW) + lucid.where(keys[:, None, None, :], 0.0, LOW)
    )


def keys_by_logarithm(scores: Any, keys: Any) -> Any:
    return scores + keys[:, None, None, :].float().log()


def keys_apart(scores: Any, keys: Any) -> Any:
    """As in GPT-2."""
    return lucid.where(triangle(scores), scores, LOW) + lucid.where(keys[:, None, None, :], 0.0, LOW)


def keys_lower(scores: Any, keys: Any) -> Any:
    return lucid.where(triangle(scores), scores + lucid.where(keys[:, None, None, :], 1.0, -1e30), -1e9)


def keys_far_apart(scores: Any, keys: Any) -> Any:
    return lucid.where(triangle(scores), scores, -1e9) + lucid.where(keys[:, None, None, :], 0.0, LOW)


def zeroed(q: Any, k: Any, v: Any, keys: Any) -> Any:
    seen = keys[:, None, None, :]
    scores = (q @ k.mT / 8**0.5).masked_fill(~seen, -math.inf)
    return scores.softmax(-1).masked_fill(~seen, 0.0) @ v


def capped(scores: Any) -> Any:
    return behind(lucid.tanh(scores / 30) * 30)


def repeated(q: Any, k: Any, v: Any) -> Any:
    k = lucid.repeat_interleave(k, 2, 1)
    n, h, s, d = v.shape
    v = v[:, :, None].expand(n, h, 2, s, d).reshape(n, 2 * h, s, d)
    return F.softmax(q @ k.mT / math.sqrt(8), dim=-1, dtype=lucid.float32).to(q.dtype) @ v


def grouped(q: Any, k: Any, v: Any) -> Any:
    n, h, length, d = q.shape
    q = q.reshape(n, 2, h // 2, length, d)
    return ((q @ k[:, :, None].mT) * d**-0.5).softmax(-1).matmul(v[:, :, None]).reshape(n, h, length, d)


def flattened(q: Any, k: Any, v: Any) -> Any:
    n, h, length, d = q.shape
    q, k, v = (x.reshape(n * h, x.shape[2], d) for x in (q, k, v))
    scores = lucid.bmm(q, k.transpose(1, 2)).view(n, h, length, -1) + TABLE[:, :, :1, :1]
    return lucid.bmm(scores.view(n * h, length, -1).softmax(-1), v).view(n, h, length, d)


def by_einsum(q: Any, k: Any, v: Any) -> Any:
    scores = lucid.einsum("bhid,bhjd->bhij", q, k) * 8**-0.5
    return lucid.einsum("bhij,bhjd->bhid", scores.softmax(-1), v)


def by_einsum_of_rows(q: Any, k: Any, v: Any) -> Any:
    weights = lucid.einsum("bihd,bjhd->bhij", q, k).div(8**0.5).softmax(-1)
    return lucid.einsum("bhij,bjhd->bihd", weights, v)


def latents(k: Any, v: Any) -> Any:
    """Queries of the model itself, as Perceiver has them, which every row of the batch shares."""
    return (BIAS[:, :, :5, :8] @ k.mT * 8**-0.5).softmax(-1) @ v


def divided(q: Any, k: Any, v: Any) -> Any:
    powers = behind(q @ k.mT * 8**-0.5).exp()
    return powers / powers.sum(-1, keepdim=True) @ v


def divided_after_a_shift(q: Any, k: Any, v: Any) -> Any:
    scores = behind(q @ k.mT * 8**-0.5)
    powers = (scores - scores.max(-1, keepdim=True).values).exp()
    return powers / powers.sum(-1, keepdim=True) @ v


def cached(mask: Model) -> Model:
    """Attention to earlier keys as well, with a mask whose place is their number."""

    def forward(q: Any, k: Any, past: Any) -> Any:
        keys = lucid.cat((past, k), dim=2)
        return mask(q @ keys.mT * 8**-0.5, past.shape[2]).softmax(-1) @ keys

    return forward


def after_the_cached(scores: Any, past: Any, low: float = -math.inf) -> Any:
    return lucid.full(scores.shape[-2:], low).triu(past + 1)


def up_to(scores: Any, place: Any) -> Any:
    return lucid.ones(*scores.shape[-2:], dtype=lucid.bool_).tril(place)


SINKS = lucid.tensor([0.5, -1.0, 2.0, 0.0])


def with_sinks(q: Any, k: Any, v: Any, *keys: Any) -> Any:
    """As in gpt-oss."""
    scores = q @ k.mT * 8**-0.5
    scores = keys_filled(scores, *keys) if keys else behind(scores)
    sinks = SINKS.reshape(1, -1, 1, 1).expand(q.shape[0], -1, q.shape[-2], -1)
    scores = lucid.cat([scores, sinks], dim=-1)
    scores = scores - scores.max(dim=-1, keepdim=True).values
    return F.softmax(scores, dim=-1)[..., :-1] @ v


KEYS = lucid.spec("N", "L", dtype="bool")
ROWS = ("N", "L", 4, 8)
STEP = (HEADS, HEADS, ("N", 4, "P", 8))
# What is written, the inputs, and the operands and options that the op gets.
SEEN: dict[str, tuple[Model, tuple[Any, ...], set[str]]] = {
    "plain": (attend(), (HEADS,) * 3, set()),
    "cross": (attend(), (HEADS, MEMORY, MEMORY), set()),
    "T5's, not scaled, with a bias": (attend(with_bias, 1.0), (HEADS,) * 3, {"mask", "scale"}),
    "queries scaled": (lambda q, k, v: (q * 8**-0.5 @ k.mT).softmax(-1) @ v, (HEADS,) * 3, set()),
    "queries and keys scaled": (lambda q, k, v: (q / 8**0.25 @ (k / 8**0.25).mT).softmax(-1) @ v, (HEADS,) * 3, set()),
    "keys by queries": (
        lambda q, k, v: ((k @ q.mT) * 8**-0.5).mT.softmax(-1) @ v,
        (HEADS, MEMORY, MEMORY),
        set(),
    ),
    "keys by queries, masked before": (
        lambda q, k, v: (k @ q.mT * 8**-0.5).masked_fill(~triangle(k @ q.mT).mT, -math.inf).mT.softmax(-1) @ v,
        (HEADS,) * 3,
        {"is_causal"},
    ),
    "a single head": (lambda q, k, v: ((q @ k.mT) / 3).softmax(-1) @ v, (("N", "L", 8),) * 3, {"scale"}),
    "no batch": (lambda q, k, v: ((q @ k.mT) * 8**-0.5).softmax(-1) @ v, (("L", 8),) * 3, set()),
    "a triangle of ones": (
        attend(lambda s: lucid.where(triangle(s), s, -math.inf)),
        (HEADS,) * 3,
        {"is_causal"},
    ),
    "an added triangle": (attend(added_triangle), (HEADS,) * 3, {"is_causal"}),
    "positions": (attend(behind), (HEADS,) * 3, {"is_causal"}),
    "a buffer": (attend(buffer), (HEADS,) * 3, {"is_causal"}),
    "a window": (attend(near), (HEADS,) * 3, {"is_causal", "window"}),
    "a triangle of memory": (attend(lambda s: lucid.where(triangle(s), s, LOW)), (HEADS, MEMORY, MEMORY), {"mask"}),
    "a row of a triangle": (attend(row_of_triangle), (HEADS,) * 3, {"mask"}),
    "a column of a triangle": (attend(column_of_triangle), (HEADS,) * 3, {"mask"}),
    "positions before infinity": (
        attend(lambda s: lucid.where(positions(s)[0].float() < math.inf, s, LOW)),
        (HEADS,) * 3,
        {"mask"},
    ),
    "a triangle after cached keys": (cached(lambda s, p: s + after_the_cached(s, p)), STEP, {"mask"}),
    "a triangle of a low number after cached keys": (
        cached(lambda s, p: s + after_the_cached(s, p, LOW)),
        STEP,
        {"mask"},
    ),
    "a transposed triangle after cached keys": (
        cached(lambda s, p: s + lucid.full(s.mT.shape[-2:], LOW).tril(-p - 1).mT),
        STEP,
        {"mask"},
    ),
    "a triangle of booleans after cached keys": (
        cached(lambda s, p: s.masked_fill(~up_to(s, p), -math.inf)),
        STEP,
        {"mask"},
    ),
    "a window after cached keys": (
        cached(lambda s, p: s.masked_fill(~(up_to(s, p) & ~up_to(s, p - 3)), -math.inf)),
        STEP,
        {"mask"},
    ),
    "two triangles after cached keys": (
        cached(lambda s, p: s + (after_the_cached(s, p) + lucid.full(s.shape[-2:], -math.inf).tril(p - 3))),
        STEP,
        {"mask"},
    ),
    "one number": (attend(lambda s: s + 1.5), (("N", 1, "L", 8),) * 3, {"mask"}),
    "a softcap": (attend(capped), (HEADS,) * 3, {"is_causal", "softcap"}),
    "an input": (attend(lambda s, m: s + m), (*(HEADS,) * 3, ("N", 1, "L", "L")), {"mask"}),
    "keys filled": (attend(keys_filled), (*(HEADS,) * 3, KEYS), {"mask"}),
    "keys of -inf": (
        attend(lambda s, keys: s.masked_fill(~keys[:, None, None, :], -math.inf)),
        (*(HEADS,) * 3, KEYS),
        {"key_mask"},
    ),
    "keys and a triangle of -inf": (
        attend(lambda s, keys: lucid.where(keys[:, None, None, :] & triangle(s), s, -math.inf)),
        (*(HEADS,) * 3, KEYS),
        {"key_mask", "is_causal"},
    ),
    "keys added": (attend(keys_added), (*(HEADS,) * 3, KEYS), {"mask"}),
    "keys and a triangle": (attend(keys_and_triangle), (*(HEADS,) * 3, KEYS), {"mask"}),
    "keys and a bias": (attend(bias_and_keys), (*(HEADS,) * 3, KEYS), {"mask"}),
    "masks apart": (attend(keys_apart), (*(HEADS,) * 3, KEYS), {"mask"}),
    "masks added to each other": (attend(keys_and_triangle_added), (*(HEADS,) * 3, KEYS), {"mask"}),
    "keys of -inf by a logarithm": (attend(keys_by_logarithm), (*(HEADS,) * 3, KEYS), {"mask"}),
    "weights set to 0": (zeroed, (*(HEADS,) * 3, KEYS), {"key_mask"}),
    "repeated heads": (repeated, (HEADS, ("N", 2, "L", 8), ("N", 2, "L", 8)), set()),
    "groups of heads": (grouped, (HEADS, ("N", 2, "L", 8), ("N", 2, "L", 8)), set()),
    "batch and heads joined": (flattened, (HEADS,) * 3, {"mask", "scale"}),
    "einsum": (by_einsum, (HEADS,) * 3, set()),
    "einsum of rows": (by_einsum_of_rows, (ROWS,) * 3, set()),
    "latent queries": (latents, (MEMORY,) * 2, set()),
    "powers over their sum": (divided, (HEADS,) * 3, {"is_causal"}),
    "powers over their sum, shifted": (divided_after_a_shift, (HEADS,) * 3, {"is_causal"}),
    "sinks": (with_sinks, (HEADS,) * 3, {"is_causal", "sinks"}),
    "sinks and keys": (with_sinks, (*(HEADS,) * 3, KEYS), {"key_mask", "sinks"}),
}


def attention_of(model: Any, *inputs: Any) -> dict[str, Any]:
    """The operands and options of the only attention in a graph, which has no other softmax."""
    nodes = lucid.trace(model, *inputs).nodes()
    assert not [node for node in nodes if node.op.name == "softmax"]
    (node,) = (node for node in nodes if node.op.name == "attention")
    return dict(zip(lucid.ops.attention.arguments, node.inputs, strict=False)) | dict(node.attributes)


@pytest.mark.parametrize("name", SEEN)
def test_what_is_written_out_becomes_the_op(name: str) -> None:
    model, inputs, special = SEEN[name]
    asked = {key for key, value in attention_of(model, *inputs).items() if value not in (None, False, 0.0)}
    assert asked - {"query", "key", "value", "heads", "kv_heads"} == special


def padded_on_the_right(sizes: Any) -> dict[str, np.ndarray]:
    return {"more.0": np.arange(sizes["L"]) <= np.arange(sizes["N"])[:, None]}


@pytest.mark.parametrize("target", ["any", "cpu", "portable"])
@pytest.mark.parametrize("name", SEEN)
def test_the_op_has_parity_with_what_is_written(name: str, target: str) -> None:
    model, inputs, _ = SEEN[name]
    draw = padded_on_the_right if "-inf" in name else None  # with NaN there is no parity
    assert_parity(model, *inputs, target=target, draw=draw)


@pytest.mark.parametrize("name", [name for name, (_, inputs, _) in SEEN.items() if len(inputs) < 4])
def test_the_op_gives_what_the_steps_give(name: str) -> None:
    model, inputs, _ = SEEN[name]
    rng, sizes = np.random.default_rng(1), {"N": 2, "L": 5, "S": 7, "P": 3}
    arrays = [rng.standard_normal([sizes.get(size, size) for size in shape]).astype(np.float32) for shape in inputs]
    (got,) = lucid.trace(model, *inputs).run(arrays)
    np.testing.assert_allclose(got, model(*map(lucid.tensor, arrays)).numpy(), rtol=1e-5, atol=2e-6)


# Where a query sees no key, the op gives 0. What is written gives the mean of all values, or NaN, which becomes 0.
UNSEEN = [name for name, (_, inputs, _) in SEEN.items() if len(inputs) == 4]


@pytest.mark.parametrize("target", ["any", "cpu", "cuda", "portable"])
@pytest.mark.parametrize("name", UNSEEN)
def test_queries_that_see_no_key_get_what_is_written(name: str, target: str) -> None:
    model, inputs, _ = SEEN[name]
    rng = np.random.default_rng(1)
    heads = [lucid.tensor(rng.standard_normal((3, 4, 6, 8)).astype(np.float32)) for _ in range(3)]
    keys = lucid.tensor(np.array([[False] * 6, [False, False, True, True, False, True], [True] * 6]))
    if inputs[3] is not KEYS:
        keys = lucid.where(keys[:, None, None, :] & lucid.ones(6, 6, dtype=lucid.bool_).tril(), 0.0, LOW)
    want = model(*heads, keys).numpy()
    assert np.isnan(want).any() == ("-inf" in name)
    got = lucid.runtime.Session(to_onnx(model, *inputs, target=target), "cpu")(*heads, keys).numpy()
    np.testing.assert_allclose(got, np.nan_to_num(want), rtol=1e-5, atol=2e-6)


def test_nan_in_a_key_that_a_condition_hides_gives_nan_or_what_is_written() -> None:
    model, inputs, _ = SEEN["keys filled"]
    rng = np.random.default_rng(1)
    q, k, v = rng.standard_normal((3, 2, 4, 6, 8)).astype(np.float32)
    k[0, 1, 5] = np.nan
    keys = np.arange(6) < np.array([[5], [6]])
    written = model(*map(lucid.tensor, (q, k, v, keys))).numpy()
    assert not np.isnan(written).any()
    got = lucid.runtime.Session(to_onnx(model, *inputs), "cpu")(q, k, v, keys).numpy()
    other = ~np.isclose(got, written, rtol=1e-5, atol=2e-6)
    assert np.isnan(got[other]).all() and not other[1].any() and not other[0, [0, 2, 3]].any()


def low_score(scores: Any) -> Any:
    return lucid.where(triangle(scores), scores, -3.0)


def scaled_late(scores: Any) -> Any:
    return added_triangle(scores, -1e4) * 0.5


def other_keys_zeroed(q: Any, k: Any, v: Any, keys: Any) -> Any:
    weights = keys_filled(q @ k.mT, keys).softmax(-1)
    return lucid.where(triangle(weights), weights, 0.0) @ v


def with_weights(q: Any, k: Any, v: Any) -> Any:
    weights = (q @ k.mT).softmax(-1)
    return weights @ v, weights


def in_half(q: Any, k: Any, v: Any) -> Any:
    q, k, v = (x.to(lucid.float16) for x in (q, k, v))
    return (q @ k.mT).softmax(-1, dtype=lucid.float32).to(q.dtype) @ v


def weights_rounded(q: Any, k: Any, v: Any) -> Any:
    return (q @ k.mT).softmax(-1).to(lucid.float16).float() @ v


ROUNDED = "rounded to another element type on the way"
# What is nearly attention, the inputs, and why it stays as it is.
NEARLY: dict[str, tuple[Model, tuple[Any, ...], str]] = {
    "a low score": (attend(low_score), (HEADS,) * 3, "set to -3, which is a score like others"),
    "scaled late": (attend(scaled_late), (HEADS,) * 3, "scores are multiplied after a mask"),
    "masks apart": (attend(keys_far_apart), (*(HEADS,) * 3, KEYS), "several masks hide keys apart from each other"),
    "others set to 0": (other_keys_zeroed, (*(HEADS,) * 3, KEYS), "set to 0 by another condition than scores"),
    "weights returned": (with_weights, (HEADS,) * 3, "its weights are used elsewhere"),
    "masks of several numbers": (attend(keys_lower), (*(HEADS,) * 3, KEYS), "several masks hide keys apart"),
    "half precision": (in_half, (HEADS,) * 3, ROUNDED),
    "scores rounded": (attend(lambda s: s.to(lucid.float16).float()), (HEADS,) * 3, ROUNDED),
    "whole scores": (attend(lambda s: s.to(lucid.int32).float()), (HEADS,) * 3, ROUNDED),
    "weights rounded": (weights_rounded, (HEADS,) * 3, ROUNDED),
}


@pytest.mark.parametrize("name", NEARLY)
def test_what_is_nearly_attention_stays_and_explain_says_what_to_write(name: str) -> None:
    model, inputs, because = NEARLY[name]
    assert not [node for node in lucid.trace(model, *inputs).nodes() if node.op.name == "attention"]
    (remark,) = explain(model, *inputs).remarks
    assert remark.decision == "stays as it is written"
    assert because in remark.because
    assert "scaled_dot_product_attention" in remark.instead or "lucid.ops.attention(" in remark.instead
    assert f"because   {remark.because}" in str(explain(model, *inputs))


def cut_in_front(q: Any, k: Any, v: Any) -> Any:
    """The sink is a key, and the last key is none."""
    scores = lucid.cat([SINKS.reshape(1, -1, 1, 1).expand(q.shape[0], -1, q.shape[-2], -1), q @ k.mT], dim=-1)
    return scores.softmax(-1)[..., 1:] @ v


def powers_of_others(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.mT
    return scores.exp() / (scores * 2).exp().sum(-1, keepdim=True) @ v


def with_sinks_twice(q: Any, k: Any, v: Any) -> Any:
    sinks = SINKS.reshape(1, -1, 1, 1).expand(q.shape[0], -1, q.shape[-2], -1)
    weights = lucid.cat([lucid.cat([q @ k.mT, sinks], dim=-1), sinks], dim=-1).softmax(-1)
    return weights[..., :-1][..., :-1] @ v


def with_keys_of_two(q: Any, k: Any, v: Any) -> Any:
    """Keys and values of two kinds, with one softmax, which is cut at a symbolic length."""
    length, weights = k.shape[-2], lucid.cat([q @ k.mT, q @ v.mT], dim=-1).softmax(-1)
    return weights[..., :length] @ k + weights[..., length:] @ v


OTHERS: dict[str, Model] = {
    "keys of two kinds": with_keys_of_two,
    "sinks in front": cut_in_front,
    "sinks twice": with_sinks_twice,
    "a vector as value": lambda q, k, v: (q @ k.mT).softmax(-1) @ v[0, 0, :, 0],
    "a vector as key": lambda q, k, v: (q @ k[0, 0, 0]).softmax(-1) @ v[:1, 0],
    "powers over the sum of others": powers_of_others,
    "powers over a sum over queries": lambda q, k, v: (q @ k.mT).exp() / (q @ k.mT).exp().sum(-2, keepdim=True) @ v,
    "over queries": lambda q, k, v: (q @ k.mT).softmax(-2) @ v,
    "no product": lambda q, k, v: (q * k).softmax(-1) @ v.mT,
    "log weights": lambda q, k, v: (q @ k.mT).log_softmax(-1) @ v,
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_uses_of_a_softmax_are_left_alone(name: str) -> None:
    graph = lucid.trace(OTHERS[name], *(HEADS,) * 3)
    assert "attention" not in graph.op_names()
    assert graph.remarks == ()


@pytest.mark.parametrize("shape", [("L", 8), (4, "L", 8), (1, 4, "L", 8), ("N", 1, "L", 8)])
def test_weights_that_several_values_share_are_computed_once(shape: tuple[Any, ...]) -> None:
    inputs = shape, shape, HEADS
    assert "attention" not in lucid.trace(attend(), *inputs).op_names()
    assert_parity(attend(), *inputs)


def test_queries_and_keys_that_were_widened_are_attention_of_half_precision() -> None:
    """As float16 models write it to avoid overflow; `ops.attention` widens scores itself."""

    def widened(q: Any, k: Any, v: Any) -> Any:
        weights = (q.float() @ k.float().mT * 8**-0.5).softmax(-1)
        return weights.to(q.dtype) @ v

    inputs = [lucid.spec(*HEADS, dtype="float16")] * 3
    attention_of(widened, *inputs)
    assert_parity(widened, *inputs)


class Block(nn.Module):
    """nanoGPT's attention (Karpathy 2022), with its buffer."""

    def __init__(self) -> None:
        self.c_attn, self.c_proj = nn.Linear(32, 96), nn.Linear(32, 32)
        self.register_buffer("bias", TABLE)

    def forward(self, x: Any) -> Any:
        n, length, width = x.size()
        q, k, v = (y.view(n, length, 4, 8).transpose(1, 2) for y in self.c_attn(x).split(32, dim=2))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :length, :length] == 0, float("-inf"))
        y = F.dropout(F.softmax(att, dim=-1), 0.1, self.training) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(n, length, width))


def test_a_block_of_gpt_has_6_nodes_instead_of_23() -> None:
    block, x = Block(), ("N", "L", 32)
    seen = attention_of(block, x)
    assert (seen["heads"], seen["is_causal"]) == (4, True)
    with lucid.attention_as_written():
        written = to_onnx(block, x)
    assert (len(written.graph.node), len(to_onnx(block, x).graph.node)) == (23, 6)
    for target in ("any", "cpu", "portable"):
        assert_parity(block, x, target=target)


WINDOWS = ("N", 3, 5, 32)  # of 5 positions


def windowed(bias: Any, together: bool = False) -> Model:
    """Attention within windows (N, windows, L, E), of 4 heads that are split for it, with a bias."""

    def forward(x: Any) -> Any:
        n, count, length, _ = x.shape
        heads = x.reshape(n, count, length, 4, 8).permute(0, 1, 3, 2, 4)
        keys = heads[:, :, :1] if together else heads
        weights = (heads @ keys.transpose(-2, -1) * 0.3 + bias).softmax(-1)
        return (weights @ keys).permute(0, 1, 3, 2, 4).reshape(x.shape)

    return forward


@pytest.mark.parametrize("shape", [(4, 5, 5), (1, 1, 4, 1, 5), (1, 1, 1, 5, 5), (5,)], ids=str)
def test_windows_under_one_mask_are_rows_of_a_batch_whose_heads_stay_side_by_side(shape: tuple[int, ...]) -> None:
    bias = lucid.tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32))
    nodes = {node.op.name: node for node in lucid.trace(windowed(bias), WINDOWS).nodes()}
    assert set(nodes) == {"reshape", "attention"}
    assert nodes["attention"].attributes["heads"] == 4
    assert_parity(windowed(bias), WINDOWS)
    check_steps(windowed(bias))


@pytest.mark.parametrize("together", [False, True], ids=["a bias for each window", "shared keys"])
def test_other_windows_are_rows_of_heads(together: bool) -> None:
    shape = (1, 3, 4, 5, 5) if not together else (4, 5, 5)
    bias = lucid.tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32))
    assert "attention" in {node.op.name for node in lucid.trace(windowed(bias, together), WINDOWS).nodes()}
    assert_parity(windowed(bias, together), WINDOWS)
    check_steps(windowed(bias, together))


def one_head(x: Any) -> Any:
    """Windows (N, windows, 1, L, E) of one head, as in the first stages of Hiera: its keys are not shared by heads."""
    heads = x.unsqueeze(2)
    return ((heads @ heads.transpose(-2, -1) * 0.3).softmax(-1) @ heads).squeeze(2)


def test_windows_of_one_head_are_rows_of_a_batch() -> None:
    assert "attention" in {node.op.name for node in lucid.trace(one_head, WINDOWS).nodes()}
    assert_parity(one_head, WINDOWS)
    check_steps(one_head)


def shifted(x: Any) -> Any:
    """Rows of windows under a bias for each head, whose scores are split by window for a mask, as Swin writes it."""
    draws = np.random.default_rng(2)
    bias = lucid.tensor(draws.standard_normal((1, 4, 5, 5)).astype(np.float32))
    mask = lucid.tensor(np.where(draws.random((1, 3, 1, 5, 5)) < 0.5, -100, 0).astype(np.float32))
    heads = x.reshape(-1, 5, 4, 8).permute(0, 2, 1, 3)
    scores = (heads @ heads.mT * 0.3 + bias).reshape(-1, 3, 4, 5, 5) + mask
    return (scores.reshape(-1, 4, 5, 5).softmax(-1) @ heads).permute(0, 2, 1, 3).reshape(x.shape)


def test_rows_of_windows_whose_scores_are_split_for_a_mask_are_rows_of_a_batch() -> None:
    assert "attention" in {node.op.name for node in lucid.trace(shifted, WINDOWS).nodes()}
    assert_parity(shifted, WINDOWS)
    check_steps(shifted)


def check_steps(model: Model) -> None:
    """Hold the graph to the steps that are written."""
    x = np.random.default_rng(1).standard_normal((2, 3, 5, 32)).astype(np.float32)
    (result,) = lucid.trace(model, WINDOWS).run([x])
    np.testing.assert_allclose(result, model(lucid.tensor(x)).numpy(), atol=1e-5)


def test_a_table_still_limits_the_length() -> None:
    """The op needs no table, but beyond 32 positions the written code fails."""
    session = lucid.runtime.Session(to_onnx(Block(), ("N", "L", 32)))
    with pytest.raises(ValueError, match="L is 33, expected at most 32"):
        session(np.zeros((1, 33, 32), np.float32))


def test_explain_names_the_module() -> None:
    model = nn.Sequential(Block(), Block())
    text = str(explain(model, ("N", "L", 32), target="cpu"))
    assert "0/softmax    becomes attention, as it is between its two products   (2 alike)" in text
    assert "becomes attention" in explain(model, ("N", "L", 32))._repr_html_()


def test_attention_can_be_left_as_it_is_written() -> None:
    with lucid.attention_as_written():
        graph = lucid.trace(attend(), *(HEADS,) * 3)
    assert graph.op_names() == {"permute", "matmul", "mul", "softmax"}
    assert graph.remarks == ()


def test_attention_in_a_loop_becomes_the_op() -> None:
    def step(carry: Any, x: Any) -> Any:
        carry = attend(behind)(carry, x, x)
        return carry, carry.sum(-1)

    def model(start: Any, xs: Any) -> Any:
        return ops.scan(step, start, xs)

    inputs = HEADS, ("T", *HEADS)
    graph = lucid.trace(model, *inputs)
    assert "attention" in graph.op_names() and "softmax" not in graph.op_names()
    assert_parity(model, *inputs)
