"""Random programs: inputs of random types and symbolic sizes, then random steps that fit the existing values.

A program is traced while it is drawn, so that every step knows the types of the values. Two rules keep a comparison of
backends meaningful: steps do not make numbers very large (a divisor is |y| + 1, an exponent -|x|), and discontinuous
functions of a number (a comparison, a rounding, an index) are only applied to `exact` values, which no backend rounds
differently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lucid import Tensor, nn
from lucid.core.graph.types import (
    DType,
    TensorType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    uint8,
)
from lucid.core.graph.values import Input
from lucid.core.process.context import evaluating
from lucid.core.sizes.dims import Size, dim
from tests.fuzz.choices import Choices
from tests.fuzz.values import Recipe, recipe

FLOATS = (float32, float32, float32, float64, float16, bfloat16)
INTEGERS = (int8, uint8, int32, int64)
NAMES = ("N", "L", "S")


@dataclass(frozen=True)
class Value:
    """A value of the program under construction."""

    tensor: Tensor
    exact: bool

    @property
    def type(self) -> TensorType:
        return self.tensor.spec

    @property
    def rank(self) -> int:
        return self.tensor.ndim


@dataclass(frozen=True)
class Step:
    """One step: the values it takes, and its function of them. `layer` is its module, if it has one.

    `definition` is the same function in other words, if there are any: those of plainer ops, where the body of an op is
    used by many of its forms, and a fault in it would be in all of them. `in_place` says which results may be written
    over which arguments.
    """

    text: str
    arguments: tuple[int, ...]
    apply: Callable[..., Any]
    exact: bool = False
    layer: nn.Module | None = None
    definition: Callable[..., Any] | None = None
    in_place: Mapping[int, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.text}({', '.join(f'v{i}' for i in self.arguments)})"


class Program(nn.Module):
    """Inputs and steps in the order in which they were drawn; the last results and some other values are returned."""

    def __init__(
        self,
        order: Sequence[TensorType | Step],
        outputs: Sequence[int],
        recipes: Sequence[Recipe],
        in_place: Sequence[tuple[int, int]] = (),
    ) -> None:
        """`in_place`: an output that may be written over an input, and this input, by their numbers."""
        self._order, self._outputs, self.recipes = tuple(order), tuple(outputs), tuple(recipes)
        self.in_place = tuple(in_place)
        self.layers = {f"{i}": step.layer for i, step in enumerate(order) if isinstance(step, Step) and step.layer}

    def by_definition(self) -> Program | None:
        """The same, its steps computed by their definitions; None if no step has one."""
        steps = [step for step in self._order if isinstance(step, Step) and step.definition is not None]
        if not steps:
            return None
        known = {id(step): replace(step, apply=step.definition) for step in steps}
        return Program([known.get(id(entry), entry) for entry in self._order], self._outputs, self.recipes).eval()

    @property
    def kinds(self) -> tuple[TensorType, ...]:
        return tuple(entry for entry in self._order if isinstance(entry, TensorType))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        unread = iter(inputs)
        values: list[Tensor] = []
        for entry in self._order:
            if isinstance(entry, TensorType):
                values.append(next(unread))
            else:
                result = entry.apply(*(values[i] for i in entry.arguments))
                values.extend(result if isinstance(result, (list, tuple)) else [result])
        return tuple(values[i] for i in self._outputs)

    def __repr__(self) -> str:
        recipes = iter(self.recipes)
        lines = [f"input {e}, {next(recipes)}" if isinstance(e, TensorType) else str(e) for e in self._order]
        return "Program:\n  " + "\n  ".join([*lines, f"return {', '.join(f'v{i}' for i in self._outputs)}"])


Draw = Callable[[Choices, DType], Recipe]


class Drafting:
    """A program while it is drawn."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.choose, self.flag, self.number = choices.choose, choices.flag, choices.number
        self.order: list[TensorType | Step] = []
        self.values: list[Value] = []
        self.recipes: list[Recipe] = []
        self.inputs: list[int] = []
        self.over: dict[int, int] = {}

    def input(self, dtype: DType, shape: Sequence[Size], draw: Draw = recipe) -> int:
        """A new input; its index."""
        kind = TensorType(dtype, tuple(shape))
        self.order.append(kind)
        self.recipes.append(draw(self.choices, dtype))
        self.inputs.append(len(self.values))
        self.values.append(Value(Tensor.from_value(Input(f"x{len(self.values)}", kind)), exact=True))
        return len(self.values) - 1

    def pick(self, fits: Callable[[Value], bool]) -> int | None:
        """One of the values that fit, preferring new ones; None if there is none."""
        fitting = [i for i, value in enumerate(self.values) if fits(value)]
        return self.choose(fitting[::-1]) if fitting else None

    def add(self, step: Step) -> range:
        """Run a step on the existing values; the indexes of its results."""
        arguments = [self.values[i] for i in step.arguments]
        result = step.apply(*(value.tensor for value in arguments))
        results = result if isinstance(result, (list, tuple)) else [result]
        exact = step.exact and all(value.exact for value in arguments)
        # A result that no longer depends on any input is known while drawing: it is a constant of the program.
        self.order.append(step)
        first = len(self.values)
        self.values += [Value(tensor, exact or tensor.dtype.kind != "float") for tensor in results]
        self.over |= {first + index: step.arguments[argument] for index, argument in step.in_place.items()}
        return range(first, len(self.values))

    def in_place(self, outputs: Sequence[int]) -> list[tuple[int, int]]:
        """The outputs that may be written over an input, which nothing else reads."""
        read = Counter(outputs) + Counter(i for step in self.order if isinstance(step, Step) for i in step.arguments)
        return [
            (number, self.inputs.index(over))
            for number, output in enumerate(outputs)
            if (over := self.over.get(output)) in self.inputs and read[over] == 1
        ]


Maker = Callable[[Drafting], "Step | None"]


def among(makers: list[Maker]) -> Callable[[Maker], Maker]:
    """Puts a maker of steps into a list."""

    def put(make: Maker) -> Maker:
        makers.append(make)
        return make

    return put


def program(choices: Choices, makers: Sequence[Maker], steps: int = 6) -> Program:
    """A program of two to `steps` steps made by the given makers."""
    draft, last = Drafting(choices), range(1)
    dtype = draft.choose(FLOATS)
    with evaluating():  # as under lucid.trace
        draft.input(dtype, first_shape(draft))
        if draft.number(0, 4):
            draft.input(draft.choose([dtype, *INTEGERS, bool_]), shape(draft))
        for _ in range(draft.number(2, steps)):
            tries = (draft.choose(makers)(draft) for _ in range(5))
            step = next((step for step in tries if step is not None), None)
            if step is not None:
                last = draft.add(step)
    others = [i for i in range(last.start) if draft.flag()] if last.start < 12 and draft.flag() else []
    outputs = [*others[:3], *last]
    return Program(draft.order, outputs, draft.recipes, draft.in_place(outputs)).eval()


def first_shape(draft: Drafting) -> list[Size]:
    """Mostly shapes that models take: named sizes, then a width."""
    names = [dim(name) for name in NAMES[: draft.number(1, 2)]]
    return [*names, draft.choose([4, 6, 8])] if draft.number(0, 4) else shape(draft)


def shape(draft: Drafting) -> list[Size]:
    """Up to four axes of named and fixed sizes."""
    sizes: list[Size] = [dim(name) for name in NAMES]
    sizes += [1, 2, 3, 4]
    return [draft.choose(sizes) for _ in range(draft.number(0, 4))]
