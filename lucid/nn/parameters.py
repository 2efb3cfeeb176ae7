"""The tensors that modules own: parameters, which are learned, and buffers."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from lucid.core.graph.scope import scope
from lucid.core.graph.types import Array, DTypeLike, array_type, convert, show_shape
from lucid.core.graph.values import Value
from lucid.core.words.other_libraries import type_name
from lucid.ops.tensor.tensor import Tensor, TensorLike


class _OfModule(Tensor):
    """A tensor that a module owns, whose values may be replaced."""

    __slots__ = ()
    _of_module = True

    def copy_(self, source: TensorLike) -> Self:
        """Replace the values by others, which are broadcast and take this element type."""
        return self.fill_(source)

    def fill_(self, value: TensorLike) -> Self:
        """Replace every value.

        Raises:
            ValueError: for values whose shape does not broadcast to this one.
        """
        source, shape, name = np.asarray(value), self.numpy().shape, type(self).__name__.lower()
        sizes = zip(reversed(source.shape), reversed(shape), strict=False)
        if source.ndim > len(shape) or not all(size in (1, own) for size, own in sizes):
            expected = f"expected {show_shape(shape)}, or one that broadcasts to it"
            raise ValueError(f"{name}: got shape {show_shape(source.shape)}, {expected}")
        array = convert(np.broadcast_to(source, shape), self.dtype, name).copy()
        self._set(array, array_type(array.dtype, array.shape))
        return self

    def zero_(self) -> Self:
        """Replace every value by 0."""
        return self.fill_(0)


class Parameter(_OfModule):
    """A tensor that a module learns: it appears in `state_dict` and, under its key, in the exported model.

    `lucid.value_and_grad` gives gradients of those whose `requires_grad` is true. Parameters and
    buffers have `zero_`, `fill_` and `copy_`, which replace all of their values.
    """

    __slots__ = ("requires_grad",)

    def __init__(self, data: Any, requires_grad: bool = True, *, dtype: DTypeLike | None = None) -> None:
        super().__init__(data, dtype)
        self.requires_grad = requires_grad

    def _stand_in(self) -> Value | None:
        """The value that stands for this parameter while gradients are traced."""
        here = scope.get()
        if here is None or here.stand_ins is None:
            return None
        value = here.stand_ins.get(id(self))
        if value is None and here.read is not None and self.spec.dtype.kind == "float":
            return here.read.value(self)
        return value

    @property
    def is_traced(self) -> bool:
        """Whether the values are known only when the graph runs: while gradients with respect to them are traced."""
        return self._stand_in() is not None

    def to_value(self) -> Value:
        return self._stand_in() or super().to_value()

    def _known(self, asked_for: str) -> Array:
        here = scope.get()
        replaced = here and here.stand_ins and here.stand_ins.get(id(self))
        return Tensor.from_value(replaced)._known(asked_for) if replaced else super()._known(asked_for)

    @property
    def data(self) -> Self:
        """This parameter, a constant of gradients; assigning to it replaces the values."""
        constant: Self = self.detach()
        return constant

    @data.setter
    def data(self, values: Tensor) -> None:
        if not isinstance(values, Tensor):
            raise TypeError(f"parameter.data: got {type_name(values)}, expected a tensor; assign(array) takes an array")
        self._set(values.numpy(), array_type(values.dtype.numpy, values.numpy().shape))

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set whether `lucid.value_and_grad` gives a gradient of this parameter."""
        self.requires_grad = requires_grad
        return self

    def assign(self, array: Array) -> None:
        """Replace the values; the shape stays, the element type is the array's.

        Raises:
            TypeError: for anything but an array of NumPy.
            ValueError: for another shape.
        """
        if not isinstance(array, np.ndarray):
            raise TypeError(f"parameter: got {type_name(array)}, expected a NumPy array, such as tensor.numpy()")
        if array.shape != self.shape:
            raise ValueError(f"parameter: got shape {show_shape(array.shape)}, expected {show_shape(self.shape)}")
        self._set(array, array_type(array.dtype, array.shape))


class Buffer(_OfModule):
    """A tensor that belongs to a module and is not learned, as any tensor that is assigned to an attribute.

    With `persistent=False` it is no part of `state_dict`: the module computes it, and no file has it.
    """

    __slots__ = ("persistent",)

    def __init__(self, data: Any, *, persistent: bool = True) -> None:
        known = data if isinstance(data, Tensor) else Tensor(data, None)
        self._set(known.numpy(), known.spec, None, known.origin)
        self.persistent = persistent
