"""Functions of torch that are a line of other ops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lucid.core.graph.types import DTypeLike, common_dtype, float32, int64, show_shape
from lucid.core.sizes.dims import Size, product, same, sym_min
from lucid.ops.creation import arange, full
from lucid.ops.elementwise import abs_, add, ceil, exp, floor, isfinite, isinf, isnan, log, log1p, sub, where
from lucid.ops.indexing import take, take_along
from lucid.ops.linalg import matmul
from lucid.ops.loops import scan
from lucid.ops.op import function
from lucid.ops.operand_conversion import as_tensor, known_alike
from lucid.ops.rearranging import movedim
from lucid.ops.scattering import neutral
from lucid.ops.shaping import concat, expand, flatten, normalize_axis, pad, permute, reshape, unsqueeze
from lucid.ops.sorting import Ordered
from lucid.ops.tensor.tensor import Axes, Tensor, TensorLike, TracedValueError

# Elements -------------------------------------------------------------------------------------------------------------


@function
def trunc(x: Tensor) -> Tensor:
    """Each element rounded towards 0."""
    return x if x.dtype.kind == "int" else where(x < 0, ceil(x), floor(x))


@function
def frac(x: Tensor) -> Tensor:
    """The part of each element that `trunc` drops."""
    return sub(x, trunc(x))


@function
def exp2(x: Tensor) -> Tensor:
    """2 to the power of each element."""
    return 2.0**x


@function
def log10(x: Tensor) -> Tensor:
    """Logarithm to base 10."""
    return _rounded_once("log10", lambda x: log(x) * (1 / math.log(10)), x)


def _rounded_once(name: str, body: Callable[..., Tensor], *operands: TensorLike) -> Tensor:
    """The body of some tensors; half precision is computed in float32 and rounded at the end, as in torch."""
    tensors = [as_tensor(name, x) for x in operands]
    common = common_dtype([x.spec for x in tensors])
    if common.kind != "float" or common.itemsize > 2:
        return body(*tensors)
    return body(*(x.astype(float32) for x in tensors)).astype(common)


def _real_pair(name: str, x: TensorLike, y: TensorLike) -> tuple[Tensor, Tensor]:
    """Both in the type in which they are combined; float32 for whole numbers."""
    left, right = as_tensor(name, x), as_tensor(name, y)
    common = common_dtype([left.spec, right.spec])
    real = common if common.kind == "float" else float32
    return left.astype(real), right.astype(real)


@function
def logaddexp(x: TensorLike, other: TensorLike) -> Tensor:
    """log(exp(x) + exp(other)), which does not overflow; in float32 for whole numbers."""
    return _rounded_once("logaddexp", _logaddexp, *_real_pair("logaddexp", x, other))


def _logaddexp(x: Tensor, y: Tensor) -> Tensor:
    first = x >= y
    larger, smaller = where(first, x, y), where(first, y, x)
    return where(isinf(smaller), larger, larger + log1p(exp(smaller - larger)))  # infinities have no difference


@function
def xlogy(x: TensorLike, other: TensorLike) -> Tensor:
    """x * log(other), which is 0 where x is 0, unless `other` is NaN; in float32 for whole numbers."""
    x, y = _real_pair("xlogy", x, other)
    return x * log(where((x == 0) & ((y <= 0) | isinf(y)), 1, y))


@function
def logit(x: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), of numbers from `eps` to 1 - eps where it is given."""
    x = x if x.dtype.kind == "float" else x.astype(float32)
    x = x if eps is None else x.clamp(eps, 1 - eps)
    return log(x / (1 - x))


@function
def sinc(x: Tensor) -> Tensor:
    """sin(pi x) / (pi x), and 1 at 0."""
    return _rounded_once("sinc", _sinc, x)


def _sinc(x: Tensor) -> Tensor:
    angle = math.pi * where(x == 0, 1, x)
    return where(x == 0, 1, angle.sin() / angle)


@function
def lerp(x: Tensor, end: TensorLike, weight: TensorLike) -> Tensor:
    """x + weight * (end - x), which is `end` for a weight of 1: from 0.5 on, it is computed from there, as in torch."""
    if isinstance(weight, int | float):
        return _rounded_once("lerp", lambda x, end: _lerp(x, end, weight)[abs(weight) >= 0.5], x, end)
    return _rounded_once("lerp", lambda x, end, w: where(abs_(w) < 0.5, *_lerp(x, end, w)), x, end, weight)


