"""What a form is: one way to write an op in ONNX. An op's forms are tried best first; its body is the last.

A form may refuse, and says why: what `explain` has to tell. It refuses before it emits anything.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import onnx

from lucid.dims import Dim
from lucid.export.builder import Builder, Operands
from lucid.export.facts import Fact
from lucid.export.target import PROVIDERS
from lucid.graph import Node, show_attribute
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

    A form is closed: it says which inputs and attributes it writes, and where a node has another one that is given or
    not at its default, the engine leaves the node to the next form. So an op that learns something new is never
    exported by a form that has not heard of it.

    Args:
        op: the name of the op.
        name: what `explain` calls it.
        takes: the attributes and optional inputs that it writes; None: all of them, as a form made of the body does.
        emit: writes a node in ONNX, or refuses. It may write nodes by `build.op`, ops on tensors, or both.
        opset: the opset from which it exists.
        kind: what an export may insist on; for attention "standard", "contrib", "expanded" and so on.
        targets: those it is for.
    """

    op: str
    name: str
    takes: frozenset[str] | None
    emit: Emit
    opset: int
    kind: str
    targets: tuple[str, ...]

    def check(self, node: Node) -> None:
        """Refuse a node that has more to it than this form writes."""
        assert isinstance(node.op, Op)
        if self.takes is None:
            return
        for name, value in zip(node.op.arguments, node.inputs, strict=False):
            if value is not None and name in node.op.optional and name not in self.takes:
                refuse(f"it takes no {name}")
        for name, given in node.attributes.items():
            if name not in self.takes and not _is_default(given, node.op.defaults.get(name, _NOTHING)):
                refuse(f"it takes no {name} (here {show_attribute(given)})")


_NOTHING = object()


def _is_default(given: Any, default: Any) -> bool:
    """Whether an attribute is as it would be if nobody had given it; a symbolic size never is."""
    return given is default or (not _mentions_size(given) and given == default)


def _mentions_size(value: Any) -> bool:
    return any(map(_mentions_size, value)) if isinstance(value, tuple) else isinstance(value, Dim)


def form(
    op: Op[..., Any],
    *,
    takes: str = "",
    name: str = "",
    opset: int = 17,
    kind: str = "standard",
    targets: tuple[str, ...] = PROVIDERS,
) -> Callable[[Emit], Form]:
    """Make a function a form of an op. It counts once it is listed in `lucid.export.forms.FORMS`, or by `lowers`.

    `takes` names the attributes and optional inputs that the function writes, blanks between them; ``*`` means all.

    Raises:
        ValueError: for a name that is none of the op's.
    """
    taken = None if takes == "*" else frozenset(takes.split())
    unknown = (taken or frozenset()) - {*op.arguments, *op.attributes}
    if unknown:
        raise ValueError(f"a form of {op.name} takes {', '.join(sorted(unknown))}, which the op does not have")
    return lambda emit: Form(op.name, name or emit.__name__, taken, emit, opset, kind, targets)


@functools.lru_cache(maxsize=1024)
def named(op: Op[..., Any], op_type: str, opset: int) -> Form:
    """The form of a primitive that is one ONNX op with the same inputs, and with attributes of the same names."""
    known = frozenset(onnx.defs.get_schema(op_type, opset).attributes)

    def emit(build: Builder, node: Node) -> str:
        return build.op(op_type, *node.inputs, **{name: v for name, v in node.attributes.items() if name in known})

    return Form(op.name, op_type, known.union(op.arguments), emit, 0, "standard", PROVIDERS)
