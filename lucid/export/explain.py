"""Why an exported graph has the nodes that it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

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


_Entry: TypeAlias = Decision | Promotion | Remark
E = TypeVar("E", bound=_Entry)


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
        if not self.tells:
            return f"{self._head()}\n{_NOTHING}"
        entries, lines = self._entries(), [self._head()]
        width = max(map(len, map(title, entries)), default=0) + 2
        for entry, count in _grouped(entries):
            nodes = f": {entry.nodes} node{'s' * (entry.nodes != 1)}" if isinstance(entry, Decision) else ""
            lines.append(f"{title(entry):<{width}}{_outcome(entry)}{nodes}{_alike(count)}")
            lines += [f"{'':<{width}}{label:<10}{text}" for label, text in _reasons(entry)]
        return "\n".join([*lines, *(f"limit     {limit}" for limit in self.limits)])

    def _repr_html_(self) -> str:
        rows = [
            (title(entry), _outcome(entry), entry.nodes if isinstance(entry, Decision) else "", _cell(entry))
            for entry in self._entries()
        ]
        table = html.table(("node", "form", "ONNX nodes", "why"), rows) if rows else html.paragraph(_NOTHING)
        return "".join(
            [html.paragraph(self._head()), table, *(html.paragraph(f"limit: {each}") for each in self.limits)]
        )

    @property
    def tells(self) -> bool:
        """Whether there is anything to report: a choice of forms, a wider or narrower type, a remark, or a limit."""
        return bool(self._entries() or self.weights or self.limits)

    def _entries(self) -> list[_Entry]:
        others = [d for d in self.decisions if d.op not in _ATTENTION]
        shown = (d for d in others if d.refused or d.note or d.op in FEW_BITS)
        return [*self.attention, *shown, *self.promotions, *self.remarks]

    def _head(self) -> str:
        target = self.target
        head = f"target {target.name}, opset {target.opset}, onnxruntime >= {target.onnxruntime}"
        return "\n".join([head, *[self.weights] * bool(self.weights)])


_ATTENTION = ("attention", "buffered_attention")
FEW_BITS = ("quantized_linear", "quantized_embedding", "int8_linear_dynamic", "int8_linear_rows", "int8_linear_static")
_NOTHING = "no form was refused: each node has the form that is best for the target"


def _outcome(entry: _Entry) -> str:
    """The form, the type or the decision that an entry reports."""
    if isinstance(entry, Decision):
        return entry.taken
    return entry.decision if isinstance(entry, Remark) else f"in float64, with {entry.narrow} operands"


def _reasons(entry: _Entry) -> list[tuple[str, str]]:
    """The lines below an entry, each with its label."""
    if not isinstance(entry, Decision):
        return [(label, text) for label, text in (("because", entry.because), ("instead", entry.instead)) if text]
    return [
        *[("because", entry.note)] * bool(entry.note),
        *(("inside", line) for line in inside(entry)),
        *(("refused", f"{name}: {reason}") for name, reason in entry.refused),
    ]


def _cell(entry: _Entry) -> str:
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


def title(entry: _Entry) -> str:
    """The place of a decision: the module's path and the op."""
    return place_of(entry.path, entry.op)


def place_of(path: str, op: str) -> str:
    """The path of a module and an op in it."""
    return f"{path}/{op}" if path else op


def _grouped(entries: Sequence[E]) -> list[tuple[E, int]]:
    """Group entries that differ only in their path: the first of each group, and how many there are."""
    groups: dict[tuple[object, ...], list[E]] = {}
    for entry in entries:
        groups.setdefault((type(entry), entry.op, _outcome(entry), *_reasons(entry)), []).append(entry)
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
