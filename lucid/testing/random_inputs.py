"""Random inputs for a model whose inputs are only described."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from lucid.core.graph.graph import Graph
from lucid.core.graph.types import Array, DType, TensorType
from lucid.core.process import random
from lucid.core.process.context import evaluating
from lucid.core.sizes.dims import evaluate
from lucid.core.words.user_code import located_errors
from lucid.nn.model_parts import Draw
from lucid.nn.weights.adapter_inputs import adapter_inputs, given_adapter
from lucid.ops.tensor.tensor import Tensor
from lucid.tracing.index_ranges import FAR, IndexRanges, Span, Use
from lucid.tracing.trace import Model, arguments_of, outputs_of, owner_of

Padding: TypeAlias = Literal["left", "right"] | None
"""At which end masks pad; None for masks that are random everywhere."""


_PADDING: tuple[Padding, ...] = (None, "left", "right")  # of the first runs
_SELDOM = 8  # one in so many indices is one that the model treats differently, such as that of padding


def random_inputs(
    graph: Graph, sizes: Mapping[str, int], run: int = 0, draw: Draw | Mapping[str, Array] | None = None
) -> dict[str, Array]:
    """Arrays for the inputs of a graph by name: those that are given or drawn, and random ones for the rest.

    Floats are normally distributed. Integers that index a table are drawn from all of its rows, and one in eight from
    those that the model treats differently, such as padding; integers that are compared with positions, such as
    lengths, are drawn from all positions. Other integers, and booleans, are 0 and 1: masks, whose first row hides
    nothing, with padding on the left in run 1, on the right in run 2, and some random rows. An input bbox (..., 4) gets
    boxes as in LayoutLM: left, top, right and bottom, with left <= right and top <= bottom.
    """
    drawn = draw(sizes) if callable(draw) else draw or {}
    uses = IndexRanges(graph).uses(sizes)
    padding = _PADDING[min(run, len(_PADDING) - 1)]
    arrays: dict[str, Array] = {}
    for value in graph.inputs:
        shape = tuple(evaluate(size, sizes) for size in value.type.shape)
        array = drawn.get(value.name)
        if array is None:
            array = _array(value.type.dtype, shape, uses.get(value.name, Use()), padding)
            if value.default is not None:  # a factor of an adapter: their product becomes about as large as a weight
                array = array / np.sqrt(shape[0]).astype(array.dtype)
            if value.name == "bbox" and shape[-1:] == (4,):
                array = np.sort(array.reshape(*shape[:-1], 2, 2), axis=-2).reshape(shape)
        arrays[value.name] = array
    return arrays


def run_eagerly(
    model: Model,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    inputs_by_name: Mapping[str, Array],
    arrays: list[Array],
) -> list[Array]:
    """Run the model itself with NumPy, on its example arrays, and on `given` ones for specs. Adds all to `arrays`."""

    def fill(path: str, kind: TensorType, example: Array | None) -> Tensor:
        arrays.append(inputs_by_name[path].astype(kind.dtype.numpy, copy=False) if example is None else example)
        return Tensor.from_array(arrays[-1])

    call, named = arguments_of(model, inputs, kwargs, fill)
    names = [name for name in adapter_inputs(owner_of(model)) if name in inputs_by_name]
    arrays += [inputs_by_name[name] for name in names]
    adapter = {name: Tensor.from_array(inputs_by_name[name]) for name in names}
    with evaluating(), located_errors(), given_adapter(adapter):  # as in the export
        result = model(*call, **named)
    return [tensor.numpy() for tensor in outputs_of(result).values()]


def random_array(dtype: DType, shape: tuple[int, ...]) -> Array:
    """Normal numbers for floats, 0 and 1 for integers, true and false for booleans."""
    generator = random.generator()
    if dtype.kind == "float":
        return generator.standard_normal(shape).astype(dtype.numpy)
    return generator.integers(0, 2, shape).astype(dtype.numpy)


def _array(dtype: DType, shape: tuple[int, ...], use: Use, padding: Padding) -> Array:
    generator = random.generator()
    if dtype.kind == "int" and use.allowed is not None:
        low, high = _drawable(use.allowed, dtype)
        array = generator.integers(low, high + 1, shape)
        special = [number for number in use.told_apart if low <= number <= high]
        if special:
            array = np.where(generator.integers(0, _SELDOM, shape) == 0, generator.choice(special, shape), array)
        return array.astype(dtype.numpy)
    if dtype.kind == "int" and use.compared is not None:
        low, high = _drawable(Span(use.compared.low, use.compared.high + 1), dtype)
        return generator.integers(low, high + 1, shape).astype(dtype.numpy)
    if dtype.kind == "int" and set(use.told_apart) - {0, 1}:
        return generator.choice([0, 1, *use.told_apart], shape).astype(dtype.numpy)
    array = random_array(dtype, shape)
    return array if dtype.kind == "float" or len(shape) < 2 else _padded(array, padding)


def _drawable(allowed: Span, dtype: DType) -> Span:
    """The range as far as it can be drawn from, which is never empty."""
    limits = np.iinfo(dtype.numpy)
    low = max(allowed.low, int(limits.min)) if allowed.low > -FAR // 2 else min(0, allowed.high)
    high = min(allowed.high, int(limits.max)) if allowed.high < FAR // 2 else max(1, low)
    return Span(low, max(low, high))


def _padded(mask: Array, side: Padding) -> Array:
    """A mask over the last axis, from a random one, which is written to; without a side rows stay random.

    The first row hides nothing, and those that pad hide more and more; a single row pads a quarter. With a side, every
    other row from the third on stays random. No row hides everything: a mean over nothing is NaN.
    """
    if not mask.size:
        return mask
    length = mask.shape[-1]
    rows = mask.reshape(-1, length)
    index, places = np.arange(len(rows)), np.arange(length)
    hidden = index[:, None] % length if len(rows) > 1 else np.full((1, 1), length // 4)
    if side is not None:
        padded = (index == 0) | (index % 2 == 1)
        rows[padded] = (places >= hidden if side == "left" else places < length - hidden)[padded]
    rows[index, index % length] |= ~rows.any(1)
    return mask
