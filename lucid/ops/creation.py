"""Creating tensors: ``lucid.zeros(2, 3)``, ``lucid.arange(n)`` with n symbolic or not, ``lucid.randn(3)``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lucid.core.graph.scope import is_tracing
from lucid.core.graph.types import (
    Array,
    DType,
    DTypeLike,
    Scalar,
    TensorType,
    as_dtype,
    bfloat16,
    bool_,
    broadcast,
    convert,
    dtype_of_scalar,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    show_shape,
    uint8,
)
from lucid.core.number_ranges import is_whole
from lucid.core.process import random
from lucid.core.sizes.dims import Dim, Shape, Size, as_size
from lucid.core.torch_names.argument_names import Device, check_device, torch_names_and
from lucid.ops.elementwise import maximum, where
from lucid.ops.op import function, primitive
from lucid.ops.shaping import concat, expand, unsqueeze
from lucid.ops.tensor.tensor import UNUSED, Tensor, TracedValueError


@primitive(
    kernel=lambda *, shape, value, dtype: np.full(shape, value, dtype.numpy),
    rule=lambda *, shape, value, dtype: TensorType(dtype, shape),
)
def full_op(*, shape: Shape, value: Scalar, dtype: DType) -> Tensor:  # type: ignore[empty-body]
    """One number everywhere."""


@primitive(
    kernel=lambda *, start, stop: np.arange(start, max(start, stop), dtype=np.int64),
    rule=lambda *, start, stop: TensorType(int64, (stop - start,)),
)
def arange_op(*, start: Size, stop: Size) -> Tensor:  # type: ignore[empty-body]
    """The int64 numbers from start up to, not including, stop."""


@primitive(kernel=lambda *, size: np.asarray(size, np.int64), rule=lambda *, size: TensorType(int64, ()))
def size_op(*, size: Size) -> Tensor:  # type: ignore[empty-body]
    """A size as an int64 number, for arithmetic with tensors."""


def _triangle_rule(x: TensorType, *, diagonal: int = 0) -> TensorType:
    if x.rank < 2:
        raise ValueError(f"tril or triu: got {x}, expected at least 2 axes")
    return x


@primitive(kernel=lambda x, *, diagonal: np.tril(x, diagonal), rule=_triangle_rule)
def tril(x: Tensor, *, diagonal: int = 0) -> Tensor:  # type: ignore[empty-body]
    """Zero above a diagonal of the last two axes."""


@primitive(kernel=lambda x, *, diagonal: np.triu(x, diagonal), rule=_triangle_rule)
def triu(x: Tensor, *, diagonal: int = 0) -> Tensor:  # type: ignore[empty-body]
    """Zero below a diagonal of the last two axes."""


@function
def one_hot(x: Tensor, classes: Size, dtype: DTypeLike = float32) -> Tensor:
    """Indices (...) as (..., classes): 1 at the index, 0 elsewhere. Exported, an index outside the classes gives zeros.

    Raises:
        IndexError: eagerly, for an index outside the classes.
        ValueError: for no classes.
    """
    classes = as_size("one_hot", classes)
    if isinstance(classes, int) and classes < 1:
        raise ValueError(f"one_hot: {classes} classes, expected 1 or more")
    if isinstance(classes, int) and not x.is_traced and x.numpy().size:
        low, high = x.numpy().min(), x.numpy().max()
        if low < 0 or high >= classes:
            raise IndexError(f"one_hot: indices range from {low} to {high}, expected 0 to {classes - 1}")
    hit = x.unsqueeze(-1) == arange_op(start=0, stop=classes)
    return where(hit, 1.0, 0.0).astype(dtype)


@torch_names_and(*UNUSED)
def tensor(data: Any, dtype: DTypeLike | None = None) -> Tensor:
    """A tensor from an array (copied), nested lists or a number.

    Python floats become float32; integers and symbolic sizes, alone or in lists, become int64.

    Raises:
        TypeError: for data that does not become an array of numbers, such as an array of objects.
    """
    if isinstance(data, Dim):
        return size_op(size=data).astype(int64 if dtype is None else dtype)
    if isinstance(data, Tensor) and data.is_traced:
        return data if dtype is None else data.astype(dtype)
    try:
        return Tensor.from_array(Tensor(data, dtype).numpy().copy())
    except TypeError:  # an array of objects
        if not _holds_a_size(data):
            raise
    return concat([unsqueeze(tensor(each, dtype), 0) for each in data], 0)


def from_numpy(ndarray: Array) -> Tensor:
    """The tensor of an array, which shares its memory.

    Raises:
        TypeError: for anything but an array of numbers.
    """
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"from_numpy: got {type(ndarray).__name__}, expected a NumPy array; use lucid.tensor(data)")
    return Tensor.from_array(Tensor(ndarray).numpy())


def _holds_a_size(data: Any) -> bool:
    return isinstance(data, Dim) or (isinstance(data, (list, tuple)) and any(map(_holds_a_size, data)))


def as_shape(sizes: Sequence[Size | Sequence[Size]]) -> tuple[Size, ...]:
    """Sizes given one by one or as one sequence, checked.

    Raises:
        TypeError: for anything but sizes.
        ValueError: for a negative size.
    """
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = sizes[0]
    shape = tuple(as_size("shape", size) for size in sizes)  # type: ignore[arg-type]  # one level of nesting is off
    for size in shape:
        if isinstance(size, int) and size < 0:
            raise ValueError(f"shape {show_shape(shape)}: size {size} is negative")
    return shape


@torch_names_and(*UNUSED)
@function
def full(shape: Size | Sequence[Size], value: Scalar | Tensor, dtype: DTypeLike | None = None) -> Tensor:
    """A tensor of one number everywhere; sizes may be symbolic while tracing.

    Without `dtype` it has that of such a number of Python: bool, int64 or float32.

    Raises:
        OverflowError: for a number that the element type cannot hold.
        TypeError: for anything but a number or a size.
    """
    value = tensor(value) if isinstance(value, Dim) else value
    if isinstance(value, Tensor):
        usual = {"bool": bool_, "int": int64, "float": float32}[value.dtype.kind]
        return expand(value.astype(usual if dtype is None else dtype), as_shape((shape,)))
    number: Scalar = value.item() if isinstance(value, np.generic) else value
    if not isinstance(number, (bool, int, float)):
        raise TypeError(f"full: value is {value!r}, expected a number or a tensor of one")
    type_ = dtype_of_scalar(number) if dtype is None else as_dtype(dtype)
    convert(np.asarray(number), type_, "full")
    return full_op(shape=as_shape((shape,)), value=number, dtype=type_)


@torch_names_and(*UNUSED)
@function
def zeros(*shape: Size | Sequence[Size], dtype: DTypeLike = float32) -> Tensor:
    """A tensor of zeros."""
    return full(as_shape(shape), 0, float32 if dtype is None else dtype)


@torch_names_and(*UNUSED)
@function
def ones(*shape: Size | Sequence[Size], dtype: DTypeLike = float32) -> Tensor:
    """A tensor of ones."""
    return full(as_shape(shape), 1, float32 if dtype is None else dtype)


@torch_names_and(*UNUSED)
@function
def empty(*shape: Size | Sequence[Size], dtype: DTypeLike = float32) -> Tensor:
    """A tensor whose elements are to be set later: zeros, so that results are reproducible."""
    return zeros(*shape, dtype=dtype)


@torch_names_and(*UNUSED)
@function
def arange(
    start: Size | float = 0,
    stop: Size | float | None = None,
    step: float = 1,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """The numbers from start (0 by default) up to, not including, stop; sizes may be symbolic while tracing.

    They are int64, or float32 if one of the three is a float, unless `dtype` says otherwise. Tensors without axes count
    as the numbers that they hold.

    Raises:
        TypeError: for a start or stop that is not a number or a size.
        ValueError: for a step that is 0 or, with whole numbers, not whole.
    """
    if stop is None:
        start, stop = 0, start
    low, high, by = map(_number_in, (start, stop, step))
    if any(isinstance(each, float) for each in (low, high, by)):
        dtype = float32 if dtype is None else dtype
        if not isinstance(low, Dim) and not isinstance(high, Dim):
            return _fractions(float(low), float(high), float(by), dtype)
        low, high, by = (int(n) if isinstance(n, float) and n.is_integer() else n for n in (low, high, by))
    for name, size in (("start", low), ("stop", high)):
        if not isinstance(size, Dim) and not is_whole(size):
            raise TypeError(f"arange: {name} is {size!r}, expected a number or a size")
    if not is_whole(by) or by == 0:
        raise ValueError(f"arange: step is {by!r}, expected a whole number other than 0")
    type_ = int64 if dtype is None else dtype
    if by == 1:
        return arange_op(start=low, stop=high).astype(type_)
    count: Size = -(-(high - low) // by)
    places: Tensor = arange_op(start=0, stop=count) * by + low
    return places.astype(type_)


def _number_in(bound: Any) -> Any:
    """The number in a tensor without axes, or the size that it is while tracing; of NumPy's numbers Python's."""
    if isinstance(bound, np.generic):
        return bound.item()
    if not isinstance(bound, Tensor) or bound.ndim:
        return bound
    return bound.to_size() if bound.dtype.kind == "int" else bound.item()


def _fractions(start: float, stop: float, step: float, dtype: DTypeLike) -> Tensor:
    type_ = as_dtype(dtype)
    if type_ == int64:  # torch cuts the fractions off before it counts, for other integers only afterwards
        start, stop, step = math.trunc(start), math.trunc(stop), math.trunc(step)
    if step == 0:
        raise ValueError("arange: step is 0, expected another number")
    places = np.arange(max(0, math.ceil((stop - start) / step)))
    if type_.kind == "int":
        start, step = math.trunc(start), math.trunc(step)
    return Tensor.from_array((start + step * places).astype(type_.numpy))


@torch_names_and(*UNUSED)
@function
def linspace(start: float, stop: float, steps: Size, dtype: DTypeLike | None = None) -> Tensor:
    """Numbers at equal distances from start to stop, both included; the number of steps may be symbolic while tracing.

    The numbers are computed from both ends, as in torch, so both ends are exact.

    Raises:
        ValueError: for a negative number of steps.
    """
    steps = as_size("linspace", steps)
    if isinstance(steps, int) and steps < 0:
        raise ValueError(f"linspace: steps is {steps}, expected 0 or more")
    type_ = float32 if dtype is None else as_dtype(dtype)
    wide = float64 if type_ == float64 else float32
    place = arange_op(start=0, stop=steps)
    gaps = maximum(size_op(size=steps - 1), 1).astype(wide)
    step = (Tensor(stop, wide) - Tensor(start, wide)) / gaps
    there, back = place.astype(wide) * step + start, stop - step * (size_op(size=steps) - 1 - place).astype(wide)
    return where(place * 2 < size_op(size=steps), there, back).astype(type_)


@torch_names_and(*UNUSED)
@function
def eye(rows: Size, columns: Size | None = None, dtype: DTypeLike | None = None) -> Tensor:
    """Ones on the diagonal of a matrix, zeros elsewhere; sizes may be symbolic while tracing."""
    rows, columns = as_shape((rows, rows if columns is None else columns))
    if isinstance(rows, Dim) or isinstance(columns, Dim):
        places = unsqueeze(arange(rows), 1) == arange(columns)
        return places.astype(float32 if dtype is None else dtype)
    return Tensor.from_array(np.eye(rows, columns, dtype=as_dtype(float32 if dtype is None else dtype).numpy))


@function
def to(
    x: Tensor,
    *target: Any,
    dtype: DTypeLike | None = None,
    device: Any = None,
    other: Tensor | None = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """The same numbers in the element type of the target: a type, or a tensor that has it.

    Raises:
        ValueError: for a device other than the CPU.
    """
    type_ = wanted_type(*target, dtype=dtype, device=device, other=other)
    return x if type_ is None else x.astype(type_)


def wanted_type(
    *target: Any,
    dtype: DTypeLike | None = None,
    device: Any = None,
    other: Tensor | None = None,
    non_blocking: bool = False,
) -> DTypeLike | None:
    """The element type that the arguments of torch's `to` name, of a tensor or a module; None for the one there is.

    Raises:
        ValueError: for a device other than the CPU.
    """
    check_device("to", device)
    type_ = dtype
    for item in (*target, other):
        if isinstance(item, Tensor):
            type_ = item.dtype
        elif _is_device(item):
            check_device("to", item)
        elif item is not None and not isinstance(item, bool):  # torch's non_blocking and copy may be given by position
            type_ = item
    return type_


def _is_device(item: Any) -> bool:
    if isinstance(item, str):
        return item.partition(":")[0] in ("cpu", "cuda", "mps", "meta", "xpu", "npu")
    return isinstance(item, Device)


@function
def new_full(
    x: Tensor, shape: Size | Sequence[Size], value: Scalar, dtype: DTypeLike | None = None, device: Any = None
) -> Tensor:
    """One number everywhere, in the element type of `x` unless another one is given."""
    check_device("new_full", device)
    return full(shape, value, x.dtype if dtype is None else dtype)


@function
def new_tensor(x: Tensor, data: Any, dtype: DTypeLike | None = None, device: Any = None) -> Tensor:
    """A tensor from numbers, in the element type of `x` unless another one is given."""
    check_device("new_tensor", device)
    return Tensor(np.array(data), x.dtype if dtype is None else dtype)


@torch_names_and(*UNUSED)
def full_like(x: Tensor, value: Scalar, *, dtype: DTypeLike | None = None) -> Tensor:
    """A tensor of one number everywhere, of the shape of `x` and, unless another is given, its element type."""
    return full(x.shape, value, x.dtype if dtype is None else dtype)


@torch_names_and(*UNUSED)
@function
def zeros_like(x: Tensor, *, dtype: DTypeLike | None = None) -> Tensor:
    """A tensor of zeros, of the shape of `x` and, unless another is given, its element type."""
    return full_like(x, 0, dtype=dtype)


@torch_names_and(*UNUSED)
@function
def ones_like(x: Tensor, *, dtype: DTypeLike | None = None) -> Tensor:
    """A tensor of ones, of the shape of `x` and, unless another is given, its element type."""
    return full_like(x, 1, dtype=dtype)


empty_like = zeros_like


def generator(where: str) -> np.random.Generator:
    """The random generator of this thread.

    Raises:
        TracedValueError: while tracing, because the numbers would become constants of the model.
    """
    if is_tracing():
        raise TracedValueError(
            f"{where}: random numbers that are drawn in forward would be constants of the exported model, the same in "
            "each run; make them an input of the model, or draw them once, in __init__: self.noise = lucid.randn(...)"
        )
    return random.generator()


@torch_names_and(*UNUSED)
@function
def randn(*shape: int | Sequence[int], dtype: DTypeLike = float32) -> Tensor:
    """Standard normal random numbers; see `lucid.manual_seed`.

    Raises:
        TracedValueError: while tracing, as they would be constants of the model.
        TypeError: for an element type that is not floating-point.
    """
    return _as_reals("randn", generator("randn").standard_normal(as_shape(shape)), dtype)


@torch_names_and(*UNUSED)
@function
def rand(*shape: int | Sequence[int], dtype: DTypeLike = float32) -> Tensor:
    """Uniform random numbers from 0 to 1; see `lucid.manual_seed`.

    Raises:
        TracedValueError: while tracing, as they would be constants of the model.
        TypeError: for an element type that is not floating-point.
    """
    return _as_reals("rand", generator("rand").random(as_shape(shape)), dtype)


def _as_reals(where: str, numbers: Any, dtype: DTypeLike) -> Tensor:
    if as_dtype(dtype).kind != "float":
        raise TypeError(
            f"{where}: dtype is {as_dtype(dtype)}, expected a floating-point one; lucid.randint draws integers"
        )
    return _as_tensor(numbers, dtype)


@torch_names_and(*UNUSED)
def randn_like(x: Tensor, *, dtype: DTypeLike | None = None) -> Tensor:
    """Standard normal random numbers, of the shape of `x` and, unless another is given, its element type."""
    return randn(*x.shape, dtype=x.dtype if dtype is None else dtype)  # type: ignore[arg-type]  # sizes are known


@torch_names_and(*UNUSED)
def rand_like(x: Tensor, *, dtype: DTypeLike | None = None) -> Tensor:
    """Uniform random numbers from 0 to 1, of the shape of `x` and, unless another is given, its element type."""
    return rand(*x.shape, dtype=x.dtype if dtype is None else dtype)  # type: ignore[arg-type]  # sizes are known


@torch_names_and(*UNUSED)
def randint(low: Any = 0, high: Any = None, shape: Any = None, *, dtype: DTypeLike = int64) -> Tensor:
    """Random integers from `low` (0) to below `high`: ``randint(10, (2, 3))``, ``randint(1, 7, (2,))``.

    Raises:
        TracedValueError: while tracing, as they would be constants of the model.
        ValueError: for a `low` that is not below `high`.
    """
    if shape is None:
        low, high, shape = 0, low, high
    elif high is None:
        low, high = 0, low
    if low >= high:
        raise ValueError(f"randint: got low {low} and high {high}, expected a low below high")
    return _as_tensor(generator("randint").integers(low, high, as_shape(shape)), dtype)


@torch_names_and(*UNUSED)
def randint_like(x: Tensor, low: int, high: int | None = None, *, dtype: DTypeLike | None = None) -> Tensor:
    """Random integers from `low` (0) to below `high`, of the shape of `x` and, unless another is given, its type."""
    return randint(low, high, x.shape, dtype=x.dtype if dtype is None else dtype)


@torch_names_and(*UNUSED)
def randperm(n: int, *, dtype: DTypeLike = int64) -> Tensor:
    """The integers from 0 to n - 1 in a random order.

    Raises:
        TracedValueError: while tracing, as they would be constants of the model.
    """
    return _as_tensor(generator("randperm").permutation(np.arange(int(as_shape((n,))[0]))), dtype)


@torch_names_and(*UNUSED)
def normal(
    mean: float | Tensor, std: float | Tensor = 1.0, shape: Sequence[int] = (), *, dtype: DTypeLike = float32
) -> Tensor:
    """Normal random numbers with a mean and a standard deviation, which may be tensors that broadcast."""
    shapes = [x.shape for x in (mean, std) if isinstance(x, Tensor)] or [as_shape((shape,))]
    return randn(*broadcast("normal", *shapes), dtype=dtype) * std + mean  # type: ignore[arg-type]  # sizes are known


def _window(n: int, periodic: bool, of: Callable[[int], Array], dtype: DTypeLike) -> Tensor:
    """A symmetric window (n); a periodic one is the longer one by one without its end."""
    (n,) = map(int, as_shape((n,)))
    return _as_tensor(of(n + 1)[:-1] if periodic and n > 1 else of(n), dtype)


@torch_names_and(*UNUSED)
def hann_window(window_length: int, periodic: bool = True, *, dtype: DTypeLike = float32) -> Tensor:
    """The window (window_length) of Hann, for spectra."""
    return _window(window_length, periodic, np.hanning, dtype)


@torch_names_and(*UNUSED)
def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype: DTypeLike = float32
) -> Tensor:
    """The window (window_length) of Hamming: alpha - beta * cos."""
    return _window(window_length, periodic, lambda n: alpha + beta * (2 * np.hanning(n) - 1), dtype)


@torch_names_and(*UNUSED)
def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: DTypeLike = float32
) -> Tensor:
    """The window (window_length) of Kaiser."""
    return _window(window_length, periodic, lambda n: np.kaiser(n, beta), dtype)


@torch_names_and(*UNUSED)
def scalar_tensor(value: Scalar | Dim, *, dtype: DTypeLike | None = None) -> Tensor:
    """A number as a tensor, float32 unless an element type is given."""
    return tensor(value, float32 if dtype is None else dtype)


def is_tensor(x: object) -> bool:
    """Whether it is a tensor of Lucid."""
    return isinstance(x, Tensor)


def get_default_dtype() -> DType:
    """float32, the element type of Python's floats."""
    return float32


