"""Why an exported graph looks as it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lucid import html
from lucid.export.lowering import Decision
from lucid.export.target import Target


@dataclass(frozen=True)
class Explanation:
    """The form that each op took where it had a choice, with the reasons against the others. Print it to read it."""

    target: Target
    decisions: tuple[Decision, ...]

    @property
    def attention(self) -> tuple[Decision, ...]:
        """The decisions for attention nodes, in the order of the graph."""
        return tuple(decision for decision in self.decisions if decision.op == "attention")

    def __str__(self) -> str:
        shown = self._told()
        head = self._head()
        if not shown:
            return f"{head}\n{_NOTHING}"
        width = max(len(title(decision)) for decision in shown) + 2
        lines = [head]
        for decision, count in _grouped(shown):
            nodes = f"{decision.nodes} node{'' if decision.nodes == 1 else 's'}"
            times = f"   ({count} alike)" if count > 1 else ""
            lines.append(f"{title(decision):<{width}}{decision.taken}: {nodes}{times}")
            if decision.note:
                lines.append(f"{'':<{width}}because   {decision.note}")
            lines += [f"{'':<{width}}refused   {name}: {reason}" for name, reason in decision.refused]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [_cells(decision) for decision in self._told()]
        table = html.table(("node", "form", "ONNX nodes", "why"), rows) if rows else html.paragraph(_NOTHING)
        return html.paragraph(self._head()) + table

    def _told(self) -> list[Decision]:
        return list(self.attention) + [d for d in self.decisions if d.op != "attention" and d.refused]

    def _head(self) -> str:
        target = self.target
        return f"target {target.provider}, opset {target.opset}, onnxruntime >= {target.onnxruntime}"


_NOTHING = "every op has one form"


def _cells(decision: Decision) -> tuple[object, ...]:
    reasons = "\n".join(
        [decision.note] * bool(decision.note) + [f"not {name}: {why}" for name, why in decision.refused]
    )
    return title(decision), decision.taken, decision.nodes, reasons


def title(decision: Decision) -> str:
    """Where a decision was taken: the module's path and the op."""
    return f"{decision.path}/{decision.op}" if decision.path else decision.op


def _grouped(decisions: Sequence[Decision]) -> list[tuple[Decision, int]]:
    """Decisions that differ in their place only are told once."""
    groups: dict[tuple[object, ...], list[Decision]] = {}
    for decision in decisions:
        key = (decision.op, decision.taken, decision.refused, decision.note)
        groups.setdefault(key, []).append(decision)
    return [(alike[0], len(alike)) for alike in groups.values()]
