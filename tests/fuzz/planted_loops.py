"""Faults of loops to plant: in eager loops and in the form that writes them."""

from __future__ import annotations

from typing import Any

from lucid.export.builder import Builder
from lucid.ops import loops
from tests.fuzz.planting import Faults, Patch

LOOPS = Faults()


@LOOPS.fault("an eager loop runs forwards whatever its direction")
def _(patch: Patch) -> None:
    patch.setattr(loops, "_order", lambda length, reverse: iter(range(length)))


LOOPS.exported("a loop runs forwards whatever its direction", loops.scan_op, reverse=False)


def _backwards(_: Builder, inputs: list[Any], attributes: dict[str, Any]) -> None:
    attributes["scan_output_directions"] = None


LOOPS.written("the results of a loop in reverse are in the order of its steps", "Scan", _backwards)
