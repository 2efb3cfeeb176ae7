"""Compare first and second derivatives of random compositions with torch.autograd, in float64.

    python -m tools.torch_samples.compositions --seed 0 --count 300
    python -m tools.torch_samples.compositions --seed 217 --count 1 --shrink

A composition is a few tensors, which hold zeros and equal numbers, and some steps over them. Each step is one text of
torch's calls, which Lucid runs as well. A composition that differs prints its seed and its steps; `--shrink` looks for
the smallest one that differs. Needs torch 2.13.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.attention
import torch.nn.functional

import lucid
from lucid import Tensor
from lucid.core.graph.types import Array
from lucid.nn import functional
from tests.fuzz.choices import Choices, smallest
from tools.torch_samples.composition_steps import STEPS, Api

RTOL = 1e-6
"""Some of torch's rules have constants in float32."""
_LARGEST = 20.0
"""Results beyond this are left out of a composition: rounding of large numbers would hide differences of small ones."""


def _loop(step: Callable[[Any, Any], Any], start: Any, rows: Any) -> Any:
    """`lucid.ops.scan` in torch."""
    results = []
    for row in rows:
        start, result = step(start, row)
        results.append(result)
    return start, torch.stack(results)


TORCH = Api(torch, torch.nn.functional, torch.from_numpy, _loop)
LUCID = Api(lucid, functional, Tensor.from_array, lucid.ops.scan)


class Step(NamedTuple):
    """A call of a step: its name, the places of its two operands, and the number that varies it."""

    name: str
    first: int
    second: int
    variant: int


class Composition(NamedTuple):
    """Tensors to differentiate with respect to, steps, and the numbers that the outputs are multiplied with."""

    leaves: list[Array]
    steps: list[Step]
    seeds: list[Array]
    directions: list[Array]

    def value(self, api: Api, leaves: Sequence[Any]) -> Any:
        """The sum of the last results times their seeds."""
        tensors = list(leaves)
        for step in self.steps:
            tensors.append(STEPS[step.name](api, tensors[step.first], tensors[step.second], step.variant))
        last = tensors[-len(self.seeds) :]
        return sum((x * api.tensor(seed)).sum() for x, seed in zip(last, self.seeds, strict=True))


def leaf(choices: Choices) -> Array:
    """A tensor with zeros and equal numbers, or of random numbers, perhaps with a row of zeros."""
    generator = np.random.default_rng(choices.number(0, 10**6))
    shape = tuple(size if choices.number(0, 3) else 1 for size in (2, 3, 4))
    if choices.flag():
        return generator.choice([-1.0, -0.5, 0.0, 0.0, 0.5, 1.0, 2.0], shape)
    array = generator.standard_normal(shape)
    if choices.flag():
        array[:, -1] = 0
    return array


def composed(choices: Choices) -> Composition:
    """A random composition."""
    leaves = [leaf(choices) for _ in range(choices.number(1, 3))]
    tensors = [torch.from_numpy(array) for array in leaves]
    steps: list[Step] = []
    names = list(STEPS)
    for _ in range(choices.number(1, 8)):
        own = Step(
            choices.choose(names),
            len(tensors) - 1 - choices.number(0, min(2, len(tensors) - 1)),
            len(tensors) - 1 - choices.number(0, len(tensors) - 1),
            choices.number(0, 11),
        )
        result = STEPS[own.name](TORCH, tensors[own.first], tensors[own.second], own.variant)
        if torch.isfinite(result).all() and result.abs().max() < _LARGEST:
            tensors.append(result)
            steps.append(own)
    generator = np.random.default_rng(len(steps))
    seeds = [generator.standard_normal(tuple(x.shape)) for x in tensors[-choices.number(1, 2) :]]
    return Composition(leaves, steps, seeds, [generator.standard_normal(x.shape) for x in leaves])


def torch_derivatives(composition: Composition) -> tuple[list[Array], list[Array] | None]:
    """First derivatives, and those of their sum times the directions; None where torch has none."""
    leaves = [torch.tensor(array, requires_grad=True) for array in composition.leaves]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        value = composition.value(TORCH, leaves)
        first = _torch_gradients(value, leaves)
        along = sum((g * torch.from_numpy(d)).sum() for g, d in zip(first, composition.directions, strict=True))
        try:
            second = [x.detach().numpy(force=True) for x in _torch_gradients(along, leaves)]
        except RuntimeError as error:
            if "not implemented" not in str(error):
                raise
            second = None
    return [x.detach().numpy(force=True) for x in first], second


