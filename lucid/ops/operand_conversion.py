"""Operand conversion: tensors made of arrays and numbers, brought to one element type; errors for anything else."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, ParamSpec, TypeVar

import numpy as np

from lucid.core.graph.types import (
    Array,
    DType,
    Scalar,
    array_type,
    as_dtype,
    bfloat16,
    bool_,
    common_dtype,
    dtype_of_scalar,
    float16,
    float32,
    has_dtype,
)
from lucid.core.sizes.dims import Dim
from lucid.core.torch_names.argument_names import torch_names
from lucid.core.words.other_libraries import advice, shown_type, type_name
from lucid.ops.tensor.tensor import OPS, Tensor

P = ParamSpec("P")
R = TypeVar("R")


class UnreadableOperand:
    """An object in the place of a tensor that ops and NumPy cannot read, such as a quantized weight.

    Every use as a tensor is an error, raised by `refuse`.
    """

    __array_ufunc__ = None  # array + self is left to self.__radd__

    def refuse(self, use: str, error: type[Exception] = TypeError) -> NoReturn:
        """Raise an error that names the use and the remedy."""
        raise error(f"{use}: got {type(self).__name__}, expected a tensor")

    def __getattr__(self, name: str) -> Any:
        if name in _OF_TENSORS:
            self.refuse(f"weight.{name}", AttributeError)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        self.refuse("an array of a weight")

    def __iter__(self) -> NoReturn:
        self.refuse("iteration over a weight")

    def _calculate(self, *_: object) -> NoReturn:
        self.refuse("arithmetic with a weight")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _calculate
    __matmul__ = __rmatmul__ = __pow__ = __rpow__ = __neg__ = __abs__ = _calculate


_OF_TENSORS = frozenset(name for name in dir(Tensor) if not name.startswith("_")) - {"shape", "dtype"}


def check_tensors(where: str, **values: Any) -> None:
    """Raise TypeError for an argument that is neither a tensor nor an array; the message names it."""
    for name, value in values.items():
        if isinstance(value, UnreadableOperand):
            value.refuse(f"{where}: {name}")
        if not isinstance(value, (Tensor, np.ndarray)):
            raise TypeError(
                f"{where}: {name} has type {type_name(value)}, expected a tensor or an array; "
                f"{advice(value) or 'lucid.tensor(...) makes one'}"
            )


def as_tensors(where: str, args: Sequence[Any]) -> list[Tensor | None]:
    """Convert arrays and Python numbers to tensors; a number takes the element type of the other arguments.

    Arrays without axes count as `common_dtype` says; NumPy's scalars are numbers.

    Raises:
        TypeError: for anything else; the message starts with `where`.
    """
    if are_tensors(args):
        return list(args)
    if len(args) == 2 and isinstance(args[0], Tensor) and isinstance(args[1], (int, float)):  # the most frequent
        return [args[0], as_tensor(where, args[1], args[0].spec.dtype)]
    known = [a for a in args if isinstance(a, (Tensor, np.ndarray))]
    types = [a.spec if isinstance(a, Tensor) else array_type(a.dtype, a.shape) for a in known]
    partner = common_dtype(types) if types else None
    return [as_tensor(where, a, partner) if a is not None else None for a in args]


def as_tensor(where: str, value: Any, partner: Any = None) -> Tensor:
    """A tensor from a tensor, an array, or a Python number.

    Raises:
        TypeError: for anything else; the message starts with `where`.
    """
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.ndarray) or (isinstance(value, np.generic) and partner is None):
        return Tensor.from_array(np.asarray(value))
    if isinstance(value, np.generic):  # like a Python number: x / np.sqrt(3) stays float32
        value = value.item()
    if isinstance(value, (bool, int, float)):
        own = dtype_of_scalar(value)
        if partner is None or partner.kind == "bool":
            return Tensor(value, own)
        return _number(value, float32 if own.kind == "float" and partner.kind != "float" else partner)
    if isinstance(value, Dim):
        count: Tensor = OPS["size"](size=value)
        return count if partner is None else count.astype(partner)
    if isinstance(value, UnreadableOperand):
        value.refuse(where)
    raise TypeError(f"{where}: expected a tensor, an array or a number, got {shown_type(value)}")


def taking_arrays(call: Callable[P, R], others: type = np.ndarray) -> Callable[P, R]:
    """Let a function take an array as its first tensor, as ops do.

    Args:
        call: the function.
        others: what is made a tensor. `object`: all but numbers and sizes, so that there is an error for anything else.
    """

    @functools.wraps(call)
    def function(*args: Any, **kwargs: Any) -> R:
        if args and isinstance(args[0], others) and not isinstance(args[0], _OF_ANY_TYPE):
            args = as_tensor(call.__name__, args[0]), *args[1:]
        return call(*args, **kwargs)

    return function


_OF_ANY_TYPE = Tensor, int, float, np.generic, Dim  # numbers take the element type of a tensor beside them


def function_of(method: Callable[P, R]) -> Callable[P, R]:
    """A tensor's method as a function, with torch's names for its arguments."""
    return taking_arrays(torch_names(method), object)


def _number(value: Scalar, dtype: DType) -> Tensor:
    if isinstance(value, float) and dtype.kind == "float" and dtype.itemsize >= 4 and abs(value) <= dtype.largest:
        return Tensor.from_array(np.array(value, dtype.numpy))  # what Tensor() does, without its checks
    return Tensor(value, dtype)


def half_beside_number(args: Sequence[Any]) -> DType | None:
    """The half-precision type of one of two operands, if the other is a number that this type may not hold.

    Such a number is a tensor without axes of another type, or a Python number that rounding would change by more than
    a tenth, such as 1e-8 and 70000 in float16.
    """
    if len(args) != 2:
        return None
    x, y = args
    if isinstance(x, Tensor) and x.spec.dtype.itemsize > 2:  # most calls
        return _half_of(y, x) if isinstance(y, (Tensor, np.ndarray)) else None
    return _half_of(x, y) or _half_of(y, x)


def _half_of(array: Any, number: Any) -> DType | None:
    if isinstance(array, Tensor):
        half = array.spec.dtype
    elif isinstance(array, np.ndarray) and array.dtype in (float16.numpy, bfloat16.numpy):
        half = as_dtype(array.dtype)
    else:
        return None
    if half is not float16 and half is not bfloat16:
        return None
    if isinstance(number, (Tensor, np.ndarray)):
        other = number.spec.dtype.numpy if isinstance(number, Tensor) else number.dtype
        lost = array.ndim and not number.ndim and other not in (half.numpy, bool_.numpy)
    else:
        lost = isinstance(number, (int, float, np.number)) and _loses(number, half)
    return half if lost else None


def _loses(number: Any, half: DType) -> bool:
    """Whether a number that float32 holds moves by more than a tenth when it is rounded to half precision."""
    size = abs(number)
    if _SURELY_HELD <= size <= half.largest or not 0 < size <= float32.largest:
        return False
    with np.errstate(all="ignore"):
        return bool(abs(float(np.asarray(size).astype(half.numpy)) - size) > 0.1 * size)


_SURELY_HELD = 1e-6  # to a few percent, by both types


def are_tensors(args: Sequence[Any]) -> bool:
    """Whether all are tensors."""
    for value in args:  # noqa: SIM110  # runs in every call: `all` of a generator takes three times as long
        if not isinstance(value, Tensor):
            return False
    return True


def arrays_as_tensors(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call, with tensors that share their memory in the places of arrays of Lucid's types."""
    return tuple(map(_tensor_of, args)), {name: _tensor_of(value) for name, value in kwargs.items()}


