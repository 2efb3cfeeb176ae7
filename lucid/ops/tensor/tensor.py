"""The tensor: an array, or a reference to a value of a graph that is being traced.

Methods call the ops by name through `OPS`, which the ops fill in, so this module imports no op, and every op works on
both kinds of tensor. It is in the package `lucid.ops`, so that importing it loads the ops: Python imports a package
before its modules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, Union

import numpy as np

import lucid.ops.tensor.numpy_protocols as numpy_protocols
from lucid.core.graph.types import (
    Array,
    DType,
    DTypeLike,
    Scalar,
    TensorType,
    as_dtype,
    convert,
    float32,
    known_type,
    show_shape,
)
from lucid.core.graph.types import normalize_axis as _normalize_axis
from lucid.core.graph.values import Constant, Part, Value
from lucid.core.sizes.dims import Dim, Shape, Size
from lucid.core.torch_names.argument_names import torch_names, torch_names_and
from lucid.core.torch_names.missing_names import why_absent
from lucid.core.words.package_names import unknown
from lucid.ops.tensor.axis_methods import AxisMethods
from lucid.ops.tensor.methods import OPS as OPS
from lucid.ops.tensor.methods import Axes as Axes
from lucid.ops.tensor.methods import unpack as _unpack

TensorLike: TypeAlias = Union["Tensor", Array, Scalar, Dim]


class TracedValueError(TypeError):
    """Python code asked for a value that is known only when the model runs."""


class Tensor(AxisMethods["Tensor"]):
    """An n-dimensional array that ops compute with, eagerly or under `lucid.trace`.

    Args:
        data: an array, a nested list of numbers, or a number.
        dtype: the element type; by default that of the data (Python floats become float32, integers int64).

    Raises:
        OverflowError: for a number that the element type cannot hold.
    """

    __slots__ = ("_array", "_part", "_value", "type")
    __hash__ = object.__hash__

    def __init__(self, data: Any, dtype: DTypeLike | None = None) -> None:
        if isinstance(data, Tensor):
            data = data.numpy()
        array = np.asarray(data)
        if dtype is None and not hasattr(data, "dtype") and array.dtype == np.float64:
            dtype = float32
        wanted = as_dtype(array.dtype if dtype is None else dtype)
        self._set(convert(array, wanted, "tensor"), known_type(wanted.numpy, array.shape))

    def _set(self, array: Array | None, kind: TensorType, value: Value | None = None, part: Part | None = None) -> None:
        self._array, self.type, self._value, self._part = array, kind, value, part

    @staticmethod
    def from_array(array: Array, part: Part | None = None) -> Tensor:
        """Wrap an array without a copy."""
        return Tensor.of_type(array, known_type(array.dtype, array.shape), part)

    @staticmethod
    def of_type(array: Array, kind: TensorType, part: Part | None = None) -> Tensor:
        """Wrap an array whose type is known: an object that `known_type` gave."""
        tensor = _new(Tensor)
        tensor._array, tensor.type, tensor._value, tensor._part = array, kind, None, part
        return tensor

    @staticmethod
    def from_value(value: Value) -> Tensor:
        """The tensor for a value of a graph; for a constant, a known tensor."""
        if isinstance(value, Constant):
            return Tensor.from_array(value.array, value.part)
        tensor = Tensor.__new__(Tensor)
        tensor._set(None, value.type, value)
        return tensor

    def to_value(self) -> Value:
        """The value that a graph holds for this tensor."""
        if self._value is not None:
            return self._value
        return Constant(self.numpy(), self.type, self._part)

    def part_of(self, whole: Tensor, suffix: str) -> Tensor:
        """This tensor, marked as a part of another one, from which it gets its name in an exported model."""
        if self.is_traced or whole.is_traced:
            return self
        return Tensor.from_array(self.numpy(), Part(whole.numpy(), suffix, whole._part))

    @property
    def part(self) -> Part | None:
        """What this tensor is a part of, if known."""
        return self._part

    @property
    def is_traced(self) -> bool:
        """Whether the value is known only when the graph runs."""
        return self._value is not None

    @property
    def shape(self) -> Shape:
        """The size of each axis: numbers, or symbolic sizes while tracing."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.type.shape)

    @torch_names
    def size(self, axis: int | None = None) -> Any:
        """The size of one axis; without an axis, the shape."""
        return self.type.shape if axis is None else self.type.shape[_normalize_axis("size", axis, self.ndim)]

    def numpy(self) -> Array:
        """The array (not a copy).

        Raises:
            TracedValueError: while the tensor is traced.
        """
        if self._array is None:
            self._no_value("numpy()")
        return self._array

    def _no_value(self, wanted: str) -> NoReturn:
        raise TracedValueError(
            f"{wanted} of a traced {self.type}: its value is known only when the exported model runs. "
            "Select values with lucid.where(condition, a, b) instead of Python's if"
        )

    def item(self) -> Any:
        """The only element as a Python number."""
        return self.numpy().item() if self._array is not None else self._no_value("item()")

    def tolist(self) -> Any:
        """The elements as nested lists."""
        return self.numpy().tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return numpy_protocols.ufunc(OPS, ufunc, method, inputs, options)  # array + tensor is a Tensor

    def __array_function__(self, function: Any, types: Any, args: Sequence[Any], options: dict[str, Any]) -> Any:
        def known(value: Any) -> Any:
            if isinstance(value, Tensor) and value.is_traced:
                value._no_value(f"np.{function.__name__}()")
            return value.numpy() if isinstance(value, Tensor) else value

        return numpy_protocols.function(OPS, function, args, options, known)

    def __dlpack__(self, **options: Any) -> Any:
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.numpy().__dlpack_device__()

    def __bool__(self) -> bool:
        return bool(self.numpy()) if self._array is not None else self._no_value("bool()")

    def __int__(self) -> int:
        return int(self.numpy()) if self._array is not None else self._no_value("int()")

    def __index__(self) -> int:
        return self.numpy().__index__() if self._array is not None else self._no_value("int()")

    def __float__(self) -> float:
        return float(self.numpy()) if self._array is not None else self._no_value("float()")

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a tensor without axes")
        return self.shape[0].__index__()

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        if self._array is None:
            return f"Tensor(traced {self.type})"
        text = np.array2string(self._array, separator=", ", prefix="Tensor(", threshold=100, precision=4)
        shape = f", shape={show_shape(self.shape)}" if self._array.size > 100 or not self._array.size else ""
        return f"Tensor({text}{shape}, dtype={self.dtype!r})"

    def __getitem__(self, index: Any) -> Tensor:
        return _call("getitem", self, index)

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        raise TypeError(
            "x[...] = value: tensors are never changed in place; write x = lucid.where(mask, value, x) for a mask, "
            "x = x.scatter(axis, indices, values) for places, or join parts with lucid.cat([x[:i], value, x[j:]])"
        )

    if not TYPE_CHECKING:  # a type checker knows the attributes that there are

        def __getattr__(self, name: str) -> NoReturn:
            known = dir(Tensor)
            raise unknown("'Tensor' object", name, known, why_absent("Tensor", name, known))

    # Shape --------------------------------------------------------------------------------------------------------

    @torch_names
    def reshape(self, *shape: Size | Sequence[Size]) -> Tensor:
        """The same elements in another shape; one size may be -1."""
        return _call("reshape", self, _unpack(shape))

    view = reshape

    @torch_names
    def transpose(self, axis0: int, axis1: int) -> Tensor:
        """Exchange two axes."""
        return _call("transpose", self, axis0, axis1)

    @torch_names
    def permute(self, *axes: int | Sequence[int]) -> Tensor:
        """Reorder all axes."""
        return _call("permute", self, _unpack(axes))

    @property
    def mT(self) -> Tensor:
        """The last two axes exchanged."""
        return self.transpose(-2, -1).part_of(self, ".T")

    @property
    def T(self) -> Tensor:
        """All axes in reverse order."""
        return self.permute(*reversed(range(self.ndim))).part_of(self, ".T")

    @torch_names
    def flatten(self, start: int = 0, end: int = -1) -> Tensor:
        """Join the axes from `start` to `end` into one."""
        return _call("flatten", self, start, end)

    @torch_names
    def squeeze(self, axis: Axes = None) -> Tensor:
        """Drop axes of size 1."""
        return _call("squeeze", self, axis)

    @torch_names
    def unsqueeze(self, axis: int) -> Tensor:
        """Insert an axis of size 1."""
        return _call("unsqueeze", self, axis)

    @torch_names
    def expand(self, *shape: Size | Sequence[Size]) -> Tensor:
        """Repeat axes of size 1 up to a shape; -1 keeps a size."""
        return _call("expand", self, _unpack(shape))

    @torch_names
    def split(self, sizes: Size | Sequence[Size], axis: int = 0) -> tuple[Tensor, ...]:
        """Split an axis into parts of one size, or of the given sizes."""
        parts: tuple[Tensor, ...] = OPS["split"](self, sizes, axis)
        return parts

    @torch_names
    def chunk(self, chunks: int, axis: int = 0) -> tuple[Tensor, ...]:
        """Split an axis into a number of equal parts (the last may be smaller)."""
        parts: tuple[Tensor, ...] = OPS["chunk"](self, chunks, axis)
        return parts

    @torch_names
    def repeat(self, *repeats: int | Sequence[int]) -> Tensor:
        """Repeat the tensor along each axis."""
        return _call("repeat", self, _unpack(repeats))

    def tril(self, diagonal: int = 0) -> Tensor:
        """Zero above a diagonal of the last two axes."""
        return _call("tril", self, diagonal=diagonal)

    def triu(self, diagonal: int = 0) -> Tensor:
        """Zero below a diagonal of the last two axes."""
        return _call("triu", self, diagonal=diagonal)

    # Choice and element type --------------------------------------------------------------------------------------

    def where(self, condition: TensorLike, other: TensorLike) -> Tensor:
        """This tensor where the condition is true, else the other."""
        return _call("where", condition, self, other)

    def astype(self, dtype: DTypeLike) -> Tensor:
        """The same numbers in another element type."""
        wanted = as_dtype(dtype)
        return self if wanted == self.dtype else _call("cast", self, dtype=wanted)

    # Creation: the functions of the same names in `lucid` ---------------------------------------------------------

    @staticmethod
    @torch_names_and("device", "requires_grad", "layout", "pin_memory")
    def zeros(*shape: Size | Sequence[Size], dtype: DTypeLike = float32) -> Tensor:
        """A tensor of zeros."""
        return _call("zeros", *shape, dtype=dtype)

    @staticmethod
    @torch_names_and("device", "requires_grad", "layout", "pin_memory")
    def ones(*shape: Size | Sequence[Size], dtype: DTypeLike = float32) -> Tensor:
        """A tensor of ones."""
        return _call("ones", *shape, dtype=dtype)

    @staticmethod
    @torch_names_and("device", "requires_grad", "layout", "pin_memory")
    def full(shape: Size | Sequence[Size], value: Scalar | Tensor, dtype: DTypeLike | None = None) -> Tensor:
        """A tensor of one number everywhere."""
        return _call("full", shape, value, dtype)

    @staticmethod
    @torch_names_and("device", "requires_grad", "layout", "pin_memory")
    def empty(*shape: Size | Sequence[Size], dtype: DTypeLike = float32) -> Tensor:
        """A tensor whose elements are yet to be set."""
        return _call("empty", *shape, dtype=dtype)

    @staticmethod
    @torch_names_and("device", "requires_grad", "layout", "pin_memory")
    def arange(start: Size, stop: Size | None = None, step: int = 1) -> Tensor:
        """The int64 numbers from start up to, not including, stop."""
        return _call("arange", start, stop, step)

    @staticmethod
    @torch_names_and("device", "requires_grad", "layout", "pin_memory")
    def eye(rows: int, columns: int | None = None, dtype: DTypeLike = float32) -> Tensor:
        """Ones on the diagonal of a matrix."""
        return _call("eye", rows, columns, dtype)

    @staticmethod
    @torch_names_and("device", "requires_grad", "layout", "pin_memory")
    def randn(*shape: int | Sequence[int], dtype: DTypeLike = float32) -> Tensor:
        """Standard normal random numbers."""
        return _call("randn", *shape, dtype=dtype)

    @staticmethod
    @torch_names_and("device", "requires_grad", "layout", "pin_memory")
    def rand(*shape: int | Sequence[int], dtype: DTypeLike = float32) -> Tensor:
        """Uniform random numbers from 0 to 1."""
        return _call("rand", *shape, dtype=dtype)


_new = Tensor.__new__


def _call(name: str, *arguments: Any, **attributes: Any) -> Tensor:
    result: Tensor = OPS[name](*arguments, **attributes)
    return result
