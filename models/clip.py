"""CLIP (Radford et al. 2021): a text tower and an image tower, whose embeddings are close if text and image match.

::

    clip = CLIP.from_pretrained("folder with config.json and model.safetensors")
    texts, images = clip(input_ids, pixel_values)                     # (N, E), (M, E), of length 1
    similarity = texts @ images.mT * clip.logit_scale.exp()           # (N, M); softmax over texts or images
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import lucid
from lucid import Tensor, TensorType, nn, ops
from lucid.models._demonstration import SideBySide, checkpoint_folder
from lucid.models._pretrained import ACTIVATIONS, Checkpoint, Config, Pretrained


@dataclass(frozen=True)
class CLIPTowerConfig:
    """The sizes of the transformer of one tower."""

    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    activation: str = "quick_gelu"
    eps: float = 1e-5


Tower = CLIPTowerConfig  # former name


@dataclass(frozen=True)
class CLIPTextConfig(CLIPTowerConfig):
    """The text tower; the defaults are those of the first CLIP."""

    hidden_size: int = 512
    num_layers: int = 12
    num_heads: int = 8
    intermediate_size: int = 2048
    vocab_size: int = 49408
    max_positions: int = 77
    eos_token_id: int = 49407

    @classmethod
    def read(cls, options: Config) -> Self:
        """From the tower's own object in config.json; published files leave out what is as in the first CLIP."""
        return cls(
            **_tower(options, cls),
            vocab_size=options.size("vocab_size", cls.vocab_size),
            max_positions=options.size("max_position_embeddings", cls.max_positions),
            eos_token_id=options.whole("eos_token_id", cls.eos_token_id, low=0),
        )


@dataclass(frozen=True)
class CLIPVisionConfig(CLIPTowerConfig):
    """The image tower; the defaults are those of the first CLIP."""

    hidden_size: int = 768
    num_layers: int = 12
    num_heads: int = 12
    intermediate_size: int = 3072
    num_channels: int = 3
    image_size: int = 224
    patch_size: int = 32

    @classmethod
    def read(cls, options: Config) -> Self:
        """From the tower's own object in config.json; published files leave out what is as in the first CLIP."""
        image_size = options.whole("image_size", cls.image_size)
        return cls(
            **_tower(options, cls),
            num_channels=options.size("num_channels", cls.num_channels),
            image_size=image_size,
            patch_size=options.whole("patch_size", cls.patch_size, high=image_size, why=", the size of an image"),
        )


@dataclass(frozen=True)
class CLIPConfig:
    """Both towers and the width of the shared embedding space."""

    text: CLIPTextConfig = CLIPTextConfig()
    vision: CLIPVisionConfig = CLIPVisionConfig()
    projection_dim: int = 512

    @classmethod
    def read(cls, options: Config) -> Self:
        """From config.json."""
        return cls(
            CLIPTextConfig.read(_section(options, "text_config")),
            CLIPVisionConfig.read(_section(options, "vision_config")),
            options.size("projection_dim", cls.projection_dim),
        )


def _tower(options: Config, usual: type[CLIPTextConfig | CLIPVisionConfig]) -> dict[str, Any]:
    """The sizes that both towers have."""
    width = options.size("hidden_size", usual.hidden_size)
    return {
        "hidden_size": width,
        "num_layers": options.layers("num_hidden_layers", usual.num_layers),
        "num_heads": options.heads("num_attention_heads", width, usual.num_heads),
        "intermediate_size": options.size("intermediate_size", usual.intermediate_size),
        "activation": options.activation("hidden_act", usual.activation),
        "eps": options.real("layer_norm_eps", usual.eps),
    }


def _section(options: Config, name: str) -> Config:
    """The options of one tower. Older files repeat some of them in a second object, which takes precedence."""
    section = options.section(name)
    section.options.update(options.get(f"{name}_dict", dict, {}))
    return section


