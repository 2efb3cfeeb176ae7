"""Initial values for parameters, drawn from the generator that `lucid.manual_seed` seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from lucid import random
from lucid.nn.module import Parameter


def _fans(parameter: Parameter) -> tuple[int, int]:
    """Inputs and outputs of a weight stored as (out, in, ...)."""
    shape = parameter.numpy().shape
    if len(shape) < 2:
        raise ValueError(f"init: a parameter of shape {shape} has no fan in and out; expected at least 2 axes")
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


_skipped: ContextVar[bool] = ContextVar("lucid_init_skipped", default=False)


@contextmanager
def skip() -> Iterator[None]:
    """Leave parameters made inside at zero: for models whose weights are loaded next, where drawing numbers takes
    longest."""
    token = _skipped.set(True)
    try:
        yield
    finally:
        _skipped.reset(token)


def _fill(parameter: Parameter, draw: Callable[[tuple[int, ...]], object]) -> Parameter:
    if not _skipped.get():
        parameter.assign(np.asarray(draw(parameter.numpy().shape), parameter.dtype.numpy))
    return parameter


def constant_(parameter: Parameter, value: float) -> Parameter:
    """One number everywhere."""
    return _fill(parameter, lambda shape: np.full(shape, value))


def zeros_(parameter: Parameter) -> Parameter:
    """Zeros."""
    return constant_(parameter, 0.0)


def ones_(parameter: Parameter) -> Parameter:
    """Ones."""
    return constant_(parameter, 1.0)


def uniform_(parameter: Parameter, low: float = 0.0, high: float = 1.0) -> Parameter:
    """Uniform between two bounds."""
    return _fill(parameter, lambda shape: random.generator().uniform(low, high, shape))


def normal_(parameter: Parameter, mean: float = 0.0, std: float = 1.0) -> Parameter:
    """Normal with a mean and a standard deviation."""
    return _fill(parameter, lambda shape: random.generator().normal(mean, std, shape))


def xavier_uniform_(parameter: Parameter, gain: float = 1.0) -> Parameter:
    """Uniform with variance 2 / (fan in + fan out) (Glorot & Bengio 2010)."""
    bound = gain * math.sqrt(6 / max(1, sum(_fans(parameter))))
    return uniform_(parameter, -bound, bound)


def xavier_normal_(parameter: Parameter, gain: float = 1.0) -> Parameter:
    """Normal with variance 2 / (fan in + fan out) (Glorot & Bengio 2010)."""
    return normal_(parameter, 0.0, gain * math.sqrt(2 / max(1, sum(_fans(parameter)))))


def kaiming_uniform_(parameter: Parameter, a: float = 0.0) -> Parameter:
    """Uniform with variance 2 / ((1 + a^2) fan in) (He et al. 2015)."""
    bound = math.sqrt(6 / ((1 + a * a) * max(1, _fans(parameter)[0])))
    return uniform_(parameter, -bound, bound)
