"""Vision transformers: ViT (Dosovitskiy et al. 2021), DeiT (Touvron et al. 2021) and DINOv2 (Oquab et al. 2023).

::

    vit = ViT.from_pretrained("folder with config.json and model.safetensors")
    hidden = vit(pixels)                                              # (N, 3, H, W) to (N, tokens, width)
    lucid.export.to_onnx(vit, path="vit.onnx")                        # any batch; DINOv2: any size of images

An image is cut into patches, each becomes a token, a class token goes in front (and DeiT's distillation token behind
it). Modules carry the names of the published checkpoints, and so do the weights of an exported model.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import lucid
from lucid import Dim, Tensor, TensorType, nn, ops
from lucid.nn import functional as F
from models._pretrained import ACTIVATIONS, MAX_NUMBER, Config, building, load_into


@dataclass(frozen=True)
class ViTConfig:
    """The sizes of a model and which of the three families it is of; by default ViT-B/16."""

    family: str = "vit"
    width: int = 768
    inner: int = 3072
    layers: int = 12
    heads: int = 12
    image_size: tuple[int, int] = (224, 224)
    patch_size: int = 16
    channels: int = 3
    activation: str = "gelu"
    eps: float = 1e-12
    qkv_bias: bool = True
    swiglu: bool = False

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Self:
        """From config.json, option by option; an option that is not supported is an error that names it."""
        config = Config.read(folder, "vit", "deit", "dinov2")
        width, image_size = config.size("hidden_size"), _sides(config)
        swiglu = config.get("use_swiglu_ffn", bool, False)
        if config.model_type == "dinov2":
            inner = int(width * config.real("mlp_ratio", 4.0, low=1e-3, high=1e3))
            inner = (inner * 2 // 3 + 7) // 8 * 8 if swiglu else inner
        else:
            inner = config.size("intermediate_size")
        config.choose("hidden_act", ACTIVATIONS)
        made = cls(
            family=config.model_type,
            width=width,
            inner=inner,
            layers=config.layers("num_hidden_layers"),
            heads=config.heads("num_attention_heads", width),
            image_size=image_size,
            patch_size=config.whole("patch_size", high=min(image_size), why=", the size of an image"),
            channels=config.size("num_channels", 3),
            activation=config.get("hidden_act", str),
            eps=config.real("layer_norm_eps"),
            qkv_bias=config.get("qkv_bias", bool, True),
            swiglu=swiglu,
        )
        # The pooler, masked training, and serving as the backbone of another model are not what is computed here.
        config.done(ignore=["pooler_.*|encoder_stride|use_mask_token|layerscale_value", _BACKBONE])
        return made


def _sides(config: Config) -> tuple[int, int]:
    """Height and width of an image: one number for both, or a list of two."""
    given = config.options.get("image_size")
    if not isinstance(given, list):
        side = config.whole("image_size")
        return side, side
    sides = config.get("image_size", list)
    if len(sides) != 2 or any(type(side) is not int or not 0 < side <= MAX_NUMBER for side in sides):
        raise config.wrong("image_size", f"expected a whole number from 1 to {MAX_NUMBER}, or a list of two")
    return sides[0], sides[1]


_BACKBONE = "apply_layernorm|reshape_hidden_states|out_features|out_indices|stage_names"


class Embeddings(nn.Module):
    """Images (N, C, H, W) to tokens: the class token, DeiT's distillation token, one for each patch; plus positions."""

    def __init__(self, config: ViTConfig) -> None:
        self.config = config
        patch, (height, width) = config.patch_size, config.image_size
        self.grid = (height // patch, width // patch)
        self.cls_token = nn.init.normal_(nn.init.new_parameter(1, 1, config.width))
        self.distillation_token = (
            nn.init.normal_(nn.init.new_parameter(1, 1, config.width)) if config.family == "deit" else None
        )
        self.extra = 1 if self.distillation_token is None else 2
        tokens = self.grid[0] * self.grid[1] + self.extra
        self.position_embeddings = nn.init.normal_(nn.init.new_parameter(1, tokens, config.width))
        self.patch_embeddings = {"projection": nn.Conv2d(config.channels, config.width, patch, stride=patch)}

    def forward(self, pixel_values: Tensor) -> Tensor:
        patches = self.patch_embeddings["projection"](pixel_values)  # (N, width, h, w)
        n, width, height, length = patches.shape
        firsts = [token for token in (self.cls_token, self.distillation_token) if token is not None]
        tokens = [token.expand(n, 1, width) for token in firsts]
        x = ops.concat([*tokens, patches.flatten(2).mT], 1)
        return x + self._positions(height, length)

    def _positions(self, height: int | Dim, length: int | Dim) -> Tensor:
        """The stored positions; of DINOv2 those of the patches are stretched to the image's own grid."""
        if self.config.family != "dinov2":
            return self.position_embeddings
        width, (rows, columns), table = self.config.width, self.grid, self.position_embeddings
        stored = table[:, self.extra :].reshape(rows, columns * width).part_of(table, "[patches]")
        down, across = (stretch(*sizes).astype(table.dtype) for sizes in ((rows, height), (columns, length)))
        stretched = (down @ stored).reshape(height, columns, width)
        stretched = (across @ stretched).reshape(1, height * length, width)
        return ops.concat([table[:, : self.extra].part_of(table, "[class]"), stretched], 1)


def stretch(stored: int, wanted: int | Dim) -> Tensor:
    """(wanted, stored): bicubic interpolation of stored points at the wanted ones (Keys 1981, with a = -0.75)."""
    a, total = -0.75, lucid.arange(wanted, wanted + 1)  # the size as a tensor, since it may be symbolic
    centre = (lucid.arange(wanted).astype("float32") + 0.5) * (stored / total) - 0.5
    points = ops.floor(centre).unsqueeze(1) + lucid.tensor([-1.0, 0.0, 1.0, 2.0])  # the four around each centre
    x = abs(centre.unsqueeze(1) - points)
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((x - 5) * x + 8) * x * a - 4 * a
    weights = ops.where(x <= 1, near, far).unsqueeze(2)
    # Beyond the border its last point counts again.
    same_point = ops.clip(points, 0, stored - 1).unsqueeze(2) == lucid.arange(stored).astype("float32")
    return ops.where(same_point, weights, 0.0).sum(1)


class Attention(nn.Module):
    """Self-attention of all tokens."""

    def __init__(self, config: ViTConfig) -> None:
        self.heads = config.heads
        parts = ("query", "key", "value")
        self.attention = {part: nn.Linear(config.width, config.width, config.qkv_bias) for part in parts}
        self.output = {"dense": nn.Linear(config.width, config.width)}

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (linear(x) for linear in self.attention.values())
        return self.output["dense"](ops.attention(query, key, value, heads=self.heads))


class Layer(nn.Module):
    """A layer of ViT and DeiT: attention and network, each behind a norm and added to what came in."""

    def __init__(self, config: ViTConfig) -> None:
        self.attention = Attention(config)
        self.intermediate = {"dense": nn.Linear(config.width, config.inner)}
        self.output = {"dense": nn.Linear(config.inner, config.width)}
        self.layernorm_before = nn.LayerNorm(config.width, config.eps)
        self.layernorm_after = nn.LayerNorm(config.width, config.eps)
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
    """A layer of DINOv2: what attention and network add is scaled, and the network may be gated (SwiGLU)."""

    def __init__(self, config: ViTConfig) -> None:
        width, inner = config.width, config.inner
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


class ViT(nn.Module):
    """The encoder: (N, channels, H, W) to the tokens (N, tokens, width) behind the last norm, the class token first."""

    def __init__(self, config: ViTConfig | None = None) -> None:
        self.config = config = config or ViTConfig()
        layer = Dinov2Layer if config.family == "dinov2" else Layer
        self.embeddings = Embeddings(config)
        self.encoder = {"layer": [layer(config) for _ in range(config.layers)]}
        self.layernorm = nn.LayerNorm(config.width, config.eps)

    def forward(self, pixel_values: Tensor) -> Tensor:
        size, given = self.config.image_size, pixel_values.shape[2:]
        if self.config.family != "dinov2" and given != size:
            raise ValueError(f"ViT: pixel_values have height and width {given}, the model was trained on {size}")
        x = self.embeddings(pixel_values)
        for layer in self.encoder["layer"]:
            x = layer(x)
        return self.layernorm(x)

    def input_specs(self) -> Mapping[str, TensorType]:
        size = ("H", "W") if self.config.family == "dinov2" else self.config.image_size
        return {"pixel_values": lucid.spec("N", self.config.channels, *size, dtype=self.embeddings.cls_token.dtype)}

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str]) -> Self:
        """Read Hugging Face's config.json and model.safetensors, of an encoder or of a classifier without its head.

        Raises:
            ConfigError: for an option that is not supported; KeyError: for weights that do not fit, all at once.
        """
        config, arrays = ViTConfig.read(folder), lucid.load(folder)
        with building(folder, arrays):
            model = cls(config)
        renames, heads = [(r"^(vit|deit|dinov2)\.", "")], [r"^(cls_|distillation_)?classifier\.", r"^pooler\."]
        load_into(model, arrays, renames, ignore=[*heads, r"embeddings\.mask_token$"])
        return model.eval()