class _Typed(Tensor):
    """torch's names for tensors of an element type: from data, or zeros of a shape given as numbers."""

    __slots__ = ()
    _kind: DType

    def __init__(self, *data: Any) -> None:
        sizes = data and all(map(is_whole, data))
        super().__init__(np.zeros(data) if sizes else data[0] if data else [], self._kind)


class FloatTensor(_Typed):
    """A float32 tensor: of data, or of a shape: ``FloatTensor([1, 2])``, ``FloatTensor(2, 3)``."""

    __slots__, _kind = (), float32


class DoubleTensor(_Typed):
    """A float64 tensor: of data, or of a shape."""

    __slots__, _kind = (), float64


class LongTensor(_Typed):
    """An int64 tensor: of data, or of a shape."""

    __slots__, _kind = (), int64


class IntTensor(_Typed):
    """An int32 tensor: of data, or of a shape."""

    __slots__, _kind = (), int32


class BoolTensor(_Typed):
    """A tensor of booleans: of data, or of a shape."""

    __slots__, _kind = (), bool_


# torch's names of the classes of tensors, by element type; not every one is a function here.
_CLASSES = {
    "FloatTensor": float32,
    "DoubleTensor": float64,
    "HalfTensor": float16,
    "BFloat16Tensor": bfloat16,
    "CharTensor": int8,
    "ByteTensor": uint8,
    "IntTensor": int32,
    "LongTensor": int64,
    "BoolTensor": bool_,
}


@function
def type_(x: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The same numbers in an element type: a DType, its name, or torch's name or class of tensors that have it.

    Without one, torch's name of this tensor's: ``"torch.FloatTensor"`` for float32, as code compares or passes it on.

    Raises:
        TypeError: for another type.
        ValueError: for the name of tensors on a device, ``"torch.cuda.FloatTensor"``.
    """
    if dtype is None:
        return next(f"torch.{name}" for name, known in _CLASSES.items() if known == x.dtype)
    if isinstance(dtype, type) and issubclass(dtype, _Typed):
        return x.astype(dtype._kind)
    if isinstance(dtype, str) and dtype.startswith("torch."):
        *device, name = dtype.split(".")[1:]
        check_device("type", ".".join(device) or None)
        return x.astype(_CLASSES.get(name, dtype))
    return x.astype(dtype)


def _as_tensor(values: Any, dtype: DTypeLike) -> Tensor:
    return Tensor.from_array(np.asarray(values, as_dtype(dtype).numpy))
