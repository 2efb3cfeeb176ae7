"""How named sizes are read from input shapes: ``L`` is the size of an axis, or half of an axis that is ``2*L`` long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from lucid.core.sizes.dims import Dim, Shape, Size, as_written, evaluate, names_of


class Reading(NamedTuple):
    """The value of a name: (length of an axis - rest) // times, where `rest` has only names that are read before."""

    name: str
    source: int
    """The index of the shape with that axis."""
    axis: int
    size: Size
    """The size of that axis, as specified."""
    times: int
    rest: Size

    def value(self, length: int, sizes: Mapping[str, int]) -> int:
        """The value, from the length of the axis and the values of earlier names.

        Raises:
            ValueError: if no value fits.
        """
        value, remainder = divmod(length - evaluate(self.rest, sizes), self.times)
        if remainder or value < 0:
            raise ValueError(f"expected {self.size}, with a whole number {self.name} of 0 or more")
        return value


def readings(shapes: Sequence[Shape]) -> list[Reading]:
    """All names that can be read, names that are the whole size of an axis first."""
    axes = [(source, axis, size) for source, shape in enumerate(shapes) for axis, size in enumerate(shape)]
    symbolic = [(source, axis, size) for source, axis, size in axes if isinstance(size, Dim)]
    by_name: dict[str, Reading] = {}
    for source, axis, size in symbolic:
        name = str(size)
        if name in size.names():
            by_name.setdefault(name, Reading(name, source, axis, size, 1, 0))
    while more := list(_solved(symbolic, by_name)):
        by_name |= {reading.name: reading for reading in more[:1]}
    return list(by_name.values())


def _solved(axes: Iterable[tuple[int, int, Dim]], known: Mapping[str, Reading]) -> Iterator[Reading]:
    """Names that are the only unknown in the size of an axis, and at most multiplied by a number."""
    for source, axis, size in axes:
        names = size.names() - known.keys()
        if len(names) != 1:
            continue
        (name,) = names
        times = size.terms.get((name,), 0)
        rest = as_written({product: c for product, c in size.terms.items() if product != (name,)})
        if times > 0 and name not in names_of([rest]):
            yield Reading(name, source, axis, size, times, rest)
