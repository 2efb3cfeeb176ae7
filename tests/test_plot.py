"""Figures: their contents, and that they change no global state."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.testing import Comparison, ParityReport

pytest.importorskip("matplotlib", reason="needs matplotlib (the extra plot)")
plot = pytest.importorskip("lucid.plot")


def test_attention_has_a_picture_a_head_with_tokens():
    weights = lucid.softmax(lucid.randn(1, 6, 3, 3))
    figure = plot.attention(weights, tokens=["the", "cat", "sat"])
    pictures = [axis for axis in figure.axes if axis.images]
    assert [axis.get_title() for axis in pictures] == [f"head {n}" for n in range(1, 7)]
    np.testing.assert_allclose(pictures[4].images[0].get_array(), weights.numpy()[0, 4])
    assert [label.get_text() for label in pictures[0].get_xticklabels()] == ["the", "cat", "sat"]
    assert len({picture.images[0].get_clim() for picture in pictures}) == 1


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
    assert axis.get_title() == "differs from NumPy"


def test_figures_show_themselves_and_leave_pyplot_alone():
    figure = plot.attention(np.eye(3))
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert "matplotlib.pyplot" not in sys.modules
