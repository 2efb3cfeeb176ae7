"""What an op knows of a call whose operands and attributes are like those of an earlier one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lucid.core.graph.types import TensorType, known_type
from lucid.core.graph.values import Part
from lucid.core.process.cache_keys import kind_of
from lucid.ops.tensor.tensor import Tensor


class KnownCall:
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
        self._types = [known_type(kind.dtype.numpy, tuple(map(int, kind.shape))) for kind in results]
        self._single = self._types[0] if len(self._types) == 1 else None
        self._kept = [None if t is None else t.type for t in operands]  # what the key identifies must live on

    def tensors(self, result: Any, part: Part | None = None) -> Any:
        """The array or the arrays that the kernel gave, as a tensor or a tuple of tensors."""
        kind = self._single
        if kind is not None:
            if result.__class__ is np.ndarray and result.dtype is kind.dtype.numpy and result.shape == kind.shape:
                return Tensor.of_type(result, kind, part)
            return self._tensor(result[0] if isinstance(result, tuple) else result, kind, part)
        return tuple(self._tensor(array, kind, part) for array, kind in zip(result, self._types, strict=True))

    def _tensor(self, result: Any, kind: TensorType, part: Part | None) -> Tensor:
        array = np.asarray(result)
        assert array.dtype == kind.dtype.numpy, f"{self._name}: kernel gave {array.dtype}, rule {kind.dtype}"
        return Tensor.from_array(array, part)


def key_of(kinds: Sequence[int | None], attributes: Mapping[str, Any]) -> tuple[Any, ...]:
    """What tells calls apart: types of operands, and attributes with their types, which tell 1 from 1.0 and True."""
    return (*kinds, *attributes.items(), *map(kind_of, attributes.values())) if attributes else tuple(kinds)
