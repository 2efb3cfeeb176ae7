"""Ranges of the integers in a graph: which rows of tables they index, and how long a sequence the tables allow.

Ranges of integers are propagated through the graph twice, for given sizes: forward, from constants and `arange` to what
a value can be; and backward, from the size of a table to what an input may be. An unknown op gives no range and needs
none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NamedTuple, Self

from lucid.core.graph.graph import Graph
from lucid.core.graph.types import Array
from lucid.core.graph.values import Constant, Node, Result, Value
from lucid.core.sizes.dims import Shape, Size, evaluate

FAR = 1 << 62
"""The end of a range without an end."""
_LARGEST = 1 << 20


class Span(NamedTuple):
    """The integers from `low` to `high`, both included."""

    low: int
    high: int

    @classmethod
    def of(cls, array: Array) -> Self:
        """The range of the integers in an array, which is not empty."""
        return cls(int(array.min()), int(array.max()))

    def meet(self, other: Span) -> Span:
        """The integers in both ranges; `low` is above `high` if there are none."""
        return Span(max(self.low, other.low), min(self.high, other.high))

    def join(self, other: Span) -> Span:
        """The smallest range that holds both."""
        return Span(min(self.low, other.low), max(self.high, other.high))


@dataclass(frozen=True)
class Use:
    """How the graph uses the integers of an input."""

    allowed: Span | None = None  # the indices that the tables have which they index; None if they index nothing
    # The range of the values that they are compared with, such as positions; None if there are none.
    compared: Span | None = None
    told_apart: tuple[int, ...] = ()  # single numbers that they are compared with, such as the id of padding


class IndexRanges:
    """The ranges of integers in a graph, for given values of its sizes."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._nodes = graph, [node for node in graph.nodes() if _matters(node)]
        constants = (value for node in self._nodes for value in node.inputs if isinstance(value, Constant))
        self._constants = {id(value): Span.of(value.array) for value in constants if _is_small(value)}

    def uses(self, sizes: Mapping[str, int]) -> dict[str, Use]:
        """The use of each integer input by name."""
        return _Ranges(self._graph, self._nodes, self._constants, sizes).uses()

    def fits(self, sizes: Mapping[str, int]) -> bool:
        """Whether sizes are up to the graph's bounds, and tables hold all positions that it computes, as far as their
        range is known.
        """
        if any(most is not None and evaluate(size, sizes) > most for size, _, most in self._graph.bounds):
            return False
        ranges = _Ranges(self._graph, self._nodes, self._constants, sizes)
        if not all(start >= 0 and stop <= size for start, stop, size in ranges.slices()):
            return False
        uses = ranges.uses()
        if any(use.allowed is not None and use.allowed.low > use.allowed.high for use in uses.values()):
            return False
        ranges.assume({name: use.allowed or use.compared or Span(0, 1) for name, use in uses.items()})
        pairs = ((ranges.known.get(id(value)), max(rows)) for value, rows in ranges.indices())
        return all(reached is None or -rows <= reached.low <= reached.high < rows for reached, rows in pairs)


