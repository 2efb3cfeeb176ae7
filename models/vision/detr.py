"""DETR (Carion et al. 2020): the objects of an image, each with a class and a box, from a transformer on a ResNet.

::

    detr = DetrForObjectDetection.from_pretrained("folder with config.json and model.safetensors")
    logits, boxes = detr(pixels)                      # (N, 3, H, W) to (N, queries, labels + 1), (N, queries, 4)
    lucid.export.to_onnx(detr, path="detr.onnx")      # any batch, any size of images

Each of a fixed number of queries stands for an object, or for none, the last class. A box is the middle and the size of
the object, as shares of the image's width and height. The objects of an image of `height` x `width` in NumPy::

    shares = np.exp(logits[0] - logits[0].max(-1, keepdims=True))
    scores = (shares / shares.sum(-1, keepdims=True))[:, :-1]             # without the class of no object
    kept = scores.max(-1) > 0.9
    middle, size = boxes[0][kept, :2], boxes[0][kept, 2:]
    corners = np.concatenate([middle - size / 2, middle + size / 2], -1) * [width, height, width, height]
    for label, (left, top, right, bottom) in zip(scores[kept].argmax(-1), corners): ...

Modules of a backbone from timm have other names than in published checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np

import lucid
from lucid import Tensor, TensorType, nn, ops
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.config import Config
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import ACTIVATIONS, Checkpoint, Pretrained
from lucid.models.parts.demonstration import read_images
from lucid.models.parts.on_model import OnModel
from lucid.models.parts.projected_attention import ProjectedAttention
from lucid.models.vision.resnet import TIMM_DEPTHS, ResNet, ResNetConfig, timm_config, timm_renames
from lucid.nn import functional as F


def _backbone(options: Config) -> ResNetConfig:
    """A ResNet of transformers or of timm, whose last stage is read."""
    options.only("dilation", False)
    section, last = options.section("backbone_config"), "stage4"
    if not options.get("use_timm_backbone", bool, True) or options.has("backbone_config"):
        if section.get("model_type", str) == "resnet":
            config = ResNetConfig.read(section)
            last = f"stage{len(config.depths)}"
        else:
            section.only("model_type", "resnet", "timm_backbone")
            config = _of_timm(section)
    else:
        section = options.section("backbone_kwargs")
        config = _of_timm(options)
        section.only("in_chans", config.num_channels)
    section.only("output_stride", 32)
    for name, value in (("out_features", last), ("out_indices", int(last.removeprefix("stage")))):
        if section.get(name, list, [value])[-1:] != [value]:
            raise section.wrong(name, f"expected {value!r} as the last")
    return config


def _of_timm(options: Config) -> ResNetConfig:
    name = options.one_of("backbone", TIMM_DEPTHS, "resnet50")
    return timm_config(name, options.size("num_channels", 3))


@dataclass(frozen=True)
class DetrConfig(option.OptionTable):
    """The backbone and the sizes of the transformer; the defaults are those of DETR with ResNet-50."""

    backbone: ResNetConfig = field(default_factory=ResNetConfig)
    hidden_size: int = option.size("d_model", 256)
    num_queries: int = option.size("num_queries", 100)
    encoder_layers: int = option.layers("encoder_layers", 6, within="encoder.layers.")
    encoder_heads: int = option.heads("encoder_attention_heads", 8)
    encoder_width: int = option.size("encoder_ffn_dim", 2048)
    decoder_layers: int = option.layers("decoder_layers", 6, within="decoder.layers.")
    decoder_heads: int = option.heads("decoder_attention_heads", 8)
    decoder_width: int = option.size("decoder_ffn_dim", 2048)
    activation: str = option.activation("activation_function", "relu")
    num_labels: int = 0  # with that of no object

    @classmethod
    def read(cls, options: Config) -> DetrConfig:
        options.only("position_embedding_type", "sine")
        options.only("auxiliary_loss", False)  # which norms the states between layers
        config = cls.from_rows(options, backbone=_backbone(options))
        if config.hidden_size % 4:
            raise options.wrong("d_model", "expected a multiple of 4: sines and cosines of rows and of columns")
        return config


class Places(NamedTuple):
    """An image as the encoder sees it: a place for each 32 x 32 pixels, h rows of w."""

    stages: list[Tensor]  # the features of the backbone's stages
    features: Tensor  # those of the last in the width of the transformer, (N, E, h, w)
    states: Tensor  # what the encoder makes of them, (N, h * w, E)
    positions: Tensor  # (N, h * w, E)
    kept: Tensor  # (N, h * w), false for padding


class Detr(Pretrained[DetrConfig]):
    """Images (N, num_channels, H, W) to the states of the queries (N, queries, E) and of the places (N, h * w, E)."""

    checkpoint = Checkpoint(
        family=FAMILIES["detr"],
        read=DetrConfig.read,
        ignored_options=[
            "use_pretrained_backbone|backbone_kwargs|freeze_batch_norm_2d|features_only|stage_names",
        ],
        renames=[(r"^(detr\.)?model\.", ""), *timm_renames(r"^backbone\.conv_encoder\.model\.")],
        ignored_keys=[
            r"^(detr\.)?(class_labels_classifier|bbox_predictor|mask_head|bbox_attention)\.",
            r"\.num_batches_tracked$",
        ],
    )
    output_names: ClassVar[Sequence[str]] = ("last_hidden_state", "encoder_last_hidden_state")

    def __init__(self, config: DetrConfig | None = None) -> None:
        super().__init__(config := config or DetrConfig())
        width = config.hidden_size
        self.backbone = {"conv_encoder": {"model": ResNet(config.backbone)}}
        self.input_projection = nn.Conv2d(config.backbone.hidden_sizes[-1], width, 1)
        self.query_position_embeddings = Queries(config.num_queries, width)
        sizes = (width, config.encoder_heads, config.encoder_width, config.activation)
        self.encoder: dict[str, Any] = {"layers": [EncoderLayer(*sizes) for _ in range(config.encoder_layers)]}
        self.decoder: dict[str, Any] = {
            "layers": [DecoderLayer(config) for _ in range(config.decoder_layers)],
            "layernorm": nn.LayerNorm(width),
        }

    def forward(self, pixel_values: Tensor, pixel_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The states of queries and places.

        Args:
            pixel_values: (N, num_channels, H, W); smaller images of a batch are padded with 0 below and to the right.
            pixel_mask: int64, 0 for padding, of any size (N, P, Q) that stands for the image; by default none is.
        """
        image = self.encode(pixel_values, pixel_mask)
        return self.decode(image), image.states

    def encode(self, pixel_values: Tensor, pixel_mask: Tensor | None = None) -> Places:
        """The inputs of the decoder and of the masks."""
        stages = self.backbone["conv_encoder"]["model"].stages(pixel_values)
        features = self.input_projection(stages[-1])
        n, _, *size = features.shape
        if pixel_mask is None:
            pixel_mask = lucid.ones(n, *size, dtype=lucid.int64)
        mask = ops.interpolate((pixel_mask != 0).astype(features.dtype).unsqueeze(1), size)[:, 0]
        positions, kept = sines(mask, self.config.hidden_size).flatten(1, 2), mask.flatten(1) != 0
        x = features.flatten(2).mT
        for layer in self.encoder["layers"]:
            x = layer(x, positions, kept)
        return Places(stages, features, x, positions, kept)

    def decode(self, image: Places) -> Tensor:
        """The states of the queries."""
        queries = self.query_position_embeddings.weight
        y = lucid.zeros(image.states.shape[0], *queries.shape, dtype=queries.dtype)
        for layer in self.decoder["layers"]:
            y = layer(y, queries, image)
        states: Tensor = self.decoder["layernorm"](y)
        return states

    def input_specs(self) -> Mapping[str, TensorType]:
        mask = lucid.spec("N", "mask_height", "mask_width", dtype=lucid.int64)
        return {**self.backbone["conv_encoder"]["model"].input_specs(), "pixel_mask": mask}


