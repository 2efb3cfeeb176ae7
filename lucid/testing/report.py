"""The report of a comparison of eager and exported results, for every run and output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lucid.core.graph.types import Array
from lucid.core.words import html
from lucid.core.words.safe_text import listed, visible
from lucid.testing.precision.report import worst_of
from lucid.testing.tolerance import Comparison


class ParityError(AssertionError):
    """Eager and exported results differ, or nothing was compared; `report` holds the comparisons."""

    def __init__(self, report: ParityReport) -> None:
        super().__init__(f"the exported model differs from the eager one\n{report}")
        self.report = report


@dataclass(frozen=True)
class DifferentWeight:
    """An initializer of a file that is not the model's."""

    name: str  # the initializer's
    count: int  # how many of its numbers differ
    where: tuple[int, ...]  # the place of the first of these
    # got, expected: this number in the file and in the model.
    got: str
    expected: str
    max_abs: float = float("nan")  # the largest difference

    def __str__(self) -> str:
        numbers = _count(self.count, "number")
        return f"{self.name}: {numbers}, the first at {list(self.where)}: {self.got}, expected {self.expected}"


@dataclass(frozen=True)
class WeightReport:
    """The initializers and nodes of a file, compared bit by bit with those that the model is exported with now."""

    compared: int  # how many initializers were compared, of those `stored` in the file
    stored: int
    numbers: int = 0  # how many numbers these hold
    different: tuple[DifferentWeight, ...] = ()  # those that differ
    not_compared: Mapping[str, str] = field(default_factory=dict)  # why others were not compared, by name
    missing: tuple[str, ...] = ()  # initializers of the export that the file does not have
    changed_nodes: tuple[str, ...] = ()  # nodes whose attributes differ
    declared: tuple[str, ...] = ()  # declared types of outputs, and metadata, that differ
    # Whether nodes differ, or constants other than weights, such as shapes: such a file may do anything.
    damaged: bool = False
    note: str = ""  # why the file's nodes, or all it holds, could not be compared; empty if they were

    @property
    def passed(self) -> bool:
        """Whether everything that was compared is equal."""
        return not self.different and not self.changed_nodes and not self.declared

    @property
    def whole(self) -> bool:
        """Whether nothing was left out: every initializer and every node of the file and of the export was compared."""
        return self.compared == self.stored and not self.missing and not self.note

    @property
    def equal(self) -> int:
        """How many initializers are equal."""
        return self.compared - len(self.different)

    def lines(self) -> list[str]:
        """The report as lines; the first one has the counts."""
        mark = "note" if self.passed and not self.whole else _mark(not self.different)
        lines = [f"{mark}  weights: {self.equal} of {self.stored} equal the model's, bit for bit"]
        if self.different:
            count = sum(item.count for item in self.different)
            lines[0] += f"; {_count(count, 'number')} in {_count(len(self.different), 'weight')} differ"
            lines[0] += "s" if count == 1 else ""
        lines += [f"FAIL  {item}" for item in self.different[:_SHOWN]]
        if self.changed_nodes:
            lines.append(f"FAIL  nodes with other attributes: {listed(self.changed_nodes)}")
        lines += [f"FAIL  {item}" for item in self.declared]
        if self.damaged:
            lines.append("note  the file was not run: nodes or constants that it computes with are not the model's")
        if self.not_compared:
            reasons = [f"{name} ({why})" for name, why in self.not_compared.items()]
            lines.append(f"note  {len(reasons)} were not compared: {listed(reasons)}")
        if self.missing:
            lines.append(f"note  {len(self.missing)} of the export are not in the file: {listed(self.missing)}")
        if self.note:
            lines.append(f"note  {self.note}")
        return [visible(line) for line in lines]


_SHOWN = 5


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _mark(passed: bool) -> str:
    return "ok  " if passed else "FAIL"


