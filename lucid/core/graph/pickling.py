"""Copies and pickles of graphs: a graph as flat data, so that any depth works and shared arrays stay shared.

Objects refer to each other by number instead of by identity. Arrays that share memory, such as a weight and its
transpose, still share it afterwards, so an exporter writes them once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np

from lucid.core.graph.types import Array, TensorType
from lucid.core.graph.values import Body, Constant, Input, Node, Operation, Origin, Value, in_order

T = TypeVar("T")
Reference: TypeAlias = tuple[int, ...]  # (0, input), (1, constant) or (2, node, result)
_INPUT, _CONSTANT, _RESULT = range(3)


class FlatNode(NamedTuple):
    """A node with references instead of values."""

    op: Operation
    inputs: tuple[Reference | None, ...]
    attributes: dict[str, Any]
    types: tuple[TensorType, ...]
    scope: str


class FlatConstant(NamedTuple):
    """A constant with numbers instead of arrays, and its chain of origins, outermost last."""

    array: int
    type: TensorType
    origins: tuple[tuple[int, str], ...]


class FlatArray(NamedTuple):
    """The place of an array in a block of memory; block -1 for one without elements."""

    block: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    name: str | None


class Flat(NamedTuple):
    """A graph as data."""

    blocks: tuple[Array, ...]
    arrays: tuple[FlatArray, ...]
    constants: tuple[FlatConstant, ...]
    inputs: tuple[Input, ...]
    own_inputs: int  # the first ones, which are the graph's; only an invalid graph has others
    nodes: tuple[FlatNode, ...]
    outputs: tuple[Reference, ...]


class _Numbered(Generic[T]):
    """Objects by the number of their first appearance."""

    def __init__(self, items: Iterable[T] = ()) -> None:
        self.items: list[T] = []
        self._numbers: dict[int, int] = {}
        for item in items:
            self.number(item)

    def number(self, item: T) -> int:
        number = self._numbers.setdefault(id(item), len(self.items))
        if number == len(self.items):
            self.items.append(item)
        return number


def flatten(
    nodes: Sequence[Node], inputs: Sequence[Input], outputs: Sequence[Value], name_of: Callable[[Array], str | None]
) -> Flat:
    """The nodes of a graph, each after those it needs, as data; `name_of` gives the names of parameters."""
    numbered_inputs, numbered_constants, numbered_nodes = _Numbered(inputs), _Numbered[Constant](), _Numbered(nodes)

    def reference(value: Value) -> Reference:
        if isinstance(value, Input):
            return _INPUT, numbered_inputs.number(value)
        if isinstance(value, Constant):
            return _CONSTANT, numbered_constants.number(value)
        return _RESULT, numbered_nodes.number(value.node), value.index

    flat_nodes = tuple(
        FlatNode(
            node.op,
            tuple(None if value is None else reference(value) for value in node.inputs),
            {name: _flat_attribute(attribute) for name, attribute in node.attributes.items()},
            node.types,
            node.scope,
        )
        for node in nodes
    )
    flat_outputs = tuple(map(reference, outputs))
    arrays = _Numbered[Array]()
    flat_constants = tuple(
        FlatConstant(
            arrays.number(constant.array),
            constant.type,
            tuple((arrays.number(origin.whole), origin.suffix) for origin in _chain(constant.origin)),
        )
        for constant in numbered_constants.items
    )
    blocks, places = _pack(arrays.items)
    flat_arrays = tuple(
        FlatArray(block, offset, array.shape, array.strides, array.dtype, name_of(array))
        for array, (block, offset) in zip(arrays.items, places, strict=True)
    )
    return Flat(
        blocks, flat_arrays, flat_constants, tuple(numbered_inputs.items), len(inputs), flat_nodes, flat_outputs
    )


def restore(flat: Flat) -> tuple[tuple[Input, ...], list[Value], list[tuple[str, Array]]]:
    """Inputs, outputs and named arrays of a copy of the flattened graph, which shares nothing with it."""
    arrays: list[Array] = [_unpacked(entry, flat.blocks) for entry in flat.arrays]
    constants = [
        Constant(arrays[entry.array], entry.type, _linked((arrays[whole], suffix) for whole, suffix in entry.origins))
        for entry in flat.constants
    ]
    nodes: list[Node] = []

    def value(reference: Reference) -> Value:
        kind, number, *rest = reference
        if kind == _INPUT:
            return flat.inputs[number]
        return constants[number] if kind == _CONSTANT else nodes[number].results[rest[0]]

    for entry in flat.nodes:
        inputs = tuple(None if reference is None else value(reference) for reference in entry.inputs)
        attributes = {name: _restored_attribute(attribute) for name, attribute in entry.attributes.items()}
        nodes.append(Node(entry.op, inputs, attributes, entry.types, entry.scope))
    named = [(entry.name, array) for entry, array in zip(flat.arrays, arrays, strict=True) if entry.name is not None]
    return flat.inputs[: flat.own_inputs], [value(reference) for reference in flat.outputs], named


def _flat_attribute(value: Any) -> Any:
    if not isinstance(value, Body):
        return value
    return flatten(in_order(value.outputs), value.inputs, value.outputs, lambda array: None)


def _restored_attribute(value: Any) -> Any:
    if not isinstance(value, Flat):
        return value
    inputs, outputs, _ = restore(value)
    return Body(inputs, tuple(outputs))


def _chain(origin: Origin | None) -> Iterator[Origin]:
    while origin is not None:
        yield origin
        origin = origin.whole_origin


def _linked(origins: Iterable[tuple[Array, str]]) -> Origin | None:
    linked: Origin | None = None
    for whole, suffix in reversed(list(origins)):
        linked = Origin(whole, suffix, linked)
    return linked


def _pack(arrays: Sequence[Array]) -> tuple[tuple[Array, ...], list[tuple[int, int]]]:
    """The memory blocks of the arrays, one block for arrays that overlap, and the block and offset of each array."""
    bounds = {number: np.lib.array_utils.byte_bounds(array) for number, array in enumerate(arrays) if array.size}
    places = [(-1, 0)] * len(arrays)
    spans: list[tuple[int, int, int]] = []  # start and end, and the first array in it
    for number, (low, high) in sorted(bounds.items(), key=lambda item: item[1]):
        if spans and low < spans[-1][1]:
            begin, end, first = spans[-1]
            spans[-1] = begin, max(end, high), first
        else:
            spans.append((low, high, number))
        places[number] = len(spans) - 1, arrays[number].__array_interface__["data"][0] - spans[-1][0]
    return tuple(_memory(arrays[first], high - low) for low, high, first in spans), places


def _memory(array: Array, length: int) -> Array:
    """The bytes from the lowest address of an array on, as a view."""
    array = np.atleast_1d(array)  # a selection from an array without axes would be a copy
    forwards = array[tuple(slice(None, None, -1 if stride < 0 else 1) for stride in array.strides)]
    lowest = forwards[(slice(1),) * array.ndim].reshape(1).view(np.uint8)
    return np.lib.stride_tricks.as_strided(lowest, (length,), (1,), writeable=False)


def _unpacked(entry: FlatArray, blocks: Sequence[Array]) -> Array:
    if entry.block < 0:
        return np.empty(entry.shape, entry.dtype)
    return np.ndarray(entry.shape, entry.dtype, blocks[entry.block], entry.offset, entry.strides)
