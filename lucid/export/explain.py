"""Why an exported graph has the nodes that it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from lucid.core.graph.graph import Graph, Remark
from lucid.core.graph.types import DType, float64
from lucid.core.graph.values import Constant, Input, Result, Value
from lucid.core.words import html
from lucid.export.lowering import Decision
from lucid.export.target import Target


@dataclass(frozen=True)
class Promotion:
    """A node that computes in float64 because of one of its operands, and where that operand comes from."""

    op: str
    path: str
    narrow: DType
    because: str
    instead: str


_Entry = TypeVar("_Entry", Decision, Promotion, Remark)


@dataclass(frozen=True)
class Explanation:
    """Why an exported graph has its nodes. Print it to read it.

    Attributes:
        target: the target of the export.
        decisions: the form taken for each op that has several, with the reasons against the others.
        promotions: where the model computes in float64 because of one operand.
        weights: in which type weights are stored, if that is not their own.
        limits: results that differ on the runtime in every form, by ONNX op.
        remarks: attention that is written out: where it becomes the op, and where not, why and what to write.
    """

    target: Target
    decisions: tuple[Decision, ...]
    promotions: tuple[Promotion, ...] = ()
    weights: str = ""
    limits: tuple[str, ...] = ()
    remarks: tuple[Remark, ...] = ()

    @property
    def attention(self) -> tuple[Decision, ...]:
        """The decisions for attention nodes, in the order of the graph."""
        return tuple(decision for decision in self.decisions if decision.op in _ATTENTION)

    def __str__(self) -> str:
        shown = self._shown()
        head = self._head()
        if not self.tells:
            return f"{head}\n{_NOTHING}"
        titles = [*map(title, shown), *map(title, self.promotions), *map(title, self.remarks)]
        width = max(map(len, titles), default=0) + 2
        lines = [head]
        for decision, count in _grouped(shown):
            nodes = f"{decision.nodes} node{'' if decision.nodes == 1 else 's'}"
            lines.append(f"{title(decision):<{width}}{decision.taken}: {nodes}{_alike(count)}")
            lines += [f"{'':<{width}}{label:<10}{text}" for label, text in _reasons(decision)]
        for promotion, count in _grouped(self.promotions):
            lines.append(f"{title(promotion):<{width}}in float64, with {promotion.narrow} operands{_alike(count)}")
            lines += [f"{'':<{width}}{label:<10}{text}" for label, text in _reasons(promotion)]
        for remark, count in _grouped(self.remarks):
            lines.append(f"{title(remark):<{width}}{remark.decision}{_alike(count)}")
            lines += [f"{'':<{width}}{label:<10}{text}" for label, text in _reasons(remark)]
        return "\n".join([*lines, *(f"limit     {limit}" for limit in self.limits)])

    def _repr_html_(self) -> str:
        rows: list[tuple[object, ...]] = [(title(d), d.taken, d.nodes, _cell(d)) for d in self._shown()]
        rows += [(title(p), f"in float64, with {p.narrow} operands", "", _cell(p)) for p in self.promotions]
        rows += [(title(r), r.decision, "", _cell(r)) for r in self.remarks]
        table = html.table(("node", "form", "ONNX nodes", "why"), rows) if rows else html.paragraph(_NOTHING)
        return "".join(
            [html.paragraph(self._head()), table, *(html.paragraph(f"limit: {each}") for each in self.limits)]
        )

    @property
    def tells(self) -> bool:
        """Whether there is anything to report: a choice of forms, a wider or narrower type, a remark, or a limit."""
        return bool(self._shown() or self.promotions or self.weights or self.remarks or self.limits)

    def _shown(self) -> list[Decision]:
        others = [d for d in self.decisions if d.op not in _ATTENTION]
        return [*self.attention, *(d for d in others if d.refused or d.note or d.op in FEW_BITS)]

    def _head(self) -> str:
        target = self.target
        head = f"target {target.name}, opset {target.opset}, onnxruntime >= {target.onnxruntime}"
        return "\n".join([head, *[self.weights] * bool(self.weights)])


_ATTENTION = ("attention", "buffered_attention")
FEW_BITS = ("quantized_linear", "quantized_embedding", "int8_linear_dynamic", "int8_linear_rows", "int8_linear_static")
_NOTHING = "no form was refused: each node has the form that is best for the target"


def _reasons(entry: Decision | Promotion | Remark) -> list[tuple[str, str]]:
    """The lines below an entry, each with its label."""
    if not isinstance(entry, Decision):
        return [(label, text) for label, text in (("because", entry.because), ("instead", entry.instead)) if text]
    return [
        *[("because", entry.note)] * bool(entry.note),
        *(("inside", line) for line in inside(entry)),
        *(("refused", f"{name}: {reason}") for name, reason in entry.refused),
    ]


def _cell(entry: Decision | Promotion | Remark) -> str:
    return "\n".join(f"{label}: {text}" for label, text in _reasons(entry))


def _alike(count: int) -> str:
    return f"   ({count} alike)" if count > 1 else ""


def inside(decision: Decision) -> list[str]:
    """The forms of attention and of quantized products that the form of a node uses itself, with their reasons."""
    lines = []
    for inner, count in _grouped([each for each in decision.inside if each.op in (*_ATTENTION, *FEW_BITS)]):
        why = f", because {inner.note}" if inner.note else ""
        lines += [f"{inner.taken}{_alike(count)}{why}", *(f"  {line}" for line in inside(inner))]
    return lines


def title(entry: Decision | Promotion | Remark) -> str:
    """The place of a decision: the module's path and the op."""
    return place_of(entry.path, entry.op)


