"""A decoder's step over growing caches as one over buffers: its attention becomes `ops.buffered_attention`.

The step is a program of `from_transformers`, whose attention reads earlier and new keys joined, under a mask. Here the
mask is evaluated: it must show each query all keys up to its own, or the keys of a window.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lucid import ops
from lucid.core.graph.types import Array, int64
from lucid.importing.program import Call, Program, Slot
from lucid.nn.cache import CacheShape
from lucid.ops.tensor.tensor import Tensor

_ATTENTION = "aten.scaled_dot_product_attention.default"
_JOINED = "aten.cat.default"
_VIEWS = ("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default")
_LONG = 1 << 17  # keys, more than the windows of models
_STEPS = ((0, 1), (0, 4), (3, 1), (7, 5))  # earlier and new positions for which a mask is evaluated


class NoBuffersError(ValueError):
    """Why a step cannot read its cache from buffers."""


class _Layer(NamedTuple):
    """The slots of a layer's cache, of the new keys and values, and of both joined."""

    past: tuple[Slot, Slot]
    new: tuple[Slot, Slot]
    joined: tuple[Slot, Slot]


def with_buffers(program: Program, shape: CacheShape) -> Program:
    """A step with the inputs `input_ids`, `position_ids` and `past_key_values`, which are buffers of any capacity.

    The first of a row's positions is the number of its filled slots.

    Args:
        program: a step with these inputs and an `attention_mask`, of caches that grow, and its `logits` and `present`.
        shape: of the cache.

    Raises:
        NoBuffersError: for attention that is written out, masks by other rules, and whatever else depends on the
            attention mask or on the number of earlier positions.
    """
    by_slot = {call.result: call for call in program.calls}
    layers = list(_layers(program, by_slot))
    windows: dict[Any, int | None] = {}
    replaced: dict[int, list[Call]] = {}
    slots = program.slots
    for call in program.calls:
        if call.operator != _ATTENTION:
            continue
        layer = _layer_of(call, layers, by_slot)
        mask = call.arguments[3] if len(call.arguments) > 3 else call.options.get("attn_mask")
        if mask not in windows:
            windows[mask] = _window(program, mask, shape)
        arguments = (call.arguments[0], *layer.new, *layer.past, program.inputs["position_ids"])
        options = {"scale": call.options.get("scale"), "window": windows[mask]}
        whole = call._replace(result=slots, function=_attention, arguments=arguments, options=options)
        results = (call.result, *(slot.number for slot in layer.joined))
        parts = [
            call._replace(result=result, function=operator.getitem, arguments=(Slot(slots), place), options={})
            for place, result in enumerate(results)
        ]
        replaced[call.result] = [whole, *parts]
        slots += 1
        layers.remove(layer)
    if layers:
        raise NoBuffersError("writes its attention out, or has layers without attention")
    buffers = {slot.number for calls in replaced.values() for slot in calls[0].arguments[3:5]}
    joined = {part.result for calls in replaced.values() for part in calls[2:]}
    calls = [each for call in program.calls if call.result not in joined for each in replaced.get(call.result, [call])]
    calls = _needed(calls, program.result)
    inputs = {name: places for name, places in program.inputs.items() if name != "attention_mask"}
    foreign = buffers | joined | {program.inputs["attention_mask"].number}
    for call in calls:
        of_batch = (
            call.operator == "aten.sym_size.int" and call.arguments[1] == 0 and call.arguments[0].number in buffers
        )
        used = set() if of_batch or call.function is _attention else set(_slots(call.arguments, call.options))
        if foreign & used:
            raise NoBuffersError(f"uses its mask or the number of earlier positions in {call.operator} ({call.line})")
    own = [each for each in program.bounds if foreign.isdisjoint(slot.number for slot, _ in each[0])]
    steps = [each for each in program.steps if each.slot.number not in foreign]
    return Program(inputs, program.weights, calls, program.result, slots, own, steps=steps)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_buffer: Tensor,
    value_buffer: Tensor,
    positions: Tensor,
    scale: float | None,
    window: int | None,
) -> Any:
    starts = positions[:, 0]
    return ops.buffered_attention(query, key, value, key_buffer, value_buffer, starts, scale=scale, window=window)


# What a step does with its cache --------------------------------------------------------------------------------------


