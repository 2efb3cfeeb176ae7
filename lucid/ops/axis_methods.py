"""Methods of tensors that only call an op, along axes: `Tensor` inherits them."""

from __future__ import annotations

from typing import Any

from lucid.ops.methods import OPS, Axes, Flag, Number, T, Whole, axes, unpack
from lucid.ops.operators import Operators
from lucid.spelling import refusing, torch_names

# torch's max and min over an axis give a pair; Lucid's give the values alone, so a port would take the wrong part.
_ONE_RESULT = "write amax(dim=...) or amin(dim=...) for the values, argmax(dim=...) or argmin(dim=...) for the indices"


def _unbiased_by_place(axis: Axes, unbiased: bool, keepdims: bool) -> tuple[Axes, bool]:
    """The axes and `unbiased`, which torch's ``x.std(False)`` gives in the place of the axes, alone."""
    return (None, axis) if isinstance(axis, bool) and unbiased is True and not keepdims else (axis, unbiased)


class AxisMethods(Operators[T]):
    """Methods that reduce, order, select or move along axes."""

    __slots__ = ()

    # Reductions ---------------------------------------------------------------------------------------------------

    @torch_names
    def sum(self, axis: Axes = None, keepdims: Flag = False, *, dtype: Any = None) -> T:
        """Sum over axes, all of them by default; that of integers and booleans is int64, unless `dtype` is given."""
        found: T = OPS["sum"](self._as(dtype), axis=axes(axis), keepdims=keepdims)
        result: T = found._as(dtype)
        return result

    @torch_names
    def mean(self, axis: Axes = None, keepdims: Flag = False, *, dtype: Any = None) -> T:
        """Mean over axes, all of them by default; of this tensor in another element type if `dtype` is given."""
        mean: T = OPS["mean"](self._as(dtype), axis=axes(axis), keepdims=keepdims)
        return mean

    @refusing(dim=_ONE_RESULT, keepdim=_ONE_RESULT)
    def max(self, axis: Axes = None, keepdims: Flag = False) -> T:
        """Maximum over axes; all of them by default."""
        return self._op("max", axis=axes(axis), keepdims=keepdims)

    @refusing(dim=_ONE_RESULT, keepdim=_ONE_RESULT)
    def min(self, axis: Axes = None, keepdims: Flag = False) -> T:
        """Minimum over axes; all of them by default."""
        return self._op("min", axis=axes(axis), keepdims=keepdims)

    @torch_names
    def argmax(self, axis: Whole = -1, keepdims: Flag = False) -> T:
        """The int64 index of the first maximum along an axis."""
        return self._op("argmax", axis=axis, keepdims=keepdims)

    @torch_names
    def any(self, axis: Axes = None, keepdims: Flag = False) -> T:
        """Whether any element is true."""
        return self._op("any", axis=axes(axis), keepdims=keepdims)

    @torch_names
    def all(self, axis: Axes = None, keepdims: Flag = False) -> T:
        """Whether all elements are true."""
        return self._op("all", axis=axes(axis), keepdims=keepdims)

    @torch_names
    def amax(self, axis: Axes = None, keepdims: Flag = False) -> T:
        """Maximum over axes; all of them by default."""
        return self._op("max", axis=axes(axis), keepdims=keepdims)

    @torch_names
    def amin(self, axis: Axes = None, keepdims: Flag = False) -> T:
        """Minimum over axes; all of them by default."""
        return self._op("min", axis=axes(axis), keepdims=keepdims)

    @torch_names
    def prod(self, axis: Axes = None, keepdims: Flag = False) -> T:
        """Product over axes; all of them by default."""
        return self._op("prod", axis=axes(axis), keepdims=keepdims)

    @torch_names
    def argmin(self, axis: Whole = -1, keepdims: Flag = False) -> T:
        """The int64 index of the first minimum along an axis."""
        return self._op("argmin", axis, keepdims)

    @torch_names
    def var(self, axis: Axes = None, unbiased: Flag = True, keepdims: Flag = False, *, correction: Number = 1) -> T:
        """Variance over axes: squared distances from the mean, summed, by their number less `correction` (1).

        A flag in the place of the axes is `unbiased`, as in torch: ``x.var(False)``.
        """
        axis, unbiased = _unbiased_by_place(axis, unbiased, keepdims)
        return self._op("var", axis, correction if unbiased else 0, keepdims)

    @torch_names
    def std(self, axis: Axes = None, unbiased: Flag = True, keepdims: Flag = False, *, correction: Number = 1) -> T:
        """Standard deviation over axes: the root of the variance, with its arguments."""
        axis, unbiased = _unbiased_by_place(axis, unbiased, keepdims)
        return self._op("std", axis, correction if unbiased else 0, keepdims)

    @torch_names
    def norm(self, p: Any = "fro", axis: Axes = None, keepdims: Flag = False) -> T:
        """The p-norm over axes; `p` may be infinity."""
        return self._op("norm", p, axis, keepdims)

    @torch_names
    def cumsum(self, axis: Whole, dtype: Any = None) -> T:
        """Running sum along an axis; that of integers and booleans is int64."""
        sums: T = OPS["cumsum"](self._as(dtype), axis=axis)
        return sums

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

    @torch_names
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

    def masked_scatter(self, mask: Any, source: Any) -> T:
        """This tensor with the elements of `source`, in order, where the mask is true."""
        return self._op("masked_scatter", mask, source)

    def nonzero(self, *, as_tuple: Flag = False) -> Any:
        """The indices of the elements that are not 0, of a known tensor.

        Raises:
            TracedValueError: while the tensor is traced, as their number is then unknown.
        """
        return OPS["nonzero"](self, as_tuple)

    def flip(self, *axes: Any, dims: Any = None) -> T:
        """The elements along axes in reverse order."""
        return self._op("flip", unpack(axes) if dims is None else dims)

    @torch_names
    def roll(self, shifts: Any, axis: Any = None) -> T:
        """The elements moved along axes; those that leave at the end enter at the front."""
        return self._op("roll", shifts, axis)

    @torch_names
    def unbind(self, axis: Whole = 0) -> tuple[T, ...]:
        """The slices along an axis, without it."""
        parts: tuple[T, ...] = OPS["unbind"](self, axis)
        return parts

    @torch_names
    def repeat_interleave(self, repeats: Any, axis: Whole | None = None) -> T:
        """Each element repeated in place, along an axis or of all elements in a row."""
        return self._op("repeat_interleave", repeats, axis)

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
