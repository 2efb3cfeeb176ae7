"""Watching the weights of a model as it runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import numpy as np

from lucid.core.graph.types import Array, DType
from lucid.nn import functional as F
from lucid.nn.module import Module
from lucid.nn.stored import StoredWeight, rows_of
from lucid.ops.tensor.tensor import Tensor

Call: TypeAlias = Tensor | Array | Sequence[Any] | Mapping[str, Any]
"""The inputs of one call of a model: one, several by position, or by name."""


class Use(NamedTuple):
    """What a weight was asked for once, and what it gave."""

    kind: Literal["product", "rows"]
    given: Tensor | Array
    found: Tensor
    first: int = 0  # of the weight's rows that a product was with; there are as many as it gave


class WatchedWeight(StoredWeight):
    """A weight that computes what another does, and shows each use of it."""

    def __init__(self, weight: Tensor | StoredWeight, see: Callable[[Use], None], first: int = 0) -> None:
        """`weight`: (N, K). `first`: the row of a larger weight that its rows begin with."""
        self.weight, self.shape = weight, weight.shape
        self._see, self._first = see, first

    @property
    def dtype(self) -> DType:
        return self.weight.dtype

    def forward(self, x: Tensor) -> Tensor:
        found = F.linear(x, self.weight)
        self._see(Use("product", x, found, self._first))
        return found

    def rows(self, indices: Tensor) -> Tensor:
        found = F.embedding(indices, self.weight)
        self._see(Use("rows", indices, found))
        return found

    def part(self, start: int, stop: int, suffix: str) -> Self:
        return type(self)(rows_of(self.weight, start, stop, suffix), self._see, self._first + start)


class BoundCall(NamedTuple):
    """The arguments of a call, arrays as tensors; `by_name` has all that are given."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    by_name: Mapping[str, Any]


def bound_call(model: Module, call: Call, what: str) -> BoundCall:
    """The arguments for a model. `what` starts the messages.

    Raises:
        ValueError: for inputs with other names than the model's, and for NaN and infinity in them.
    """
    by_name = call if isinstance(call, Mapping) else {}
    in_order: Sequence[Any] = () if isinstance(call, Mapping) else call if isinstance(call, (list, tuple)) else (call,)
    signature = inspect.signature(model.forward)
    try:
        bound = signature.bind(*in_order, **by_name)
    except TypeError as error:
        given = ", ".join(map(str, by_name)) or f"{len(in_order)} inputs"
        wanted = ", ".join(signature.parameters)
        raise ValueError(f"{what} has {given}, and the model takes {wanted}: {error}") from None
    for name, value in bound.arguments.items():
        tensor = Tensor.from_array(value) if isinstance(value, np.ndarray) else value
        if isinstance(tensor, Tensor) and tensor.dtype.kind == "float":
            finite = np.isfinite(tensor.numpy())
            if not finite.all():
                at = [int(i) for i in np.argwhere(~finite)[0]]
                found = float(tensor.numpy()[tuple(at)])
                raise ValueError(f"{what}: {name} has {found} at {at}, expected finite numbers")
        bound.arguments[name] = tensor
    return BoundCall(bound.args, bound.kwargs, bound.arguments)
