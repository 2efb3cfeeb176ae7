"""ConvNeXt (Liu et al. 2022) and ConvNeXt V2 (Woo et al. 2023): convolutions, arranged as a transformer is.

::

    convnext = ConvNextForImageClassification.from_pretrained("folder with config.json and model.safetensors")
    logits = convnext(pixels)                                         # (N, 3, H, W) to (N, num_labels)
    lucid.export.to_onnx(convnext, path="convnext.onnx")              # any batch, any size of images
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from lucid import Tensor, nn
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import ACTIVATIONS, Checkpoint, Config
from lucid.models.parts.demonstration import read_images
from lucid.models.parts.images import ImageClassifier, ImageModel


@dataclass(frozen=True)
class ConvNextConfig(option.OptionTable):
    """The sizes of a model of one of two versions; the defaults are those of ConvNeXt tiny."""

    version: int = 1
    hidden_sizes: tuple[int, ...] = option.sizes("hidden_sizes", (96, 192, 384, 768))  # of the stages
    depths: tuple[int, ...] = option.sizes("depths", (3, 3, 9, 3), like="hidden_sizes")
    patch_size: int = option.size("patch_size", 4)
    num_channels: int = option.size("num_channels", 3)
    activation: str = option.activation("hidden_act", "gelu")
    eps: float = option.real("layer_norm_eps", 1e-12)  # of the last norm
    layer_scale: bool = True
    num_labels: int = 0  # of a classifier

    @classmethod
    def read(cls, options: Config) -> Self:
        options.only("num_stages", len(options.sizes("hidden_sizes")))
        if options.model_type == "convnextv2":
            return cls.from_rows(options, version=2, layer_scale=False)
        return cls.from_rows(options, layer_scale=options.real("layer_scale_init_value") > 0)


class ConvNext(ImageModel[ConvNextConfig]):
    """Images (N, num_channels, H, W) to features (N, E, h, w) and their mean over the image, normalised, (N, E)."""

    checkpoint = Checkpoint(
        family=FAMILIES["convnext"],
        read=ConvNextConfig.read,
        ignored_options=["out_features|out_indices|stage_names"],  # of use as a backbone
        renames=[(FAMILIES["convnext"].prefixes, "")],
        ignored_keys=[r"^classifier\."],
    )

    def __init__(self, config: ConvNextConfig | None = None) -> None:
        super().__init__(config := config or ConvNextConfig())
        self.embeddings = Embeddings(config)
        self.encoder = {"stages": [Stage(config, stage) for stage in range(len(config.depths))]}
        self.layernorm = nn.LayerNorm(config.hidden_sizes[-1], config.eps)

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embeddings(pixel_values)
        for stage in self.encoder["stages"]:
            x = stage(x)
        return x, self.layernorm(x.mean((2, 3)))


class ConvNextForImageClassification(ImageClassifier[ConvNextConfig], on=ConvNext):
    """ConvNext and a linear layer on the mean: (N, num_channels, H, W) to the logits (N, num_labels)."""

    head_renames = ((FAMILIES["convnext"].prefixes, "convnext."),)

    def __init__(self, config: ConvNextConfig) -> None:
        super().__init__(config)
        self.convnext = ConvNext(config)
        self.classifier = nn.Linear(config.hidden_sizes[-1], config.num_labels)

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.classifier(self.convnext(pixel_values)[1])


class Embeddings(nn.Module):
    """Images to patches, normalised: (N, C, H, W) to (N, E, h, w)."""

    def __init__(self, config: ConvNextConfig) -> None:
        width, patch = config.hidden_sizes[0], config.patch_size
        self.patch_embeddings = nn.Conv2d(config.num_channels, width, patch, stride=patch)
        self.layernorm = ChannelNorm(width)

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.layernorm(self.patch_embeddings(pixel_values))


class ChannelNorm(nn.LayerNorm):
    """A layer norm over the channels of (N, C, H, W)."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, 1e-6)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Stage(nn.Module):
    """Half the height and width, except in the first stage; then layers of one width."""

    def __init__(self, config: ConvNextConfig, stage: int) -> None:
        before, width = config.hidden_sizes[max(stage - 1, 0)], config.hidden_sizes[stage]
        halving: list[nn.Module] = [ChannelNorm(before), nn.Conv2d(before, width, 2, stride=2)]
        self.downsampling_layer = halving if stage else []
        self.layers = [Layer(config, width) for _ in range(config.depths[stage])]

    def forward(self, x: Tensor) -> Tensor:
        for layer in (*self.downsampling_layer, *self.layers):
            x = layer(x)
        return x


class Layer(nn.Module):
    """A convolution of each channel alone and a network of each place alone, with a residual connection."""

    def __init__(self, config: ConvNextConfig, width: int) -> None:
        self.dwconv = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.layernorm = nn.LayerNorm(width, 1e-6)
        self.pwconv1, self.pwconv2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.grn = ResponseNorm(4 * width) if config.version == 2 else None
        self.layer_scale_parameter = nn.init.new_parameter(width, value=1.0) if config.layer_scale else None
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        y = self.activation(self.pwconv1(self.layernorm(self.dwconv(x).permute(0, 2, 3, 1))))
        y = self.pwconv2(y if self.grn is None else self.grn(y))
        y = y if self.layer_scale_parameter is None else y * self.layer_scale_parameter
        return x + y.permute(0, 3, 1, 2)


class ResponseNorm(nn.Module):
    """Each channel times its length over the image, relative to that of all channels (Woo et al. 2023, section 3)."""

    def __init__(self, channels: int) -> None:
        self.weight, self.bias = (nn.init.new_parameter(1, 1, 1, channels) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """(N, H, W, C) to the same."""
        length = (x * x).sum((1, 2), keepdims=True).sqrt()
        return self.weight * (x * (length / (length.mean(-1, keepdims=True) + 1e-6))) + self.bias + x


if __name__ == "__main__":
    read_images(ConvNextForImageClassification, "convnext/v2_classifier", 24, 32)
