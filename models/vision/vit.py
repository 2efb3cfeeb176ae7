"""Vision transformers: ViT (Dosovitskiy et al. 2021), DeiT (Touvron et al. 2021), DINOv2 (Oquab et al. 2023).

::

    vit = ViT.from_pretrained("folder with config.json and model.safetensors")
    hidden = vit(pixels)                                              # (N, 3, H, W) to (N, tokens, hidden_size)
    lucid.export.to_onnx(vit, path="vit.onnx")                        # any batch; DINOv2: any size of images

An image is cut into patches, each of which becomes a token; the class token comes first, in DeiT followed by the
distillation token, in DINOv2 with registers (Darcet et al. 2024) by these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import lucid
from lucid import Dim, Tensor, nn, ops
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import ACTIVATIONS, Checkpoint, Config
from lucid.models.parts.demonstration import read_images
from lucid.models.parts.images import ImageClassifier, ImageModel, MaskedImages, PatchConfig, mask_token, with_hidden
from lucid.nn import functional as F


@dataclass(frozen=True)
class ViTConfig(PatchConfig):
    """The sizes of a model and its family, its model_type; the defaults are those of ViT-B/16."""

    family: str = "vit"
    hidden_size: int = option.size("hidden_size", 768)
    intermediate_size: int = 3072
    num_layers: int = option.layers("num_hidden_layers", 12)
    num_heads: int = option.heads("num_attention_heads", 12)
    activation: str = option.activation("hidden_act", "gelu")
    eps: float = option.real("layer_norm_eps", 1e-12)
    qkv_bias: bool = option.flag("qkv_bias", True)
    swiglu: bool = option.flag("use_swiglu_ffn", absent=False)
    num_labels: int = 0  # of a classifier
    teacher: bool = False  # a classifier that reads the distillation token as well
    registers: int = 0  # tokens after the class token that stand for no patch

    @property
    def dino(self) -> bool:
        """Whether it is DINOv2, with registers or without."""
        return self.family.startswith("dinov2")

    @classmethod
    def read(cls, options: Config) -> Self:
        if options.model_type.startswith("dinov2"):
            inner = int(options.size("hidden_size") * options.real("mlp_ratio", low=1e-3, high=1e3))
            inner = (inner * 2 // 3 + 7) // 8 * 8 if options.get("use_swiglu_ffn", bool, False) else inner
        else:
            inner = options.size("intermediate_size")
        return cls.from_rows(
            options,
            family=options.model_type,
            intermediate_size=inner,
            teacher="cls_classifier.weight" in options.weights,
            registers=options.size("num_register_tokens") if options.model_type == "dinov2_with_registers" else 0,
        )


class ViT(ImageModel[ViTConfig]):
    """The encoder: (N, num_channels, H, W) to the tokens after the last norm, (N, tokens, hidden_size).

    The class token is the first.
    """

    checkpoint = Checkpoint(
        family=FAMILIES["vit"],
        read=ViTConfig.read,
        # Options of the pooler, of masked training and of use as another model's backbone have no effect here.
        ignored_options=[
            "pooler_.*|encoder_stride|use_mask_token|layerscale_value",
            "apply_layernorm|reshape_hidden_states|out_features|out_indices|stage_names",
        ],
        renames=[(FAMILIES["vit"].prefixes, "")],
        ignored_keys=[r"^(cls_|distillation_)?classifier\.", r"^pooler\.", r"embeddings\.mask_token$"],
    )
    output_names: ClassVar[Sequence[str]] = ("last_hidden_state",)

    def __init__(self, config: ViTConfig | None = None) -> None:
        super().__init__(config := config or ViTConfig())
        layer = Dinov2Layer if config.dino else Layer
        self.embeddings = Embeddings(config)
        self.encoder = {"layer": [layer(config) for _ in range(config.num_layers)]}
        self.layernorm = nn.LayerNorm(config.hidden_size, config.eps)

    def forward(self, pixel_values: Tensor) -> Tensor:
        size, sides = self.config.image_size, pixel_values.shape[2:]
        if not self.config.dino and sides != size:
            raise ValueError(f"ViT: pixel_values have height and width {sides}, the model was trained on {size}")
        return self.layernorm(self.hidden_states(pixel_values)[-1])

    def hidden_states(self, pixel_values: Tensor, mask: Tensor | None = None) -> list[Tensor]:
        """The input of the first layer, and the output of each layer, (N, tokens, hidden_size)."""
        states: list[Tensor] = [self.embeddings(pixel_values, mask)]
        for layer in self.encoder["layer"]:
            states.append(layer(states[-1]))
        return states

    @property
    def sides(self) -> tuple[int | str, int | str]:
        return super().sides if self.config.dino else self.config.image_size


class ViTForImageClassification(ImageClassifier[ViTConfig], on=ViT):
    """The encoder and a linear layer on the class token: (N, num_channels, H, W) to the logits (N, num_labels).

    For DINOv2 it reads the class token and the mean of the patches. A DeiT with a teacher has a second layer, which
    reads the distillation token, and the result is the mean of both.
    """

    label_key = r"(?:cls_)?classifier\.weight"
    head_renames = ((FAMILIES["vit"].prefixes, "vit."),)

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        self.vit = ViT(config)
        width = config.hidden_size * (2 if config.dino else 1)
        self.classifier = None if config.teacher else nn.Linear(width, config.num_labels)
        self.cls_classifier = nn.Linear(width, config.num_labels) if config.teacher else None
        self.distillation_classifier = nn.Linear(width, config.num_labels) if config.teacher else None

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = self.vit(pixel_values)
        if self.cls_classifier is not None and self.distillation_classifier is not None:
            return (self.cls_classifier(x[:, 0]) + self.distillation_classifier(x[:, 1])) / 2
        read = x[:, 0]
        if self.config.dino:
            read = ops.concat([read, x[:, 1 + self.config.registers :].mean(1)], -1)
        assert self.classifier is not None
        return self.classifier(read)


class ViTForMaskedImageModeling(MaskedImages[ViTConfig], on=ViT):
    head_renames = ((FAMILIES["vit"].prefixes, "vit."),)

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        self.vit = ViT(config)
        self.add_decoder(config.hidden_size)

    def forward(self, pixel_values: Tensor, bool_masked_pos: Tensor | None = None) -> Tensor:
        x = self.vit.layernorm(self.vit.hidden_states(pixel_values, bool_masked_pos)[-1])
        return self.images(x[:, self.vit.embeddings.extra :], *self.vit.embeddings.grid)


class Embeddings(nn.Module):
    """Images (N, C, H, W) to tokens: the class token, DeiT's distillation token, one for each patch; plus positions."""

    def __init__(self, config: ViTConfig) -> None:
        self.config = config
        patch, (height, width) = config.patch_size, config.image_size
        self.grid = (height // patch, width // patch)
        self.cls_token = nn.init.normal_(nn.init.new_parameter(1, 1, config.hidden_size))
        self.distillation_token = (
            nn.init.normal_(nn.init.new_parameter(1, 1, config.hidden_size)) if config.family == "deit" else None
        )
        self.register_tokens = (
            nn.init.new_parameter(1, config.registers, config.hidden_size) if config.registers else None
        )
        self.mask_token = mask_token(config, config.hidden_size)
        self.extra = 1 if self.distillation_token is None else 2
        tokens = self.grid[0] * self.grid[1] + self.extra
        self.position_embeddings = nn.init.normal_(nn.init.new_parameter(1, tokens, config.hidden_size))
        self.patch_embeddings = {"projection": nn.Conv2d(config.num_channels, config.hidden_size, patch, stride=patch)}

    def forward(self, pixel_values: Tensor, mask: Tensor | None = None) -> Tensor:
        patches = self.patch_embeddings["projection"](pixel_values)  # (N, width, h, w)
        n, width, height, length = patches.shape
        firsts = [token for token in (self.cls_token, self.distillation_token) if token is not None]
        tokens = [token.expand(n, 1, width) for token in firsts]
        x = ops.concat([*tokens, with_hidden(patches.flatten(2).mT, self.mask_token, mask)], 1)
        x = x + self._positions(height, length)
        if self.register_tokens is None:
            return x
        return ops.concat([x[:, :1], self.register_tokens.expand(n, self.config.registers, width), x[:, 1:]], 1)

    def _positions(self, height: int | Dim, length: int | Dim) -> Tensor:
        """The stored positions; DINOv2's patch positions are interpolated to the image's grid."""
        if not self.config.dino:
            return self.position_embeddings
        width, (rows, columns), table = self.config.hidden_size, self.grid, self.position_embeddings
        stored = table[:, self.extra :].reshape(rows, columns * width).named_after(table, "[patches]")
        resize = smooth if self.config.registers else stretch
        down, across = (resize(*sizes).astype(table.dtype) for sizes in ((rows, height), (columns, length)))
        stretched = (down @ stored).reshape(height, columns, width)
        stretched = (across @ stretched).reshape(1, height * length, width)
        return ops.concat([table[:, : self.extra].named_after(table, "[class]"), stretched], 1)


def stretch(stored: int, size: int | Dim) -> Tensor:
    """(wanted, stored): bicubic interpolation of stored points at the wanted ones (Keys 1981, with a = -0.75)."""
    a = -0.75
    centre = (lucid.arange(size).astype("float32") + 0.5) * (stored / lucid.tensor(size)) - 0.5
    points = ops.floor(centre).unsqueeze(1) + lucid.tensor([-1.0, 0.0, 1.0, 2.0])  # the four around each centre
    x = abs(centre.unsqueeze(1) - points)
    weights = _cubic(x, a).unsqueeze(2)
    # Outside the border the last point is repeated.
    same_point = ops.clip(points, 0, stored - 1).unsqueeze(2) == lucid.arange(stored).astype("float32")
    return ops.where(same_point, weights, 0.0).sum(1)


def smooth(stored: int, size: int | Dim) -> Tensor:
    """(wanted, stored): the same with a = -0.5, over more points where there are fewer wanted than stored ones.

    As torch's `interpolate` does with antialias, and Pillow.
    """
    step = stored / lucid.tensor(size)
    centre = ((lucid.arange(size).astype("float32") + 0.5) * step).unsqueeze(1)
    x = abs(lucid.arange(stored).astype("float32") + 0.5 - centre) / ops.maximum(step, 1.0)
    weights = ops.where(x < 2, _cubic(x, -0.5), 0.0)
    return weights / weights.sum(1, keepdims=True)


def _cubic(x: Tensor, a: float) -> Tensor:
    """The weight of a point at a distance of at most 2."""
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((x - 5) * x + 8) * x * a - 4 * a
    return ops.where(x <= 1, near, far)


class Layer(nn.Module):
    """A layer of ViT and DeiT: attention and network, each after a norm, with a residual connection."""

    def __init__(self, config: ViTConfig) -> None:
        self.attention = Attention(config)
        self.intermediate = {"dense": nn.Linear(config.hidden_size, config.intermediate_size)}
        self.output = {"dense": nn.Linear(config.intermediate_size, config.hidden_size)}
        self.layernorm_before = nn.LayerNorm(config.hidden_size, config.eps)
        self.layernorm_after = nn.LayerNorm(config.hidden_size, config.eps)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.layernorm_before(x))
        inner = self.activation(self.intermediate["dense"](self.layernorm_after(x)))
        return x + self.output["dense"](inner)


