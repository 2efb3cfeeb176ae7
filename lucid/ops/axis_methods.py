"""Methods of tensors under torch's names that only call an op, along axes: `Tensor` inherits them."""

from __future__ import annotations

from typing import Any, Self

from lucid.ops.methods import OPS, Axes, ElementMethods, Flag, Number, Whole, axes, unpack
from lucid.spelling import torch_names


class AxisMethods(ElementMethods):
    """Methods that reduce, order, select or move along axes."""

    __slots__ = ()

    # Reductions ---------------------------------------------------------------------------------------------------

    @torch_names
    def amax(self, axis: Axes = None, keepdims: Flag = False) -> Self:
        """Maximum over axes; all of them by default."""
        return self._op("max", axis=axes(axis), keepdims=keepdims)

    @torch_names
    def amin(self, axis: Axes = None, keepdims: Flag = False) -> Self:
        """Minimum over axes; all of them by default."""
        return self._op("min", axis=axes(axis), keepdims=keepdims)

    @torch_names
    def prod(self, axis: Axes = None, keepdims: Flag = False) -> Self:
        """Product over axes; all of them by default."""
        return self._op("prod", axis=axes(axis), keepdims=keepdims)

    @torch_names
    def argmin(self, axis: Whole = -1, keepdims: Flag = False) -> Self:
        """The int64 index of the first minimum along an axis."""
        return self._op("argmin", axis, keepdims)

    @torch_names
    def var(self, axis: Axes = None, unbiased: Flag = True, keepdims: Flag = False, *, correction: Number = 1) -> Self:
        """Variance over axes: squared distances from the mean, summed, by their number less `correction` (1)."""
        return self._op("var", axis, correction if unbiased else 0, keepdims)

    @torch_names
    def std(self, axis: Axes = None, unbiased: Flag = True, keepdims: Flag = False, *, correction: Number = 1) -> Self:
        """Standard deviation over axes: the root of the variance."""
        return self.var(axis, unbiased, keepdims, correction=correction)._op("sqrt")

    @torch_names
    def norm(self, p: Any = "fro", axis: Axes = None, keepdims: Flag = False) -> Self:
        """The p-norm over axes; `p` may be infinity."""
        return self._op("norm", p, axis, keepdims)

    @torch_names
    def cumsum(self, axis: Whole, dtype: Any = None) -> Self:
        """Running sum along an axis; that of integers and booleans is int64."""
        return (self if dtype is None else self.to(dtype))._op("cumsum", axis=axis)

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
    def argsort(self, axis: Whole = -1, descending: Flag = False, *, stable: Flag = True) -> Self:
        """The indices that put the elements along an axis in order."""
        indices: Self = OPS["sort"](self, axis, descending)[1]
        return indices

    @torch_names
    def gather(self, axis: Whole, indices: Any) -> Self:
        """For each position of `indices`, the element at that position with the axis replaced by the index."""
        return self._op("gather", axis, indices)

    @torch_names
    def index_select(self, axis: Whole, indices: Any) -> Self:
        """Elements of an axis by a vector of indices."""
        return self._op("take", indices, axis)

    @torch_names
    def scatter(self, axis: Whole, indices: Any, src: Any) -> Self:
        """This tensor with elements of `src` (or a number) at the places that `indices` name along an axis."""
        return self._op("scatter", axis, indices, src)

    @torch_names
    def scatter_add(self, axis: Whole, indices: Any, src: Any) -> Self:
        """This tensor with elements of `src` added at the places that `indices` name along an axis."""
        return self._op("scatter_add", axis, indices, src)

    @torch_names
    def index_add(self, axis: Whole, indices: Any, source: Any, *, alpha: Number = 1) -> Self:
        """This tensor with slices of `source` added at the indices of an axis."""
        return self._op("index_add", axis, indices, source if alpha == 1 else source * alpha)

    def masked_scatter(self, mask: Any, source: Any) -> Self:
        """This tensor with the elements of `source`, in order, where the mask is true."""
        return self._op("masked_scatter", mask, source)

    def nonzero(self, *, as_tuple: Flag = False) -> Any:
        """The indices of the elements that are not 0, of a known tensor.

        Raises:
            TracedValueError: while the tensor is traced, as their number is then unknown.
        """
        return OPS["nonzero"](self, as_tuple)

    def flip(self, *axes: Any, dims: Any = None) -> Self:
        """The elements along axes in reverse order."""
        return self._op("flip", unpack(axes) if dims is None else dims)

    @torch_names
    def roll(self, shifts: Any, axis: Any = None) -> Self:
        """The elements moved along axes; those that leave at the end enter at the front."""
        return self._op("roll", shifts, axis)

    @torch_names
    def unbind(self, axis: Whole = 0) -> tuple[Self, ...]:
        """The slices along an axis, without it."""
        parts: tuple[Self, ...] = OPS["unbind"](self, axis)
        return parts

    @torch_names
    def repeat_interleave(self, repeats: Any, axis: Whole | None = None) -> Self:
        """Each element repeated in place, along an axis or of all elements in a row."""
        return self._op("repeat_interleave", repeats, axis)

    def tile(self, *repeats: Any) -> Self:
        """The tensor repeated along each axis; missing leading numbers are 1."""
        return self._op("tiled", unpack(repeats))

    def expand_as(self, other: Any) -> Self:
        """Axes of size 1 repeated up to the shape of another tensor."""
        return self._op("expand", other.shape)

    @torch_names
    def broadcast_to(self, shape: Any) -> Self:
        """Axes of size 1 repeated up to a shape."""
        return self._op("expand", shape)

    def reshape_as(self, other: Any) -> Self:
        """The same elements in the shape of another tensor."""
        return self._op("reshape", other.shape)

    view_as = reshape_as

    @torch_names
    def unflatten(self, axis: Whole, sizes: Any) -> Self:
        """An axis split into several; one of their sizes may be -1."""
        return self._op("unflatten", axis, sizes)

    @torch_names
    def narrow(self, axis: Whole, start: Any, length: Any) -> Self:
        """`length` elements of an axis from `start` on."""
        return self._op("narrow", axis, start, length)

    @torch_names
    def select(self, axis: Whole, indices: Whole) -> Self:
        """One slice along an axis, without it."""
        return self._op("narrow", axis, indices, 1)._op("squeeze", axis)

    def movedim(self, source: Axes, destination: Axes) -> Self:
        """Axes moved to other places; the rest keep their order."""
        return self._op("movedim", source, destination)

    moveaxis = movedim

    def swapaxes(self, axis0: Whole, axis1: Whole) -> Self:
        """Exchange two axes."""
        return self._op("transpose", axis0, axis1)

    def t(self) -> Self:
        """A matrix transposed."""
        return self._op("matrix_transpose")
