"""SigLIP (Zhai et al. 2023) and SigLIP 2 (Tschannen et al. 2025): CLIP with a loss for each pair by itself.

::

    siglip = SigLIP.from_pretrained("folder with config.json and model.safetensors")
    found = siglip(input_ids, pixel_values)
    found.logits_per_image.sigmoid()                                  # (M, N): whether a text fits an image
    found.text_embeds, found.image_embeds                             # (N, E), (M, E), of length 1

Texts are padded to the length that the model was trained with, 64 tokens, and padding is read like the rest: published
tokenizers give no mask. An image is what attention with one learned query makes of its patches. Either tower can be
read and exported alone: `SigLIPTextModel`, `SigLIPVisionModel`. Of SigLIP 2 these are the models for one size of
images, whose model_type is "siglip".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import lucid
from lucid import Tensor, TensorType, nn
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import Checkpoint, Config, Pretrained
from lucid.models.parts.demonstration import SideBySide, checkpoint_folder
from lucid.models.parts.two_towers import (
    MLP,
    Encoder,
    ImageTower,
    ImageTowerConfig,
    OneTower,
    Similarities,
    TextEmbeddings,
    TextTowerConfig,
)


@dataclass(frozen=True)
class SigLIPTextConfig(TextTowerConfig):
    """The text tower; the defaults are those of SigLIP base."""

    activation: str = option.activation("hidden_act", absent="gelu_pytorch_tanh")
    projection_size: int | None = option.size("projection_size", absent=None)  # of the embeddings; None: hidden_size


@dataclass(frozen=True)
class SigLIPVisionConfig(ImageTowerConfig):
    """The image tower; the defaults are those of SigLIP base."""

    activation: str = option.activation("hidden_act", absent="gelu_pytorch_tanh")

    @classmethod
    def read(cls, options: Config) -> Self:
        """From the tower's own object in config.json."""
        options.only("vision_use_head", True)
        if options.has("num_patches"):  # of SigLIP 2 for any size of images
            raise options.wrong("num_patches", "supported: models for one size of images, which do not have it")
        return super().read(options)


@dataclass(frozen=True)
class SigLIPConfig:
    """Both towers."""

    text: SigLIPTextConfig = SigLIPTextConfig()
    vision: SigLIPVisionConfig = SigLIPVisionConfig()
    num_labels: int = 0

    @classmethod
    def read(cls, options: Config) -> Self:
        """From config.json, of both towers or of one."""
        if options.model_type == "siglip_text_model":
            return cls(text=SigLIPTextConfig.read(options))
        if options.model_type == "siglip_vision_model":
            return cls(vision=SigLIPVisionConfig.read(options))
        return cls(
            SigLIPTextConfig.read(options.section("text_config")),
            SigLIPVisionConfig.read(options.section("vision_config")),
        )


class SigLIP(Pretrained[SigLIPConfig]):
    """Texts and images to embeddings in one space, and whether each text and each image match."""

    checkpoint = Checkpoint(
        family=FAMILIES["siglip"],
        read=SigLIPConfig.read,
        ignored_options=["tie_word_embeddings"],
        ignored_keys=[r"\.position_ids$"],  # 0, 1, 2, ...
    )
    output_names: ClassVar[Sequence[str]] = Similarities._fields

    def __init__(self, config: SigLIPConfig | None = None) -> None:
        super().__init__(config := config or SigLIPConfig())
        self.text_model, self.vision_model = TextTower(config.text), PooledImageTower(config.vision)
        self.logit_scale = nn.Parameter(lucid.tensor([2.3026]))  # ln(10)
        self.logit_bias = nn.Parameter(lucid.tensor([-10.0]))

    def forward(self, input_ids: Tensor, pixel_values: Tensor, attention_mask: Tensor | None = None) -> Similarities:
        """Logits and embeddings of N texts and M images.

        Args:
            input_ids: (N, L) int64, as the checkpoint's tokenizer pads them.
            pixel_values: (M, num_channels, image_size, image_size), normalised as the checkpoint expects.
            attention_mask: (N, L) int64, 0 where a token is not to be read; the last one makes the embedding all the
                same. Not an input of an exported model, since models are trained without it.
        """
        texts, images = self.text_model(input_ids, attention_mask)[1], self.vision_model(pixel_values)[1]
        return Similarities.of(texts, images, self.logit_scale, self.logit_bias)

    def input_specs(self) -> Mapping[str, TensorType]:
        return {**self.text_model.input_specs(), **self.vision_model.input_specs("M")}


