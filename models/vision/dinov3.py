"""DINOv3 (Siméoni et al. 2025): a vision transformer with rotary positions of patches, for images of any size.

::

    dinov3 = DINOv3.from_pretrained("folder with config.json and model.safetensors")
    hidden, pooled = dinov3(pixels)                                   # (N, 3, H, W) to (N, tokens, E) and (N, E)
    lucid.export.to_onnx(dinov3, path="dinov3.onnx")                  # any batch, any size of images

The class token comes first, then registers, which have no place, then the patches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import lucid
from lucid import Dim, Tensor, nn, ops
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.config import Config
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import ACTIVATIONS, Checkpoint
from lucid.models.parts.decoders import Angles, PlainMLP
from lucid.models.parts.demonstration import read_images
from lucid.models.parts.images import ImageModel, PatchConfig
from lucid.models.vision.vit import LayerScale


@dataclass(frozen=True)
class DINOv3Config(PatchConfig):
    """The sizes of a model; the defaults are those of DINOv3 ViT-S/16."""

    hidden_size: int = option.size("hidden_size", 384)
    intermediate_size: int = option.size("intermediate_size", 1536)
    num_layers: int = option.layers("num_hidden_layers", 12)
    num_heads: int = option.heads("num_attention_heads", 6)
    registers: int = option.size("num_register_tokens", 0, low=0)
    activation: str = option.activation("hidden_act", "gelu")
    eps: float = option.real("layer_norm_eps", 1e-5)
    rope_theta: float = option.real("rope_theta", 100.0, low=1e-6)
    gated: bool = option.flag("use_gated_mlp", False)
    query_bias: bool = option.flag("query_bias", True)
    key_bias: bool = option.flag("key_bias", False)
    value_bias: bool = option.flag("value_bias", True)
    proj_bias: bool = option.flag("proj_bias", True)
    mlp_bias: bool = option.flag("mlp_bias", True)

    @classmethod
    def read(cls, options: Config) -> DINOv3Config:
        config = super().read(options)
        if config.hidden_size // config.num_heads % 4:
            raise options.wrong(
                "num_attention_heads", "expected heads whose width is a multiple of 4: pairs by row and column"
            )
        return config


class DINOv3(ImageModel[DINOv3Config]):
    """(N, num_channels, H, W) to the tokens after the last norm, (N, tokens, hidden_size), and the class token."""

    checkpoint = Checkpoint(
        family=FAMILIES["dinov3"],
        read=DINOv3Config.read,
        # Of training, and of use as another model's backbone.
        ignored_options=[
            "pos_embed_.*|layerscale_value|return_class_token|apply_layernorm|reshape_hidden_states|out_features|out_indices|stage_names"
        ],
        renames=[(r"^model\.(?=layer\.)", "")],
        ignored_keys=[r"embeddings\.mask_token$"],
    )

    def __init__(self, config: DINOv3Config | None = None) -> None:
        super().__init__(config := config or DINOv3Config())
        self.embeddings = Embeddings(config)
        self.layer = [Layer(config) for _ in range(config.num_layers)]
        self.norm = nn.LayerNorm(config.hidden_size, config.eps)

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        x, (rows, columns) = self.embeddings(pixel_values)
        angles = self.angles(rows, columns)
        for layer in self.layer:
            x = layer(x, angles)
        x = self.norm(x)
        return x, x[:, 0]

    def angles(self, rows: int | Dim, columns: int | Dim) -> Angles:
        """The cosines and sines of all tokens, (tokens, half of a head): of a patch by the place of its centre."""
        c = self.config
        quarter = c.hidden_size // c.num_heads // 4
        frequencies = 2 * math.pi * c.rope_theta ** (-lucid.arange(quarter).astype("float32") / quarter)

        def along(count: int | Dim) -> Tensor:  # from -1 to 1, by each frequency
            shares = (lucid.arange(count).astype("float32") + 0.5) / lucid.tensor(count)
            return (shares * 2 - 1).unsqueeze(1) * frequencies

        down, across = along(rows).unsqueeze(1), along(columns).unsqueeze(0)
        both = ops.concat([part.expand(rows, columns, quarter) for part in (down, across)], -1)
        none = lucid.zeros(1 + c.registers, 2 * quarter)  # the class token and registers are not turned
        turns, dtype = ops.concat([none, both.flatten(0, 1)], 0), self.embeddings.cls_token.dtype
        return Angles(turns.cos().astype(dtype), turns.sin().astype(dtype))


class Embeddings(nn.Module):
    """Images (N, C, H, W) to tokens (N, tokens, hidden_size), and the numbers of rows and columns of patches."""

    def __init__(self, c: DINOv3Config) -> None:
        self.registers = c.registers
        self.cls_token = nn.init.normal_(nn.init.new_parameter(1, 1, c.hidden_size))
        self.register_tokens = nn.init.new_parameter(1, c.registers, c.hidden_size)
        self.patch_embeddings = nn.Conv2d(c.num_channels, c.hidden_size, c.patch_size, stride=c.patch_size)

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, tuple[int | Dim, int | Dim]]:
        patches = self.patch_embeddings(pixel_values)
        n, width, rows, columns = patches.shape
        firsts = [self.cls_token, self.register_tokens] if self.registers else [self.cls_token]
        tokens = [token.expand(n, token.shape[1], width) for token in firsts]
        return ops.concat([*tokens, patches.flatten(2).mT], 1), (rows, columns)


class Layer(nn.Module):
    """Attention and network, each after a norm and scaled, with a residual connection."""

    def __init__(self, c: DINOv3Config) -> None:
        width = c.hidden_size
        self.norm1, self.norm2 = nn.LayerNorm(width, c.eps), nn.LayerNorm(width, c.eps)
        self.attention = Attention(c)
        self.layer_scale1, self.layer_scale2 = LayerScale(width), LayerScale(width)
        network = nn.GatedMLP if c.gated else PlainMLP
        self.mlp = network(width, c.intermediate_size, ACTIVATIONS[c.activation], c.mlp_bias, lucid.float32)

    def forward(self, x: Tensor, angles: Angles) -> Tensor:
        x = x + self.layer_scale1(self.attention(self.norm1(x), angles))
        return x + self.layer_scale2(self.mlp(self.norm2(x)))


class Attention(nn.Module):
    """Self-attention of all tokens, whose queries and keys are turned by their places."""

    def __init__(self, c: DINOv3Config) -> None:
        width, self.num_heads = c.hidden_size, c.num_heads
        self.q_proj, self.k_proj = nn.Linear(width, width, c.query_bias), nn.Linear(width, width, c.key_bias)
        self.v_proj, self.o_proj = nn.Linear(width, width, c.value_bias), nn.Linear(width, width, c.proj_bias)

    def forward(self, x: Tensor, angles: Angles) -> Tensor:
        q, k = (ops.rotary_embedding(each, *angles, heads=self.num_heads) for each in (self.q_proj(x), self.k_proj(x)))
        return self.o_proj(ops.attention(q, k, self.v_proj(x), heads=self.num_heads))


if __name__ == "__main__":
    read_images(DINOv3, "dinov3/base", 32, 48)