def _tensor_of(value: Any) -> Any:
    return Tensor.from_array(value) if isinstance(value, np.ndarray) and has_dtype(value) else value


def arrays_of(tensors: Sequence[Tensor | None]) -> list[Array | None] | None:
    """The arrays of tensors, None for None; None instead of a list if a tensor is traced."""
    arrays: list[Array | None] = []
    for tensor in tensors:
        if tensor is None:
            arrays.append(None)
        elif tensor.is_traced:
            return None
        else:
            arrays.append(tensor._array)
    return arrays


def known_alike(x: Tensor, y: Tensor) -> list[Array]:
    """The arrays of two known tensors in the type in which they are compared; half precision as float32."""
    common = common_dtype([x.spec, y.spec])
    wide = common if common.itemsize > 2 or common.kind != "float" else float32
    return [each.numpy().astype(common.numpy).astype(wide.numpy) for each in (x, y)]


def array_operands(args: Sequence[Any]) -> tuple[list[Array | None], list[int | None]] | None:
    """The arrays of known tensors and the ids of their types, None for None; None if there is any other argument.

    The types of known tensors are cached objects, so the `id` of a type that is kept alive identifies it.
    """
    arrays: list[Array | None] = []
    type_ids: list[int | None] = []
    for argument in args:
        if isinstance(argument, Tensor) and argument._array is not None:
            arrays.append(argument._array)
            type_ids.append(id(argument.spec))
        elif argument is None:
            arrays.append(None)
            type_ids.append(None)
        else:
            return None
    return arrays, type_ids


def promoted(tensors: Sequence[Tensor | None], which: slice) -> Sequence[Tensor | None]:
    """The tensors, those in the slice brought to one element type."""
    types = [t.spec for t in tensors[which] if t is not None]
    common = common_dtype(types)
    if [type_.dtype for type_ in types].count(common) == len(types):
        return tensors
    changed = list(tensors)
    changed[which] = [t if t is None else t.astype(common) for t in tensors[which]]
    return changed
