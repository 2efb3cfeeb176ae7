"""`Tensor`: an array, or a reference to a value of a graph that is being traced.

Methods call the ops by name through `OPS`, which the ops fill in, so this module imports no op, and every op works on
both kinds of tensor. It is in the package `lucid.ops`, so that importing it loads the ops: Python imports a package
before its modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias, TypeVar, Union, overload

from lucid.core.graph.types import (
    Array,
    DTypeLike,
    Scalar,
    TensorType,
    array_type,
    as_dtype,
    bool_,
    convert,
    float32,
)
from lucid.core.graph.values import Constant, Origin, Value
from lucid.core.sizes.dims import Dim, Size
from lucid.core.torch_names.argument_names import (
    NO_AXES,
    refuse_former_order,
    torch_names,
    torch_names_and,
    torch_names_of_reduction,
)
from lucid.core.torch_names.in_place import functional_line
from lucid.core.torch_names.missing_names import why_absent
from lucid.core.words.package_names import unknown
from lucid.core.words.user_code import calling_line
from lucid.ops.tensor.function_methods import FunctionMethods
from lucid.ops.tensor.moving_methods import MovingMethods, unpack
from lucid.ops.tensor.value import OPS as OPS
from lucid.ops.tensor.value import Axes as Axes
from lucid.ops.tensor.value import Flag, Number, TensorValue, Whole, array_and_dtype
from lucid.ops.tensor.value import TracedValueError as TracedValueError

TensorLike: TypeAlias = Union["Tensor", Array, Scalar, Dim]
M = TypeVar("M", bound=Callable[..., Any])

UNUSED = ("device", "requires_grad", "pin_memory", "layout", "memory_format")  # of torch's arguments


def _call(name: str, *arguments: Any, **attributes: Any) -> Tensor:
    result: Tensor = OPS[name](*arguments, **attributes)
    return result


def _named(name: str, doc: str | None, method: M) -> M:
    method.__name__, method.__qualname__, method.__doc__ = name, f"Tensor.{name}", doc
    return method


def _unary(name: str, doc: str | None = None, op: str | None = None, *operands: Any) -> Callable[[Tensor], Tensor]:
    """A method that calls an op, by default the one of its name, on the tensor and perhaps known operands."""
    called = op or name

    def method(self: Tensor) -> Tensor:
        result: Tensor = OPS[called](self, *operands)
        return result

    return _named(name, doc, method)


def _binary(name: str, doc: str | None = None, op: str | None = None) -> Callable[[Tensor, Any], Tensor]:
    """A method that calls an op on the tensor and another operand."""
    called = op or name

    def method(self: Tensor, other: Any) -> Tensor:
        result: Tensor = OPS[called](self, other)
        return result

    return _named(name, doc, method)


def _reflected(name: str, op: str) -> Callable[[Tensor, Any], Tensor]:
    """A method of Python's operators that calls an op whose first operand is not a tensor."""

    def method(self: Tensor, other: Any) -> Tensor:
        result: Tensor = OPS[op](other, self)
        return result

    return _named(name, None, method)


def _logical(name: str) -> Callable[[Tensor, Any], Tensor]:
    """`&`, `|` and `^`: logical where both are booleans, else of the bits."""

    def method(self: Tensor, other: Any) -> Tensor:
        truths = self.dtype is bool_ and (
            other.dtype is bool_ if isinstance(other, TensorValue) else isinstance(other, bool)
        )
        return _call(f"{'logical' if truths else 'bitwise'}_{name}", self, other)

    return _named(f"__{name}__", None, method)


def axes(axis: Axes) -> tuple[int, ...] | None:
    """Axes as reductions take them."""
    return axis if axis is None else tuple(axis) if isinstance(axis, Sequence) else (axis,)


def axes_or_all(axis: Axes) -> tuple[int, ...] | None:
    """Axes of a reduction for which no axes are all of them, as in torch, unless `axis=` says so, as in NumPy."""
    return axes(axis) if axis is NO_AXES or not isinstance(axis, Sequence) or len(axis) else None


def _spread(x: Tensor, name: str, axis: Axes, unbiased: bool, keepdims: bool, correction: float) -> Tensor:
    """`var` or `std`. A flag in the place of the axes, alone, is `unbiased`, as in torch's ``x.std(False)``."""
    if isinstance(axis, bool) and unbiased is True and not keepdims:
        return _call(name, x, None, correction if axis else 0, keepdims)
    return _call(name, x, axes_or_all(axis), correction if unbiased else 0, keepdims)


