"""Plots of ratios, as SVG files. Imported only if matplotlib is installed."""

from __future__ import annotations

from pathlib import Path

import matplotlib
from matplotlib import pyplot

from benchmarks.report import TITLES
from benchmarks.results import Line, Results

PLOTS = ("causal", "dynamic", "unmasked", "padding", "windows", "mha", "minilm", "eager")
COLOURS = {"Lucid": "#0b6e4f", "Lucid, any": "#7fb69e", "Lucid, portable": "#b8d8c8", "Lucid eager": "#4c956c"}
OTHERS = ("#c44536", "#e09f3e", "#8d99ae", "#5e548e")

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "lucid", "svg.fonttype": "none", "font.size": 9})


def write(results: Results, folder: Path) -> list[Path]:
    """One file for each section that has ratios."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_write(results.of(name), folder / f"{name}.svg", TITLES[name]) for name in PLOTS if results.of(name)]


def _write(lines: list[Line], path: Path, title: str) -> Path:
    """Groups of bars: the ratio to the base for each piece of work, its quartiles as a whisker, its goal as a line."""
    ways = list(dict.fromkeys(way for line in lines for way, cell in line.cells.items() if cell.ratio is not None))
    figure, axes = pyplot.subplots(figsize=(max(6.0, 0.32 * len(lines) * (len(ways) + 1)), 3.2), layout="constrained")
    others = iter(OTHERS)
    width = 0.8 / max(1, len(ways))
    for place, way in enumerate(ways):
        ratios = [(at, line.cells[way].ratio) for at, line in enumerate(lines) if way in line.cells]
        shown = [(at, ratio) for at, ratio in ratios if ratio is not None]
        axes.bar(
            [at + (place - (len(ways) - 1) / 2) * width for at, _ in shown],
            [ratio.median for _, ratio in shown],
            width,
            label=way,
            color=COLOURS.get(way) or next(others, "#333333"),
            yerr=[[r.median - r.low for _, r in shown], [r.high - r.median for _, r in shown]],
            error_kw={"elinewidth": 0.8},
        )
    for at, line in enumerate(lines):
        if line.goal is not None:
            axes.plot([at - 0.42, at + 0.42], [line.goal.limit] * 2, color="black", linewidth=1, linestyle=":")
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xticks(range(len(lines)), [line.work for line in lines], rotation=0 if len(lines[0].work) < 12 else 12)
    axes.set_ylabel(f"time / {lines[0].base}")
    axes.set_title(f"{title} (lower is faster, dotted: goal)", fontsize=9)
    figure.legend(fontsize=7, frameon=False, ncols=len(ways), loc="outside lower center")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path
