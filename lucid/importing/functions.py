"""Functions of torch's operators that are more than one call of Lucid's: arguments in ATen's order, under its meaning.

Arguments about devices, memory and gradients are left out before. Sizes are integers or `Dim`s.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from lucid import ops
from lucid.core.graph.number_sizes import size_of_number
from lucid.core.graph.types import DType, bool_, broadcast, float32, int32, int64
from lucid.core.sizes.dims import Dim, same
from lucid.ops.creation import tensor as _tensor
from lucid.ops.reduction import norm_by_definition
from lucid.ops.tensor.tensor import Tensor

Function = Callable[..., Any]
END = 2**63 - 1  # torch's way to write the end of an axis


# Creation -------------------------------------------------------------------------------------------------------------


def arange(start: Any, end: Any, step: Any = 1, dtype: DType | None = None) -> Tensor:
    """torch's arange; a step that is a size, as for bags of one length, is a factor."""
    if isinstance(step, Dim):
        places: Tensor = ops.arange(0, (end - start + step - 1) // step, 1, dtype) * step + start
        return places
    return ops.arange(start, end, step, dtype)


def scalar_tensor(value: Any, dtype: DType | None = None) -> Tensor:
    return ops.full((), value, dtype or float32)


def item(x: Any) -> Any:
    """The number in a tensor: a size, if the tensor was computed from sizes, so that it may be the bound of a slice."""
    size = size_of_number(x.to_value()) if isinstance(x, Tensor) and x.is_traced else None
    return x if size is None else size


class Part(NamedTuple):
    """A size times a fraction that floating point holds exactly, before it is rounded to a size again."""

    size: Any
    numerator: int
    denominator: int


_FINEST = 1024  # of the denominators with which products in floating point are exact


def in_floats(x: Any) -> Any:
    """A size, or a part of one, as a tensor in floating point; anything else as it is."""
    if isinstance(x, Part):
        return _tensor(x.size, float32) * (x.numerator / x.denominator)
    return _tensor(x, float32) if isinstance(x, Dim) else x


def of_sizes(function: Function) -> Function:
    """Arithmetic of sizes, which is that of floating point once an operand is a fraction: 1 / L, L ** 0.5."""

    def of_sizes(*operands: Any) -> Any:
        exact = all(isinstance(each, (int, Dim)) for each in operands)
        return function(*(operands if exact else map(in_floats, operands)))

    return of_sizes


def size_product(x: Any, y: Any) -> Any:
    """A product of sizes, or of a size and a fraction, as half of a height."""
    for size, factor in ((x, y), (y, x)):
        if isinstance(size, (Dim, Part)) and isinstance(factor, float) and math.isfinite(factor):
            numerator, denominator = factor.as_integer_ratio()
            part = size if isinstance(size, Part) else Part(size, 1, 1)
            if numerator > 0 and part.denominator * denominator <= _FINEST:
                return Part(part.size, part.numerator * numerator, part.denominator * denominator)
    return of_sizes(operator.mul)(x, y)


def size_quotient(x: Any, y: Any) -> Any:
    """A quotient of sizes; by a power of two it is a part of one."""
    exact = isinstance(x, (Dim, Part)) and isinstance(y, (int, float)) and math.frexp(y)[0] == 0.5
    return size_product(x, 1 / y) if exact else in_floats(x) / in_floats(y)


def size_power(x: Any, y: Any) -> Any:
    """A power of a size: no size if the exponent is below 0."""
    return in_floats(x) ** y if isinstance(y, int) and y < 0 else of_sizes(operator.pow)(x, y)


def size_floor(x: Any) -> Any:
    """The largest size up to a part of one."""
    return x.size * x.numerator // x.denominator if isinstance(x, Part) else math.floor(rounded_number(x))


def size_trunc(x: Any) -> Any:
    """The same, towards 0."""
    return size_floor(x) if isinstance(x, Part) else math.trunc(rounded_number(x))


def size_ceil(x: Any) -> Any:
    """The smallest size from a part of one on."""
    return (
        (x.size * x.numerator + x.denominator - 1) // x.denominator
        if isinstance(x, Part)
        else math.ceil(rounded_number(x))
    )


def size_round(x: Any, digits: int | None = None) -> Any:
    """The size next to a part of one; of two, the even one."""
    if not isinstance(x, Part):
        return round(rounded_number(x), digits)
    size, of = x.size * x.numerator, x.denominator
    return (2 * size + of - 1 + size // of % 2) // (2 * of)


def rounded_number(x: Any) -> Any:
    """What is rounded to a size: a number, or a size, and no tensor."""
    if isinstance(x, Tensor):
        raise NotImplementedError(
            "a size that is rounded from a fraction other than halves, quarters and so on, such as 0.3 of a length: "
            "write it in integers, x.shape[1] * 3 // 10"
        )
    return x


# Types and copies -----------------------------------------------------------------------------------------------------


def unchanged(x: Any, *ignored: Any, **named: Any) -> Any:
    return x


def to_copy(x: Tensor, dtype: DType | None = None, **named: Any) -> Tensor:
    return x if dtype is None else x.astype(dtype)


# Arithmetic -----------------------------------------------------------------------------------------------------------


def scaled(function: Callable[[Any, Any], Tensor]) -> Function:
    """`add` and `sub`, whose second operand may be multiplied by `alpha`."""

    def scaled(x: Any, y: Any, alpha: Any = 1) -> Tensor:
        return function(x, y if alpha == 1 else y * alpha)

    return scaled


def rsub(x: Tensor, y: Any, alpha: Any = 1) -> Any:
    return y - (x if alpha == 1 else x * alpha)


def div_mode(x: Any, y: Any, rounding_mode: str | None = None) -> Tensor:
    return ops.OPS["div"](x, y) if rounding_mode is None else tensor_beside(x, y).div(y, rounding_mode=rounding_mode)


def tensor_beside(x: Any, other: Any) -> Tensor:
    """x as a tensor, if it is a number that meets a tensor."""
    return x if isinstance(x, Tensor) else ops.full((), x, other.dtype)


def fmod(x: Tensor, y: Any) -> Tensor:
    """The remainder with the sign of x."""
    y = ops.abs(y) if isinstance(y, Tensor) else abs(y)
    return ops.where(x < 0, -(-x % y), x % y)


def addmm(x: Tensor, a: Tensor, b: Tensor, beta: Any = 1, alpha: Any = 1) -> Tensor:
    if x.dtype.kind != "float":
        beta, alpha = int(beta), int(alpha)
    product = a @ b
    product = product if alpha == 1 else product * alpha
    return (product if beta == 0 else product + (x if beta == 1 else x * beta)).astype(x.dtype)


def addbmm(x: Tensor, a: Tensor, b: Tensor, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """The sum of a batch of products, as one product."""
    return addmm(x, a.movedim(0, 1).flatten(1), b.flatten(0, 1), beta, alpha)


def trilinear(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    new_a: Sequence[int],
    new_b: Sequence[int],
    new_c: Sequence[int],
    summed: Sequence[int],
    unrolled: int = 1,
) -> Tensor:
    """The sum over axes of the product of three tensors, which get new axes of size 1."""
    for axes, number in ((new_a, 0), (new_b, 1), (new_c, 2)):
        for axis in sorted(axes):
            a, b, c = (x.unsqueeze(axis) if place == number else x for place, x in enumerate((a, b, c)))
    return (a * b * c).sum(tuple(summed))


# Shapes ---------------------------------------------------------------------------------------------------------------


def of_numbers(function: Function) -> Function:
    """A function along axes, also of tensors without axes, which torch takes as if they had one."""

    def of_numbers(x: Any, *arguments: Any, **options: Any) -> Any:
        tensors = [each for each in (x, *arguments) if isinstance(each, Tensor)]
        if not isinstance(x, Tensor) or x.ndim:
            return function(x, *arguments, **options)
        arguments = tuple(as_row(each) for each in arguments)
        result = function(as_row(x), *arguments, **options)
        if any(each.ndim for each in tensors):
            return result
        return result.reshape(()) if isinstance(result, Tensor) else tuple(each.reshape(()) for each in result)

    return of_numbers


def as_row(x: Any) -> Any:
    """A tensor without axes with one of size 1; anything else as it is."""
    return x.unsqueeze(0) if isinstance(x, Tensor) and not x.ndim else x


def slice_axis(x: Tensor, axis: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Tensor:
    if any(isinstance(bound, Tensor) and bound.is_traced for bound in (start, end)):
        raise NotImplementedError(
            "a slice whose length is the value of a tensor, which a graph does not know: keep the whole axis and hide "
            "the rest with torch.where(torch.arange(x.shape[axis]) < n, x, 0), or give the number to Python"
        )
    if end is not None and isinstance(end, int) and end == END:
        end = None
    if start is None or (isinstance(start, int) and start == 0):
        start = None
    if start is None and end is None and step == 1:
        return x
    index = [slice(None)] * x.ndim
    index[axis] = slice(start, end, step)
    return x[tuple(index)]


def split(x: Tensor, sizes: Any, axis: int = 0) -> Any:
    if isinstance(sizes, (list, tuple)) and any(isinstance(size, Tensor) and size.is_traced for size in sizes):
        raise NotImplementedError(
            "parts whose lengths are values of a tensor, such as the rows of each expert, which a graph does not know: "
            "multiply groups of rows with torch.nn.functional.grouped_mm, or compute all experts and weigh them"
        )
    return x.split(sizes, axis)


def select(x: Tensor, axis: int, place: Any) -> Tensor:
    return ops.take(x, place, axis) if isinstance(place, Tensor) else x.select(axis, place)


def index(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    return x[tuple(slice(None) if index is None else index for index in indices)]


def index_put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    if any(index is not None and index.dtype == bool_ for index in indices):
        return _put_at_mask(x, indices, values, accumulate)
    used = [index for index in indices if index is not None]
    leading = [axis for axis, index in enumerate(indices) if index is not None]
    if leading != list(range(leading[0], leading[0] + len(used))):  # the axes of the indices come first
        front = tuple(range(len(used)))
        return index_put(x.movedim(tuple(leading), front), used, values, accumulate).movedim(front, tuple(leading))
    shape = tuple(broadcast("index_put", *(index.shape for index in used)))
    if first := leading[0]:  # the indexed axes go to the front, and back
        values = values.expand((*x.shape[:first], *shape, *x.shape[first + len(used) :]))
        values = values.movedim(tuple(range(first, first + len(shape))), tuple(range(len(shape))))
        front = tuple(range(len(used)))
        return index_put(x.movedim(tuple(leading), front), used, values, accumulate).movedim(front, tuple(leading))
    flat: Any = 0
    for axis, index in enumerate(used):
        index = ops.where(index < 0, index + x.shape[axis], index)
        flat = flat * x.shape[axis] + index
    flat = flat.expand(shape).flatten() if shape else flat.reshape(1)
    inner = x.shape[len(used) :]
    rows = x.reshape(-1, *inner)
    source = values.expand((*shape, *inner)).reshape(flat.shape[0], *inner)
    if accumulate:
        return ops.index_add(rows, 0, flat, source.astype(x.dtype)).reshape(x.shape)
    for _ in inner:
        flat = flat.unsqueeze(-1)
    return ops.scatter(rows, 0, flat.expand(source.shape), source.astype(x.dtype)).reshape(x.shape)


def _put_at_mask(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool) -> Tensor:
    """Values that are the same for each place of a mask: a number, or one slice."""
    *axes, mask = indices
    inner = x.ndim - len(axes) - (0 if mask is None else mask.ndim)  # axes behind those of the mask
    alike = values.ndim <= inner or same(values.shape[-inner - 1], 1)
    if mask is None or any(index is not None for index in axes) or not alike:
        raise NotImplementedError(
            "values that are put at a mask, another one at each place, or at a mask among other indices: their number "
            "depends on the mask; compute a value for every place, and choose by torch.where(mask, value, x)"
        )
    mask = mask.reshape(*mask.shape, *(1,) * inner)
    if values.ndim > inner:  # the axis of places becomes those of the mask
        before, behind = values.shape[: -inner - 1], values.shape[values.ndim - inner :]
        values = values.reshape(*before, *(1,) * (mask.ndim - inner), *behind)
    return ops.where(mask, x + values if accumulate else values, x)


def cat(parts: Sequence[Tensor], axis: int = 0) -> Tensor:
    kept = [part for part in parts if not (part.ndim == 1 and same(part.shape[0], 0))]
    return kept[0] if len(kept) == 1 else ops.concat(kept or parts, axis)


def slice_scatter(
    x: Tensor, source: Tensor, axis: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Tensor:
    size = x.shape[axis]
    if step != 1:
        if isinstance(size, Dim):
            return index_put(x, [*[None] * (axis % x.ndim), slice_axis(ops.arange(size), 0, start, end, step)], source)
        places = range(size)[start : None if end is None else min(end, size) : step]
        table = [size + places.index(place) if place in places else place for place in range(size)]
        return ops.concat([x, source.astype(x.dtype)], axis).index_select(axis, _tensor(table, int64))
    start = 0 if start is None else start
    end = size if end is None or (isinstance(end, int) and end == END) else end
    if all(isinstance(each, int) for each in (start, end, size)):
        start, end, _ = slice(start, end).indices(size)
        end = max(start, end)  # an empty slice changes nothing
    parts = [
        slice_axis(x, axis, 0, start),
        source.expand(slice_axis(x, axis, start, end).shape).astype(x.dtype),
        slice_axis(x, axis, end, END),
    ]
    kept = [part for part in parts if not (isinstance(part.shape[axis], int) and part.shape[axis] == 0)]
    return ops.concat(kept, axis) if kept else x


def select_scatter(x: Tensor, source: Tensor, axis: int, place: int) -> Tensor:
    end = None if place == -1 else place + 1
    return slice_scatter(x, source.unsqueeze(axis), axis, place if place >= 0 else x.shape[axis] + place, end)


def repeat_interleave(x: Tensor, repeats: Any, axis: int | None = None, output_size: Any = None) -> Tensor:
    return x.repeat_interleave(repeats, axis, output_size=output_size)


def gather(x: Tensor, axis: int, index: Tensor, sparse_grad: bool = False) -> Tensor:
    """torch.gather: indices without elements may have any number of axes."""
    return x.new_zeros(index.shape) if any(same(size, 0) for size in index.shape) else x.gather(axis, index)


# Reductions -----------------------------------------------------------------------------------------------------------


def var(x: Tensor, axis: Any = None, correction: Any = 1, keepdim: bool = False) -> Tensor:
    return x.var(axis, keepdims=keepdim, correction=1 if correction is None else correction)


def std(x: Tensor, axis: Any = None, correction: Any = 1, keepdim: bool = False) -> Tensor:
    return x.std(axis, keepdims=keepdim, correction=1 if correction is None else correction)


def var_mean(x: Tensor, axis: Any = None, correction: Any = 1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return var(x, axis, correction, keepdim), x.mean(axis, keepdim)


def vector_norm(
    x: Tensor, order: Any = 2, axis: Any = None, keepdim: bool = False, dtype: DType | None = None
) -> Tensor:
    wide = x if dtype is None else x.astype(dtype)
    return norm_by_definition(wide, 2.0 if order is None else float(order), None if axis == [] else axis, keepdim)


def linalg_norm(
    x: Tensor, order: Any = None, axis: Any = None, keepdim: bool = False, dtype: DType | None = None
) -> Tensor:
    """torch.linalg.norm; of matrix norms Frobenius' and the largest and smallest sums of rows and columns."""
    axis = (tuple(axis) or None) if isinstance(axis, (list, tuple)) else axis
    pair = axis if isinstance(axis, tuple) and len(axis) == 2 else (0, 1)
    if order is None or not (pair == axis or (axis is None and x.ndim == 2)):
        return vector_norm(x, 2 if order is None else order, axis, keepdim, dtype)
    if abs(order) not in (1, math.inf):
        raise NotImplementedError(f"linalg_norm: the matrix norm {order!r}, which takes singular values")
    added, chosen = pair if abs(order) == 1 else pair[::-1]
    sums = ops.abs(x if dtype is None else x.astype(dtype)).sum(added, True)
    norm = sums.amax(chosen, True) if order > 0 else sums.amin(chosen, True)
    return norm if keepdim else norm.squeeze(pair)


def inverse(x: Tensor, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """The inverses of matrices of up to 3 rows, by their cofactors, and zeros in the places of LAPACK's codes."""
    n = x.shape[-1]
    if not isinstance(n, int) or not 0 < n <= 3:
        raise NotImplementedError(
            f"linalg.inv of {n} rows, expected up to 3, for which there is a closed form: compute it before the module "
            "is imported, or register a function"
        )
    a = [[x[..., row, column] for column in range(n)] for row in range(n)]
    if n == 1:
        cofactors = [[ops.ones_like(a[0][0])]]
    elif n == 2:
        cofactors = [[a[1][1], -a[1][0]], [-a[0][1], a[0][0]]]
    else:
        turns = ((1, 2), (2, 0), (0, 1))
        cofactors = [[a[i][k] * a[j][m] - a[i][m] * a[j][k] for k, m in turns] for i, j in turns]
    determinant = sum((a[0][column] * cofactors[0][column] for column in range(1, n)), a[0][0] * cofactors[0][0])
    rows = [ops.stack([cofactors[row][column] for row in range(n)], -1) for column in range(n)]
    return ops.stack(rows, -2) / determinant[..., None, None], ops.full(x.shape[:-2], 0, int32)


def safe_softmax(x: Tensor, axis: int, dtype: DType | None = None) -> Tensor:
    """softmax, which is 0 where all numbers are -infinity."""
    return ops.where((x == -math.inf).all(axis, True), 0, x.softmax(axis, dtype=dtype))


def histc(x: Tensor, bins: int = 100, low: float = 0, high: float = 0) -> Tensor:
    """The count of numbers in each of `bins` equal parts from low to high."""
    if not low < high:
        raise NotImplementedError("histc without a range, which is that of the numbers: give min and max")
    x = x.flatten()
    place = ops.floor((x - low) * bins / (high - low))
    place = ops.where(x <= high, ops.minimum(place, bins - 1), bins)
    return (place.unsqueeze(1) == ops.arange(bins)).sum(0).astype(x.dtype)


def distances_of_pairs(x: Tensor, p: float = 2.0) -> Tensor:
    """The distances of all pairs of rows (N, D), of each pair once."""
    if isinstance(x.shape[0], Dim):
        raise NotImplementedError("pdist of a dynamic number of rows: torch.cdist(x, x) has each pair twice")
    first, second = (_tensor(places) for places in np.triu_indices(x.shape[0], 1))
    return vector_norm(x[first] - x[second], p, -1)


def triangle_indices(indices: Callable[..., Any]) -> Function:
    """The rows and columns of a triangle, (2, number)."""

    def triangle_indices(rows: int, columns: int, offset: int = 0, dtype: DType | None = None) -> Tensor:
        return _tensor(np.stack(indices(rows, offset, columns)), dtype or int64)

    return triangle_indices


# Operators with bodies ------------------------------------------------------------------------------------------------


def cond(condition: Any, true: Function, false: Function, operands: Sequence[Any]) -> Any:
    """One of two branches; in a graph both are computed, and one is chosen."""
    condition = tensor_of_truth(condition)
    if not condition.is_traced:
        return (true if condition.item() else false)(*operands)
    return [ops.where(condition, a, b) for a, b in zip(true(*operands), false(*operands), strict=True)]


def tensor_of_truth(condition: Any) -> Tensor:
    return condition if isinstance(condition, Tensor) else ops.full((), bool(condition), bool_)


def scan(body: Function, start: Sequence[Tensor], xs: Sequence[Tensor], others: Sequence[Any] = ()) -> Sequence[Any]:
    """torch's scan over the first axis: the carried tensors at the end, and the other results of all steps."""

    def step(carry: Sequence[Tensor], element: Sequence[Tensor]) -> Any:
        results = body(*carry, *element, *others)
        return list(results[: len(start)]), list(results[len(start) :])

    carry, results = ops.scan(step, list(start), list(xs))
    return [*carry, *results]


def map_elements(body: Function, xs: Sequence[Tensor], others: Sequence[Any] = ()) -> Sequence[Any]:
    """torch's map over the first axis."""
    return scan(body, (), xs, others)


def while_loop(condition: Function, body: Function, start: Sequence[Any], others: Sequence[Any] = ()) -> Sequence[Any]:
    """torch's while_loop; in a graph the number of steps has to be known, so only `scan` is there."""
    carried = list(start)
    while True:
        goes_on = tensor_of_truth(condition(*carried, *others))
        if goes_on.is_traced:
            raise NotImplementedError(
                "while_loop: how many steps it takes is known only when the model runs; write a scan over the largest "
                "number of steps, which keeps the values with torch.where once the condition is false"
            )
        if not goes_on.item():
            return carried
        carried = list(body(*carried, *others))
