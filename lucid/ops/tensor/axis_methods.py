"""Methods of tensors that only call an op, along axes: `Tensor` inherits them."""

from __future__ import annotations

from typing import Any, overload

from lucid.core.torch_names.argument_names import torch_names, torch_names_and, torch_names_of_reduction
from lucid.ops.tensor.methods import OPS, Axes, Flag, Number, T, Whole, axes, axes_or_all, unpack
from lucid.ops.tensor.operators import Operators


def _unbiased_by_place(axis: Axes, unbiased: bool, keepdims: bool) -> tuple[Axes, bool]:
    """The axes and `unbiased`, which torch's ``x.std(False)`` gives in the place of the axes, alone."""
    return (None, axis) if isinstance(axis, bool) and unbiased is True and not keepdims else (axis, unbiased)


class AxisMethods(Operators[T]):
    """Methods that reduce, order, select or move along axes."""

    __slots__ = ()

    # Reductions ---------------------------------------------------------------------------------------------------

    @torch_names_of_reduction
    def sum(self, axis: Axes = None, keepdims: Flag = False, *, dtype: Any = None) -> T:
        """Sum over axes, all of them by default; that of integers and booleans is int64, unless `dtype` is given."""
        found: T = OPS["sum"](self._as(dtype), axis=axes_or_all(axis), keepdims=keepdims)
        result: T = found._as(dtype)
        return result

    @torch_names_of_reduction
    def mean(self, axis: Axes = None, keepdims: Flag = False, *, dtype: Any = None) -> T:
        """Mean over axes, all of them by default; of this tensor in another element type if `dtype` is given."""
        mean: T = OPS["mean"](self._as(dtype), axis=axes_or_all(axis), keepdims=keepdims)
        return mean

    @overload
    def max(self) -> T: ...

    @overload
    def max(self, dim: Whole, keepdim: Flag = False) -> Any: ...

    @overload
    def max(self, dim: Operators[Any], /) -> T: ...

    @overload
    def max(self, *, other: Any) -> T: ...

    @overload
    def max(self, *, axis: Axes = None, keepdims: Flag = False) -> T: ...

    @torch_names
    def max(
        self,
        dim: Any = None,
        keepdim: Flag | None = None,
        *,
        other: Any = None,
        axis: Axes = None,
        keepdims: Flag = False,
    ) -> Any:
        """The largest element; with `dim`, as in torch, a pair (values, indices) along an axis.

        With `axis` or `keepdims`, as in NumPy, the values alone, over one or several axes. With another tensor, the
        greater element of each two.
        """
        return self._op("extreme", "max", dim, keepdim, other, axes(axis), keepdims)

    @overload
    def min(self) -> T: ...

    @overload
    def min(self, dim: Whole, keepdim: Flag = False) -> Any: ...

    @overload
    def min(self, dim: Operators[Any], /) -> T: ...

    @overload
    def min(self, *, other: Any) -> T: ...

    @overload
    def min(self, *, axis: Axes = None, keepdims: Flag = False) -> T: ...

    @torch_names
    def min(
        self,
        dim: Any = None,
        keepdim: Flag | None = None,
        *,
        other: Any = None,
        axis: Axes = None,
        keepdims: Flag = False,
    ) -> Any:
        """The least element; otherwise as `max`."""
        return self._op("extreme", "min", dim, keepdim, other, axes(axis), keepdims)

    @torch_names
    def argmax(self, axis: Whole | None = None, keepdims: Flag = False) -> T:
        """The int64 index of the first maximum along an axis; without one, in the flattened tensor."""
        return self._op("place_of_extreme", "argmax", axis, keepdims)

    @torch_names
    def any(self, axis: Axes = None, keepdims: Flag = False) -> T:
        """Whether any element is true."""
        return self._op("any", axis=axes(axis), keepdims=keepdims)

    @torch_names
    def all(self, axis: Axes = None, keepdims: Flag = False) -> T:
        """Whether all elements are true."""
        return self._op("all", axis=axes(axis), keepdims=keepdims)

    @torch_names_of_reduction
    def amax(self, axis: Axes = None, keepdims: Flag = False) -> T:
        """Maximum over axes; all of them by default."""
        return self._op("max", axis=axes_or_all(axis), keepdims=keepdims)

    @torch_names_of_reduction
    def amin(self, axis: Axes = None, keepdims: Flag = False) -> T:
        """Minimum over axes; all of them by default."""
        return self._op("min", axis=axes_or_all(axis), keepdims=keepdims)

    @torch_names
    def prod(self, axis: Axes = None, keepdims: Flag = False, *, dtype: Any = None) -> T:
        """Product over axes, all of them by default; of integers and booleans it is int64, unless `dtype` is given."""
        product: T = OPS["prod"](self._as(dtype), axis=axes(axis), keepdims=keepdims)
        result: T = product._as(dtype)
        return result

    @torch_names
    def argmin(self, axis: Whole | None = None, keepdims: Flag = False) -> T:
        """The int64 index of the first minimum along an axis; without one, in the flattened tensor."""
        return self._op("place_of_extreme", "argmin", axis, keepdims)

    @torch_names_of_reduction
    def var(self, axis: Axes = None, unbiased: Flag = True, keepdims: Flag = False, *, correction: Number = 1) -> T:
        """Variance over axes: squared distances from the mean, summed, by their number less `correction` (1).

        A flag in the place of the axes is `unbiased`, as in torch: ``x.var(False)``.
        """
        axis, unbiased = _unbiased_by_place(axis, unbiased, keepdims)
        return self._op("var", axes_or_all(axis), correction if unbiased else 0, keepdims)

    @torch_names_of_reduction
    def std(self, axis: Axes = None, unbiased: Flag = True, keepdims: Flag = False, *, correction: Number = 1) -> T:
        """Standard deviation over axes: the root of the variance, with its arguments."""
        axis, unbiased = _unbiased_by_place(axis, unbiased, keepdims)
        return self._op("std", axes_or_all(axis), correction if unbiased else 0, keepdims)

    @torch_names_of_reduction
    def norm(self, p: Any = "fro", axis: Axes = None, keepdims: Flag = False, dtype: Any = None) -> T:
        """The p-norm over axes; `p` may be infinity; of this tensor in another element type if `dtype` is given."""
        length: T = OPS["norm"](self._as(dtype), p, axes_or_all(axis), keepdims)
        return length

    @torch_names
    def cumsum(self, axis: Whole, dtype: Any = None) -> T:
        """Running sum along an axis; that of integers and booleans is int64, unless `dtype` is given."""
        sums: T = OPS["cumsum"](self._as(dtype), axis=axis)
        result: T = sums._as(dtype)
        return result

    @torch_names
    def softmax(self, axis: Whole = -1, *, dtype: Any = None) -> T:
        """exp(x) normalised to sum 1 along an axis; of this tensor in another element type if `dtype` is given."""
        found: T = OPS["softmax"](self._as(dtype), axis=axis)
        return found

    # Order and places ---------------------------------------------------------------------------------------------

    @torch_names
    def topk(self, k: Any, axis: Whole = -1, largest: Flag = True, sorted: Flag = True) -> Any:
        """The k largest (or least) elements along an axis, in order: a pair (values, indices)."""
        return OPS["topk"](self, k, axis, largest, sorted)

    @torch_names
    def sort(self, axis: Whole = -1, descending: Flag = False, *, stable: Flag = True) -> Any:
        """The elements along an axis in order: a pair (values, indices). Equal elements keep their order."""
        return OPS["sort"](self, axis, descending)

    @torch_names
    def argsort(self, axis: Whole = -1, descending: Flag = False, *, stable: Flag = True) -> T:
        """The indices that put the elements along an axis in order."""
        indices: T = OPS["sort"](self, axis, descending)[1]
        return indices

    @torch_names_and("sparse_grad")
    def gather(self, axis: Whole, indices: Any) -> T:
        """For each position of `indices`, the element at that position with the axis replaced by the index."""
        return self._op("gather", axis, indices)

    @torch_names
    def index_select(self, axis: Whole, indices: Any) -> T:
        """Elements of an axis by a vector of indices."""
        return self._op("index_select", axis, indices)

    @torch_names
    def scatter(self, axis: Whole, indices: Any, src: Any) -> T:
        """This tensor with elements of `src` (or a number) at the places that `indices` name along an axis."""
        return self._op("scatter", axis, indices, src)

    @torch_names
    def scatter_add(self, axis: Whole, indices: Any, src: Any) -> T:
        """This tensor with elements of `src` added at the places that `indices` name along an axis."""
        return self._op("scatter_add", axis, indices, src)

    @torch_names
    def index_add(self, axis: Whole, indices: Any, source: Any, *, alpha: Number = 1) -> T:
        """This tensor with slices of `source` added at the indices of an axis."""
        return self._op("index_add", axis, indices, source if alpha == 1 else source * alpha)

    def masked_fill(self, mask: Any, value: Any) -> T:
        """The value where the mask is true, else this tensor, whose element type the value takes."""
        return self._op("masked_fill", mask, value)

    def masked_scatter(self, mask: Any, source: Any) -> T:
        """This tensor with the elements of `source`, in order, where the mask is true."""
        return self._op("masked_scatter", mask, source)

    def nonzero(self, *, as_tuple: Flag = False) -> Any:
        """The indices of the elements that are not 0, of a known tensor.

        Raises:
            TracedValueError: while the tensor is traced, as their number is then unknown.
        """
        return OPS["nonzero"](self, as_tuple)

    @torch_names
    def flip(self, *axes: Any) -> T:
        """The elements along axes in reverse order."""
        return self._op("flip", unpack(axes))

    @torch_names
    def roll(self, shifts: Any, axis: Any = None) -> T:
        """The elements moved along axes; those that leave at the end enter at the front."""
        return self._op("roll", shifts, axis)

    @torch_names
    def unbind(self, axis: Whole = 0) -> tuple[T, ...]:
        """The slices along an axis, without it."""
        parts: tuple[T, ...] = OPS["unbind"](self, axis)
        return parts

    @torch_names_and("output_size")
    def repeat_interleave(self, repeats: Any, axis: Whole | None = None) -> T:
        """Each element repeated in place, along an axis or of all elements in a row."""
        return self._op("repeat_interleave", repeats, axis)

    @torch_names
    def tile(self, *repeats: Any) -> T:
        """The tensor repeated along each axis; missing leading numbers are 1."""
        return self._op("tiled", unpack(repeats))

    def expand_as(self, other: Any) -> T:
        """Axes of size 1 repeated up to the shape of another tensor."""
        return self._op("expand", other.shape)

    @torch_names
    def broadcast_to(self, shape: Any) -> T:
        """Axes of size 1 repeated up to a shape."""
        return self._op("expand", shape)

    def reshape_as(self, other: Any) -> T:
        """The same elements in the shape of another tensor."""
        return self._op("reshape", other.shape)

    view_as = reshape_as

    @torch_names
    def unflatten(self, axis: Whole, sizes: Any) -> T:
        """An axis split into several; one of their sizes may be -1."""
        return self._op("unflatten", axis, sizes)

    @torch_names
    def narrow(self, axis: Whole, start: Any, length: Any) -> T:
        """`length` elements of an axis from `start` on."""
        return self._op("narrow", axis, start, length)

    @torch_names
    def select(self, axis: Whole, indices: Whole) -> T:
        """One slice along an axis, without it."""
        slice_: T = OPS["squeeze"](self._op("narrow", axis, indices, 1), axis)
        return slice_

    def movedim(self, source: Axes, destination: Axes) -> T:
        """Axes moved to other places; the rest keep their order."""
        return self._op("movedim", source, destination)

    moveaxis = movedim

    def swapaxes(self, axis0: Whole, axis1: Whole) -> T:
        """Exchange two axes."""
        return self._op("transpose", axis0, axis1)

    def t(self) -> T:
        """A matrix transposed."""
        return self._op("matrix_transpose")