def _lerp(x: Tensor, end: Tensor, weight: Any) -> tuple[Tensor, Tensor]:
    """From x and from the end."""
    apart = end - x
    return x + weight * apart, end - (1 - weight) * apart


@function
def addcmul(x: Tensor, tensor1: TensorLike, tensor2: TensorLike, *, value: float = 1) -> Tensor:
    """x + value * tensor1 * tensor2, in the promoted type of the tensors; for integers `value` is cut to one."""
    tensors = [as_tensor("addcmul", each) for each in (x, tensor1, tensor2)]
    dtype = common_dtype([tensor.spec for tensor in tensors])
    factor = value if dtype.kind == "float" else int(value)
    others = [tensor.astype(dtype) for tensor in tensors[1:]]
    return _rounded_once("addcmul", lambda x, y, z: add(x, y * factor * z), x, *others)


@function
def addcdiv(x: Tensor, tensor1: TensorLike, tensor2: TensorLike, *, value: float = 1) -> Tensor:
    """x + value * tensor1 / tensor2."""
    return _rounded_once("addcdiv", lambda x, y, z: add(x, y * value / z), x, tensor1, tensor2)


@function
def nan_to_num(x: Tensor, nan: float | None = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """Numbers in the places of NaN and infinities: 0, and the largest and the lowest number of the type."""
    if x.dtype.kind != "float":
        return x
    numbers = where(isnan(x), 0.0 if nan is None else nan, x)
    numbers = where(x == math.inf, x.dtype.largest if posinf is None else posinf, numbers)
    return where(x == -math.inf, x.dtype.lowest if neginf is None else neginf, numbers)


@function
def isclose(x: Tensor, other: TensorLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Where |x - other| <= atol + rtol * |other|; infinities are close to themselves only."""
    y = as_tensor("isclose", other)
    alike = x == y
    if x.dtype.kind != "float" and y.dtype.kind != "float":  # differences are exact
        x, y = x.astype(int64), y.astype(int64)
    close = alike | (isfinite(y) & (abs_(x - y) <= atol + rtol * abs_(y)))
    return close | (isnan(x) & isnan(y)) if equal_nan else close


@function
def allclose(x: Tensor, other: TensorLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether all elements are close, as `isclose` says: a Python truth.

    Raises:
        TracedValueError: while tracing.
    """
    close = isclose(x, other, rtol, atol, equal_nan).all()
    if close.is_traced:
        raise TracedValueError(
            "allclose of traced tensors is known only when the model runs; lucid.isclose(x, y).all() is a tensor"
        )
    return bool(close.item())


@function
def cumprod(x: Tensor, axis: int, *, dtype: DTypeLike | None = None) -> Tensor:
    """Running product along an axis; that of integers and booleans is int64. Traced, it is a loop."""
    x = x.astype(dtype or (x.dtype if x.dtype.kind == "float" else int64))
    if not x.ndim:
        return x
    x = movedim(x, axis, 0)
    one = expand(as_tensor("cumprod", 1, x.dtype), x.shape[1:])
    _, products = scan(lambda total, element: (total * element,) * 2, one, x)
    return movedim(products, 0, axis)


def _running_extreme(x: Tensor, axis: int, first: Any, ahead: Callable[[Tensor, Tensor], Tensor]) -> Ordered:
    if not x.ndim:
        return Ordered(x, full((), 0, int64))

    def step(best: tuple[Tensor, Tensor], element: tuple[Tensor, Tensor]) -> tuple[Any, Any]:
        wins = ahead(element[0], best[0])
        wins = wins | isnan(element[0]) if x.dtype.kind == "float" else wins
        chosen = where(wins, element[0], best[0]), where(wins, element[1], best[1])
        return chosen, chosen

    rows = movedim(x, axis, 0)
    start = full(rows.shape[1:], first, x.dtype), full(rows.shape[1:], 0, int64)
    _, (values, indices) = scan(step, start, (rows, arange(rows.shape[0])))
    return Ordered(movedim(values, 0, axis), movedim(indices, 0, axis))


@function
def cummax(x: Tensor, axis: int) -> Ordered:
    """The largest element so far along an axis, the last of equal ones, and its index. Traced, it is a loop."""
    return _running_extreme(x, axis, neutral("amax", x.dtype), lambda element, best: element >= best)


@function
def cummin(x: Tensor, axis: int) -> Ordered:
    """The least element so far along an axis, the last of equal ones, and its index. Traced, it is a loop."""
    return _running_extreme(x, axis, neutral("amin", x.dtype), lambda element, best: element <= best)


@function
def isin(elements: Tensor, test_elements: TensorLike, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Which elements are among others; `invert`: which are not. `assume_unique` changes nothing."""
    elements, others = as_tensor("isin", elements), as_tensor("isin", test_elements)
    if elements.is_traced or others.is_traced:
        among = (unsqueeze(elements, -1) == flatten(others)).any(-1)
    else:  # without a truth for each pair
        known, alike = known_alike(elements, others)
        among = Tensor(np.isin(known, alike))
    return ~among if invert else among


@function
def count_nonzero(x: Tensor, axis: Axes = None) -> Tensor:
    """How many elements are not 0, of all or along axes."""
    return (x != 0).sum(axis)


# Products -------------------------------------------------------------------------------------------------------------


def _check_vectors(name: str, *vectors: Tensor) -> None:
    if any(vector.ndim != 1 for vector in vectors):
        raise ValueError(f"{name}: got {' and '.join(map(str, (v.spec for v in vectors)))}, expected vectors")


@function
def dot(x: Tensor, tensor: TensorLike) -> Tensor:
    """The sum of the products of two vectors' elements.

    Raises:
        ValueError: for other than vectors of one length.
    """
    y = as_tensor("dot", tensor)
    _check_vectors("dot", x, y)
    return matmul(x, y)


@function
def mv(x: Tensor, vec: TensorLike) -> Tensor:
    """The product of a matrix and a vector.

    Raises:
        ValueError: for other than a vector of as many elements as the matrix has columns.
    """
    vector = as_tensor("mv", vec)
    _check_vectors("mv", vector)
    return matmul(x, vector)


@function
def inner(x: Tensor, other: TensorLike) -> Tensor:
    """The sums of products along the last axes of both; a product with a number."""
    y = as_tensor("inner", other)
    return x * y if not x.ndim or not y.ndim else tensordot(x, y, ([-1], [-1]))


@function
def tensordot(a: Tensor, b: TensorLike, axes: int | Sequence[Sequence[int]] = 2) -> Tensor:
    """The sums of products along axes of both: the last ones of a and the first ones of b, or one list for each.

    Raises:
        ValueError: for axes that differ in number or size, or a number of axes below 0.
    """
    if isinstance(axes, int) and axes < 0:
        raise ValueError(f"tensordot: got {axes} axes, expected 0 or more")
    b = as_tensor("tensordot", b)
    pairs = (range(a.ndim - axes, a.ndim), range(axes)) if isinstance(axes, int) else axes
    left, right = (
        [normalize_axis("tensordot", axis, x.ndim) for axis in each] for x, each in zip((a, b), pairs, strict=True)
    )
    if len(left) != len(right) or not all(same(a.shape[i], b.shape[j]) for i, j in zip(left, right, strict=True)):
        raise ValueError(
            f"tensordot: axes {left} of {show_shape(a.shape)} and {right} of {show_shape(b.shape)} differ in number or "
            "size"
        )
    kept_left = [axis for axis in range(a.ndim) if axis not in left]
    kept_right = [axis for axis in range(b.ndim) if axis not in right]
    shape = (*(a.shape[axis] for axis in kept_left), *(b.shape[axis] for axis in kept_right))
    summed = product(a.shape[axis] for axis in left)
    rows = reshape(permute(a, [*kept_left, *left]), (product(a.shape[axis] for axis in kept_left), summed))
    columns = reshape(permute(b, [*right, *kept_right]), (summed, product(b.shape[axis] for axis in kept_right)))
    return reshape(matmul(rows, columns), shape)


@function
def kron(x: Tensor, other: TensorLike) -> Tensor:
    """The Kronecker product: blocks of `other`, each times an element of x."""
    y = as_tensor("kron", other)
    rank = max(x.ndim, y.ndim)
    left = reshape(x, (*(1,) * (rank - x.ndim), *x.shape))
    right = reshape(y, (*(1,) * (rank - y.ndim), *y.shape))
    wide = unsqueeze(left, range(1, 2 * rank, 2)) * unsqueeze(right, range(0, 2 * rank, 2))
    return reshape(wide, [a * b for a, b in zip(left.shape, right.shape, strict=True)])


@function
def cross(x: Tensor, other: TensorLike, axis: int | None = None) -> Tensor:
    """The cross product of vectors of three elements, along an axis or by default the first one of that size.

    Raises:
        ValueError: for an axis of another size, or tensors of different numbers of axes.
    """
    y = as_tensor("cross", other)
    if x.ndim != y.ndim:
        raise ValueError(f"cross: got {x.spec} and {y.spec}, expected as many axes; unsqueeze one of them")
    threes = [place for place, size in enumerate(x.shape) if same(size, 3)]
    place = normalize_axis("cross", axis, x.ndim) if axis is not None else threes[0] if threes else -1
    if place not in threes or not same(y.shape[place], 3):
        raise ValueError(f"cross: got {x.spec} and {y.spec}, expected axes of 3 elements to multiply")
    first, second = ([v.narrow(place, i, 1) for i in range(3)] for v in (x, y))
    parts = [first[i] * second[j] - first[j] * second[i] for i, j in ((1, 2), (2, 0), (0, 1))]
    return concat(parts, place)


@function
def cdist(
    x1: Tensor, x2: TensorLike, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary"
) -> Tensor:
    """The distances (..., A, B) of each row of x1 (..., A, d) from each row of x2 (..., B, d), by the p-norm.
    `compute_mode` changes nothing: products are not used, as they lose digits.
    """
    y = as_tensor("cdist", x2)
    for points in (x1, y):
        normalize_axis("cdist", -2, points.ndim)
    power = 1.0 if same(x1.shape[-1], 0) else p  # of nothing every distance is 0, and there is no largest difference
    return (unsqueeze(x1, -2) - unsqueeze(y, -3)).norm(power, -1)


# Places ---------------------------------------------------------------------------------------------------------------


@function
def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The elements whose place along dim2 is that along dim1 plus `offset`, as the last axis."""
    x = movedim(x, (dim1, dim2), (-2, -1))
    rows, columns = x.shape[-2:]
    first, second = max(-offset, 0), max(offset, 0)
    places = arange(sym_min(rows - first, columns - second))
    return take(reshape(x, (*x.shape[:-2], rows * columns)), (places + first) * columns + places + second, -1)


@function
def diag_embed(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices with the last axis of x on a diagonal and 0 elsewhere; their axes are dim1 and dim2."""
    normalize_axis("diag_embed", -1, x.ndim)
    length = x.shape[-1] + abs(offset)
    places = arange(length)
    before = [0] * (x.ndim - 1)
    by_row = pad(x, before=(*before, max(-offset, 0)), after=(*before, max(offset, 0)))
    on_diagonal = places == unsqueeze(places, 1) + offset
    return movedim(where(on_diagonal, unsqueeze(by_row, -1), np.zeros((), x.dtype.numpy)), (-2, -1), (dim1, dim2))


@function
def diag(x: Tensor, diagonal: int = 0) -> Tensor:
    """The diagonal of a matrix, or a matrix with a vector on its diagonal.

    Raises:
        ValueError: for other than a vector or a matrix.
    """
    if x.ndim not in (1, 2):
        raise ValueError(f"diag: got {x.spec}, expected a vector or a matrix; diagonal(x) takes more axes")
    return diag_embed(x, diagonal) if x.ndim == 1 else _diagonal(x, diagonal)


_diagonal = diagonal


@function
def take_along_dim(x: Tensor, indices: TensorLike, axis: int | None = None) -> Tensor:
    """Elements of x at indices along an axis, where the other axes broadcast; without one, of x flattened."""
    indices = as_tensor("take_along_dim", indices)
    return take_along(flatten(x), flatten(indices), axis=0) if axis is None else take_along(x, indices, axis=axis)


@function
def tensor_split(x: Tensor, indices_or_sections: int | Sequence[int] | Tensor, axis: int = 0) -> tuple[Tensor, ...]:
    """Parts of an axis: so many, the first ones perhaps longer by one, or cut at indices.

    Raises:
        ValueError: for a number of parts below 1.
    """
    cuts, place = indices_or_sections, normalize_axis("tensor_split", axis, x.ndim)
    cuts = cuts.tolist() if isinstance(cuts, Tensor) else cuts
    size = x.shape[place]
    if isinstance(cuts, int):
        if cuts < 1:
            raise ValueError(f"tensor_split: got {cuts} parts, expected 1 or more")
        starts = [part * (size // cuts) + sym_min(part, size % cuts) for part in range(cuts)]
        return tuple(x.narrow(place, a, b - a) for a, b in zip(starts, [*starts[1:], size], strict=True))
    bounds = zip((None, *cuts), (*cuts, None), strict=True)
    return tuple(x[(slice(None),) * place + (slice(a, b),)] for a, b in bounds)


def _evenly(name: str, x: Tensor, cuts: int | Sequence[int], axis: int) -> tuple[Tensor, ...]:
    if x.ndim <= axis or (isinstance(cuts, int) and cuts > 0 and not same(x.shape[axis] % cuts, 0)):
        raise ValueError(f"{name}: got {x.spec}, expected {cuts} equal parts of axis {axis}")
    return tensor_split(x, cuts, axis)


@function
def vsplit(x: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Equal parts of axis 0, or parts cut at indices.

    Raises:
        ValueError: for a size that is no multiple of their number.
    """
    return _evenly("vsplit", x, indices_or_sections, 0)


@function
def hsplit(x: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Equal parts of axis 1, of a vector axis 0, or parts cut at indices.

    Raises:
        ValueError: for a size that is no multiple of their number.
    """
    return _evenly("hsplit", x, indices_or_sections, 0 if x.ndim == 1 else 1)


@function
def unfold(x: Tensor, axis: int, size: int, step: int) -> Tensor:
    """Windows of so many elements along an axis, each so many steps after the one before, as a new last axis.

    Raises:
        ValueError: for a window longer than the axis, or a step below 1.
    """
    if not x.ndim:
        return unfold(reshape(x, (1,)), axis, size, step)[0]
    place = normalize_axis("unfold", axis, x.ndim)
    room = x.shape[place] - size
    if step < 1 or size < 0 or (isinstance(room, int) and room < 0):
        raise ValueError(
            f"unfold: windows of {size} in steps of {step} do not fit axis {axis} of {show_shape(x.shape)}"
        )
    places = unsqueeze(arange(room // step + 1) * step, 1) + arange(size)
    return movedim(take(x, places, place), place + 1, -1)


@function
def ravel(x: Tensor) -> Tensor:
    """All elements in a row."""
    return flatten(x)


@function
def fliplr(x: Tensor) -> Tensor:
    """The second axis turned round."""
    return x.flip(1)


@function
def flipud(x: Tensor) -> Tensor:
    """The first axis turned round."""
    return x.flip(0)


def _with_axes(name: str, parts: Sequence[TensorLike], least: int) -> list[Tensor]:
    """Tensors of at least so many axes: new ones of size 1 come first."""
    tensors = [as_tensor(name, part) for part in parts]
    return [reshape(x, (*(1,) * (least - x.ndim), *x.shape)) for x in tensors]


@function
def atleast_1d(*tensors: Any) -> Any:
    """A tensor, or each of several, of at least one axis."""
    return _each_with_axes("atleast_1d", tensors, 1)


@function
def atleast_2d(*tensors: Any) -> Any:
    """A tensor, or each of several, of at least two axes: new ones come first."""
    return _each_with_axes("atleast_2d", tensors, 2)


def _each_with_axes(name: str, tensors: Sequence[Any], least: int) -> Any:
    several = len(tensors) > 1 or isinstance(tensors[0], (list, tuple))
    parts = _with_axes(name, tensors[0] if several and len(tensors) == 1 else tensors, least)
    return tuple(parts) if several else parts[0]


@function
def block_diag(*tensors: TensorLike) -> Tensor:
    """Matrices from the upper left to the lower right of one of zeros; vectors and numbers are rows."""
    parts = _with_axes("block_diag", tensors, 2)
    width = sum(part.shape[1] for part in parts)
    rows: list[Tensor] = []
    before: Size = 0
    for part in parts:
        rows.append(pad(part, before=(0, before), after=(0, width - before - part.shape[1])))
        before += part.shape[1]
    return concat(rows, 0)


@function
def vstack(parts: Sequence[TensorLike]) -> Tensor:
    """Tensors joined along their first axis; vectors are rows."""
    return concat(_with_axes("vstack", parts, 2), 0)


@function
def column_stack(parts: Sequence[TensorLike]) -> Tensor:
    """Tensors joined along their second axis; vectors are columns."""
    return concat([unsqueeze(x, 1) if x.ndim == 1 else x for x in _with_axes("column_stack", parts, 1)], 1)


@function
def dstack(parts: Sequence[TensorLike]) -> Tensor:
    """Tensors joined along their third axis, which matrices get."""
    return concat([unsqueeze(x, 2) if x.ndim == 2 else x for x in _with_axes("dstack", parts, 2)], 2)
