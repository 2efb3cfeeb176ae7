"""LoRA adapters as inputs: layers that add to their weight a product of low rank which the caller gives at run time.

An exported file has the inputs A and B of every such layer; their defaults are zeros. They are not arguments of the
model's `forward`: in traces and eager runs, `given_adapter` gives them to all layers of a call.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from lucid.core.graph.types import Array, TensorType
from lucid.core.process.context import holding
from lucid.core.sizes.dims import dim
from lucid.nn.module import Module, WeightUse
from lucid.nn.quantized import WeightModule
from lucid.nn.weights.low_rank import LowRankWeight, Pair
from lucid.ops.tensor.tensor import Tensor

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
    by_name: dict[str, AdapterInput] = {}
    layers = [] if model is None else [each for each in model.modules() if isinstance(each, AdaptedWeight)]
    for layer in layers:
        inputs, outputs = layer.sizes
        rank = dim(RANK)
        for name, shape, least in (
            (layer.names[0], (inputs, rank), (inputs, 1)),
            (layer.names[1], (rank, outputs), (1, outputs)),
        ):
            by_name[name] = AdapterInput(TensorType(layer.dtype, shape), np.zeros(least, layer.dtype.numpy))
    return by_name


class AdaptedWeight(LowRankWeight):
    """A weight whose A and B the caller gives when it runs; without them it is the weight alone.

    It takes the place of the `weight` of a layer. A and B have the scale of the adapter.

    Args:
        weight, use: as for `LowRankWeight`.
        name: the layer's; A is the input ``{name}.lora_A.weight``, B ``{name}.lora_B.weight``.
    """

    def __init__(self, weight: Tensor | WeightModule, use: WeightUse, name: str) -> None:
        super().__init__(weight, use)
        self.names = (f"{name}.lora_A.weight", f"{name}.lora_B.weight")

    def pair(self) -> Pair | None:
        values = _given.get()
        return (values[self.names[0]], values[self.names[1]]) if self.names[0] in values else None
