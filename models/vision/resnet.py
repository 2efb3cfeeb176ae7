"""ResNet (He et al. 2016): convolutions with residual connections; also the backbone of DETR and RT-DETR.

::

    resnet = ResNetForImageClassification.from_pretrained("folder with config.json and model.safetensors")
    logits = resnet(pixels)                                           # (N, 3, H, W) to (N, num_labels)
    lucid.export.to_onnx(resnet, path="resnet.onnx")                  # any batch, any size of images

RT-DETR's variant (He et al. 2019, "Bag of Tricks", ResNet-D) begins with three convolutions and averages what its
shortcuts halve.
"""

from __future__ import annotations

from dataclasses import dataclass

from lucid import Tensor, nn, ops
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import ACTIVATIONS, Checkpoint
from lucid.models.parts.demonstration import read_images
from lucid.models.parts.images import ImageClassifier, ImageModel


@dataclass(frozen=True)
class ResNetConfig(option.OptionTable):
    """The sizes of a model; the defaults are those of ResNet-50."""

    num_channels: int = option.size("num_channels", 3)
    embedding_size: int = option.size("embedding_size", 64)
    hidden_sizes: tuple[int, ...] = option.sizes("hidden_sizes", (256, 512, 1024, 2048))
    depths: tuple[int, ...] = option.sizes("depths", (3, 4, 6, 3), like="hidden_sizes")
    bottleneck: bool = option.choice("layer_type", {"basic": False, "bottleneck": True}, True)
    activation: str = option.activation("hidden_act", "relu")
    early: bool = option.flag("downsample_in_first_stage", False)
    stride_first: bool = option.flag("downsample_in_bottleneck", False)  # in the first convolution, not in the second
    deep: bool = False  # RT-DETR's variant
    num_labels: int = 0


class ResNet(ImageModel[ResNetConfig]):
    """Images (N, num_channels, H, W) to features (N, E, h, w) and their mean over the image, (N, E, 1, 1)."""

    checkpoint = Checkpoint(
        family=FAMILIES["resnet"],
        read=ResNetConfig.read,
        ignored_options=["out_features|out_indices|stage_names"],  # of use as a backbone
        renames=[(r"^resnet\.", "")],
        ignored_keys=[r"^classifier\.", r"\.num_batches_tracked$"],
    )

    def __init__(self, config: ResNetConfig | None = None) -> None:
        super().__init__(config := config or ResNetConfig())
        self.embedder = {"embedder": stem(config)}
        widths = (config.embedding_size, *config.hidden_sizes)
        self.encoder = {"stages": [Stage(config, widths[i], widths[i + 1], i) for i in range(len(config.depths))]}
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        x = self.stages(pixel_values)[-1]
        return x, x.mean((2, 3), keepdims=True)

    def stages(self, pixel_values: Tensor) -> list[Tensor]:
        """The features of each stage, (N, width, h, w)."""
        x, stages = self.pool(self.embedder["embedder"](pixel_values)), list[Tensor]()
        for stage in self.encoder["stages"]:
            x = stage(x)
            stages.append(x)
        return stages


class ResNetForImageClassification(ImageClassifier[ResNetConfig], on=ResNet):
    """ResNet and a linear layer on the mean of its features: logits (N, num_labels)."""

    label_key = r"classifier\.1\.weight"

    def __init__(self, config: ResNetConfig) -> None:
        super().__init__(config)
        self.resnet = ResNet(config)
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(config.hidden_sizes[-1], config.num_labels))

    def forward(self, pixel_values: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.resnet(pixel_values)[1])
        return logits


