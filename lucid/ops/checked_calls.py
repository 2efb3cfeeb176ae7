"""What an op knows of a call whose operands and attributes are like those of an earlier one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lucid.core.graph.types import TensorType, array_type
from lucid.core.graph.values import Origin
from lucid.core.process.cache_keys import type_key
from lucid.ops.tensor.tensor import Tensor


class CheckedCall:
    """The kernel of such calls, which gets the arrays alone, and the types of their results."""

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
        self.missing = (None,) * missing  # optional operands after those that are given
        self._types = [array_type(type_.dtype.numpy, tuple(map(int, type_.shape))) for type_ in results]
        self._single = self._types[0] if len(self._types) == 1 else None
        self._kept = [None if t is None else t.type for t in operands]  # what the key identifies must live on

    def tensors(self, result: Any, origin: Origin | None = None) -> Any:
        """The array or the arrays that the kernel gave, as a tensor or a tuple of tensors."""
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
    """What tells calls apart: types of operands, and attributes with their types, which tell 1 from 1.0 and True."""
    return (*kinds, *attributes.items(), *map(type_key, attributes.values())) if attributes else tuple(kinds)
