"""Faults of eager calls that onnxruntime computes to plant: in their layout, and in the model that they take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lucid.eager import calls, onnxruntime_engine
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
    right, seen = onnxruntime_engine._model, {}

    def model(op: object, called: Layout, dtypes: object) -> bytes:
        made: bytes = seen.setdefault((op, called.axes, dtypes), right(op, called, dtypes))  # type: ignore[arg-type]
        return made

    patch.setattr(onnxruntime_engine, "_model", model)
    for op in calls.LEAST:
        patch.setattr(REGISTERED[op], "_known", {})
