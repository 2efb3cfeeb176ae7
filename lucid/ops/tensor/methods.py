"""Methods of tensors that only call an op, element by element: `Tensor` inherits them.

They call the ops by name through `OPS`, which the ops fill in, so this module imports no op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NoReturn, Self, TypeAlias, TypeVar

from lucid.core.graph.types import TensorType
from lucid.core.torch_names.argument_names import (
    CPU,
    NO_AXES,
    Device,
    refuse_former_order,
    torch_names,
    torch_names_and,
)
from lucid.core.words.other_libraries import misplaced_tensor

_UNUSED = ("requires_grad", "layout", "pin_memory")  # of torch's arguments

OPS: dict[str, Callable[..., Any]] = {}

Whole: TypeAlias = int  # methods named `int`, `float` and `bool` hide the types in the class
Flag: TypeAlias = bool
Number: TypeAlias = float
Axes: TypeAlias = int | Sequence[int] | None


def unpack(values: Sequence[Any]) -> tuple[Any, ...]:
    """Accept both ``f(2, 3)`` and ``f((2, 3))``."""
    return tuple(values[0]) if len(values) == 1 and isinstance(values[0], (tuple, list)) else tuple(values)


T = TypeVar(
    "T", bound="ElementMethods[Any]"
)  # a tensor: what the methods of a subclass of it, such as a parameter, give as well


class ElementMethods(Generic[T]):
    """Methods that keep the shape, make tensors like this one, or multiply."""

    __slots__ = ()
    type: TensorType  # which the tensor has

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        """torch calls this where one of its functions is given a tensor of Lucid."""
        raise TypeError(misplaced_tensor("torch", function.__name__))

    def _op(self, name: str, *arguments: Any, **attributes: Any) -> T:
        result: T = OPS[name](self, *arguments, **attributes)
        return result

    def _as(self, dtype: Any) -> Any:
        """The same numbers in another element type, if one is given."""
        return self if dtype is None else OPS["to"](self, dtype)

    # Element type and size ----------------------------------------------------------------------------------------

    def to(self, *target: Any, **options: Any) -> T:
        """The same numbers in the element type of the target: a type, or a tensor that has it. The CPU changes nothing.

        Raises:
            ValueError: for another device.
        """
        return self._op("to", *target, **options)

    def type_as(self, other: Any) -> T:
        """The same numbers in the element type of another tensor."""
        return self._op("to", other)

    def float(self) -> T:
        """The same numbers in float32."""
        return self._op("to", "float32")

    def double(self) -> T:
        """The same numbers in float64."""
        return self._op("to", "float64")

    def half(self) -> T:
        """The same numbers in float16."""
        return self._op("to", "float16")

    def bfloat16(self) -> T:
        """The same numbers in bfloat16."""
        return self._op("to", "bfloat16")

    def long(self) -> T:
        """The same numbers in int64; fractions are cut off."""
        return self._op("to", "int64")

    def int(self) -> T:
        """The same numbers in int32; fractions are cut off."""
        return self._op("to", "int32")

    def bool(self) -> T:
        """Whether each element is not 0."""
        return self._op("to", "bool")

    @property
    def device(self) -> Device:
        """The CPU, for code that makes other tensors there: ``device=x.device``."""
        return CPU

    def cpu(self) -> Self:
        """This tensor: there are no other devices."""
        return self

    @torch_names_and("memory_format")
    def contiguous(self) -> Self:
        """This tensor: how it lies in memory is not part of a model."""
        return self

    @torch_names_and("memory_format")
    def clone(self) -> Self:
        """This tensor: tensors are never changed in place, so a copy is not needed."""
        return self

    def detach(self) -> Self:
        """This tensor: it has no gradient."""
        return self

    def dim(self) -> Whole:
        """The number of axes."""
        count: Whole = OPS["ndim"](self)
        return count

    def numel(self) -> Any:
        """The number of elements, which may be symbolic while tracing."""
        return OPS["numel"](self)

    @torch_names_and(*_UNUSED)
    def new_zeros(self, *shape: Any, dtype: Any = None, device: Any = None) -> T:
        """Zeros of another shape, in this tensor's element type."""
        return self._op("new_full", unpack(shape), 0, dtype, device)

    @torch_names_and(*_UNUSED)
    def new_ones(self, *shape: Any, dtype: Any = None, device: Any = None) -> T:
        """Ones of another shape, in this tensor's element type."""
        return self._op("new_full", unpack(shape), 1, dtype, device)

    new_empty = new_zeros

    @torch_names_and(*_UNUSED)
    def new_full(self, shape: Any, value: Any, dtype: Any = None, device: Any = None) -> T:
        """One number everywhere, in another shape and this tensor's element type."""
        return self._op("new_full", shape, value, dtype, device)

    @torch_names_and(*_UNUSED)
    def new_tensor(self, data: Any, dtype: Any = None, device: Any = None) -> T:
        """A tensor from numbers, in this tensor's element type."""
        return self._op("new_tensor", data, dtype, device)

    # Elementwise --------------------------------------------------------------------------------------------------

    def add(self, other: Any, *former: Any, alpha: Number = 1) -> T:
        """This tensor plus `alpha` times another."""
        if former:
            refuse_former_order("add", former)
        return self._op("add", other if alpha == 1 else self._op("scaled", other, alpha))

    def sub(self, other: Any, *former: Any, alpha: Number = 1) -> T:
        """This tensor minus `alpha` times another."""
        if former:
            refuse_former_order("sub", former)
        return self._op("sub", other if alpha == 1 else self._op("scaled", other, alpha))

    def mul(self, other: Any) -> T:
        """The product with another tensor, elementwise."""
        return self._op("mul", other)

    def div(self, other: Any, *, rounding_mode: str | None = None) -> T:
        """The quotient; `rounding_mode` "floor" or "trunc" rounds it to a whole number."""
        return self._op("rounded_div", other, rounding_mode)

    def pow(self, exponent: Any) -> T:
        """Each element to a power."""
        return self._op("pow", exponent)

    def eq(self, other: Any) -> T:
        """Whether elements are equal."""
        return self._op("equal", other)

    def ne(self, other: Any) -> T:
        """Whether elements differ."""
        return self._op("not_equal", other)

    def lt(self, other: Any) -> T:
        """Whether elements are less than others."""
        return self._op("less", other)

    def le(self, other: Any) -> T:
        """Whether elements are at most others."""
        return self._op("less_equal", other)

    def gt(self, other: Any) -> T:
        """Whether elements are greater than others."""
        return self._op("greater", other)

    def ge(self, other: Any) -> T:
        """Whether elements are at least others."""
        return self._op("greater_equal", other)

    def logical_not(self) -> T:
        """Whether each element is false."""
        return self._op("logical_not")

    def logical_and(self, other: Any) -> T:
        """Whether both elements are true."""
        return self._op("logical_and", other)

    def logical_or(self, other: Any) -> T:
        """Whether one of the elements is true."""
        return self._op("logical_or", other)

    def logical_xor(self, other: Any) -> T:
        """Whether exactly one of the elements is true."""
        return self._op("logical_xor", other)

    greater, greater_equal, less, less_equal, not_equal = gt, ge, lt, le, ne

    def exp(self) -> T:
        """e to the power of each element."""
        return self._op("exp")

    def log(self) -> T:
        """Natural logarithm."""
        return self._op("log")

    def sqrt(self) -> T:
        """Square root."""
        return self._op("sqrt")

    def tanh(self) -> T:
        """Hyperbolic tangent."""
        return self._op("tanh")

    def sigmoid(self) -> T:
        """1 / (1 + exp(-x))."""
        return self._op("sigmoid")

    def cos(self) -> T:
        """Cosine."""
        return self._op("cos")

    def sin(self) -> T:
        """Sine."""
        return self._op("sin")

    def erf(self) -> T:
        """The error function."""
        return self._op("erf")

    def abs(self) -> T:
        """The absolute value."""
        return self._op("abs")

    def neg(self) -> T:
        """Each element with the other sign."""
        return self._op("neg")

    def sign(self) -> T:
        """-1, 0 or 1."""
        return self._op("sign")

    def floor(self) -> T:
        """The largest whole number that is not greater."""
        return self._op("floor")

    def ceil(self) -> T:
        """The smallest whole number that is not less."""
        return self._op("ceil")

    @torch_names
    def round(self) -> T:
        """The nearest whole number; halves go to the even one."""
        return self._op("round")

    def reciprocal(self) -> T:
        """1 / x."""
        return self._op("reciprocal")

    def rsqrt(self) -> T:
        """1 / sqrt(x)."""
        return self._op("rsqrt")

    def square(self) -> T:
        """x * x."""
        return self._op("square")

    def log2(self) -> T:
        """The logarithm to base 2."""
        return self._op("log2")

    def isnan(self) -> T:
        """Whether each element is not a number."""
        return self._op("isnan")

    def isinf(self) -> T:
        """Whether each element is infinite."""
        return self._op("isinf")

    def isfinite(self) -> T:
        """Whether each element is a finite number."""
        return self._op("isfinite")

    def relu(self) -> T:
        """max(x, 0)."""
        return self._op("relu")

    def log_softmax(self, dim: Whole = -1, *, dtype: Any = None) -> T:
        """The logarithm of softmax along an axis; of this tensor in another element type if `dtype` is given."""
        found: T = OPS["log_softmax"](self._as(dtype), axis=dim)
        return found

    def clamp(self, min: Any = None, max: Any = None) -> T:
        """Each element brought into a range; bounds are numbers or tensors."""
        return self._op("clamp", min, max)

    clip = clamp

    def clamp_min(self, min: Any) -> T:
        """The greater of each element and a bound."""
        return self._op("maximum", min)

    def clamp_max(self, max: Any) -> T:
        """The lesser of each element and a bound."""
        return self._op("minimum", max)

    # Products -----------------------------------------------------------------------------------------------------

    @torch_names
    def matmul(self, other: Any) -> T:
        """The matrix product, ``x @ other``."""
        return self._op("matmul", other)

    mm = bmm = matmul

    @torch_names
    def outer(self, other: Any) -> T:
        """The products of all elements of one vector with all of another."""
        return self._op("outer", other)


def axes_or_all(axis: Axes) -> tuple[int, ...] | None:
    """Axes of a reduction for which no axes are all of them, as in torch, unless `axis=` says so, as in NumPy."""
    return axes(axis) if axis is NO_AXES or not isinstance(axis, Sequence) or len(axis) else None


def axes(axis: Axes) -> tuple[int, ...] | None:
    """Axes as reductions take them."""
    return axis if axis is None else tuple(axis) if isinstance(axis, Sequence) else (axis,)
