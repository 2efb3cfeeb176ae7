"""Random programs: inputs of random types and symbolic sizes, then random steps that fit the existing values.

A program is traced while it is drawn, so that every step knows the types of the values. Two rules keep a comparison of
backends meaningful: steps do not make numbers very large (a divisor is |y| + 1, an exponent -|x|), and discontinuous
functions of a number (a comparison, a rounding, an index) are only applied to `exact` values, which no backend rounds
differently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lucid import Tensor, nn
from lucid.dims import Size, dim
from lucid.evaluation import evaluating
from lucid.types import (
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
from lucid.values import Input
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
        return self.tensor.type

    @property
    def rank(self) -> int:
        return self.tensor.ndim


@dataclass(frozen=True)
class Step:
    """One step: the values it takes, and its function of them. `layer` is its module, if it has one."""

    text: str
    arguments: tuple[int, ...]
    apply: Callable[..., Any]
    exact: bool = False
    layer: nn.Module | None = None

    def __str__(self) -> str:
        return f"{self.text}({', '.join(f'v{i}' for i in self.arguments)})"


class Program(nn.Module):
    """Inputs and steps in the order in which they were drawn; some of the values are returned."""

    def __init__(self, order: Sequence[TensorType | Step], outputs: Sequence[int], recipes: Sequence[Recipe]) -> None:
        self._order, self._outputs, self.recipes = tuple(order), tuple(outputs), tuple(recipes)
        self.layers = {f"{i}": step.layer for i, step in enumerate(order) if isinstance(step, Step) and step.layer}

    @property
    def kinds(self) -> tuple[TensorType, ...]:
        return tuple(entry for entry in self._order if isinstance(entry, TensorType))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        given = iter(inputs)
        values: list[Tensor] = []
        for entry in self._order:
            if isinstance(entry, TensorType):
                values.append(next(given))
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

    def input(self, dtype: DType, shape: Sequence[Size], draw: Draw = recipe) -> int:
        """A new input; its index."""
        kind = TensorType(dtype, tuple(shape))
        self.order.append(kind)
        self.recipes.append(draw(self.choices, dtype))
        self.values.append(Value(Tensor.from_value(Input(f"x{len(self.values)}", kind)), exact=True))
        return len(self.values) - 1

    def pick(self, fits: Callable[[Value], bool]) -> int | None:
        """One of the values that fit, preferring new ones; None if there is none."""
        found = [i for i, value in enumerate(self.values) if fits(value)]
        return self.choose(found[::-1]) if found else None

    def add(self, step: Step) -> None:
        """Run a step on the existing values."""
        arguments = [self.values[i] for i in step.arguments]
        result = step.apply(*(value.tensor for value in arguments))
        results = result if isinstance(result, (list, tuple)) else [result]
        exact = step.exact and all(value.exact for value in arguments)
        # A result that no longer depends on any input is known while drawing: it is a constant of the program.
        self.order.append(step)
        for tensor in results:
            self.values.append(Value(tensor, exact or tensor.dtype.kind != "float"))


Maker = Callable[[Drafting], "Step | None"]


def among(makers: list[Maker]) -> Callable[[Maker], Maker]:
    """Puts a maker of steps into a list."""

    def put(make: Maker) -> Maker:
        makers.append(make)
        return make

    return put


def program(choices: Choices, makers: Sequence[Maker], steps: int = 6) -> Program:
    """A program of two to `steps` steps made by the given makers."""
    draft = Drafting(choices)
    dtype = draft.choose(FLOATS)
    with evaluating():  # as under lucid.trace
        draft.input(dtype, first_shape(draft))
        if draft.number(0, 4):
            draft.input(draft.choose([dtype, *INTEGERS, bool_]), shape(draft))
        for _ in range(draft.number(2, steps)):
            tries = (draft.choose(makers)(draft) for _ in range(5))
            made = next((step for step in tries if step is not None), None)
            if made is not None:
                draft.add(made)
    last = len(draft.values) - 1
    others = [i for i in range(last) if draft.flag()] if last < 12 and draft.flag() else []
    return Program(draft.order, [*others[:3], last], draft.recipes).eval()


def first_shape(draft: Drafting) -> list[Size]:
    """Mostly shapes that models take: named sizes, then a width."""
    names = [dim(name) for name in NAMES[: draft.number(1, 2)]]
    return [*names, draft.choose([4, 6, 8])] if draft.number(0, 4) else shape(draft)


def shape(draft: Drafting) -> list[Size]:
    """Up to four axes of named and fixed sizes."""
    sizes: list[Size] = [dim(name) for name in NAMES]
    sizes += [1, 2, 3, 4]
    return [draft.choose(sizes) for _ in range(draft.number(0, 4))]
