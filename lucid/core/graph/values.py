"""The values and nodes of a graph: `Input`, `Constant` and the results of a `Node`; the order in which nodes run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from lucid.core.graph.types import Array, TensorType
from lucid.core.words.user_code import Place

Attributes: TypeAlias = Mapping[str, Any]


class Operation(Protocol):
    """The part of an op that the graph needs; `lucid.ops.Op` provides it."""

    @property
    def name(self) -> str:
        """The op's name."""

    @property
    def defaults(self) -> Attributes:
        """The default values of its attributes."""

    def evaluate(self, inputs: Sequence[Array | None], attributes: Attributes) -> tuple[Array, ...]:
        """Compute the outputs with NumPy."""

    def infer(self, inputs: Sequence[TensorType | None], attributes: Attributes) -> tuple[TensorType, ...]:
        """The types of the outputs."""


@dataclass(eq=False, slots=True)
class Input:
    """A value given when the graph runs; an exported file has the default for those that may be left out."""

    name: str
    type: TensorType
    default: Array | None = None


class Origin(NamedTuple):
    """Records that an array was taken or computed from another, so that it is named after it: ``weight[q].T``."""

    whole: Array
    suffix: str
    whole_origin: Origin | None


@dataclass(eq=False, slots=True)
class Constant:
    """A value known while tracing: a parameter, a slice of one, or any other array."""

    array: Array
    type: TensorType
    origin: Origin | None = None


@dataclass(eq=False, slots=True)
class Node:
    """One application of an op. `scope` is the path of the module that applied it, `place` the line of the user's code
    that did, where that is kept: while gradients are traced, and for reports."""

    op: Operation
    inputs: tuple[Value | None, ...] = field(repr=False)  # else the text of a node holds those of all before it
    attributes: Attributes
    types: tuple[TensorType, ...]
    scope: str
    place: Place | None = field(default=None, repr=False)
    results: tuple[Result, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.results = tuple(Result(self, index) for index in range(len(self.types)))


@dataclass(eq=False, slots=True)
class Result:
    """One output of a node."""

    node: Node
    index: int

    @property
    def type(self) -> TensorType:
        """The type of the value."""
        return self.node.types[self.index]


@dataclass(eq=False, frozen=True, slots=True)
class Body:
    """One step of a loop, as an attribute of its node: a graph that reads only its own inputs and scalars."""

    inputs: tuple[Input, ...]
    outputs: tuple[Value, ...]

    def __str__(self) -> str:
        return f"a body of {len(self.inputs)} inputs"


Value: TypeAlias = Input | Constant | Result


def operand(node: Node, index: int = 0) -> Value:
    """An input of a node that is never absent."""
    value = node.inputs[index]
    assert value is not None
    return value


def in_order(outputs: Sequence[Value], known: Callable[[Value], bool] = lambda value: False) -> list[Node]:
    """The nodes that the outputs reach, each after the nodes that it needs; stops at values that are `known`.

    Iterative, so that a model of any depth works. The order depends on the graph alone.
    """
    ordered: list[Node] = []
    seen: set[int] = set()
    for output in outputs:
        stack: list[tuple[Node | None, Iterator[Value | None]]] = [(None, iter((output,)))]
        while stack:
            node, pending = stack[-1]
            for value in pending:
                if isinstance(value, Result) and id(value.node) not in seen and not known(value):
                    seen.add(id(value.node))
                    stack.append((value.node, iter(value.node.inputs)))
                    break
            else:
                stack.pop()
                if node is not None:
                    ordered.append(node)
    return ordered