class LayerScale(nn.Module):
    """Each feature times a learned number."""

    def __init__(self, width: int) -> None:
        self.lambda1 = nn.init.new_parameter(width, value=1.0)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.lambda1


class Dinov2Layer(nn.Module):
    """A layer of DINOv2: the outputs of attention and network are scaled, and the network may be gated (SwiGLU)."""

    def __init__(self, config: ViTConfig) -> None:
        width, inner = config.hidden_size, config.intermediate_size
        self.norm1, self.norm2 = nn.LayerNorm(width, config.eps), nn.LayerNorm(width, config.eps)
        self.attention = Attention(config)
        self.layer_scale1, self.layer_scale2 = LayerScale(width), LayerScale(width)
        if config.swiglu:
            self.mlp = {"weights_in": nn.Linear(width, 2 * inner), "weights_out": nn.Linear(inner, width)}
        else:
            self.mlp = {"fc1": nn.Linear(width, inner), "fc2": nn.Linear(inner, width)}
        self.activation = _swiglu if config.swiglu else ACTIVATIONS[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.layer_scale1(self.attention(self.norm1(x)))
        first, last = self.mlp.values()
        return x + self.layer_scale2(last(self.activation(first(self.norm2(x)))))


def _swiglu(x: Tensor) -> Tensor:
    gate, value = x.chunk(2, axis=-1)
    return F.silu(gate) * value


class Attention(nn.Module):
    """Self-attention of all tokens."""

    def __init__(self, config: ViTConfig) -> None:
        self.num_heads = config.num_heads
        parts = ("query", "key", "value")
        self.attention = {part: nn.Linear(config.hidden_size, config.hidden_size, config.qkv_bias) for part in parts}
        self.output = {"dense": nn.Linear(config.hidden_size, config.hidden_size)}

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (linear(x) for linear in self.attention.values())
        return self.output["dense"](ops.attention(query, key, value, heads=self.num_heads))


if __name__ == "__main__":
    read_images(ViTForImageClassification, "vit/classifier")
