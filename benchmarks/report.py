"""Tables of what was measured, for the terminal and for docs/benchmarks.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.results import Cell, Line, Results

TITLES = {
    "causal": "Causal attention, (1, 12, L, 64), a graph for each L",
    "dynamic": "Causal attention, (1, 12, L, 64), one model for all L",
    "unmasked": "Attention without a mask, (1, 12, L, 64)",
    "padding": "Key padding, (N, H, L, d)",
    "scaled": "Causal attention, L = 512, larger inputs",
    "mha": "MultiHeadAttention, (N, L, width, heads)",
    "minilm": "MiniLM-L6, sentences to vectors, (N, L)",
    "eager": "Attention on NumPy, (N, H, L, d)",
    "memory": "Peak memory over the inputs, causal, 12 heads of 64",
    "exports": "Time to export",
    "large": "Export of large models to a file",
    "install": "Import time and size on disk",
}


def terminal(results: Results, section: str) -> str:
    """A section as text."""
    rows = table(results, section)
    widths = [max(len(_bare(row[column])) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(_bare(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join([TITLES[section], *(f"  {line}" for line in lines), ""])


def markdown(results: Results, section: str) -> str:
    """A section as a Markdown table."""
    head, *rows = table(results, section)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def table(results: Results, section: str) -> list[list[str]]:
    """Heading and rows. A ratio stands with its quartiles; the base with its time."""
    lines = results.of(section)
    ways = list(dict.fromkeys(way for line in lines for way in (*([line.base] if line.base else []), *line.cells)))
    rates, goals = any(line.operations for line in lines), any(line.goal for line in lines)
    errors = any(cell.error is not None for line in lines for cell in line.cells.values())
    head = ["", *ways, *(["goal"] if goals else []), *(["of sgemm"] if rates else []), *(["error"] if errors else [])]
    rows = [head]
    for line in lines:
        row = [line.work, *(_cell(line, way) for way in ways)]
        if goals:
            row.append(_goal(line))
        if rates:
            row.append(_rate(line, results))
        if errors:
            row.append(_error(line))
        rows.append(row)
    return rows


def update_page(page: Path, results: Results) -> None:
    """Put the tables into a page, between ``<!-- table: NAME -->`` and ``<!-- end -->``."""
    text = page.read_text(encoding="utf-8")

    def fill(match: re.Match[str]) -> str:
        section = match[1]
        body = (
            machine(results)
            if section == "machine"
            else markdown(results, section)
            if results.of(section)
            else "not measured"
        )
        return f"<!-- table: {section} -->\n\n{body}\n\n<!-- end -->"

    page.write_text(re.sub(r"<!-- table: (\w+) -->.*?<!-- end -->", fill, text, flags=re.DOTALL), encoding="utf-8")


def machine(results: Results) -> str:
    """A sentence about the machine."""
    m = results.machine
    versions = ", ".join(f"{name} {version}" for name, version in m["versions"].items())
    peak = f"fastest float32 matrix product {m['sgemm_gflops']:.0f} GFLOP/s"
    return f"{m['processor']}; {m['system']}; {m['threads']} threads; {versions}; {peak}."


def _cell(line: Line, way: str) -> str:
    cell = line.cells.get(way)
    if cell is None:
        return ""
    if cell.ratio is None:
        return f"{_number(cell.value.median)} {line.unit}" + _spread(cell)
    ratio = cell.ratio
    text = f"{ratio.median:.2f}"
    met = line.goal is not None and way == line.goal.way
    return (f"**{text}**" if met else text) + f" ({ratio.low:.2f}-{ratio.high:.2f})"


def _spread(cell: Cell) -> str:
    value = cell.value
    return "" if value.low == value.high else f" ({_number(value.low)}-{_number(value.high)})"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _goal(line: Line) -> str:
    if line.goal is None:
        return ""
    reached = line.reached
    # A ratio is known to two digits.
    verdict = "" if reached is None else "yes" if round(reached, 2) <= line.goal.limit else "no"
    return f"{line.goal.limit:g}: {verdict}"


def _rate(line: Line, results: Results) -> str:
    way = line.goal.way if line.goal is not None else next(iter(line.cells))
    if not line.operations or way not in line.cells or not results.machine:
        return ""
    gflops = line.operations / (line.cells[way].value.median * 1e-3) / 1e9
    return f"{100 * gflops / results.machine['sgemm_gflops']:.0f} %"


def _error(line: Line) -> str:
    way = line.goal.way if line.goal is not None else next(way for way in line.cells if way != line.base)
    error = line.cells[way].error if way in line.cells else None
    return "" if error is None else f"{error:.1e}"


def _bare(cell: str) -> str:
    return cell.replace("**", "")


def sections(names: Sequence[str]) -> list[str]:
    """All names, in the order of the page."""
    return [name for name in TITLES if name in names]
