"""Tables of the measurements, for the terminal and for docs/benchmarks.md."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.results import Cell, Line, Results

TITLES = {
    "causal": "Causal attention, (1, 12, L, 64), a graph for each L",
    "dynamic": "Causal attention, (1, 12, L, 64), one model for all L",
    "lengths": "One model for all lengths",
    "unmasked": "Attention without a mask, (1, 12, L, 64)",
    "padding": "Key padding, (N, H, L, d)",
    "scaled": "Causal attention, L = 512, larger inputs",
    "windows": "Attention within a window, (1, 12, L, 64), one model for all L",
    "options": "Options of attention, (1, 12, L, 64)",
    "growing": "New positions over a growing cache, causal, heads of queries/keys x width",
    "limit": "Causal attention, (1, 12, L, 64), beside its products and softmax alone",
    "mha": "MultiHeadAttention, (N, L, width, heads)",
    "minilm": "MiniLM-L6, sentences to vectors, (N, L)",
    "models": "Whole models, published widths, few layers, random weights",
    "model_exports": "Whole models: seconds to export, MB of the file, nodes",
    "model_loads": "Whole models: milliseconds to load, MB at the peak of loading and one run",
    "steps": "Attention of one new token over a cache, heads of queries/keys x width",
    "decoders": "Decoders, float32, texts x tokens in the prompt",
    "products": "A product with weights in few bits, bits and block, by size of the weight",
    "encoders": "MiniLM-L6 in few bits, (N, L), time against float32",
    "few_bits": "SmolLM2-135M in few bits, texts x tokens in the prompt",
    "experts": "A layer of experts, float32, experts of a token of all, width x inner width of one",
    "capacity": "SmolLM2-135M, a step over buffers of 512 and of 8192 positions",
    "overhead": "SmolLM2-135M, what Python and memory cost",
    "eager": "Attention on NumPy, (N, H, L, d)",
    "eager_calls": "Small calls on NumPy",
    "eager_models": "Whole models on NumPy, the shape of the input",
    "compiled": "Whole models, by lucid.compile, the shape of the input",
    "memory": "Peak memory over the inputs, causal, 12 heads of 64",
    "exports": "Time to export",
    "large": "Export of large models to a file",
    "install": "Import time and size on disk",
}

GOALS = {
    "causal": "causal, fixed",
    "dynamic": "causal, dynamic",
    "lengths": "all lengths",
    "unmasked": "no mask",
    "padding": "padding",
    "windows": "window, dynamic",
    "options": "options of attention",
    "limit": "of products and softmax",
    "mha": "MultiHeadAttention",
    "minilm": "MiniLM-L6",
    "decoders": "decoding",
    "encoders": "few bits, MiniLM-L6",
    "few_bits": "few bits",
    "capacity": "decoding",
    "overhead": "decoding",
    "eager": "NumPy",
    "eager_calls": "NumPy, a call",
    "eager_models": "NumPy, models",
    "compiled": "lucid.compile",
    "memory": "memory",
    "exports": "export",
    "large": "export",
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
    """A section as a Markdown table, and what has no numbers in it."""
    fails = [f"- {line.work}, {way} fails: {why}" for line in results.of(section) for way, why in line.fails.items()]
    return "\n".join([_markdown(table(results, section)), *([""] if fails else []), *fails])


def _markdown(rows: list[list[str]]) -> str:
    head, *rest = rows
    lines = [head, ["---"] * len(head), *rest]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def table(results: Results, section: str) -> list[list[str]]:
    """Heading and rows. A ratio is shown with its quartiles, the base with its time."""
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


def goals(machines: Sequence[Results]) -> list[list[str]]:
    """Every goal, and the result of each machine."""
    found = [{(line.section, line.work): line for line in results.lines if line.goal} for results in machines]
    rows = [["", "", "goal", *(results.machine["processor"] for results in machines)]]
    every = {key: line for lines in reversed(found) for key, line in lines.items()}
    places = list(TITLES)
    for key, line in sorted(every.items(), key=lambda item: places.index(item[0][0])):
        others = [_reached(lines[key]) if key in lines else "" for lines in found]
        unit = "" if line.base else f" {line.unit}"
        assert line.goal is not None
        rows.append([GOALS[line.section], line.work, f"{line.goal.limit:g}{unit}", *others])
    return rows


def update_page(page: Path, machines: Sequence[Results], shown: Mapping[str, Results] | None = None) -> None:
    """Put the tables into a page, between ``<!-- table: NAME -->`` and ``<!-- end -->``, and one of the goals on all.

    A table stays that of the processor that it shows, since the text around it speaks of that; a table of none is that
    of the first machine that measured it.

    Args:
        machines: those that measured anything.
        shown: by section, the machine whose table is to be shown instead.
    """
    text = page.read_text(encoding="utf-8")

    def fill(match: re.Match[str]) -> str:
        section, title, wanted = match[1], match[2].strip().split("\n")[0], (shown or {}).get(match[1])

        def order(results: Results) -> tuple[bool, bool]:
            return results is not wanted, title != f"{results.machine['processor']}:"

        measured = sorted((results for results in machines if results.of(section)), key=order)
        if section == "machine":
            body = "\n".join(f"- {machine(results)}" for results in machines)
        elif section == "goals":
            body = _markdown(goals(machines))
        elif measured:
            body = f"{measured[0].machine['processor']}:\n\n{markdown(measured[0], section)}"
        else:
            body = "not measured"
        return f"<!-- table: {section} -->\n\n{body}\n\n<!-- end -->"

    page.write_text(re.sub(r"<!-- table: (\w+) -->(.*?)<!-- end -->", fill, text, flags=re.DOTALL), encoding="utf-8")


def machine(results: Results) -> str:
    """A sentence about the machine."""
    m = results.machine
    versions = ", ".join(f"{name} {version}" for name, version in m["versions"].items())
    peak = f"fastest float32 matrix product {m['sgemm_gflops']:.0f} GFLOP/s"
    return f"{m['processor']}; {m['system']}; {m['threads']} threads; {versions}; {peak}."


def _cell(line: Line, way: str) -> str:
    cell = line.cells.get(way)
    if cell is None:
        return "fails" if way in line.fails else ""
    if cell.ratio is None:
        return f"{_number(cell.value.median)} {line.unit}".rstrip() + _spread(cell)
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
    return "" if line.goal is None else f"{line.goal.limit:g}: {_verdict(line)}"


def _reached(line: Line) -> str:
    reached = line.reached
    return "" if reached is None else f"{_number(reached) if line.base is None else f'{reached:.2f}'}: {_verdict(line)}"


def _verdict(line: Line) -> str:
    if line.goal is None or line.reached is None:
        return ""
    return "yes" if round(line.reached, 2) <= line.goal.limit else "no"  # a ratio is known to two digits


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
