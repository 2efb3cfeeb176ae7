"""MiniLM for a web page: embeddings of sentences and what each token attends to, with weights in 8 bits."""

from __future__ import annotations

from typing import ClassVar

from lucid import Tensor, ops
from lucid.models.bert import SelfAttention, SentenceEncoder


class MappedSentenceEncoder(SentenceEncoder):
    """A sentence encoder that also returns the attention weights of all layers.

    Token ids and mask (N, L) to ``sentence_embedding`` (N, E) and ``attentions`` (N, layers, H, L, L).
    """

    output_names: ClassVar[tuple[str, ...]] = ("sentence_embedding", "attentions")

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        key_mask = None if attention_mask is None else attention_mask != 0
        x = self.embed(input_ids, token_type_ids, key_mask)
        maps: list[Tensor] = []
        for layer in self.encoder.layer:
            attended, weights = _attend(layer.attention.self, x, key_mask)
            x = layer.attention.output(attended, x)
            x = layer.output(layer.intermediate(x), x)
            maps.append(weights)
        return self.sentence_embedding(x, attention_mask), ops.stack(maps, 1)


def _attend(module: SelfAttention, x: Tensor, key_mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Attention and its weights, (N, L, E) and (N, H, L, L)."""
    q, k, v = module.query(x), module.key(x), module.value(x)
    attended, weights = ops.attention(q, k, v, None, key_mask, heads=module.config.num_heads, need_weights=True)
    return attended, weights
