"""CLIP (Radford et al. 2021): a text and an image tower whose embeddings are close where both belong together.

::

    clip = CLIP.from_pretrained("folder with config.json and model.safetensors")
    texts, images = clip(input_ids, pixel_values)                     # (N, E), (M, E), of length 1
    similarity = texts @ images.mT * clip.logit_scale.exp()           # (N, M); softmax over texts or images
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import lucid
from lucid import Tensor, TensorType, nn, ops
from models._pretrained import ACTIVATIONS, Config, building, load_into


@dataclass(frozen=True)
class Tower:
    """The sizes of the transformer of one tower."""

    width: int
    inner: int
    layers: int
    heads: int
    activation: str
    eps: float

    @classmethod
    def read(cls, config: Config, width: int, inner: int, layers: int, heads: int) -> Self:
        """From the tower's own object in config.json; published files leave out what is as in the first CLIP."""
        config.choose("hidden_act", ACTIVATIONS, "quick_gelu")
        width = config.size("hidden_size", width)
        return cls(
            width,
            config.size("intermediate_size", inner),
            config.layers("num_hidden_layers", layers),
            config.heads("num_attention_heads", width, heads),
            config.get("hidden_act", str, "quick_gelu"),
            config.real("layer_norm_eps", 1e-5),
        )


class Attention(nn.Module):
    """Self-attention."""

    def __init__(self, tower: Tower) -> None:
        self.heads = tower.heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(tower.width, tower.width) for _ in range(4))

    def forward(self, x: Tensor, key_mask: Tensor | None, is_causal: bool) -> Tensor:
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        return self.out_proj(ops.attention(q, k, v, None, key_mask, heads=self.heads, is_causal=is_causal))


class MLP(nn.Module):
    """Two linear layers."""

    def __init__(self, tower: Tower) -> None:
        self.fc1, self.fc2 = nn.Linear(tower.width, tower.inner), nn.Linear(tower.inner, tower.width)
        self.activation = ACTIVATIONS[tower.activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.activation(self.fc1(x)))


class Layer(nn.Module):
    """Attention, then the MLP, each behind its norm and beside the stream."""

    def __init__(self, tower: Tower) -> None:
        self.layer_norm1, self.layer_norm2 = (nn.LayerNorm(tower.width, tower.eps) for _ in range(2))
        self.self_attn, self.mlp = Attention(tower), MLP(tower)

    def forward(self, x: Tensor, key_mask: Tensor | None, is_causal: bool) -> Tensor:
        x = x + self.self_attn(self.layer_norm1(x), key_mask, is_causal)
        return x + self.mlp(self.layer_norm2(x))


class Encoder(nn.Module):
    """The layers of a tower: (N, L, width) to the list of what lies before, between and behind them."""

    def __init__(self, tower: Tower) -> None:
        self.layers = [Layer(tower) for _ in range(tower.layers)]

    def forward(self, x: Tensor, key_mask: Tensor | None = None, is_causal: bool = False) -> list[Tensor]:
        states = [x]
        for layer in self.layers:
            states.append(layer(states[-1], key_mask, is_causal))
        return states


class TextEmbeddings(nn.Module):
    """Token plus position."""

    def __init__(self, vocabulary: int, positions: int, width: int) -> None:
        self.token_embedding = nn.Embedding(vocabulary, width)
        self.position_embedding = nn.LearnedPositions(positions, width)

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.token_embedding(input_ids) + self.position_embedding(input_ids.shape[1])


class TextModel(nn.Module):
    """The text tower: (N, L) token ids to (N, width), read where the text ends."""

    def __init__(self, tower: Tower, vocabulary: int, positions: int, end: int) -> None:
        self.end = end
        self.embeddings = TextEmbeddings(vocabulary, positions, tower.width)
        self.encoder = Encoder(tower)
        self.final_layer_norm = nn.LayerNorm(tower.width, tower.eps)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        # The first published configs say 2, which never occurs; there the end of a text is its highest id.
        end = (input_ids if self.end == 2 else (input_ids == self.end).astype(lucid.int64)).argmax(1)
        x = self.hidden_states(input_ids, attention_mask)[-1]
        return self.final_layer_norm(x[lucid.arange(x.shape[0]), end])

    def hidden_states(self, input_ids: Tensor, attention_mask: Tensor | None) -> list[Tensor]:
        """What enters the first layer, and what each layer returns."""
        key_mask = None if attention_mask is None else attention_mask.astype(lucid.bool_)
        return self.encoder(self.embeddings(input_ids), key_mask, is_causal=True)


