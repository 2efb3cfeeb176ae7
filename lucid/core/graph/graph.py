"""The traced graph: what a model computes, as data.

A graph consists of the nodes that its outputs reach. A `Value` is an `Input`, a `Constant` or one result of a `Node`.
There is no other record of nodes, so a graph has no dead code, and two threads can trace at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lucid.core.graph.loop_bodies import with_bodies
from lucid.core.graph.names import Names
from lucid.core.graph.pickling import Flat, flatten, restore
from lucid.core.graph.printing import listing
from lucid.core.graph.pytree import fill
from lucid.core.graph.running import run, sizes_in
from lucid.core.graph.types import Array
from lucid.core.graph.values import Body, Constant, Input, Node, Result, Value, in_order
from lucid.core.sizes.bounds import Bound
from lucid.core.sizes.dims import names_of
from lucid.core.words import html


class Remark(NamedTuple):
    """A decision of tracing about the nodes of a module, its reason, and the code for another decision."""

    path: str
    op: str
    decision: str
    because: str = ""
    instead: str = ""


class Graph:
    """A traced model: inputs, outputs and the nodes between them.

    Call it with arrays to run it with NumPy; print it to read it.
    """

    def __init__(
        self,
        inputs: Sequence[Input],
        outputs: Mapping[str, Value],
        names: Names | None = None,
        structure: Any = None,
        bounds: Sequence[Bound] = (),
        remarks: Sequence[Remark] = (),
    ) -> None:
        """`structure` is what the function returned, with each tensor replaced by the number of its output; `bounds`
        are sizes with the largest values for which the graph computes what the function does; `remarks` are for
        `explain`.
        """
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs.values())
        self.output_names = tuple(outputs)
        self.bounds = tuple(bounds)
        self.remarks = tuple(remarks)
        self._names = names or Names()
        self._structure = (0 if len(outputs) == 1 else tuple(range(len(outputs)))) if structure is None else structure

    @property
    def names(self) -> Names:
        """The names of the parameters, by their arrays."""
        return self._names

    def __reduce__(self) -> tuple[Callable[..., Graph], tuple[Any, ...]]:
        """Support copies and pickles of graphs of any depth, with their names and shared arrays."""
        flat = flatten(self.nodes(), self.inputs, self.outputs, self._names.get)
        return _restored, (flat, self.output_names, self._structure, self.bounds, self.remarks)

    def nodes(self) -> list[Node]:
        """The nodes in an order in which they can run."""
        return in_order(self.outputs)

    def op_names(self) -> set[str]:
        """The names of the ops, including those in loop bodies."""
        return {node.op.name for node in with_bodies(self.nodes())}

    def name_of(self, constant: Constant) -> str | None:
        """The state_dict key of a parameter, or of the one a constant comes from with a suffix; None for others."""
        name = self._names.get(constant.array)
        suffix, origin = "", constant.origin
        while name is None and origin is not None:
            suffix = origin.suffix + suffix
            name, origin = self._names.get(origin.whole), origin.whole_origin
        return name and name + suffix

    def sizes(self) -> set[str]:
        """The names of the symbolic sizes of the inputs."""
        return names_of(size for value in self.inputs for size in value.type.shape)

    def sizes_in(self, arrays: Sequence[Array]) -> dict[str, int]:
        """The values of the symbolic sizes, from an array for each input.

        Raises:
            TypeError, ValueError: for an array that does not fit its input.
        """
        return sizes_in(self.inputs, arrays)

    def with_outputs(
        self,
        outputs: Mapping[str, Value],
        inputs: Sequence[Input] | None = None,
        names: Sequence[tuple[str, Array]] = (),
        bounds: Sequence[Bound] = (),
        remarks: Sequence[Remark] = (),
    ) -> Graph:
        """The graph with other outputs, such as rewritten or inner values; a rewrite may also give inputs, and more
        names, bounds and remarks.
        """
        structure = self._structure if tuple(outputs) == self.output_names else None
        known = self._names.extended(names) if names else self._names
        more = (*self.bounds, *bounds), (*self.remarks, *remarks)
        return Graph(self.inputs if inputs is None else inputs, outputs, known, structure, *more)

    def rebuild(self, values: Sequence[Any]) -> Any:
        """The structure that the traced function returned, around the given values."""
        return fill(self._structure, values)

    def run(self, arrays: Sequence[Array], watch: Callable[[Result, Array], None] | None = None) -> list[Array]:
        """Compute the outputs with NumPy, node by node, dropping each value after its last use.

        `watch` is called with every result of a node and its array.

        Raises:
            TypeError, ValueError: for an array that does not fit its input, or a size outside of its bound.
        """
        return run(self.inputs, self.outputs, arrays, watch, self.bounds)

    def __call__(self, *arrays: Any) -> Any:
        """Run with NumPy, on arrays in the order of `inputs`; returns arrays in the structure of the traced result."""
        return self.rebuild(self.run([np.asarray(array) for array in arrays]))

    def verify(self) -> None:
        """Check that every node's recorded types follow from its inputs.

        Raises:
            ValueError: for a node that is wrong, after a faulty rewrite or type rule; the message names it.
        """
        verify(self.inputs, self.outputs)

    def __str__(self) -> str:
        return listing(self.inputs, self.outputs, self.name_of)

    def _repr_html_(self) -> str:
        return html.listing(str(self))


def _restored(
    flat: Flat, output_names: Sequence[str], structure: Any, bounds: Sequence[Bound], remarks: Sequence[Remark]
) -> Graph:
    inputs, outputs, named = restore(flat)
    return Graph(inputs, dict(zip(output_names, outputs, strict=True)), Names(named), structure, bounds, remarks)


def verify(inputs: Sequence[Input], outputs: Sequence[Value]) -> None:
    """Check that the nodes that the outputs reach read only these inputs, and have the types that follow from them.

    Raises:
        ValueError: for a wrong node, which the message names.
    """
    own = {id(value) for value in inputs}
    for node in in_order(outputs):
        for value in node.inputs:
            if isinstance(value, Input) and id(value) not in own:
                raise ValueError(f"graph: {node.op.name} reads {value.name}, which is not an input of this graph")
        for attribute in node.attributes.values():
            if isinstance(attribute, Body):
                verify(attribute.inputs, attribute.outputs)
        types = node.op.infer([None if value is None else value.type for value in node.inputs], node.attributes)
        for got, expected in zip(node.types, types, strict=True):
            if got != expected:
                raise ValueError(f"graph: {node.op.name} is recorded as {got}, but its inputs give {expected}")
