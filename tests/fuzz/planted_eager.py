"""Faults of eager calls that onnxruntime computes to plant: in their layout, and in the model that they take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

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
    right, seen = onnxruntime_engine._model, dict[Any, bytes]()

    def model(op: Any, axes: Any, attributes: Any, dtypes: Any) -> bytes:
        return seen.setdefault((op, axes, dtypes), right(op, axes, attributes, dtypes))

    patch.setattr(onnxruntime_engine, "_model", model)
    for op in calls.LEAST:
        patch.setattr(REGISTERED[op], "_known", {})
