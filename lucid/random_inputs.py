"""Inputs for a model whose inputs are only described: sizes, and random numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lucid import random
from lucid.dims import evaluate
from lucid.evaluation import evaluating
from lucid.graph import Graph
from lucid.ops.tensor import Tensor
from lucid.tracing import Model, arguments_of, outputs_of
from lucid.types import Array, DType, TensorType
from lucid.user_code import located_errors

_VALUES = (2, 3, 5, 7, 11, 13)


def default_sizes(graph: Graph) -> list[dict[str, int]]:
    """All ones, and twice different numbers, so that sizes that were mixed up are noticed."""
    names = sorted(graph.sizes())
    if not names:
        return [{}]
    runs: list[dict[str, int]] = [dict.fromkeys(names, 1)]
    for start in (1, 0):
        runs.append({name: _VALUES[(start + index) % len(_VALUES)] for index, name in enumerate(names)})
    return runs


def run_eagerly(
    model: Model, inputs: Sequence[Any], kwargs: Mapping[str, Any] | None, sizes: Mapping[str, int], arrays: list[Array]
) -> list[Array]:
    """Run the model itself, on given examples and random numbers for the rest; the inputs are added to `arrays`."""

    def fill(path: str, kind: TensorType, example: Array | None) -> Tensor:
        shape = tuple(evaluate(size, sizes) for size in kind.shape)
        arrays.append(random_array(kind.dtype, shape) if example is None else example)
        return Tensor.from_array(arrays[-1])

    call, named = arguments_of(model, inputs, kwargs, fill)
    with evaluating(), located_errors():  # evaluating as in the export
        result = model(*call, **named)
    return [tensor.numpy() for tensor in outputs_of(result).values()]


def random_array(dtype: DType, shape: tuple[int, ...]) -> Array:
    """Normal numbers for floats, 0 and 1 for integers, true and false for booleans."""
    generator = random.generator()
    if dtype.kind == "float":
        return generator.standard_normal(shape).astype(dtype.numpy)
    return generator.integers(0, 2, shape).astype(dtype.numpy)
