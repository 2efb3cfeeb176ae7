"""Heads on BERT and its kin: classes of texts and of tokens, answers in a text, tokens behind masks.

::

    model = lucid.models.load("folder of a BertForSequenceClassification")
    logits = model(input_ids, attention_mask, token_type_ids)            # (N, num_labels)

The layers of heads have the names of RoBERTa's checkpoints. ``python -m lucid.models.bert_tasks FOLDER``
fills a masked text, eagerly and exported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import lucid
from lucid import Tensor, nn
from lucid.models._demonstration import SideBySide, checkpoint_folder, ones_like, token_ids
from lucid.models._pretrained import ACTIVATIONS, Config, ConfigError
from lucid.models.bert import RENAMES, Bert, BertConfig
from lucid.nn import functional as F


def _with_labels(options: Config, key: str, expected: int | None = None) -> BertConfig:
    """The config; the rows of the head's last weight say how many labels there are. `key` is a regular expression."""
    found = next((name for name in options.weights if re.fullmatch(key, name)), None)
    if found is None:
        raise KeyError(
            f"{options.where}: the checkpoint has no {re.sub('[^a-z_.]', '', key)}; use Bert, an encoder without a head"
        )
    shape = options.weights[found].shape
    if len(shape) != 2:
        raise KeyError(f"{options.where}: {found} has shape {list(shape)}, expected [labels, width]")
    if expected is not None and shape[0] != expected:
        raise ConfigError(f"{options.where}: {found} has {shape[0]} labels, expected {expected}")
    return replace(BertConfig.read(options), num_labels=shape[0])


class BertWithHead(Bert):
    """The base: an encoder that takes what its tokenizer gives, segments too if it knows any."""

    def states(self, input_ids: Tensor, attention_mask: Tensor | None, token_type_ids: Tensor | None) -> Tensor:
        """The encoder's states, (N, L, E)."""
        return Bert.forward(self, input_ids, attention_mask, token_type_ids)

    def input_specs(self) -> Mapping[str, lucid.TensorType]:
        segments = ["token_type_ids"] if self.config.type_vocab_size > 1 else []
        return {name: lucid.spec("N", "L", dtype=lucid.int64) for name in ("input_ids", "attention_mask", *segments)}


class BertForSequenceClassification(BertWithHead):
    """Texts, or pairs of texts, (N, L) to logits (N, num_labels)."""

    checkpoint = replace(
        Bert.checkpoint,
        read=lambda options: _with_labels(options, r"classifier\.(?:out_proj\.)?weight"),
        # How sentence-transformers makes scores of the logits of a cross-encoder.
        ignored_options=[*Bert.checkpoint.ignored_options, "sentence_transformers|sbert_ce_.*"],
        renames=[
            (r"^(bert|ernie)\.pooler\.dense\.", "classifier.dense."),  # a pooler that RoBERTa may have is not used
            *RENAMES,
            (r"^pre_classifier\.", "classifier.dense."),
            (r"^classifier\.(weight|bias)$", r"classifier.out_proj.\1"),
        ],
        task="text-classification",
        head_keys=[r"^classifier\.dense\.weight", r"^classifier\.out_proj\.weight"],
    )
    output_names = ("logits",)

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.classifier = ClassificationHead(config)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        return self.classifier(self.states(input_ids, attention_mask, token_type_ids)[:, 0])


class BertForReranking(BertForSequenceClassification):
    """A cross-encoder: pairs of a query and a text (N, L) to logits (N, 1), the higher the more relevant."""

    checkpoint = replace(
        BertForSequenceClassification.checkpoint,
        read=lambda options: _with_labels(options, r"classifier\.(?:out_proj\.)?weight", expected=1),
        task="reranking",
    )


class ClassificationHead(nn.Module):
    """Two layers on the state of the first token, (N, E) to (N, num_labels)."""

    def __init__(self, c: BertConfig) -> None:
        self.dense = nn.Linear(c.hidden_size, c.hidden_size)
        self.activation = ACTIVATIONS[{"distilbert": "relu", "electra": "gelu"}.get(c.family, "tanh")]
        self.out_proj = nn.Linear(c.hidden_size, c.num_labels)

    def forward(self, first: Tensor) -> Tensor:
        return self.out_proj(self.activation(self.dense(first)))


class BertForTokenClassification(BertWithHead):
    """Token ids (N, L) to the logits of each token, (N, L, num_labels)."""

    checkpoint = replace(
        Bert.checkpoint,
        read=lambda options: _with_labels(options, r"classifier\.weight"),
        task="token-classification",
        head_keys=[r"^classifier\.weight"],
    )
    output_names = ("logits",)

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        return self.classifier(self.states(input_ids, attention_mask, token_type_ids))


class BertForQuestionAnswering(BertWithHead):
    """A question and a text (N, L) to the logits of the answer's first and last token, (N, L) each."""

    checkpoint = replace(
        Bert.checkpoint,
        read=lambda options: _with_labels(options, r"qa_outputs\.weight", expected=2),
        task="question-answering",
        head_keys=[r"^qa_outputs\.weight"],
    )
    output_names = ("start_logits", "end_logits")

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)

    def forward(  # type: ignore[override]  # two results
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        logits = self.qa_outputs(self.states(input_ids, attention_mask, token_type_ids))
        return logits[:, :, 0], logits[:, :, 1]


class BertForMaskedLM(BertWithHead):
    """Token ids (N, L) to the logits of what stands at each place, (N, L, vocab_size)."""

    checkpoint = replace(
        Bert.checkpoint,
        renames=[
            *RENAMES,
            (r"^cls\.predictions\.transform\.dense\.|^vocab_transform\.", "lm_head.dense."),
            (r"^cls\.predictions\.transform\.LayerNorm\.|^vocab_layer_norm\.", "lm_head.layer_norm."),
            (r"^vocab_projector\.", "lm_head.decoder."),
            (r"^cls\.predictions\.", "lm_head."),
        ],
        tied_keys={
            "lm_head.decoder.weight": "embeddings.word_embeddings.weight",
            "lm_head.decoder.bias": "lm_head.bias",
        },
        task="fill-mask",
        head_keys=[r"^lm_head\.dense\.weight"],
    )
    output_names = ("logits",)

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.lm_head = LanguageModelHead(config)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        x = self.lm_head(self.states(input_ids, attention_mask, token_type_ids))
        return F.linear(x, self.embeddings.word_embeddings.weight, self.lm_head.bias)


class LanguageModelHead(nn.Module):
    """What is multiplied with the embeddings of all tokens, (N, L, E), and then added: `bias`, (vocab_size,)."""

    def __init__(self, c: BertConfig) -> None:
        self.dense = nn.Linear(c.hidden_size, c.hidden_size)
        self.activation = ACTIVATIONS["gelu" if c.family == "roberta" else c.activation]
        self.layer_norm = nn.LayerNorm(c.hidden_size, c.eps)
        self.bias = nn.init.new_parameter(c.vocab_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer_norm(self.activation(self.dense(x)))


def main() -> None:
    """Fill a text of token ids, eagerly and in onnxruntime: ``python -m lucid.models.bert_tasks FOLDER 101 103``."""
    both = SideBySide(BertForMaskedLM.from_pretrained(checkpoint_folder("bert/masked_lm")))
    ids = token_ids(1, 5, 7, 2)
    logits = both(ids, ones_like(ids), 0 * ids)
    print(f"{ids[0].tolist()} is read as {logits.argmax()[0].tolist()}; {both.verdict('logits')}")


if __name__ == "__main__":
    main()
