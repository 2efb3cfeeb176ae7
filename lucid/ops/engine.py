"""What computes eager calls instead of NumPy kernels, inside a with statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

from lucid.core.graph.types import TensorType
from lucid.core.graph.values import Attributes
from lucid.ops.tensor.tensor import Tensor


class Engine(Protocol):
    """It is asked once for each combination of types and attributes, and told from other engines by its identity."""

    def kernel(
        self, op: Any, operands: Sequence[Tensor | None], attributes: Attributes, results: Sequence[TensorType]
    ) -> Callable[..., Any] | None:
        """A kernel for calls with operands of these types, which gets the arrays alone; None where NumPy's stays."""


engine: ContextVar[Engine | None] = ContextVar("lucid_engine", default=None)
