"""Complex numbers in torch's programs: pairs of tensors, which hold the real and the imaginary parts.

The rows of the table have the operators' names with `OF_COMPLEX` behind them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from lucid import ops
from lucid.core.graph.types import DType, broadcast, float32
from lucid.importing import functions as f
from lucid.ops.creation import tensor as _tensor
from lucid.ops.tensor.tensor import Tensor

Function = Callable[..., Any]
OF_COMPLEX = " of complex numbers"


class Complex(NamedTuple):
    """A complex tensor."""

    real: Any
    imaginary: Any


def _pair(x: Any) -> Complex:
    if isinstance(x, Complex):
        return x
    if isinstance(x, complex):
        return Complex(x.real, x.imag)
    return Complex(x, ops.zeros_like(x) if isinstance(x, Tensor) else 0.0)


def _is_real(x: Any) -> bool:
    return not isinstance(x, (Complex, complex))


def by_part(function: Function) -> Function:
    """A function that treats the two parts alike, such as a view."""

    def part(argument: Any, place: int) -> Any:
        if not _is_real(argument):
            return _pair(argument)[place]
        return [part(item, place) for item in argument] if isinstance(argument, (list, tuple)) else argument

    def function_of_parts(*arguments: Any, **options: Any) -> Any:
        real, imaginary = (function(*(part(argument, place) for argument in arguments), **options) for place in (0, 1))
        if isinstance(real, (list, tuple)):
            return [Complex(*pair) for pair in zip(real, imaginary, strict=True)]
        return Complex(real, imaginary)

    return function_of_parts


def _product(function: Function) -> Function:
    """A product of complex numbers from one of real numbers."""

    def product(x: Any, y: Any) -> Any:
        if _is_real(x) or _is_real(y):
            return by_part(function)(x, y)
        (a, b), (c, d) = _pair(x), _pair(y)
        return Complex(function(a, c) - function(b, d), function(a, d) + function(b, c))

    return product


def _sum(function: Callable[[Any, Any], Any]) -> Function:
    def sum_of_parts(x: Any, y: Any, alpha: Any = 1) -> Any:
        return by_part(f.scaled(function))(_pair(x), _pair(y), alpha)

    return sum_of_parts


def _quotient(x: Any, y: Any) -> Any:
    if not _is_real(y):
        c, d = _pair(y)
        x, y = _product(operator.mul)(x, Complex(c, -d)), c * c + d * d
    return by_part(operator.truediv)(x, y)


def _of_parts(real: Tensor, imaginary: Tensor) -> Complex:
    shape = broadcast("complex", real.shape, imaginary.shape)
    return Complex(real.expand(shape), imaginary.expand(shape))


def _polar(length: Tensor, angle: Tensor) -> Complex:
    return Complex(length * ops.cos(angle), length * ops.sin(angle))


def _full(size: Sequence[Any], value: Any, dtype: DType | None = None) -> Complex:
    """One number everywhere."""
    real, imaginary = _pair(value)
    return Complex(ops.full(size, real, float32), ops.full(size, imaginary, float32))


def _waves(rows: Any, columns: Any, turns: Any, dtype: DType, sign: int = -1) -> Complex:
    """exp(2 pi i sign row column / turns), a row for each number of `rows`."""
    steps = ops.arange(rows).unsqueeze(1) * ops.arange(columns) % turns  # whole turns change nothing, and cost digits
    return _polar(_tensor(1, dtype), steps.astype(dtype) * (sign * 2 * math.pi) / _tensor(turns, dtype))


def _to_copy(x: Any, dtype: DType | None = None) -> Any:
    """To a real type, or, without one, to complex numbers."""
    if dtype is not None:
        return _pair(x).real.astype(dtype)
    return _pair(x if isinstance(x, Complex) or x.dtype.kind == "float" else x.astype(float32))


def each_part(function: Function, x: Any) -> Any:
    """A function of a real tensor, or of each part of a complex one."""
    return Complex(*map(function, x)) if isinstance(x, Complex) else function(x)


def _moved(x: Any, axis: int, to: int) -> Any:
    return each_part(lambda part: part.movedim(axis, to), x)


def _scaled(x: Any, sizes: Sequence[Any], norm: int) -> Any:
    """x divided by torch's code of a norm: 0 nothing, 1 the root of the number of elements, 2 the number."""
    if norm == 0:
        return x
    count = _tensor(math.prod(sizes), (x.real if isinstance(x, Complex) else x).dtype)
    divisor = ops.sqrt(count) if norm == 1 else count
    return each_part(lambda part: part / divisor, x)


