"""Hyperbolic functions as nodes; sine, cosine, tangent and arc cosine of float32 numbers from other ops.

The latter are for runtimes whose own are inaccurate.

Shaders compute sine and cosine to about 2e-4, and with rotary tables of that accuracy, attention scores change by more
than rounding. Here multiples of pi / 2 are subtracted from the angle, in three parts so that nothing is rounded (Cody
and Waite 1980), and a polynomial gives the rest: to 1e-7 up to 10,000 radians and 1e-6 up to 100,000, beyond which
there are no positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

from lucid.core.graph.values import Node, operand
from lucid.core.targets.runtimes import COARSE_SINE
from lucid.export.builder import Builder
from lucid.export.form import Form, form, one_node
from lucid.ops import elementwise, floor, trigonometry, where
from lucid.ops.op import Op
from lucid.ops.tensor.tensor import Tensor

_QUARTERS = 0.6366197723675814  # 2 / pi
# pi / 2 in three parts, the first two of few bits, so that a multiple of them is exact in float32.
_PARTS = (1.5703125, 4.837512969970703e-4, 7.549789948768648e-8)
# Taylor series suffice: for |x| <= pi / 4 their next terms are below 4e-9.
_SINE = (1.0, -1 / 6, 1 / 120, -1 / 5040, 1 / 362880)
_COSINE = (1.0, -1 / 2, 1 / 24, -1 / 720, 1 / 40320)


def _by_quarters(op: Op[..., Any], ahead: int) -> Form:
    """Sine of the angle plus `ahead` quarter turns."""

    @form(op, name="sums and products", mends=COARSE_SINE, dtypes=("float32",))
    def reduced(build: Builder, node: Node) -> Tensor:
        x = Tensor.from_value(operand(node))
        quarters = floor(x * _QUARTERS + 0.5)
        rest = reduce(lambda left, part: left - quarters * part, _PARTS, x)
        square = rest * rest
        quadrant = quarters + ahead
        odd = quadrant - floor(quadrant * 0.5) * 2.0
        negative = floor(quadrant * 0.5) - floor(quadrant * 0.25) * 2.0
        value = where(odd > 0.5, _series(_COSINE, square), rest * _series(_SINE, square))
        return value * (1.0 - negative * 2.0)

    return reduced


def _series(factors: Sequence[float], square: Tensor) -> Tensor:
    """The polynomial of a square, by Horner's rule."""
    *rest, before, last = factors
    return reduce(lambda total, factor: total * square + factor, reversed(rest), square * last + before)


sin, cos = _by_quarters(elementwise.sin, 0), _by_quarters(elementwise.cos, 1)


@form(elementwise.tan, name="sine by cosine", mends=COARSE_SINE, dtypes=("float32",))
def tan(build: Builder, node: Node) -> Tensor:
    x = Tensor.from_value(operand(node))
    return elementwise.sin(x) / elementwise.cos(x)


@form(elementwise.acos, name="the rest of a right angle", mends=COARSE_SINE, dtypes=("float32",))
def acos(build: Builder, node: Node) -> Tensor:
    return math.pi / 2 - elementwise.asin(Tensor.from_value(operand(node)))


# Best first, of each op.
FORMS = (
    *(sin, cos, tan, acos),
    one_node(trigonometry.sinh, "Sinh"),
    one_node(trigonometry.cosh, "Cosh"),
    one_node(trigonometry.asinh, "Asinh"),
    one_node(trigonometry.acosh, "Acosh"),
    one_node(trigonometry.atanh, "Atanh"),
)
