"""Arithmetic, bits and comparison of tensors by Python's operators: `Tensor` inherits them."""

from __future__ import annotations

from typing import NoReturn, TypeAlias

from lucid.core.graph.types import Array, Scalar, bool_
from lucid.core.sizes.dims import Dim
from lucid.ops.tensor.methods import OPS, ElementMethods, T

Other: TypeAlias = T | Array | Scalar | Dim


class Operators(ElementMethods[T]):
    """Python's operators, elementwise but for ``@``."""

    __slots__ = ()

    def _with(self, name: str, other: Other[T] | object) -> T:
        """An op of this tensor and something else."""
        result: T = OPS[name](self, other)
        return result

    def _reflected(self, name: str, other: Other[T]) -> T:
        """An op whose first operand is not a tensor."""
        result: T = OPS[name](other, self)
        return result

    def __add__(self, other: Other[T]) -> T:
        return self._with("add", other)

    def __radd__(self, other: Other[T]) -> T:
        return self._reflected("add", other)

    def __sub__(self, other: Other[T]) -> T:
        return self._with("sub", other)

    def __rsub__(self, other: Other[T]) -> T:
        return self._reflected("sub", other)

    def __mul__(self, other: Other[T]) -> T:
        return self._with("mul", other)

    def __rmul__(self, other: Other[T]) -> T:
        return self._reflected("mul", other)

    def __truediv__(self, other: Other[T]) -> T:
        return self._with("div", other)

    def __rtruediv__(self, other: Other[T]) -> T:
        return self._reflected("div", other)

    def __floordiv__(self, other: Other[T]) -> T:
        return self._with("floor_div", other)

    def __rfloordiv__(self, other: Other[T]) -> T:
        return self._reflected("floor_div", other)

    def __mod__(self, other: Other[T]) -> T:
        return self._with("mod", other)

    def __rmod__(self, other: Other[T]) -> T:
        return self._reflected("mod", other)

    def __pow__(self, other: Other[T]) -> T:
        return self._with("pow", other)

    def __rpow__(self, other: Other[T]) -> T:
        return self._reflected("pow", other)

    def __matmul__(self, other: Other[T]) -> T:
        return self._with("matmul", other)

    def __rmatmul__(self, other: Other[T]) -> T:
        return self._reflected("matmul", other)

    def __pos__(self) -> T:
        return self._op("positive")

    def __neg__(self) -> T:
        return self._op("neg")

    def __abs__(self) -> T:
        return self._op("abs")

    def __invert__(self) -> T:
        return self._op("logical_not" if self.type.dtype is bool_ else "bitwise_not")

    def __and__(self, other: Other[T]) -> T:
        return self._with("logical_and" if self._both_truths(other) else "bitwise_and", other)

    def __or__(self, other: Other[T]) -> T:
        return self._with("logical_or" if self._both_truths(other) else "bitwise_or", other)

    def __xor__(self, other: Other[T]) -> T:
        return self._with("logical_xor" if self._both_truths(other) else "bitwise_xor", other)

    def __lshift__(self, other: object) -> NoReturn:
        raise TypeError("x << n: tensors have no shifts of bits; write x * 2**n")

    def __rshift__(self, other: object) -> NoReturn:
        raise TypeError("x >> n: tensors have no shifts of bits; write x // 2**n")

    def _both_truths(self, other: Other[T]) -> bool:
        """Whether both are booleans."""
        if self.type.dtype is not bool_:
            return False
        return other.type.dtype is bool_ if isinstance(other, Operators) else isinstance(other, bool)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def bitwise_not(self) -> T:
        """Each bit of integers inverted; of booleans, whether each is false."""
        return self._op("bitwise_not")

    def bitwise_and(self, other: Other[T]) -> T:
        """The bits that both integers have; of booleans, whether both are true."""
        return self._op("bitwise_and", other)

    def bitwise_or(self, other: Other[T]) -> T:
        """The bits that one of the integers has; of booleans, whether one is true."""
        return self._op("bitwise_or", other)

    def bitwise_xor(self, other: Other[T]) -> T:
        """The bits that exactly one of the integers has; of booleans, whether exactly one is true."""
        return self._op("bitwise_xor", other)

    def __eq__(self, other: object) -> T:  # type: ignore[override]  # elementwise, as in NumPy and torch
        return self._with("equal", other)

    def __ne__(self, other: object) -> T:  # type: ignore[override]
        return self._with("not_equal", other)

    def __lt__(self, other: Other[T]) -> T:
        return self._with("less", other)

    def __le__(self, other: Other[T]) -> T:
        return self._with("less_equal", other)

    def __gt__(self, other: Other[T]) -> T:
        return self._with("greater", other)

    def __ge__(self, other: Other[T]) -> T:
        return self._with("greater_equal", other)