class DetrForObjectDetection(OnModel[DetrConfig], on=Detr):
    """Images to logits (N, queries, labels + 1), the last of no object, and boxes (N, queries, 4)."""

    head_task, label_key = "object-detection", r"(?:detr\.)?class_labels_classifier\.weight"
    head_renames = ((r"^detr\.", ""), *timm_renames(r"^model\.backbone\.conv_encoder\.model\."))
    output_names: ClassVar[Sequence[str]] = ("logits", "pred_boxes")

    def __init__(self, config: DetrConfig) -> None:
        super().__init__(config)
        self.model = Detr(config)
        self.class_labels_classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.bbox_predictor = Perceptron(config.hidden_size, config.hidden_size, 4, 3)

    def forward(self, pixel_values: Tensor, pixel_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As for `Detr`."""
        return self.found(self.model(pixel_values, pixel_mask)[0])

    def found(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and boxes from the states of queries."""
        return self.class_labels_classifier(x), self.bbox_predictor(x).sigmoid()


class DetrForSegmentation(OnModel[DetrConfig], on=Detr):
    """Images to the logits and boxes of `DetrForObjectDetection`, and masks (N, queries, H / 4, W / 4) as logits."""

    head_task, label_key = "image-segmentation", r"detr\.class_labels_classifier\.weight"
    head_keys, head_renames = (r"^mask_head\.",), timm_renames(r"^detr\.model\.backbone\.conv_encoder\.model\.")
    output_names: ClassVar[Sequence[str]] = ("logits", "pred_boxes", "pred_masks")

    def __init__(self, config: DetrConfig) -> None:
        super().__init__(config)
        width, heads, finer = config.hidden_size, config.encoder_heads, config.backbone.hidden_sizes[-2::-1]
        self.detr = DetrForObjectDetection(config)
        self.bbox_attention = {part: nn.Linear(width, width) for part in ("q_linear", "k_linear")}
        self.mask_head: dict[str, nn.Module] = {}
        widths = [width + heads, width + heads, *(width // 2**i for i in range(1, len(finer) + 2))]
        for i, (before, after) in enumerate(pairwise(widths), start=1):
            self.mask_head |= {f"lay{i}": nn.Conv2d(before, after, 3, padding=1)}
            self.mask_head |= {f"gn{i}": nn.GroupNorm(min(8, after), after)}
        for i, channels in enumerate(finer):
            self.mask_head[f"adapter{i + 1}"] = nn.Conv2d(channels, widths[i + 2], 1)
        self.mask_head["out_lay"] = nn.Conv2d(widths[-1], 1, 3, padding=1)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, pixel_values: Tensor, pixel_mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """As for `Detr`."""
        image = self.detr.model.encode(pixel_values, pixel_mask)
        y = self.detr.model.decode(image)
        return *self.detr.found(y), self.masks(image, self.shares(y, image))

    def shares(self, y: Tensor, image: Places) -> Tensor:
        """The attention of each query to each place in each head, (N, queries, heads, h * w); all add up to 1."""
        q, k = (linear(x) for linear, x in zip(self.bbox_attention.values(), (y, image.states), strict=True))
        n, heads = y.shape[0], self.config.encoder_heads
        width = self.config.hidden_size // heads
        q, k = (x.reshape(n, x.shape[1], heads, width).transpose(1, 2) for x in (q, k))
        scores = ((q * width**-0.5) @ k.mT).transpose(1, 2)
        lowest = lucid.finfo(scores.dtype).min  # not -inf, of which an image that is all padding would give NaN
        scores = ops.where(image.kept.unsqueeze(1).unsqueeze(1), scores, lowest)
        return scores.flatten(2).softmax(-1).reshape(*scores.shape)

    def masks(self, image: Places, shares: Tensor) -> Tensor:
        """(N, queries, H / 4, W / 4) from features and shares, by convolutions that finer and finer stages join."""
        n, queries, heads, _ = shares.shape
        _, width, *size = image.features.shape
        features = image.features.unsqueeze(1).expand(n, queries, width, *size)
        x = self._convolve(1, ops.concat([features, shares.reshape(n, queries, heads, *size)], 2).flatten(0, 1))
        x = self._convolve(2, x)
        for i, stage in enumerate(image.stages[-2::-1], start=1):
            finer = self.mask_head[f"adapter{i}"](stage).unsqueeze(1)
            x = ops.interpolate(x, finer.shape[3:]).reshape(n, queries, *finer.shape[2:]) + finer
            x = self._convolve(i + 2, x.flatten(0, 1))
        masks: Tensor = self.mask_head["out_lay"](x)
        return masks.reshape(n, queries, *masks.shape[2:])

    def _convolve(self, index: int, x: Tensor) -> Tensor:
        return self.activation(self.mask_head[f"gn{index}"](self.mask_head[f"lay{index}"](x)))


def sines(mask: Tensor, width: int) -> Tensor:
    """The positions of places, (N, h, w, width): row, then column, each as a share of the kept ones."""
    frequencies = lucid.tensor((10000.0 ** -(np.arange(width // 4) * 4 / width)).astype(np.float32))
    kept, waves = mask.astype(lucid.float32), list[Tensor]()
    for axis in (1, 2):
        number = ops.cumsum(kept, axis=axis)
        last = number[:, -1:] if axis == 1 else number[:, :, -1:]
        angle = (number / (last + 1e-6) * (2 * math.pi)).unsqueeze(-1) * frequencies
        waves.append(ops.stack([angle.sin(), angle.cos()], -1).flatten(3))
    return ops.concat(waves, -1).astype(mask.dtype)


class Queries(nn.Module):
    """A learned vector for each query."""

    def __init__(self, queries: int, width: int) -> None:
        self.weight = nn.init.normal_(nn.init.new_parameter(queries, width))


class EncoderLayer(nn.Module):
    """Attention of places and a feed-forward network, each with a residual connection and then a norm."""

    def __init__(self, width: int, heads: int, inner: int, activation: str, eps: float = 1e-5) -> None:
        self.self_attn = ProjectedAttention(width, heads)
        self.self_attn_layer_norm, self.final_layer_norm = nn.LayerNorm(width, eps), nn.LayerNorm(width, eps)
        self.fc1, self.fc2 = nn.Linear(width, inner), nn.Linear(inner, width)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor, positions: Tensor, kept: Tensor | None = None) -> Tensor:
        placed = x + positions
        return self.transform(self.self_attn_layer_norm(x + self.self_attn(placed, placed, x, kept)))

    def transform(self, x: Tensor) -> Tensor:
        """The feed-forward network."""
        return self.final_layer_norm(x + self.fc2(self.activation(self.fc1(x))))


class DecoderLayer(EncoderLayer):
    """The same of queries, which also attend to places in between."""

    def __init__(self, c: DetrConfig) -> None:
        super().__init__(c.hidden_size, c.decoder_heads, c.decoder_width, c.activation)
        self.encoder_attn = ProjectedAttention(c.hidden_size, c.decoder_heads)
        self.encoder_attn_layer_norm = nn.LayerNorm(c.hidden_size)

    def forward(self, y: Tensor, queries: Tensor, image: Places) -> Tensor:  # type: ignore[override]
        placed, x = y + queries, image.states
        y = self.self_attn_layer_norm(y + self.self_attn(placed, placed, y))
        read = self.encoder_attn(y + queries, x + image.positions, x, image.kept)
        return self.transform(self.encoder_attn_layer_norm(y + read))


class Perceptron(nn.Module):
    """Linear layers, and a ReLU between any two."""

    def __init__(self, read: int, inner: int, width: int, layers: int) -> None:
        sizes = [read, *[inner] * (layers - 1), width]
        self.layers = [nn.Linear(before, after) for before, after in pairwise(sizes)]

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)


if __name__ == "__main__":
    read_images(DetrForObjectDetection, "detr/objects", 64, 96)
