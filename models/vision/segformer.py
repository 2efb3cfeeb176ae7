"""SegFormer (Xie et al. 2021): the class of each place of an image, from an encoder whose stages get coarser.

::

    segformer = SegformerForSemanticSegmentation.from_pretrained("folder with config.json and model.safetensors")
    logits = segformer(pixels)                                        # (N, 3, H, W) to (N, num_labels, H / 4, W / 4)
    lucid.export.to_onnx(segformer, path="segformer.onnx")            # any batch, any size of images

A stage cuts its input into patches that overlap. Its layers attend to fewer keys, which a strided convolution makes of
the patches, and know places by a convolution in their feed-forward networks, so there are no positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lucid import Dim, Tensor, nn, ops
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.config import Config
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import ACTIVATIONS, Checkpoint
from lucid.models.parts.demonstration import read_images
from lucid.models.parts.images import ImageClassifier, ImageModel
from lucid.models.parts.on_model import OnModel
from lucid.nn import functional as F


def _heads(options: Config, name: str, widths: tuple[int, ...]) -> tuple[int, ...]:
    """The heads of each stage, a divisor of its width."""
    heads = options.sizes(name, count=len(widths))
    if any(width % count for width, count in zip(widths, heads, strict=True)):
        raise options.wrong(name, f"expected divisors of the widths {list(widths)}")
    return heads


@dataclass(frozen=True)
class SegformerConfig(option.OptionTable):
    """The sizes of a model; the defaults are those of SegFormer B0."""

    num_channels: int = option.size("num_channels", 3)
    widths: tuple[int, ...] = option.sizes("hidden_sizes", (32, 64, 160, 256))
    depths: tuple[int, ...] = option.sizes("depths", (2, 2, 2, 2), like="widths")
    num_heads: tuple[int, ...] = option.row(_heads, "num_attention_heads", (1, 2, 5, 8), of="widths")
    reductions: tuple[int, ...] = option.sizes("sr_ratios", (8, 4, 2, 1), like="widths")
    patch_sizes: tuple[int, ...] = option.sizes("patch_sizes", (7, 3, 3, 3), like="widths")
    strides: tuple[int, ...] = option.sizes("strides", (4, 2, 2, 2), like="widths")
    mlp_ratios: tuple[int, ...] = option.sizes("mlp_ratios", (4, 4, 4, 4), like="widths")
    activation: str = option.activation("hidden_act", "gelu")
    decoder_width: int = option.size("decoder_hidden_size", 256)
    num_labels: int = 0

    @classmethod
    def read(cls, options: Config) -> SegformerConfig:
        options.only("reshape_last_stage", True)
        config = super().read(options)
        if options.whole("num_encoder_blocks") != len(config.widths):
            raise options.wrong("num_encoder_blocks", f"expected {len(config.widths)}, as many as hidden_sizes")
        return config


class Segformer(ImageModel[SegformerConfig]):
    """The encoder: (N, num_channels, H, W) to the features of the last stage, (N, width, h, w)."""

    checkpoint = Checkpoint(
        family=FAMILIES["segformer"],
        read=SegformerConfig.read,
        ignored_options=["semantic_loss_ignore_index|decoder_hidden_size"],
        renames=[(r"^segformer\.", "")],
        ignored_keys=[r"^(classifier|decode_head)\.", r"\.num_batches_tracked$"],
    )
    output_names = ("last_hidden_state",)

    def __init__(self, config: SegformerConfig | None = None) -> None:
        super().__init__(config := config or SegformerConfig())
        stages = range(len(config.widths))
        self.encoder: dict[str, list[Any]] = {
            "patch_embeddings": [PatchEmbeddings(config, stage) for stage in stages],
            "block": [[Layer(config, stage) for _ in range(config.depths[stage])] for stage in stages],
            "layer_norm": [nn.LayerNorm(width) for width in config.widths],
        }

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.stages(pixel_values)[-1]

    def stages(self, pixel_values: Tensor) -> list[Tensor]:
        """The features of each stage, (N, width, h, w)."""
        outputs, x = list[Tensor](), pixel_values
        for embed, layers, norm in zip(*self.encoder.values(), strict=True):
            x, size = embed(x)
            for layer in layers:
                x = layer(x, size)
            x = _as_image(norm(x), size)
            outputs.append(x)
        return outputs


class SegformerForImageClassification(ImageClassifier[SegformerConfig], on=Segformer):
    """The encoder and a linear layer on the mean of its features: logits (N, num_labels)."""

    def __init__(self, config: SegformerConfig) -> None:
        super().__init__(config)
        self.segformer = Segformer(config)
        self.classifier = nn.Linear(config.widths[-1], config.num_labels)

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.classifier(self.segformer(pixel_values).mean((2, 3)))


class SegformerForSemanticSegmentation(OnModel[SegformerConfig], on=Segformer):
    """The encoder and a head that joins all stages: logits (N, num_labels, h, w) of the places of the first stage."""

    head_task, label_key = "image-segmentation", r"decode_head\.classifier\.weight"

    def __init__(self, config: SegformerConfig) -> None:
        super().__init__(config)
        self.segformer = Segformer(config)
        self.decode_head = DecodeHead(config)

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.decode_head(self.segformer.stages(pixel_values))


Size2d = tuple[int | Dim, int | Dim]


def _as_image(x: Tensor, size: Size2d) -> Tensor:
    """(N, h * w, width) to (N, width, h, w)."""
    return x.mT.reshape(x.shape[0], x.shape[2], *size)


class PatchEmbeddings(nn.Module):
    """(N, channels, H, W) to a vector of each patch, (N, h * w, width), and h and w."""

    def __init__(self, config: SegformerConfig, stage: int) -> None:
        patch, width = config.patch_sizes[stage], config.widths[stage]
        channels = config.widths[stage - 1] if stage else config.num_channels
        self.proj = nn.Conv2d(channels, width, patch, stride=config.strides[stage], padding=patch // 2)
        self.layer_norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> tuple[Tensor, Size2d]:
        x = self.proj(x)
        return self.layer_norm(x.flatten(2).mT), (x.shape[2], x.shape[3])


class Layer(nn.Module):
    """Attention and a feed-forward network, each after a norm, with a residual connection."""

    def __init__(self, config: SegformerConfig, stage: int) -> None:
        width = config.widths[stage]
        self.layer_norm_1, self.layer_norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(config, stage)
        self.mlp = MLP(config, width, width * config.mlp_ratios[stage])

    def forward(self, x: Tensor, size: Size2d) -> Tensor:
        x = x + self.attention(self.layer_norm_1(x), size)
        return x + self.mlp(self.layer_norm_2(x), size)


class Attention(nn.Module):
    """Of all patches to one key for each square of patches."""

    def __init__(self, config: SegformerConfig, stage: int) -> None:
        width, every, self.num_heads = config.widths[stage], config.reductions[stage], config.num_heads[stage]
        self.self: dict[str, Any] = {part: nn.Linear(width, width) for part in ("query", "key", "value")}
        if every > 1:
            self.self |= {"sr": nn.Conv2d(width, width, every, stride=every), "layer_norm": nn.LayerNorm(width)}
        self.output = {"dense": nn.Linear(width, width)}

    def forward(self, x: Tensor, size: Size2d) -> Tensor:
        read = x
        if "sr" in self.self:
            read = self.self["layer_norm"](self.self["sr"](_as_image(x, size)).flatten(2).mT)
        query, key, value = self.self["query"](x), self.self["key"](read), self.self["value"](read)
        return self.output["dense"](ops.attention(query, key, value, heads=self.num_heads))


class MLP(nn.Module):
    """Two linear layers; between them a convolution of each feature by itself."""

    def __init__(self, config: SegformerConfig, width: int, inner: int) -> None:
        self.dense1, self.dense2 = nn.Linear(width, inner), nn.Linear(inner, width)
        self.dwconv = {"dwconv": nn.Conv2d(inner, inner, 3, padding=1, groups=inner)}
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor, size: Size2d) -> Tensor:
        x = self.dwconv["dwconv"](_as_image(self.dense1(x), size))
        return self.dense2(self.activation(x.flatten(2).mT))


class DecodeHead(nn.Module):
    """All stages, each brought to one width and to the size of the first, joined and classified."""

    def __init__(self, config: SegformerConfig) -> None:
        width = config.decoder_width
        self.linear_c = [{"proj": nn.Linear(own, width)} for own in config.widths]
        self.linear_fuse = nn.Conv2d(width * len(config.widths), width, 1, bias=False)
        self.batch_norm = nn.BatchNorm2d(width)
        self.classifier = nn.Conv2d(width, config.num_labels, 1)

    def forward(self, stages: list[Tensor]) -> Tensor:
        size, resized = (stages[0].shape[2], stages[0].shape[3]), list[Tensor]()
        for linear, x in zip(self.linear_c, stages, strict=True):
            x = _as_image(linear["proj"](x.flatten(2).mT), (x.shape[2], x.shape[3]))
            resized.append(F.interpolate(x, size, mode="bilinear", align_corners=False) if resized else x)
        return self.classifier(F.relu(self.batch_norm(self.linear_fuse(ops.concat(resized[::-1], 1)))))


if __name__ == "__main__":
    read_images(SegformerForSemanticSegmentation, "segformer/segmentation", 64, 96)
