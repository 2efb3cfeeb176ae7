"""The engine: goes through a graph node by node, takes the first form that does not refuse, and records why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from lucid.core.graph.scope import Scope, entered
from lucid.core.graph.values import Constant, Input, Node, Value, in_order
from lucid.core.process.context import evaluating
from lucid.export.builder import Builder
from lucid.export.form import Form, Refused, Taken, insisted_on
from lucid.export.forms.positions import waits_for_use
from lucid.export.registry import EXPANDED, forms_of, kinds_of
from lucid.export.target import ExportError
from lucid.export.widening import Wider, stored_narrow, transposed_weight, widened, wider_type
from lucid.ops.op import Op
from lucid.ops.tensor.tensor import Tensor


@dataclass(frozen=True)
class Decision:
    """The form taken for a node, the reasons against the others, and the decisions for ops inside the form."""

    op: str
    path: str
    taken: str
    nodes: int
    refused: tuple[tuple[str, str], ...]
    note: str = ""
    inside: tuple[Decision, ...] = ()


class _Chosen(NamedTuple):
    """The form that a node takes, and what it wrote."""

    names: Sequence[str]
    taken: str
    refused: list[tuple[str, str]]
    why: str = ""
    inside: tuple[Decision, ...] = ()


class Lowering:
    """Turns nodes into ONNX nodes and records the decisions.

    The builder calls it for every value that a form uses and that is not computed yet, so a form can be written as ops
    on tensors. Decisions inside a form belong to the decision for that form (`Decision.inside`).
    """

    def __init__(self, build: Builder) -> None:
        self.build = build
        self.decisions: list[Decision] = []
        self._forms: dict[Op[..., Any], tuple[Form, ...]] = {}
        for op, kind in build.target.forms.items():
            if kind not in ("auto", *(kinds := kinds_of(op))):
                has = "there is no op of that name" if not kinds else f"choose one of {', '.join(kinds)}"
                raise ExportError(f"forms: {op} has no form of kind {kind!r}: {has}")
        build.compute = self.lower

    def _cached_forms(self, op: Op[..., Any]) -> tuple[Form, ...]:
        if op not in self._forms:
            self._forms[op] = forms_of(op, self.build.target)
        return self._forms[op]

    def lower(self, outputs: Sequence[Value], wait: bool = True) -> None:
        """Emit everything that the outputs need. A weight that is only widened waits for the form that uses it, which
        may need its transpose instead, and is widened outside of every branch.
        """
        for node in in_order(outputs, self.build.knows):
            is_output = any(result in outputs for result in node.results)
            if wait and stored_narrow(node) is not None:
                if is_output:
                    with self.build.outside():
                        self._lower_node(node)
            elif is_output or not waits_for_use(node, self.build.target):
                self._lower_node(node)

    def _lower_node(self, node: Node) -> None:
        assert isinstance(node.op, Op)
        if (weight := transposed_weight(node)) is not None:
            self.build.bind(node.results[0], self.build.name_of(weight))
            return
        # A primitive is one ONNX node, whose own name says enough; the nodes of a composite have its name in theirs.
        parts = [node.scope, node.op.name if node.op.body is not None else ""]
        path = "/".join(part for part in parts if part)
        if node.op.body is None:
            kernel = next((form.kernel for form in self._cached_forms(node.op) if form.kernel), "")
            wider = wider_type(node, kernel, self.build.target, path)
            if wider is not None:
                self._lower_widened(node, wider)
                return
        before = self.build.emitted
        with self.build.inside(path, node.scope):
            chosen = self._choose(node, node.op, path)
        for result, name in zip(node.results, chosen.names, strict=True):
            self.build.bind(result, name)
        tried = sum(form.is_for(node) for form in self._cached_forms(node.op))
        if chosen.refused or tried + (node.op.body is not None) > 1:
            self._record(node, chosen, before)

    def _record(self, node: Node, chosen: _Chosen, before: int) -> None:
        refused, nodes = tuple(chosen.refused), self.build.emitted - before
        decision = Decision(node.op.name, node.scope, chosen.taken, nodes, refused, chosen.why, chosen.inside)
        self.decisions.append(decision)

    def _lower_widened(self, node: Node, wider: Wider) -> None:
        with entered(Scope(node.scope, {})):
            values = widened(node, wider.narrow, wider.wide)
        before = self.build.emitted
        self.lower(values, wait=False)
        names = list(map(self.build.name_of, values))
        self._record(node, _Chosen(names, f"in {wider.wide} between casts", [(str(wider.narrow), wider.why)]), before)
        for result, name in zip(node.results, names, strict=True):
            self.build.bind(result, name)

    def _choose(self, node: Node, op: Op[..., Any], path: str) -> _Chosen:
        """Write a node in the first form that does not refuse: the best one comes first."""
        refused: list[tuple[str, str]] = []
        before = self.build.emitted
        for form in filter(lambda form: form.is_for(node), self._cached_forms(op)):
            try:
                return self._written(form, node, refused)
            except Refused as reason:
                assert self.build.emitted == before, f"{form.name} refuses {op.name} with nodes emitted: refuse first"
                refused.append((form.name, str(reason)))
        if op.body is None or self.build.target.insisted(op.name) not in ("auto", "expanded"):
            raise self._no_form(op, path, refused)
        return _Chosen(self._inline(node, op, path), EXPANDED, refused)

    def _written(self, form: Form, node: Node, refused: list[tuple[str, str]]) -> _Chosen:
        """A node in one form. Decisions within it are its own, except those about a body of the model."""
        first = len(self.decisions)
        inside: list[Decision] = []
        try:
            form.check(node, self.build.target)
            written = form.emit(self.build, node)
            taken = written if isinstance(written, Taken) else Taken(written, "")
            names = self.build.names_of(taken.results)
        finally:
            inside, self.decisions[first:] = self.decisions[first:], []
        if taken.results is None or len(names) != len(node.results):
            count = 0 if taken.results is None else len(names)
            raise ExportError(
                f"the form {form.name} of {node.op.name} returns {count} names, expected "
                f"{len(node.results)}: of each result the name that build.op returns"
            )
        if taken.has_body:
            self.decisions += inside
            inside = []
        return _Chosen(names, form.name, refused, taken.why, tuple(inside))

    def _no_form(self, op: Op[..., Any], path: str, refused: list[tuple[str, str]]) -> ExportError:
        target, insisted = self.build.target, self.build.target.insisted(op.name)
        listed = {form.name for form in self._cached_forms(op) if insisted in ("auto", "expanded", form.kind)}
        reasons = "; ".join(f"{name}: {reason}" for name, reason in refused if name in listed)
        if insisted not in ("auto", "expanded"):
            reasons = reasons or f'target "{target.name}" has none'
            return ExportError(f"{path}: no form of {insisted_on(op.name, insisted)} is exact here ({reasons})")
        where = f"{path}: " if path else ""
        reasons = reasons or "none is registered: write one with @lucid.export.lowers, or a body of other ops"
        return ExportError(f"{where}{op.name} has no ONNX form ({reasons})")

    def _inline(self, node: Node, op: Op[..., Any], path: str) -> list[str]:
        """Emit a composite's body, in which everything that depends on constants alone is folded."""
        inputs = node.inputs if op.folded else [None if v is None else self._unknown(v) for v in node.inputs]
        with evaluating(), entered(Scope(path, {}, self.build.graph.names)):
            tensors = op.expand([None if v is None else Tensor.from_value(v) for v in inputs], node.attributes)
        return self.build.names_of(tensors)

    def _unknown(self, value: Value) -> Value:
        """The value as one that is known only when the model runs, so that nothing in a body is folded."""
        if not isinstance(value, Constant):
            return value
        name = self.build.name_of(value)
        unknown = Input(name, value.type)
        self.build.bind(unknown, name)
        return unknown
