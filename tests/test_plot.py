"""Figures: their contents, and that they change no global state."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.testing import Comparison, ParityReport

pytest.importorskip("matplotlib", reason="needs matplotlib (the extra plot)")
plot = pytest.importorskip("lucid.inspection.plot")


def test_attention_has_a_picture_a_head_with_tokens():
    weights = lucid.softmax(lucid.randn(1, 6, 3, 3))
    figure = plot.attention(weights, tokens=["the", "cat", "sat"])
    pictures = [axis for axis in figure.axes if axis.images]
    assert [axis.get_title() for axis in pictures] == [f"head {n}" for n in range(1, 7)]
    np.testing.assert_allclose(pictures[4].images[0].get_array(), weights.numpy()[0, 4])
    assert [label.get_text() for label in pictures[-1].get_xticklabels()] == ["the", "cat", "sat"]
    assert [label.get_text() for label in pictures[0].get_yticklabels()] == ["the", "cat", "sat"]
    assert len({picture.images[0].get_clim() for picture in pictures}) == 1


def test_attention_weights_of_every_rank():
    for shape, heads in (((3, 4), 1), ((2, 3, 4), 2), ((5, 2, 3, 4), 2)):
        figure = plot.attention(lucid.rand(*shape))
        assert len([axis for axis in figure.axes if axis.images]) == heads
    with pytest.raises(ValueError, match=r"got shape \[3\], expected \(L, S\)"):
        plot.attention(np.zeros(3))
    for empty in ((0, 3, 3), (0, 2, 3, 3), (2, 0)):
        with pytest.raises(ValueError, match=r"got shape \[.*\], expected at least one of each axis"):
            plot.attention(np.zeros(empty))
    with pytest.raises(ValueError, match=r"tokens: got 2, expected as many as queries or keys \(3, 4\)"):
        plot.attention(np.zeros((3, 4)), tokens=["a", "b"])


def test_parity_has_a_bar_a_run():
    report = lucid.testing.assert_parity(nn.MultiHeadAttention(8, 2), ("N", "L", 8), providers=["cpu"])
    (axis,) = plot.parity(report).axes
    assert [bar.get_width() for bar in axis.patches] == [c.max_abs for c in report.comparisons]
    assert axis.get_title() == "agrees with NumPy"


def test_failures_are_red_and_nan_is_seen():
    bad = Comparison("CPUExecutionProvider", {}, "y", 3, float("nan"), 0.0, (0,), False, "NaN")
    good = Comparison("CPUExecutionProvider", {}, "z", 3, 1e-7, 0.0, (0,), True)
    (axis,) = plot.parity(ParityReport((bad, good), {})).axes
    red, blue = axis.patches
    assert red.get_facecolor() != blue.get_facecolor()
    assert red.get_width() > blue.get_width()
    assert axis.get_title() == "differs from NumPy in 1 of 2 comparisons"


def rows_of(figure):
    (axis,) = figure.axes
    return [label.get_text() for label in axis.get_yticklabels()], axis.patches


def many(layers: int, runs: int = 3) -> ParityReport:
    """Comparisons of two products in each layer; one run of one of them fails."""
    outputs = [f"encoder.layer.{i}.{part}/linear" for i in range(layers) for part in ("query", "value")]
    cases = [(output, run) for output in outputs for run in range(runs)]
    return ParityReport(
        tuple(
            Comparison("CPUExecutionProvider", {"N": run}, out, 3, 1e-7, 0.0, (0,), (out, run) != (outputs[3], 1))
            for out, run in cases
        ),
        {},
    )


@pytest.mark.parametrize(
    ("layers", "rows", "first"),
    [
        (5, 30, "CPU N=0 encoder.layer.0.query/linear"),  # a bar for each run
        (15, 30, "encoder.layer.0.query.linear (3)"),  # for each output
        (30, 30, "encoder.layer.0 (6)"),  # for each layer
        (150, 40, "encoder.layer.1 (6)"),  # for each of the 40 worst layers
    ],
)
def test_many_modules_are_put_together(layers: int, rows: int, first: str) -> None:
    figure = plot.parity(many(layers))
    names, bars = rows_of(figure)
    assert (len(names), names[0], len(bars)) == (rows, first, rows)
    assert len({bar.get_facecolor() for bar in bars}) == 2  # the failure is seen
    assert figure.get_size_inches()[1] < 13
    left_out = "; the 40 worst modules" if rows < layers else ""
    assert figure.axes[0].get_title() == f"differs from NumPy in 1 of {6 * layers} comparisons{left_out}"


def test_tokens_of_a_long_text_are_thinned():
    figure = plot.attention(np.ones((4, 100, 100)) / 100, tokens=[str(i) for i in range(100)])
    labels = [label.get_text() for label in figure.axes[3].get_xticklabels()]
    assert [int(label) for label in labels if label] == list(range(0, 100, 5))


def test_figures_show_themselves_and_leave_pyplot_alone():
    figure = plot.attention(np.eye(3))
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert "matplotlib.pyplot" not in sys.modules
