"""Why an exported graph has the nodes that it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from lucid.core.words import html
from lucid.export.lowering import Decision
from lucid.export.promotion import Promotion
from lucid.export.target import Target

_Entry = TypeVar("_Entry", Decision, Promotion)


@dataclass(frozen=True)
class Explanation:
    """The form taken for each op that has several, with the reasons against the others; and where the model or the
    export computes in a wider type than given. `weights` says in which type they are stored, if that is not their own.
    `limits` lists what the runtime computes otherwise in every form, by ONNX op. Print it to read it.
    """

    target: Target
    decisions: tuple[Decision, ...]
    promotions: tuple[Promotion, ...] = ()
    weights: str = ""
    limits: tuple[str, ...] = ()

    @property
    def attention(self) -> tuple[Decision, ...]:
        """The decisions for attention nodes, in the order of the graph."""
        return tuple(decision for decision in self.decisions if decision.op in _ATTENTION)

    def __str__(self) -> str:
        shown = self._shown()
        head = self._head()
        if not self.tells:
            return f"{head}\n{_NOTHING}"
        titles = [*map(title, shown), *map(title, self.promotions)]
        width = max(map(len, titles), default=0) + 2
        lines = [head]
        for decision, count in _grouped(shown):
            nodes = f"{decision.nodes} node{'' if decision.nodes == 1 else 's'}"
            lines.append(f"{title(decision):<{width}}{decision.taken}: {nodes}{_alike(count)}")
            if decision.note:
                lines.append(f"{'':<{width}}because   {decision.note}")
            lines += [f"{'':<{width}}inside    {line}" for line in inside(decision)]
            lines += [f"{'':<{width}}refused   {name}: {reason}" for name, reason in decision.refused]
        for promotion, count in _grouped(self.promotions):
            lines.append(f"{title(promotion):<{width}}in float64, with {promotion.narrow} operands{_alike(count)}")
            lines.append(f"{'':<{width}}because   {promotion.because}")
            lines.append(f"{'':<{width}}instead   {promotion.instead}")
        return "\n".join([*lines, *(f"limit     {limit}" for limit in self.limits)])

    def _repr_html_(self) -> str:
        rows = [_cells(decision) for decision in self._shown()]
        rows += [
            (title(p), f"in float64, with {p.narrow} operands", "", f"{p.because}\ninstead: {p.instead}")
            for p in self.promotions
        ]
        table = html.table(("node", "form", "ONNX nodes", "why"), rows) if rows else html.paragraph(_NOTHING)
        return "".join(
            [html.paragraph(self._head()), table, *(html.paragraph(f"limit: {each}") for each in self.limits)]
        )

    @property
    def tells(self) -> bool:
        """Whether there is anything to report: a choice of forms, a wider or narrower type, a limit."""
        return bool(self._shown() or self.promotions or self.weights or self.limits)

    def _shown(self) -> list[Decision]:
        others = [d for d in self.decisions if d.op not in _ATTENTION]
        return [*self.attention, *(d for d in others if d.refused or d.note or d.op in FEW_BITS)]

    def _head(self) -> str:
        target = self.target
        head = f"target {target.name}, opset {target.opset}, onnxruntime >= {target.onnxruntime}"
        return "\n".join([head, *[self.weights] * bool(self.weights)])


_ATTENTION = ("attention", "buffered_attention")
FEW_BITS = ("quantized_linear", "quantized_embedding", "int8_linear_dynamic", "int8_linear_rows", "int8_linear_static")
_NOTHING = "every op has one form"


def _cells(decision: Decision) -> tuple[object, ...]:
    reasons = "\n".join(
        [decision.note] * bool(decision.note)
        + [f"inside: {line}" for line in inside(decision)]
        + [f"not {name}: {why}" for name, why in decision.refused]
    )
    return title(decision), decision.taken, decision.nodes, reasons


def _alike(count: int) -> str:
    return f"   ({count} alike)" if count > 1 else ""


def inside(decision: Decision) -> list[str]:
    """The forms of attention and of quantized products that the form of a node uses itself, with their reasons."""
    lines = []
    for inner, count in _grouped([each for each in decision.inside if each.op in (*_ATTENTION, *FEW_BITS)]):
        why = f", because {inner.note}" if inner.note else ""
        lines += [f"{inner.taken}{_alike(count)}{why}", *(f"  {line}" for line in inside(inner))]
    return lines


def title(entry: Decision | Promotion) -> str:
    """Where something was decided: the module's path and the op."""
    return f"{entry.path}/{entry.op}" if entry.path else entry.op


def _grouped(entries: Sequence[_Entry]) -> list[tuple[_Entry, int]]:
    """Group entries that differ only in their path: the first of each group, and how many there are."""
    groups: dict[tuple[object, ...], list[_Entry]] = {}
    for entry in entries:
        if isinstance(entry, Decision):
            key: tuple[object, ...] = (entry.op, entry.taken, entry.refused, entry.note, tuple(inside(entry)))
        else:
            key = (entry.op, entry.narrow, entry.because, entry.instead)
        groups.setdefault(key, []).append(entry)
    return [(alike[0], len(alike)) for alike in groups.values()]
