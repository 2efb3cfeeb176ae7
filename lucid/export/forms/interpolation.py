"""Images and signals brought to another size: ONNX Resize, where it reads exactly the positions that torch reads.

torch multiplies places with the quotient of the sizes, Resize divides by the inverse: the results are the same in
float32 only for powers of two. Others would be off by about 1e-7 of the size of an axis, and the nearest modes would
read other elements.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from lucid.core.graph.values import Node
from lucid.core.sizes.dims import Size, same
from lucid.export.builder import Builder
from lucid.export.form import form, operand, refuse
from lucid.ops import interpolation

_MODES: dict[str, dict[str, Any]] = {
    "nearest": {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    "nearest-exact": {"mode": "nearest", "nearest_mode": "round_prefer_ceil"},
    "linear": {"mode": "linear"},
    "bilinear": {"mode": "linear"},
    "trilinear": {"mode": "linear"},
    "bicubic": {"mode": "cubic", "cubic_coeff_a": -0.75},
}
_POWERS = [Fraction(2) ** power for power in range(-8, 9)]


@form(interpolation.resize, takes="sizes factors mode align_corners", name="ai.onnx Resize", kernel="Resize")
def resize(build: Builder, node: Node) -> str:
    x, attributes = operand(node), node.attributes
    if attributes["align_corners"]:
        refuse("it rounds positions differently with align_corners")
    axes = zip(x.type.shape[2:], attributes["sizes"], attributes["factors"], strict=True)
    scales = [float(_power(*axis)) for axis in axes]
    options = {"coordinate_transformation_mode": "half_pixel"} | _MODES[attributes["mode"]]
    return build.op("Resize", x, None, np.asarray([1, 1, *scales], np.float32), **options)


def _power(size: Size, wanted: Size, factor: float | None) -> Fraction:
    """The power of two that a size is multiplied with; halves are rounded down only if a factor is given."""
    for power in _POWERS:
        exact = same(wanted * power.denominator, size * power.numerator)
        if exact if factor is None else factor == power and same(size * power.numerator // power.denominator, wanted):
            return power
    refuse(f"{wanted} is not {size} multiplied with a power of two, and it rounds positions differently")