def place_of(path: str, op: str) -> str:
    """The path of a module and an op in it."""
    return f"{path}/{op}" if path else op


def _grouped(entries: Sequence[_Entry]) -> list[tuple[_Entry, int]]:
    """Group entries that differ only in their path: the first of each group, and how many there are."""
    groups: dict[tuple[object, ...], list[_Entry]] = {}
    for entry in entries:
        if isinstance(entry, Decision):
            key: tuple[object, ...] = (entry.op, entry.taken, entry.refused, entry.note, tuple(inside(entry)))
        elif isinstance(entry, Remark):
            key = entry[1:]
        else:
            key = (entry.op, entry.narrow, entry.because, entry.instead)
        groups.setdefault(key, []).append(entry)
    return [(alike[0], len(alike)) for alike in groups.values()]


# Where a model computes in float64 because one of its values happens to be float64. NumPy's arrays are float64 by
# default, so one table of constants makes everything after it twice as wide. Numbers do not: they take the type of the
# tensor that they are combined with.


def promotions(graph: Graph) -> list[Promotion]:
    """The first nodes that combine a narrower floating-point value with a float64 one; later nodes follow from them."""
    results: list[Promotion] = []
    follows: set[int] = set()
    for node in graph.nodes():
        operands = [value for value in node.inputs if value is not None]
        widened = [value for value in operands if id(value) in follows]
        narrow = next((dtype for dtype in map(_narrow, operands) if dtype is not None), None)
        wide = next((v for v in operands if v.type.dtype == float64 and _narrow(v) is None), None)
        if narrow is not None and wide is not None and not widened:
            results.append(Promotion(node.op.name, node.scope, narrow, *_reason(graph, wide)))
            widened = [wide]
        if widened:
            follows.update(map(id, node.results))
    return results


def _narrow(value: Value) -> DType | None:
    """The type of a floating-point value before it was cast to float64."""
    if not isinstance(value, Result) or value.node.op.name != "cast" or value.type.dtype != float64:
        return None
    (before,) = value.node.inputs
    dtype = None if before is None else before.type.dtype
    return dtype if dtype is not None and dtype.kind == "float" else None


def _reason(graph: Graph, wide: Value) -> tuple[str, str]:
    """The reason why a node computes in float64, and the remedy."""
    if isinstance(wide, Input):
        return f"the input {wide.name} is {wide.type}", f"give {wide.name} a float32 spec, or cast it first"
    if isinstance(wide, Constant):
        name = graph.name_of(wide)
        if name is not None:
            return f"{name} is {wide.type}", f"{name}.astype(lucid.float32)"
        return f"a constant is {wide.type}", "make it float32: .astype(np.float32), or dtype=lucid.float32"
    return (
        f"the result of {place_of(wide.node.scope, wide.node.op.name)} is {wide.type}",
        "cast it: .astype(lucid.float32)",
    )
