"""Methods of tensors that move elements: another shape, another order, some of them. `Tensor` inherits them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from lucid.core.sizes.dims import Size
from lucid.core.torch_names.argument_names import torch_names, torch_names_and
from lucid.ops.tensor.value import OPS, Axes, Flag, Number, TensorValue, Whole

T = TypeVar("T", bound="MovingMethods[Any]")  # `Tensor`, also for the methods of its subclasses


def unpack(values: Sequence[Any]) -> tuple[Any, ...]:
    """Accept both ``f(2, 3)`` and ``f((2, 3))``."""
    return tuple(values[0]) if len(values) == 1 and isinstance(values[0], (tuple, list)) else tuple(values)


class At(Generic[T]):
    """The places of a tensor, by the indices that it takes."""

    def __init__(self, tensor: MovingMethods[T]) -> None:
        self._tensor = tensor

    def __getitem__(self, index: Any) -> Place[T]:
        return Place(self._tensor, index)


class Place(Generic[T]):
    """Some elements of a tensor, to make a changed copy of it."""

    def __init__(self, tensor: MovingMethods[T], index: Any) -> None:
        self._tensor, self._index = tensor, index

    def set(self, value: Any) -> T:
        """The tensor with this value there, which broadcasts and takes the tensor's element type."""
        return self._tensor._op("put_at", self._index, value)

    def add(self, value: Any) -> T:
        """The tensor with this value added to the elements; at an index that is given twice, both are added."""
        return self._tensor._op("put_at", self._index, value, True)


