"""Rows: the ONNX forms an op can take. They are tried in order; the op's body is the last one.

A row may refuse, and says why. What it refuses before emitting anything is all that `explain` has to tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from lucid.export.builder import Builder
from lucid.export.facts import Fact
from lucid.export.target import PROVIDERS, ExportError, Target
from lucid.export.widening import check_kernel, widened, wider_type
from lucid.graph import Node, Scope, Value, in_order, scope
from lucid.ops.op import Op
from lucid.ops.tensor import Tensor
from lucid.types import DType


@dataclass(frozen=True)
class Because:
    """What a row emitted, and why it should win here: `explain` tells."""

    names: str | Sequence[str]
    note: str


Emit: TypeAlias = Callable[[Builder, Node], str | Sequence[str] | Because]


class Refused(Exception):  # noqa: N818  # not an error: the next row is tried
    """A row cannot compute a node exactly on the target."""


def refuse(reason: str) -> NoReturn:
    """Leave a node to the next row."""
    raise Refused(reason)


def needs(build: Builder, fact: Fact) -> None:
    """Leave a node to the next row where the oldest onnxruntime of the target is too old."""
    if not build.target.has(fact):
        refuse(f"{fact}; this export is for {build.target.onnxruntime} too")


@dataclass(frozen=True)
class Row:
    """One ONNX form of an op."""

    name: str
    emit: Emit
    opset: int
    form: str
    targets: tuple[str, ...]


@dataclass(frozen=True)
class Decision:
    """Which form a node took, and why the others did not serve."""

    op: str
    path: str
    taken: str
    nodes: int
    refused: tuple[tuple[str, str], ...]
    note: str = ""


_ROWS: dict[str, list[Row]] = {}


def lowers(
    op: Op[..., Any],
    *,
    name: str = "",
    opset: int = 17,
    form: str = "standard",
    targets: tuple[str, ...] = PROVIDERS,
) -> Callable[[Emit], Emit]:
    """Register a row for an op: from which opset on, for which targets, and for attention which form it is."""

    def register(emit: Emit) -> Emit:
        _ROWS.setdefault(op.name, []).append(Row(name or emit.__name__, emit, opset, form, targets))
        return emit

    return register


def rows_of(op_name: str, target: Target) -> tuple[Row, ...]:
    """The rows of an op on a target, in the order in which they are tried."""
    return tuple(row for row in _ROWS.get(op_name, ()) if target.provider in row.targets)


class Lowering:
    """Turns nodes into ONNX nodes and records the decisions."""

    def __init__(self, build: Builder) -> None:
        self.build = build
        self.decisions: list[Decision] = []

    def lower(self, outputs: Sequence[Value]) -> None:
        """Emit everything that the outputs need."""
        for node in in_order(outputs, self.build.knows):
            self._lower_node(node)

    def _lower_node(self, node: Node) -> None:
        assert isinstance(node.op, Op)
        # A primitive is one ONNX node, named by that; what takes several is named after the op as well.
        parts = [node.scope, node.op.name if node.op.body is not None else ""]
        path = "/".join(part for part in parts if part)
        wider = wider_type(node, self.build.target) if node.op.body is None else None
        if wider is not None:
            self._lower_widened(node, *wider)
            return
        before = self.build.emitted
        with self.build.inside(path, node.scope):
            names, taken, refused, note = self._choose(node, node.op, path)
        for result, name in zip(node.results, names, strict=True):
            self.build.bind(result, name)
        if refused or len(rows_of(node.op.name, self.build.target)) > 1:
            emitted = self.build.emitted - before
            self.decisions.append(Decision(node.op.name, node.scope, taken, emitted, tuple(refused), note))

    def _lower_widened(self, node: Node, narrow: DType, wide: DType) -> None:
        token = scope.set(Scope(node.scope, {}))
        try:
            values = widened(node, narrow, wide)
        finally:
            scope.reset(token)
        self.lower(values)
        for result, value in zip(node.results, values, strict=True):
            self.build.bind(result, self.build.name_of(value))

    def _choose(self, node: Node, op: Op[..., Any], path: str) -> tuple[Sequence[str], str, list[tuple[str, str]], str]:
        """The names of the results, the form taken, the forms refused with their reasons, and what speaks for it."""
        target = self.build.target
        refused: list[tuple[str, str]] = []
        insisted = target.attention if op.name == "attention" else "auto"
        rows = rows_of(op.name, target)
        before = self.build.emitted
        for row in rows:
            try:
                if insisted not in ("auto", row.form):
                    refuse(f'this export insists on attention="{insisted}"')
                if row.opset > target.opset:
                    refuse(f"needs opset {row.opset}, this export asks for {target.opset}")
                emitted = row.emit(self.build, node)
            except Refused as reason:
                assert self.build.emitted == before, f"{row.name} refuses {op.name} with nodes emitted: refuse first"
                refused.append((row.name, str(reason)))
            else:
                made = emitted if isinstance(emitted, Because) else Because(emitted, "")
                names = (made.names,) if isinstance(made.names, str) else tuple(made.names)
                return names, row.name, refused, made.note
        if insisted not in ("auto", "expanded"):
            asked = {row.name for row in rows if row.form == insisted}
            reasons = "; ".join(f"{name}: {reason}" for name, reason in refused if name in asked)
            raise ExportError(f'{path}: no form of attention="{insisted}" is exact here ({reasons})')
        if op.onnx is not None:
            check_kernel(node, target, path)
            return [self.build.op(op.onnx, *node.inputs, **node.attributes)], op.onnx, refused, ""
        if op.body is None:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in refused)
            where = f"{path}: " if path else ""
            raise ExportError(
                f"{where}{op.name} has no ONNX form ({reasons or _WHY_NOT.get(op.name, 'none is registered')})"
            )
        return self._inline(node, op, path), "expanded", refused, ""

    def _inline(self, node: Node, op: Op[..., Any], path: str) -> list[str]:
        """Emit a composite's body. Constants are computed on the way: what depends on them alone is folded."""
        token = scope.set(Scope(path, {}))
        try:
            tensors = op.expand([None if v is None else Tensor.from_value(v) for v in node.inputs], node.attributes)
        finally:
            scope.reset(token)
        values = [tensor.to_value() for tensor in tensors]
        self.lower(values)
        return [self.build.name_of(value) for value in values]


_WHY_NOT = {"dropout": "dropout is for training: export in evaluation mode, or with dropout_p=0"}
