"""The range of integers, as far as the ops tell that compute them: a runtime may compute small ones as float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from lucid.core.graph.types import bool_, int8, uint8
from lucid.core.graph.values import Constant, Node, Result, Value
from lucid.core.sizes.dims import Size
from lucid.export.form import operand

Range: TypeAlias = tuple[float, float]

_HELD = 2**24  # float32 holds every integer up to here
_LONGEST = 2**22  # what symbolic sizes, positions and numbers of elements are taken to stay below
_ANY: Range = (-math.inf, math.inf)
_OF_TYPES: Mapping[object, Range] = MappingProxyType({bool_: (0, 1), int8: (-128, 127), uint8: (0, 255)})
_DEPTH = 8  # of the ops that are looked at


def is_exact_as_float32(value: Value) -> bool:
    """Whether float32 holds every integer that a value may be. Comparisons with one that it holds are exact, too."""
    low, high = range_of(value)
    return low > -_HELD and high < _HELD


def range_of(value: Value, depth: int = _DEPTH) -> Range:
    """The least and the largest integer that a value may be; infinite where that is not known."""
    if value.type.dtype in _OF_TYPES:
        return _OF_TYPES[value.type.dtype]
    if isinstance(value, Constant):
        return (int(value.array.min()), int(value.array.max())) if value.array.size else (0, 0)
    if value.type.dtype.kind != "int" or not isinstance(value, Result) or not depth:
        return _ANY
    node = value.node
    if value.index and node.op.name == "topk":  # places
        return (0, _LONGEST)
    if node.op.name in _POSITIONS:
        return _POSITIONS[node.op.name](node)
    ranges = [range_of(each, depth - 1) for each in node.inputs if each is not None]
    return _COMPUTED[node.op.name](ranges) if node.op.name in _COMPUTED else _ANY


def sum_is_exact_as_float32(node: Node) -> bool:
    """Whether float32 holds every sum that a reduction computes of integers."""
    (low, high), axis, shape = range_of(operand(node)), node.attributes["axis"], operand(node).type.shape
    sizes = [shape[each] for each in (range(len(shape)) if axis is None else axis)]
    known = math.prod(size for size in sizes if isinstance(size, int))
    count = known if all(isinstance(size, int) for size in sizes) else max(known, _LONGEST)
    return max(-low, high) * count < _HELD


def _size(size: Size) -> Range:
    return (size, size) if isinstance(size, int) else (-_LONGEST, _LONGEST)


def _joint(ranges: list[Range]) -> Range:
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _total(ranges: list[Range]) -> Range:
    low, high = ranges[0]
    return min(low * _LONGEST, 0), max(high * _LONGEST, 0)


def _product(ranges: list[Range]) -> Range:
    (a, b), (c, d) = ranges
    ends = [x * y for x in (a, b) for y in (c, d)] if max(map(abs, (a, b, c, d))) < math.inf else _ANY
    return min(ends), max(ends)


def _symmetric(ranges: list[Range]) -> Range:
    most = max(map(abs, ranges[-1]))
    return -most, most


_POSITIONS: Mapping[str, Callable[[Node], Range]] = MappingProxyType(
    {
        "arange": lambda node: _joint([_size(node.attributes["start"]), _size(node.attributes["stop"])]),
        "size": lambda node: _size(node.attributes["size"]),
        "full": lambda node: (node.attributes["value"], node.attributes["value"]),
        "argmax": lambda node: (0, _LONGEST),
    }
)
_COMPUTED: Mapping[str, Callable[[list[Range]], Range]] = MappingProxyType(
    {
        **dict.fromkeys(("cast", "reshape", "squeeze", "unsqueeze", "permute", "expand", "tile"), _joint),
        **dict.fromkeys(("slice", "split", "concat", "max", "min", "topk"), _joint),
        **dict.fromkeys(("take", "take_along"), lambda ranges: ranges[0]),
        **dict.fromkeys(("sum", "cumsum"), _total),
        "where": lambda ranges: _joint(ranges[1:]),
        "maximum": lambda ranges: (max(low for low, _ in ranges), max(high for _, high in ranges)),
        "minimum": lambda ranges: (min(low for low, _ in ranges), min(high for _, high in ranges)),
        "add": lambda ranges: (ranges[0][0] + ranges[1][0], ranges[0][1] + ranges[1][1]),
        "sub": lambda ranges: (ranges[0][0] - ranges[1][1], ranges[0][1] - ranges[1][0]),
        "mul": _product,
        "neg": lambda ranges: (-ranges[0][1], -ranges[0][0]),
        "abs": _symmetric,
        "int_mod": _symmetric,
    }
)