class _Ranges:
    """The ranges of the integers and booleans of a graph, by the identity of the value."""

    def __init__(
        self, graph: Graph, nodes: Sequence[Node], constants: Mapping[int, Span], sizes: Mapping[str, int]
    ) -> None:
        self._graph, self._nodes, self._constants, self._sizes = graph, nodes, constants, sizes
        self.known: dict[int, Span] = {}
        self.assume({})

    def assume(self, inputs: Mapping[str, Span]) -> None:
        """Compute forward, from ranges of some inputs."""
        self.known = dict(self._constants)
        self.known |= {id(value): Span(0, 1) for value in self._graph.inputs if value.type.dtype.kind == "bool"}
        self.known |= {id(value): inputs[value.name] for value in self._graph.inputs if value.name in inputs}
        for node in self._nodes:
            for result in node.results:
                reached = self._reached(node, result) if _whole(result) else None
                if reached is not None:
                    self.known[id(result)] = reached

    def _reached(self, node: Node, result: Result) -> Span | None:
        name, attributes = node.op.name, node.attributes
        if name in _GENERATED:
            return _GENERATED[name](self, attributes)
        if name == "argmax" or (name == "topk" and result.index == 1):
            operand = node.inputs[0]
            return None if operand is None else Span(0, self._size(operand.type.shape[attributes["axis"]]) - 1)
        operands = [None if value is None else self.known.get(id(value)) for value in node.inputs]
        if name in MOVED:
            return _joined(operands[MOVED[name]])
        if name == "cumsum" and operands[0] is not None and (axis := node.inputs[0]) is not None:
            length, (low, high) = self._size(axis.type.shape[attributes["axis"]]), operands[0]
            return Span(min(low, low * length), max(high, high * length))
        known = [reached for reached in operands if reached is not None]
        if name in COMPUTED and len(known) == len(operands):
            return COMPUTED[name](*known)
        if name == "int_mod" and operands[1] is not None and operands[1].low > 0:
            return Span(0, operands[1].high - 1)
        return Span(0, 1) if result.type.dtype.kind == "bool" else None

    def _size(self, size: Size) -> int:
        return evaluate(size, self._sizes)

    def slices(self) -> Iterator[tuple[int, int, int]]:
        """Start, stop and size of the axis of every slice."""
        for node in self._nodes:
            if node.op.name == "slice" and (operand := node.inputs[0]) is not None:
                for axis, start, stop, step in node.attributes["cuts"]:
                    if step > 0:
                        yield self._size(start), self._size(stop), self._size(operand.type.shape[axis])

    def indices(self) -> Iterator[tuple[Value, list[int]]]:
        """Each value that indexes something, and the number of rows of each axis that it indexes."""
        for node in self._nodes:
            if node.op.name in INDEXING:
                place, rows = INDEXING[node.op.name]
                shapes = [() if value is None else value.type.shape for value in node.inputs]
                index = node.inputs[place]
                if index is not None:
                    yield index, [self._size(size) for size in rows(shapes, node.attributes)]

    def uses(self) -> dict[str, Use]:
        """The use of each integer input by name."""
        allowed: dict[int, Span] = {}
        compared: dict[int, Span] = {}
        told_apart: dict[int, set[int]] = {}

        def allow(value: Value | None, allowed_range: Span) -> None:
            if value is not None and _whole(value):
                allowed[id(value)] = allowed[id(value)].meet(allowed_range) if id(value) in allowed else allowed_range

        for index, rows in self.indices():
            allow(index, Span(0, min(rows) - 1))
        for node in reversed(self._nodes):
            ranges = [allowed[id(result)] for result in node.results if id(result) in allowed]
            others = [None if value is None else self.known.get(id(value)) for value in node.inputs]
            if ranges:
                self._allow_operands(node, ranges[0], others, allow)
            if node.op.name in _COMPARING and all(value is not None for value in node.inputs):
                for value, other in zip(node.inputs, reversed(others), strict=True):
                    if other is not None and other.low == other.high:
                        told_apart.setdefault(id(value), set()).add(other.low)
                    elif other is not None:
                        before = compared.get(id(value), other)
                        compared[id(value)] = before.join(other)
            for name in MOVED.keys() & {node.op.name}:  # a cast mask is compared as the mask itself
                for result in node.results:
                    for value in node.inputs[MOVED[name]]:
                        if id(result) in compared:
                            compared[id(value)] = compared[id(result)]
                        told_apart.setdefault(id(value), set()).update(told_apart.get(id(result), ()))
        return {
            value.name: Use(
                allowed.get(id(value)), compared.get(id(value)), tuple(sorted(told_apart.get(id(value), ())))
            )
            for value in self._graph.inputs
            if value.type.dtype.kind == "int"
        }

    def _allow_operands(
        self, node: Node, result: Span, others: Sequence[Span | None], allow: Callable[[Value | None, Span], None]
    ) -> None:
        """Derive the ranges of operands from the range that a result may have."""
        name, operands = node.op.name, node.inputs
        if name in MOVED:
            for value in operands[MOVED[name]]:
                allow(value, result)
        elif name in ("add", "sub", "mul", "minimum", "maximum"):
            for value, other, first in ((operands[0], others[1], True), (operands[1], others[0], False)):
                if other is not None:
                    allow(value, _OPERAND_SPANS[name](result, other, first))


def largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `most` that fits, if all smaller ones fit as well; 1 if none does."""
    low, high = 1, most + 1  # fits, does not fit
    if fits(most):
        return most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _is_small(constant: Constant) -> bool:
    """Whether a constant may be a table of positions: packed weights are larger."""
    return _whole(constant) and 0 < constant.array.size <= _LARGEST


def _matters(node: Node) -> bool:
    """Whether a node has integers or booleans as results, or selects rows: most nodes of a model do neither."""
    return node.op.name in INDEXING or node.op.name == "slice" or any(map(_whole, node.results))


def _whole(value: Value) -> bool:
    return value.type.dtype.kind in ("int", "bool")


def _joined(operands: Sequence[Span | None]) -> Span | None:
    known = [operand for operand in operands if operand is not None]
    return reduce(Span.join, known) if known and len(known) == len(operands) else None


def _products(x: Span, y: Span) -> Span:
    products = [a * b for a in x for b in y]
    return Span(min(products), max(products))


def _factor(result: Span, other: Span, first: bool) -> Span:
    """The range of a factor, where the other one is not negative; otherwise any number may do."""
    if other.low < 0 or other.high == 0 or (other.low == 0 and not result.low <= 0 <= result.high):
        return Span(-FAR, FAR)
    return Span(-(-result.low // other.high), result.high // other.high)


def _difference(result: Span, other: Span, first: bool) -> Span:
    if first:
        return Span(result.low + other.high, result.high + other.low)
    return Span(other.high - result.high, other.low - result.low)


def _at_least(result: Span, other: Span, first: bool) -> Span:
    """The range of an operand of a maximum. Where the other operand is allowed, this one may lie below it."""
    return Span(other.low - 1 if other.low >= result.low else result.low, result.high)


def _at_most(result: Span, other: Span, first: bool) -> Span:
    return Span(result.low, other.high + 1 if other.high <= result.high else result.high)


_OPERAND_SPANS: dict[str, Callable[[Span, Span, bool], Span]] = {
    "add": lambda result, other, first: Span(result.low - other.low, result.high - other.high),
    "sub": _difference,
    "mul": _factor,
    "maximum": _at_least,
    "minimum": _at_most,
}
_COMPARING = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_GENERATED: dict[str, Callable[[_Ranges, Mapping[str, Any]], Span | None]] = {
    "arange": lambda ranges, attributes: Span(ranges._size(attributes["start"]), ranges._size(attributes["stop"]) - 1),
    "size": lambda ranges, attributes: Span(ranges._size(attributes["size"]), ranges._size(attributes["size"])),
    "full": lambda ranges, attributes: Span(int(attributes["value"]), int(attributes["value"])),
}
_FIRST = slice(0, 1)
MOVED = {
    **dict.fromkeys(("cast", "reshape", "squeeze", "unsqueeze", "permute", "expand", "tile", "slice", "split"), _FIRST),
    **dict.fromkeys(("take", "take_along", "gather_nd", "max", "min"), _FIRST),
    "concat": slice(None),
    "where": slice(1, 3),
}
"""Ops whose results are elements of operands, and of which ones."""
COMPUTED: dict[str, Callable[..., Span]] = {
    "add": lambda x, y: Span(x.low + y.low, x.high + y.high),
    "sub": lambda x, y: Span(x.low - y.high, x.high - y.low),
    "mul": _products,
    "neg": lambda x: Span(-x.high, -x.low),
    "minimum": lambda x, y: Span(min(x.low, y.low), min(x.high, y.high)),
    "maximum": lambda x, y: Span(max(x.low, y.low), max(x.high, y.high)),
}
"""The range of a result from those of the operands, by op."""
_Rows = Callable[[Sequence[Shape], Mapping[str, Any]], Sequence[Size]]
# By op: which operand holds the indices, and how many rows they choose from, of which the fewest count.
INDEXING: dict[str, tuple[int, _Rows]] = {
    "embedding": (0, lambda shapes, attributes: shapes[1][:1]),
    "quantized_embedding": (0, lambda shapes, attributes: shapes[1][:1]),
    "int8_embedding": (0, lambda shapes, attributes: shapes[1][:1]),
    "take": (1, lambda shapes, attributes: [shapes[0][attributes["axis"]]]),
    "take_along": (1, lambda shapes, attributes: [shapes[0][attributes["axis"]]]),
    "scatter": (1, lambda shapes, attributes: [shapes[0][attributes["axis"]]]),
    "gather_nd": (1, lambda shapes, attributes: shapes[0][: shapes[1][-1]]),
    "write_at": (2, lambda shapes, attributes: [shapes[0][attributes["axis"]] - shapes[1][attributes["axis"]] + 1]),
    "buffered_attention": (5, lambda shapes, attributes: [shapes[3][2] - shapes[0][-2] + 1]),
}


_ENDLESS = 1 << 20


def size_limits(graph: Graph) -> dict[str, int]:
    """The largest value of each symbolic size for which tables hold all positions that the graph computes.

    It is 512 for the length of a BERT. Sizes without a limit are left out, and so are sizes whose limit depends on
    another one, as the number of new tokens depends on the capacity of a buffer.
    """
    ones, ranges = dict.fromkeys(sorted(graph.sizes()), 1), IndexRanges(graph)

    def fits(others: Mapping[str, int], name: str, size: int) -> bool:
        return ranges.fits({**others, name: size})

    try:
        if not ranges.fits(ones):
            return {}
        limits = {name: largest(_ENDLESS, partial(fits, ones, name)) for name in ones}
        limits = {name: limit for name, limit in limits.items() if limit < _ENDLESS}
        most = {**dict.fromkeys(ones, _ENDLESS), **limits}
        return {
            name: limit
            for name, limit in limits.items()
            if (limit == 1 or fits(most, name, limit)) and not fits(most, name, limit + 1)
        }
    except ZeroDivisionError:  # a size that is divided by another one less 1
        return {}
