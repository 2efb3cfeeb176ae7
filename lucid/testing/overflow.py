"""The layers whose numbers exceed half precision, measured on data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucid.core.graph.types import Array, DTypeLike, TensorType, as_dtype
from lucid.core.graph.values import Result
from lucid.ops.tensor.tensor import Tensor
from lucid.tracing.trace import Model, arguments_of, trace


@dataclass(frozen=True)
class Overflow:
    """A layer whose numbers exceed an element type.

    Args:
        layer: the path of the module; empty for the model itself.
        op: the op that computes them.
        largest: the largest absolute value.
        share: the share of the op's numbers that are too large.
    """

    layer: str
    op: str
    largest: float
    share: float

    def __str__(self) -> str:
        return (
            f"{self.layer or 'the model itself'}: {self.op} gives up to {self.largest:.3g} ({self.share:.1%} too large)"
        )


def half_precision_overflow(
    model: Model, *inputs: Any, kwargs: Mapping[str, Any] | None = None, dtype: DTypeLike = "float16"
) -> tuple[Overflow, ...]:
    """The layers of a model whose results exceed the largest number of an element type, on given data.

    The model runs in its own types, with NumPy, so a layer is named for what it computes itself and not for an infinity
    that it was given.

    Args:
        model, kwargs: as for `lucid.trace`.
        inputs: arrays or tensors, one for each positional argument.
        dtype: "float16", whose largest number is 65504, or "bfloat16".

    Returns:
        One entry for each layer and op, in the order of the graph, with the largest number; empty if all fit.

    Raises:
        TypeError: for inputs that are not data, such as specs, and for a type that is not floating-point.
    """
    kind = as_dtype(dtype)
    if kind.kind != "float":
        raise TypeError(f"half_precision_overflow: dtype is {kind}, expected float16 or bfloat16")
    arrays: list[Array] = []

    def example(path: str, expected: TensorType, array: Array | None) -> Tensor:
        if array is None:
            raise TypeError(
                f"half_precision_overflow: {path} is {expected}, expected an array: random numbers show no overflow"
            )
        arrays.append(array)
        return Tensor.from_array(array)

    arguments_of(model, inputs, kwargs, example)
    overflows: dict[tuple[str, str], Overflow] = {}

    def watch(result: Result, array: Array) -> None:
        if result.type.dtype.kind != "float" or not array.size:
            return
        magnitudes = np.abs(array)
        largest = float(np.max(magnitudes, initial=0, where=np.isfinite(array)))
        if largest > kind.largest:
            key = (result.node.scope, result.node.op.name)
            share = np.count_nonzero(magnitudes > kind.largest) / array.size
            worst = overflows.get(key, Overflow(*key, 0.0, 0.0))
            overflows[key] = Overflow(*key, max(worst.largest, largest), max(worst.share, share))

    trace(model, *inputs, kwargs=kwargs).run(arrays, watch)
    return tuple(overflows.values())
