"""The Transformer (Vaswani et al. 2017, "Attention Is All You Need"): one text to another.

::

    transformer = Transformer(vocabulary=32000)
    logits = transformer(source_ids, target_ids)                      # (N, S), (N, T) to (N, T, vocabulary)
    lucid.export.to_onnx(transformer, path="transformer.onnx")        # any batch, any lengths

Numbers in brackets are the paper's sections. There is no published checkpoint of it in safetensors; its layers are
`nn.TransformerEncoderLayer` and `nn.TransformerDecoderLayer`, which load torch's weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

import lucid
from lucid import Tensor, TensorType, nn
from lucid.nn import functional as F


class Transformer(nn.Module):
    """Encoder, decoder, and one table of vectors for both inputs and the output layer [3.4].

    Args:
        vocabulary: tokens of both languages together.
        width, heads, inner, layers: d_model, h, d_ff and N of the paper's base model [table 3].
        dropout: while training; of sub-layer outputs and of the sums of vectors and positions [5.4].
        max_length: the longest text.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int = 512,
        heads: int = 8,
        inner: int = 2048,
        layers: int = 6,
        dropout: float = 0.1,
        max_length: int = 5000,
    ) -> None:
        self.embedding = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.positions = nn.SinusoidalPositionalEncoding(width, max_length)  # [3.5]
        self.dropout = nn.Dropout(dropout)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, heads, inner, dropout), layers)  # [3.1]
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(width, heads, inner, dropout), layers)

    def encode(self, source_ids: Tensor, padding: Tensor | None = None) -> Tensor:
        """(N, S) token ids to vectors (N, S, width); `padding` (N, S) is true where there is nothing to read."""
        return self.encoder(self._embed(source_ids), src_key_padding_mask=padding)

    def decode(self, target_ids: Tensor, memory: Tensor, padding: Tensor | None = None) -> Tensor:
        """(N, T) token ids and the encoder's answer to the logits of the token after each, (N, T, vocabulary).

        No token sees a later one [3.2.3].
        """
        x = self.decoder(self._embed(target_ids), memory, tgt_is_causal=True, memory_key_padding_mask=padding)
        return F.linear(x, self.embedding.weight)

    def _embed(self, ids: Tensor) -> Tensor:
        scaled = self.embedding(ids) * math.sqrt(self.embedding.weight.numpy().shape[1])
        return self.dropout(self.positions(scaled))

    def forward(self, source_ids: Tensor, target_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The logits of the token that follows each target token.

        Args:
            source_ids: (N, S) int64.
            target_ids: (N, T) int64, what has been written so far, beginning with a start token.
            attention_mask: (N, S) int64, 1 = keep, 0 = padding of the source.
        """
        padding = None if attention_mask is None else attention_mask == 0
        return self.decode(target_ids, self.encode(source_ids, padding), padding)

    def input_specs(self) -> Mapping[str, TensorType]:
        source, target = (lucid.spec("N", length, dtype=lucid.int64) for length in "ST")
        return {"source_ids": source, "target_ids": target, "attention_mask": source}


def main() -> None:
    """Write eight tokens with a small random model, eagerly and exported: ``python -m models.transformer``."""
    lucid.manual_seed(0)
    model = Transformer(vocabulary=100, width=64, heads=4, inner=128, layers=2).eval()
    source = lucid.tensor([[7, 8, 9, 10]])
    memory, written = model.encode(source), [1]
    for _ in range(8):
        written.append(int(model.decode(lucid.tensor([written]), memory)[0, -1].argmax().item()))
    print(f"{source.tolist()[0]} becomes {written[1:]}")

    exported = lucid.export.to_onnx(model)
    session = lucid.runtime.Session(exported)
    target, mask = lucid.tensor([written]), lucid.ones(1, 4, dtype=lucid.int64)
    difference = np.abs(np.asarray(session(source, target, mask)) - model(source, target, mask).numpy()).max()
    print(f"{len(exported.graph.node)} ONNX nodes; in onnxruntime the logits differ by {difference:.1e} at most")


if __name__ == "__main__":
    main()