def _layers(program: Program, by_slot: Mapping[int, Call]) -> Iterator[_Layer]:
    """The layers whose new caches are the earlier keys and values with the new ones behind them."""
    pairs = zip(program.inputs["past_key_values"], program.result["present"], strict=True)
    for past, present in pairs:
        new: list[Slot] = []
        for before, after in zip(past, present, strict=True):
            call = by_slot.get(after.number)
            parts: Sequence[Slot] = call.arguments[0] if call is not None and call.operator == _JOINED else []
            if call is None or len(parts) != 2 or parts[0] != before or call.arguments[1:] not in ((-2,), (2,)):
                raise NoBuffersError("does more with its cache than to put new keys and values behind the others")
            new.append(parts[1])
        yield _Layer((past[0], past[1]), (new[0], new[1]), (present[0], present[1]))


def _layer_of(call: Call, layers: Sequence[_Layer], by_slot: Mapping[int, Call]) -> _Layer:
    """The layer whose keys and values an attention reads."""
    sources = tuple(_before_repeats(slot, by_slot) for slot in call.arguments[1:3])
    for layer in layers:
        if sources == layer.joined:
            return layer
    raise NoBuffersError(f"attends to other keys than those of its cache ({call.line})")


def _before_repeats(slot: Slot, by_slot: Mapping[int, Call]) -> Slot:
    """Heads before each of them was repeated: reshape(expand(unsqueeze(x, 2)))."""
    source, call = slot, None
    for operators in (_VIEWS, ("aten.expand.default",), ("aten.unsqueeze.default", "with_axes")):
        call = by_slot.get(source.number)
        if call is None or call.operator not in operators:
            return slot
        source = call.arguments[0]
    return source if call is not None and call.arguments[1] in (2, (2,), [2]) else slot


# Masks ----------------------------------------------------------------------------------------------------------------


def _window(program: Program, mask: Any, shape: CacheShape) -> int | None:
    """The window of a mask: None if each query sees all keys up to its own."""
    if not isinstance(mask, Slot):
        raise NoBuffersError("attends without a mask")
    part = Program(program.inputs, program.weights, _needed(program.calls, mask), mask, program.slots)
    visible = int(_seen(part, shape, _LONG - 1, 1).sum())
    window = None if visible == _LONG else visible
    steps = [*_STEPS, *((window + more, 3) for more in (-1, 2) if window)]
    for before, new in steps:
        distance = np.arange(before, before + new)[:, None] - np.arange(before + new)
        expected = (distance >= 0) & (distance < (window or _LONG))
        if not np.array_equal(np.broadcast_to(_seen(part, shape, before, new), expected.shape), expected):
            raise NoBuffersError("has a mask that is neither causal nor a window")
    return window


def _seen(part: Program, shape: CacheShape, before: int, new: int) -> Array:
    """Which keys each query of a step sees, of one text without padding."""
    ids = Tensor.from_array(np.zeros((1, new), np.int64))
    positions = ops.arange(before, before + new, dtype=int64).unsqueeze(0)
    attended = Tensor.from_array(np.ones((1, before + new), np.int64))
    zero = np.zeros((), shape.dtype.numpy)
    past = [Tensor.from_array(np.broadcast_to(zero, (1, shape.kv_heads, before, width))) for width in shape.widths]
    mask = part(ids, attended, positions, [past] * shape.layers).numpy()
    seen = mask if mask.dtype == np.bool_ else mask == 0
    added = mask.dtype != np.bool_ and bool((~seen & (mask > np.float32(-1e30))).any())
    if added or mask.shape[:-2] != (1,) * (mask.ndim - 2):
        raise NoBuffersError("has a mask that differs by head, or adds numbers to scores")
    matrix: Array = seen.reshape(seen.shape[-2:])
    return matrix


# Programs -------------------------------------------------------------------------------------------------------------


def _slots(*values: Any) -> Iterator[int]:
    """The slots in arguments."""
    for value in values:
        if isinstance(value, Slot):
            yield value.number
        elif isinstance(value, Mapping):
            yield from _slots(*value.values())
        elif isinstance(value, (list, tuple)):
            yield from _slots(*value)


def _needed(calls: Sequence[Call], result: Any) -> list[Call]:
    """The calls that a result needs, each with the slots that no later one reads."""
    results = set(_slots(result))
    read, kept = set(results), list[Call]()
    for call in reversed(calls):
        if call.result in read:
            own = set(_slots(call.arguments, call.options))
            kept.append(call._replace(unused=tuple(sorted(own - read))))
            read |= own
    return kept[::-1]
