"""Faults of eager calls that onnxruntime computes to plant: in their layout, and in the model that they take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lucid.eager import calls, onnxruntime_engine, sessions
from lucid.eager.calls import Layout
from lucid.ops import REGISTERED
from tests.fuzz.planting import Faults, Patch

EAGER = Faults()


def layout(name: str, op: str, wrong: Callable[[Layout], Layout]) -> None:
    """One of the layout of calls of an op."""
    right = calls._READERS[op]

    @EAGER.fault(name)
    def _(patch: Patch) -> None:
        def read(*call: object) -> Layout | None:
            found = right(*call)  # type: ignore[arg-type]
            return None if found is None else wrong(found)

        patch.setitem(calls._READERS, op, read)
        patch.setattr(REGISTERED[op], "_known", {})  # calls that it has seen remember their layout


def _without(*names: str) -> Callable[[Layout], Layout]:
    return lambda found: replace(found, attributes=tuple((n, v) for n, v in found.attributes if n not in names))


layout("onnxruntime computes attention without its window", "attention", _without("window", "window_after"))
layout("onnxruntime computes norms with the usual epsilon", "rms_norm", _without("eps"))


@EAGER.fault("the model of a call is that of its sizes, whatever its attributes are")
def _(patch: Patch) -> None:
    right, seen = onnxruntime_engine._model, dict[Any, bytes]()
    patch.setattr(
        onnxruntime_engine, "_model", lambda kind: seen.setdefault((kind.op, kind.axes, kind.dtypes), right(kind))
    )
    for op in calls.LEAST:
        patch.setattr(REGISTERED[op], "_known", {})


@EAGER.fault("the branch of a call is told by the lowest bit of its number")
def _(patch: Patch) -> None:
    right = sessions.selection
    patch.setattr(sessions, "selection", lambda number: right(number & 1))
