"""What a form is: one way to write an op in ONNX. An op's forms are tried best first; its body is the last.

A form may refuse, and says why: what `explain` has to tell. It refuses before it emits anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from lucid.export.builder import Builder, Operands
from lucid.export.facts import Fact
from lucid.export.target import PROVIDERS
from lucid.graph import Node
from lucid.ops.op import Op


@dataclass(frozen=True)
class Taken:
    """The results of a form, and why it should win here: `explain` tells."""

    results: Operands
    why: str
    written_as: Op[..., Any] | None = None  # an op that it is written in, and whose own form is told as well


Emit: TypeAlias = Callable[[Builder, Node], Operands | Taken]


class Refused(Exception):  # noqa: N818  # not an error: the next form is tried
    """A form cannot compute a node exactly on the target."""


def refuse(reason: str) -> NoReturn:
    """Leave a node to the next form."""
    raise Refused(reason)


def needs(build: Builder, fact: Fact) -> None:
    """Leave a node to the next form where the oldest onnxruntime of the target is too old."""
    if not build.target.has(fact):
        refuse(f"{fact}; this export is for {build.target.onnxruntime} too")


@dataclass(frozen=True)
class Form:
    """One ONNX form of an op.

    Args:
        op: the name of the op.
        name: what `explain` calls it.
        emit: writes a node in ONNX, or refuses. It may write nodes by `build.op`, ops on tensors, or both.
        opset: the opset from which it exists.
        kind: what an export may insist on; for attention "standard", "contrib", "expanded" and so on.
        targets: those it is for.
    """

    op: str
    name: str
    emit: Emit
    opset: int
    kind: str
    targets: tuple[str, ...]


def form(
    op: Op[..., Any],
    *,
    name: str = "",
    opset: int = 17,
    kind: str = "standard",
    targets: tuple[str, ...] = PROVIDERS,
) -> Callable[[Emit], Form]:
    """Make a function a form of an op. It counts once it is listed in `lucid.export.forms.FORMS`, or by `lowers`."""
    return lambda emit: Form(op.name, name or emit.__name__, emit, opset, kind, targets)
