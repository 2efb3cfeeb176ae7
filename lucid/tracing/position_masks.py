"""Masks by position: which conditions of a graph, such as a triangle, depend on key - query alone.

A value is followed from positions, tables and triangles through comparisons and arithmetic: it is a number, a sum
a * query + b * key + c of positions, or a band, which holds one number where low <= key - query <= high and another one
elsewhere. Anything else is None.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from lucid.core.graph.types import Array
from lucid.core.graph.values import Constant, Node, Result, Value, operand
from lucid.core.sizes.dims import Dim, Shape, same
from lucid.ops.creation import arange_op, full_op, tril, triu
from lucid.ops.elementwise import (
    add,
    cast,
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    mul,
    neg,
    not_equal,
    sub,
    true_div,
    where,
)
from lucid.ops.indexing import slice_op
from lucid.ops.shaping import expand_op, permute_op, reshape_op, squeeze_op, unsqueeze_op
from lucid.tracing.rewriting import constant_everywhere

Element: TypeAlias = Any
"""A NumPy scalar."""


class Sum(NamedTuple):
    """query_factor * query + key_factor * key + start, where query is the place along axis -2 and key along axis -1."""

    query_factor: int
    key_factor: int
    start: int


class Band(NamedTuple):
    """One number where low <= key - query <= high, and another one elsewhere. An end may be a size, such as the number
    of cached keys.
    """

    low: float | Dim
    high: float | Dim
    inside: Element
    outside: Element


class Interval(NamedTuple):
    """The differences key - query for which a condition holds, both ends included."""

    low: float
    high: float

    def meet(self, other: Interval) -> Interval:
        """The differences in both."""
        return Interval(max(self.low, other.low), min(self.high, other.high))


EVERYWHERE = Interval(-math.inf, math.inf)


def visible(value: Value, lengths: Shape) -> Interval | None:
    """The differences key - query for which a boolean value is true, if it depends on them alone. `lengths` are the
    numbers of queries and keys, for which the value may be repeated. None too if only a run tells the ends.
    """
    band = _repeated(_meaning(value), value.type.shape, lengths)
    if not isinstance(band, Band):
        return EVERYWHERE if band is not None and not isinstance(band, Sum) and band else None
    low, high = band.low, band.high
    if isinstance(low, Dim) or isinstance(high, Dim):
        return None
    if band.inside:
        return None if band.outside else Interval(low, high)
    if band.outside and low == -math.inf:
        return Interval(high + 1, math.inf)
    return Interval(-math.inf, low - 1) if band.outside and high == math.inf else None


def position_options(interval: Interval) -> dict[str, Any]:
    """The options of attention that show a query the keys of an interval, which holds its own key."""
    low, high = interval
    return {
        **({"is_causal": True} if high == 0 else {"window_after": int(high)} if high < math.inf else {}),
        **({"window": 1 - int(low)} if low > -math.inf else {}),
    }


def as_band(value: Value, lengths: Shape) -> Band | None:
    """The band that a value is for so many queries and keys."""
    band = _repeated(_meaning(value), value.type.shape, lengths)
    return band if isinstance(band, Band) else None


_ELEMENTS = (add, sub, mul, true_div, neg, cast, logical_not, logical_and, logical_or, where)
_COMPARISONS = (less, less_equal, greater, greater_equal, equal, not_equal)
_MOVES = (unsqueeze_op, squeeze_op, expand_op, reshape_op, permute_op)


def _meaning(value: Value) -> Sum | Band | Element | None:
    if isinstance(value, Constant):
        everywhere = constant_everywhere(value)
        return everywhere if everywhere is not None else _table(value.array)
    if not isinstance(value, Result):
        return None
    node = value.node
    if node.op is arange_op and isinstance(start := node.attributes["start"], int):
        return Sum(0, 1, start)
    if node.op is full_op:
        return node.types[0].dtype.numpy.type(node.attributes["value"])
    if node.op is slice_op:
        return _sliced(node)
    if node.op not in (*_ELEMENTS, *_COMPARISONS, *_MOVES, tril, triu):
        return None
    if node.op in _MOVES:
        return _moved(node, _meaning(operand(node)))
    inputs = [value for value in node.inputs if value is not None]
    operands = [_repeated(_meaning(value), value.type.shape, node.types[0].shape) for value in inputs]
    if any(each is None for each in operands):
        return None
    if node.op in (tril, triu):
        diagonal, zero = node.attributes.get("diagonal", 0), node.types[0].dtype.numpy.type(0)
        kept = Band(*_side(node.op is tril, diagonal), np.True_, np.False_)
        return None if isinstance(operands[0], Sum) else _computed([kept, operands[0]], lambda a, b: b if a else zero)
    if any(isinstance(each, Sum) for each in operands):
        return _of_sums(node, operands)
    return _computed(operands, lambda *each: _evaluated(node, each))


def _side(below: bool, end: float | Dim) -> tuple[float | Dim, float | Dim]:
    return (-math.inf, end) if below else (end, math.inf)


def _evaluated(node: Node, elements: Sequence[Element]) -> Element:
    (array,) = node.op.evaluate([np.asarray(each) for each in elements], node.attributes)
    return array[()]


def _computed(operands: Sequence[Any], compute: Any) -> Band | Element | None:
    """The result of an elementwise operation on bands and numbers: a band, if all places outside get one number and it
    is known which ends are the inner ones.
    """
    bands = [each for each in operands if isinstance(each, Band)]
    choices = [(each.inside, each.outside) if isinstance(each, Band) else (each, each) for each in operands]
    inside = compute(*(first for first, _ in choices))
    if not bands:
        return inside
    alike = len({band[:2] for band in bands}) == 1
    combined = [tuple(last for _, last in choices)] if alike else list(itertools.product(*choices))[1:]
    outside = {
        element.item(): element
        for element in (compute(*each) for each in combined if alike or each != tuple(first for first, _ in choices))
    }
    if len(outside) != 1:
        return None
    if alike:
        return Band(*bands[0][:2], inside, *outside.values())
    ends = [end for band in bands for end in band[:2]]
    if any(isinstance(end, Dim) for end in ends):
        return None
    return Band(max(ends[::2]), min(ends[1::2]), inside, *outside.values())


def _of_sums(node: Node, operands: Sequence[Any]) -> Sum | Band | Element | None:
    """Sums, differences and comparisons of positions."""
    if node.op is cast:
        return operands[0] if node.types[0].dtype.kind != "bool" else None
    if len(operands) != 2 or any(isinstance(each, Band) for each in operands):
        return None
    if any(not isinstance(each, Sum) and not float(each).is_integer() for each in operands):
        return None
    left, right = (each if isinstance(each, Sum) else Sum(0, 0, int(each)) for each in operands)
    if node.op is add:
        return Sum(*(a + b for a, b in zip(left, right, strict=True)))
    difference = Sum(*(a - b for a, b in zip(left, right, strict=True)))
    if node.op is sub:
        return difference
    if node.op in (greater, greater_equal) and min(difference) >= (node.op is greater):
        return np.True_  # a position is at least 0
    if node.op not in _COMPARISONS or difference[:2] not in ((-1, 1), (1, -1)):
        return None
    # of key - query + start compared with 0, or the other way round
    start = difference.start * difference.key_factor
    below = {less: -1 - start, less_equal: -start}
    above = {greater: 1 - start, greater_equal: -start}
    if difference.key_factor < 0:
        below, above = (
            {greater: -1 - start, greater_equal: -start},
            {less: 1 - start, less_equal: -start},
        )
    if node.op in below:
        return Band(-math.inf, below[node.op], np.True_, np.False_)
    return Band(above[node.op], math.inf, np.True_, np.False_) if node.op in above else None


def _moved(node: Node, meaning: Any) -> Any:
    """A meaning after its axes moved: those of queries and keys are the last two."""
    before, after, axes = operand(node).type.shape, node.types[0].shape, _axes(meaning)
    if node.op is permute_op and axes:
        order = [axis - len(before) for axis in node.attributes["axes"][-2:]]
        return meaning if order == [-2, -1] else _mirrored(meaning) if order == [-1, -2] else None
    if len(axes) == 1 and node.op is not expand_op:
        places = [place - len(after) for place, size in enumerate(after) if not same(size, 1)]
        if places == axes:
            return meaning
        return _mirrored(meaning) if places == [-3 - axes[0]] else None
    return _repeated(meaning, before, after)


def _repeated(meaning: Any, before: Shape, after: Shape) -> Any:
    """A meaning in a wider shape: None where it depends on an axis that is repeated, as one row of a triangle is."""
    stay = all(-place <= min(len(before), len(after)) and same(before[place], after[place]) for place in _axes(meaning))
    return meaning if stay else None


def _axes(meaning: Any) -> list[int]:
    """The axes that a meaning depends on, of queries (-2) and keys (-1)."""
    factors = meaning[:2] if isinstance(meaning, Sum) else (1, 1) if isinstance(meaning, Band) else (0, 0)
    return [place for place, factor in zip((-2, -1), factors, strict=True) if factor]


def _mirrored(meaning: Sum | Band) -> Sum | Band:
    if isinstance(meaning, Band):
        return Band(-meaning.high, -meaning.low, meaning.inside, meaning.outside)
    return Sum(meaning.key_factor, meaning.query_factor, meaning.start)


def _sliced(node: Node) -> Band | Element | None:
    """The first rows and columns of a band, or others at a known place."""
    meaning, rank = _meaning(operand(node)), operand(node).type.rank
    if not isinstance(meaning, Band):
        return None if isinstance(meaning, Sum) else meaning
    first = {-2: 0, -1: 0}
    for axis, start, _, step in node.attributes["cuts"]:
        if step != 1 or not isinstance(start, int):
            return None
        first[axis - rank] = start
    shift = first[-2] - first[-1]
    return meaning._replace(low=meaning.low + shift, high=meaning.high + shift)


def _table(array: Array) -> Band | None:
    """The band that a square table (1, ..., 1, L, L) is."""
    if array.ndim < 2 or array.shape[-1] != array.shape[-2] or array.size != array.shape[-1] ** 2:
        return None
    square = array.reshape(array.shape[-2:])
    if not (square[1:, 1:] == square[:-1, :-1]).all():
        return None
    length = len(square)
    by_difference = np.concatenate([square[:0:-1, 0], square[0]])  # of key - query = 1 - length to length - 1
    inside = by_difference == square[0, 0]
    outside = np.unique(by_difference[~inside])
    (places,) = np.nonzero(inside)
    if len(outside) != 1 or places[-1] - places[0] + 1 != len(places):
        return None
    low, high = places[0] - length + 1, places[-1] - length + 1
    return Band(
        -math.inf if low == 1 - length else int(low),
        math.inf if high == length - 1 else int(high),
        square[0, 0],
        outside[0],
    )
