"""CLIP (Radford et al. 2021): a text tower and an image tower, whose embeddings are close if text and image match.

::

    clip = CLIP.from_pretrained("folder with config.json and model.safetensors")
    found = clip(input_ids, pixel_values)
    found.logits_per_image.softmax()                                  # (M, N): how well each text fits an image
    found.text_embeds, found.image_embeds                             # (N, E), (M, E), of length 1

Either tower can be read and exported alone: `CLIPTextModel`, `CLIPVisionModel`.
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
from lucid.models.checkpoints.sentence_files import SentenceLayer
from lucid.models.parts.demonstration import SideBySide, checkpoint_folder
from lucid.models.parts.options import read_patch_size
from lucid.models.parts.sentences import OfModules, build_layers
from lucid.models.parts.text_encoders import text_specs
from lucid.models.parts.two_towers import (
    Encoder,
    ImageTower,
    ImageTowerConfig,
    OneTower,
    TextEmbeddings,
    TextTowerConfig,
)
from lucid.models.parts.two_towers import Similarities as Similarities


@dataclass(frozen=True)
class CLIPTextConfig(TextTowerConfig):
    """The text tower; the defaults are those of the first CLIP."""

    hidden_size: int = option.size("hidden_size", absent=512)
    num_heads: int = option.heads("num_attention_heads", absent=8)
    intermediate_size: int = option.size("intermediate_size", absent=2048)
    activation: str = option.activation("hidden_act", absent="quick_gelu")
    eps: float = option.real("layer_norm_eps", absent=1e-5)
    vocab_size: int = option.size("vocab_size", absent=49408)
    max_positions: int = option.size("max_position_embeddings", absent=77)
    eos_token_id: int = option.whole("eos_token_id", absent=49407, low=0)


@dataclass(frozen=True)
class CLIPVisionConfig(ImageTowerConfig):
    """The image tower; the defaults are those of the first CLIP."""

    activation: str = option.activation("hidden_act", absent="quick_gelu")
    eps: float = option.real("layer_norm_eps", absent=1e-5)
    patch_size: int = option.row(read_patch_size, "patch_size", 32, of="image_size")


@dataclass(frozen=True)
class CLIPConfig:
    """Both towers and the width of the shared embedding space."""

    text: CLIPTextConfig = CLIPTextConfig()
    vision: CLIPVisionConfig = CLIPVisionConfig()
    projection_dim: int = 512
    num_labels: int = 0
    projected: bool = True  # of one tower alone: it also has the layer to the shared space
    sentence_layers: tuple[SentenceLayer, ...] = ()  # of a sentence encoder

    @classmethod
    def read(cls, options: Config) -> Self:
        """From config.json, of both towers or of one."""
        if options.model_type == "clip_text_model":
            return cls._of_tower(options, "text_projection", text=CLIPTextConfig.read(options))
        if options.model_type == "clip_vision_model":
            return cls._of_tower(options, "visual_projection", vision=CLIPVisionConfig.read(options))
        return cls(
            CLIPTextConfig.read(_section(options, "text_config")),
            CLIPVisionConfig.read(_section(options, "vision_config")),
            options.size("projection_dim", cls.projection_dim),
        )

    @classmethod
    def _of_tower(cls, options: Config, projection: str, **tower: Any) -> Self:
        width = options.size("projection_dim", cls.projection_dim)
        return cls(**tower, projection_dim=width, projected=f"{projection}.weight" in options.weights)


def _section(options: Config, name: str) -> Config:
    """The options of one tower. Older files have a second object of them, in whose place there are only defaults."""
    section, older = options.section(name), options.get(f"{name}_dict", dict, {})
    section.options = dict(older) if options.has(f"{name}_dict") else section.options
    return section


class CLIP(Pretrained[CLIPConfig]):
    """Texts and images to embeddings in one space, and how well each text and each image match."""

    checkpoint = Checkpoint(
        family=FAMILIES["clip"],
        read=CLIPConfig.read,
        # A tower's projection_dim is for models with one tower only.
        ignored_options=["projection_dim", "logit_scale_init_value", "tie_word_embeddings"],
        ignored_keys=[r"\.position_ids$"],  # 0, 1, 2, ...
    )
    output_names: ClassVar[Sequence[str]] = Similarities._fields

    def __init__(self, config: CLIPConfig | None = None) -> None:
        super().__init__(config := config or CLIPConfig())
        text, vision, shared = config.text, config.vision, config.projection_dim
        self.text_model, self.vision_model = TextModel(text), ImageModel(vision)
        self.text_projection = nn.Linear(text.hidden_size, shared, bias=False)
        self.visual_projection = nn.Linear(vision.hidden_size, shared, bias=False)
        self.logit_scale = nn.Parameter(lucid.tensor(2.6592))  # ln(1 / 0.07)

    def forward(self, input_ids: Tensor, pixel_values: Tensor, attention_mask: Tensor | None = None) -> Similarities:
        """Logits and embeddings of N texts and M images.

        Args:
            input_ids: (N, L) int64; each text ends with the end token, after which anything may follow.
            pixel_values: (M, num_channels, image_size, image_size), normalised as the checkpoint expects.
            attention_mask: (N, L) int64, 0 where a token is padding.
        """
        texts = self.text_projection(self.text_model(input_ids, attention_mask))
        images = self.visual_projection(self.vision_model(pixel_values))
        return Similarities.of(texts, images, self.logit_scale)

    def input_specs(self) -> Mapping[str, TensorType]:
        ids = self.text_model.input_specs()
        return {"input_ids": ids["input_ids"], **self.vision_model.input_specs("M"), **ids}


_STATES = ("last_hidden_state", "pooler_output")  # of a tower without the layer to the shared space


class CLIPTextModel(OneTower[CLIPConfig], on=CLIP):
    """The text tower of CLIP alone: token ids (N, L) to embeddings (N, E), not scaled, and states (N, L, E). Without
    the projection to the shared space it gives the states, and that of the end token, (N, E).
    """

    head_task, head_keys = "feature-extraction", (r"^text_model\.final_layer_norm\.weight$",)
    tower, unused = "text_model", r"^vision_model\.|^visual_projection\.|^logit_scale$"
    output_names = ("text_embeds", "last_hidden_state")

    def __init__(self, config: CLIPConfig) -> None:
        super().__init__(config)
        self.text_model = TextModel(config.text)
        self.text_projection = _projection(config, config.text.hidden_size)
        if self.text_projection is None:
            self.output_names = _STATES  # type: ignore[misc]  # those of this tower

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        states = self.text_model.last_hidden_state(input_ids, attention_mask)
        end = self.text_model.end_state(input_ids, states)
        return (states, end) if self.text_projection is None else (self.text_projection(end), states)


class CLIPSentenceEncoder(OfModules[CLIPConfig], CLIPTextModel, on=CLIP):
    """The text tower as sentence-transformers has it: token ids (N, L) to embeddings (N, E), with the layers of its
    modules.json.
    """

    head_task = "sentence-similarity"
    output_names = ("sentence_embedding",)  # type: ignore[assignment]  # of one tower

    def __init__(self, config: CLIPConfig) -> None:
        super().__init__(config)
        self.sentence_layers = build_layers(config.sentence_layers)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        x, _ = super().forward(input_ids, attention_mask)
        for layer in self.sentence_layers.values():
            x = layer(x)
        return x


class CLIPVisionModel(OneTower[CLIPConfig], on=CLIP):
    """The image tower of CLIP alone: pixels to embeddings (N, E), not scaled, and states (N, tokens, E). Without the
    projection to the shared space it gives the states, and that of the whole image, (N, E).
    """

    head_task, head_keys = "image-feature-extraction", (r"^vision_model\.post_layernorm\.weight$",)
    tower, unused = "vision_model", r"^text_model\.|^text_projection\.|^logit_scale$"
    output_names = ("image_embeds", "last_hidden_state")

    def __init__(self, config: CLIPConfig) -> None:
        super().__init__(config)
        self.vision_model = ImageModel(config.vision)
        self.visual_projection = _projection(config, config.vision.hidden_size)
        if self.visual_projection is None:
            self.output_names = _STATES  # type: ignore[misc]  # those of this tower

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        states = self.vision_model.hidden_states(pixel_values)[-1]
        whole = self.vision_model.post_layernorm(states[:, 0])
        return (states, whole) if self.visual_projection is None else (self.visual_projection(whole), states)


def _projection(config: CLIPConfig, width: int) -> nn.Linear | None:
    """The projection of a tower to the shared space."""
    return nn.Linear(width, config.projection_dim, bias=False) if config.projected else None


class CLIPForImageClassification(OneTower[CLIPConfig], on=CLIP):
    """Pixels to logits (N, num_labels), from the mean of the states of patches."""

    head_task, label_key = "image-classification", r"classifier\.weight"
    tower, unused = "vision_model", r"^text_model\.|_projection\.|^logit_scale$"

    def __init__(self, config: CLIPConfig) -> None:
        super().__init__(config)
        self.vision_model = ImageModel(config.vision)
        self.classifier = nn.Linear(config.vision.hidden_size, config.num_labels)

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.classifier(self.vision_model.hidden_states(pixel_values)[-1][:, 1:].mean(1))


class TextModel(nn.Module):
    """The text tower: (N, L) token ids to (N, hidden_size), the state of the end token."""

    def __init__(self, config: CLIPTextConfig) -> None:
        self.eos_token_id = config.eos_token_id
        self.embeddings = TextEmbeddings(config)
        self.encoder = Encoder(config)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size, config.eps)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        # The norm is of each token alone, so one of the end token's state is enough.
        return self.final_layer_norm(self.end_state(input_ids, self.hidden_states(input_ids, attention_mask)[-1]))

    def last_hidden_state(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """The states of all tokens, (N, L, hidden_size)."""
        return self.final_layer_norm(self.hidden_states(input_ids, attention_mask)[-1])

    def end_state(self, input_ids: Tensor, states: Tensor) -> Tensor:
        """The state of the end token, (N, hidden_size)."""
        # The first published configs say 2, which never occurs; for these the end of a text is its highest id.
        eos = self.eos_token_id
        end = (input_ids if eos == 2 else (input_ids == eos).astype(lucid.int32)).argmax(1)
        return states[lucid.arange(states.shape[0]), end]

    def input_specs(self) -> Mapping[str, TensorType]:
        return text_specs()

    def hidden_states(self, input_ids: Tensor, attention_mask: Tensor | None) -> list[Tensor]:
        """The input of the first layer, and the output of each layer."""
        key_mask = None if attention_mask is None else attention_mask.astype(lucid.bool_)
        return self.encoder(self.embeddings(input_ids), key_mask, is_causal=True)


class ImageModel(ImageTower):
    """The image tower: pixels (N, num_channels, image_size, image_size) to (N, hidden_size)."""

    name = "CLIP"

    def __init__(self, config: CLIPVisionConfig) -> None:
        super().__init__(config, whole=True)
        self.pre_layrnorm = nn.LayerNorm(config.hidden_size, config.eps)  # the checkpoints' spelling

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.post_layernorm(self.hidden_states(pixel_values)[-1][:, 0])

    def embed(self, pixel_values: Tensor) -> Tensor:
        return self.pre_layrnorm(self.embeddings(pixel_values))


def main() -> None:
    """Compare two texts with three images by the exported model, and the exported model with the eager one."""
    clip = CLIP.from_pretrained(checkpoint_folder("clip/quick_gelu"))
    both = SideBySide(clip)
    lucid.manual_seed(0)
    end = clip.config.text.vocab_size - 1
    ids, mask = lucid.tensor([[0, 5, 8, end], [0, 9, end, end]]), lucid.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    similarities = Similarities(*both(ids, lucid.randn(3, *clip.vision_model.image_shape), mask))
    for text, row in zip(ids.tolist(), similarities.logits_per_text.softmax().tolist(), strict=True):
        print(f"text {text}: images {', '.join(f'{share:.0%}' for share in row)}")
    print(both.verdict("logits and embeddings"))


if __name__ == "__main__":
    main()
