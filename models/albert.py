"""ALBERT (Lan et al. 2019): BERT whose layers share their weights, and whose embeddings are narrower than its states.

::

    encoder = Albert.from_pretrained("folder with config.json and model.safetensors")
    states = encoder(lucid.tensor([[2, 48, 25, 3]]))                  # (N, L) to (N, L, hidden_size)
    lucid.export.to_onnx(encoder, path="albert.onnx")                 # any batch, any length

    model = lucid.models.load("folder of an AlbertForTokenClassification")
    logits = model(input_ids, attention_mask, token_type_ids)         # (N, L, num_labels)

An exported model holds each shared weight once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from lucid import Tensor, nn, ops
from lucid.models.bert import BertConfig, Embeddings
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import ACTIVATIONS, Checkpoint, Config
from lucid.models.parts import text_encoders as text
from lucid.models.parts.demonstration import encode_text
from lucid.models.parts.on_model import Reranker
from lucid.models.parts.sentences import PooledEncoder


@dataclass(frozen=True)
class AlbertConfig(BertConfig):
    """The sizes and options of a model."""

    num_layers: int = option.layers("num_hidden_layers", numbered=False)
    activation: str = option.activation("hidden_act", "gelu_new")
    embedding_size: int | None = option.size("embedding_size", 128)
    num_groups: int = 1  # of layers that share their weights
    inner_layers: int = option.layers("inner_group_num", 1, numbered=False)  # of a group; each of num_layers is all

    @classmethod
    def read(cls, options: Config) -> Self:
        options.only("position_embedding_type", "absolute")
        options.only("down_scale_factor", 1)
        for name in ("gap_size", "net_structure_type", "num_memory_blocks"):
            options.only(name, 0)
        config = cls.from_rows(options)
        groups = options.whole("num_hidden_groups", high=config.num_layers, why=", the number of layers")
        return replace(config, num_groups=groups)


class Albert(text.TextEncoder[AlbertConfig]):
    checkpoint = Checkpoint(
        family=FAMILIES["albert"],
        read=AlbertConfig.read,
        ignored_options=["tie_word_embeddings"],
        renames=[(r"^albert\.", "")],
        # Heads for other tasks, and position numbers that some checkpoints store.
        ignored_keys=[r"^(pooler|predictions|sop_classifier|classifier|qa_outputs)\.", r"embeddings\.position_ids$"],
    )

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(config)
        self.embeddings = Embeddings(config)
        self.encoder = Encoder(config)

    def embed(self, input_ids: Tensor, token_type_ids: Tensor | None, key_mask: Tensor | None) -> Tensor:
        return self.encoder.embedding_hidden_mapping_in(self.embeddings(input_ids, token_type_ids))

    def layer_states(self, x: Tensor, key_mask: Tensor | None) -> list[Tensor]:
        return self.encoder(x, key_mask)


class Encoder(nn.Module):
    """A linear layer that widens the embeddings, then the groups of layers; each group is repeated."""

    def __init__(self, c: AlbertConfig) -> None:
        self.embedding_hidden_mapping_in = nn.Linear(c.embedding_size or c.hidden_size, c.hidden_size)
        inner = range(c.inner_layers)
        self.albert_layer_groups = [{"albert_layers": [Layer(c) for _ in inner]} for _ in range(c.num_groups)]
        self.num_layers = c.num_layers

    def forward(self, x: Tensor, key_mask: Tensor | None) -> list[Tensor]:
        states, groups = [x], self.albert_layer_groups
        for index in range(self.num_layers):
            for layer in groups[int(index / (self.num_layers / len(groups)))]["albert_layers"]:
                x = layer(x, key_mask)
            states.append(x)
        return states


class Layer(nn.Module):
    """Attention and the feed-forward network, each with a residual connection and then a norm."""

    def __init__(self, c: AlbertConfig) -> None:
        self.attention = Attention(c)
        self.ffn = nn.Linear(c.hidden_size, c.intermediate_size)
        self.ffn_output = nn.Linear(c.intermediate_size, c.hidden_size)
        self.full_layer_layer_norm = nn.LayerNorm(c.hidden_size, c.eps)
        self.activation = ACTIVATIONS[c.activation]

    def forward(self, x: Tensor, key_mask: Tensor | None) -> Tensor:
        x = self.attention(x, key_mask)
        return self.full_layer_layer_norm(self.ffn_output(self.activation(self.ffn(x))) + x)


class Attention(nn.Module):
    """Attention with its projections, a residual connection and a norm."""

    def __init__(self, c: AlbertConfig) -> None:
        self.query, self.key, self.value, self.dense = (nn.Linear(c.hidden_size, c.hidden_size) for _ in range(4))
        self.LayerNorm = nn.LayerNorm(c.hidden_size, c.eps)
        self.num_heads = c.num_heads

    def forward(self, x: Tensor, key_mask: Tensor | None) -> Tensor:
        y = ops.attention(self.query(x), self.key(x), self.value(x), None, key_mask, heads=self.num_heads)
        return self.LayerNorm(self.dense(y) + x)


# Heads ----------------------------------------------------------------------------------------------------------------


class AlbertSentenceEncoder(PooledEncoder[AlbertConfig], Albert, on=Albert): ...


class AlbertForSequenceClassification(text.SequenceClassifier[AlbertConfig], Albert, on=Albert):
    head_names: ClassVar = {"albert": ("albert.", text.bert_names("albert.pooler"))}


class AlbertForReranking(Reranker[AlbertConfig], AlbertForSequenceClassification, on=Albert): ...


class AlbertForMultipleChoice(text.MultipleChoice[AlbertConfig], AlbertForSequenceClassification, on=Albert): ...


class AlbertForTokenClassification(text.TokenClassifier[AlbertConfig], Albert, on=Albert): ...


class AlbertForQuestionAnswering(text.QuestionAnswerer[AlbertConfig], Albert, on=Albert): ...


class AlbertForMaskedLM(text.MaskedLM[AlbertConfig], Albert, on=Albert):
    head_renames = (
        (r"^predictions\.LayerNorm\.", "lm_head.layer_norm."),
        (r"^predictions\.", "lm_head."),
    )


if __name__ == "__main__":
    encode_text(Albert, "albert/base", 2, 5, 7, 3)
