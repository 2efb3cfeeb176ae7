"""LoRA adapters as inputs: layers that add to their weight a product of low rank which the caller gives at run time.

An exported file has the inputs A and B of every such layer; their defaults are zeros. They are not arguments of the
model's `forward`: in traces and eager runs, `given_adapter` gives them to all layers of a call.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import MappingProxyType
from typing import NamedTuple, Self

import numpy as np

from lucid.core.graph.types import Array, DType, TensorType
from lucid.core.process.context import holding
from lucid.core.sizes.dims import dim
from lucid.nn.module import Module, WeightUse
from lucid.nn.quantized import WeightModule, embedding, linear, rows_of
from lucid.ops.tensor.tensor import Tensor

Pair = tuple[Tensor, Tensor]

RANK = "rank"
"""The size of A and B that differs between adapters."""

_given: ContextVar[Mapping[str, Tensor]] = ContextVar("lucid_adapter", default=MappingProxyType({}))


def given_adapter(tensors: Mapping[str, Tensor]) -> AbstractContextManager[None]:
    """Inside, layers add the products of these A and B, given by the names of the inputs; in this thread only."""
    return holding(_given, tensors)


class AdapterInput(NamedTuple):
    """The type of an input, and its default in an exported file."""

    kind: TensorType
    default: Array


def adapter_inputs(model: Module | None) -> dict[str, AdapterInput]:
    """The inputs of the layers of a model that take adapters, by name; all have one rank."""
    found: dict[str, AdapterInput] = {}
    layers = [] if model is None else [each for each in model.modules() if isinstance(each, AdaptedWeight)]
    for layer in layers:
        inputs, outputs = layer.sizes
        rank = dim(RANK)
        for name, shape, least in (
            (layer.names[0], (inputs, rank), (inputs, 1)),
            (layer.names[1], (rank, outputs), (1, outputs)),
        ):
            found[name] = AdapterInput(TensorType(layer.dtype, shape), np.zeros(least, layer.dtype.numpy))
    return found


class AdaptedWeight(WeightModule):
    """A weight W (N outputs, K inputs) or table (K entries, N width) to which A @ B is added: A (K, r), B (r, N).

    It takes the place of the `weight` of a layer. A and B have the scale of the adapter; without them it is W.

    Args:
        weight: the weight, which may be quantized.
        name: the layer's; A is the input ``{name}.lora_A.weight``, B ``{name}.lora_B.weight``.
        use: "product", "transposed" for a tensor that is stored as (K, N), or "table".
    """

    quantized = False

    def __init__(self, weight: Tensor | WeightModule, name: str, use: WeightUse) -> None:
        self.base = weight
        self.names = (f"{name}.lora_A.weight", f"{name}.lora_B.weight")
        self._use, self._columns = use, slice(None)
        stored = tuple(weight.shape)
        self.shape = stored[::-1] if use == "transposed" and isinstance(weight, Tensor) else stored

    @property
    def sizes(self) -> tuple[int, int]:
        """K inputs and N outputs of the weight."""
        rows, columns = self.shape
        return (rows, columns) if self._use == "table" else (columns, rows)

    @property
    def bits(self) -> int:  # type: ignore[override]
        """The bits of the weight without an adapter."""
        return self.base.bits if isinstance(self.base, WeightModule) else 8 * self.base.dtype.itemsize

    @property
    def dtype(self) -> DType:
        return self.base.dtype

    def forward(self, x: Tensor) -> Tensor:
        product = linear(x, self.base, transposed=self._use == "transposed")
        pair = self._pair()
        return product if pair is None else product + (x @ pair[0]) @ pair[1]

    def rows(self, indices: Tensor) -> Tensor:
        found, pair = embedding(indices, self.base), self._pair()
        return found if pair is None else found + embedding(indices, pair[0]) @ pair[1]

    def slice_rows(self, start: int, stop: int, suffix: str) -> Self:
        """Rows of the weight, to which the columns of B are added."""
        if self._use == "transposed" and isinstance(self.base, Tensor):
            self.refuse(f"weight[{start}:{stop}] of a weight that is stored as (inputs, outputs)")
        rows = type(self)(rows_of(self.base, start, stop, suffix), "", self._use)
        rows.names, rows._columns = self.names, slice(start, stop)
        return rows

    def _pair(self) -> Pair | None:
        given = _given.get()
        if self.names[0] not in given:
            return None
        a, b = (given[name] for name in self.names)
        return a, b if self._columns == slice(None) else b[:, self._columns]

    def extra_repr(self) -> str:
        return f"{self.shape[0]}, {self.shape[1]}"
