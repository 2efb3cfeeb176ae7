"""Models of images: their inputs, classes of images, and masked image modeling, which restores hidden patches.

SimMIM (Xie et al. 2022): a learned vector replaces each hidden patch, and one convolution turns each output token into
the pixels of its patch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, TypeVar

import lucid
from lucid import Size, Tensor, TensorType, nn, ops
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.pretrained import Checkpoint, Config, Pretrained
from lucid.models.parts.on_model import OnModel
from lucid.models.parts.options import read_image_size, read_patch_size


class Channels(Protocol):
    """A config of a model of images."""

    @property
    def num_channels(self) -> int: ...


P = TypeVar("P", bound=Channels)
M = TypeVar("M")


class ImageModel(Pretrained[P]):
    """The base of models whose input is images (N, num_channels, H, W), of any size unless `sides` names one."""

    output_names: ClassVar[Sequence[str]] = ("last_hidden_state", "pooler_output")

    @property
    def sides(self) -> tuple[int | str, int | str]:
        """Height and width: numbers, or names of sizes that vary."""
        return "H", "W"

    def input_specs(self) -> Mapping[str, TensorType]:
        dtype = next(iter(self.parameters())).dtype
        return {"pixel_values": lucid.spec("N", self.config.num_channels, *self.sides, dtype=dtype)}


class ImageClassifier(OnModel[M]):
    """Images (N, num_channels, H, W) to logits (N, num_labels), by a linear layer on the output of a model."""

    head_task, label_key = "image-classification", r"classifier\.weight"


@dataclass(frozen=True, kw_only=True)
class PatchConfig(option.OptionTable):
    """The base of the configs of encoders that cut images into patches."""

    image_size: tuple[int, int] = option.row(read_image_size, "image_size", (224, 224))
    patch_size: int = option.row(read_patch_size, "patch_size", 16, of="image_size")
    num_channels: int = option.size("num_channels", 3)
    pixels: int = 0  # the side of the square that the head restores of a token; 0: a model without the head


C = TypeVar("C", bound=PatchConfig)


class MaskedImages(OnModel[C]):
    """Images (N, num_channels, H, W), and which patches are hidden (N, patches), to images of the same shape."""

    head_task, head_keys = "masked-im", (r"^decoder\.0\.weight$",)
    output_names: ClassVar[Sequence[str]] = ("reconstruction",)

    @classmethod
    def read_config(cls, options: Config, base: Checkpoint[Any]) -> Any:
        config = super().read_config(options, base)
        return replace(config, pixels=options.whole("encoder_stride", high=max(config.image_size)))

    def add_decoder(self, width: int) -> None:
        """The convolution over tokens of this width."""
        c = self.config
        self.decoder = {"0": nn.Conv2d(width, c.pixels**2 * c.num_channels, 1)}

    def images(self, x: Tensor, rows: Size, columns: Size) -> Tensor:
        """From tokens (N, rows * columns, width)."""
        side, channels = self.config.pixels, self.config.num_channels
        x = self.decoder["0"](x.mT.reshape(x.shape[0], x.shape[2], rows, columns))
        x = x.reshape(x.shape[0], channels, side, side, rows, columns).permute(0, 1, 4, 2, 5, 3)
        return x.reshape(x.shape[0], channels, rows * side, columns * side)

    def input_specs(self) -> Mapping[str, TensorType]:
        """The inputs of the encoder and the mask, (N, patches), true for a hidden patch."""
        height, width = (size // self.config.patch_size for size in self.config.image_size)
        return {**super().input_specs(), "bool_masked_pos": lucid.spec("N", height * width, dtype=lucid.bool_)}


def mask_token(config: PatchConfig, width: int) -> nn.Parameter | None:
    """The learned vector of hidden patches, (1, 1, width)."""
    return nn.init.normal_(nn.init.new_parameter(1, 1, width)) if config.pixels else None


def with_hidden(x: Tensor, token: Tensor | None, mask: Tensor | None) -> Tensor:
    """Vectors of patches (N, P, E), the hidden ones replaced."""
    return x if token is None or mask is None else ops.where((mask != 0).unsqueeze(-1), token, x)
