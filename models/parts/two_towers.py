"""Shared by models of texts and images: the transformer of a tower, and how well texts and images match."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import lucid
from lucid import Tensor, TensorType, nn, ops
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.pretrained import ACTIVATIONS, Checkpoint
from lucid.models.parts.on_model import OnModel
from lucid.models.parts.options import read_patch_size
from lucid.models.parts.projected_attention import ProjectedAttention

C = TypeVar("C")


@dataclass(frozen=True)
class TowerConfig(option.OptionTable):
    """The sizes of the transformer of one tower; options that published files leave out are those of a base model."""

    hidden_size: int = option.size("hidden_size", absent=768)
    num_heads: int = option.heads("num_attention_heads", absent=12)
    intermediate_size: int = option.size("intermediate_size", absent=3072)
    activation: str = option.activation("hidden_act", absent="gelu")
    eps: float = option.real("layer_norm_eps", absent=1e-6)
    num_layers: int = option.layers("num_hidden_layers", absent=12)


@dataclass(frozen=True)
class TextTowerConfig(TowerConfig):
    """The sizes of a tower that reads texts."""

    num_layers: int = option.layers("num_hidden_layers", absent=12, within="text_model.")
    vocab_size: int = option.size("vocab_size", absent=32000)
    max_positions: int = option.size("max_position_embeddings", absent=64)


@dataclass(frozen=True)
class ImageTowerConfig(TowerConfig):
    """The sizes of a tower that reads images, which are square."""

    num_layers: int = option.layers("num_hidden_layers", absent=12, within="vision_model.")
    num_channels: int = option.size("num_channels", absent=3)
    image_size: int = option.whole("image_size", absent=224)
    patch_size: int = option.row(read_patch_size, "patch_size", 16, of="image_size")

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(num_channels, image_size, image_size)."""
        return self.num_channels, self.image_size, self.image_size


class OneTower(OnModel[C]):
    """The base of classes of one tower. Keys begin with its name, except in files that hold nothing else."""

    tower: ClassVar[str]
    """The name."""
    unused: ClassVar[str]
    """A regular expression for the keys of the rest."""

    @classmethod
    def head_checkpoint(cls, base: Checkpoint[Any]) -> Checkpoint[Any]:
        inside = r"^(?=(embeddings|encoder|final_layer_norm|pre_layrnorm|post_layernorm|head)\.)"
        known = super().head_checkpoint(replace(base, ignored_keys=[*base.ignored_keys, cls.unused]))
        return replace(known, renames=[(inside, f"{cls.tower}.")])


class Similarities(NamedTuple):
    """How well texts and images match, and their embeddings, as transformers names and orders them."""

    logits_per_image: Tensor  # (M, N), for each image and each text
    logits_per_text: Tensor  # (N, M)
    text_embeds: Tensor  # (N, E), of length 1
    image_embeds: Tensor  # (M, E), of length 1

    @classmethod
    def of(cls, texts: Tensor, images: Tensor, logit_scale: Tensor, logit_bias: Tensor | None = None) -> Self:
        """The similarities of texts (N, E) and images (M, E): the cosines times exp(logit_scale), plus logit_bias."""
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


class ImageEmbeddings(nn.Module):
    """A vector for each patch, plus its position; with `whole`, a vector for the whole image comes first."""

    def __init__(self, config: ImageTowerConfig, whole: bool) -> None:
        width, patch = config.hidden_size, config.patch_size
        self.class_embedding = nn.init.normal_(nn.init.new_parameter(width)) if whole else None
        self.patch_embedding = nn.Conv2d(config.num_channels, width, patch, stride=patch, bias=not whole)
        self.position_embedding = nn.Embedding((config.image_size // patch) ** 2 + whole, width)

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = self.patch_embedding(pixel_values).flatten(2).mT
        if self.class_embedding is not None:
            x = ops.concat([self.class_embedding.expand(x.shape[0], 1, -1), x], 1)
        return x + self.position_embedding.weight[:]


class ImageTower(nn.Module):
    """The base of towers that read images (N, num_channels, image_size, image_size)."""

    name: str  # in messages

    def __init__(self, config: ImageTowerConfig, whole: bool) -> None:
        self.embeddings = ImageEmbeddings(config, whole)
        self.encoder = Encoder(config)
        self.post_layernorm = nn.LayerNorm(config.hidden_size, config.eps)
        self.image_shape = config.image_shape

    def embed(self, pixel_values: Tensor) -> Tensor:
        """The input of the first layer."""
        return self.embeddings(pixel_values)

    def hidden_states(self, pixel_values: Tensor) -> list[Tensor]:
        """The input of the first layer, and the output of each layer."""
        if pixel_values.ndim != 4 or pixel_values.shape[1:] != self.image_shape:  # positions are learned for one size
            got, expected = (", ".join(map(str, sizes)) for sizes in (pixel_values.shape, self.image_shape))
            raise ValueError(f"{self.name}: pixel_values has shape [{got}], expected (N, {expected})")
        return self.encoder(self.embed(pixel_values))

    def input_specs(self, images: str = "N") -> Mapping[str, TensorType]:
        dtype = self.embeddings.patch_embedding.weight.dtype
        return {"pixel_values": lucid.spec(images, *self.image_shape, dtype=dtype)}


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
        self.self_attn, self.mlp = ProjectedAttention(tower.hidden_size, tower.num_heads), MLP(tower)

    def forward(self, x: Tensor, key_mask: Tensor | None, is_causal: bool) -> Tensor:
        y = self.layer_norm1(x)
        x = x + self.self_attn(y, y, y, key_mask, is_causal)
        return x + self.mlp(self.layer_norm2(x))


class MLP(nn.Module):
    """Two linear layers."""

    def __init__(self, tower: TowerConfig) -> None:
        width, inner = tower.hidden_size, tower.intermediate_size
        self.fc1, self.fc2 = nn.Linear(width, inner), nn.Linear(inner, width)
        self.activation = ACTIVATIONS[tower.activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.activation(self.fc1(x)))
