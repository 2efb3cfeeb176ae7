"""Attention in NumPy, tile by tile: a tile's scores fit into the cache, and the L x S scores are never in memory.

Worker threads (`lucid.core.process.threads`) take the jobs that `tiles.py` plans. A job walks in blocks over the keys
that its rows can see, and keeps for each row the sum of the weights and the weighted sum of the values (Rabe & Staats
2021, "Self-attention does not need O(n^2) memory"; the running maximum is that of Milakov & Gimelshein 2018, "Online
normalizer calculation for softmax"). The division comes last.

Few scores without a mask are computed at once (`calm_scores.py`). Besides the tiles, two things make the others fast.
While the scores are *calm*, none below -60, no maximum is subtracted, which saves two passes over the tile; if a score
is not calm, or the sum of a query's weights overflows or underflows, the job is done again with the maximum. And no
weight is denormal, because arithmetic on denormals is tens of times slower: below e^-43 of the largest, a weight is
exactly 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from lucid.core.graph.types import Array
from lucid.core.process.threads import buffer, get_num_threads, share
from lucid.ops.attention import tiles as attention_tiles
from lucid.ops.attention.call import AttentionOptions
from lucid.ops.attention.calm_scores import CALM, LEAST, at_once, for_blas, ones
from lucid.ops.attention.masks import excluded_in_array
from lucid.ops.attention.tiles import WHOLE, Job, Visibility


def attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None,
    options: AttentionOptions,
    past: int = 0,
    sinks: Array | None = None,
) -> Array:
    """Attention of `query` (N, H, L, d) over `key` (N, H_kv, S, d) and `value` (N, H_kv, S, d_v), as (N, H, L, d_v).

    Arrays are float32 or float64, of one dtype, in any memory layout; in the result the heads of a position are
    contiguous, so that `.transpose(0, 2, 1, 3).reshape(N, L, -1)` is a view. The keys include those of the `past`, so
    query i is at position i + past. `mask` broadcasts to (N, H, L, S): boolean (True = attend) or floating, added
    (an entry not above its dtype's lowest number excludes its key). Of the options, it uses scale, is_causal, the
    windows and softcap. `sinks` (H,) are scores of one more key with a value of zero. A query that sees no key gives 0.
    As every kernel of an op, it is called where NumPy warns of nothing (`without_warnings`).
    """
    n, heads, length, width = query.shape
    _, kv_heads, keys, _ = key.shape
    key, value = for_blas(key), for_blas(value)
    is_plain = mask is None and sinks is None and heads == kv_heads and options.softcap == 0
    if is_plain and attention_tiles.are_few(n * heads, length, keys):
        result = at_once(query, key, value, options, past)
        if result is not None:
            return result
    result = np.empty((n, length, heads, value.shape[-1]), query.dtype)
    output = result.transpose(0, 2, 1, 3)
    if result.size == 0:
        return output
    group = heads // kv_heads
    if mask is not None:
        mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
        split = (1, 1) if mask.shape[1] == 1 else (kv_heads, group)
        mask = mask.reshape(mask.shape[0], *split, *mask.shape[2:])
    tiled = _Attention(
        query.reshape(n, kv_heads, group, length, width),
        key.swapaxes(-1, -2)[:, :, None],
        value[:, :, None],
        mask,
        result.reshape(n, length, kv_heads, group, value.shape[-1]).transpose(0, 2, 3, 1, 4),
        options.scale_of(width),
        options.softcap,
        Visibility(keys, past, options.ahead, options.window),
        None if sinks is None else sinks.astype(query.dtype).reshape(1, kv_heads, group, 1, 1),
    )
    if attention_tiles.is_small((n, kv_heads, group), length, keys):
        tiled.do(Job(WHOLE, 0, length))
    else:
        share(attention_tiles.jobs((n, kv_heads, group), length, keys, get_num_threads()), tiled.work)
    return output


@dataclass(slots=True)
class _Attention:
    """One call. Query heads are split into (H_kv, group), so that keys and values broadcast over a group."""

    query: Array  # (N, H_kv, group, L, d)
    key: Array  # (N, H_kv, 1, d, S)
    value: Array  # (N, H_kv, 1, S, d_v)
    mask: Array | None  # broadcasts to (N, H_kv, group, L, S)
    output: Array  # (N, H_kv, group, L, d_v)
    scale: float
    softcap: float
    visibility: Visibility
    sinks: Array | None  # (1, H_kv, group, 1, 1)
    calm: bool = True  # as far as the scores are known

    def work(self, jobs: Iterable[Job]) -> None:
        """Do all jobs."""
        for job in jobs:
            self.do(job)

    def do(self, job: Job) -> None:
        """Do one job."""
        if self.calm and self._run(job, calm=True):
            return
        self.calm = False
        if not self._run(job, calm=False) and self._can_overflow(job):
            self._run(job, calm=False, share=0.5 ** self.value.shape[-2].bit_length())

    def _run(self, job: Job, calm: bool, share: float = 1.0) -> bool:
        """Compute one job; False if its scores are not calm although `calm` is set, or a sum overflows.

        The values are multiplied by `share`, a power of two, before they are summed.
        """
        query, output, key, value = self.query, self.output, self.key, self.value
        if job.heads is not WHOLE:
            rows = (*job.heads, slice(job.start, job.stop))
            query, output, key, value = query[rows], output[rows], key[job.heads[:2]], value[job.heads[:2]]
        dtype = query.dtype
        if share < 1:
            value = value * dtype.type(share)
        heads, length = query.shape[:3], query.shape[3]
        scaled = np.multiply(query, dtype.type(self.scale), out=buffer("query", query.shape, dtype))
        total = largest = None  # of each row's weights, and of its scores, so far: None while nothing is in the output
        for start, stop, top, bottom in self.visibility.blocks(job, math.prod(heads)):
            visible, bias = (None, None) if self.mask is None else self._tile_mask(job, start, stop, top, bottom)
            if visible is not None and not visible.any() and self._finite(job, start, stop):
                continue
            every = bottom - top == length  # of the job's rows
            keys, values = key, value
            if stop - start < self.visibility.keys:
                keys, values = key[..., start:stop], value[..., start:stop, :]
            scores = self._scores(scaled if every else scaled[..., top:bottom, :], keys, bias)
            limits = self.visibility.limits(scores, job.start + top, start, stop)
            if not calm:
                if largest is None:
                    largest = np.full((*heads, length, 1), -np.inf, dtype)
                shrink = _to_weights(scores, visible, limits, largest[..., top:bottom, :])
                if total is not None:
                    total[..., top:bottom, :] *= shrink
                    output[..., top:bottom, :] *= shrink
            elif not _to_calm_weights(scores, visible, limits):
                return False
            sums = np.matmul(scores, ones(stop - start, dtype))  # faster than np.sum
            if total is None and every:
                total = sums
                np.matmul(scores, values, out=output)
                continue
            if total is None:
                total = np.zeros((*heads, length, 1), dtype)
                output.fill(0)
            total[..., top:bottom, :] += sums
            product = buffer("product", (*scores.shape[:-1], value.shape[-1]), dtype)
            output[..., top:bottom, :] += np.matmul(scores, values, out=product)
        if total is None:
            output.fill(0)
            return True
        if self.sinks is not None:
            sinks = self.sinks if job.heads is WHOLE else self.sinks[(slice(None), *job.heads[1:3])]
            if calm:
                total += np.exp(sinks)
            else:
                assert largest is not None
                new = np.maximum(largest, sinks)
                new[new == -np.inf] = 0
                shrink = np.exp(largest - new)
                total *= shrink
                total += np.exp(sinks - new)
                output *= shrink
        return self._divide(job, calm, output, total, share)

    def _scores(self, query: Array, key: Array, bias: Array | None) -> Array:
        """The scores of a tile, in a buffer."""
        scores = np.matmul(query, key, out=buffer("scores", (*query.shape[:-1], key.shape[-1]), query.dtype))
        if self.softcap > 0:
            scores /= self.softcap
            np.tanh(scores, out=scores)
            scores *= self.softcap
        if bias is not None:
            scores += bias.astype(query.dtype)
        return scores

    def _divide(self, job: Job, calm: bool, output: Array, total: Array, share: float) -> bool:
        """Divide the sums of a job by the totals of the weights; False as for `_run`."""
        finite = math.isfinite(np.add.reduce(output, None))  # infinity and NaN survive in a sum
        if calm and finite and np.minimum.reduce(total, None) >= LEAST and np.maximum.reduce(total, None) < np.inf:
            output /= total
            return True
        seen = total != 0
        if calm and not (finite and (total < np.inf).all()):
            return False
        if calm and (least := total.min(initial=LEAST, where=seen)) < LEAST and self._underflows(job, least):
            return False
        output /= total * output.dtype.type(share)
        if not seen.all():  # a query sees no key, or all its scores are -inf and 0 / 0 is its result
            np.copyto(output, 0, where=~seen if calm else ~seen & ~self._rows_with_keys(job))
        return finite

    def _rows_with_keys(self, job: Job) -> Array:
        """Which of a job's rows see a key."""
        heads = self.query[job.heads].shape[:3]
        any_seen = np.zeros((*heads, job.stop - job.start, 1), bool)
        for start, stop, top, bottom in self.visibility.blocks(job, math.prod(heads)):
            visible, _ = self._tile_mask(job, start, stop, top, bottom)
            tile = np.ones((*heads, bottom - top, stop - start), self.query.dtype)
            if visible is not None:
                tile *= visible
            for part, seen in self.visibility.limits(tile, job.start + top, start, stop):
                part *= seen
            any_seen[..., top:bottom, :] |= tile.any(-1, keepdims=True)
        return any_seen

    def _underflows(self, job: Job, least: float) -> bool:
        """Whether values are so small that, weighted by weights of sum `least`, they become denormal."""
        size = np.abs(self.value[job.heads[:2]])
        smallest = size.min(initial=np.inf, where=size > 0)
        return bool(smallest * least < size.shape[-2] * np.finfo(size.dtype).tiny)

    def _can_overflow(self, job: Job) -> bool:
        """Whether the values are so large that sums of them, weighted by up to 1 each, can overflow."""
        value = self.value[job.heads[:2]]
        largest = np.abs(value).max(initial=0, where=np.isfinite(value))
        return bool(largest > np.finfo(value.dtype).max / value.shape[-2])

    def _tile_mask(self, job: Job, start: int, stop: int, top: int, bottom: int) -> tuple[Array | None, Array | None]:
        """The mask over a tile: where keys are visible (None: everywhere), and what is added (None: nothing)."""
        if self.mask is None:
            return None, None
        cut = (*job.heads, slice(job.start + top, job.start + bottom), slice(start, stop))
        mask = self.mask[tuple(s if n > 1 else slice(None) for s, n in zip(cut, self.mask.shape, strict=True))]
        if mask.dtype == bool:
            return None if mask.all() else mask, None
        hidden = excluded_in_array(mask)
        if hidden is None:
            return None, mask if mask.any() else None
        return ~hidden, np.where(hidden, 0, mask)

    def _finite(self, job: Job, start: int, stop: int) -> bool:
        """Whether keys and values in [start, stop) are finite, so that masked ones do not affect the output."""
        key, value = self.key[job.heads[:2]][..., start:stop], self.value[job.heads[:2]][..., start:stop, :]
        return bool(np.isfinite(key).all() and np.isfinite(value).all())


def _to_calm_weights(scores: Array, visible: Array | None, limits: Iterable[tuple[Array, Array]]) -> bool:
    """Turn scores into weights in place, without their maximum; False if one is too low for that."""
    if not np.minimum.reduce(scores, None) >= CALM:
        return False
    np.exp(scores, out=scores)
    if visible is not None:
        scores *= visible
    for part, seen in limits:
        part *= seen
    return True


def _to_weights(scores: Array, visible: Array | None, limits: Iterable[tuple[Array, Array]], largest: Array) -> Array:
    """Raise `largest` to the scores' maximum and turn scores into weights relative to it, both in place.

    Returns the factor that brings earlier weights to the new maximum.
    """
    if visible is not None:
        scores += np.where(visible, scores.dtype.type(0), scores.dtype.type(-np.inf))  # NaN stays NaN
    for part, seen in limits:
        np.copyto(part, -np.inf, where=seen == 0)
    new = np.maximum(largest, scores.max(axis=-1, keepdims=True))
    subtracted = np.where(new == -np.inf, 0, new)
    scores -= subtracted
    low = scores.dtype.type(math.log(np.finfo(scores.dtype).tiny) / 2)  # halved: weight * value is not denormal either
    any_low = not scores.min() >= low
    if any_low:
        np.maximum(scores, low, out=scores)
    np.exp(scores, out=scores)
    if any_low:
        scores -= np.exp(low)
    shrink = np.exp(largest - subtracted)
    largest[...] = new
    return np.asarray(shrink)