class FrozenNorm(nn.BatchNorm2d):
    """A batch norm with fixed statistics and no count of batches, as detectors use it."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__(width, eps)
        del self.num_batches_tracked

    def forward(self, x: Tensor) -> Tensor:
        return ops.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)


class ConvLayer(nn.Module):
    """A convolution that keeps the size up to its stride, a norm, and the activation if there is one."""

    def __init__(
        self, before: int, width: int, kernel: int = 3, stride: int = 1, activation: str | None = None
    ) -> None:
        self.convolution = nn.Conv2d(before, width, kernel, stride=stride, padding=kernel // 2, bias=False)
        self.normalization = FrozenNorm(width)
        self.activation = None if activation is None else ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        x = self.normalization(self.convolution(x))
        return x if self.activation is None else self.activation(x)


def stem(c: ResNetConfig) -> nn.Module:
    """The layers that halve the image first: one wide convolution, or in RT-DETR's variant three."""
    width, act = c.embedding_size, c.activation
    if not c.deep:
        return ConvLayer(c.num_channels, width, 7, 2, act)
    sizes = ((c.num_channels, width // 2, 3, 2), (width // 2, width // 2, 3, 1), (width // 2, width, 3, 1))
    return nn.Sequential(*(ConvLayer(*size, act) for size in sizes))


class Stage(nn.Module):
    """Layers of one width; the first halves height and width, except in most first stages."""

    def __init__(self, c: ResNetConfig, before: int, width: int, index: int) -> None:
        strides = [2 if index or c.early else 1, *[1] * (c.depths[index] - 1)]
        self.layers = [Layer(c, width if i else before, width, stride, not i) for i, stride in enumerate(strides)]

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Layer(nn.Module):
    """Two convolutions, or a bottleneck of three, with a residual connection."""

    def __init__(self, c: ResNetConfig, before: int, width: int, stride: int, first: bool) -> None:
        inner, (one, two) = width // 4, (stride, 1) if c.stride_first else (1, stride)
        if c.bottleneck:
            sizes = [(before, inner, 1, one), (inner, inner, 3, two), (inner, width, 1, 1)]
        else:
            sizes = [(before, width, 3, stride), (width, width, 3, 1)]
        last = len(sizes) - 1
        layers = (ConvLayer(*size, "relu" if i < last else None) for i, size in enumerate(sizes))
        self.layer = nn.Sequential(*layers)
        self.shortcut = shortcut(c, before, width, stride, first)
        self.activation = ACTIVATIONS[c.activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.layer(x) + (x if self.shortcut is None else self.shortcut(x)))


def shortcut(c: ResNetConfig, before: int, width: int, stride: int, first: bool) -> nn.Module | None:
    """The layer that brings the input to the size of the output."""
    changed = before != width or stride != 1
    if c.deep and (stride == 2 if c.bottleneck else before != width):
        return nn.Sequential(HalvingMean(), *([ConvLayer(before, width, 1)] if changed else []))
    always = c.deep and first and not c.bottleneck
    return ConvLayer(before, width, 1, stride) if changed or always else None


class HalvingMean(nn.Module):
    """Average pooling in windows of 2 x 2, (N, C, H, W) to half the size; an odd end has smaller windows."""

    def forward(self, x: Tensor) -> Tensor:
        return ops.average_pool(x, kernel_shape=(2, 2), strides=(2, 2), pads=(0, 0, 1, 1), count_include_pad=0)


TIMM_DEPTHS = {
    "resnet18": (2, 2, 2, 2),
    "resnet34": (3, 4, 6, 3),
    "resnet50": (3, 4, 6, 3),
    "resnet101": (3, 4, 23, 3),
    "resnet152": (3, 8, 36, 3),
}
"""The layers of each stage, by the name that timm has for the model."""


def timm_config(name: str, channels: int) -> ResNetConfig:
    """The model of a name in TIMM_DEPTHS."""
    bottleneck = name not in ("resnet18", "resnet34")
    widths = tuple(width * (4 if bottleneck else 1) for width in (64, 128, 256, 512))
    return ResNetConfig(channels, hidden_sizes=widths, depths=TIMM_DEPTHS[name], bottleneck=bottleneck)


def timm_renames(prefix: str) -> list[tuple[str, str]]:
    """From timm's names of its weights, after a regular expression for what stands before them, to those here."""
    layer = rf"({prefix}encoder\.stages\.\d+\.layers\.\d+\.)"
    return [
        (rf"({prefix})conv1\.", r"\1embedder.embedder.convolution."),
        (rf"({prefix})bn1\.", r"\1embedder.embedder.normalization."),
        *((rf"({prefix})layer{i + 1}\.", rf"\1encoder.stages.{i}.layers.") for i in range(4)),
        *((rf"{layer}conv{i + 1}\.", rf"\1layer.{i}.convolution.") for i in range(3)),
        *((rf"{layer}bn{i + 1}\.", rf"\1layer.{i}.normalization.") for i in range(3)),
        (rf"{layer}downsample\.0\.", r"\1shortcut.convolution."),
        (rf"{layer}downsample\.1\.", r"\1shortcut.normalization."),
    ]


if __name__ == "__main__":
    read_images(ResNetForImageClassification, "resnet/classifier", 48, 64)