class MovingMethods(TensorValue, Generic[T]):
    """Each calls the op or the function of its name."""

    __slots__ = ()

    def _op(self, name: str, *arguments: Any, **attributes: Any) -> T:
        result: T = OPS[name](self, *arguments, **attributes)
        return result

    # Shape --------------------------------------------------------------------------------------------------------

    @torch_names
    def reshape(self, *shape: Size | Sequence[Size]) -> T:
        """The same elements in another shape; one size may be -1."""
        return self._op("reshape", unpack(shape))

    view = reshape

    def reshape_as(self, other: Any) -> T:
        """The same elements in the shape of another tensor."""
        return self._op("reshape", other.shape)

    view_as = reshape_as

    @torch_names
    def flatten(self, start: Whole = 0, end: Whole = -1) -> T:
        """Join the axes from `start` to `end` into one."""
        return self._op("flatten", start, end)

    @torch_names
    def unflatten(self, axis: Whole, sizes: Any) -> T:
        """An axis split into several; one of their sizes may be -1."""
        return self._op("unflatten", axis, sizes)

    @torch_names
    def squeeze(self, axis: Axes = None) -> T:
        """Drop axes of size 1."""
        return self._op("squeeze", axis)

    @torch_names
    def unsqueeze(self, axis: Whole) -> T:
        """Insert an axis of size 1."""
        return self._op("unsqueeze", axis)

    @torch_names
    def expand(self, *shape: Size | Sequence[Size]) -> T:
        """Repeat axes of size 1 up to a shape; -1 keeps a size."""
        return self._op("expand", unpack(shape))

    @torch_names
    def broadcast_to(self, shape: Any) -> T:
        """Axes of size 1 repeated up to a shape."""
        return self._op("expand", shape)

    def expand_as(self, other: Any) -> T:
        """Axes of size 1 repeated up to the shape of another tensor."""
        return self._op("expand", other.shape)

    @torch_names
    def repeat(self, *repeats: Whole | Sequence[Whole]) -> T:
        """Repeat the tensor along each axis."""
        return self._op("repeat", unpack(repeats))

    @torch_names
    def tile(self, *repeats: Any) -> T:
        """The tensor repeated along each axis; missing leading numbers are 1."""
        return self._op("repeat", unpack(repeats))

    @torch_names
    def repeat_interleave(self, repeats: Any, axis: Whole | None = None, *, output_size: Size | None = None) -> T:
        """Each element repeated in place, along an axis or of all elements in a row."""
        return self._op("repeat_interleave", repeats, axis, output_size=output_size)

    # Sums of products ---------------------------------------------------------------------------------------------

    @torch_names
    def logsumexp(self, axis: Axes = None, keepdims: Flag = False) -> T:
        """The logarithm of the sum of exp(x) over axes, all of them by default."""
        return self._op("logsumexp", axis, keepdims)

    @torch_names
    def addmm(self, mat1: Any, mat2: Any, *, beta: Number = 1, alpha: Number = 1) -> T:
        """``beta * x + alpha * (mat1 @ mat2)`` for this tensor x."""
        return self._op("addmm", mat1, mat2, beta=beta, alpha=alpha)

    @torch_names
    def baddbmm(self, batch1: Any, batch2: Any, *, beta: Number = 1, alpha: Number = 1) -> T:
        """``beta * x + alpha * (batch1 @ batch2)`` for this tensor x."""
        return self._op("baddbmm", batch1, batch2, beta=beta, alpha=alpha)

    # What torch composes: the functions of the same names --------------------------------------------------------

    def allclose(self, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: Flag = False) -> Flag:
        """Whether all elements are close to others."""
        return bool(self._op("allclose", other, rtol, atol, equal_nan))

    @torch_names
    def cumprod(self, axis: Whole, dtype: Any = None) -> T:
        """Running product along an axis."""
        return self._op("cumprod", axis, dtype=dtype)

    @torch_names
    def median(self, axis: Whole | None = None, keepdims: Flag = False) -> Any:
        """The lower of the elements in the middle; along an axis with their indices."""
        return self._op("median", axis, keepdims)

    @torch_names
    def kthvalue(self, k: Whole, axis: Whole = -1, keepdims: Flag = False) -> Any:
        """The k-th smallest elements along an axis, and their indices."""
        return self._op("kthvalue", k, axis, keepdims)

    @torch_names
    def quantile(
        self, q: Any, axis: Whole | None = None, keepdims: Flag = False, *, interpolation: str = "linear"
    ) -> T:
        """The elements below which fractions of the elements are."""
        return self._op("quantile", q, axis, keepdims, interpolation=interpolation)

    def masked_select(self, mask: Any, *, size: Size | None = None, fill_value: Number = 0) -> T:
        """The elements where a mask is true; while tracing so many of them."""
        return self._op("masked_select", mask, size=size, fill_value=fill_value)

    def argwhere(self) -> T:
        """The indices of the elements that are not 0."""
        return self._op("argwhere")

    @torch_names
    def tensor_split(self, indices_or_sections: Any, axis: Whole = 0) -> tuple[T, ...]:
        """Parts of an axis: so many, or cut at indices."""
        parts: Any = self._op("tensor_split", indices_or_sections, axis)
        return tuple(parts)

    @torch_names
    def unfold(self, axis: Whole, size: Whole, step: Whole) -> T:
        """Windows along an axis as a new last one."""
        return self._op("unfold", axis, size, step)

    # Order and places ---------------------------------------------------------------------------------------------

    @torch_names
    def transpose(self, axis0: Whole, axis1: Whole) -> T:
        """Exchange two axes."""
        return self._op("transpose", axis0, axis1)

    def swapaxes(self, axis0: Whole, axis1: Whole) -> T:
        """Exchange two axes."""
        return self._op("transpose", axis0, axis1)

    @torch_names
    def permute(self, *axes: Whole | Sequence[Whole]) -> T:
        """Reorder all axes."""
        return self._op("permute", unpack(axes))

    def movedim(self, source: Axes, destination: Axes) -> T:
        """Axes moved to other places; the rest keep their order."""
        return self._op("movedim", source, destination)

    moveaxis = movedim

    @torch_names
    def flip(self, *axes: Any) -> T:
        """The elements along axes in reverse order."""
        return self._op("flip", unpack(axes))

    @torch_names
    def roll(self, shifts: Any, axis: Any = None) -> T:
        """The elements moved along axes; those that leave at the end enter at the front."""
        return self._op("roll", shifts, axis)

    def tril(self, diagonal: Whole = 0) -> T:
        """Zero above a diagonal of the last two axes."""
        return self._op("tril", diagonal=diagonal)

    def triu(self, diagonal: Whole = 0) -> T:
        """Zero below a diagonal of the last two axes."""
        return self._op("triu", diagonal=diagonal)

    @torch_names
    def split(self, sizes: Size | Sequence[Size], axis: Whole = 0) -> tuple[T, ...]:
        """Split an axis into pieces of one size, or of the given sizes."""
        tensors: tuple[T, ...] = OPS["split"](self, sizes, axis)
        return tensors

    @torch_names
    def chunk(self, chunks: Whole, axis: Whole = 0) -> tuple[T, ...]:
        """Split an axis into a number of equal pieces (the last may be smaller)."""
        tensors: tuple[T, ...] = OPS["chunk"](self, chunks, axis)
        return tensors

    @torch_names
    def unbind(self, axis: Whole = 0) -> tuple[T, ...]:
        """The slices along an axis, without it."""
        slices: tuple[T, ...] = OPS["unbind"](self, axis)
        return slices

    @torch_names
    def narrow(self, axis: Whole, start: Any, length: Any) -> T:
        """`length` elements of an axis from `start` on."""
        return self._op("narrow", axis, start, length)

    @torch_names
    def select(self, axis: Whole, indices: Whole) -> T:
        """One slice along an axis, without it."""
        slice_: T = OPS["squeeze"](self._op("narrow", axis, indices, 1), axis)
        return slice_

    @torch_names_and("sparse_grad")
    def gather(self, axis: Whole, indices: Any) -> T:
        """For each position of `indices`, the element at that position with the axis replaced by the index."""
        return self._op("gather", axis, indices)

    @torch_names
    def index_select(self, axis: Whole, indices: Any) -> T:
        """Elements of an axis by a vector of indices."""
        return self._op("index_select", axis, indices)

    @torch_names
    def index_add(self, axis: Whole, indices: Any, source: Any, *, alpha: Number = 1) -> T:
        """This tensor with slices of `source` added at the indices of an axis."""
        return self._op("index_add", axis, indices, source if alpha == 1 else source * alpha)

    @torch_names
    def scatter(self, axis: Whole, indices: Any, src: Any) -> T:
        """This tensor with elements of `src` (or a number) at the places that `indices` name along an axis."""
        return self._op("scatter", axis, indices, src)

    @torch_names
    def scatter_add(self, axis: Whole, indices: Any, src: Any) -> T:
        """This tensor with elements of `src` added at the places that `indices` name along an axis."""
        return self._op("scatter_add", axis, indices, src)

    def masked_fill(self, mask: Any, value: Any) -> T:
        """The value where the mask is true, else this tensor, whose element type the value takes."""
        return self._op("masked_fill", mask, value)

    def masked_scatter(self, mask: Any, source: Any) -> T:
        """This tensor with the elements of `source`, in order, where the mask is true."""
        return self._op("masked_scatter", mask, source)

    @property
    def at(self) -> At[T]:
        """Changed copies: ``x.at[index].set(value)`` is what ``x[index] = value`` makes of x in torch.

        Indices are those of ``x[index]``. ``x.at[index].add(value)`` adds to the elements.
        """
        return At(self)

    def nonzero(self, *, as_tuple: Flag = False) -> Any:
        """The indices of the elements that are not 0, of a known tensor.

        Raises:
            TracedValueError: while the tensor is traced, as their number is then unknown.
        """
        return OPS["nonzero"](self, as_tuple)

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
