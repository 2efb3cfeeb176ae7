"""GPT-2: a decoder that predicts the next token (Radford et al. 2019).

::

    gpt2 = GPT2.from_pretrained("folder with config.json and model.safetensors")
    logits = gpt2(lucid.tensor([[464, 3290]]))                        # (N, L) to (N, L, vocabulary)
    lucid.export.to_onnx(gpt2, path="gpt2.onnx")                      # any batch, any length

Modules carry the names of the published checkpoints, and so do the weights of an exported model.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import lucid
from lucid import Tensor, TensorType, nn, ops
from lucid.nn import functional as F
from models._pretrained import ACTIVATIONS, Config, building, load_into


class Conv1D(nn.Module):
    """A linear layer that stores its weight (in, out), as this family does: x @ weight + bias."""

    def __init__(self, inputs: int, outputs: int) -> None:
        self.weight = nn.init.normal_(nn.init.new_parameter(inputs, outputs), std=0.02)
        self.bias = nn.init.new_parameter(outputs)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class Attention(nn.Module):
    """Causal self-attention: each token sees itself and those before it."""

    def __init__(self, width: int, heads: int, scale: float) -> None:
        self.heads, self.scale = heads, scale
        self.c_attn = Conv1D(width, 3 * width)
        self.c_proj = Conv1D(width, width)

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        q, k, v = self.c_attn(x).chunk(3, axis=-1)
        return self.c_proj(ops.attention(q, k, v, None, keep, heads=self.heads, scale=self.scale, is_causal=True))


class MLP(nn.Module):
    """The feed-forward network."""

    def __init__(self, width: int, inner: int, activation: Callable[[Tensor], Tensor]) -> None:
        self.c_fc = Conv1D(width, inner)
        self.c_proj = Conv1D(inner, width)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(self.activation(self.c_fc(x)))


class Block(nn.Module):
    """Attention and network, each behind a normalisation and added to what came in."""

    def __init__(
        self,
        width: int,
        heads: int,
        inner: int,
        eps: float,
        scale: float,
        activation: Callable[[Tensor], Tensor],
    ) -> None:
        self.ln_1 = nn.LayerNorm(width, eps)
        self.attn = Attention(width, heads, scale)
        self.ln_2 = nn.LayerNorm(width, eps)
        self.mlp = MLP(width, inner, activation)

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        x = x + self.attn(self.ln_1(x), keep)
        return x + self.mlp(self.ln_2(x))


class Transformer(nn.Module):
    """Token and position vectors, the blocks, and a last normalisation: (N, L) ids to (N, L, width)."""

    def __init__(self, vocabulary: int, positions: int, width: int, eps: float, blocks: list[Block]) -> None:
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.LearnedPositions(positions, width)
        self.h = blocks
        self.ln_f = nn.LayerNorm(width, eps)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        x = self.wte(input_ids) + self.wpe(input_ids.shape[1])
        keep = None if attention_mask is None else attention_mask.astype(lucid.bool_)
        for block in self.h:
            x = block(x, keep)
        return self.ln_f(x)


class GPT2(nn.Module):
    """GPT-2 with its language-model head, whose weight is the table of token vectors.

    Args:
        vocabulary, positions, width, layers, heads: the sizes; those of the smallest published model by default.
        inner: the width inside the feed-forward networks, 4 * width by default.
        scale_attention: divide scores by sqrt(width of a head).
        scale_by_layer: divide them by the number of the layer as well, counted from 1.
    """

    def __init__(
        self,
        vocabulary: int = 50257,
        positions: int = 1024,
        width: int = 768,
        layers: int = 12,
        heads: int = 12,
        inner: int | None = None,
        activation: str = "gelu_new",
        eps: float = 1e-5,
        scale_attention: bool = True,
        scale_by_layer: bool = False,
    ) -> None:
        scale = 1 / math.sqrt(width // heads) if scale_attention else 1.0
        scales = [scale / (layer + 1) if scale_by_layer else scale for layer in range(layers)]
        act = ACTIVATIONS[activation]
        blocks = [Block(width, heads, inner or 4 * width, eps, scale, act) for scale in scales]
        self.transformer = Transformer(vocabulary, positions, width, eps, blocks)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The logits of the token that follows each token.

        Args:
            input_ids: (N, L) int64.
            attention_mask: (N, L) int64, 1 = keep, 0 = padding. Positions count from 0 at the first column, always.

        Returns:
            (N, L, vocabulary).
        """
        return F.linear(self.transformer(input_ids, attention_mask), self.transformer.wte.weight)

    def input_specs(self) -> Mapping[str, TensorType]:
        ids = lucid.spec("N", "L", dtype=lucid.int64)
        return {"input_ids": ids, "attention_mask": ids}

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str]) -> Self:
        """Read Hugging Face's config.json and model.safetensors.

        Raises:
            ConfigError: for an option that is not supported; KeyError: for weights that do not fit, all at once.
        """
        config = Config.read(folder, "gpt2")
        config.choose("activation_function", ACTIVATIONS, "gelu_new")
        width = config.size("n_embd")
        arrays = lucid.load(folder)
        with building(folder, arrays):
            model = cls(
                vocabulary=config.size("vocab_size"),
                positions=config.size("n_positions"),
                width=width,
                layers=config.layers("n_layer"),
                heads=config.heads("n_head", width),
                inner=config.size("n_inner", None),
                activation=config.get("activation_function", str, "gelu_new"),
                eps=config.real("layer_norm_epsilon", 1e-5),
                scale_attention=config.get("scale_attn_weights", bool, True),
                scale_by_layer=config.get("scale_attn_by_inverse_layer_idx", bool, False),
            )
        config.only("add_cross_attention", False)
        config.only("tie_word_embeddings", True)
        # Upcasting says how half precision is computed, n_ctx repeats n_positions, a summary is another head.
        config.done(ignore=["reorder_and_upcast_attn", "n_ctx", "summary_.*"])
        load_into(
            model,
            arrays,
            renames=[(r"^(?!transformer\.|lm_head\.)", "transformer.")],  # the first published files have no prefix
            ignore=[r"\.attn\.(bias|masked_bias)$"],  # the causal triangle, stored by older versions
            tied={"lm_head.weight": "transformer.wte.weight"},
        )
        return model.eval()


def main() -> None:
    """Complete a text, given as token ids, with the exported model: ``python -m models.gpt2 FOLDER 464 3290``."""
    tiny = Path(__file__).parents[1] / "tests" / "goldens" / "gpt2" / "base"
    gpt2 = GPT2.from_pretrained(sys.argv[1] if len(sys.argv) > 1 else tiny)
    session = lucid.runtime.Session(lucid.export.to_onnx(gpt2))
    ids, difference = lucid.tensor([[int(word) for word in sys.argv[2:]] or [1, 2, 3]]), 0.0
    for _ in range(8):
        mask = lucid.ones(*ids.shape, dtype=lucid.int64)
        logits = session(ids, mask)
        difference = max(difference, abs(logits - gpt2(ids, mask)).max().item())
        ids = ops.concat([ids, logits[:, -1:].argmax()], 1)
    print(f"token ids {ids.tolist()[0]}, largest difference between exported and eager logits {difference:.1e}")


if __name__ == "__main__":
    main()
