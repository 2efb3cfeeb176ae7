"""Faults of caches to plant: in the ops, in their forms, and in what a layer does with its cache."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from lucid import Tensor, nn, ops
from lucid.export.builder import Builder
from lucid.nn import functional
from lucid.ops.attention.buffers import BufferedCall
from tests.fuzz.planting import Faults, Patch

CACHES = Faults()


@CACHES.fault("over a buffer a query sees one slot after its own")
def _(patch: Patch) -> None:
    right = BufferedCall.visible
    patch.setattr(BufferedCall, "visible", lambda call: right(replace(call, starts=call.starts + 1)))


@CACHES.fault("over a buffer a window is one slot wider")
def _(patch: Patch) -> None:
    right = BufferedCall.visible

    def wider(call: BufferedCall) -> Tensor:
        window = call.options.window
        return right(replace(call, options=replace(call.options, window=window and window + 1)))

    patch.setattr(BufferedCall, "visible", wider)


@CACHES.fault("all slots of a buffer count as filled")
def _(patch: Patch) -> None:
    right = BufferedCall.visible

    def full(call: BufferedCall) -> Tensor:
        return right(call if call.options.is_causal else replace(call, starts=call.starts * 0 + call.capacity))

    patch.setattr(BufferedCall, "visible", full)


@CACHES.fault("over a buffer every row begins where the first does")
def _(patch: Patch) -> None:
    right = BufferedCall.visible
    patch.setattr(BufferedCall, "visible", lambda call: right(replace(call, starts=call.starts * 0 + call.starts[:1])))


@CACHES.fault("the next step begins one slot too early")
def _(patch: Patch) -> None:
    right = functional.cached_attention

    def wrong(query: Tensor, *arguments: Any, **options: Any) -> Any:
        output, cache = right(query, *arguments, **options)
        early = isinstance(cache, nn.KeyValueBuffer) and cache.filled is not None
        return output, cache._replace(filled=ops.maximum(cache.filled - 1, 0)) if early else cache

    patch.setattr(functional, "cached_attention", wrong)


def _last_first(tensors: list[Tensor | None], attributes: dict[str, Any]) -> list[Tensor | None]:
    query, key, value, mask, key_mask, past_key, past_value, sinks = tensors
    if past_key is None or attributes["heads"] is not None:
        return tensors
    return [query, past_key, past_value, mask, key_mask, key, value, sinks]


def _unread(tensors: list[Tensor | None], attributes: dict[str, Any]) -> list[Tensor | None]:
    query, key, value, mask, key_mask, past_key, past_value, sinks = tensors
    if query is None or key is None or past_key is None or mask is not None or attributes["heads"] is not None:
        return tensors
    past = past_key.shape[2]
    new = ops.arange(past + key.shape[2]) >= past
    return [query, key, value, new.unsqueeze(0), key_mask, past_key, past_value, sinks]


CACHES.exported("the cache comes after the new keys", ops.attention, _last_first)
CACHES.exported("the cache is hidden", ops.attention, _unread)
CACHES.exported(
    "a buffer is written one slot too early",
    ops.write_at,
    lambda tensors, _: [*tensors[:2], None if tensors[2] is None else ops.maximum(tensors[2] - 1, 0)],
)
CACHES.exported(
    "every row of a buffer is written where the first begins",
    ops.write_at,
    lambda tensors, _: [*tensors[:2], None if tensors[2] is None else tensors[2] * 0 + tensors[2][:1]],
)


def _one_more_in_the_window(build: Builder, inputs: list[Any], attributes: dict[str, Any]) -> None:
    if attributes["local_window_size"] is not None:
        attributes["local_window_size"] += 1


def _one_key_less(build: Builder, inputs: list[Any], attributes: dict[str, Any]) -> None:
    one, zero = np.ones(1, np.int32), np.zeros(1, np.int32)
    inputs[5] = build.op("Max", build.op("Sub", inputs[5], one), zero)


def _all_keys(build: Builder, inputs: list[Any], attributes: dict[str, Any]) -> None:
    capacity = build.op("Cast", build.op("Shape", inputs[3], start=2, end=3), to=onnx.TensorProto.INT32)
    last = build.op("Sub", capacity, np.ones(1, np.int32))
    inputs[5] = build.op("Max", inputs[5], last)


CACHES.written("GroupQueryAttention is told that a buffer is full", "GroupQueryAttention", _all_keys)
CACHES.written("GroupQueryAttention's window is one key wider", "GroupQueryAttention", _one_more_in_the_window)
CACHES.written("GroupQueryAttention is told of one key too few", "GroupQueryAttention", _one_key_less)
