"""Complex numbers in torch's programs: pairs of tensors, which hold the real and the imaginary parts.

The rows of the table have the operators' names with `OF_COMPLEX` behind them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from lucid import ops
from lucid.core.graph.types import float32
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
        if isinstance(argument, Complex):
            return argument[place]
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


def _polar(length: Tensor, angle: Tensor) -> Complex:
    return Complex(length * ops.cos(angle), length * ops.sin(angle))


def fourier_transform(x: Any, size: Any = None, axis: int = -1, norm: str | None = None) -> Complex:
    """torch.fft.fft: the discrete Fourier transform of an axis, as a product with a matrix."""
    if size is not None or norm not in (None, "backward", "ortho"):
        raise NotImplementedError(f"a Fourier transform with size {size} and norm {norm!r}")
    last = by_part(lambda part: part.movedim(axis, -1))(x) if isinstance(x, Complex) else x.movedim(axis, -1)
    length = (last.real if isinstance(last, Complex) else last).shape[-1]
    places = ops.arange(length)
    turns = (places.unsqueeze(1) * places % length).astype(float32)  # whole turns change nothing, and cost digits
    count = _tensor(length, float32)
    waves = _polar(1 / ops.sqrt(count) if norm == "ortho" else ops.full((), 1.0), turns * (-2 * math.pi) / count)
    return Complex(*by_part(lambda part: part.movedim(-1, axis))(_product(ops.matmul)(last, waves)))


def _fourier_transforms(x: Any, sizes: Any = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Any:
    for axis in range((x.real if isinstance(x, Complex) else x).ndim) if axes is None else axes:
        x = fourier_transform(x, sizes, axis, norm)
    return x


def rows(table: Mapping[str, Function]) -> dict[str, Function]:
    """The rows for complex numbers, given those for real ones."""
    own: dict[str, Function] = {
        "aten.view_as_complex.default": lambda x: Complex(x[..., 0], x[..., 1]),
        "aten.view_as_real.default": lambda x: ops.stack(x, -1),
        "aten.complex.default": Complex,
        "aten.polar.default": _polar,
        "aten._conj.default": lambda x: Complex(x.real, -x.imaginary),
        "aten.conj_physical.default": lambda x: Complex(x.real, -x.imaginary),
        "aten.abs.default": lambda x: ops.sqrt(x.real * x.real + x.imaginary * x.imaginary),
        "aten.mul.Tensor": _product(operator.mul),
        "aten.mul.Scalar": _product(operator.mul),
        "aten.matmul.default": _product(ops.matmul),
        "aten.add.Tensor": _sum(operator.add),
        "aten.sub.Tensor": _sum(operator.sub),
        "aten.div.Tensor": _quotient,
        "aten.fft_fft.default": fourier_transform,
        "aten.fft_fft2.default": _fourier_transforms,
        "aten.fft_fftn.default": _fourier_transforms,
    }
    own |= {name: by_part(table[name]) for name in _BY_PART}
    return {name + OF_COMPLEX: function for name, function in own.items()}


_BY_PART = (
    *("aten.neg.default", "aten.clone.default", "aten.alias.default", "aten.detach.default", "aten.contiguous.default"),
    *("aten.lift_fresh_copy.default", "aten.resolve_conj.default", "aten.view.default", "aten._unsafe_view.default"),
    *("aten.reshape.default", "aten.expand.default", "aten.permute.default", "aten.transpose.int"),
    *("aten.unsqueeze.default", "aten.squeeze.dim", "aten.squeeze.dims", "aten.flatten.using_ints"),
    *("aten.slice.Tensor", "aten.select.int", "aten.split.Tensor", "aten.split_with_sizes.default", "aten.unbind.int"),
    *("aten.cat.default", "aten.stack.default", "aten.repeat.default", "aten.flip.default", "aten.roll.default"),
    *("aten.index.Tensor", "aten.index_select.default", "aten.sum.dim_IntList", "aten.mean.dim"),
)
