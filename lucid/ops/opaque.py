"""What stands in the place of a tensor without being one."""

from __future__ import annotations

from typing import Any, NoReturn

from lucid.ops.tensor.tensor import Tensor


class Opaque:
    """Something in the place of a tensor that ops and NumPy cannot read, such as a quantized weight.

    Whatever is asked of it as a tensor is an error that `refuse` words.
    """

    __array_ufunc__ = None  # array + self is left to self.__radd__

    def refuse(self, asked: str, error: type[Exception] = TypeError) -> NoReturn:
        """Raise an error that names what was asked, and says what to do instead."""
        raise error(f"{asked}: got {type(self).__name__}, expected a tensor")

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
