"""From states of tokens to sentence embeddings: the layers of sentence-transformers (Reimers and Gurevych 2019)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import lucid
from lucid import Tensor, nn, ops
from lucid.nn import functional as F

POOLING, DENSE, NORMALIZE = "Pooling", "Dense", "Normalize"
_IDENTITY = "torch.nn.modules.linear.Identity"
DENSE_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    _IDENTITY: lambda x: x,
    "torch.nn.modules.activation.Tanh": lambda x: x.tanh(),
    "torch.nn.modules.activation.ReLU": F.relu,
    "torch.nn.modules.activation.GELU": F.gelu,
    "torch.nn.modules.activation.SiLU": F.silu,
    "torch.nn.modules.activation.Sigmoid": lambda x: x.sigmoid(),
}


@dataclass(frozen=True)
class SentenceLayer:
    """A layer after the encoder: what modules.json and its own config.json say of it."""

    name: str
    kind: str
    modes: tuple[str, ...] = ()  # of a Pooling
    in_features: int = 0  # of a Dense, as all below
    out_features: int = 0
    bias: bool = True
    activation: str = _IDENTITY

    def build(self) -> nn.Module:
        """The module, with new weights."""
        if self.kind == POOLING:
            return Pooling(self.modes)
        return Dense(self) if self.kind == DENSE else Normalize()


USUAL_LAYERS = (SentenceLayer("1_Pooling", POOLING, ("mean",)), SentenceLayer("2_Normalize", NORMALIZE))
"""Of an encoder that has no modules.json: the mean, scaled to length 1."""
LAST_TOKEN = (SentenceLayer("1_Pooling", POOLING, ("lasttoken",)), SentenceLayer("2_Normalize", NORMALIZE))
"""Of a decoder that has none, in which only the last token has seen all others."""


class Pooling(nn.Module):
    """The states of the kept tokens, (N, L, E), to one vector for each mode, joined: (N, E * modes)."""

    def __init__(self, modes: tuple[str, ...]) -> None:
        self.modes = modes

    def forward(self, states: Tensor, attention_mask: Tensor | None) -> Tensor:
        """`attention_mask` (N, L) is 1 for tokens to keep, 0 for padding on either side; None keeps all."""
        pooled = [_pooled(mode, states, attention_mask) for mode in self.modes]
        return pooled[0] if len(pooled) == 1 else ops.concat(pooled, -1)


def _pooled(mode: str, states: Tensor, mask: Tensor | None) -> Tensor:
    """(N, E) by one mode."""
    places = lucid.arange(1, states.shape[1] + 1)  # (L,)
    if mask is None:
        if mode in ("cls", "lasttoken"):
            return states[:, 0] if mode == "cls" else states[:, -1]
        if mode == "max":
            return states.amax(1)
        if mode == "mean":
            return states.mean(1)
        mask = places.unsqueeze(0) > 0
    kept = mask.astype(states.dtype).unsqueeze(-1)
    if mode == "cls":
        return _at(states, (mask != 0).astype(lucid.int32).argmax(1))
    if mode == "lasttoken":
        return _at(states * kept, ((mask != 0).astype(lucid.int32) * places.astype(lucid.int32)).argmax(1))
    if mode == "max":
        return ops.where(mask.unsqueeze(-1) != 0, states, float("-inf")).amax(1)
    if mode == "weightedmean":
        kept = kept * places.astype(states.dtype).unsqueeze(-1)
    total = ops.maximum(kept.sum(1), 1e-9)
    return (states * kept).sum(1) / (total.sqrt() if mode == "mean_sqrt_len_tokens" else total)


def _at(states: Tensor, positions: Tensor) -> Tensor:
    """(N, E): of each row the state at its position."""
    return ops.take_along(states, ops.unsqueeze(positions, (1, 2)), axis=1).squeeze(1)


class Dense(nn.Module):
    """A linear layer and its activation."""

    def __init__(self, layer: SentenceLayer) -> None:
        self.linear = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias)
        self.activation = DENSE_ACTIVATIONS[layer.activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.linear(x))


class Normalize(nn.Module):
    """Each vector scaled to length 1."""

    def forward(self, x: Tensor) -> Tensor:
        return x / ops.maximum((x * x).sum(-1, keepdims=True).sqrt(), 1e-12)
