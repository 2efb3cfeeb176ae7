"""Loops in random programs: a scan with or without a layer of its own, what it carries, and in which direction."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Tensor, nn, ops
from tests.fuzz.layers import filled, has_width
from tests.fuzz.programs import Drafting, Maker, Step, among

LOOPS: list[Maker] = []


@among(LOOPS)
def looped(draft: Drafting) -> Step | None:
    """A recurrence along the first axis. What it carries shrinks, so that it does not grow with the length."""
    x = draft.pick(has_width(2, 3))
    if x is None:
        return None
    kind = draft.values[x].type
    width = int(kind.shape[-1])
    reverse, several, own = draft.flag(), draft.flag(), draft.flag()
    layer = filled(nn.Linear(width, width, bias=draft.flag()), kind.dtype)

    def apply(v: Tensor) -> Any:
        last = v.mean(0)

        def step(carry: Any, element: Tensor) -> tuple[Any, Any]:
            h, before = carry if several else (carry, element)
            moved = layer(element) if own else element + last
            h = ops.tanh(h / 2 + moved) + before / 4
            return ((h, element / 2), (h, before)) if several else (h, h + element)

        start = lucid.zeros(*v.shape[1:], dtype=v.dtype)
        carried, results = ops.scan(step, (start, start + 1) if several else start, v, reverse=reverse)
        return results[0] + results[1] + carried[0] if several else results + carried

    return Step(f"scan reverse={reverse} several={several} own={own}", (x,), apply, layer=layer)
