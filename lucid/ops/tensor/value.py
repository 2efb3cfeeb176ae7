"""What a tensor holds: an array, or a reference to a value of a graph; and how Python and NumPy read it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NoReturn, Self, TypeAlias

import numpy as np

import lucid.ops.tensor.numpy_protocols as numpy_protocols
from lucid.core.graph.number_sizes import size_of_number
from lucid.core.graph.scope import is_differentiated
from lucid.core.graph.types import (
    Array,
    DType,
    DTypeLike,
    TensorType,
    as_dtype,
    float32,
    normalize_axis,
    show_shape,
)
from lucid.core.graph.values import Constant, Origin, Value
from lucid.core.sizes.dims import Shape, product
from lucid.core.torch_names.argument_names import CPU, Device, torch_names, torch_names_and
from lucid.core.words.other_libraries import misplaced_tensor, type_name

Whole: TypeAlias = int  # methods named `int`, `float` and `bool` hide the types in the class `Tensor`
Flag: TypeAlias = bool
Number: TypeAlias = float
Axes: TypeAlias = int | Sequence[int] | None

OPS: dict[str, Callable[..., Any]] = {}
"""The ops and the functions made of them, by name; the modules that define them fill it in."""


class TracedValueError(TypeError):
    """Python code asked for a value that is known only when the model runs."""


def array_and_dtype(data: Any, others: tuple[Any, ...], dtype: DTypeLike | None) -> tuple[Array, DType]:
    """The array and the element type that the arguments of `Tensor` mean; see there."""
    sizes = (data, *others)
    if dtype is None and {*map(type, sizes)} == {int}:
        if min(sizes) < 0:
            raise ValueError(f"Tensor: sizes are {show_shape(sizes)}, expected 0 or more")
        return np.zeros(sizes, np.float32), float32
    if len(others) > (dtype is None):
        raise TypeError(
            f"Tensor: got {len(sizes) + (dtype is not None)} arguments, expected data and an element type, or only "
            "whole numbers, which are sizes: lucid.zeros(2, 3, dtype=...)"
        )
    dtype = others[0] if others else dtype
    array = data.numpy() if isinstance(data, TensorValue) else np.asarray(data)
    if array.dtype.kind in "OSU":
        raise TypeError(
            f"tensor: got {type_name(data)} whose elements NumPy reads as {array.dtype}, expected numbers; integers "
            "must fit 64 bits"
        )
    if dtype is None:
        dtype = array.dtype if hasattr(data, "dtype") or array.dtype != np.float64 else float32
    return array, as_dtype(dtype)


class TensorValue:
    """The base of `Tensor`: either its array or its value in a graph is None."""

    __slots__ = ("_array", "_origin", "_value", "spec")

    _array: Array | None
    spec: TensorType
    _value: Value | None
    _origin: Origin | None
    _of_module: ClassVar = False  # whether a module owns it and may replace its values

    def _set(
        self, array: Array | None, type_: TensorType, value: Value | None = None, origin: Origin | None = None
    ) -> None:
        self._array, self.spec, self._value, self._origin = array, type_, value, origin

    def to_value(self) -> Value:
        """The value that a graph holds for this tensor."""
        if self._value is not None:
            return self._value
        return Constant(self.numpy(), self.spec, self._origin)

    @property
    def origin(self) -> Origin | None:
        """The array from which this tensor was taken or computed, if it is named after that."""
        return self._origin

    @property
    def is_traced(self) -> bool:
        """Whether the value is known only when the graph runs."""
        return self._value is not None

    @property
    def shape(self) -> Shape:
        """The size of each axis: numbers, or symbolic sizes while tracing."""
        return self.spec.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.spec.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.spec.shape)

    @torch_names
    def size(self, axis: Whole | None = None) -> Any:
        """The size of one axis; without an axis, the shape."""
        return self.spec.shape if axis is None else self.spec.shape[normalize_axis("size", axis, self.ndim)]

    def dim(self) -> Whole:
        """The number of axes."""
        return self.ndim

    def numel(self) -> Any:
        """The number of elements, which may be symbolic while tracing."""
        return product(self.shape)

    ndimension, nelement = dim, numel

    def element_size(self) -> Whole:
        """The bytes of an element."""
        return self.itemsize

    @property
    def itemsize(self) -> Whole:
        """The bytes of an element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> Any:
        """The bytes of all elements."""
        return self.numel() * self.itemsize

    @property
    def device(self) -> Device:
        """The CPU, for code that makes other tensors there: ``device=x.device``."""
        return CPU

    @property
    def is_cuda(self) -> Flag:
        """False: arrays of NumPy are not on a device."""
        return False

    @property
    def data(self) -> Self:
        """This tensor as a constant of gradients, as `detach` gives it."""
        constant: Self = self.detach()
        return constant

    def detach(self) -> Any:
        """This tensor as a constant of gradients: none flows through it (`lucid.stop_gradient`)."""
        return OPS["stop_gradient"](self) if is_differentiated() else self

    def cpu(self) -> Self:
        """This tensor: there are no other devices."""
        return self

    @torch_names_and("memory_format")
    def contiguous(self) -> Self:
        """This tensor: how it lies in memory is not part of a model."""
        return self

    @torch_names_and("memory_format")
    def is_contiguous(self) -> Flag:
        """True, as `contiguous` is this tensor."""
        return True

    def numpy(self) -> Array:
        """The array (not a copy).

        Raises:
            TracedValueError: while the tensor is traced.
        """
        return self._known("numpy()")

    def _known(self, asked_for: str) -> Array:
        """The array; an error that names the use while the tensor is traced."""
        if self._array is None:
            raise TracedValueError(
                f"{asked_for} of a traced {self.spec}: its value is known only when the exported model runs. "
                "Select values with lucid.where(condition, a, b) instead of Python's if; "
                "compute sizes from x.shape, without tensors"
            )
        return self._array

    def item(self) -> Any:
        """The only element as a Python number."""
        return self._known("item()").item()

    def to_size(self) -> Any:
        """The size that this whole number is: a symbolic one, if it was computed from sizes while tracing.

        Raises:
            TypeError: for anything else.
        """
        size = None if self._value is None else size_of_number(self._value)
        return self.__index__() if size is None else size

    def tolist(self) -> Any:
        """The elements as nested lists."""
        return self.numpy().tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return numpy_protocols.ufunc(OPS, ufunc, method, inputs, options)  # array + tensor is a Tensor

    def __array_function__(self, function: Any, types: Any, args: Sequence[Any], options: dict[str, Any]) -> Any:
        def known(value: Any) -> Any:
            return value._known(f"np.{function.__name__}()") if isinstance(value, TensorValue) else value

        return numpy_protocols.function(OPS, function, args, options, known)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        """torch calls this where one of its functions is given a tensor of Lucid."""
        raise TypeError(misplaced_tensor("torch", function.__name__))

    def __dlpack__(self, **options: Any) -> Any:
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.numpy().__dlpack_device__()

    def __bool__(self) -> bool:
        return bool(self._known("bool()"))

    def __int__(self) -> int:
        return int(self._known("int()"))

    def __index__(self) -> int:
        array = self._known("int()")
        if array.ndim or self.dtype.kind != "int":
            raise TypeError(f"a tensor {self.spec} is no size or index, expected int64[], a whole number without axes")
        return array.__index__()

    def __float__(self) -> float:
        return float(self._known("float()"))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a tensor without axes")
        return self.shape[0].__index__()

    def __repr__(self) -> str:
        if self._array is None:
            return f"Tensor(traced {self.spec})"
        text = np.array2string(self._array, separator=", ", prefix="Tensor(", threshold=100, precision=4)
        shape = f", shape={show_shape(self.shape)}" if self._array.size > 100 or not self._array.size else ""
        return f"Tensor({text}{shape}, dtype={self.dtype!r})"
