"""A torch program as data: calls of Lucid's functions in their order, run on tensors, known or traced."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from lucid.core.graph.scope import entered, scope
from lucid.core.graph.types import show_shape
from lucid.core.sizes.bounds import Bound
from lucid.core.sizes.dims import Dim, Shape, same
from lucid.core.words.other_libraries import type_name
from lucid.importing.complex_numbers import Complex
from lucid.nn.module import Module
from lucid.ops.operand_conversion import as_tensor
from lucid.ops.tensor.tensor import Tensor


class Slot(NamedTuple):
    """The place of a value among those of a run."""

    number: int


class Weight(NamedTuple):
    """A parameter or buffer, by its owner and its name there: `lucid.quantize` replaces it, so each run looks it up."""

    owner: Module
    name: str
    key: str  # the name in torch's `state_dict`


class Step(NamedTuple):
    """The only sizes of an axis for which a program holds: multiples of a step with a remainder."""

    slot: Slot
    axis: int
    step: int
    remainder: int
    text: str  # the sizes by name, such as 2*L + 1

    def check(self, size: Any) -> None:
        """Raise a ValueError for a size that is not one of them, or that is perhaps none while tracing."""
        if not same(size % self.step, self.remainder):
            remedy = f"write {self.text} in its spec" if isinstance(size, Dim) else "pad or truncate the input"
            raise ValueError(
                f"from_torch: axis {self.axis} of an input has size {size}, expected {self.text}: for others, the "
                f"model may compute something else; {remedy}"
            )


class Call(NamedTuple):
    """One call of a program."""

    result: int
    function: Callable[..., Any]
    arguments: tuple[Any, ...]  # the arguments, with slots in the places of values, also in lists
    options: Mapping[str, Any]
    operator: str
    path: str  # the module that made the call
    line: str  # the line of the user's code
    unused: tuple[int, ...]  # slots that no later call reads


class Program:
    """The computation of an imported module, called like torch's `forward`.

    It stands in the place of a module's method `forward` and has a signature, so that inputs have torch's names.
    `bounds` are of sums of sizes, each with the axes that are added: other sums torch's program does not hold for; and
    `steps` are of single sizes.
    """

    def __init__(
        self,
        inputs: Mapping[str, Any],
        weights: Mapping[int, Weight | Tensor | Complex | Program],
        calls: Sequence[Call],
        result: Any,
        slots: int,
        bounds: Sequence[tuple[Sequence[tuple[Slot, int]], Bound]] = (),
        specs: Mapping[str, Any] | None = None,
        steps: Sequence[Step] = (),
    ) -> None:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        self.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in inputs])
        self.inputs, self.weights, self.calls, self.result, self.slots = inputs, weights, calls, result, slots
        self.bounds, self.steps, self._specs = bounds, steps, specs or {}

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        bound = self.__signature__.bind(*arguments, **named).arguments
        values: list[Any] = [None] * self.slots
        for name, places in self.inputs.items():
            _put(values, places, bound[name], self._specs.get(name), name)
        self._check_sizes(values)
        for number, weight in self.weights.items():
            values[number] = getattr(weight.owner, weight.name) if isinstance(weight, Weight) else weight
        for call in self.calls:
            try:
                values[call.result] = _run(call, values)
            except _FAULTS as error:
                error.add_note(f"in {call.operator}, which torch exported from {call.line or 'an unknown line'}")
                raise
            for number in call.unused:
                values[number] = None
        return _with_values(self.result, values)

    def _check_sizes(self, values: Sequence[Any]) -> None:
        """Hold the sizes of the inputs to their bounds: at once, or, while tracing, those of the graph's runs."""
        for step in self.steps:
            step.check(values[step.slot.number].shape[step.axis])
        for places, bound in self.bounds:
            value = sum(values[slot.number].shape[axis] for slot, axis in places)
            if isinstance(value, int):
                bound.check("from_torch", value)
            elif (here := scope.get()) is not None and here.bounds is not None:
                here.bounds.append(bound._replace(size=value))


_FAULTS = (ArithmeticError, AttributeError, LookupError, NotImplementedError, TypeError, ValueError)


def _run(call: Call, values: Sequence[Any]) -> Any:
    """The result of a call; while tracing, its nodes belong to the module that made it."""
    arguments, options = _with_values(call.arguments, values), _with_values(call.options, values)
    here = scope.get()
    if here is None:
        return call.function(*arguments, **options)
    path = ".".join(part for part in (here.path, call.path) if part)
    with entered(here._replace(path=path)):
        return call.function(*arguments, **options)


def _put(values: list[Any], places: Any, value: Any, specs: Any, path: str) -> None:
    """Put the tensors of an input, which may be nested, into their slots.

    Raises:
        ValueError: for other parts, and for another size than torch took as a constant: the program may compute
            something else for it.
    """
    if isinstance(places, Slot):  # the body of a loop takes sizes as well
        values[places.number] = value = value if isinstance(value, Dim) else as_tensor(f"input {path}", value)
        if specs is not None and not _fits(value.shape, specs.shape):
            raise ValueError(
                f"input {path} has shape {show_shape(value.shape)}, expected {show_shape(specs.shape)}: torch exported "
                "the module for these sizes; name an axis in from_torch(dynamic=...) to make it dynamic"
            )
    elif isinstance(places, (Mapping, list, tuple)):
        parts, items = _by_key(places), _by_key(value)
        if items.keys() != parts.keys():
            shown, expected = (", ".join(map(str, each)) or "none" for each in (items, parts))
            raise ValueError(
                f"input {path} is a {type_name(value)} with the parts {shown}, expected {expected}, as in the example "
                "of from_torch; give these, or import the module once more with an example that has the others"
            )
        for key, place in parts.items():
            _put(values, place, items[key], specs and specs[key], f"{path}.{key}")
    elif isinstance(value, Tensor) or value != places:
        shown = "a tensor" if isinstance(value, Tensor) else repr(value)
        raise ValueError(
            f"input {path} is {shown}, expected {places!r}, as in the example of from_torch: torch took it as a "
            "constant; import the module once more with another example"
        )


def _by_key(value: Any) -> Mapping[Any, Any]:
    """The parts of a nested value; none of anything else."""
    if isinstance(value, Mapping):
        return value
    return dict(enumerate(value)) if isinstance(value, (list, tuple)) else {}


def _fits(shape: Shape, expected: Shape) -> bool:
    if len(shape) != len(expected):
        return False
    return all(same(size, fixed) for size, fixed in zip(shape, expected, strict=True) if isinstance(fixed, int))


def _with_values(argument: Any, values: Sequence[Any]) -> Any:
    """An argument with values in the places of slots."""
    if isinstance(argument, Slot):
        return values[argument.number]
    if isinstance(argument, (list, tuple)):
        return type(argument)(_with_values(item, values) for item in argument)
    if isinstance(argument, Mapping):
        return {key: _with_values(item, values) for key, item in argument.items()}
    return argument
