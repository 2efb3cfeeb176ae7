"""Element types and tensor types: what is known about a value before it is computed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt

from lucid.core.number_ranges import is_whole
from lucid.core.sizes.dims import Dim, Shape, Size, dim, evaluate, same
from lucid.core.sizes.readings import readings
from lucid.core.words.other_libraries import library_of

Array: TypeAlias = npt.NDArray[Any]
Scalar: TypeAlias = bool | int | float


@dataclass(frozen=True, eq=False)
class DType:
    """An element type, such as `lucid.float32`. There is one object of each, also after a copy or a pickle."""

    name: str
    kind: Literal["bool", "int", "float"]
    numpy: np.dtype[Any]

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.numpy.itemsize

    @property
    def lowest(self) -> float:
        """The lowest finite number of a floating-point type."""
        return float(ml_dtypes.finfo(self.numpy).min)  # type: ignore[no-untyped-call]

    @functools.cached_property
    def largest(self) -> float:
        """The largest finite number of a floating-point type."""
        return float(ml_dtypes.finfo(self.numpy).max)  # type: ignore[no-untyped-call]

    @functools.cached_property
    def smallest(self) -> float:
        """The smallest positive number of a floating-point type."""
        return float(ml_dtypes.finfo(self.numpy).smallest_subnormal)  # type: ignore[no-untyped-call]

    @functools.cached_property
    def epsilon(self) -> float:
        """The difference between 1 and the next larger number of a floating-point type."""
        return float(ml_dtypes.finfo(self.numpy).eps)  # type: ignore[no-untyped-call]

    def __reduce__(self) -> tuple[Callable[[str], DType], tuple[str]]:
        return as_dtype, (self.name,)

    def __repr__(self) -> str:
        return f"lucid.{self.name if self.name != 'bool' else 'bool_'}"

    def __str__(self) -> str:
        return self.name


float32 = DType("float32", "float", np.dtype(np.float32))
float64 = DType("float64", "float", np.dtype(np.float64))
float16 = DType("float16", "float", np.dtype(np.float16))
bfloat16 = DType("bfloat16", "float", np.dtype(ml_dtypes.bfloat16))
int8 = DType("int8", "int", np.dtype(np.int8))
uint8 = DType("uint8", "int", np.dtype(np.uint8))
int32 = DType("int32", "int", np.dtype(np.int32))
int64 = DType("int64", "int", np.dtype(np.int64))
bool_ = DType("bool", "bool", np.dtype(np.bool_))

DTYPES: tuple[DType, ...] = (float32, float64, float16, bfloat16, int8, uint8, int32, int64, bool_)
_BY_NUMPY = {dtype.numpy: dtype for dtype in DTYPES}
_BY_NAME = {dtype.name: dtype for dtype in DTYPES} | {"bool_": bool_}
_BY_PYTHON: dict[object, DType] = {float: float32, int: int64, bool: bool_}

DTypeLike: TypeAlias = DType | str | type | np.dtype[Any]


def as_dtype(dtype: DTypeLike) -> DType:
    """The DType from a DType, a name, a NumPy dtype or a Python type.

    Raises:
        TypeError: for a type that Lucid does not have; the message lists those that it has.
    """
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, np.dtype) and dtype in _BY_NUMPY:  # of every array that becomes a tensor
        return _BY_NUMPY[dtype]
    if dtype in _BY_PYTHON:
        return _BY_PYTHON[dtype]
    if isinstance(dtype, str) and dtype in _BY_NAME:
        return _BY_NAME[dtype]
    if not isinstance(dtype, (str, type(None))):  # NumPy reads None as float64
        library = library_of(dtype)
        if library in ("torch", "mlx", "tensorflow"):
            raise TypeError(f"dtype {dtype!r} is {library}'s, expected Lucid's, such as lucid.float32, or its name")
        known = _BY_NUMPY.get(np.dtype(dtype))
        if known is not None:
            return known
    raise TypeError(f"dtype {dtype!r} is not one of {', '.join(_BY_NAME)}: cast with array.astype(...) first")


def has_dtype(array: npt.NDArray[Any]) -> bool:
    """Whether Lucid has the element type of an array."""
    return array.dtype in _BY_NUMPY


def convert(array: Array, dtype: DType, where: str) -> Array:
    """Stored numbers in another element type; the error message starts with `where`.

    (The op `cast` is for computed numbers, and gives infinity if a number is too large, as every backend does.)

    Raises:
        OverflowError: for a number that the type cannot hold; rounding is not an error.
    """
    if array.dtype == dtype.numpy:
        return array
    if dtype.kind == "float" and not array.ndim and abs(float(array)) <= dtype.largest:
        return array.astype(dtype.numpy)  # the fast path for a Python number
    with np.errstate(all="ignore"):
        result = array.astype(dtype.numpy)
        if dtype.kind == "float":
            lost = np.isinf(result) & np.isfinite(array) if array.dtype.itemsize > 1 else False
        elif dtype.kind == "int" and array.dtype != np.bool_:
            # What a cast makes of other numbers differs by processor.
            limits = np.iinfo(dtype.numpy)
            whole = array if array.dtype.kind in "iu" else np.trunc(array.astype(np.float64))
            lost = ~((whole >= limits.min) & (whole < limits.max + 1))
        else:
            lost = False
    if np.any(lost):
        number = array[lost].reshape(-1)[0] if array.ndim else array
        raise OverflowError(f"{where}: {number} does not fit {dtype}; choose a wider type, or clip first")
    return result


def dtype_of_scalar(value: Scalar) -> DType:
    """The type that a Python number has when no tensor determines it."""
    return _BY_PYTHON[type(value)]


_RANK = {"bool": 0, "int": 1, "float": 2}


def promote(a: DType, b: DType) -> DType:
    """The type of a result computed from two operands of these types.

    The wider kind wins (bool < integer < float), within a kind the wider type: an int64 and a float16 give float16. The
    two pairs in which neither type contains the other (float16 and bfloat16, int8 and uint8) give float32 and int32.
    """
    if a is b:
        return a
    if a.kind != b.kind:
        return max(a, b, key=lambda dtype: _RANK[dtype.kind])
    if a.itemsize == b.itemsize:
        return float32 if a.kind == "float" else int32
    return max(a, b, key=lambda dtype: dtype.itemsize)


def common_dtype(types: Sequence[TensorType]) -> DType:
    """The type in which tensors of these types are combined: torch's rule.

    Tensors with axes decide. Tensors without axes, which are numbers, count only if their kind (bool < integer < float)
    is wider than that of all others: float16[3] and float32[] give float16, int64[3] and float32[] give float32.
    """
    dtypes = [each.dtype for each in types]
    if dtypes.count(dtypes[0]) == len(dtypes):
        return dtypes[0]
    arrays = [each.dtype for each in types if each.shape]
    numbers = [each.dtype for each in types if not each.shape]
    if not arrays or not numbers:
        return functools.reduce(promote, arrays or numbers)
    wide, number = functools.reduce(promote, arrays), functools.reduce(promote, numbers)
    return number if _RANK[number.kind] > _RANK[wide.kind] else wide


@dataclass(frozen=True)
class TensorType:
    """The element type and the shape of a tensor; sizes may be symbolic."""

    dtype: DType
    shape: Shape

    def __eq__(self, other: object) -> bool:
        """Whether both are certainly the same."""
        return isinstance(other, TensorType) and self.dtype == other.dtype and same_shape(self.shape, other.shape)

    def __hash__(self) -> int:
        return hash((self.dtype, self.shape))

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def with_shape(self, shape: Sequence[Size]) -> TensorType:
        """The same element type with another shape."""
        return TensorType(self.dtype, tuple(shape))

    def with_dtype(self, dtype: DType) -> TensorType:
        """The same shape with another element type."""
        return TensorType(dtype, self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}{show_shape(self.shape)}"


@functools.lru_cache(maxsize=4096)
def array_type(dtype: np.dtype[Any], shape: tuple[int, ...]) -> TensorType:
    """The type of an array of this dtype and shape. Cached: every result of an op asks for it."""
    return TensorType(as_dtype(dtype), shape)


def spec(*shape: str | Size, dtype: DTypeLike = float32) -> TensorType:
    """Describe an input for tracing and export.

    Args:
        shape: a number for a fixed size, a name (``"N"``) for one known at run time, or a sum or difference of
            products (``"2*L - 1"``). Axes with the same name have the same size. Each name must be the size of an axis
            somewhere, or the only unknown in one.
        dtype: the element type.

    Example:
        ``lucid.spec("N", "L", 512)`` is a float32 tensor of shape (N, L, 512) for any N and L.

    Raises:
        ValueError: for a negative size, or text that is not a size.
        TypeError: for a size of another type, or an unknown dtype.
    """
    sizes: list[Size] = []
    for size in shape:
        if not isinstance(size, (str, Dim)) and not is_whole(size):
            raise TypeError(f'spec: size {size!r} is {type(size).__name__}; give a number or a name such as "N"')
        if isinstance(size, np.integer):
            size = int(size)
        if isinstance(size, int) and size < 0:
            raise ValueError(f'spec: size {size} is negative; give a name such as "N" to a size known at run time')
        sizes.append(dim(size) if isinstance(size, str) else size)
    return TensorType(as_dtype(dtype), tuple(sizes))


def show_shape(shape: Sequence[Size]) -> str:
    """A shape as text for messages: ``[N, L, 512]``."""
    return f"[{', '.join(map(str, shape))}]"


def normalize_axis(where: str, axis: int, rank: int) -> int:
    """An axis as an index of 0 or more.

    Raises:
        IndexError: if a tensor of this rank does not have the axis.
        TypeError: for anything but a whole number. Booleans are refused, so that a flag is not taken for an axis.
    """
    if axis.__class__ is not int and not is_whole(axis):
        flag = "; give flags by name, such as keepdims=True" if isinstance(axis, (bool, np.bool_)) else ""
        raise TypeError(f"{where}: axis is {axis!r}, expected a whole number{flag}")
    if not -rank <= axis < rank:
        advice = "" if rank else "; write x.unsqueeze(0) for a tensor of one"
        raise IndexError(f"{where}: axis {axis} is out of range for a tensor of {rank} axes{advice}")
    return axis % rank


def same_shape(a: Sequence[Size], b: Sequence[Size]) -> bool:
    """Whether two shapes are certainly equal."""
    return len(a) == len(b) and all(map(same, a, b))


def broadcast(where: str, *shapes: Sequence[Size]) -> Shape:
    """The common shape of all given shapes after broadcasting by NumPy's rule.

    Raises:
        ValueError: for shapes that do not broadcast, or of which that is uncertain; the message starts with `where`.
    """
    if not shapes:
        return ()
    first, *others = shapes
    result: list[Size] = [*[1] * (max(map(len, shapes)) - len(first)), *first]
    for shape in others:
        for axis, size in zip(range(-len(shape), 0), shape, strict=True):
            if same(size, result[axis]):
                continue
            if same(result[axis], 1):
                result[axis] = size
            elif not same(size, 1):
                shown = " and ".join(map(show_shape, shapes))
                raise ValueError(
                    f"{where}: shapes {shown} do not broadcast: {result[axis]} and {size} at axis {axis}; "
                    "sizes must be equal or 1"
                )
    return tuple(result)


def bind_sizes(names: Sequence[str], types: Sequence[TensorType], arrays: Sequence[Array]) -> dict[str, int]:
    """The values of the named sizes, from arrays for inputs of the given types.

    Raises:
        TypeError: for an array of another dtype.
        ValueError: for an array of another rank or size, or two different values for one name.
    """
    for name, expected, array in zip(names, types, arrays, strict=True):
        if array.dtype != expected.dtype.numpy:
            raise TypeError(f"input {name}: dtype {array.dtype}, expected {expected.dtype}; use .astype(...)")
        if array.ndim != expected.rank:
            raise ValueError(f"input {name}: shape {show_shape(array.shape)}, expected {show_shape(expected.shape)}")
    sizes: dict[str, int] = {}
    owner: dict[str, str] = {}
    for reading in readings([expected.shape for expected in types]):
        name, value = names[reading.source], arrays[reading.source].shape[reading.axis]
        try:
            sizes[reading.name] = reading.value(value, sizes)
        except ValueError as error:
            raise ValueError(f"input {name}: size {value} at axis {reading.axis}, {error}") from None
        owner[str(reading.size)] = f"{name} axis {reading.axis}"
    for name, expected, array in zip(names, types, arrays, strict=True):
        for axis, (size, value) in enumerate(zip(expected.shape, array.shape, strict=True)):
            bound = evaluate(size, sizes)
            if bound != value:
                source = f" ({size} = {bound}, from {owner.get(str(size), 'the other inputs')})"
                raise ValueError(
                    f"input {name}: size {value} at axis {axis}, expected {bound}"
                    + (source if isinstance(size, Dim) else "")
                )
    return sizes
