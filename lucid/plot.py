"""Figures with matplotlib (the extra `plot`). Each function returns a new figure and changes no global state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from io import BytesIO
from typing import Any

from matplotlib.figure import Figure

from lucid.html import heads_of
from lucid.testing import ParityReport

__all__ = [
    "attention",
    "parity",
]


def __dir__() -> list[str]:
    return __all__


_COLUMNS = 4


class Picture(Figure):
    """A figure that notebooks show automatically."""

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        self.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()


def attention(weights: Any, tokens: Sequence[str] = ()) -> Figure:
    """Attention weights, one picture per head: rows are queries, columns keys.

    Args:
        weights: (L, S), (H, L, S) or (N, H, L, S), of which the first item is shown; a tensor or array.
        tokens: labels of the positions.

    Raises:
        ValueError: for weights of another rank, or a number of tokens that is neither that of queries nor of keys.
    """
    maps = heads_of(weights, tokens)
    columns = min(_COLUMNS, len(maps))
    rows = math.ceil(len(maps) / columns)
    figure = Picture(figsize=(3 * columns, 3 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flat
    top = float(maps.max(initial=0.0)) or 1.0
    image = None
    for number, (axis, each) in enumerate(zip(axes, maps, strict=False)):
        image = axis.imshow(each, vmin=0, vmax=top, cmap="Blues")
        axis.set_title(f"head {number + 1}" if len(maps) > 1 else "", fontsize=9)
        if len(tokens) == each.shape[1]:
            axis.set_xticks(range(len(tokens)), list(tokens), rotation=60, ha="right", fontsize=7)
        if len(tokens) == each.shape[0]:
            axis.set_yticks(range(len(tokens)), list(tokens), fontsize=7)
    for axis in list(axes)[len(maps) :]:
        axis.set_visible(False)
    if image is not None:
        figure.colorbar(image, ax=figure.axes, shrink=0.7, label="weight")
    return figure


def parity(report: ParityReport) -> Figure:
    """The largest difference of each run and output of a parity report; failures are red, and NaN is a longest bar."""
    figure = Picture(figsize=(7, 0.45 * len(report.comparisons) + 1.5), layout="constrained")
    axis = figure.subplots()
    names, values, colours = [], [], []
    finite = [c.max_abs for c in report.comparisons if 0 < c.max_abs < math.inf]
    for c in report.comparisons:
        sizes = " ".join(f"{name}={value}" for name, value in c.sizes.items())
        names.append(f"{c.provider.removesuffix('ExecutionProvider')} {sizes} {c.output}")
        values.append(c.max_abs if c.max_abs < math.inf else 10 * max(finite, default=1.0))
        colours.append("tab:blue" if c.passed else "tab:red")
    axis.barh(names, values, color=colours)
    axis.invert_yaxis()
    if finite:
        axis.set_xscale("log")
        axis.set_xlim(min(finite) / 10, max(values) * 3)
    axis.set_xlabel("largest absolute difference")
    axis.set_title("agrees with NumPy" if report.passed else "differs from NumPy", fontsize=10)
    return figure
