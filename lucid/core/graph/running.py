"""A graph computed with NumPy, node by node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from lucid.core.graph.loop_bodies import bound
from lucid.core.graph.types import Array, bind_sizes, show_shape
from lucid.core.graph.values import Constant, Input, Node, Result, Value, in_order
from lucid.core.sizes.bounds import Bound
from lucid.core.sizes.dims import bind, evaluate


def sizes_in(inputs: Sequence[Input], arrays: Sequence[Array]) -> dict[str, int]:
    """The values of the symbolic sizes of inputs, from an array for each.

    Raises:
        TypeError, ValueError: for an array that does not fit its input.
    """
    return bind_sizes([value.name for value in inputs], [value.type for value in inputs], arrays)


def run(
    inputs: Sequence[Input],
    outputs: Sequence[Value],
    arrays: Sequence[Array],
    watch: Callable[[Result, Array], None] | None = None,
    bounds: Sequence[Bound] = (),
) -> list[Array]:
    """The outputs for these arrays of the inputs; each value is dropped after its last use. `watch` sees every result.

    Raises:
        TypeError, ValueError: for an array that does not fit its input, or a size outside of its bound.
    """
    if len(arrays) != len(inputs):
        expected = ", ".join(f"{value.name}: {value.type}" for value in inputs)
        raise ValueError(f"graph: got {len(arrays)} arrays, expected {len(inputs)} ({expected})")
    sizes = sizes_in(inputs, arrays)
    for bound_of_size in bounds:
        bound_of_size.check("graph", evaluate(bound_of_size.size, sizes))
    values: dict[int, Array] = {id(value): array for value, array in zip(inputs, arrays, strict=True)}
    nodes = in_order(outputs)
    uses = Counter(id(value) for value in (*(value for node in nodes for value in node.inputs), *outputs))

    def read(value: Value) -> Array:
        return value.array if isinstance(value, Constant) else values[id(value)]

    for node in nodes:
        attributes = {name: bound(value, sizes) for name, value in node.attributes.items()}
        results = node.op.evaluate([None if value is None else read(value) for value in node.inputs], attributes)
        for result, array in zip(node.results, results, strict=True):
            _check(node, result, array, sizes)
            values[id(result)] = array
            if watch is not None:
                watch(result, array)
        for value in node.inputs:
            uses[id(value)] -= 1
            if not uses[id(value)] and isinstance(value, Result):
                del values[id(value)]
    return [read(value) for value in outputs]


def _check(node: Node, result: Result, array: Array, sizes: Mapping[str, int]) -> None:
    expected = bind(result.type.shape, sizes)
    if array.shape != expected:
        raise ValueError(
            f"{node.op.name}: its result has shape {show_shape(array.shape)}, but the trace expected "
            f"{show_shape(expected)}: a slice or index is past the end of an axis of symbolic size"
        )
