"""Depth Anything (Yang et al. 2024): how far away each place of an image is, from the states of a DINOv2.

::

    model = DepthAnything.from_pretrained("folder with config.json and model.safetensors")
    depth = model(pixels)                                             # (N, 3, H, W) to (N, H, W)
    lucid.export.to_onnx(model, path="depth.onnx")                    # any batch, any size of images

A neck (Ranftl et al. 2021, "Vision Transformers for Dense Prediction") makes images of the states of several layers, of
several sizes, and joins them from the coarsest to the finest.
"""

from __future__ import annotations

from dataclasses import dataclass

from lucid import Dim, Tensor, nn
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.config import Config
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import Checkpoint
from lucid.models.parts.demonstration import read_images
from lucid.models.parts.on_model import OnModel
from lucid.models.vision.vit import ViT, ViTConfig
from lucid.nn import functional as F

Size2d = tuple[int | Dim, int | Dim]


@dataclass(frozen=True)
class DepthAnythingConfig(option.OptionTable):
    """The backbone, and the sizes of neck and head."""

    backbone: ViTConfig
    read_layers: tuple[int, ...] = option.derived()  # of the backbone: after which layers, from 1
    factors: tuple[float, ...] = option.derived()  # of their images' sizes
    widths: tuple[int, ...] = option.sizes("neck_hidden_sizes")
    fusion_width: int = option.size("fusion_hidden_size", 64)
    head_width: int = option.size("head_hidden_size", 32)
    metric: bool = option.choice("depth_estimation_type", {"relative": False, "metric": True}, False)
    max_depth: float = option.real("max_depth", 1.0)

    @classmethod
    def read(cls, options: Config) -> DepthAnythingConfig:
        inner = options.section("backbone_config")
        inner.get("model_type", str)  # required: it says which backbone it is
        inner.only("model_type", "dinov2")
        inner.only("apply_layernorm", True)
        inner.only("reshape_hidden_states", False)
        backbone = ViTConfig.read(inner)
        options.only("patch_size", backbone.patch_size)
        options.only("reassemble_hidden_size", backbone.hidden_size)
        options.only("head_in_index", -1)
        layers, factors = inner.sizes("out_indices"), options.get("reassemble_factors", list)
        if max(layers) > backbone.num_layers or list(layers) != sorted(layers):
            raise inner.wrong("out_indices", f"expected layers from 1 to {backbone.num_layers}, in order")
        inner.only("out_features", [f"stage{layer}" for layer in layers])
        if len(factors) != len(layers) or any(factor not in (1, 2, 4, 8, 0.5, 0.25) for factor in factors):
            raise options.wrong("reassemble_factors", f"supported: {len(layers)} of 8, 4, 2, 1, 0.5, 0.25")
        config = cls.from_rows(options, backbone=backbone, read_layers=layers, factors=tuple(map(float, factors)))
        if len(config.widths) != len(layers):
            raise options.wrong("neck_hidden_sizes", f"expected {len(layers)}, one for each of out_indices")
        return config


