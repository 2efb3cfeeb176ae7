"""Swin (Liu et al. 2021): attention within windows of an image, which every second layer shifts.

::

    swin = SwinForImageClassification.from_pretrained("folder with config.json and model.safetensors")
    logits = swin(pixels)                                             # (N, 3, H, W) to (N, num_labels)
    lucid.export.to_onnx(swin, path="swin.onnx")                      # any batch; images of the size in config.json

    sizes = lucid.spec("N", 3, 256, 320)                              # images of another size
    lucid.export.to_onnx(swin, sizes, path="wide.onnx")
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import lucid
from lucid import Dim, Size, Tensor, nn, ops
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import ACTIVATIONS, Checkpoint, Config
from lucid.models.parts.demonstration import read_images
from lucid.models.parts.images import ImageClassifier, ImageModel, MaskedImages, PatchConfig, mask_token, with_hidden
from lucid.models.parts.options import read_patch_size


@dataclass(frozen=True)
class SwinConfig(PatchConfig):
    """The sizes of a model; the defaults are those of Swin tiny."""

    hidden_size: int = option.size("embed_dim", 96)  # of the first stage; each stage is twice as wide as the one before
    depths: tuple[int, ...] = option.sizes("depths", (2, 2, 6, 2))
    num_heads: tuple[int, ...] = option.sizes("num_heads", (3, 6, 12, 24), like="depths")
    window_size: int = 7
    mlp_ratio: float = option.real("mlp_ratio", 4.0, low=1e-3, high=1e3)
    patch_size: int = option.row(read_patch_size, "patch_size", 4, of="image_size")
    activation: str = option.activation("hidden_act", "gelu")
    eps: float = option.real("layer_norm_eps", 1e-5)
    qkv_bias: bool = option.flag("qkv_bias", True)
    learned_positions: bool = option.flag("use_absolute_embeddings", False)
    num_labels: int = 0  # of a classifier

    @property
    def widths(self) -> tuple[int, ...]:
        """The width of each stage."""
        return tuple(self.hidden_size << stage for stage in range(len(self.depths)))

    @classmethod
    def read(cls, options: Config) -> Self:
        config = cls.from_rows(options)
        if any(width % count for width, count in zip(config.widths, config.num_heads, strict=True)):
            width = config.hidden_size
            raise options.wrong("num_heads", f"expected divisors of the widths of stages, {width}, {2 * width}, ...")
        window = options.whole("window_size", high=max(config.image_size), why=", the size of an image")
        return replace(config, window_size=window)


class Swin(ImageModel[SwinConfig]):
    """Images (N, num_channels, H, W) to the patches of the last stage (N, patches, E) and their mean (N, E)."""

    checkpoint = Checkpoint(
        family=FAMILIES["swin"],
        read=SwinConfig.read,
        ignored_options=[
            "encoder_stride|num_layers|hidden_size",  # masked training; repetitions
            "out_features|out_indices|stage_names",  # use as another model's backbone
        ],
        renames=[(r"^swin\.", "")],
        ignored_keys=[r"^classifier\.", r"^decoder\.", r"embeddings\.mask_token$", r"\.relative_position_index$"],
    )

    def __init__(self, config: SwinConfig | None = None) -> None:
        super().__init__(config := config or SwinConfig())
        self.embeddings = Embeddings(config)
        self.encoder = {"layers": [Stage(config, stage) for stage in range(len(config.depths))]}
        self.layernorm = nn.LayerNorm(config.widths[-1], config.eps)

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        x = self.layernorm(self.patches(pixel_values).flatten(1, 2))
        return x, x.mean(1)

    def patches(self, pixel_values: Tensor, mask: Tensor | None = None) -> Tensor:
        """The states of the last stage before the last norm, (N, h, w, E)."""
        x = self.embeddings(pixel_values, mask)
        for stage in self.encoder["layers"]:
            x = stage(x)
        return x

    @property
    def sides(self) -> tuple[int, int]:
        return self.config.image_size


class SwinForImageClassification(ImageClassifier[SwinConfig], on=Swin):
    """Swin and a linear layer on the mean of its patches: (N, num_channels, H, W) to the logits (N, num_labels)."""

    def __init__(self, config: SwinConfig) -> None:
        super().__init__(config)
        self.swin = Swin(config)
        self.classifier = nn.Linear(config.widths[-1], config.num_labels)

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.classifier(self.swin(pixel_values)[1])


class SwinForMaskedImageModeling(MaskedImages[SwinConfig], on=Swin):
    def __init__(self, config: SwinConfig) -> None:
        super().__init__(config)
        self.swin = Swin(config)
        self.add_decoder(config.widths[-1])

    def forward(self, pixel_values: Tensor, bool_masked_pos: Tensor | None = None) -> Tensor:
        x = self.swin.patches(pixel_values, bool_masked_pos)
        return self.images(self.swin.layernorm(x.flatten(1, 2)), *x.shape[1:3])


class Embeddings(nn.Module):
    """Images to patches, normalised: (N, C, H, W) to (N, h, w, hidden_size). Sizes are filled up to whole patches."""

    def __init__(self, config: SwinConfig) -> None:
        width, patch, (height, length) = config.hidden_size, config.patch_size, config.image_size
        self.patch_size = patch
        self.patch_embeddings = {"projection": nn.Conv2d(config.num_channels, width, patch, stride=patch)}
        self.norm = nn.LayerNorm(width)
        self.mask_token = mask_token(config, width)
        self.position_embeddings = None
        if config.learned_positions:
            patches = (height // patch) * (length // patch)
            self.position_embeddings = nn.init.normal_(nn.init.new_parameter(1, patches, width))

    def forward(self, pixel_values: Tensor, mask: Tensor | None = None) -> Tensor:
        if pixel_values.ndim != 4 or any(isinstance(size, Dim) for size in pixel_values.shape[2:]):
            shape = ", ".join(map(str, pixel_values.shape))
            raise ValueError(
                f"Swin: pixel_values have shape [{shape}], expected (N, C, H, W) with numbers for H and W: windows are "
                "cut by them; export for one size, such as lucid.spec('N', 3, 224, 224)"
            )
        x = self.patch_embeddings["projection"](_filled(pixel_values, self.patch_size, axes=(2, 3)))
        x = self.norm(x.permute(0, 2, 3, 1))
        if mask is not None:
            x = with_hidden(x.flatten(1, 2), self.mask_token, mask).reshape(x.shape)
        if self.position_embeddings is None:
            return x
        return (x.flatten(1, 2) + self.position_embeddings).reshape(x.shape)


class Stage(nn.Module):
    """Layers of one width; then patches are merged by fours, except in the last stage."""

    def __init__(self, config: SwinConfig, stage: int) -> None:
        self.blocks = [Layer(config, stage, shifted=index % 2 == 1) for index in range(config.depths[stage])]
        self.downsample = Merging(config.widths[stage]) if stage + 1 < len(config.depths) else None

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.blocks:
            x = layer(x)
        return x if self.downsample is None else self.downsample(x)


class Merging(nn.Module):
    """Four neighbours to one patch of twice the width: (N, h, w, E) to (N, ceil(h / 2), ceil(w / 2), 2 * E)."""

    def __init__(self, width: int) -> None:
        self.reduction = nn.Linear(4 * width, 2 * width, bias=False)
        self.norm = nn.LayerNorm(4 * width)

    def forward(self, x: Tensor) -> Tensor:
        n, height, length, width = (x := _filled(x, 2)).shape
        # (N, h / 2, row, w / 2, column, E): the rows of a column of two are neighbours in the result
        x = x.reshape(n, height // 2, 2, length // 2, 2, width).permute(0, 1, 3, 4, 2, 5)
        return self.reduction(self.norm(x.reshape(n, height // 2, length // 2, 4 * width)))


class Layer(nn.Module):
    """Attention within windows and a network, each after a norm, with a residual connection."""

    def __init__(self, config: SwinConfig, stage: int, shifted: bool) -> None:
        width = config.widths[stage]
        inner = int(config.mlp_ratio * width)
        self.attention = WindowAttention(config, stage, shifted)
        self.layernorm_before, self.layernorm_after = (nn.LayerNorm(width, config.eps) for _ in range(2))
        self.intermediate, self.output = {"dense": nn.Linear(width, inner)}, {"dense": nn.Linear(inner, width)}
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.layernorm_before(x))
        return x + self.output["dense"](self.activation(self.intermediate["dense"](self.layernorm_after(x))))


class WindowAttention(nn.Module):
    """Attention of each patch to those of its window, with a bias for their distance: (N, h, w, E) to the same.

    Sizes are filled up to whole windows with zeros, which are attended to. Shifted windows begin in the middle of
    others; those that go over the border go on at the other side, where patches see only what is next to them.
    """

    def __init__(self, config: SwinConfig, stage: int, shifted: bool) -> None:
        width = config.widths[stage]
        self.window, self.shifted = config.window_size, shifted
        self.self = SelfAttention(width, config.num_heads[stage], self.window, config.qkv_bias)
        self.output = {"dense": nn.Linear(width, width)}

    def forward(self, x: Tensor) -> Tensor:
        side, (height, length) = self.window, x.shape[1:3]
        if min(height, length) < side:
            raise ValueError(
                f"Swin: a stage has {height} x {length} patches, expected a window of {side} x {side} or more"
            )
        shift = side // 2 if self.shifted and min(height, length) > side else 0
        x = ops.roll(_filled(x, side), (-shift, -shift), (1, 2))
        regions = _regions(x.shape[1], x.shape[2], side, shift) if shift else None
        y = self.output["dense"](self.self(x, regions))
        return ops.roll(y, (shift, shift), (1, 2))[:, :height, :length]


class SelfAttention(nn.Module):
    """Attention within windows, (N, h, w, E) to the same."""

    def __init__(self, width: int, heads: int, side: int, bias: bool) -> None:
        self.query, self.key, self.value = (nn.Linear(width, width, bias) for _ in range(3))
        self.relative_position_bias_table = nn.init.normal_(nn.init.new_parameter((2 * side - 1) ** 2, heads))
        self.heads, self.side = heads, side

    def forward(self, x: Tensor, regions: Tensor | None) -> Tensor:
        """`regions` are those of `_regions`; without them a patch sees all of its window."""
        side, (n, rows, columns, width) = self.side, x.shape
        down, across = rows // side, columns // side
        # Windows are rows of the batch; where each has a bias of its own, the windows of an image are further heads.
        groups = 1 if regions is None else down * across
        q, k, v = (
            linear(x)
            .reshape(n, down, side, across, side, self.heads, width // self.heads)
            .permute(0, 1, 3, 5, 2, 4, 6)
            .reshape(n * (down * across // groups), groups * self.heads, side * side, width // self.heads)
            for linear in (self.query, self.key, self.value)
        )
        y: Tensor = ops.attention(q, k, v, self._bias(regions))
        y = y.reshape(n, down, across, self.heads, side, side, width // self.heads).permute(0, 1, 4, 2, 5, 3, 6)
        return y.reshape(n, rows, columns, width)

    def _bias(self, regions: Tensor | None) -> Tensor:
        """The bias on the scores of all heads: (1, heads, patches, patches), or windows * heads."""
        table, side = self.relative_position_bias_table, self.side
        place = lucid.arange(side * side)
        down, across = (at.unsqueeze(1) - at + (side - 1) for at in (place // side, place % side))
        bias = table[down * (2 * side - 1) + across].permute(2, 0, 1)
        if regions is None:
            return bias.unsqueeze(0).named_after(table, "[window]")
        apart = regions.unsqueeze(1) != regions.unsqueeze(2)  # (windows, patches, patches)
        # Not minus infinity: the models are trained with this number.
        bias = bias + ops.where(apart, -100.0, 0.0).astype(bias.dtype).unsqueeze(1)
        return bias.flatten(0, 1).unsqueeze(0).named_after(table, "[shifted]")


def _regions(rows: Size, columns: Size, side: int, shift: int) -> Tensor:
    """(windows, patches): patches of a shifted window that were neighbours in the image have the same number."""
    down, across = (
        (place >= size - side).astype("int64") + (place >= size - shift).astype("int64")
        for size, place in ((rows, lucid.arange(rows)), (columns, lucid.arange(columns)))
    )
    regions = 3 * down.unsqueeze(1) + across
    return regions.reshape(rows // side, side, columns // side, side).permute(0, 2, 1, 3).reshape(-1, side * side)


def _filled(x: Tensor, step: int, axes: tuple[int, int] = (1, 2)) -> Tensor:
    """With zeros at the end of two axes, whose sizes become multiples of `step`."""
    more = [-size % step if axis in axes else 0 for axis, size in enumerate(x.shape)]
    return ops.pad(x, before=(0,) * x.ndim, after=tuple(more)) if any(more) else x


if __name__ == "__main__":
    read_images(SwinForImageClassification, "swin/classifier")