def _torch_gradients(value: Any, leaves: Sequence[Any]) -> list[Any]:
    if not value.requires_grad:
        return [torch.zeros_like(x) for x in leaves]
    gradients = torch.autograd.grad(value, leaves, create_graph=True, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, leaves, strict=True)]


def own_derivatives(composition: Composition) -> tuple[list[Array], list[Array]]:
    """The same by Lucid."""
    leaves = [Tensor.from_array(array.copy()) for array in composition.leaves]

    def first(*tensors: Tensor) -> tuple[Tensor, ...]:
        gradients = lucid.grad(lambda *given: composition.value(LUCID, given))(*tensors)
        return gradients if isinstance(gradients, tuple) else (gradients,)

    def along(*tensors: Tensor) -> Tensor:
        pairs = zip(first(*tensors), composition.directions, strict=True)
        return sum(((g * Tensor.from_array(d)).sum() for g, d in pairs), start=lucid.tensor(0.0, dtype="float64"))

    second = lucid.grad(along)(*leaves)
    return [x.numpy() for x in first(*leaves)], [x.numpy() for x in (second if len(leaves) > 1 else (second,))]


def outcome(composition: Composition) -> str:
    """How a composition turned out: "agrees", why it was not compared, or the difference."""
    expected, expected_second = torch_derivatives(composition)
    try:
        first, second = own_derivatives(composition)
    except lucid.gradients.GradientError as error:
        return f"has no derivative: {error}"
    result = _difference("the first derivative", first, expected)
    if result == "agrees" and expected_second is not None:
        result = _difference("the second derivative", second, expected_second)
    elif result == "agrees":
        result = "agrees, once"
    return "rounding" if result.startswith("differs") and _is_rounding(composition) else result


def _is_rounding(composition: Composition) -> bool:
    """Whether torch's derivatives change much if all numbers are a little larger, and also if they are smaller.

    Where numbers are 0 or equal they stay so. At the bound of a piece, torch's are those of one side.
    """
    before = torch_derivatives(composition)
    for factor in (1 + 1e-13, 1 - 1e-13):
        after = torch_derivatives(composition._replace(leaves=[factor * array for array in composition.leaves]))
        if all(_difference("", x or [], y or []) == "agrees" for x, y in zip(before, after, strict=True)):
            return False
    return True


def _difference(what: str, found: Sequence[Array], wanted: Sequence[Array]) -> str:
    """ "agrees"; "not finite in torch" where only torch's numbers are not; or the difference."""
    unlike = "agrees"
    for place, (got, want) in enumerate(zip(found, wanted, strict=True)):
        real = np.isfinite(want)
        largest = np.abs(want[real]).max(initial=0)
        if not np.allclose(got[real], want[real], rtol=RTOL, atol=RTOL * (largest + 1)):
            return f"differs: {what} of tensor {place}, {got.ravel()} instead of {want.ravel()}"
        if np.isfinite(got[~real]).any():
            unlike = "not finite in torch"
    return unlike


def text(composition: Composition) -> str:
    """A composition to read: its tensors, and a line a step."""
    lines = [f"  {i} = {array.tolist()}" for i, array in enumerate(composition.leaves)]
    for place, (name, first, second, variant) in enumerate(composition.steps, len(lines)):
        lines.append(f"  {place} = {name!r} of {first}, {second}; variant {variant}")
    return "\n".join(lines)


def main() -> int:
    """Compare, and print the counts and what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="the first composition (default: 0)")
    parser.add_argument("--count", type=int, default=300, help="how many (default: 300)")
    parser.add_argument("--shrink", action="store_true", help="look for the smallest that differs")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    counts = Counter[str]()
    for seed in range(options.seed, options.seed + options.count):
        choices = Choices(seed)
        composition = composed(choices)
        result = outcome(composition)
        kind = result.partition(":")[0]
        counts[kind] += 1
        if kind == "differs":
            if options.shrink:
                choice = smallest(
                    choices.taken, lambda taken: outcome(composed(Choices(recorded=taken)))[:7] == "differs", 300
                )
                composition = composed(Choices(recorded=choice))
                result = outcome(composition)
            print(f"seed {seed} {result}\n{text(composition)}", flush=True)
    print(", ".join(f"{kind}: {count}" for kind, count in counts.most_common()))
    return 1 if counts["differs"] else 0


if __name__ == "__main__":
    sys.exit(main())
