"""A cache of checked calls: a call like an earlier one goes to the kernel at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lucid.core.graph.types import TensorType, array_type
from lucid.core.graph.values import Origin
from lucid.core.process.cache_keys import type_key
from lucid.ops.tensor.tensor import Tensor


class CheckedCall:
    """The kernel for calls of these types and attributes, which gets only the arrays, and the result types."""

    __slots__ = ("_kept", "_name", "_single", "_types", "kernel", "missing")

    def __init__(
        self,
        name: str,
        kernel: Callable[..., Any],
        operands: Sequence[Tensor | None],
        results: Sequence[TensorType],
        missing: int,
    ) -> None:
        self._name = name
        self.kernel = kernel
        self.missing = (None,) * missing  # absent optional operands at the end
        self._types = [array_type(type_.dtype.numpy, tuple(map(int, type_.shape))) for type_ in results]
        self._single = self._types[0] if len(self._types) == 1 else None
        self._kept = [None if t is None else t.spec for t in operands]  # alive, as the key holds the ids of these types

    def tensors(self, result: Any, origin: Origin | None = None) -> Any:
        """The result of the kernel, an array or several, as a tensor or a tuple of tensors."""
        type_ = self._single
        if type_ is not None:
            if result.__class__ is np.ndarray and result.dtype is type_.dtype.numpy and result.shape == type_.shape:
                return Tensor.of_type(result, type_, origin)
            return self._tensor(result[0] if isinstance(result, tuple) else result, type_, origin)
        return tuple(self._tensor(array, type_, origin) for array, type_ in zip(result, self._types, strict=True))

    def _tensor(self, result: Any, type_: TensorType, origin: Origin | None) -> Tensor:
        array = np.asarray(result)
        assert array.dtype == type_.dtype.numpy, f"{self._name}: kernel gave {array.dtype}, rule {type_.dtype}"
        return Tensor.from_array(array, origin)


def call_key(kinds: Sequence[int | None], attributes: Mapping[str, Any]) -> tuple[Any, ...]:
    """The key of a call: ids of the operands' types, and attributes with their types, as 1, 1.0 and True differ."""
    return (*kinds, *attributes.items(), *map(type_key, attributes.values())) if attributes else tuple(kinds)
