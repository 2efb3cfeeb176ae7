"""Imported decoders' steps over buffers of a fixed capacity: the same logits as with caches that grow, or a refusal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.core.graph.types import float32
from lucid.importing.buffered_steps import NoBuffersError, with_buffers
from lucid.importing.program import Call, Program, Slot
from lucid.importing.table import TABLE
from lucid.nn.cache import CacheShape

WIDTH, HEADS, GROUPS = 4, 4, 2
SHAPE = CacheShape(1, GROUPS, WIDTH, float32)
IDS, MASK, POSITIONS, KEYS, VALUES = map(Slot, range(5))
DRAWN = np.random.default_rng(0)


class Calls:
    """Calls of a program that is written by hand."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.weights: dict[int, lucid.Tensor] = {}
        self._next = 5

    def __call__(self, operator: str, *arguments: Any, **options: Any) -> Slot:
        slot, self._next = Slot(self._next), self._next + 1
        self.calls.append(Call(slot.number, TABLE[operator], arguments, options, operator, "", "model.py:7", ()))
        return slot

    def weight(self, *shape: int) -> Slot:
        slot, self._next = Slot(self._next), self._next + 1
        self.weights[slot.number] = lucid.tensor(DRAWN.normal(size=shape).astype(np.float32))
        return slot

    def program(self, logits: Slot, present: Sequence[Slot]) -> Program:
        inputs = {
            "input_ids": IDS,
            "attention_mask": MASK,
            "position_ids": POSITIONS,
            "past_key_values": [[KEYS, VALUES]],
        }
        result = {"logits": logits, "present": [list(present)]}
        return Program(inputs, self.weights, self.calls, result, self._next)


def step(rule: str = "causal") -> Program:
    """A layer of attention with two heads for each one of keys; the rule says what is unusual about it."""
    call = Calls()
    new, past = call("aten.sym_size.int", IDS, 1), call("aten.sym_size.int", KEYS, 2)
    total = call("add", past, new)
    x = call("aten.embedding.default", call.weight(10, 2 * WIDTH), IDS)
    if rule == "length":
        x = call("aten.mul.Tensor", x, total)

    def heads(count: int) -> Slot:
        projected = call("aten.linear.default", x, call.weight(count * WIDTH, 2 * WIDTH))
        return call("aten.transpose.int", call("aten.unflatten.int", projected, -1, [count, WIDTH]), 1, 2)

    query, key, value = heads(HEADS), heads(GROUPS), heads(GROUPS)
    present = [call("aten.cat.default", [KEYS, key], -2), call("aten.cat.default", [VALUES, value], -2)]
    rows = call("aten.sym_size.int", KEYS, 0)
    repeated = [
        call(
            "aten.view.default",
            call("aten.expand.default", call("aten.unsqueeze.default", x, 2), [rows, GROUPS, 2, total, WIDTH]),
            [rows, HEADS, total, WIDTH],
        )
        for x in present
    ]
    keys = call("aten.arange.default", total)
    queries = call("aten.unsqueeze.default", call("aten.arange.start", past, total), 1)
    seen = call("aten.lt.Tensor" if rule == "strict" else "aten.le.Tensor", keys, queries)
    if rule == "window":
        near = call("aten.gt.Tensor", keys, call("aten.sub.Tensor", queries, 3))
        seen = call("aten.bitwise_and.Tensor", seen, near)
    if rule == "float":
        seen = call("aten.where.ScalarSelf", seen, 0.0, float(np.finfo(np.float32).min))
    if rule == "numbers":
        seen = call("aten.where.ScalarSelf", seen, 0.5, -100.0)
    arguments = [query, *repeated] if rule == "unmasked" else [query, *repeated, seen]
    if rule == "written out":
        scores = call("aten.matmul.default", query, call("aten.transpose.int", repeated[0], 2, 3))
        output = call("aten.matmul.default", call("aten.softmax.int", scores, -1), repeated[1])
    else:
        output = call("aten.scaled_dot_product_attention.default", *arguments, scale=0.7)
    if rule == "other keys":
        present = [present[1], present[0]]
    if rule == "no joining":
        present = [repeated[0], present[1]]
    return call.program(output, present)


def of(array: Any) -> lucid.Tensor:
    return lucid.tensor(np.asarray(array))


@pytest.mark.parametrize("rule", ["causal", "window", "float"])
def test_a_step_over_buffers_is_one_over_what_is_filled(rule: str) -> None:
    growing = step(rule)
    buffered = with_buffers(growing, SHAPE)
    assert list(buffered.inputs) == ["input_ids", "position_ids", "past_key_values"]
    capacity, filled, new = 9, [0, 2, 6], 3
    ids = DRAWN.integers(0, 10, (3, new))
    past = [DRAWN.normal(size=(3, GROUPS, capacity, WIDTH)).astype(np.float32) for _ in range(2)]
    positions = np.array(filled)[:, None] + np.arange(new)
    result = buffered(of(ids), of(positions), [[*map(of, past)]])
    for row, before in enumerate(filled):
        at, total = slice(row, row + 1), before + new
        own = [[of(part[at, :, :before]) for part in past]]
        expected = growing(of(ids[at]), of(np.ones((1, total), np.int64)), of(positions[at]), own)
        np.testing.assert_allclose(result["logits"].numpy()[at], expected["logits"].numpy(), rtol=1e-5, atol=1e-6)
        for part, written in zip(result["present"][0], expected["present"][0], strict=True):
            np.testing.assert_array_equal(part.numpy()[at, :, :total], written.numpy())


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("length", r"uses its mask or the number of earlier positions in aten.sym_size.int \(model.py:7\)"),
        ("strict", "has a mask that is neither causal nor a window"),
        ("numbers", "adds numbers to scores"),
        ("unmasked", "attends without a mask"),
        ("written out", "writes its attention out"),
        ("other keys", "does more with its cache than to put new keys and values behind the others"),
        ("no joining", "does more with its cache"),
    ],
)
def test_other_steps_are_refused(rule: str, message: str) -> None:
    with pytest.raises(NoBuffersError, match=message):
        with_buffers(step(rule), SHAPE)
