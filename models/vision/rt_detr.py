"""RT-DETR (Zhao et al. 2024) and its second version (Lv et al. 2024): a fast DETR, which attends to few places.

::

    model = RTDetrForObjectDetection.from_pretrained("folder with config.json and model.safetensors")
    logits, boxes = model(pixels)                     # (N, 3, H, W) to (N, queries, labels), (N, queries, 4)
    lucid.export.to_onnx(model, path="rt_detr.onnx")  # any batch, any size of images

Three stages of a ResNet are joined from coarse to fine and back. The places that look most like objects become the
queries; in each layer a query reads a few points around its box (Zhu et al. 2021, "Deformable DETR") and moves the box.
The objects of an image of `height` x `width` in NumPy, where each label of a query is a guess of its own::

    scores = 1 / (1 + np.exp(-logits[0]))
    queries, labels = np.nonzero(scores > 0.5)
    middle, size = boxes[0][queries, :2], boxes[0][queries, 2:]
    corners = np.concatenate([middle - size / 2, middle + size / 2], -1) * [width, height, width, height]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

import lucid
from lucid import Size, Tensor, TensorType, nn, ops
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.config import Config
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.labels import reading_labels
from lucid.models.checkpoints.pretrained import ACTIVATIONS, Checkpoint, Pretrained
from lucid.models.parts.demonstration import read_images
from lucid.models.vision.detr import EncoderLayer, Perceptron
from lucid.models.vision.resnet import FrozenNorm, ResNet, ResNetConfig


@dataclass(frozen=True)
class RTDetrConfig(option.OptionTable):
    """The backbone and the sizes of encoder and decoder; the defaults are those of RT-DETR with ResNet-50."""

    backbone: ResNetConfig = field(default_factory=lambda: ResNetConfig(deep=True))
    levels: int = 3  # the last stages of the backbone, which are read
    encoded: tuple[int, ...] = (2,)  # the levels whose places attend to each other
    encoder_size: int = option.size("encoder_hidden_dim", 256)
    encoder_layers: int = option.layers("encoder_layers", 1, within="encoder.encoder.0.layers.")
    encoder_heads: int = option.heads("encoder_attention_heads", 8, of="encoder_size")
    encoder_width: int = option.size("encoder_ffn_dim", 1024)
    encoder_activation: str = option.activation("encoder_activation_function", "gelu")
    temperature: float = option.real("positional_encoding_temperature", 10000.0, low=1.0)
    expansion: float = option.real("hidden_expansion", 1.0, low=1e-3, high=16.0)  # of the width between convolutions
    activation: str = option.activation("activation_function", "silu")
    batch_norm_eps: float = option.real("batch_norm_eps", 1e-5)
    eps: float = option.real("layer_norm_eps", 1e-5)
    hidden_size: int = option.size("d_model", 256)
    num_queries: int = option.size("num_queries", 300)
    decoder_layers: int = option.layers("decoder_layers", 6, within="decoder.layers.")
    decoder_heads: int = option.heads("decoder_attention_heads", 8)
    decoder_width: int = option.size("decoder_ffn_dim", 1024)
    decoder_activation: str = option.activation("decoder_activation_function", "relu")
    points: int = option.size("decoder_n_points", 4)  # that a head reads of each level
    offset_scale: float = 0.5  # how far points are from the middle of a box, in its sizes
    stored_scales: bool = False  # whether each point has a number for that too, as in version 2
    num_labels: int = 0

    @classmethod
    def read(cls, options: Config) -> RTDetrConfig:
        section = options.section("backbone_config")
        section.only("model_type", "rt_detr_resnet")
        backbone = ResNetConfig.from_rows(section, deep=True)
        stages, levels = len(backbone.depths), len(options.get("decoder_in_channels", list))
        read = list(range(stages - levels + 1, stages + 1))
        section.only("out_indices", read)
        section.only("out_features", [f"stage{stage}" for stage in read])
        if not section.has("out_indices") and not section.has("out_features") and section.options:
            raise section.wrong("out_indices", f"expected {read}")
        for name, value in (("learn_initial_query", False), ("normalize_before", False), ("anchor_image_size", None)):
            options.only(name, value)
        options.only("eval_size", None)
        options.only("num_feature_levels", levels)
        encoded = options.get("encode_proj_layers", list)
        if any(type(level) is not int or not 0 <= level < levels for level in encoded):
            raise options.wrong("encode_proj_layers", f"expected levels from 0 to {levels - 1}")
        config = cls.from_rows(options, backbone=backbone, levels=levels, encoded=tuple(encoded))
        for name in ("encoder_in_channels", "decoder_in_channels"):
            widths = list(backbone.hidden_sizes[-levels:]) if name[0] == "e" else [config.encoder_size] * levels
            if options.get(name, list) != widths:
                raise options.wrong(name, f"expected {widths}")
        if options.model_type == "rt_detr_v2":
            options.only("decoder_method", "default")
            options.only("decoder_n_levels", levels)
            return replace(config, offset_scale=options.real("decoder_offset_scale"), stored_scales=True)
        return config


class RTDetrForObjectDetection(Pretrained[RTDetrConfig]):
    """Images (N, num_channels, H, W) to logits (N, queries, labels) and boxes (N, queries, 4).

    A box is the middle and the size of an object, as shares of the image's width and height. Images must have as many
    places as there are queries: with 300 of them 128 x 128 pixels are too few.
    """

    checkpoint = Checkpoint(
        family=FAMILIES["rt_detr"],
        read=reading_labels(RTDetrConfig.read, r"model\.enc_score_head\.weight"),
        ignored_options=[
            "auxiliary_loss|num_denoising|label_noise_ratio|box_noise_scale|matcher_.*|focal_loss_.*|weight_loss_.*",
            "use_focal_loss|eos_coefficient|initializer_.*|disable_custom_kernels|with_box_refine|feat_strides",
            "freeze_backbone_batch_norms|backbone|use_timm_backbone|use_pretrained_backbone|backbone_kwargs|stage_names",
        ],
        # Heads of all but the last layer are for training; others are stored twice.
        ignored_keys=[
            r"^(class|bbox)_embed\.|^model\.decoder\.class_embed\.|^model\.denoising_class_embed\.",
            r"\.num_batches_tracked$",
        ],
        head="object-detection",
        head_keys=[r"^model\.enc_score_head\.weight"],
    )
    output_names: ClassVar[Sequence[str]] = ("logits", "pred_boxes")

    def __init__(self, config: RTDetrConfig) -> None:
        super().__init__(config)
        self.model = RTDetr(config)

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        return self.model(pixel_values)

    def input_specs(self) -> Mapping[str, TensorType]:
        return self.model.backbone["model"].input_specs()


class RTDetr(nn.Module):
    """Backbone, encoder, and the decoder with its heads."""

    def __init__(self, c: RTDetrConfig) -> None:
        self.num_queries, width = c.num_queries, c.hidden_size
        self.backbone = {"model": ResNet(c.backbone)}
        read = c.backbone.hidden_sizes[-c.levels :]
        self.encoder_input_proj = [
            [nn.Conv2d(n, c.encoder_size, 1, bias=False), FrozenNorm(c.encoder_size)] for n in read
        ]
        self.encoder = Encoder(c)
        self.enc_output = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width, c.eps))
        self.enc_score_head, self.enc_bbox_head = nn.Linear(width, c.num_labels), Perceptron(width, width, 4, 3)
        self.decoder_input_proj = [
            [nn.Conv2d(c.encoder_size, width, 1, bias=False), FrozenNorm(width, c.batch_norm_eps)] for _ in read
        ]
        self.decoder = Decoder(c)

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        stages = self.backbone["model"].stages(pixel_values)[-len(self.encoder_input_proj) :]
        images = [norm(conv(x)) for (conv, norm), x in zip(self.encoder_input_proj, stages, strict=True)]
        images = self.encoder(images)
        images = [norm(conv(x)) for (conv, norm), x in zip(self.decoder_input_proj, images, strict=True)]
        places = Places([(x.shape[2], x.shape[3]) for x in images])
        x = ops.concat([image.flatten(2).mT for image in images], 1)
        anchors, valid = places.anchors()
        states = self.enc_output(ops.where(valid, x, 0.0))
        best = ops.topk(self.enc_score_head(states).max(-1).values, self.num_queries, axis=1).indices
        y = ops.take_along(states, best.unsqueeze(2), axis=1)
        boxes = self.enc_bbox_head(y) + ops.take(anchors, best, 0).astype(y.dtype)
        return self.decoder(y, boxes, x, places)


class Places:
    """The places of images of several sizes, one after the other, the rows of each from above: S in all."""

    def __init__(self, sizes: Sequence[tuple[Size, Size]]) -> None:
        self.sizes = sizes

    def anchors(self) -> tuple[Tensor, Tensor]:
        """The logits of a box in the middle of each place, (S, 4), and whether it is well inside the image, (S, 1)."""
        levels = list[Tensor]()
        for level, (height, width) in enumerate(self.sizes):
            rows, columns = ((lucid.arange(n).astype("float32") + 0.5) / lucid.tensor(n) for n in (height, width))
            shape = (height, width)
            middle = [columns.unsqueeze(0).expand(*shape), rows.unsqueeze(1).expand(*shape)]
            side = ops.full_like(middle[0], 0.05 * 2.0**level)
            levels.append(ops.stack([*middle, side, side], -1).reshape(height * width, 4))
        boxes = ops.concat(levels, 0)
        valid = ((boxes > 0.01) & (boxes < 0.99)).all(1, keepdims=True)
        return ops.where(valid, ops.log(boxes / (1 - boxes)), float(np.finfo(np.float32).max)), valid

    def layout(self) -> tuple[Tensor, Tensor, Tensor]:
        """The height and the width of each image, and its first place, (levels, 1) each."""
        firsts: list[Size] = [0]
        for height, width in self.sizes:
            firsts.append(firsts[-1] + height * width)
        heights, widths = zip(*self.sizes, strict=True)
        rows, columns, starts = (lucid.tensor(list(row)) for row in (heights, widths, firsts[:-1]))
        return rows.unsqueeze(1), columns.unsqueeze(1), starts.unsqueeze(1)


class ConvNorm(nn.Module):
    """A convolution, a norm, and the activation if there is one: (N, C, H, W) to the same size, or half of it."""

    def __init__(
        self, c: RTDetrConfig, read: int, width: int, kernel: int, stride: int = 1, plain: bool = False
    ) -> None:
        self.conv = nn.Conv2d(read, width, kernel, stride=stride, padding=(kernel - 1) // 2, bias=False)
        self.norm = FrozenNorm(width, c.batch_norm_eps)
        self.activation = None if plain else ACTIVATIONS[c.activation]

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x))
        return x if self.activation is None else self.activation(x)


class RepBlock(nn.Module):
    """Two convolutions of the same input, added (Ding et al. 2021, "RepVGG")."""

    def __init__(self, c: RTDetrConfig, width: int) -> None:
        self.conv1, self.conv2 = (ConvNorm(c, width, width, kernel, plain=True) for kernel in (3, 1))
        self.activation = ACTIVATIONS[c.activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.conv1(x) + self.conv2(x))


class Fusion(nn.Module):
    """Two images of the encoder's width, joined: three blocks of one half, and the other half."""

    def __init__(self, c: RTDetrConfig) -> None:
        width, inner = c.encoder_size, int(c.encoder_size * c.expansion)
        self.conv1, self.conv2 = (ConvNorm(c, 2 * width, inner, 1) for _ in range(2))
        self.bottlenecks = nn.Sequential(*(RepBlock(c, inner) for _ in range(3)))
        self.conv3 = None if inner == width else ConvNorm(c, inner, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bottlenecks(self.conv1(x)) + self.conv2(x)
        return x if self.conv3 is None else self.conv3(x)


class Encoder(nn.Module):
    """Images of several sizes, the largest first, (N, encoder_size, h, w) each, to the same, joined with each other."""

    def __init__(self, c: RTDetrConfig) -> None:
        self.encoded, width, others = c.encoded, c.encoder_size, range(c.levels - 1)
        parts = np.arange(width // 4) / (width // 4)
        self.frequencies = (c.temperature**-parts).astype(np.float32)
        sizes = (width, c.encoder_heads, c.encoder_width, c.encoder_activation, c.eps)
        self.encoder = [{"layers": [EncoderLayer(*sizes) for _ in range(c.encoder_layers)]} for _ in c.encoded]
        self.lateral_convs = [ConvNorm(c, width, width, 1) for _ in others]
        self.fpn_blocks = [Fusion(c) for _ in others]
        self.downsample_convs = [ConvNorm(c, width, width, 3, 2) for _ in others]
        self.pan_blocks = [Fusion(c) for _ in others]

    def forward(self, images: list[Tensor]) -> list[Tensor]:
        for level, stack in zip(self.encoded, self.encoder, strict=True):
            images[level] = self.attend(images[level], stack["layers"])
        coarse = [images[-1]]
        for x, conv, fuse in zip(images[-2::-1], self.lateral_convs, self.fpn_blocks, strict=True):
            coarse[-1] = conv(coarse[-1])
            coarse.append(fuse(ops.concat([ops.interpolate(coarse[-1], x.shape[2:]), x], 1)))
        finest, *others = coarse[::-1]
        pyramid = [finest]
        for x, conv, fuse in zip(others, self.downsample_convs, self.pan_blocks, strict=True):
            pyramid.append(fuse(ops.concat([conv(pyramid[-1]), x], 1)))
        return pyramid

    def attend(self, image: Tensor, layers: Sequence[EncoderLayer]) -> Tensor:
        """Self-attention between the places of an image."""
        _, width, *size = image.shape
        x, positions = image.flatten(2).mT, self.positions(image.shape[2], image.shape[3]).astype(image.dtype)
        for layer in layers:
            x = layer(x, positions)
        return x.mT.reshape(image.shape[0], width, *size)

    def positions(self, height: Size, width: Size) -> Tensor:
        """Sines and cosines of the row of each place, then of its column, (height * width, encoder_size)."""
        grids = list[Tensor]()
        for axis, length in enumerate((height, width)):
            angles = lucid.arange(length).astype("float32").unsqueeze(1) * lucid.tensor(self.frequencies)
            waves = ops.concat([angles.sin(), angles.cos()], 1).unsqueeze(1 - axis)
            grids.append(waves.expand(height, width, waves.shape[2]))
        return ops.concat(grids, 2).flatten(0, 1)


class Decoder(nn.Module):
    """States of queries and the logits of their boxes to the logits of labels, and the boxes that layers moved."""

    def __init__(self, c: RTDetrConfig) -> None:
        width, layers = c.hidden_size, range(c.decoder_layers)
        self.layers = [DecoderLayer(c) for _ in layers]
        self.query_pos_head = Perceptron(4, 2 * width, width, 2)
        self.bbox_embed = [Perceptron(width, width, 4, 3) for _ in layers]
        self.class_embed = {str(layers[-1]): nn.Linear(width, c.num_labels)}

    def forward(self, y: Tensor, logits: Tensor, x: Tensor, places: Places) -> tuple[Tensor, Tensor]:
        boxes, layout = logits.sigmoid(), places.layout()
        for layer, move in zip(self.layers, self.bbox_embed, strict=True):
            y = layer(y, self.query_pos_head(boxes), boxes, x, layout)
            known = ops.log(ops.clip(boxes, 1e-5) / ops.clip(1 - boxes, 1e-5))
            boxes = (move(y) + known).sigmoid()
        (classify,) = self.class_embed.values()
        return classify(y), boxes


class DecoderLayer(EncoderLayer):
    """Attention of queries to each other and to points of the image, and a feed-forward network."""

    def __init__(self, c: RTDetrConfig) -> None:
        super().__init__(c.hidden_size, c.decoder_heads, c.decoder_width, c.decoder_activation, c.eps)
        self.encoder_attn = PointAttention(c)
        self.encoder_attn_layer_norm = nn.LayerNorm(c.hidden_size, c.eps)

    def forward(  # type: ignore[override]
        self, y: Tensor, queries: Tensor, boxes: Tensor, x: Tensor, layout: tuple[Tensor, Tensor, Tensor]
    ) -> Tensor:
        placed = y + queries
        y = self.self_attn_layer_norm(y + self.self_attn(placed, placed, y))
        return self.transform(self.encoder_attn_layer_norm(y + self.encoder_attn(y + queries, boxes, x, layout)))


class PointAttention(nn.Module):
    """Each head of a query reads some points of each image, between whose four nearest places it interpolates."""

    def __init__(self, c: RTDetrConfig) -> None:
        width, self.heads, self.levels, self.points = c.hidden_size, c.decoder_heads, c.levels, c.points
        count, self.reach = self.heads * self.levels * self.points, c.offset_scale
        self.n_points_scale = lucid.full((c.levels * c.points,), 1 / c.points) if c.stored_scales else None
        self.sampling_offsets, self.attention_weights = nn.Linear(width, 2 * count), nn.Linear(width, count)
        self.value_proj, self.output_proj = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, y: Tensor, boxes: Tensor, x: Tensor, layout: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """Queries (N, Q, E), their boxes (N, Q, 4) and places (N, S, E) to (N, Q, E)."""
        n, queries, width = y.shape
        heights, widths, starts = layout
        offsets = self.sampling_offsets(y).reshape(n, queries, self.heads, self.levels, self.points, 2)
        boxes = boxes.reshape(n, queries, 1, 1, 1, 4)
        scale = self.n_points_scale
        reach = 1 / self.points if scale is None else scale.astype(y.dtype).reshape(self.levels, self.points, 1)
        points = boxes[..., :2] + offsets * (reach * self.reach) * boxes[..., 2:]
        rows, down = _nearest(points[..., 1], heights)
        columns, across = _nearest(points[..., 0], widths)
        firsts = (rows * widths.unsqueeze(1) + starts.unsqueeze(1)).unsqueeze(-1)
        place = (firsts + columns.unsqueeze(-2)).reshape(n, queries, self.heads, self.levels * self.points * 4)
        weights = self.attention_weights(y).reshape(n, queries, self.heads, self.levels * self.points)
        weights = weights.softmax(-1).reshape(*points.shape[:-1], 1, 1) * down.unsqueeze(-1) * across.unsqueeze(-2)
        # The value of a place has a row for each head.
        batch, head = lucid.arange(n).reshape(n, 1, 1, 1), lucid.arange(self.heads).unsqueeze(1)
        values = self.value_proj(x).reshape(n * x.shape[1] * self.heads, width // self.heads)
        picked = ops.take(values, (batch * x.shape[1] + place) * self.heads + head, 0)
        return self.output_proj((weights.reshape(*place.shape).unsqueeze(3) @ picked).reshape(n, queries, width))


def _nearest(points: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """The places before and after each point along an axis, and the weights of both; of one outside the image 0 and 0.

    Points are (..., levels, points), from 0 to 1; both results have a last axis of two.
    """
    points = points * sizes.astype(points.dtype) - 0.5
    before = ops.floor(points)
    part, last = points - before, (sizes - 1).astype(points.dtype).unsqueeze(1)
    places = ops.stack([before, before + 1], -1)
    inside = (places >= 0) & (places <= last)  # NaN is not
    weights = ops.where(inside, ops.stack([1 - part, part], -1), 0.0)
    return ops.where(inside, places, 0.0).astype(lucid.int64), weights


if __name__ == "__main__":
    read_images(RTDetrForObjectDetection, "rt_detr/objects", 128, 160)
