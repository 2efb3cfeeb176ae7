"""Positions that are compared, for runtimes that take such a mask apart, and wrongly.

tract (0.23.9, Rust) looks for conditions "column <= row", which hold in one region of a mask, and computes a Where
region by region. Where the length is symbolic it mixes up the sizes of regions: the shape is wrong, or it stops.
"Not (column > row)" is the same for whole numbers, and is left as it is.
"""

from __future__ import annotations

from lucid.core.graph.values import Node, Result, Value
from lucid.core.sizes.dims import Dim
from lucid.core.targets.runtimes import REGIONS_OF_POSITIONS
from lucid.export.builder import Builder
from lucid.export.form import Taken, form, operand, refuse
from lucid.ops import elementwise
from lucid.ops.creation import arange_op
from lucid.ops.shaping import unsqueeze_op


@form(elementwise.less_equal, name="not greater", mends=REGIONS_OF_POSITIONS)
def not_greater(build: Builder, node: Node) -> Taken:
    left, right = operand(node, 0), operand(node, 1)
    if not (_are_positions(left) and _are_positions(right)):
        refuse("it is for positions")
    return Taken(build.op("Not", build.op("Greater", left, right)), "tract computes LessOrEqual of positions wrongly")


def _are_positions(value: Value) -> bool:
    """Whether it is a range of a symbolic length, with axes of size 1."""
    while isinstance(value, Result) and value.node.op is unsqueeze_op:
        value = operand(value.node)
    made = isinstance(value, Result) and value.node.op is arange_op
    return made and any(isinstance(size, Dim) for size in value.type.shape)
