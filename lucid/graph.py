"""The traced graph: what a model computes, as data.

A graph is what its outputs reach. A `Value` is an `Input`, a `Constant` or one result of a `Node`; nothing else holds a
graph together, so dead code is never in it and two threads can trace at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from lucid import html
from lucid.dims import Dim, evaluate, names_of
from lucid.flat import Flat, flatten, restore
from lucid.structure import fill
from lucid.types import Array, bind_sizes, same_shape, show_shape
from lucid.values import Attributes as Attributes
from lucid.values import Constant as Constant
from lucid.values import Input as Input
from lucid.values import Node as Node
from lucid.values import Operation as Operation
from lucid.values import Part as Part
from lucid.values import Result as Result
from lucid.values import Value as Value


class Names:
    """The names of parameters by the identity of their arrays. Holds the arrays, so that an identity is never
    reused."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        """`named` maps a name to something with a `numpy()` method; the first name of an array counts."""
        self._names: dict[int, tuple[str, Array]] = {}
        for name, tensor in named.items():
            array = tensor.numpy()
            self._names.setdefault(id(array), (name, array))

    @staticmethod
    def of(pairs: Iterable[tuple[str, Array]]) -> Names:
        """These names of these arrays."""
        names = Names({})
        names._names = {id(array): (name, array) for name, array in pairs}
        return names

    def get(self, array: Array) -> str | None:
        """The name of an array, if it has one."""
        found = self._names.get(id(array))
        return found[0] if found else None


class Scope(NamedTuple):
    """Where tracing stands: the path of the running module, the path of each module by identity, and the names of the
    parameters."""

    path: str
    names: Mapping[int, str]
    parameters: Names | None = None

    def knows(self, array: Array) -> bool:
        """Whether an array is a parameter of the model."""
        return self.parameters is not None and self.parameters.get(array) is not None


scope: ContextVar[Scope | None] = ContextVar("lucid_scope", default=None)


def is_tracing() -> bool:
    """Whether a module runs under `lucid.trace` in this thread."""
    return scope.get() is not None


def new_node(op: Operation, inputs: Sequence[Value | None], attributes: Attributes) -> Node:
    """A node in the module that is being traced."""
    types = op.infer([value.type if value is not None else None for value in inputs], attributes)
    here = scope.get()
    return Node(op, tuple(inputs), attributes, types, here.path if here else "")


def in_order(outputs: Sequence[Value], known: Callable[[Value], bool] = lambda value: False) -> list[Node]:
    """The nodes that the outputs reach, each after the nodes it needs; stops at values that are `known`.

    Iterative, so that a model of any depth works. The order is a function of the graph alone.
    """
    ordered: list[Node] = []
    seen: set[int] = set()

    def producers(values: Sequence[Value | None]) -> Iterator[Node]:
        return (value.node for value in values if isinstance(value, Result) and not known(value))

    for start in producers(outputs):
        stack = [(start, producers(start.inputs))] if id(start) not in seen else []
        seen.add(id(start))
        while stack:
            node, pending = stack[-1]
            following = next((n for n in pending if id(n) not in seen), None)
            if following is None:
                ordered.append(node)
                stack.pop()
            else:
                seen.add(id(following))
                stack.append((following, producers(following.inputs)))
    return ordered


def bind(value: Any, sizes: Mapping[str, int]) -> Any:
    """An attribute with its symbolic sizes replaced by numbers."""
    if isinstance(value, Dim):
        return evaluate(value, sizes)
    if isinstance(value, tuple):
        return tuple(bind(item, sizes) for item in value)
    return value


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
    ) -> None:
        """`structure` is what the function returned, with the number of an output in the place of each tensor."""
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs.values())
        self.output_names = tuple(outputs)
        self._names = names or Names({})
        self._structure = (0 if len(outputs) == 1 else tuple(range(len(outputs)))) if structure is None else structure

    @property
    def names(self) -> Names:
        """The names of the parameters, by their arrays."""
        return self._names

    def __reduce__(self) -> tuple[Callable[..., Graph], tuple[Any, ...]]:
        """A copy or a pickle, of a graph of any depth: names, and what is shared, stay as they are."""
        flat = flatten(self.nodes(), self.inputs, self.outputs, self._names.get)
        return _restored, (flat, self.output_names, self._structure)

    def nodes(self) -> list[Node]:
        """The nodes in an order in which they can run."""
        return in_order(self.outputs)

    def name_of(self, constant: Constant) -> str | None:
        """The state_dict key of a parameter, with a suffix for a part of one; None for other constants."""
        name = self._names.get(constant.array)
        suffix, part = "", constant.part
        while name is None and part is not None:
            suffix = part.suffix + suffix
            name, part = self._names.get(part.whole), part.whole_part
        return name and name + suffix

    def with_outputs(self, outputs: Mapping[str, Value]) -> Graph:
        """The same inputs with other outputs: a rewritten graph, or a look at values inside."""
        structure = self._structure if tuple(outputs) == self.output_names else None
        return Graph(self.inputs, outputs, self._names, structure)

    def rebuild(self, values: Sequence[Any]) -> Any:
        """The structure that the traced function returned, around the given values."""
        return fill(self._structure, values)

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """Compute the outputs with NumPy, node by node, dropping each value after its last use.

        Raises:
            TypeError, ValueError: when an array does not fit its input.
        """
        if len(arrays) != len(self.inputs):
            wanted = ", ".join(f"{value.name}: {value.type}" for value in self.inputs)
            raise ValueError(f"graph: got {len(arrays)} arrays, expected {len(self.inputs)} ({wanted})")
        sizes = bind_sizes([v.name for v in self.inputs], [v.type for v in self.inputs], arrays)
        values: dict[int, Array] = {id(v): array for v, array in zip(self.inputs, arrays, strict=True)}
        nodes = self.nodes()
        uses: dict[int, int] = {}
        for value in [*(v for node in nodes for v in node.inputs), *self.outputs]:
            uses[id(value)] = uses.get(id(value), 0) + 1

        def read(value: Value) -> Array:
            return value.array if isinstance(value, Constant) else values[id(value)]

        for node in nodes:
            attributes = {name: bind(value, sizes) for name, value in node.attributes.items()}
            results = node.op.evaluate(
                [read(value) if value is not None else None for value in node.inputs], attributes
            )
            for result, array in zip(node.results, results, strict=True):
                self._check(node, result, array, sizes)
                values[id(result)] = array
            for value in node.inputs:
                uses[id(value)] -= 1
                if not uses[id(value)] and isinstance(value, Result):
                    del values[id(value)]
        return [read(value) for value in self.outputs]

    def __call__(self, *arrays: Any) -> Any:
        """Run with NumPy: arrays in the order of `inputs`; returns arrays in the structure the function returned."""
        return self.rebuild(self.run([np.asarray(array) for array in arrays]))

    @staticmethod
    def _check(node: Node, result: Result, array: Array, sizes: Mapping[str, int]) -> None:
        expected = bind(result.type.shape, sizes)
        if array.shape != expected:
            raise ValueError(
                f"{node.op.name}: its result has shape {show_shape(array.shape)} where the trace promised "
                f"{show_shape(expected)}: a slice or index reaches past the end of an axis of symbolic size"
            )

    def verify(self) -> None:
        """Check that every node's recorded types follow from its inputs.

        Raises:
            ValueError: naming the node that is wrong, after a faulty rewrite or type rule.
        """
        inputs = {id(value) for value in self.inputs}
        for node in self.nodes():
            for value in node.inputs:
                if isinstance(value, Input) and id(value) not in inputs:
                    raise ValueError(f"graph: {node.op.name} reads {value.name}, which is no input of this graph")
            types = node.op.infer([value.type if value is not None else None for value in node.inputs], node.attributes)
            for got, expected in zip(node.types, types, strict=True):
                if got.dtype != expected.dtype or not same_shape(got.shape, expected.shape):
                    raise ValueError(f"graph: {node.op.name} is recorded as {got}, its inputs give {expected}")

    def sizes(self) -> set[str]:
        """The names of the symbolic sizes of the inputs."""
        return names_of(size for value in self.inputs for size in value.type.shape)

    def __str__(self) -> str:
        return show(self)

    def _repr_html_(self) -> str:
        return html.listing(show(self))


def _restored(flat: Flat, output_names: Sequence[str], structure: Any) -> Graph:
    inputs, outputs, named = restore(flat)
    return Graph(inputs, dict(zip(output_names, outputs, strict=True)), Names.of(named), structure)


def show(graph: Graph) -> str:
    """The graph as text, one line a node: name, op, arguments, type; a comment opens each module."""
    names: dict[int, str] = {id(value): value.name for value in graph.inputs}
    taken = dict.fromkeys(names.values(), 1)

    def name(value: Value | None) -> str:
        if value is None:
            return "None"
        if isinstance(value, Constant):
            return graph.name_of(value) or _show_array(value)
        return names[id(value)]

    lines: list[tuple[str, str]] = []
    previous = ""
    for node in graph.nodes():
        for result in node.results:
            names[id(result)] = unused_name(node.op.name, taken)
        if node.scope != previous:
            lines.append((f"  # {node.scope or 'top level'}", ""))
            previous = node.scope
        inputs = list(node.inputs)
        while inputs and inputs[-1] is None:
            inputs.pop()
        shown = {key: show_attribute(value) for key, value in node.attributes.items()}
        usual = {key: show_attribute(value) for key, value in node.op.defaults.items()}
        attributes = [f"{key}={text}" for key, text in shown.items() if usual.get(key) != text]
        left = ", ".join(names[id(result)] for result in node.results)
        call = f"{node.op.name}({', '.join([*map(name, inputs), *attributes])})"
        lines.append((f"  {left} = {call}", ", ".join(map(str, node.types))))
    width = min(max((len(left) for left, _ in lines), default=0), 100)
    head = ", ".join(f"{value.name}: {value.type}" for value in graph.inputs)
    tail = ", ".join(str(value.type) for value in graph.outputs)
    body = [f"{left:<{width}}  {right}".rstrip() for left, right in lines]
    return "\n".join([f"graph({head}) -> {tail}", *body, f"  return {', '.join(map(name, graph.outputs))}"])


def show_attribute(value: Any) -> str:
    """An attribute as the printed graph writes it."""
    if isinstance(value, tuple):
        return f"({', '.join(map(show_attribute, value))}{',' if len(value) == 1 else ''})"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _show_array(constant: Constant) -> str:
    return str(constant.array) if constant.array.ndim == 0 else f"<{constant.type}>"


def unused_name(name: str, taken: dict[str, int]) -> str:
    """The name, or with a number behind it where it is taken; it is taken then.

    `taken` holds the last number given to each name, so that a thousand of one name are no more work than that many
    names.
    """
    number = taken.get(name, 0) + 1
    while (candidate := name if number == 1 else f"{name}_{number}") in taken:
        number += 1
    taken[name] = number
    taken.setdefault(candidate, 1)
    return candidate
