"""GPT-2: a decoder that predicts the next token (Radford et al. 2019).

::

    gpt2 = GPT2.from_pretrained("folder with config.json and model.safetensors")
    logits = gpt2(lucid.tensor([[464, 3290]]))                        # (N, L) to (N, L, vocab_size)
    lucid.export.to_onnx(gpt2, path="gpt2.onnx")                      # any batch, any length
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from lucid import Tensor, nn
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import ACTIVATIONS, Checkpoint, Config
from lucid.models.parts import decoder_heads
from lucid.models.parts.decoders import LanguageModel
from lucid.models.parts.demonstration import continue_text
from lucid.models.parts.on_model import Reranker
from lucid.models.parts.options import tied
from lucid.nn import functional as F


@dataclass(frozen=True)
class GPT2Config(option.OptionTable):
    """The sizes of a model and how it scales scores; the defaults are those of the smallest published one."""

    vocab_size: int = option.size("vocab_size", 50257)
    hidden_size: int = option.size("n_embd", 768)
    num_layers: int = option.layers("n_layer", 12)
    num_heads: int = option.heads("n_head", 12)
    intermediate_size: int | None = option.size("n_inner", absent=None)  # 4 * hidden_size
    max_positions: int = option.size("n_positions", 1024)
    activation: str = option.activation("activation_function", "gelu_new")
    eps: float = option.real("layer_norm_epsilon", 1e-5)
    scale_attention: bool = option.flag("scale_attn_weights", True)  # divide scores by sqrt(width of a head)
    scale_by_layer: bool = option.flag("scale_attn_by_inverse_layer_idx", False)  # and by the layer's number, from 1
    tied: bool = tied(True, table=r"(?:transformer\.)?wte\.weight")  # the output layer is the table of token vectors
    pad_token_id: int | None = None  # of a classifier of texts, which reads their last token
    num_labels: int = 0

    @classmethod
    def read(cls, options: Config) -> Self:
        options.only("add_cross_attention", False)
        return cls.from_rows(options)

    def scale(self, layer: int) -> float:
        """The factor of the scores of a layer; layers are counted from 0."""
        scale = 1 / math.sqrt(self.hidden_size // self.num_heads) if self.scale_attention else 1.0
        return scale / (layer + 1) if self.scale_by_layer else scale


class GPT2(LanguageModel[GPT2Config]):
    """GPT-2 with its language-model head, whose weight is usually the table of token vectors."""

    checkpoint = Checkpoint(
        family=FAMILIES["gpt2"],
        read=GPT2Config.read,
        ignored_options=["reorder_and_upcast_attn", "summary_.*"],  # about half precision; for another head
        # The first published files have no prefix.
        renames=[(r"^(?!transformer\.|lm_head\.|score\.|classifier\.|qa_outputs\.)", "transformer.")],
        ignored_keys=[r"\.attn\.(bias|masked_bias)$"],  # the causal triangle, stored by older versions
        tied_keys={"lm_head.weight": "transformer.wte.weight"},
    )

    def __init__(self, config: GPT2Config | None = None) -> None:
        super().__init__(config or GPT2Config())
        self.transformer = Transformer(self.config)
        untied = not self.config.tied
        self.lm_head = nn.Linear(self.config.hidden_size, self.config.vocab_size, bias=False) if untied else None

    def decode(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
        past_key_values: Sequence[nn.Cache] | None,
    ) -> tuple[Tensor, list[nn.Cache]]:
        states, present = self.transformer(input_ids, attention_mask, position_ids, past_key_values)
        return states, present

    @property
    def table(self) -> Tensor:
        return self.transformer.wte.weight

    @property
    def cache_shape(self) -> nn.CacheShape:
        c = self.config
        return nn.CacheShape(c.num_layers, c.num_heads, c.hidden_size // c.num_heads, self.table.dtype)


class Transformer(nn.Module):
    """Token and position vectors, the blocks, and a last normalisation: (N, L) ids to (N, L, hidden_size), and the
    cache of each block if one is given."""

    def __init__(self, c: GPT2Config) -> None:
        self.wte = (nn.TiedEmbedding if c.tied else nn.Embedding)(c.vocab_size, c.hidden_size)
        self.wpe = nn.LearnedPositions(c.max_positions, c.hidden_size)
        self.h = [Block(c, c.scale(layer)) for layer in range(c.num_layers)]
        self.ln_f = nn.LayerNorm(c.hidden_size, c.eps)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Sequence[nn.Cache] | None = None,
    ) -> tuple[Tensor, list[nn.Cache]]:
        caches = F.layer_caches(past_key_values, position_ids, len(self.h))
        one_shot = position_ids is None and past_key_values is None
        positions = input_ids.shape[1] if one_shot else F.cache_positions(input_ids, position_ids, caches)
        x = self.wte(input_ids) + self.wpe(positions)
        key_mask = F.cache_key_mask(attention_mask, caches)
        present = []
        for block, cache in zip(self.h, caches, strict=True):
            x, cache = block(x, key_mask, cache)
            present.append(cache)
        return self.ln_f(x), F.present_caches(past_key_values, present)


class Block(nn.Module):
    """Attention and feed-forward network, each after a normalisation, with a residual connection."""

    def __init__(self, c: GPT2Config, scale: float) -> None:
        self.ln_1 = nn.LayerNorm(c.hidden_size, c.eps)
        self.attn = Attention(c, scale)
        self.ln_2 = nn.LayerNorm(c.hidden_size, c.eps)
        self.mlp = MLP(c)

    def forward(self, x: Tensor, key_mask: Tensor | None, cache: nn.Cache | None) -> tuple[Tensor, nn.Cache | None]:
        y, cache = self.attn(self.ln_1(x), key_mask, cache)
        x = x + y
        return x + self.mlp(self.ln_2(x)), cache


class Attention(nn.Module):
    """Causal self-attention: each token sees itself and those before it."""

    def __init__(self, c: GPT2Config, scale: float) -> None:
        self.num_heads, self.scale = c.num_heads, scale
        self.c_attn = Conv1D(c.hidden_size, 3 * c.hidden_size)
        self.c_proj = Conv1D(c.hidden_size, c.hidden_size)

    def forward(self, x: Tensor, key_mask: Tensor | None, cache: nn.Cache | None) -> tuple[Tensor, nn.Cache | None]:
        q, k, v = self.c_attn(x).chunk(3, axis=-1)
        y, cache = F.cached_attention(
            q, k, v, cache, None, key_mask, heads=self.num_heads, scale=self.scale, is_causal=True
        )
        return self.c_proj(y), cache


class MLP(nn.Module):
    """The feed-forward network."""

    def __init__(self, c: GPT2Config) -> None:
        inner = c.intermediate_size or 4 * c.hidden_size
        self.c_fc = Conv1D(c.hidden_size, inner)
        self.c_proj = Conv1D(inner, c.hidden_size)
        self.activation = ACTIVATIONS[c.activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(self.activation(self.c_fc(x)))


class Conv1D(nn.Module):
    """A linear layer that stores its weight (in, out), as this family does: x @ weight + bias."""

    quantizable: ClassVar = {"weight": "transposed"}

    def __init__(self, inputs: int, outputs: int) -> None:
        self.weight = nn.init.normal_(nn.init.new_parameter(inputs, outputs), std=0.02)
        self.bias = nn.init.new_parameter(outputs)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias, transposed=True)


class GPT2States(decoder_heads.States[GPT2Config], on=GPT2):
    def __init__(self, config: GPT2Config) -> None:
        super().__init__(config)
        self.transformer = Transformer(config)

    def states(self, input_ids: Tensor, attention_mask: Tensor | None, kept: int | Tensor | None = None) -> Tensor:
        return F.kept_positions(self.transformer(input_ids, attention_mask)[0], kept)


class GPT2ForSequenceClassification(decoder_heads.LastTokenClassifier[GPT2Config], GPT2States, on=GPT2):
    head_names: ClassVar = {"gpt2": ("transformer.", {})}


class GPT2ForReranking(Reranker[GPT2Config], GPT2ForSequenceClassification, on=GPT2): ...


class GPT2ForTokenClassification(decoder_heads.TokenClassifier[GPT2Config], GPT2States, on=GPT2):
    label_key, head_renames = r"(?:score|classifier)\.weight", ((r"^classifier\.", "score."),)


class GPT2ForQuestionAnswering(decoder_heads.QuestionAnswerer[GPT2Config], GPT2States, on=GPT2): ...


if __name__ == "__main__":
    continue_text(GPT2, "gpt2/base", 1, 2, 3)
