"""The report of a comparison of eager and exported results, for every run and output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lucid import html
from lucid.comparison import Comparison
from lucid.text import visible


class ParityError(AssertionError):
    """Eager and exported results differ, or nothing was compared; `report` holds the comparisons."""

    def __init__(self, report: ParityReport) -> None:
        super().__init__(f"the exported model differs from the eager one\n{report}")
        self.report = report


@dataclass(frozen=True)
class ParityReport:
    """All comparisons of `assert_parity`. Print it to read it."""

    comparisons: tuple[Comparison, ...]
    elsewhere: Mapping[str, Mapping[str, str]]
    not_run: Mapping[str, str] = field(default_factory=dict)  # providers that do not start, and why
    rounded: Mapping[str, float] = field(default_factory=dict)
    """By provider, how much accuracy level 4 differs from level 0, which is compared, relative to an output's largest
    number. Empty for models without weights in few bits."""
    whole: Mapping[str, float] = field(default_factory=dict)
    """By provider, how much the outputs of a model differ whose products round their inputs to 8 bits, relative to an
    output's largest number; the comparisons are of its parts."""

    @property
    def passed(self) -> bool:
        """Whether every output agreed in every run, and something was compared."""
        return all(c.passed for c in self.comparisons) and any(c.elements for c in self.comparisons)

    @property
    def max_abs(self) -> float:
        """The largest absolute difference."""
        return max((c.max_abs for c in self.comparisons), default=0.0)

    @property
    def max_rel(self) -> float:
        """The largest relative difference."""
        return max((c.max_rel for c in self.comparisons), default=0.0)

    @property
    def worst(self) -> Comparison | None:
        """The comparison with the largest error relative to its tolerance."""
        return max((c for c in self.comparisons if c.tolerance is not None), key=lambda c: c.share, default=None)

    def __str__(self) -> str:
        lines = [str(comparison) for comparison in self.comparisons]
        for provider, nodes in self.elsewhere.items():
            shown = ", ".join(f"{node} on {actual}" for node, actual in list(nodes.items())[:5])
            lines.append(visible(f"note  {provider}: {len(nodes)} nodes are computed elsewhere: {shown}"))
        lines += [f"note  {provider} was not run: {why}" for provider, why in self.not_run.items()]
        for provider, share in self.rounded.items():
            lines.append(
                f"note  {provider}: compared at accuracy level 0; level 4 adds up to {share:.2g} of the largest"
            )
        for provider, share in self.whole.items():
            lines.append(
                f"note  {provider}: inputs of products are rounded to 8 bits, so each is compared with those that the "
                f"export has; the outputs of the whole model differ by up to {share:.2g} of the largest"
            )
        if not any(c.elements for c in self.comparisons):
            lines.append("FAIL  no output has any element, so nothing was compared")
        return "\n".join(lines)

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
