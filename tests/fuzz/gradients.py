"""Random models differentiated: their gradients against differences of the same graph in float64."""

from __future__ import annotations

import numpy as np

import lucid
from lucid import Tensor
from lucid.core.graph.types import Array, TensorType
from lucid.core.sizes.dims import bind
from lucid.gradients.tape import Tape
from lucid.testing.in_float64 import NarrowOpError, in_float64
from tests.fuzz.choices import Choices
from tests.fuzz.layers import LAYERS
from tests.fuzz.loops import LOOPS
from tests.fuzz.programs import Program, program
from tests.fuzz.steps import ELEMENTWISE
from tests.fuzz.suite import STEPS
from tests.fuzz.values import PLAIN, array_of

SIZES = {"N": 2, "L": 3, "S": 2, "P": 2}
STEP = 1e-5


def differentiated(choices: Choices, number: int) -> Program:
    """The program to differentiate that is made from these choices; every fifth number has loops."""
    return program(choices, 3 * LOOPS + ELEMENTWISE + LAYERS if number % 5 == 0 else STEPS)


def compare(model: Program, number: int) -> bool | None:
    """Whether the gradient of a program in a random direction is that of differences; None where there is no telling: a
    program that is not differentiable there, or whose numbers are not finite. The number is the seed of its inputs.
    """
    kinds = [TensorType(kind.dtype, bind(kind.shape, SIZES)) for kind in model.kinds]
    generator = np.random.default_rng(number)
    try:
        graph = in_float64(lucid.trace(model, *kinds))
    except (NarrowOpError, ValueError):  # of one type alone; of sizes that do not fit
        return None
    arrays = []
    for kind, how in zip(kinds, model.recipes, strict=True):
        mask = how.kind in ("mask", "rows") and how.power < 4
        array = array_of(kind.dtype, tuple(map(int, kind.shape)), how if mask else PLAIN, generator)
        if (
            mask and kind.dtype.kind == "float"
        ):  # in float64 the lowest numbers of other types hide, and exclude nothing
            array = np.where(array < -1e4, -np.inf, array)
        if kind.dtype.kind == "float":  # away from the ties of plain numbers
            array = array.astype(np.float64) + (0 if mask else generator.uniform(-0.05, 0.05, array.shape))
        arrays.append(array)
    real = [i for i, array in enumerate(arrays) if array.dtype == np.float64]
    seeds = [generator.standard_normal(x.shape) if x.dtype == np.float64 else None for x in graph.run(arrays)]

    def total(inputs: list[Array]) -> float:
        return sum(
            float(np.vdot(x, seed)) for x, seed in zip(graph.run(inputs), seeds, strict=True) if seed is not None
        )

    def value(*tensors: Tensor) -> Tensor:
        outputs = Tape([]).replay(graph.outputs, dict(zip(map(id, graph.inputs), tensors, strict=True)))
        sums = [(x * seed).sum() for x, seed in zip(outputs, seeds, strict=True) if seed is not None]
        return sum(sums, start=lucid.tensor(0.0, dtype="float64"))

    result = lucid.grad(value)(*map(Tensor, arrays))
    gradients = result if isinstance(result, tuple) else (result,)
    directions = {i: generator.standard_normal(arrays[i].shape) for i in real}

    def slope(step: float) -> float:
        there, back = (
            [a + sign * step * directions[i] if i in directions else a for i, a in enumerate(arrays)]
            for sign in (1, -1)
        )
        return (total(there) - total(back)) / (2 * step)

    slopes = [slope(step) for step in (STEP, STEP / 2, STEP / 4)]
    scale = sum(float(np.abs(gradients[i].numpy()).sum()) for i in real) + abs(slopes[0]) + 1
    if not np.isfinite(slopes).all() or max(slopes) - min(slopes) > 1e-6 * scale:
        return None
    along = sum(float(np.vdot(gradients[i].numpy(), directions[i])) for i in real)
    return bool(abs(along - slopes[-1]) < 1e-5 * scale)  # false for NaN