class DepthAnything(OnModel[DepthAnythingConfig]):
    """(N, num_channels, H, W) to depths (N, h, w), of as many places as whole patches cover.

    Depths are relative to each other, or in metres where the checkpoint is metric.
    """

    checkpoint = Checkpoint(
        family=FAMILIES["depth_anything"],
        read=DepthAnythingConfig.read,
        ignored_options=["layerscale_value|use_mask_token|stage_names"],
        ignored_keys=[r"embeddings\.mask_token$"],
    )
    output_names = ("predicted_depth",)

    def __init__(self, config: DepthAnythingConfig) -> None:
        super().__init__(config)
        self.backbone = ViT(config.backbone)
        self.neck = Neck(config)
        self.head = Head(config)

    def forward(self, pixel_values: Tensor) -> Tensor:
        patch = self.config.backbone.patch_size
        rows, columns = (size // patch for size in pixel_values.shape[2:])
        states = self.backbone.hidden_states(pixel_values)
        read = [self.backbone.layernorm(states[layer])[:, 1:] for layer in self.config.read_layers]
        n, width = pixel_values.shape[0], self.config.backbone.hidden_size
        x = self.neck([state.mT.reshape(n, width, rows, columns) for state in read])
        return self.head(x, (rows * patch, columns * patch))


class Neck(nn.Module):
    """Images of the states of layers, (N, hidden_size, rows, columns) each, to one of twice the size of the first."""

    def __init__(self, c: DepthAnythingConfig) -> None:
        parts = zip(c.widths, c.factors, strict=True)
        self.reassemble_stage = {"layers": [Reassemble(c.backbone.hidden_size, *part) for part in parts]}
        self.convs = [nn.Conv2d(width, c.fusion_width, 3, padding=1, bias=False) for width in c.widths]
        self.fusion_stage = {"layers": [Fusion(c.fusion_width) for _ in c.widths]}

    def forward(self, states: list[Tensor]) -> Tensor:
        layers = zip(self.convs, self.reassemble_stage["layers"], states, strict=True)
        images = [conv(make(state)) for conv, make, state in layers]
        sizes: list[Size2d | None] = [None, *((image.shape[2], image.shape[3]) for image in images[:-1])]
        x = None
        for image, size, fuse in zip(images[::-1], sizes[::-1], self.fusion_stage["layers"], strict=True):
            x = fuse(image, size) if x is None else fuse(x, size, image)
        assert x is not None
        return x


class Reassemble(nn.Module):
    """An image of states, narrower, and larger or smaller by a factor."""

    def __init__(self, width: int, channels: int, factor: float) -> None:
        self.projection = nn.Conv2d(width, channels, 1)
        self.resize: nn.Module | None = None
        if factor > 1:
            self.resize = nn.ConvTranspose2d(channels, channels, int(factor), stride=int(factor))
        elif factor < 1:
            self.resize = nn.Conv2d(channels, channels, 3, stride=int(1 / factor), padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.projection(x)
        return x if self.resize is None else self.resize(x)


class Residual(nn.Module):
    """Two convolutions, each after a ReLU, with a residual connection."""

    def __init__(self, width: int) -> None:
        self.convolution1, self.convolution2 = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.convolution2(F.relu(self.convolution1(F.relu(x))))


class Fusion(nn.Module):
    """Joins the result of coarser images with the next finer one, and resizes it to a size, or to twice its own."""

    def __init__(self, width: int) -> None:
        self.projection = nn.Conv2d(width, width, 1)
        self.residual_layer1, self.residual_layer2 = Residual(width), Residual(width)

    def forward(self, x: Tensor, size: Size2d | None, finer: Tensor | None = None) -> Tensor:
        x = self.residual_layer2(x if finer is None else x + self.residual_layer1(finer))
        target = (2 * x.shape[2], 2 * x.shape[3]) if size is None else size
        return self.projection(F.interpolate(x, target, mode="bilinear", align_corners=True))


class Head(nn.Module):
    """An image of features to depths of a size."""

    def __init__(self, c: DepthAnythingConfig) -> None:
        self.conv1 = nn.Conv2d(c.fusion_width, c.fusion_width // 2, 3, padding=1)
        self.conv2 = nn.Conv2d(c.fusion_width // 2, c.head_width, 3, padding=1)
        self.conv3 = nn.Conv2d(c.head_width, 1, 1)
        self.metric, self.max_depth = c.metric, c.max_depth

    def forward(self, x: Tensor, size: Size2d) -> Tensor:
        x = F.interpolate(self.conv1(x), size, mode="bilinear", align_corners=True)
        x = self.conv3(F.relu(self.conv2(x)))
        return (x.sigmoid() if self.metric else F.relu(x))[:, 0] * self.max_depth


if __name__ == "__main__":
    read_images(DepthAnything, "depth_anything/base", 28, 42)