class ImageEmbeddings(nn.Module):
    """A vector for the whole image, then one for each patch, plus their positions."""

    def __init__(self, channels: int, image_size: int, patch: int, width: int) -> None:
        self.class_embedding = nn.init.normal_(nn.init.new_parameter(width))
        self.patch_embedding = nn.Conv2d(channels, width, patch, stride=patch, bias=False)
        self.position_embedding = nn.Embedding((image_size // patch) ** 2 + 1, width)

    def forward(self, pixel_values: Tensor) -> Tensor:
        patches = self.patch_embedding(pixel_values).flatten(2).mT
        whole = self.class_embedding.expand(patches.shape[0], 1, -1)
        return ops.concat([whole, patches], 1) + self.position_embedding.weight


class ImageModel(nn.Module):
    """The image tower: (N, channels, size, size) pixels to (N, width)."""

    def __init__(self, tower: Tower, channels: int, image_size: int, patch: int) -> None:
        self.embeddings = ImageEmbeddings(channels, image_size, patch, tower.width)
        self.pre_layrnorm = nn.LayerNorm(tower.width, tower.eps)  # so spelt in the checkpoints
        self.encoder = Encoder(tower)
        self.post_layernorm = nn.LayerNorm(tower.width, tower.eps)
        self.channels, self.image_size = channels, image_size

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.post_layernorm(self.hidden_states(pixel_values)[-1][:, 0])

    def hidden_states(self, pixel_values: Tensor) -> list[Tensor]:
        """What enters the first layer, and what each layer returns."""
        expected = (self.channels, self.image_size, self.image_size)
        if pixel_values.ndim != 4 or pixel_values.shape[1:] != expected:
            shape = ", ".join(map(str, pixel_values.shape))
            raise ValueError(f"CLIP: pixel_values has shape [{shape}], expected (N, {', '.join(map(str, expected))})")
        return self.encoder(self.pre_layrnorm(self.embeddings(pixel_values)))


class CLIP(nn.Module):
    """Texts and images to embeddings in one space."""

    def __init__(self, text_model: TextModel, vision_model: ImageModel, embed_dim: int) -> None:
        self.text_model, self.vision_model = text_model, vision_model
        self.text_projection = nn.Linear(text_model.final_layer_norm.normalized_shape[0], embed_dim, bias=False)
        self.visual_projection = nn.Linear(vision_model.post_layernorm.normalized_shape[0], embed_dim, bias=False)
        self.logit_scale = nn.Parameter(lucid.tensor(2.6592))  # ln(1 / 0.07)

    def forward(
        self, input_ids: Tensor, pixel_values: Tensor, attention_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Text embeddings (N, E) and image embeddings (M, E), of length 1.

        Args:
            input_ids: (N, L) int64; each text ends with the end token, behind which anything may follow.
            pixel_values: (M, channels, size, size), normalised as the checkpoint wants it.
            attention_mask: (N, L) int64, 0 where a token is padding.
        """
        texts = self.text_projection(self.text_model(input_ids, attention_mask))
        images = self.visual_projection(self.vision_model(pixel_values))
        return _unit(texts), _unit(images)

    def input_specs(self) -> Mapping[str, TensorType]:
        image = self.vision_model
        ids = lucid.spec("N", "L", dtype=lucid.int64)
        dtype = image.embeddings.patch_embedding.weight.dtype
        pixels = lucid.spec("M", image.channels, image.image_size, image.image_size, dtype=dtype)
        return {"input_ids": ids, "pixel_values": pixels, "attention_mask": ids}

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str]) -> Self:
        """A checkpoint: config.json and model.safetensors.

        Raises:
            ConfigError: for another architecture or an option that is not supported.
            KeyError: listing all weights that are missing, unexpected or of another shape.
        """
        config = Config.read(folder, "clip")
        text, vision = _section(config, "text_config"), _section(config, "vision_config")
        image_size = vision.whole("image_size", 224)
        arrays = lucid.load(folder)
        with building(folder, arrays):
            text_model = TextModel(
                Tower.read(text, 512, 2048, 12, 8),
                text.size("vocab_size", 49408),
                text.size("max_position_embeddings", 77),
                text.whole("eos_token_id", 49407, low=0),
            )
            vision_model = ImageModel(
                Tower.read(vision, 768, 3072, 12, 12),
                vision.size("num_channels", 3),
                image_size,
                vision.whole("patch_size", 32, high=image_size, why=", the size of an image"),
            )
            clip = cls(text_model, vision_model, config.size("projection_dim", 512))
        # The towers' own projection_dim is that of models of one tower alone; the others say nothing about towers.
        config.done(ignore=["projection_dim", "logit_scale_init_value", "tie_.*", "is_.*", "add_cross_attention"])
        load_into(clip, arrays, ignore=[r"\.position_ids$"])  # 0, 1, 2, ...
        return clip


def _section(config: Config, name: str) -> Config:
    """The options of one tower. Older files have some of them a second time, in an object that goes first."""
    section = config.section(name)
    section.options.update(config.get(f"{name}_dict", dict, {}))
    return section


def _unit(x: Tensor) -> Tensor:
    return x / (x * x).sum(-1, keepdims=True).sqrt()


def main() -> None:
    """Which of three images is nearest to each of two texts, by the exported model; and how far eager is from that."""
    tiny = Path(__file__).parents[1] / "tests" / "goldens" / "clip" / "quick_gelu"
    clip = CLIP.from_pretrained(sys.argv[1] if len(sys.argv) > 1 else tiny)
    session = lucid.runtime.Session(lucid.export.to_onnx(clip))
    lucid.manual_seed(0)
    end, size = clip.text_model.embeddings.token_embedding.weight.shape[0] - 1, clip.vision_model.image_size
    ids, pixels = (
        lucid.tensor([[0, 5, 8, end], [0, 9, end, end]]),
        lucid.randn(3, clip.vision_model.channels, size, size),
    )
    texts, images = session(ids, pixels, lucid.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]))
    similarity = (texts @ images.mT * clip.logit_scale.exp()).softmax()
    eager = clip(ids, pixels, lucid.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]))
    difference = max(abs(a - b).max().item() for a, b in zip((texts, images), eager, strict=True))
    for text, row in zip(ids.tolist(), similarity.tolist(), strict=True):
        print(f"text {text}: images {', '.join(f'{share:.0%}' for share in row)}")
    print(f"largest difference between exported and eager embeddings {difference:.1e}")


if __name__ == "__main__":
    main()
