"""Figures with matplotlib (the extra `plot`). Each function returns a new figure and changes no global state."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from lucid.core.graph.types import Array
from lucid.testing import Comparison, ParityReport

__all__ = ["attention", "parity"]
__dir__ = __all__.copy


_COLUMNS = 4
_LABELS = 7  # in an inch along an attention map; of more tokens every other, third, ... has one
_ROWS = 40  # bars of a parity figure; more are grouped by module
_ENOUGH = 10  # modules that are enough, if one level deeper there are more than 40
_LONGEST = 48  # characters of a row's name; of a longer one the end is shown


class Picture(Figure):
    """A figure that notebooks show automatically."""

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        self.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()


def attention(weights: Any, tokens: Sequence[str] = ()) -> Figure:
    """Attention weights, one picture per head: rows are queries, columns keys.

    Args:
        weights: (L, S), (H, L, S), or (N, H, L, S) to show its first item; a tensor or array.
        tokens: labels of the positions.

    Raises:
        ValueError: for weights of another rank, without any element, or a number of tokens that is neither that of
            queries nor of keys.
    """
    maps = _heads(weights, tokens)
    columns = min(len(maps), max(_COLUMNS, math.ceil(math.sqrt(len(maps)))))
    rows = math.ceil(len(maps) / columns)
    side = 3.0 if columns <= _COLUMNS else 12 / columns
    figure = Picture(figsize=(side * columns, side * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    top = float(maps.max()) or 1.0
    queries, keys = maps.shape[1:]
    for number, axis in enumerate(axes.flat):
        if number >= len(maps):
            axis.set_visible(False)
            continue
        image = axis.imshow(maps[number], vmin=0, vmax=top, cmap="Blues", interpolation="nearest")
        axis.set_title(f"head {number + 1}" if len(maps) > 1 else "", fontsize=9)
        if len(tokens) == keys:
            lowest = number + columns >= len(maps)  # labels are below the columns and to the left of the rows
            axis.set_xticks(*_thinned(tokens if lowest else [""] * keys, side), rotation=60, ha="right", fontsize=7)
        if len(tokens) == queries:
            axis.set_yticks(*_thinned(tokens if number % columns == 0 else [""] * queries, side), fontsize=7)
    figure.colorbar(image, ax=figure.axes, shrink=0.7, label="weight")
    return figure


def _heads(weights: Any, tokens: Sequence[str]) -> Array:
    """Weights (H, L, S) of weights with or without heads and batch; checks that the tokens fit."""
    array = np.asarray(weights)
    if array.ndim not in (2, 3, 4):
        raise ValueError(
            f"attention weights: got shape {list(array.shape)}, expected (L, S), (H, L, S) or (N, H, L, S)"
        )
    if 0 in array.shape:
        raise ValueError(f"attention weights: got shape {list(array.shape)}, expected at least one of each axis")
    array = array[0] if array.ndim == 4 else array[None] if array.ndim == 2 else array
    if tokens and len(tokens) not in array.shape[1:]:
        raise ValueError(
            f"tokens: got {len(tokens)}, expected as many as queries or keys ({array.shape[1]}, {array.shape[2]})"
        )
    return array.astype(np.float32)


def _thinned(labels: Sequence[str], inches: float) -> tuple[list[int], list[str]]:
    """Positions with their labels, so few that they can be read."""
    step = math.ceil(len(labels) / (_LABELS * inches)) or 1
    return list(range(0, len(labels), step)), list(labels[::step])


def parity(report: ParityReport) -> Figure:
    """The largest absolute difference of each run and output of a parity report, as bars along a logarithmic axis.

    Failures are red; NaN and infinity have the longest bar. Above 40 comparisons there is a bar for each module, at the
    deepest level with at most about 40 modules. It shows the worst comparison of the module, and in brackets how many
    there are. Where one level has fewer than 10 modules and the next more than 40, the 40 worst of these are shown.
    """
    bars, left_out = _bars(report.comparisons)
    figure = Picture(figsize=(8, 0.26 * len(bars) + 1.2), layout="constrained")
    axis = figure.subplots()
    finite = [c.max_abs for _, c in bars if 0 < c.max_abs < math.inf]
    longest = 10 * max(finite, default=1.0)
    values = [c.max_abs if c.max_abs < math.inf else longest for _, c in bars]
    names = [name if len(name) <= _LONGEST else "…" + name[1 - _LONGEST :] for name, _ in bars]
    places = range(len(bars))
    axis.barh(places, values, height=0.7, color=["tab:blue" if c.passed else "tab:red" for _, c in bars])
    axis.set_yticks(places, names, fontsize=8)
    axis.set_ylim(len(bars) - 0.4, -0.6)
    axis.grid(axis="x", alpha=0.3)
    axis.set_axisbelow(True)
    if finite:
        axis.set_xscale("log")
        axis.set_xlim(min(finite) / 10, max(values) * 3)
    axis.set_xlabel("largest absolute difference from NumPy, in the units of the output")
    failed = sum(not c.passed for c in report.comparisons)
    of = f" in {failed} of {len(report.comparisons)} comparisons" if failed else ""
    verdict = "agrees with NumPy" if report.passed else f"differs from NumPy{of}"
    axis.set_title(f"{verdict}; the {_ROWS} worst modules" if left_out else verdict, fontsize=10)
    return figure


def _bars(comparisons: Sequence[Comparison]) -> tuple[list[tuple[str, Comparison]], bool]:
    """The comparisons with their names; above `_ROWS` the worst of each module. And whether modules are left out."""
    if len(comparisons) <= _ROWS:
        return [(_name(c), c) for c in comparisons], False
    paths = [tuple(_SEPARATORS.split(c.output)) for c in comparisons]
    shown: list[tuple[str, Comparison]] = []
    for depth in range(1, max(map(len, paths)) + 1):
        groups: dict[tuple[str, ...], list[Comparison]] = {}
        for path, comparison in zip(paths, comparisons, strict=True):
            groups.setdefault(path[:depth], []).append(comparison)
        if len(groups) > _ROWS and len(shown) >= _ENOUGH:
            break
        shown = [(f"{'.'.join(path)} ({len(of)})", max(of, key=_badness)) for path, of in groups.items()]
    worst = sorted(shown, key=lambda bar: _badness(bar[1]))[-_ROWS:]
    return [bar for bar in shown if bar in worst], len(worst) < len(shown)


_SEPARATORS = re.compile(r"[./]")


def _name(comparison: Comparison) -> str:
    sizes = " ".join(f"{name}={value}" for name, value in comparison.sizes.items())
    return f"{comparison.provider.removesuffix('ExecutionProvider')} {sizes} {comparison.output}"


def _badness(comparison: Comparison) -> tuple[bool, float]:
    difference = comparison.max_abs
    return not comparison.passed, math.inf if math.isnan(difference) else difference
