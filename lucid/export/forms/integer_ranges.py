"""The range of integers, if it follows from the ops that compute them: small ones may be computed as float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce
from types import MappingProxyType

from lucid.core.graph.types import bool_, int8, uint8
from lucid.core.graph.values import Constant, Node, Result, Value, operand
from lucid.core.sizes.dims import Size
from lucid.tracing.index_ranges import COMPUTED, FAR, MOVED, Span

_HELD = 2**24  # float32 holds every integer up to here
_LONGEST = 2**22  # what symbolic sizes, positions and numbers of elements are taken to stay below
_ANY = Span(-FAR, FAR)
_OF_TYPES = MappingProxyType({bool_: Span(0, 1), int8: Span(-128, 127), uint8: Span(0, 255)})
_DEPTH = 8  # of the ops that are looked at


def is_exact_as_float32(value: Value) -> bool:
    """Whether float32 holds every integer that a value may be. Comparisons with such an integer are exact as well."""
    low, high = range_of(value)
    return low > -_HELD and high < _HELD


def range_of(value: Value, depth: int = _DEPTH) -> Span:
    """The range of the integers that a value may be; `_ANY` where that is not known."""
    if value.type.dtype in _OF_TYPES:
        return _OF_TYPES[value.type.dtype]
    if isinstance(value, Constant):
        return Span.of(value.array) if value.array.size else Span(0, 0)
    if value.type.dtype.kind != "int" or not isinstance(value, Result) or not depth:
        return _ANY
    node = value.node
    name = node.op.name
    if name in _POSITIONS:
        return _POSITIONS[name](node)
    if name == "topk":
        return Span(0, _LONGEST) if value.index else range_of(operand(node), depth - 1)
    ranges = [_ANY if each is None else range_of(each, depth - 1) for each in node.inputs]
    if name in MOVED:
        return reduce(Span.join, ranges[MOVED[name]])
    return _COMPUTED[name](*ranges) if name in _COMPUTED else _ANY


def sum_is_exact_as_float32(node: Node) -> bool:
    """Whether float32 holds every sum that a reduction computes of integers."""
    (low, high), axis, shape = range_of(operand(node)), node.attributes["axis"], operand(node).type.shape
    sizes = [shape[each] for each in (range(len(shape)) if axis is None else axis)]
    known = math.prod(size for size in sizes if isinstance(size, int))
    count = known if all(isinstance(size, int) for size in sizes) else max(known, _LONGEST)
    return max(-low, high) * count < _HELD


def _size(size: Size) -> Span:
    return Span(size, size) if isinstance(size, int) else Span(-_LONGEST, _LONGEST)


def _total(x: Span) -> Span:
    return Span(min(x.low * _LONGEST, 0), max(x.high * _LONGEST, 0))


def _symmetric(x: Span) -> Span:
    most = max(map(abs, x))
    return Span(-most, most)


_POSITIONS: Mapping[str, Callable[[Node], Span]] = MappingProxyType(
    {
        "arange": lambda node: _size(node.attributes["start"]).join(_size(node.attributes["stop"])),
        "size": lambda node: _size(node.attributes["size"]),
        "full": lambda node: Span(node.attributes["value"], node.attributes["value"]),
        "argmax": lambda node: Span(0, _LONGEST),
    }
)
_COMPUTED: Mapping[str, Callable[..., Span]] = MappingProxyType(
    {**COMPUTED, **dict.fromkeys(("sum", "cumsum"), _total), "abs": _symmetric, "int_mod": lambda x, y: _symmetric(y)}
)
