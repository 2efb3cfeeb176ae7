"""Tensors of random numbers, and the generator that they and initialisations draw from: not while tracing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lucid.core.graph.scope import is_tracing
from lucid.core.graph.types import DTypeLike, as_dtype, float32
from lucid.core.process import random
from lucid.core.torch_names.arguments import torch_names_and
from lucid.ops.creation import UNUSED, as_shape
from lucid.ops.op import function
from lucid.ops.tensor.tensor import Tensor, TracedValueError


def generator(where: str) -> np.random.Generator:
    """The generator of this thread.

    Raises:
        TracedValueError: while tracing, as numbers that are drawn then would be constants of the model.
    """
    if is_tracing():
        raise TracedValueError(
            f"{where}: random numbers that are drawn in forward would be constants of the exported model, the same in "
            "each run; make them an input of the model, or draw them once, in __init__, where modules are made too: "
            "self.noise = lucid.randn(...)"
        )
    return random.generator()


@torch_names_and(*UNUSED)
@function
def randn(*shape: int | Sequence[int], dtype: DTypeLike = float32) -> Tensor:
    """Standard normal random numbers; see `lucid.manual_seed`.

    Raises:
        TracedValueError: while tracing, as they would be constants of the model.
    """
    return _as_tensor(generator("randn").standard_normal(as_shape(shape)), dtype)


@torch_names_and(*UNUSED)
@function
def rand(*shape: int | Sequence[int], dtype: DTypeLike = float32) -> Tensor:
    """Uniform random numbers from 0 to 1; see `lucid.manual_seed`.

    Raises:
        TracedValueError: while tracing, as they would be constants of the model.
    """
    return _as_tensor(generator("rand").random(as_shape(shape)), dtype)


def _as_tensor(values: Any, dtype: DTypeLike) -> Tensor:
    return Tensor.from_array(np.asarray(values, as_dtype(dtype).numpy))