class ViTForImageClassification(nn.Module):
    """The encoder and a linear layer on the class token: (N, channels, H, W) to the logits (N, labels).

    DINOv2's reads the class token and the mean of the patches. A DeiT with a teacher has a second layer, which reads
    the distillation token, and the answer is the mean of both.
    """

    def __init__(self, config: ViTConfig, labels: int, teacher: bool = False) -> None:
        self.vit = ViT(config)
        width = config.width * (2 if config.family == "dinov2" else 1)
        self.classifier = None if teacher else nn.Linear(width, labels)
        self.cls_classifier = nn.Linear(width, labels) if teacher else None
        self.distillation_classifier = nn.Linear(width, labels) if teacher else None

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = self.vit(pixel_values)
        if self.cls_classifier is not None and self.distillation_classifier is not None:
            return (self.cls_classifier(x[:, 0]) + self.distillation_classifier(x[:, 1])) / 2
        read = x[:, 0]
        if self.vit.config.family == "dinov2":
            read = ops.concat([read, x[:, 1:].mean(1)], -1)
        assert self.classifier is not None
        return self.classifier(read)

    def input_specs(self) -> Mapping[str, TensorType]:
        return self.vit.input_specs()

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str]) -> Self:
        """Read Hugging Face's config.json and model.safetensors of a classifier; see `ViT.from_pretrained`."""
        arrays = lucid.load(folder)
        teacher = "cls_classifier.weight" in arrays
        head = arrays.get("cls_classifier.weight" if teacher else "classifier.weight")
        if head is None:
            raise KeyError(f"{folder}: there is no classifier.weight; use ViT, which reads an encoder")
        if head.ndim != 2:
            raise KeyError(f"{folder}: classifier.weight has shape {list(head.shape)}, expected [labels, width]")
        config = ViTConfig.read(folder)
        with building(folder, arrays):
            model = cls(config, head.shape[0], teacher)
        load_into(model, arrays, renames=[(r"^(deit|dinov2)\.", "vit.")], ignore=[r"embeddings\.mask_token$"])
        return model.eval()


def main() -> None:
    """Look at noise, exported and eagerly, and find the nearest class: ``python -m models.vit FOLDER``."""
    tiny = Path(__file__).parents[1] / "tests" / "goldens" / "vit" / "classifier"
    vit = ViTForImageClassification.from_pretrained(sys.argv[1] if len(sys.argv) > 1 else tiny)
    lucid.manual_seed(0)
    pixels = lucid.randn(2, vit.vit.config.channels, *vit.vit.config.image_size)
    logits = lucid.runtime.Session(lucid.export.to_onnx(vit))(pixels)
    difference = abs(logits - vit(pixels)).max().item()
    print(f"{pixels.shape} images are of the classes {logits.argmax().tolist()} of {logits.shape[1]}")
    print(f"largest difference between exported and eager logits {difference:.1e}")


if __name__ == "__main__":
    main()
