"""Shared by models of texts and images: the transformer of a tower, and how well texts and images match."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

from lucid import Tensor, nn, ops
from lucid.models.checkpoints.pretrained import ACTIVATIONS, Config


@dataclass(frozen=True)
class TowerConfig:
    """The sizes of the transformer of one tower, by default those of a base model."""

    hidden_size: int = 768
    num_layers: int = 12
    num_heads: int = 12
    intermediate_size: int = 3072
    activation: str = "gelu"
    eps: float = 1e-6

    place: ClassVar[str] = ""  # in the names of its weights

    @classmethod
    def sizes(cls, options: Config) -> dict[str, Any]:
        """Read from a tower's object in config.json; what published files leave out has the class's default."""
        width = options.size("hidden_size", cls.hidden_size)
        return {
            "hidden_size": width,
            "num_heads": options.heads("num_attention_heads", width, cls.num_heads),
            "intermediate_size": options.size("intermediate_size", cls.intermediate_size),
            "activation": options.activation("hidden_act", cls.activation),
            "eps": options.real("layer_norm_eps", cls.eps),
            "num_layers": options.layers("num_hidden_layers", cls.num_layers, within=cls.place),
        }


@dataclass(frozen=True)
class TextTowerConfig(TowerConfig):
    """The sizes of a tower that reads texts."""

    place: ClassVar[str] = "text_model."
    vocab_size: int = 32000
    max_positions: int = 64

    @classmethod
    def sizes(cls, options: Config) -> dict[str, Any]:
        return super().sizes(options) | {
            "vocab_size": options.size("vocab_size", cls.vocab_size),
            "max_positions": options.size("max_position_embeddings", cls.max_positions),
        }


@dataclass(frozen=True)
class ImageTowerConfig(TowerConfig):
    """The sizes of a tower that reads images, which are square."""

    place: ClassVar[str] = "vision_model."
    num_channels: int = 3
    image_size: int = 224
    patch_size: int = 16

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(num_channels, image_size, image_size)."""
        return self.num_channels, self.image_size, self.image_size

    @classmethod
    def sizes(cls, options: Config) -> dict[str, Any]:
        side = options.whole("image_size", cls.image_size)
        return super().sizes(options) | {
            "num_channels": options.size("num_channels", cls.num_channels),
            "image_size": side,
            "patch_size": options.whole("patch_size", cls.patch_size, high=side, why=", the size of an image"),
        }


def check_pixels(name: str, pixel_values: Tensor, shape: tuple[int, int, int]) -> None:
    """Raise ValueError unless images have this shape: positions are learned for one size."""
    if pixel_values.ndim != 4 or pixel_values.shape[1:] != shape:
        given, expected = (", ".join(map(str, sizes)) for sizes in (pixel_values.shape, shape))
        raise ValueError(f"{name}: pixel_values has shape [{given}], expected (N, {expected})")


class Similarities(NamedTuple):
    """How well texts and images match, and their embeddings, as transformers names and orders them."""

    logits_per_image: Tensor
    """(M, N): of each image and each text."""
    logits_per_text: Tensor
    """(N, M)."""
    text_embeds: Tensor
    """(N, E), of length 1."""
    image_embeds: Tensor
    """(M, E), of length 1."""

    @classmethod
    def of(cls, texts: Tensor, images: Tensor, logit_scale: Tensor, logit_bias: Tensor | None = None) -> Self:
        """Of texts (N, E) and images (M, E): the cosines times exp(logit_scale), plus logit_bias."""
        texts, images = _unit(texts), _unit(images)
        logits = texts @ images.mT * logit_scale.exp()
        logits = logits if logit_bias is None else logits + logit_bias
        return cls(logits.mT, logits, texts, images)


def _unit(x: Tensor) -> Tensor:
    return x / (x * x).sum(-1, keepdims=True).sqrt()


class TextEmbeddings(nn.Module):
    """Token plus position."""

    def __init__(self, config: TextTowerConfig) -> None:
        self.token_embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embedding = nn.LearnedPositions(config.max_positions, config.hidden_size)

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.token_embedding(input_ids) + self.position_embedding(input_ids.shape[1])


class Encoder(nn.Module):
    """The layers of a tower: (N, L, hidden_size) to the list of the input and the output of each layer."""

    def __init__(self, tower: TowerConfig) -> None:
        self.layers = [Layer(tower) for _ in range(tower.num_layers)]

    def forward(self, x: Tensor, key_mask: Tensor | None = None, is_causal: bool = False) -> list[Tensor]:
        states = [x]
        for layer in self.layers:
            states.append(layer(states[-1], key_mask, is_causal))
        return states


class Layer(nn.Module):
    """Attention, then the MLP, each after its norm, with a residual connection."""

    def __init__(self, tower: TowerConfig) -> None:
        self.layer_norm1, self.layer_norm2 = (nn.LayerNorm(tower.hidden_size, tower.eps) for _ in range(2))
        self.self_attn, self.mlp = Attention(tower), MLP(tower)

    def forward(self, x: Tensor, key_mask: Tensor | None, is_causal: bool) -> Tensor:
        x = x + self.self_attn(self.layer_norm1(x), key_mask, is_causal)
        return x + self.mlp(self.layer_norm2(x))


class Attention(nn.Module):
    """Self-attention."""

    def __init__(self, tower: TowerConfig) -> None:
        width, self.num_heads = tower.hidden_size, tower.num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, key_mask: Tensor | None, is_causal: bool) -> Tensor:
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        return self.out_proj(ops.attention(q, k, v, None, key_mask, heads=self.num_heads, is_causal=is_causal))


class MLP(nn.Module):
    """Two linear layers."""

    def __init__(self, tower: TowerConfig) -> None:
        width, inner = tower.hidden_size, tower.intermediate_size
        self.fc1, self.fc2 = nn.Linear(width, inner), nn.Linear(inner, width)
        self.activation = ACTIVATIONS[tower.activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.activation(self.fc1(x)))
