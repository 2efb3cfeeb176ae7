"""The Transformer (Vaswani et al. 2017, "Attention Is All You Need"): one text to another.

::

    transformer = Transformer(vocab_size=32000)
    logits = transformer(source_ids, target_ids)                      # (N, S), (N, T) to (N, T, vocab_size)
    lucid.export.to_onnx(transformer, path="transformer.onnx")        # any batch, any lengths

    cache = transformer.empty_cache(transformer.encode(source_ids))   # token by token: the page "Key-value cache"
    logits, cache = transformer.decode(start, cache)

Numbers in brackets are the paper's sections. There is no published checkpoint of it in safetensors; its layers are
`nn.TransformerEncoderLayer` and `nn.TransformerDecoderLayer`, which load torch's weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import lucid
from lucid import Tensor, TensorType, nn
from lucid.models.parts.demonstration import SideBySide, ones_like, written
from lucid.nn import functional as F


class Transformer(nn.EncoderDecoder):
    """Encoder, decoder, and one table of vectors for both inputs and the output layer [3.4].

    Args:
        vocab_size: tokens of both languages together.
        hidden_size, num_heads, intermediate_size, num_layers: d_model, h, d_ff and N of the paper's base model
            [table 3].
        dropout: while training, of sub-layer outputs and of the sums of vectors and positions [5.4].
        max_positions: the length of the longest text.
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int = 512,
        num_heads: int = 8,
        intermediate_size: int = 2048,
        num_layers: int = 6,
        dropout: float = 0.1,
        max_positions: int = 5000,
    ) -> None:
        sizes = (hidden_size, num_heads, intermediate_size, dropout)
        self.num_heads = num_heads
        self.embedding = nn.TiedEmbedding(vocab_size, hidden_size)
        nn.init.normal_(self.embedding.weight, std=hidden_size**-0.5)
        self.positions = nn.SinusoidalPositionalEncoding(hidden_size, max_positions)  # [3.5]
        self.dropout = nn.Dropout(dropout)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(*sizes), num_layers)  # [3.1]
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(*sizes), num_layers)

    def forward(self, source_ids: Tensor, target_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The logits of the token that follows each target token, (N, T, vocab_size). A token does not see later ones
        [3.2.3].

        Args:
            source_ids: (N, S) int64.
            target_ids: (N, T) int64, the tokens generated so far, beginning with a start token.
            attention_mask: (N, S) int64, 1 = keep, 0 = padding of the source.
        """
        padding = None if attention_mask is None else attention_mask == 0
        memory = self.encoder(self._embed(source_ids), src_key_padding_mask=padding)
        x = self.decoder(self._embed(target_ids), memory, tgt_is_causal=True, memory_key_padding_mask=padding)
        return self.logits(x)

    def encode(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """(N, S) int64 token ids, and which are padding (0), to vectors (N, S, hidden_size)."""
        padding = None if attention_mask is None else attention_mask == 0
        return self.encoder(self._embed(input_ids), src_key_padding_mask=padding)

    def cross_caches(self, encoder_hidden_states: Tensor) -> list[nn.KeyValueCache]:
        return self.decoder.cross_caches(encoder_hidden_states)

    def step(
        self,
        input_ids: Tensor,
        positions: Tensor,
        caches: Sequence[nn.EncoderDecoderCache],
        key_mask: Tensor | None,
    ) -> tuple[Tensor, Sequence[nn.Cache | None]]:
        padding = None if key_mask is None else ~key_mask
        return self.decoder.step(self._embed(input_ids, positions), caches, padding)

    def logits(self, x: Tensor) -> Tensor:
        return F.linear(x, self.embedding.weight)

    def _embed(self, ids: Tensor, positions: Tensor | None = None) -> Tensor:
        scaled = self.embedding(ids) * math.sqrt(self.encoder_width)
        return self.dropout(self.positions(scaled, positions))

    @property
    def cache_shape(self) -> nn.CacheShape:
        heads, layers = self.num_heads, len(self.decoder.layers)
        return nn.CacheShape(layers, heads, self.encoder_width // heads, self.embedding.weight.dtype)

    @property
    def encoder_width(self) -> int:
        return self.embedding.weight.shape[1].__index__()

    def input_specs(self) -> Mapping[str, TensorType]:
        source, target = (lucid.spec("N", length, dtype=lucid.int64) for length in "ST")
        return {"source_ids": source, "target_ids": target, "attention_mask": source}


def main() -> None:
    """Generate eight tokens with a small random model, eagerly and exported: ``python -m lucid.models.transformer``."""
    lucid.manual_seed(0)
    both = SideBySide(Transformer(100, hidden_size=64, num_heads=4, intermediate_size=128, num_layers=2))
    source = lucid.tensor([[7, 8, 9, 10]])
    _, *answer = written(lambda target: both(source, target, ones_like(source)), lucid.tensor([[1]]))
    print(f"{source.tolist()[0]} becomes {answer}")
    print(f"{both.nodes} ONNX nodes; {both.verdict('logits')}")


if __name__ == "__main__":
    main()
