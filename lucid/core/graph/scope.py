"""The current place of tracing, and the nodes that are made there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from lucid.core.graph.names import Names
from lucid.core.graph.types import Array
from lucid.core.graph.values import Attributes, Input, Node, Operation, Value
from lucid.core.process.context import holding
from lucid.core.sizes.bounds import Bound
from lucid.core.words.user_code import user_place, warn


class Read(NamedTuple):
    """Values read by a trace that may have changed when its graph runs again: parameters with the inputs that stand for
    them, and modules with their modes, by identity.
    """

    parameters: dict[int, tuple[Any, Input]]
    modes: dict[int, tuple[Any, tuple[bool, bool]]]

    def value(self, parameter: Any) -> Input:
        """The input that stands for a parameter."""
        new = Input(f"parameter_{len(self.parameters)}", parameter.spec)
        return self.parameters.setdefault(id(parameter), (parameter, new))[1]

    def is_current(self) -> bool:
        """Whether the types of parameters and the modes of modules are still the same."""
        return all(parameter.spec == value.type for parameter, value in self.parameters.values()) and all(
            (module.training, module.recomputed) == modes for module, modes in self.modes.values()
        )


class Scope(NamedTuple):
    """The current place of tracing."""

    path: str  # of the running module
    names: Mapping[int, str]  # the path of each module, by identity
    parameters: Names | None = None  # their names
    bounds: list[Bound] | None = None  # those of sizes that modules have added
    # While gradients are traced: the values that stand for parameters, by the identity of these.
    stand_ins: Mapping[int, Value] | None = None
    read: Read | None = None  # while gradients are traced: other values that may change before the graph runs again
    placed: bool = False  # whether nodes keep the line that made them

    def knows(self, array: Array) -> bool:
        """Whether an array is a parameter of the model."""
        return self.parameters is not None and self.parameters.get(array) is not None


scope: ContextVar[Scope | None] = ContextVar("lucid_scope", default=None)
keeping_lines: ContextVar[bool] = ContextVar("lucid_keeping_lines", default=False)
"""Whether the nodes of graphs that are traced now keep the line that made them, which takes time."""


def entered(inside: Scope) -> AbstractContextManager[None]:
    """Inside, nodes made in this thread belong to this scope."""
    return holding(scope, inside)


def is_tracing() -> bool:
    """Whether this thread is tracing."""
    return scope.get() is not None


def is_differentiated() -> bool:
    """Whether this thread traces a function whose gradients are wanted."""
    here = scope.get()
    return here is not None and here.stand_ins is not None


no_gradients: ContextVar[bool] = ContextVar("lucid_no_gradients", default=False)
"""Whether what is computed is a constant for gradients, as in torch's `no_grad`."""


def with_stand_ins(values: Mapping[int, Value]) -> AbstractContextManager[None]:
    """Inside, these values stand for parameters, given by their identity; only while tracing."""
    here = scope.get()
    assert here is not None
    return entered(here._replace(stand_ins={**(here.stand_ins or {}), **values}))


class _Assigned(NamedTuple):
    """A traced value in an attribute of a module, and what the attribute held before it, if anything."""

    module: Any
    before: tuple[Any, ...]
    value: Any
    loss: str  # what to say if the value is taken out again; nothing for most


_assigned: ContextVar[dict[tuple[int, str], _Assigned] | None] = ContextVar("lucid_assigned", default=None)


_taken_out: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()
"""For each module the attributes that only traced values had, for the error about them."""


def note_traced(module: Any, name: str, value: Any, loss: str) -> None:
    """Note that a traced value is about to be assigned to an attribute, which `restored_attributes` undoes."""
    assigned = _assigned.get()
    if assigned is not None:
        key, attributes = (id(module), name), vars(module)
        before = assigned[key].before if key in assigned else (attributes[name],) if name in attributes else ()
        assigned[key] = _Assigned(module, before, value, loss)


def why_taken_out(module: Any, name: str) -> str:
    """Why a module lacks an attribute that a traced value had; empty for any other one."""
    if name not in _taken_out.get(module, ()):
        return ""
    return (
        ": forward assigned it while it was traced, and such a value is known only when the graph runs; return it "
        "(with lucid.value_and_grad, by has_aux=True), or call the module eagerly before you read it"
    )


@contextmanager
def restored_attributes() -> Iterator[None]:
    """Afterwards no module holds a value traced inside, which would mean nothing: attributes are what they were."""
    assigned = dict[tuple[int, str], _Assigned]()
    try:
        with holding(_assigned, assigned):
            yield
    finally:
        left = {place: each for place, each in assigned.items() if vars(each.module).get(place[1]) is each.value}
        for (_, name), each in left.items():
            if each.before:
                vars(each.module)[name] = each.before[0]
            else:
                del vars(each.module)[name]
                _taken_out.setdefault(each.module, set()).add(name)
        for loss in filter(None, (each.loss for each in left.values())):
            warn(loss)  # after all are restored: warnings may be errors


def new_node(op: Operation, inputs: Sequence[Value | None], attributes: Attributes) -> Node:
    """Make a node in the module that is being traced."""
    types = op.infer([value.type if value is not None else None for value in inputs], attributes)
    here = scope.get()
    place = user_place() if here and here.placed else None
    return Node(op, tuple(inputs), attributes, types, here.path if here else "", place)
