"""Reports of parity, shown by the commands."""

from __future__ import annotations

from typing import Any

from lucid.cli import terminal
from lucid.nn.module import Module
from lucid.testing.quantizing_cost import MOST, QuantizingCost
from lucid.testing.report import ParityReport, WeightReport
from lucid.testing.tolerance import Comparison, Tolerance


def parity_json(report: ParityReport) -> dict[str, Any]:
    """A report as plain data."""
    runs = [
        {
            "provider": c.provider,
            "sizes": dict(c.sizes),
            "output": c.output,
            "max_abs": terminal.number(c.max_abs),
            "max_rel": terminal.number(c.max_rel),
            "at": list(c.where),
            "error": terminal.number(c.error),
            "allowed": terminal.number(c.allowed),
            "tolerance": _tolerance_json(c.tolerance),
            "passed": c.passed,
            "problem": c.problem,
        }
        for c in report.comparisons
    ]
    return {
        "passed": report.passed,
        "max_abs": terminal.number(report.max_abs),
        "max_rel": terminal.number(report.max_rel),
        "runs": runs,
        "elsewhere": {provider: dict(nodes) for provider, nodes in report.elsewhere.items()},
        "not_run": dict(report.not_run),
        "branches_not_run": list(report.branches_not_run),
        "weights": None if report.weights is None else _weights_json(report.weights),
    }


def _weights_json(weights: WeightReport) -> dict[str, Any]:
    different = [
        {"name": w.name, "numbers": w.count, "at": list(w.where), "got": w.got, "expected": w.expected}
        for w in weights.different
    ]
    return {
        "passed": weights.passed,
        "stored": weights.stored,
        "compared": weights.compared,
        "equal": weights.equal,
        "numbers": weights.numbers,
        "different": different,
        "not_compared": dict(weights.not_compared),
        "missing": list(weights.missing),
        "changed_nodes": list(weights.changed_nodes),
        "declared": list(weights.declared),
        "note": weights.note,
    }


def cost_json(cost: QuantizingCost | None) -> dict[str, Any] | None:
    """The cost of quantizing as plain data."""
    if cost is None:
        return None
    outputs = [
        {
            "output": each.name,
            "relative_error": terminal.number(each.error),
            "cosine_mean": terminal.number(each.cosine_mean),
            "cosine_worst": terminal.number(each.cosine_worst),
        }
        for each in cost.outputs
    ]
    return {"sizes": dict(cost.sizes), "outputs": outputs}


def print_cost(out: terminal.Output, source: Module | None, cost: QuantizingCost | None) -> None:
    """Print what quantizing costs compared with the source, if the model is quantized."""
    if cost is not None:
        out.line(f"cost  of quantizing (NumPy, quantized weights in float32 against the source): {cost}")
    elif source is not None:
        out.line(
            f"cost  of quantizing was not measured: the source has more than {MOST:,} parameters; "
            "lucid.testing.precision_report measures it on texts"
        )


def _tolerance_json(tolerance: Tolerance | None) -> dict[str, Any] | None:
    if tolerance is None:
        return None
    return {"atol": tolerance.atol, "rtol": tolerance.rtol, "origin": tolerance.origin}


def print_parity(out: terminal.Output, report: ParityReport, brief: bool = False, other: str = "NumPy") -> None:
    """Print a line for each run if all passed, or with `brief` one for all; else every comparison.

    `other` is what the file was compared with.
    """
    providers = ", ".join(dict.fromkeys(c.provider for c in report.comparisons))
    if report.passed and brief:
        runs = len({(c.provider, *c.sizes.items()) for c in report.comparisons})
        text = f"parity with {other} in {runs} runs on {providers}: max abs {report.max_abs:.1e}"
        if report.worst is not None:
            text += f"; at the worst element {report.worst.error:.1e} where {report.worst.allowed:.1e} is allowed"
        out.line(terminal.verdict(True), text)
        for provider, level in report.accuracy_levels.items():
            out.line(f"note  {provider}: {level}")
        for line in (*report.notes(), *(report.weights.lines() if report.weights is not None else ())):
            out.line(line)
        return
    if report.passed:
        _print_runs(out, report)
        return
    for line in str(report).splitlines():
        out.line(line, style="" if line.startswith("ok") else "bold red")


def _print_runs(out: terminal.Output, report: ParityReport) -> None:
    """Print for each run the output closest to its tolerance, then the notes."""
    runs: dict[tuple[object, ...], list[Comparison]] = {}
    for comparison in report.comparisons:
        runs.setdefault((comparison.provider, *comparison.sizes.items()), []).append(comparison)
    for run in runs.values():
        worst = max(run, key=lambda comparison: comparison.share)
        others = len(run) - 1
        better = f"; {others} more output{' agrees' if others == 1 else 's agree'} better" if others else ""
        out.line(str(worst), better)
    for note in str(report).splitlines()[len(report.comparisons) :]:
        out.line(note)
