"""The NumPy attention kernel: its results with any tiles and threads, and its inputs, which it does not change."""

from __future__ import annotations

import threading
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import ThreadpoolController, threadpool_limits

from lucid import Tensor, ops
from lucid.core.process import threads
from lucid.core.process.numpy_errstate import without_warnings
from lucid.ops.attention import kernel as attention_kernel
from lucid.ops.attention import tiles as attention_tiles
from lucid.ops.attention.call import AttentionOptions
from tests.combinations import in_pairs, some

PLAIN: dict[str, Any] = {
    "scale": 0.125,
    "is_causal": False,
    "offset": 0,
    "window": None,
    "window_after": None,
    "softcap": 0.0,
    "sinks": None,
}


def attention(query: Any, key: Any, value: Any, mask: Any, *, offset: int, sinks: Any, **options: Any) -> Any:
    """The kernel, called as the op does, with options by name; `offset` is the position of the first query."""
    chosen = AttentionOptions(**options)
    return without_warnings(attention_kernel.attention, query, key, value, mask, chosen, offset, sinks)


def reference(
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    *,
    scale: float,
    is_causal: bool,
    offset: int,
    window: Any,
    window_after: Any,
    softcap: float,
    sinks: Any,
) -> Any:
    """The contract in float64, one line per rule."""
    query, key, value = (x.astype(np.float64) for x in (query, key, value))
    key, value = (np.repeat(x, query.shape[1] // x.shape[1], axis=1) for x in (key, value))
    scores = scale * query @ key.swapaxes(-1, -2)
    if softcap > 0:
        scores = softcap * np.tanh(scores / softcap)
    position, keys = np.arange(scores.shape[-2])[:, None] + offset, np.arange(scores.shape[-1])
    seen = np.ones(scores.shape, bool)
    if is_causal:
        seen &= keys <= position
    if window is not None:
        seen &= keys > position - window
    if window_after is not None:
        seen &= keys <= position + window_after
    if mask is not None and mask.dtype == bool:
        seen &= mask
    elif mask is not None:
        seen &= mask > np.finfo(mask.dtype).min
        scores = scores + np.where(mask > np.finfo(mask.dtype).min, mask, 0)
    scores = np.where(seen, scores, -np.inf)
    sink = np.full((1, 1, 1), -np.inf) if sinks is None else sinks.astype(np.float64)[:, None, None]
    largest = np.maximum(np.max(scores, axis=-1, keepdims=True, initial=-np.inf), sink)
    weights = np.exp(scores - np.where(largest == -np.inf, 0, largest))
    total = weights.sum(axis=-1, keepdims=True) + np.exp(sink - np.where(largest == -np.inf, 0, largest))
    return weights / np.where(total == 0, 1, total) @ value  # in this order no sum of values overflows


def inputs(
    n: int, heads: int, kv_heads: int, queries: int, keys: int, d: int, d_v: int, dtype: Any = np.float32
) -> Any:
    """Heads as a model has them: cut from (N, length, H * width), then transposed in place."""
    rng = np.random.default_rng(7)
    sizes = ((heads, queries, d), (kv_heads, keys, d), (kv_heads, keys, d_v))
    return [rng.standard_normal((n, length, h, w)).astype(dtype).transpose(0, 2, 1, 3) for h, length, w in sizes]


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles so small that a dozen keys make several jobs and blocks, all in threads."""
    for name, size in (("ROWS", 5), ("KEYS", 6), ("EDGE", 3), ("TILE", 48), ("SMALL", 0), ("FEW", 0)):
        monkeypatch.setattr(attention_tiles, name, size)


@pytest.fixture(params=["in tiles", "at once"])
def both_ways(request: pytest.FixtureRequest) -> None:
    """Once in small tiles, and once as so few scores are computed."""
    if request.param == "in tiles":
        request.getfixturevalue("small_tiles")


def sinks_of(heads: int, dtype: Any) -> st.SearchStrategy[Any]:
    """None, or one number for each head: any score, or none that counts."""
    numbers = st.lists(st.sampled_from([-np.inf, -1e4, -100, -1, 0, 2, 60, 100, 1e4]), min_size=heads, max_size=heads)
    return st.none() | numbers.map(lambda chosen: np.array(chosen, dtype))


@st.composite
def calls(draw: st.DrawFn, plain: bool = False) -> tuple[list[Any], dict[str, Any]]:
    """Without a mask, a softcap and heads that share keys if `plain`."""
    n, kv_heads, group = (draw(st.integers(1, 3)) for _ in range(3))
    group = 1 if plain else group
    queries, keys = draw(st.integers(1, 24)), draw(st.integers(0, 24))
    d, d_v = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    query, key, value = inputs(n, kv_heads * group, kv_heads, queries, keys, d, d_v, dtype)
    query = query * draw(st.sampled_from([1, 8, 60]))  # small scores, large ones, ones outside the range of exp
    mask = None
    kinds = ["none", "bool", "float", "float with -inf", "float with finfo.min", "bias"]
    kind = draw(st.sampled_from(kinds[:1] if plain else kinds))
    if kind != "none":
        rng = np.random.default_rng(draw(st.integers(0, 99)))
        full = (n, kv_heads * group, queries, keys)
        shape = [size if draw(st.booleans()) else 1 for size in full]
        hidden = rng.random(shape) < draw(st.sampled_from([0.2, 0.8, 1.0]))
        lowest = {"float with -inf": -np.inf, "float with finfo.min": float(np.finfo(dtype).min)}.get(kind, 0.0)
        bias = rng.standard_normal(shape) * (90 if kind == "bias" else 1)
        mask = ~hidden if kind == "bool" else np.where(hidden, lowest, bias).astype(dtype)
        mask = mask[(0,) * draw(st.integers(0, 3))]  # broadcasting needs no leading sizes
    options = {
        "scale": draw(st.sampled_from([0.5, 1.0])),
        "is_causal": draw(st.booleans()),
        "offset": draw(st.integers(0, 9)),
        "window": draw(st.none() | st.integers(1, 12)),
        "window_after": draw(st.none() | st.integers(0, 12)),
        "softcap": 0.0 if plain else draw(st.sampled_from([0.0, 0.0, 2.0, 30.0])),
        "sinks": None if plain else draw(sinks_of(kv_heads * group, dtype)),
    }
    return [query, key, value, mask], options


def held_to_the_contract(call: Any) -> None:
    arrays, options = call
    result = attention(*arrays, **options)
    expected = reference(*arrays, **options)
    assert result.dtype == arrays[0].dtype
    # Scores are sums of products: their rounding grows with them, and becomes an error of the weights.
    steep = max(1.0, float(np.abs(arrays[0]).max(initial=0)) * 3, 0 if arrays[3] is None else 300)
    np.testing.assert_allclose(result, expected, rtol=0, atol=8 * steep * np.finfo(result.dtype).eps)


@pytest.mark.usefixtures("small_tiles")
@settings(max_examples=some(400), deadline=None, derandomize=True)
@given(calls())
def test_the_kernel_meets_the_contract_in_any_tiles(call: Any) -> None:
    held_to_the_contract(call)


@settings(max_examples=some(60), deadline=None, derandomize=True)
@given(calls())
def test_the_kernel_meets_the_contract_in_one_piece(call: Any) -> None:
    held_to_the_contract(call)


@settings(max_examples=some(200), deadline=None, derandomize=True)
@given(calls(plain=True))
def test_the_kernel_meets_the_contract_at_once(call: Any) -> None:
    held_to_the_contract(call)


@settings(max_examples=some(200), deadline=None, derandomize=True)
@given(calls() | calls(plain=True))
def test_a_call_of_the_op_has_the_bits_of_the_kernel(call: Any) -> None:
    arrays, options = call
    named = {name: value for name, value in options.items() if name not in ("offset", "sinks")}
    operands = [*arrays, None, None, None, options["sinks"]]
    result = ops.attention(*(x if x is None else Tensor.from_array(x) for x in operands), **named)
    (expected,) = ops.attention.evaluate(operands, {**ops.attention.defaults, **named})
    np.testing.assert_array_equal(result.numpy(), expected)
    assert result.numpy().strides == expected.strides


MAGNITUDES = [10.0**power for power in range(-30, 5)]


@st.composite
def extremes(draw: st.DrawFn, plain: bool = False) -> tuple[list[Any], dict[str, Any]]:
    """Scores of any magnitude, with any offset of a row and one much larger key; values of any magnitude. Without a
    mask and heads that share keys if `plain`."""
    queries, keys, d = draw(st.integers(1, 12)), draw(st.sampled_from([1, 7, 24, 300])), draw(st.integers(1, 4))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    query, key, value = inputs(1, 2, 2 if plain else 1, queries, keys, d, 2, dtype)
    query = query * dtype(draw(st.sampled_from(MAGNITUDES)))
    factor = draw(st.sampled_from([*MAGNITUDES, "the largest number"]))
    value = value / np.abs(value).max() * (np.finfo(dtype).max if factor == "the largest number" else dtype(factor))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    offsets = draw(st.sampled_from([0.0, -1e4, -300.0, -87.0, -59.0, -30.0, 60.0, 80.0, 85.0, 88.0, 300.0, 700.0, 1e4]))
    bias = np.where(rng.random((queries, 1)) < draw(st.sampled_from([0.3, 1.0])), offsets, 0.0)
    hot = np.arange(keys) == draw(st.integers(0, keys - 1))
    bias = bias + hot * draw(st.sampled_from([0.0, -1e4, -100.0, -60.0, 60.0, 87.0, 100.0, 1e4]))
    hidden = rng.random((queries, keys)) < draw(st.sampled_from([0.0, 0.5]))
    masks = [None, ~hidden, np.where(hidden, -np.inf, bias).astype(dtype), bias.astype(dtype)]
    mask = draw(st.sampled_from(masks[:1] if plain else masks))
    sinks = None if plain else draw(sinks_of(2, dtype))
    return [query, key, value, mask], PLAIN | {"scale": 1.0, "is_causal": draw(st.booleans()), "sinks": sinks}


def held_to_the_size_of_scores_and_values(call: Any) -> None:
    (query, key, value, mask), options = call
    bias = 0.0 if mask is None or mask.dtype == bool else np.abs(np.where(mask == -np.inf, 0, mask)).max()
    steep = max(1.0, float(np.abs(query).max()) * float(np.abs(key).max()) * query.shape[-1] + float(bias))
    largest = float(np.abs(value).max())
    result = attention(query, key, value, mask, **options).astype(np.float64)
    expected = reference(query, key, value, mask, **options)
    tolerance = 8 * steep * float(np.finfo(value.dtype).eps)
    np.testing.assert_allclose(result / largest, expected / largest, rtol=0, atol=tolerance)


@pytest.mark.usefixtures("small_tiles")
@settings(max_examples=some(500), deadline=None, derandomize=True)
@given(extremes())
def test_scores_and_values_of_any_size_in_any_tiles(call: Any) -> None:
    held_to_the_size_of_scores_and_values(call)


@settings(max_examples=some(300), deadline=None, derandomize=True)
@given(extremes())
def test_scores_and_values_of_any_size_in_one_piece(call: Any) -> None:
    held_to_the_size_of_scores_and_values(call)


@settings(max_examples=some(300), deadline=None, derandomize=True)
@given(extremes(plain=True))
def test_scores_and_values_of_any_size_at_once(call: Any) -> None:
    held_to_the_size_of_scores_and_values(call)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [-59, -40, 60, 80, 84, 86, 88, 200, 704, 709])
def test_what_all_keys_of_a_query_share_changes_nothing(offset: float, dtype: Any) -> None:
    """Also if each weight is finite and their sum is not."""
    query, key, value = inputs(1, 2, 2, 600, 600, 8, 8, dtype)
    value = value * dtype(1e-3)  # so that sums of weighted values stay finite where sums of weights do not
    mask = np.full((600, 1), offset, dtype)
    result = attention(query, key, value, np.broadcast_to(mask, (600, 600)), **PLAIN)
    without = attention(query, key, value, None, **PLAIN)
    np.testing.assert_allclose(result, without, rtol=0, atol=8e-3 * abs(offset) * np.finfo(dtype).eps)


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("offset", [-100, -88, -13, 60, 86, 88, 200])
def test_what_a_query_adds_to_all_its_scores_changes_nothing(offset: float) -> None:
    """Also where the weights would be denormal, or each of them finite and their sum not."""
    query, key, value = inputs(1, 2, 2, 30, 30, 8, 8)
    key[..., 0] = 1
    query[..., 0] = 0
    value = value * np.float32(1e-3)
    shifted = query.copy()
    shifted[..., 0] = offset / PLAIN["scale"]
    result, without = attention(shifted, key, value, None, **PLAIN), attention(query, key, value, None, **PLAIN)
    np.testing.assert_allclose(result, without, rtol=0, atol=8e-3 * abs(offset) * np.finfo(np.float32).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("factor", [0.1, 60])
def test_a_mean_of_the_largest_numbers_is_one_of_them(factor: float, dtype: Any) -> None:
    query, key, value = inputs(1, 2, 2, 9, 700, 8, 8, dtype)
    value = np.where(value > -1, dtype(0.99), dtype(-0.99)) * np.finfo(dtype).max
    arrays = query * dtype(factor), key, value, None
    result, expected = attention(*arrays, **PLAIN), reference(*arrays, **PLAIN)
    largest, eps = np.finfo(dtype).max, float(np.finfo(dtype).eps)
    np.testing.assert_allclose(result / largest, expected / largest, rtol=0, atol=300 * max(1, factor) * eps)


def test_small_values_keep_their_digits_under_low_scores() -> None:
    query, key, value = inputs(1, 1, 1, 200, 200, 8, 8)
    arrays = query, key, value * np.float32(1e-30), np.full((200, 200), -50, np.float32)
    result, expected = attention(*arrays, **PLAIN), reference(*arrays, **PLAIN)
    np.testing.assert_allclose(result * 1e30, expected * 1e30, rtol=0, atol=5e-5)


@pytest.mark.parametrize("score", [np.inf, np.nan])
def test_infinite_scores_give_nan_to_their_query_alone(score: float) -> None:
    query, key, value = inputs(1, 1, 1, 300, 300, 8, 8)
    mask = np.zeros((300, 300), np.float32)
    mask[7, 250] = score
    result = attention(query, key, value, mask, **PLAIN)
    assert np.isnan(result[0, 0, 7]).all()
    assert np.isfinite(np.delete(result, 7, axis=2)).all()


@in_pairs(
    lengths=[(700, 700), (1100, 1100), (3, 1200), (600, 1300)],
    windows=[(None, None), (150, None), (150, 130)],
    is_causal=[False, True],
)
def test_real_tiles_are_within_two_millionths(
    lengths: tuple[int, int], windows: tuple[int | None, int | None], is_causal: bool
) -> None:
    (queries, keys), (window, after) = lengths, windows
    arrays = (*inputs(1, 4, 2, queries, keys, 64, 64), None)
    options = PLAIN | {"is_causal": is_causal, "window": window, "window_after": after, "offset": keys - queries}
    np.testing.assert_allclose(attention(*arrays, **options), reference(*arrays, **options), rtol=0, atol=2e-6)


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize(
    "sizes", [(0, 2, 1, 3, 4, 2, 2), (2, 2, 1, 0, 4, 2, 2), (2, 2, 1, 3, 0, 2, 2), (2, 2, 1, 3, 4, 2, 0)]
)
def test_empty_sizes(sizes: Any) -> None:
    query, key, value = inputs(*sizes)
    result = attention(query, key, value, None, **PLAIN | {"is_causal": True})
    assert result.shape == (*query.shape[:3], value.shape[-1])
    assert not result.any()


def test_heads_of_no_width_average_the_values() -> None:
    query, key, value = inputs(1, 1, 1, 2, 4, 0, 3)
    np.testing.assert_allclose(attention(query, key, value, None, **PLAIN)[0, 0, 0], value[0, 0].mean(0), rtol=1e-6)


def test_the_heads_of_a_position_lie_side_by_side() -> None:
    result = attention(*inputs(2, 4, 2, 6, 8, 3, 5), None, **PLAIN)
    packed = result.transpose(0, 2, 1, 3).reshape(2, 6, 20)
    assert np.shares_memory(packed, result)


@pytest.mark.usefixtures("both_ways")
def test_any_memory_layout_will_do() -> None:
    query, key, value = inputs(2, 2, 2, 9, 9, 4, 4)
    expected = attention(query, key, value, None, **PLAIN)
    wide = [np.repeat(x, 2, axis=-1)[..., ::2] for x in (query, key, value)]
    turned = [np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2) for x in (query, key, value)]
    shared = [np.broadcast_to(x[:, :1], x.shape) for x in (query, key, value)]
    np.testing.assert_array_equal(attention(*wide, None, **PLAIN), expected)
    np.testing.assert_allclose(attention(*turned, None, **PLAIN), expected, atol=1e-6)
    np.testing.assert_allclose(attention(*shared, None, **PLAIN)[:, 1], expected[:, 0], atol=1e-6)


def test_inputs_are_left_alone() -> None:
    arrays = [*inputs(1, 2, 2, 300, 300, 8, 8), np.random.default_rng(0).random((300, 300)) < 0.5]
    copies = [x.copy() for x in arrays]
    attention(*arrays, **PLAIN | {"is_causal": True})
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("hide", [False, -np.inf, np.finfo(np.float32).min])
def test_a_query_that_sees_nothing_gives_zero_even_beside_infinite_values(hide: Any) -> None:
    query, key, value = inputs(1, 1, 1, 9, 9, 4, 4)
    value[0, 0, 8] = np.inf
    mask = np.ones((9, 9), bool) if hide is False else np.zeros((9, 9), np.float32)
    mask[4] = hide
    result = attention(query, key, value, mask, **PLAIN)
    assert not result[0, 0, 4].any()
    assert np.isinf(result[0, 0, [0, 8]]).all()


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_a_query_whose_scores_are_all_minus_infinity_sees_keys_and_gives_nan(is_causal: bool, masked: bool) -> None:
    query, key, value = inputs(1, 1, 1, 9, 9, 4, 4)
    key[..., 0] = 1.0
    query[0, 0, 4, 0] = -np.inf
    mask = np.ones((9, 9), bool) if masked else None
    if mask is not None:
        mask[6] = False
    result = attention(query, key, value, mask, **PLAIN | {"is_causal": is_causal})
    assert np.isnan(result[0, 0, 4]).all()
    assert np.isfinite(np.delete(result[0, 0], 4, 0)).all()
    assert result[0, 0, 6].any() != masked


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("which", [0, 1, 2])
def test_nan_reaches_the_queries_that_see_it(which: int) -> None:
    arrays = inputs(1, 1, 1, 12, 12, 4, 4)
    arrays[which][0, 0, 10, 1] = np.nan
    result = attention(*arrays, None, **PLAIN | {"is_causal": True})
    assert np.isnan(result[0, 0, 10]).any()
    assert np.isnan(result[0, 0, 11]).any() == (which != 0)
    assert np.isfinite(result[0, 0, :8]).all()


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("factor", [1, 10, 1000])
def test_a_hidden_key_weighs_exactly_nothing(factor: int) -> None:
    query, key, value = inputs(1, 2, 2, 16, 16, 4, 4)
    mask = np.random.default_rng(1).random((16, 16)) < 0.6
    mask[:, 3] = False
    value[:, :, 3] = 1e30  # the smallest weight would have an effect
    assert np.abs(attention(query * factor, key, value, mask, **PLAIN)).max() < 10


@pytest.mark.parametrize("factor", [3, 10, 1000])
def test_large_scores_cost_no_more_than_their_own_rounding(factor: int) -> None:
    rng = np.random.default_rng(2)
    query, key = (rng.integers(-3, 4, (1, 2, 700, 8)).astype(np.float32) for _ in range(2))  # with many equal scores
    arrays = (query * factor, key, rng.standard_normal((1, 2, 700, 8)).astype(np.float32), None)
    options = PLAIN | {"scale": 1.0}
    np.testing.assert_allclose(attention(*arrays, **options), reference(*arrays, **options), rtol=0, atol=8e-5)


def test_values_near_the_end_of_the_range_do_not_overflow() -> None:
    query, key, value = inputs(1, 1, 1, 20, 20, 4, 4)
    query, key = np.abs(query) * 3, np.abs(key) * 3  # weights of e^50 and more if no maximum is subtracted
    arrays = (query, key, value * 1e37, None)
    options = PLAIN | {"scale": 2.0}
    result, expected = attention(*arrays, **options), reference(*arrays, **options)
    np.testing.assert_allclose(result / 1e37, expected / 1e37, atol=2e-4)


def test_no_mask_is_made_to_learn_the_type_of_the_result() -> None:
    length = 4096 + 17  # used in no other test, because types are cached
    q, k, v = (Tensor.randn(1, 1, length, 4) for _ in range(3))
    tracemalloc.start()
    ops.attention(q, k, v, is_causal=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < length * length / 2  # bytes; a boolean for each score would be twice this


def test_scores_are_never_all_in_memory() -> None:
    arrays = (*inputs(1, 2, 2, 4096, 4096, 16, 16), None)
    attention(*arrays, **PLAIN)
    tracemalloc.start()
    result = attention(*arrays, **PLAIN | {"is_causal": True})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak - result.nbytes < 4 << 20  # 2 * 4096 * 4096 scores are 128 MiB


@pytest.mark.parametrize("size", [10, 400])
def test_many_threads_at_once(size: int) -> None:
    arrays = (*inputs(1, 4, 4, size, size, 16, 16), None)
    expected = attention(*arrays, **PLAIN | {"is_causal": True})
    results: list[Any] = []

    def call() -> None:
        results.extend(attention(*arrays, **PLAIN | {"is_causal": True}) for _ in range(5))

    callers = [threading.Thread(target=call) for _ in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(results) == 30
    for result in results:
        np.testing.assert_allclose(result, expected, atol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_any_number_of_threads_gives_the_same(n: int) -> None:
    arrays = (*inputs(2, 4, 2, 300, 300, 16, 16), None)
    expected, before = reference(*arrays, **PLAIN), threads.get_num_threads()
    threads.set_num_threads(n)
    try:
        assert threads.get_num_threads() == n
        np.testing.assert_allclose(attention(*arrays, **PLAIN), expected, atol=2e-6)
    finally:
        threads.set_num_threads(before)


@pytest.mark.parametrize("n", [0, -2])
def test_a_thread_count_below_one_is_refused(n: int) -> None:
    with pytest.raises(ValueError, match=f"set_num_threads: n is {n}, expected 1 or more"):
        threads.set_num_threads(n)


@pytest.mark.parametrize("n", [2.0, "2", None, True])
def test_a_thread_count_is_whole(n: Any) -> None:
    with pytest.raises(TypeError, match="set_num_threads: n is .*, expected a whole number"):
        threads.set_num_threads(n)


def blas_threads() -> list[int]:
    return [library.num_threads for library in ThreadpoolController().select(user_api="blas").lib_controllers]


def test_blas_has_one_thread_while_jobs_run_and_its_own_number_after() -> None:
    with threadpool_limits(2, user_api="blas"):
        before, during = blas_threads(), []
        threads.share(range(3), lambda jobs: during.extend(max(blas_threads(), default=1) for _ in jobs))
        assert during == [1, 1, 1]
        assert blas_threads() == before


def test_blas_has_its_own_number_after_an_error_and_nested_runs() -> None:
    def work(jobs: Any) -> None:
        for job in jobs:
            threads.share(range(2), list)
            if job == 1:
                raise ArithmeticError("job 1")

    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        with pytest.raises(ArithmeticError, match="job 1"):
            threads.share(range(8), work)
        assert blas_threads() == before


def test_each_job_is_done_once_and_none_begins_after_an_error() -> None:
    done: list[int] = []

    def work(jobs: Any) -> None:
        for job in jobs:
            if job == 100:
                raise ArithmeticError("job 100")
            done.append(job)

    threads.share(range(100), work)
    assert sorted(done) == list(range(100))
    done.clear()
    with pytest.raises(ArithmeticError, match="job 100"):
        threads.share([100, *range(100)] if threads.get_num_threads() == 1 else [100] * 4 + [1] * 100, work)
    assert len(done) < 100
