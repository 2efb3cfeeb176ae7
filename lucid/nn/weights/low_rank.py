"""Weights to which a product of low rank is added, and `nn.LoRA`, whose product is trained (Hu et al. 2021)."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Self, TypeAlias, TypeVar

import numpy as np

from lucid.core.graph.types import Array, DType
from lucid.core.words.name_patterns import named
from lucid.nn import init
from lucid.nn._checks import check_positive
from lucid.nn.layers import Embedding
from lucid.nn.module import Module, WeightUse
from lucid.nn.parameters import Parameter
from lucid.nn.quantized import WeightModule, embedding, linear, rows_of
from lucid.nn.weights.layer_weights import WeightPlace, declared_weights, with_weights
from lucid.ops.creation import arange
from lucid.ops.tensor.tensor import Tensor

M = TypeVar("M", bound=Module)
Pair: TypeAlias = tuple[Tensor, Tensor]


def _shape(weight: Tensor | WeightModule, use: WeightUse) -> tuple[int, ...]:
    """(N outputs, K inputs), or (entries, width) of a table."""
    stored = tuple(weight.shape)
    return stored[::-1] if use == "transposed" and isinstance(weight, Tensor) else stored


class LowRankWeight(WeightModule):
    """A weight W (N outputs, K inputs) or table (K entries, N width) to which A @ B is added: A (K, r), B (r, N).

    It takes the place of the `weight` of a layer, and W keeps its name in `state_dict`.

    Args:
        weight: W, which may be quantized.
        use: "linear", "transposed" for a tensor that is stored as (K, N), or "table".
    """

    quantized = False

    def __init__(self, weight: Tensor | WeightModule, use: WeightUse) -> None:
        vars(self)[""] = weight
        self._use, self._columns = use, slice(None)
        self.shape = _shape(weight, use)

    @property
    def base(self) -> Tensor | WeightModule:
        """W."""
        weight: Tensor | WeightModule = vars(self)[""]
        return weight

    @property
    def sizes(self) -> tuple[int, int]:
        """K inputs and N outputs of the weight."""
        rows, columns = self.shape
        return (rows, columns) if self._use == "table" else (columns, rows)

    @property
    def bits(self) -> int:  # type: ignore[override]
        """The bits of W."""
        return self.base.bits if isinstance(self.base, WeightModule) else 8 * self.base.dtype.itemsize

    @property
    def dtype(self) -> DType:
        return self.base.dtype

    @abstractmethod
    def pair(self) -> Pair | None:
        """A and B, scaled; None: nothing is added."""

    def forward(self, x: Tensor) -> Tensor:
        product, pair = linear(x, self.base, transposed=self._use == "transposed"), self.pair()
        return product if pair is None else product + (x @ pair[0]) @ pair[1][:, self._columns]

    def rows(self, indices: Tensor) -> Tensor:
        self._refuse_columns("weight[rows]")
        picked, pair = embedding(indices, self.base), self.pair()
        if pair is None:
            return picked
        a, b = pair if self._use == "table" else (pair[1][:, self._columns].mT, pair[0].mT)
        return picked + embedding(indices, a) @ b

    def _refuse_columns(self, use: str) -> None:
        if self._use == "transposed" and isinstance(self.base, Tensor):
            self.refuse(f"{use} of a weight that is stored as (inputs, outputs)")

    def slice_rows(self, start: int, stop: int, suffix: str) -> Self:
        """Rows of the weight, to which the columns of B are added."""
        self._refuse_columns(f"weight[{start}:{stop}]")
        rows = copy.copy(self)
        vars(rows)[""] = rows_of(self.base, start, stop, suffix)
        rows.shape, rows._columns = (stop - start, self.shape[1]), slice(start, stop)
        return rows

    def extra_repr(self) -> str:
        return f"{self.shape[0]}, {self.shape[1]}"


class LoRA(LowRankWeight):
    """A weight W (N, K) to which scale * lora_B @ lora_A is added: `LoRA.add` puts it in the places of weights.

    State: W under its own name, and after this name ``lora_A`` (r, K) and ``lora_B`` (N, r), as PEFT has them.

    Args:
        weight, use: as for `LowRankWeight`.
        a, b: lora_A and lora_B.
        scale: the factor of their product, which is not trained.
    """

    def __init__(self, weight: Tensor | WeightModule, use: WeightUse, a: Tensor, b: Tensor, scale: float) -> None:
        super().__init__(weight, use)
        self.lora_A, self.lora_B, self.scale = a, b, scale

    @property
    def rank(self) -> int:
        """The rank of the product."""
        return int(self.lora_A.shape[0])

    def pair(self) -> Pair:
        return self.lora_A.mT, self.lora_B.mT * self.scale

    def merged(self) -> Parameter:
        """W with the product added, as its layer stores it; a quantized W is dequantized."""
        a, b = (tensor.numpy().astype(np.float32) for tensor in (self.lora_A, self.lora_B))
        added: Array = b @ a * np.float32(self.scale)  # (N, K)
        if isinstance(self.base, WeightModule):
            rows = self.base.rows(arange(self.shape[0])).numpy()
            weight = rows.T if self._use == "transposed" else rows
        else:
            weight = self.base.numpy()
        return Parameter((weight + (added if self._use == "linear" else added.T)).astype(weight.dtype))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, rank={self.rank}, scale={self.scale:g}"

    @classmethod
    def add(cls, model: M, rank: int, targets: str | Sequence[str] = "*", *, alpha: float | None = None) -> M:
        """A copy of a model whose layers have adapters to train. It computes what the model computes until then.

        Everything but the adapters is shared with `model`, and keeps its name; ``"*.lora_*"`` names the adapters.

        Args:
            model: any module; its weights may be quantized, and stay so.
            rank: of the products, r.
            targets: patterns of layers, such as ``("*.query", "*.value")``; by default all linear layers, and others
                with weights of products (`nn.Module.quantizable`), but no embedding tables.
            alpha: the scale times the rank; by default the rank, so the scale is 1.

        Returns:
            The copy. lora_A has random numbers, as a `Linear` has, and lora_B zeros.

        Raises:
            ValueError: for a pattern that matches no such layer, a layer that has an adapter, or a rank below 1.
        """
        check_positive("LoRA.add", rank=rank)
        tables = {path for path, module in model.named_modules() if isinstance(module, Embedding)}
        places = {
            p.key: (p, each)
            for p, each in declared_weights(model).items()
            if p.path not in tables and each[1] != "table"
        }
        adapters: dict[WeightPlace, WeightModule] = {}
        for key in named("LoRA.add: targets", targets, list(places)):
            place, (weight, use) = places[key]
            if isinstance(weight, LowRankWeight):
                raise ValueError(f"LoRA.add: {place.layer} has an adapter; merge it first: nn.LoRA.merge(model)")
            rows, columns = _shape(weight, use)
            a = init.kaiming_uniform_(init.new_parameter(rank, columns, dtype=weight.dtype), a=math.sqrt(5))
            b = init.zeros_(init.new_parameter(rows, rank, dtype=weight.dtype))
            adapters[place] = cls(weight, use, a, b, (rank if alpha is None else alpha) / rank)
        return with_weights(model, adapters)

    @staticmethod
    def merge(model: M) -> M:
        """A copy of a model without adapters, whose weights have the products added. Quantized ones become float."""
        places = declared_weights(model).items()
        return with_weights(model, {place: each.merged() for place, (each, _) in places if isinstance(each, LoRA)})