class CLIP(Pretrained[CLIPConfig]):
    """Texts and images to embeddings in one space."""

    checkpoint = Checkpoint(
        model_types=("clip",),
        read=CLIPConfig.read,
        # A tower's projection_dim is for models with one tower only; the others have no effect on towers.
        ignored_options=["projection_dim", "logit_scale_init_value", "tie_.*", "is_.*", "add_cross_attention"],
        ignored_keys=[r"\.position_ids$"],  # 0, 1, 2, ...
        task="zero-shot-image-classification",
    )
    output_names = ("text_embeds", "image_embeds")

    def __init__(self, config: CLIPConfig | None = None) -> None:
        super().__init__(config := config or CLIPConfig())
        text, vision, shared = config.text, config.vision, config.projection_dim
        self.text_model, self.vision_model = TextModel(text), ImageModel(vision)
        self.text_projection = nn.Linear(text.hidden_size, shared, bias=False)
        self.visual_projection = nn.Linear(vision.hidden_size, shared, bias=False)
        self.logit_scale = nn.Parameter(lucid.tensor(2.6592))  # ln(1 / 0.07)

    def forward(
        self, input_ids: Tensor, pixel_values: Tensor, attention_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Text embeddings (N, E) and image embeddings (M, E), of length 1.

        Args:
            input_ids: (N, L) int64; each text ends with the end token, after which anything may follow.
            pixel_values: (M, num_channels, image_size, image_size), normalised as the checkpoint expects.
            attention_mask: (N, L) int64, 0 where a token is padding.
        """
        texts = self.text_projection(self.text_model(input_ids, attention_mask))
        images = self.visual_projection(self.vision_model(pixel_values))
        return _unit(texts), _unit(images)

    def input_specs(self) -> Mapping[str, TensorType]:
        ids = lucid.spec("N", "L", dtype=lucid.int64)
        dtype = self.vision_model.embeddings.patch_embedding.weight.dtype
        pixels = lucid.spec("M", *self.vision_model.image_shape, dtype=dtype)
        return {"input_ids": ids, "pixel_values": pixels, "attention_mask": ids}


def _unit(x: Tensor) -> Tensor:
    return x / (x * x).sum(-1, keepdims=True).sqrt()


class TextModel(nn.Module):
    """The text tower: (N, L) token ids to (N, hidden_size), the state of the end token."""

    def __init__(self, config: CLIPTextConfig) -> None:
        self.eos_token_id = config.eos_token_id
        self.embeddings = TextEmbeddings(config)
        self.encoder = Encoder(config)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size, config.eps)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        # The first published configs say 2, which never occurs; for these the end of a text is its highest id.
        eos = self.eos_token_id
        end = (input_ids if eos == 2 else (input_ids == eos).astype(lucid.int64)).argmax(1)
        x = self.hidden_states(input_ids, attention_mask)[-1]
        return self.final_layer_norm(x[lucid.arange(x.shape[0]), end])

    def hidden_states(self, input_ids: Tensor, attention_mask: Tensor | None) -> list[Tensor]:
        """The input of the first layer, and the output of each layer."""
        key_mask = None if attention_mask is None else attention_mask.astype(lucid.bool_)
        return self.encoder(self.embeddings(input_ids), key_mask, is_causal=True)


class TextEmbeddings(nn.Module):
    """Token plus position."""

    def __init__(self, config: CLIPTextConfig) -> None:
        self.token_embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embedding = nn.LearnedPositions(config.max_positions, config.hidden_size)

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.token_embedding(input_ids) + self.position_embedding(input_ids.shape[1])


class ImageModel(nn.Module):
    """The image tower: pixels (N, num_channels, image_size, image_size) to (N, hidden_size)."""

    def __init__(self, config: CLIPVisionConfig) -> None:
        self.embeddings = ImageEmbeddings(config)
        self.pre_layrnorm = nn.LayerNorm(config.hidden_size, config.eps)  # the checkpoints' spelling
        self.encoder = Encoder(config)
        self.post_layernorm = nn.LayerNorm(config.hidden_size, config.eps)
        self.image_shape = (config.num_channels, config.image_size, config.image_size)

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.post_layernorm(self.hidden_states(pixel_values)[-1][:, 0])

    def hidden_states(self, pixel_values: Tensor) -> list[Tensor]:
        """The input of the first layer, and the output of each layer."""
        if pixel_values.ndim != 4 or pixel_values.shape[1:] != self.image_shape:
            given, expected = (", ".join(map(str, sizes)) for sizes in (pixel_values.shape, self.image_shape))
            raise ValueError(f"CLIP: pixel_values has shape [{given}], expected (N, {expected})")
        return self.encoder(self.pre_layrnorm(self.embeddings(pixel_values)))


class ImageEmbeddings(nn.Module):
    """A vector for the whole image, then one for each patch, plus their positions."""

    def __init__(self, config: CLIPVisionConfig) -> None:
        width, patch = config.hidden_size, config.patch_size
        self.class_embedding = nn.init.normal_(nn.init.new_parameter(width))
        self.patch_embedding = nn.Conv2d(config.num_channels, width, patch, stride=patch, bias=False)
        self.position_embedding = nn.Embedding((config.image_size // patch) ** 2 + 1, width)

    def forward(self, pixel_values: Tensor) -> Tensor:
        patches = self.patch_embedding(pixel_values).flatten(2).mT
        whole = self.class_embedding.expand(patches.shape[0], 1, -1)
        return ops.concat([whole, patches], 1) + self.position_embedding.weight[:]


class Encoder(nn.Module):
    """The layers of a tower: (N, L, hidden_size) to the list of the input and the output of each layer."""

    def __init__(self, tower: CLIPTowerConfig) -> None:
        self.layers = [Layer(tower) for _ in range(tower.num_layers)]

    def forward(self, x: Tensor, key_mask: Tensor | None = None, is_causal: bool = False) -> list[Tensor]:
        states = [x]
        for layer in self.layers:
            states.append(layer(states[-1], key_mask, is_causal))
        return states


class Layer(nn.Module):
    """Attention, then the MLP, each after its norm, with a residual connection."""

    def __init__(self, tower: CLIPTowerConfig) -> None:
        self.layer_norm1, self.layer_norm2 = (nn.LayerNorm(tower.hidden_size, tower.eps) for _ in range(2))
        self.self_attn, self.mlp = Attention(tower), MLP(tower)

    def forward(self, x: Tensor, key_mask: Tensor | None, is_causal: bool) -> Tensor:
        x = x + self.self_attn(self.layer_norm1(x), key_mask, is_causal)
        return x + self.mlp(self.layer_norm2(x))


class Attention(nn.Module):
    """Self-attention."""

    def __init__(self, tower: CLIPTowerConfig) -> None:
        width, self.num_heads = tower.hidden_size, tower.num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, key_mask: Tensor | None, is_causal: bool) -> Tensor:
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        return self.out_proj(ops.attention(q, k, v, None, key_mask, heads=self.num_heads, is_causal=is_causal))


class MLP(nn.Module):
    """Two linear layers."""

    def __init__(self, tower: CLIPTowerConfig) -> None:
        width, inner = tower.hidden_size, tower.intermediate_size
        self.fc1, self.fc2 = nn.Linear(width, inner), nn.Linear(inner, width)
        self.activation = ACTIVATIONS[tower.activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.activation(self.fc1(x)))


def main() -> None:
    """Compare two texts with three images by the exported model, and the exported model with the eager one."""
    clip = CLIP.from_pretrained(checkpoint_folder("clip/quick_gelu"))
    both = SideBySide(clip)
    lucid.manual_seed(0)
    end = clip.config.text.vocab_size - 1
    ids, mask = lucid.tensor([[0, 5, 8, end], [0, 9, end, end]]), lucid.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    texts, images = both(ids, lucid.randn(3, *clip.vision_model.image_shape), mask)
    similarity = (texts @ images.mT * clip.logit_scale.exp()).softmax()
    for text, row in zip(ids.tolist(), similarity.tolist(), strict=True):
        print(f"text {text}: images {', '.join(f'{share:.0%}' for share in row)}")
    print(both.verdict("embeddings"))


if __name__ == "__main__":
    main()
