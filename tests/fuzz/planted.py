"""Faults to plant into Lucid, one at a time: random models must find them.

Each is a few lines that make one path wrong, in eager NumPy or in the exporter, like faults that were once made. The
generator does not know them. `python -m tools.planted_faults` plants each in a separate process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lucid import Tensor, ops
from lucid.core.graph.types import Array, float32
from lucid.export import run_time_sizes
from lucid.export.forms import primitives
from lucid.export.forms.attention import blocks as attention_blocks
from lucid.export.forms.attention import fill as attention_fill
from lucid.export.forms.attention import windows as attention_windows
from lucid.ops import elementwise, indexing, neural, reduction, shaping
from lucid.ops.attention import kernel as attention_kernel
from lucid.ops.attention.call import AttentionOptions
from tests.fuzz.planted_caches import CACHES
from tests.fuzz.planted_int8_weights import INT8_WEIGHTS
from tests.fuzz.planted_loops import LOOPS
from tests.fuzz.planted_quantized_weights import QUANTIZED_WEIGHTS
from tests.fuzz.planting import Fault, Faults, Patch, before

OTHERS = Faults()
fault, kernel, body, exported = OTHERS.fault, OTHERS.kernel, OTHERS.body, OTHERS.exported

# Attention on arrays -----------------------------------------------------------------------------------------------


def tiles(name: str, wrong: Callable[..., Any]) -> None:
    """A fault of the tiled kernel."""
    right = attention_kernel.attention
    OTHERS.append(Fault(name, lambda patch: patch.setattr(attention_kernel, "attention", before(right, wrong))))


def _overflows(
    right: Any, query: Array, key: Array, value: Array, mask: Any, options: AttentionOptions, past: int
) -> Array:
    result: Array = right(query, key, value, mask, options, past)
    with np.errstate(all="ignore"):
        keys = np.repeat(key, query.shape[1] // key.shape[1], 1)
        scores = (query * query.dtype.type(options.scale_of(query.shape[-1]))) @ keys.swapaxes(-1, -2)
        total = np.exp(scores).sum(-1, keepdims=True)
        return np.where(np.isinf(total) & np.isfinite(scores).all(-1, keepdims=True), 0, result).astype(query.dtype)


tiles("the sum of weights overflows, and only the output is looked at", _overflows)
tiles("causality forgets the keys of the cache", lambda right, *x: right(*x[:-1], 0))
tiles(
    "causality counts from the last key",
    lambda right, q, k, *x: right(q, k, *x[:-1], k.shape[2] - q.shape[2]),
)
tiles(
    "the cap of scores covers their mask",
    lambda right, q, k, v, mask, options, past: right(q, k, v, _capped(mask, options.softcap), options, past),
)
tiles(
    "float64 goes through float32",
    lambda right, q, k, v, *x: right(*(t.astype(np.float32) for t in (q, k, v)), *x).astype(q.dtype),
)


def _capped(mask: Array | None, softcap: float) -> Array | None:
    if mask is None or mask.dtype == bool or not softcap:
        return mask
    with np.errstate(all="ignore"):
        return np.where(np.abs(mask) < 1e4, softcap * np.tanh(mask / softcap), mask).astype(mask.dtype)


def _without_nan(mask: Array | None) -> Array | None:
    if mask is None or mask.dtype == bool:
        return mask
    return np.where(np.isnan(mask), -np.inf, mask).astype(mask.dtype)


kernel(
    "NaN in a mask hides its key",
    ops.attention,
    lambda right, q, k, v, mask, keys, *x, **a: right(q, k, v, _without_nan(mask), _without_nan(keys), *x, **a),
)
kernel(
    "all texts of a batch share the first one's key mask",
    ops.attention,
    lambda right, q, k, v, mask, keys, *x, **a: right(
        q, k, v, mask, None if keys is None else np.broadcast_to(keys[:1], keys.shape), *x, **a
    ),
)


# Attention in the exporter -----------------------------------------------------------------------------------------


def _cast_masks(tensors: list[Tensor | None], _: dict[str, Any]) -> list[Tensor | None]:
    query, *_rest = tensors
    assert query is not None
    return [
        t.astype(query.dtype) if t is not None and i in (3, 4) and t.dtype.kind == "float" else t
        for i, t in enumerate(tensors)
    ]


def _turned_heads(tensors: list[Tensor | None], attributes: dict[str, Any]) -> list[Tensor | None]:
    query, key = tensors[:2]
    assert query is not None
    assert key is not None
    if attributes["heads"] is None and query.shape[1] != key.shape[1]:
        tensors[1] = ops.take(key, np.arange(int(key.shape[1]))[::-1].copy(), 1)
    return tensors


exported("a mask is cast to the type of the scores before it hides keys", ops.attention, _cast_masks)
exported("query heads read the keys of another group", ops.attention, _turned_heads)
exported(
    "the window is one key wider",
    ops.attention,
    window=lambda node: node.attributes["window"] and node.attributes["window"] + 1,
)
exported("the scale is the usual one", ops.attention, scale=None)


@fault("hidden keys get the fill whatever the scores and values are")
def _(patch: Patch) -> None:
    patch.setattr(attention_blocks, "fill_value", lambda *_: Tensor(attention_fill.FILL, float32))


@fault("a query that sees no key is not zeroed")
def _(patch: Patch) -> None:
    patch.setattr(attention_blocks, "sees_a_key", lambda *_: None)


@fault("a block of a window reads the text from its first key, not from the one before")
def _(patch: Patch) -> None:
    right = attention_windows._band
    patch.setattr(attention_windows, "_band", lambda rows, keys: np.roll(right(rows, keys), 1, axis=1))


# Sums and extremes -------------------------------------------------------------------------------------------------

kernel(
    "half-precision running sums are added in half precision",
    reduction.cumsum,
    lambda right, x, *, axis: np.cumsum(x, axis=axis, dtype=x.dtype) if x.dtype.itemsize == 2 else right(x, axis=axis),
)
kernel(
    "the maximum drops NaN",
    reduction.max_,
    lambda _, x, *, axis, keepdims: np.asarray(np.fmax.reduce(x, axis=axis, keepdims=keepdims), x.dtype),
)
kernel(
    "integers are added as float64",
    reduction.sum_,
    lambda right, x, **a: (
        right(x.astype(np.float64), **a).astype(right(x, **a).dtype) if x.dtype.kind in "iu" else right(x, **a)
    ),
)
kernel(
    "the mean of nothing is 0",
    reduction.mean,
    lambda right, x, **a: right(x, **a) if x.size else np.zeros_like(right(x, **a)),
)
kernel(
    "of equal maxima the last counts",
    reduction.argmax,
    lambda right, x, *, axis, keepdims: x.shape[axis] - 1 - right(np.flip(x, axis), axis=axis, keepdims=keepdims),
)
kernel("the larger of two drops NaN", elementwise.maximum, lambda _, x, y: np.fmax(x, y))


# Elementwise -------------------------------------------------------------------------------------------------------

kernel("% keeps the sign of the number it divides", elementwise.int_mod, lambda _, x, y: np.fmod(x, y))
kernel(
    "where multiplies by its condition",
    elementwise.where,
    lambda right, c, x, y: (
        (c * x + (1 - c) * y).astype(x.dtype) if x.dtype in (np.float32, np.float16) else right(c, x, y)
    ),
)


def _rounding(right: Any, x: Array, *, dtype: Any) -> Array:
    result: Array = right(np.rint(x) if x.dtype.kind == "f" and dtype.kind == "int" else x, dtype=dtype)
    return result


kernel("a cast to integers rounds", elementwise.cast, _rounding)
kernel("softplus overflows", neural.softplus, lambda _, x: np.log(1 + np.exp(x)))
body(
    "log_softmax overflows",
    neural.log_softmax,
    lambda x, *, axis: x - ops.log(ops.sum(ops.exp(x), axis=(axis,), keepdims=True)),
)
exported(
    "gelu is always approximated",
    neural.gelu,
    approximate="tanh",
)


# Normalisation and rotation ----------------------------------------------------------------------------------------


def _sample_variance(right: Any, x: Array, *rest: Any, axes: int, eps: float) -> Array:
    count = int(np.prod(x.shape[-axes:]))
    if count < 2:
        return np.asarray(right(x, *rest, axes=axes, eps=eps))
    wide = x.astype(np.float64)
    axis = tuple(range(-axes, 0))
    ratio = np.sqrt((wide.var(axis, keepdims=True) + eps) / (wide.var(axis, keepdims=True, ddof=1) + eps))
    weight, bias = rest
    result = np.asarray(right(x, weight, None, axes=axes, eps=eps)) * ratio
    return (result if bias is None else result + bias).astype(x.dtype)


kernel("the variance is that of a sample", neural.layer_norm, _sample_variance)
exported("layer_norm forgets its epsilon", neural.layer_norm, eps=0.0)
exported("rms_norm has its default epsilon", neural.rms_norm, eps=1e-6)
exported("rotary positions are never interleaved", ops.rotary_embedding, interleaved=False)
exported("softmax is over the last axis", neural.softmax, axis=-1)


# Shapes ------------------------------------------------------------------------------------------------------------

exported("padding is zero", shaping.pad, value=0.0)
exported("parts are joined the other way round", shaping.concat_op, lambda parts, _: _reversed(parts))


def _reversed(parts: list[Tensor | None]) -> list[Tensor | None]:
    shapes = {t.shape for t in parts if t is not None}
    return parts[::-1] if len(shapes) == 1 else parts


@fault("a slice that runs backwards loses its last element")
def _(patch: Patch) -> None:
    right = primitives._bound
    patch.setattr(primitives, "_bound", lambda *a, **k: 0 if right(*a, **k) == -primitives._FAR else right(*a, **k))


def _repeated(_: Any, x: Array, *, repeats: tuple[int, ...]) -> Array:
    for axis, count in enumerate(repeats):
        x = np.repeat(x, count, axis)
    return x


kernel("tile repeats each element", shaping.tile, _repeated)
kernel(
    "take_along reads the first row of indices for all",
    indexing.take_along_op,
    lambda right, x, i, *, axis: right(x, np.broadcast_to(i[:1], i.shape) if axis else i, axis=axis),
)


@fault("a model reads a size once, and keeps that of its first call")
def _(patch: Patch) -> None:
    patch.setattr(run_time_sizes, "_read", lambda build, reading: build.name_of(np.array([2])))


FAULTS = [*OTHERS, *CACHES, *QUANTIZED_WEIGHTS, *INT8_WEIGHTS, *LOOPS]
