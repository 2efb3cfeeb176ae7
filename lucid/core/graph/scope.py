"""The current place of tracing, and the nodes that are made there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import NamedTuple

from lucid.core.graph.names import Names
from lucid.core.graph.types import Array
from lucid.core.graph.values import Attributes, Node, Operation, Value
from lucid.core.process.context import holding
from lucid.core.sizes.bounds import Bound


class Scope(NamedTuple):
    """The current place of tracing: the path of the running module, the path of each module by identity, the names of
    the parameters, the bounds of sizes that modules have added, and, while gradients are traced, the values that stand
    for parameters, by the identity of these.
    """

    path: str
    names: Mapping[int, str]
    parameters: Names | None = None
    bounds: list[Bound] | None = None
    given: Mapping[int, Value] | None = None

    def knows(self, array: Array) -> bool:
        """Whether an array is a parameter of the model."""
        return self.parameters is not None and self.parameters.get(array) is not None


scope: ContextVar[Scope | None] = ContextVar("lucid_scope", default=None)


def entered(inside: Scope) -> AbstractContextManager[None]:
    """Inside, nodes made in this thread belong to this scope."""
    return holding(scope, inside)


def is_tracing() -> bool:
    """Whether this thread is tracing."""
    return scope.get() is not None


def is_differentiated() -> bool:
    """Whether this thread traces a function whose gradients are wanted."""
    here = scope.get()
    return here is not None and here.given is not None


no_gradients: ContextVar[bool] = ContextVar("lucid_no_gradients", default=False)
"""Whether what is computed is a constant for gradients, as in torch's `no_grad`."""


def given_values(values: Mapping[int, Value]) -> AbstractContextManager[None]:
    """Inside, these values stand for parameters, given by their identity; only while tracing."""
    here = scope.get()
    assert here is not None
    return entered(here._replace(given={**(here.given or {}), **values}))


def new_node(op: Operation, inputs: Sequence[Value | None], attributes: Attributes) -> Node:
    """Make a node in the module that is being traced."""
    types = op.infer([value.type if value is not None else None for value in inputs], attributes)
    here = scope.get()
    return Node(op, tuple(inputs), attributes, types, here.path if here else "")