class Tensor(FunctionMethods, MovingMethods["Tensor"]):
    """An n-dimensional array that ops compute with, eagerly or under `lucid.trace`.

    Args:
        data: an array, a nested list of numbers, or a float; alone, integers are sizes, as in torch: ``Tensor(2, 3)``.
        dtype: the element type; by default that of the data (Python floats become float32, integers int64).

    Raises:
        OverflowError: for a number that the element type cannot hold.
        TypeError: for more than data and an element type, unless all are sizes.
        ValueError: for a size below 0.
    """

    __slots__ = ()
    __hash__ = object.__hash__

    def __init__(self, data: Any = 0, *dtype_or_sizes: Any, dtype: DTypeLike | None = None) -> None:
        array, kind = array_and_dtype(data, dtype_or_sizes, dtype)
        self._set(convert(array, kind, "tensor"), array_type(kind.numpy, array.shape))

    @staticmethod
    def from_array(array: Array, origin: Origin | None = None) -> Tensor:
        """Wrap an array without a copy."""
        return Tensor.of_type(array, array_type(array.dtype, array.shape), origin)

    @staticmethod
    def of_type(array: Array, type_: TensorType, origin: Origin | None = None) -> Tensor:
        """Wrap an array whose type is known: an object that `array_type` gave."""
        tensor = _new(Tensor)
        tensor._array, tensor.spec, tensor._value, tensor._origin = array, type_, None, origin
        return tensor

    @staticmethod
    def from_value(value: Value) -> Tensor:
        """The tensor for a value of a graph; for a constant, a known tensor."""
        if isinstance(value, Constant):
            return Tensor.from_array(value.array, value.origin)
        tensor = _new(Tensor)
        tensor._set(None, value.type, value)
        return tensor

    def named_after(self, whole: Tensor, suffix: str) -> Tensor:
        """This tensor, which in an exported model is named after another one, with a suffix."""
        if self.is_traced or whole.is_traced:
            return self
        return Tensor.from_array(self.numpy(), Origin(whole.numpy(), suffix, whole._origin))

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Tensor:
        return _call("getitem", self, index)

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        line = (
            functional_line(calling_line())
            or "x = x.at[index].set(value), or for a mask x = lucid.where(mask, value, x)"
        )
        raise TypeError(f"x[...] = value: tensors are never changed in place; write {line}")

    if not TYPE_CHECKING:  # a type checker knows the attributes that there are

        def __getattr__(self, name: str) -> NoReturn:
            known = [] if name.startswith("__") else dir(Tensor)  # np.asarray(x) asks for protocols: no message
            raise unknown("'Tensor' object", name, known, why_absent("Tensor", name, known) if known else "")

    # Python's operators -------------------------------------------------------------------------------------------

    __add__, __radd__ = _binary("__add__", op="add"), _reflected("__radd__", "add")
    __sub__, __rsub__ = _binary("__sub__", op="sub"), _reflected("__rsub__", "sub")
    __mul__, __rmul__ = _binary("__mul__", op="mul"), _reflected("__rmul__", "mul")
    __truediv__, __rtruediv__ = _binary("__truediv__", op="div"), _reflected("__rtruediv__", "div")
    __floordiv__, __rfloordiv__ = _binary("__floordiv__", op="floor_div"), _reflected("__rfloordiv__", "floor_div")
    __mod__, __rmod__ = _binary("__mod__", op="mod"), _reflected("__rmod__", "mod")
    __pow__, __rpow__ = _binary("__pow__", op="pow"), _reflected("__rpow__", "pow")
    __matmul__, __rmatmul__ = _binary("__matmul__", op="matmul"), _reflected("__rmatmul__", "matmul")
    __pos__, __neg__, __abs__ = (
        _unary("__pos__", op="positive"),
        _unary("__neg__", op="neg"),
        _unary("__abs__", op="abs"),
    )
    __and__, __or__, __xor__ = _logical("and"), _logical("or"), _logical("xor")
    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__
    __lshift__, __rlshift__ = (
        _binary("__lshift__", op="bitwise_left_shift"),
        _reflected("__rlshift__", "bitwise_left_shift"),
    )
    __rshift__, __rrshift__ = (
        _binary("__rshift__", op="bitwise_right_shift"),
        _reflected("__rrshift__", "bitwise_right_shift"),
    )
    __eq__ = _binary("__eq__", op="equal")  # type: ignore[assignment]  # elementwise, as in NumPy and torch
    __ne__ = _binary("__ne__", op="not_equal")  # type: ignore[assignment]
    __lt__, __le__ = _binary("__lt__", op="less"), _binary("__le__", op="less_equal")
    __gt__, __ge__ = _binary("__gt__", op="greater"), _binary("__ge__", op="greater_equal")

    def __invert__(self) -> Tensor:
        return _call("logical_not" if self.dtype is bool_ else "bitwise_not", self)

    # Element by element -------------------------------------------------------------------------------------------

    exp = _unary("exp", "e to the power of each element.")
    log = _unary("log", "Natural logarithm.")
    expm1 = _unary("expm1", "exp(x) - 1, accurate near 0.")
    log1p = _unary("log1p", "log(1 + x), accurate near 0.")
    log2 = _unary("log2", "The logarithm to base 2.")
    sqrt = _unary("sqrt", "Square root.")
    rsqrt = _unary("rsqrt", "1 / sqrt(x).")
    reciprocal = _unary("reciprocal", "1 / x.")
    square = _unary("square", "x * x.")
    tanh = _unary("tanh", "Hyperbolic tangent.")
    sigmoid = _unary("sigmoid", "1 / (1 + exp(-x)).")
    relu = _unary("relu", "max(x, 0).")
    cos = _unary("cos", "Cosine.")
    sin = _unary("sin", "Sine.")
    tan = _unary("tan", "Tangent.")
    asin = _unary("asin", "The angle of a sine; beyond -1 and 1 NaN.")
    acos = _unary("acos", "The angle of a cosine; beyond -1 and 1 NaN.")
    atan = _unary("atan", "The angle of a tangent.")
    sinh = _unary("sinh", "Hyperbolic sine.")
    cosh = _unary("cosh", "Hyperbolic cosine.")
    asinh = _unary("asinh", "The number of a hyperbolic sine.")
    acosh = _unary("acosh", "The number, 0 or more, of a hyperbolic cosine; below 1 NaN.")
    atanh = _unary("atanh", "The number of a hyperbolic tangent; beyond -1 and 1 NaN.")
    erf = _unary("erf", "The error function.")
    abs = _unary("abs", "The absolute value.")
    neg = _unary("neg", "Each element with the other sign.")
    sign = _unary("sign", "-1, 0 or 1.")
    floor = _unary("floor", "The largest whole number that is not greater.")
    ceil = _unary("ceil", "The smallest whole number that is not less.")
    round = torch_names(_unary("round", "The nearest whole number; halves go to the even one."))
    isnan = _unary("isnan", "Whether each element is not a number.")
    isinf = _unary("isinf", "Whether each element is infinite.")
    isfinite = _unary("isfinite", "Whether each element is a finite number.")
    logical_not = _unary("logical_not", "Whether each element is false.")
    bitwise_not = _unary("bitwise_not", "Each bit of integers inverted; of booleans, whether each is false.")

    mul = _binary("mul", "The product with another tensor, elementwise.")
    eq = _binary("eq", "Whether elements are equal.", "equal")
    ne = not_equal = _binary("ne", "Whether elements differ.", "not_equal")
    lt = less = _binary("lt", "Whether elements are less than others.", "less")
    le = less_equal = _binary("le", "Whether elements are at most others.", "less_equal")
    gt = greater = _binary("gt", "Whether elements are greater than others.", "greater")
    ge = greater_equal = _binary("ge", "Whether elements are at least others.", "greater_equal")
    logical_and = _binary("logical_and", "Whether both elements are true.")
    logical_or = _binary("logical_or", "Whether one of the elements is true.")
    logical_xor = _binary("logical_xor", "Whether exactly one of the elements is true.")
    bitwise_and = _binary("bitwise_and", "The bits that both integers have; of booleans, whether both are true.")
    bitwise_or = _binary("bitwise_or", "The bits that one of the integers has; of booleans, whether one is true.")
    bitwise_xor = _binary(
        "bitwise_xor", "The bits that one integer has alone; of booleans, whether exactly one is true."
    )

    def add(self, other: Any, *former: Any, alpha: Number = 1) -> Tensor:
        """This tensor plus `alpha` times another."""
        if former:
            refuse_former_order("add", former)
        return _call("add", self, other if alpha == 1 else _call("scaled", self, other, alpha))

    def sub(self, other: Any, *former: Any, alpha: Number = 1) -> Tensor:
        """This tensor minus `alpha` times another."""
        if former:
            refuse_former_order("sub", former)
        return _call("sub", self, other if alpha == 1 else _call("scaled", self, other, alpha))

    def div(self, other: Any, *, rounding_mode: str | None = None) -> Tensor:
        """The quotient; `rounding_mode` "floor" or "trunc" rounds it to a whole number."""
        return _call("rounded_div", self, other, rounding_mode)

    def pow(self, exponent: Any) -> Tensor:
        """Each element to a power."""
        return _call("pow", self, exponent)

    def clamp(self, min: Any = None, max: Any = None) -> Tensor:
        """Each element brought into a range; bounds are numbers or tensors."""
        return _call("clamp", self, min, max)

    clip = clamp

    def clamp_min(self, min: Any) -> Tensor:
        """The greater of each element and a bound."""
        return _call("clip", self, min)

    def clamp_max(self, max: Any) -> Tensor:
        """The lesser of each element and a bound."""
        return _call("clip", self, None, max)

    def where(self, condition: TensorLike, other: TensorLike) -> Tensor:
        """This tensor where the condition is true, else the other."""
        return _call("where", condition, self, other)

    @torch_names
    def matmul(self, other: Any) -> Tensor:
        """The matrix product, ``x @ other``."""
        return _call("matmul", self, other)

    mm = bmm = matmul

    @torch_names
    def outer(self, other: Any) -> Tensor:
        """The products of all elements of one vector with all of another."""
        return _call("outer", self, other)

    # Element type and device --------------------------------------------------------------------------------------

    def astype(self, dtype: DTypeLike) -> Tensor:
        """The same numbers in another element type."""
        type_ = as_dtype(dtype)
        return self if type_ == self.dtype else _call("cast", self, dtype=type_)

    def _as(self, dtype: DTypeLike | None) -> Tensor:
        """The same numbers in another element type, if one is given."""
        return self if dtype is None else _call("to", self, dtype)

    def to(self, *target: Any, **options: Any) -> Tensor:
        """The same numbers in the element type of the target: a type, or a tensor that has it. The CPU changes nothing.

        Raises:
            ValueError: for another device.
        """
        return _call("to", self, *target, **options)

    float = _unary("float", "The same numbers in float32.", "to", "float32")
    double = _unary("double", "The same numbers in float64.", "to", "float64")
    half = _unary("half", "The same numbers in float16.", "to", "float16")
    bfloat16 = _unary("bfloat16", "The same numbers in bfloat16.", "to", "bfloat16")
    long = _unary("long", "The same numbers in int64; fractions are cut off.", "to", "int64")
    int = _unary("int", "The same numbers in int32; fractions are cut off.", "to", "int32")
    bool = _unary("bool", "Whether each element is not 0.", "to", "bool")

    @torch_names_and("memory_format")
    def clone(self) -> Tensor:
        """The same values in a tensor of its own."""
        copy = _new(Tensor)
        copy._set(self._array, self.spec, self._value, self._origin)
        return copy

    def normal_(self, mean: Number = 0.0, std: Number = 1.0) -> Self:
        """Replace the values of this known tensor by normal random numbers: initial values, as in `nn.init`."""
        return self._initialise(_call("randn", *self.shape) * std + mean)

    def uniform_(self, low: Number = 0.0, high: Number = 1.0) -> Self:
        """Replace the values of this known tensor by random numbers between two bounds, as in `nn.init`."""
        return self._initialise(_call("rand", *self.shape) * (high - low) + low)

    def _initialise(self, values: Tensor) -> Self:
        if type(self) is Tensor and self.numpy().base is not None:
            why = "this tensor is a part or view of another one, which would not change"
            raise TypeError(f"normal_, uniform_: {why}; write x = x.at[index].set(lucid.randn(...))")
        self._set(convert(values.numpy(), self.dtype, "tensor"), self.spec)
        return self

    # Creation: the functions of the same names in `lucid`, and tensors like this one ------------------------------

    @staticmethod
    @torch_names_and(*UNUSED)
    def zeros(*shape: Size | Sequence[Size], dtype: DTypeLike = float32) -> Tensor:
        """A tensor of zeros."""
        return _call("zeros", *shape, dtype=dtype)

    @staticmethod
    @torch_names_and(*UNUSED)
    def ones(*shape: Size | Sequence[Size], dtype: DTypeLike = float32) -> Tensor:
        """A tensor of ones."""
        return _call("ones", *shape, dtype=dtype)

    @staticmethod
    @torch_names_and(*UNUSED)
    def empty(*shape: Size | Sequence[Size], dtype: DTypeLike = float32) -> Tensor:
        """A tensor whose elements are yet to be set."""
        return _call("empty", *shape, dtype=dtype)

    @staticmethod
    @torch_names_and(*UNUSED)
    def full(shape: Size | Sequence[Size], value: Scalar | Tensor, dtype: DTypeLike | None = None) -> Tensor:
        """A tensor of one number everywhere."""
        return _call("full", shape, value, dtype)

    @staticmethod
    @torch_names_and(*UNUSED)
    def arange(start: Size, stop: Size | None = None, step: Whole = 1) -> Tensor:
        """The int64 numbers from start up to, not including, stop."""
        return _call("arange", start, stop, step)

    @staticmethod
    @torch_names_and(*UNUSED)
    def eye(rows: Whole, columns: Whole | None = None, dtype: DTypeLike = float32) -> Tensor:
        """Ones on the diagonal of a matrix."""
        return _call("eye", rows, columns, dtype)

    @staticmethod
    @torch_names_and(*UNUSED)
    def randn(*shape: Whole | Sequence[Whole], dtype: DTypeLike = float32) -> Tensor:
        """Standard normal random numbers."""
        return _call("randn", *shape, dtype=dtype)

    @staticmethod
    @torch_names_and(*UNUSED)
    def rand(*shape: Whole | Sequence[Whole], dtype: DTypeLike = float32) -> Tensor:
        """Uniform random numbers from 0 to 1."""
        return _call("rand", *shape, dtype=dtype)

    @torch_names_and(*UNUSED)
    def new_zeros(self, *shape: Any, dtype: Any = None, device: Any = None) -> Tensor:
        """Zeros of another shape, in this tensor's element type."""
        return _call("new_full", self, unpack(shape), 0, dtype, device)

    new_empty = new_zeros

    @torch_names_and(*UNUSED)
    def new_ones(self, *shape: Any, dtype: Any = None, device: Any = None) -> Tensor:
        """Ones of another shape, in this tensor's element type."""
        return _call("new_full", self, unpack(shape), 1, dtype, device)

    @torch_names_and(*UNUSED)
    def new_full(self, shape: Any, value: Any, dtype: Any = None, device: Any = None) -> Tensor:
        """One number everywhere, in another shape and this tensor's element type."""
        return _call("new_full", self, shape, value, dtype, device)

    @torch_names_and(*UNUSED)
    def new_tensor(self, data: Any, dtype: Any = None, device: Any = None) -> Tensor:
        """A tensor from numbers, in this tensor's element type."""
        return _call("new_tensor", self, data, dtype, device)

    # Transposes ---------------------------------------------------------------------------------------------------

    @property
    def mT(self) -> Tensor:
        """The last two axes exchanged."""
        return self.transpose(-2, -1).named_after(self, ".T")

    @property
    def T(self) -> Tensor:
        """All axes in reverse order."""
        return self.permute(*reversed(range(self.ndim))).named_after(self, ".T")

    t = _unary("t", "A matrix transposed.", "matrix_transpose")

    # Along axes ---------------------------------------------------------------------------------------------------

    @torch_names_of_reduction
    def sum(self, axis: Axes = None, keepdims: Flag = False, *, dtype: Any = None) -> Tensor:
        """Sum over axes, all of them by default; that of integers and booleans is int64, unless `dtype` is given."""
        return _call("sum", self._as(dtype), axis=axes_or_all(axis), keepdims=keepdims)._as(dtype)

    @torch_names
    def prod(self, axis: Axes = None, keepdims: Flag = False, *, dtype: Any = None) -> Tensor:
        """Product over axes, all of them by default; of integers and booleans it is int64, unless `dtype` is given."""
        return _call("prod", self._as(dtype), axis=axes(axis), keepdims=keepdims)._as(dtype)

    @torch_names
    def cumsum(self, axis: Whole, dtype: Any = None) -> Tensor:
        """Running sum along an axis; that of integers and booleans is int64, unless `dtype` is given."""
        return _call("cumsum", self._as(dtype), axis=axis)._as(dtype)

    @torch_names_of_reduction
    def mean(self, axis: Axes = None, keepdims: Flag = False, *, dtype: Any = None) -> Tensor:
        """Mean over axes, all of them by default; of this tensor in another element type if `dtype` is given."""
        return _call("mean", self._as(dtype), axis=axes_or_all(axis), keepdims=keepdims)

    @overload
    def max(self) -> Tensor: ...
    @overload
    def max(self, dim: Whole, keepdim: Flag = False) -> Any: ...
    @overload
    def max(self, dim: Tensor, /) -> Tensor: ...
    @overload
    def max(self, *, other: Any) -> Tensor: ...
    @overload
    def max(self, *, axis: Axes = None, keepdims: Flag = False) -> Tensor: ...
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
        return _call("extreme", self, "max", dim, keepdim, other, axes(axis), keepdims)

    @overload
    def min(self) -> Tensor: ...
    @overload
    def min(self, dim: Whole, keepdim: Flag = False) -> Any: ...
    @overload
    def min(self, dim: Tensor, /) -> Tensor: ...
    @overload
    def min(self, *, other: Any) -> Tensor: ...
    @overload
    def min(self, *, axis: Axes = None, keepdims: Flag = False) -> Tensor: ...
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
        return _call("extreme", self, "min", dim, keepdim, other, axes(axis), keepdims)

    @torch_names_of_reduction
    def amax(self, axis: Axes = None, keepdims: Flag = False) -> Tensor:
        """Maximum over axes; all of them by default."""
        return _call("max", self, axis=axes_or_all(axis), keepdims=keepdims)

    @torch_names_of_reduction
    def amin(self, axis: Axes = None, keepdims: Flag = False) -> Tensor:
        """Minimum over axes; all of them by default."""
        return _call("min", self, axis=axes_or_all(axis), keepdims=keepdims)

    @torch_names
    def argmax(self, axis: Whole | None = None, keepdims: Flag = False) -> Tensor:
        """The int64 index of the first maximum along an axis; without one, in the flattened tensor."""
        return _call("place_of_extreme", self, "argmax", axis, keepdims)

    @torch_names
    def argmin(self, axis: Whole | None = None, keepdims: Flag = False) -> Tensor:
        """The int64 index of the first minimum along an axis; without one, in the flattened tensor."""
        return _call("place_of_extreme", self, "argmin", axis, keepdims)

    @torch_names
    def any(self, axis: Axes = None, keepdims: Flag = False) -> Tensor:
        """Whether any element is true."""
        return _call("any", self, axis=axes(axis), keepdims=keepdims)

    @torch_names
    def all(self, axis: Axes = None, keepdims: Flag = False) -> Tensor:
        """Whether all elements are true."""
        return _call("all", self, axis=axes(axis), keepdims=keepdims)

    @torch_names_of_reduction
    def var(
        self, axis: Axes = None, unbiased: Flag = True, keepdims: Flag = False, *, correction: Number = 1
    ) -> Tensor:
        """Variance over axes: squared distances from the mean, summed, by their number less `correction` (1).

        A flag in the place of the axes is `unbiased`, as in torch: ``x.var(False)``.
        """
        return _spread(self, "var", axis, unbiased, keepdims, correction)

    @torch_names_of_reduction
    def std(
        self, axis: Axes = None, unbiased: Flag = True, keepdims: Flag = False, *, correction: Number = 1
    ) -> Tensor:
        """Standard deviation over axes: the root of the variance, with its arguments."""
        return _spread(self, "std", axis, unbiased, keepdims, correction)

    @torch_names_of_reduction
    def norm(self, p: Any = "fro", axis: Axes = None, keepdims: Flag = False, dtype: Any = None) -> Tensor:
        """The p-norm over axes; `p` may be infinity; of this tensor in another element type if `dtype` is given."""
        return _call("norm", self._as(dtype), p, axes_or_all(axis), keepdims)

    @torch_names
    def softmax(self, axis: Whole = -1, *, dtype: Any = None) -> Tensor:
        """exp(x) normalised to sum 1 along an axis; of this tensor in another element type if `dtype` is given."""
        return _call("softmax", self._as(dtype), axis=axis)

    def log_softmax(self, dim: Whole = -1, *, dtype: Any = None) -> Tensor:
        """The logarithm of softmax along an axis; of this tensor in another element type if `dtype` is given."""
        return _call("log_softmax", self._as(dtype), axis=dim)


_new = Tensor.__new__