class SigLIPTextModel(OneTower[SigLIPConfig], on=SigLIP):
    """The text tower alone: (N, L) token ids to the states (N, L, E) and the embeddings (N, E), not scaled."""

    head_task, head_keys = "feature-extraction", (r"^text_model\.head\.weight$",)
    tower, unused = "text_model", r"^vision_model\.|^logit_(scale|bias)$"
    output_names = ("last_hidden_state", "pooler_output")

    def __init__(self, config: SigLIPConfig) -> None:
        super().__init__(config)
        self.text_model = TextTower(config.text)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self.text_model(input_ids, attention_mask)


class SigLIPVisionModel(OneTower[SigLIPConfig], on=SigLIP):
    """The image tower alone: pixels to the states (N, patches, E) and the embeddings (N, E), not scaled."""

    head_task, head_keys = "image-feature-extraction", (r"^vision_model\.head\.probe$",)
    tower, unused = "vision_model", r"^text_model\.|^logit_(scale|bias)$"
    output_names: ClassVar[Sequence[str]] = ("last_hidden_state", "pooler_output")

    def __init__(self, config: SigLIPConfig) -> None:
        super().__init__(config)
        self.vision_model = PooledImageTower(config.vision)

    def forward(self, pixel_values: Tensor) -> Any:
        return self.vision_model(pixel_values)


class SigLIPForImageClassification(SigLIPVisionModel, on=SigLIP):
    """Pixels to logits (N, num_labels), from the mean of the states of patches."""

    head_task, label_key, head_keys = "image-classification", r"classifier\.weight", (r"^classifier\.weight",)
    output_names = ("logits",)

    def __init__(self, config: SigLIPConfig) -> None:
        super().__init__(config)
        self.classifier = nn.Linear(config.vision.hidden_size, config.num_labels)

    def forward(self, pixel_values: Tensor) -> Any:
        return self.classifier(self.vision_model(pixel_values)[0].mean(1))


class TextTower(nn.Module):
    """(N, L) token ids to the states (N, L, hidden_size), and a linear layer on the last one, (N, E)."""

    def __init__(self, config: SigLIPTextConfig) -> None:
        self.embeddings = TextEmbeddings(config)
        self.encoder = Encoder(config)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size, config.eps)
        self.head = nn.Linear(config.hidden_size, config.projection_size or config.hidden_size)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        x = self.final_layer_norm(self.hidden_states(input_ids, attention_mask)[-1])
        return x, self.head(x[:, -1])

    def hidden_states(self, input_ids: Tensor, attention_mask: Tensor | None) -> list[Tensor]:
        """The input of the first layer, and the output of each layer."""
        key_mask = None if attention_mask is None else attention_mask != 0
        return self.encoder(self.embeddings(input_ids), key_mask)

    def input_specs(self) -> Mapping[str, TensorType]:
        return {"input_ids": lucid.spec("N", "L", dtype=lucid.int64)}


class PooledImageTower(ImageTower):
    """Pixels to the states of patches, (N, patches, hidden_size), and their pooled vector, (N, hidden_size)."""

    name = "SigLIP"

    def __init__(self, config: SigLIPVisionConfig) -> None:
        super().__init__(config, whole=False)
        self.head = AttentionPooling(config)

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        x = self.post_layernorm(self.hidden_states(pixel_values)[-1])
        return x, self.head(x)


class AttentionPooling(nn.Module):
    """One vector of many (Zhai et al. 2022): attention with a learned query, and an MLP with a residual connection."""

    def __init__(self, config: SigLIPVisionConfig) -> None:
        self.probe = nn.init.normal_(nn.init.new_parameter(1, 1, config.hidden_size))
        self.attention = nn.MultiHeadAttention(config.hidden_size, config.num_heads)
        self.layernorm = nn.LayerNorm(config.hidden_size, config.eps)
        self.mlp = MLP(config)

    def forward(self, x: Tensor) -> Tensor:
        pooled = self.attention(self.probe.expand(x.shape[0], 1, -1), x, x)
        return (pooled + self.mlp(self.layernorm(pooled)))[:, 0]


def main() -> None:
    """Compare two texts with three images by the exported model, and the exported model with the eager one."""
    siglip = SigLIP.from_pretrained(checkpoint_folder("siglip/base"))
    both = SideBySide(siglip)
    lucid.manual_seed(0)
    ids = lucid.tensor([[5, 8, 9, 1], [7, 1, 1, 1]])
    similarities = Similarities(*both(ids, lucid.randn(3, *siglip.vision_model.image_shape)))
    for text, row in zip(ids.tolist(), similarities.logits_per_text.sigmoid().tolist(), strict=True):
        print(f"text {text}: images {', '.join(f'{probability:.0%}' for probability in row)}")
    print(both.verdict("logits and embeddings"))


if __name__ == "__main__":
    main()