def _transforms(x: Complex, axes: Sequence[int], norm: int, forward: bool) -> Complex:
    """torch._fft_c2c: the discrete Fourier transform of each axis, as a product with a matrix."""
    sizes = [x.real.shape[axis] for axis in axes]
    for axis, size in zip(axes, sizes, strict=True):
        waves = _waves(size, size, size, x.real.dtype, -1 if forward else 1)
        x = _moved(_product(ops.matmul)(_moved(x, axis, -1), waves), -1, axis)
    return Complex(*_scaled(x, sizes, norm))


def _of_real(x: Tensor, axes: Sequence[int], norm: int, onesided: bool) -> Complex:
    """torch._fft_r2c: the transform of real numbers; of its last axis perhaps the first half alone."""
    *others, axis = axes
    size = x.shape[axis]
    waves = _waves(size, size // 2 + 1 if onesided else size, size, x.dtype)
    half = _moved(_product(ops.matmul)(_moved(x, axis, -1), waves), -1, axis)
    return Complex(*_scaled(_transforms(half, others, 0, True), [x.shape[axis] for axis in axes], norm))


def _to_real(x: Complex, axes: Sequence[int], norm: int, size: Any) -> Any:
    """torch._fft_c2r: back to real numbers, from the first half of the last axis."""
    *others, axis = axes
    real, imaginary = _moved(_transforms(x, others, 0, False), axis, -1)
    half = size // 2 + 1
    waves, places = _waves(half, size, size, real.dtype, 1), ops.arange(half).unsqueeze(1)
    alone = ops.logical_or(places == 0, places * 2 == size)  # the others stand for two numbers, one of them left out
    cos, sin = (ops.where(alone, part, part * 2) for part in waves)
    result = real[..., :half] @ cos - imaginary[..., :half] @ sin
    return _scaled(_moved(result, -1, axis), [*(x.real.shape[other] for other in others), size], norm)


def rows(table: Mapping[str, Function]) -> dict[str, Function]:
    """The rows for complex numbers, given those for real ones."""
    own: dict[str, Function] = {
        "aten.view_as_complex.default": lambda x: Complex(x[..., 0], x[..., 1]),
        "aten.view_as_real.default": lambda x: ops.stack(x, -1),
        "aten.complex.default": _of_parts,
        "aten.polar.default": _polar,
        "aten._conj.default": lambda x: Complex(x.real, -x.imaginary),
        "aten.conj_physical.default": lambda x: Complex(x.real, -x.imaginary),
        "aten.abs.default": lambda x: ops.sqrt(x.real * x.real + x.imaginary * x.imaginary),
        "aten.mul.Tensor": _product(operator.mul),
        "aten.mul.Scalar": _product(operator.mul),
        "aten.matmul.default": _product(ops.matmul),
        "aten.mm.default": _product(ops.matmul),
        "aten.bmm.default": _product(ops.matmul),
        "aten.exp.default": lambda x: _polar(ops.exp(x.real), x.imaginary),
        "aten.full.default": _full,
        "aten.add.Tensor": _sum(operator.add),
        "aten.sub.Tensor": _sum(operator.sub),
        "aten.div.Tensor": _quotient,
        "aten._to_copy.default": _to_copy,
        "aten._fft_c2c.default": _transforms,
        "aten._fft_r2c.default": _of_real,
        "aten._fft_c2r.default": _to_real,
        "aten._conj_physical.default": lambda x: Complex(x.real, -x.imaginary),
    }
    own |= {name: by_part(table[name]) for name in _BY_PART}
    return {name + OF_COMPLEX: function for name, function in own.items()}


_BY_PART = (
    *("aten.neg.default", "aten.clone.default", "aten.alias.default", "aten.detach.default", "aten.contiguous.default"),
    "lucid.constant.default",
    *("aten.lift_fresh_copy.default", "aten.resolve_conj.default", "aten.view.default", "aten._unsafe_view.default"),
    *("aten.reshape.default", "aten.expand.default", "aten.permute.default", "aten.transpose.int"),
    *("aten.unsqueeze.default", "aten.squeeze.dim", "aten.squeeze.dims", "aten.flatten.using_ints"),
    *("aten.slice.Tensor", "aten.select.int", "aten.split.Tensor", "aten.split_with_sizes.default", "aten.unbind.int"),
    *(
        "aten.constant_pad_nd.default",
        "aten.cat.default",
        "aten.stack.default",
        "aten.repeat.default",
        "aten.flip.default",
        "aten.roll.default",
    ),
    *("aten.index.Tensor", "aten.index_select.default", "aten.sum.dim_IntList", "aten.mean.dim"),
    *("aten.slice_scatter.default", "aten.select_scatter.default", "aten.copy.default", "aten.squeeze.default"),
    *("aten.sum.default", "aten.mean.default"),
)
