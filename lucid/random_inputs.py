"""Inputs for a model whose inputs are only described: sizes, and random numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lucid import random
from lucid.context import holding
from lucid.dims import Dim, evaluate, names_of
from lucid.evaluation import evaluating
from lucid.graph import Graph
from lucid.nn.parts import Draw
from lucid.ops.engine import engine
from lucid.ops.tensor import Tensor
from lucid.tracing import Model, arguments_of, outputs_of
from lucid.types import Array, DType, TensorType
from lucid.user_code import located_errors

_VALUES = (2, 3, 5, 7, 11, 13)
_WINDOWED = ("conv", "max_pool", "average_pool")
_TRIPLINGS = 10  # from 1 to 59,049, some seconds of sound; odd sizes stay odd, and different ones different


def default_sizes(graph: Graph) -> list[dict[str, int]]:
    """All ones, and twice different numbers, so that sizes that were mixed up are noticed.

    They are larger where the windows of a convolution or of pooling would not fit otherwise.
    """
    names = sorted(graph.sizes())
    if not names:
        return [{}]
    runs: list[dict[str, int]] = [dict.fromkeys(names, 1)]
    for start in (1, 0):
        runs.append({name: _VALUES[(start + index) % len(_VALUES)] for index, name in enumerate(names)})
    return [large_enough(graph, run) for run in runs]


def large_enough(graph: Graph, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes, tripled until each convolution and pooling of the graph has a window."""
    found = dict(sizes)
    windows = [
        size
        for node in graph.nodes()
        if node.op.name in _WINDOWED
        for size in node.results[0].type.shape[2:]
        if isinstance(size, Dim)
    ]
    for _ in range(_TRIPLINGS):
        short = names_of(size for size in windows if evaluate(size, found) < 1)
        found = {name: 3 * size if name in short else size for name, size in found.items()}
    return found


def run_eagerly(
    model: Model,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    sizes: Mapping[str, int],
    arrays: list[Array],
    draw: Draw | None = None,
) -> list[Array]:
    """Run the model itself with NumPy, on given examples, on what `draw` gives by name, and on random numbers for the
    rest; the inputs are added to `arrays`.
    """
    drawn = {} if draw is None else draw(sizes)

    def fill(path: str, kind: TensorType, example: Array | None) -> Tensor:
        shape = tuple(evaluate(size, sizes) for size in kind.shape)
        given = drawn.get(path) if example is None else example
        arrays.append(random_array(kind.dtype, shape) if given is None else given)
        return Tensor.from_array(arrays[-1])

    call, named = arguments_of(model, inputs, kwargs, fill)
    # Evaluating as in the export; by NumPy, as the export is what onnxruntime computes.
    with evaluating(), holding(engine, None), located_errors():
        result = model(*call, **named)
    return [tensor.numpy() for tensor in outputs_of(result).values()]


def random_array(dtype: DType, shape: tuple[int, ...]) -> Array:
    """Normal numbers for floats, 0 and 1 for integers, true and false for booleans."""
    generator = random.generator()
    if dtype.kind == "float":
        return generator.standard_normal(shape).astype(dtype.numpy)
    return generator.integers(0, 2, shape).astype(dtype.numpy)