@dataclass(frozen=True)
class ParityReport:
    """All comparisons of `assert_parity`. Print it to read it."""

    comparisons: tuple[Comparison, ...]
    elsewhere: Mapping[str, Mapping[str, str]]
    not_run: Mapping[str, str] = field(default_factory=dict)  # providers that do not start, and why
    rounded: Mapping[str, float] = field(default_factory=dict)
    """By provider, how much accuracy level 4 differs from level 0, at which the model is compared, relative to an
    output's largest number. Empty for models without quantized weights."""
    whole: Mapping[str, float] = field(default_factory=dict)
    """For a model whose products round their inputs to 8 bits, and which is therefore compared part by part: how much
    its outputs differ by provider, relative to an output's largest number."""

    weights: WeightReport | None = None
    """How the stored numbers of a file compare with the model's; None where no file was compared."""
    branches_not_run: Sequence[str] = ()
    """Branches of the exported model that no run reached, by the sizes that choose them."""
    failing: Mapping[str, Array] = field(default_factory=dict, repr=False, compare=False)
    """The inputs by name of the first run in which outputs differ."""

    @property
    def accuracy_levels(self) -> dict[str, str]:
        """By provider, at which accuracy level products with quantized weights were compared, and what level 4 adds."""
        return {
            provider: f"compared at accuracy level 0; level 4 adds up to {share:.2g} of an output's largest number"
            for provider, share in self.rounded.items()
        }

    @property
    def passed(self) -> bool:
        """Whether every output agreed in every run, something was compared, and no stored number differs."""
        return self.agrees and (self.weights is None or self.weights.passed)

    @property
    def agrees(self) -> bool:
        """Whether every output agreed in every run, and something was compared."""
        return all(c.passed for c in self.comparisons) and any(c.elements for c in self.comparisons)

    @property
    def max_abs(self) -> float:
        """The largest absolute difference; NaN if an output holds NaN."""
        return worst_of(c.max_abs for c in self.comparisons)

    @property
    def max_rel(self) -> float:
        """The largest relative difference; NaN if an output holds NaN."""
        return worst_of(c.max_rel for c in self.comparisons)

    @property
    def worst(self) -> Comparison | None:
        """The comparison with the largest error relative to its tolerance."""
        return max((c for c in self.comparisons if c.tolerance is not None), key=lambda c: c.share, default=None)

    def __str__(self) -> str:
        lines = [str(comparison) for comparison in self.comparisons]
        for provider, nodes in self.elsewhere.items():
            shown = listed([f"{node} on {actual}" for node, actual in nodes.items()])
            lines.append(visible(f"note  {provider}: {len(nodes)} nodes are computed elsewhere: {shown}"))
        lines += [f"note  {provider} was not run: {why}" for provider, why in self.not_run.items()]
        lines += [f"note  {provider}: {text}" for provider, text in self.accuracy_levels.items()]
        for provider, share in self.whole.items():
            lines.append(
                f"note  {provider}: inputs of products are rounded to 8 bits, so each is compared with those that the "
                f"export has; the outputs of the whole model differ by up to {share:.2g} of the largest"
            )
        lines += self.notes()
        damaged = self.weights is not None and self.weights.damaged
        if not damaged and not any(c.elements for c in self.comparisons):
            lines.append("FAIL  no output has any element, so nothing was compared")
        lines += [] if self.weights is None else self.weights.lines()
        return "\n".join(lines)

    def notes(self) -> list[str]:
        """The checks that were left out for their time, as lines."""
        if not self.branches_not_run:
            return []
        where = ", ".join(self.branches_not_run)
        return [visible(f"note  not run, since it takes longer than this check may: the branch for {where}")]

    def _repr_html_(self) -> str:
        rows = [
            (c.passed, c.provider, dict(c.sizes), c.output, f"{c.max_abs:.2e}", *_worst(c), c.problem)
            for c in self.comparisons
        ]
        titles = ("passed", "provider", "sizes", "output", "max abs", "worst", "allowed", "tolerance", "problem")
        verdict = html.paragraph("eager and exported " + ("agree" if self.passed else "differ"), self.passed)
        return verdict + html.table(titles, rows)


def _worst(comparison: Comparison) -> tuple[str, str, str]:
    if comparison.tolerance is None:
        return "", "", ""
    return f"{comparison.error:.2e}", f"{comparison.allowed:.2e}", str(comparison.tolerance)
