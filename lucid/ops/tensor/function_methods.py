"""Methods of tensors that call the function of their name with the tensor as its first argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lucid.ops.tensor.value import OPS, TensorValue


def _method(name: str) -> Callable[..., Any]:
    def method(self: TensorValue, *arguments: Any, **named: Any) -> Any:
        return OPS[name](self, *arguments, **named)

    method.__name__, method.__qualname__ = name, f"Tensor.{name}"
    method.__doc__ = f"``lucid.{name}`` of this tensor and further arguments."
    return method


class FunctionMethods(TensorValue):
    """One line for each function; its docstring has the arguments."""

    __slots__ = ()

    def is_floating_point(self) -> bool:
        """Whether the elements are floating-point numbers."""
        return self.dtype.kind == "float"

    def is_complex(self) -> bool:
        """False: there are no complex numbers."""
        return False

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The same numbers in an element type: a DType, its name, or torch's name or class of tensors that have it.

        Without one, torch's name for this tensor's: ``"torch.FloatTensor"`` of float32. `dtype` is the element type,
        `spec` that and the shape.
        """
        return OPS["type_"](self, dtype)

    def type_as(self, other: Any) -> Any:
        """The same numbers in the element type of another tensor."""
        return OPS["to"](self, other)

    def equal(self, other: Any) -> bool:
        """Whether shapes and all elements are equal: a Python truth.

        Raises:
            TracedValueError: while tracing, where ``(x == y).all()`` is a tensor.
        """
        return np.array_equal(self.numpy(), np.asarray(other))

    absolute, negative, subtract, multiply, divide = map(_method, ("abs", "neg", "sub", "mul", "div"))
    cummax, cummin, logit, sinc, xlogy = map(_method, ("cummax", "cummin", "logit", "sinc", "xlogy"))
    exp2, log10, trunc, frac = map(_method, ("exp2", "log10", "trunc", "frac"))
    atan2, hypot, logaddexp, isclose, isin = map(_method, ("atan2", "hypot", "logaddexp", "isclose", "isin"))
    bitwise_left_shift, bitwise_right_shift = map(_method, ("bitwise_left_shift", "bitwise_right_shift"))
    cross, dot, inner, kron, mv = map(_method, ("cross", "dot", "inner", "kron", "mv"))
    lerp, addcmul, addcdiv, nan_to_num = map(_method, ("lerp", "addcmul", "addcdiv", "nan_to_num"))
    diag, diagonal, diag_embed = map(_method, ("diag", "diagonal", "diag_embed"))
    fliplr, flipud, ravel, take_along_dim = map(_method, ("fliplr", "flipud", "ravel", "take_along_dim"))
    count_nonzero, nonzero_static = map(_method, ("count_nonzero", "nonzero_static"))
    diff, hsplit, scatter_reduce, vsplit = map(_method, ("diff", "hsplit", "scatter_reduce", "vsplit"))
    maximum, minimum = map(_method, ("maximum", "minimum"))
