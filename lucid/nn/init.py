"""Initial values of parameters, drawn from the generator that `lucid.manual_seed` seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import numpy as np

from lucid.core.graph.types import Array, DTypeLike, as_dtype, float32, show_shape
from lucid.core.process.context import holding
from lucid.core.torch_names.argument_names import torch_names
from lucid.core.torch_names.missing_names import why_absent
from lucid.core.words.other_libraries import type_name
from lucid.core.words.package_names import unknown
from lucid.nn.parameters import Parameter
from lucid.ops.creation import generator

__all__ = [
    "calculate_gain",
    "constant_",
    "eye_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "new_parameter",
    "normal_",
    "ones_",
    "orthogonal_",
    "skip",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]
__dir__ = __all__.copy


if not TYPE_CHECKING:  # type checkers know the names

    def __getattr__(name: str) -> object:
        raise unknown(f"module {__name__!r}", name, __all__, why_absent("init", name))


def _check(parameter: Parameter) -> None:
    if not isinstance(parameter, Parameter):
        raise TypeError(
            f"init: got {type_name(parameter)}, expected a Parameter; write nn.Parameter(x); "
            "a part of one does not change it: write p.data = p.at[index].set(values)"
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


def new_table(rows: int, width: int, padding_idx: int | None, dtype: DTypeLike | None) -> Parameter:
    """The parameter of an embedding: normal vectors; that of padding is zeros, as in torch."""

    def draw(shape: tuple[int, ...]) -> Array:
        vectors = generator("nn.init").normal(size=shape)
        if padding_idx is not None:
            vectors[padding_idx] = 0
        return vectors

    return _fill(new_parameter(rows, width, dtype=dtype), draw)


def _fill(parameter: Parameter, draw: Callable[[tuple[int, ...]], object]) -> Parameter:
    _check(parameter)
    if _skipped.get() is None:
        parameter.assign(np.asarray(draw(parameter.numpy().shape), parameter.dtype.numpy))
    return parameter


@torch_names
def constant_(parameter: Parameter, value: float) -> Parameter:
    """One number everywhere."""
    return _fill(parameter, lambda shape: np.full(shape, value))


@torch_names
def zeros_(parameter: Parameter) -> Parameter:
    """Zeros."""
    return constant_(parameter, 0.0)


@torch_names
def ones_(parameter: Parameter) -> Parameter:
    """Ones."""
    return constant_(parameter, 1.0)


@torch_names
def uniform_(parameter: Parameter, low: float = 0.0, high: float = 1.0) -> Parameter:
    """Uniform between two bounds."""
    return _fill(parameter, lambda shape: generator("nn.init").uniform(low, high, shape))


@torch_names
def normal_(parameter: Parameter, mean: float = 0.0, std: float = 1.0) -> Parameter:
    """Normal with a mean and a standard deviation."""
    return _fill(parameter, lambda shape: generator("nn.init").normal(mean, std, shape))


@torch_names
def xavier_uniform_(parameter: Parameter, gain: float = 1.0) -> Parameter:
    """Uniform with variance 2 / (fan in + fan out) (Glorot & Bengio 2010)."""
    bound = gain * math.sqrt(6 / max(1, sum(_fans(parameter))))
    return uniform_(parameter, -bound, bound)


@torch_names
def xavier_normal_(parameter: Parameter, gain: float = 1.0) -> Parameter:
    """Normal with variance 2 / (fan in + fan out) (Glorot & Bengio 2010)."""
    return normal_(parameter, 0.0, gain * math.sqrt(2 / max(1, sum(_fans(parameter)))))


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which an activation shrinks a deviation; `param` is the slope of "leaky_relu".

    Raises:
        ValueError: for another activation.
    """
    slope = 0.01 if param is None else param
    gains = {"tanh": 5 / 3, "relu": math.sqrt(2), "leaky_relu": math.sqrt(2 / (1 + slope**2)), "selu": 3 / 4}
    if nonlinearity not in gains and not nonlinearity.startswith(("linear", "conv", "sigmoid")):
        raise ValueError(f"init: nonlinearity is {nonlinearity!r}, expected linear, sigmoid, {', '.join(gains)}")
    return gains.get(nonlinearity, 1.0)


def _kaiming_deviation(parameter: Parameter, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"init: mode is {mode!r}, expected fan_in or fan_out")
    return calculate_gain(nonlinearity, a) / math.sqrt(max(1, _fans(parameter)[mode == "fan_out"]))


@torch_names
def kaiming_uniform_(
    parameter: Parameter, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Parameter:
    """Uniform with variance gain^2 / fan in, or fan out (He et al. 2015); `a`: the slope of a leaky ReLU."""
    bound = math.sqrt(3) * _kaiming_deviation(parameter, a, mode, nonlinearity)
    return uniform_(parameter, -bound, bound)


@torch_names
def kaiming_normal_(
    parameter: Parameter, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Parameter:
    """Normal with variance gain^2 / fan in, or fan out (He et al. 2015); `a`: the slope of a leaky ReLU."""
    return normal_(parameter, 0.0, _kaiming_deviation(parameter, a, mode, nonlinearity))


@torch_names
def trunc_normal_(
    parameter: Parameter, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0
) -> Parameter:
    """Normal with a mean and a standard deviation, drawn again outside of a to b.

    Raises:
        ValueError: for bounds that leave out the mean by more than two deviations.
    """
    if not a < b or not a - 2 * std <= mean <= b + 2 * std:
        raise ValueError(f"trunc_normal_: got the bounds {a} and {b} of a mean {mean} and a deviation {std}")

    def drawn(count: int) -> Array:
        """Normal numbers; if the bounds are narrow, numbers between them, and NaN for those to draw again."""
        if b - a >= std:  # many normal numbers are within the bounds
            return generator("nn.init").normal(mean, std, count)
        numbers = generator("nn.init").uniform(a, b, count)
        nearest = min(max(mean, a), b)
        kept = np.exp(((nearest - mean) ** 2 - (numbers - mean) ** 2) / (2 * std**2))  # the densest is always kept
        return np.where(generator("nn.init").random(count) < kept, numbers, math.nan)

    def draw(shape: tuple[int, ...]) -> object:
        numbers, missing = np.empty(shape), np.ones(shape, bool)
        while missing.any():
            numbers[missing] = drawn(int(missing.sum()))
            missing = ~((numbers >= a) & (numbers <= b))
        return numbers

    return _fill(parameter, draw)


@torch_names
def orthogonal_(parameter: Parameter, gain: float = 1.0) -> Parameter:
    """Rows, or columns, that are orthogonal and as long as `gain`; further axes count as columns (Saxe et al. 2013)."""

    def draw(shape: tuple[int, ...]) -> object:
        rows, columns = shape[0], math.prod(shape[1:])
        square, triangle = np.linalg.qr(generator("nn.init").normal(size=(max(rows, columns), min(rows, columns))))
        square *= np.sign(np.diag(triangle))
        return gain * (square if rows >= columns else square.T).reshape(shape)

    _fans(parameter)
    return _fill(parameter, draw)


@torch_names
def eye_(parameter: Parameter) -> Parameter:
    """1 on the diagonal of a matrix, 0 elsewhere.

    Raises:
        ValueError: for a parameter that is no matrix.
    """
    _check(parameter)
    if parameter.ndim != 2:
        raise ValueError(f"init: got a parameter of shape {show_shape(parameter.shape)}, expected a matrix")
    return _fill(parameter, lambda shape: np.eye(shape[0], shape[1]))
