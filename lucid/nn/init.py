"""Initial values of parameters, drawn from the generator that `lucid.manual_seed` seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from lucid.core.graph.types import DTypeLike, as_dtype, float32, show_shape
from lucid.core.process.context import holding
from lucid.core.words.other_libraries import type_name
from lucid.nn.module import Parameter
from lucid.ops.creation import generator

__all__ = [
    "constant_",
    "kaiming_uniform_",
    "new_parameter",
    "normal_",
    "ones_",
    "skip",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]


def __dir__() -> list[str]:
    return __all__


def _check(parameter: Parameter) -> None:
    if not isinstance(parameter, Parameter):
        raise TypeError(
            f"init: got {type_name(parameter)}, expected a Parameter, the only tensor that changes in place; write "
            "nn.Parameter(x) first"
        )


def _fans(parameter: Parameter) -> tuple[int, int]:
    """Fan in and fan out of a weight stored as (out, in, ...)."""
    _check(parameter)
    shape = parameter.numpy().shape
    if len(shape) < 2:
        raise ValueError(f"init: a parameter of shape {shape} has no fan in and out; expected at least 2 axes")
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


class _Skipping:
    """The number of parameters that may still be created inside a `skip`; None for any number."""

    def __init__(self, at_most: int | None) -> None:
        self.left = self.at_most = at_most

    def count(self) -> None:
        """Count a new parameter."""
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise ValueError(f"init.skip: got more than {self.at_most} parameters, expected no more")


_skipped: ContextVar[_Skipping | None] = ContextVar("lucid_init_skipped", default=None)


@contextmanager
def skip(at_most: int | None = None) -> Iterator[None]:
    """Inside, parameters are created without initial values, for models whose weights are loaded next.

    This saves drawing random numbers, which takes longest. Such a parameter holds one number for all its elements, so
    it needs no memory.

    Args:
        at_most: the largest number of parameters that may be created.

    Raises:
        ValueError: inside, for one parameter more.
    """
    with holding(_skipped, _Skipping(at_most)):
        yield


def new_parameter(*shape: int, dtype: DTypeLike | None = None, value: float = 0.0) -> Parameter:
    """A parameter of one number everywhere, to be initialised or loaded.

    Raises:
        ValueError: for a shape larger than any memory.
    """
    numpy_dtype = as_dtype(float32 if dtype is None else dtype).numpy
    if math.prod(shape) * numpy_dtype.itemsize >= 1 << 63:
        raise ValueError(f"a parameter of shape {show_shape(shape)} is larger than any memory")
    skipping = _skipped.get()
    if skipping is not None:
        skipping.count()
        return Parameter(np.broadcast_to(np.asarray(value, numpy_dtype), shape))
    # Untouched zeros cost no memory, which matters for weights that are loaded next.
    return Parameter(np.full(shape, value, numpy_dtype) if value else np.zeros(shape, numpy_dtype))


def _fill(parameter: Parameter, draw: Callable[[tuple[int, ...]], object]) -> Parameter:
    _check(parameter)
    if _skipped.get() is None:
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
    return _fill(parameter, lambda shape: generator("nn.init").uniform(low, high, shape))


def normal_(parameter: Parameter, mean: float = 0.0, std: float = 1.0) -> Parameter:
    """Normal with a mean and a standard deviation."""
    return _fill(parameter, lambda shape: generator("nn.init").normal(mean, std, shape))


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
