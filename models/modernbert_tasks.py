"""Heads on ModernBERT: classes of texts and of tokens, answers in a text, tokens behind masks.

::

    model = lucid.models.load("folder of a ModernBertForSequenceClassification")
    logits = model(input_ids, attention_mask)                            # (N, num_labels)

All of them read the states through one more layer with a norm. Texts have no segments.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lucid import Tensor, nn
from lucid.models.modernbert import ModernBert, ModernBertConfig, norm
from lucid.models.parts.demonstration import SideBySide, checkpoint_folder, ones_like, token_ids
from lucid.models.parts.sentence_layers import Pooling
from lucid.models.parts.text_heads import (
    LanguageModelHead,
    MaskedLM,
    PredictionHead,
    WithHead,
    for_masked_lm,
    for_reranking,
    with_labels,
)

_LABELS = r"classifier\.weight"
_CHECKPOINT = replace(
    ModernBert.checkpoint,
    renames=[*ModernBert.checkpoint.renames, (r"^head\.norm\.", "head.layer_norm.")],
)


class Classifier(WithHead[ModernBertConfig], ModernBert):
    """The base of those with labels."""

    def __init__(self, config: ModernBertConfig) -> None:
        super().__init__(config)
        width = config.hidden_size
        self.head = PredictionHead(width, width, config.head_activation, norm(config), config.head_bias)
        self.classifier = nn.Linear(width, config.num_labels)

    def predict(self, states: Tensor, attention_mask: Tensor | None) -> Any:
        return self.classifier(self.head(states))


class ModernBertForSequenceClassification(Classifier):
    """Texts, or pairs of texts, (N, L) to logits (N, num_labels)."""

    checkpoint = with_labels(_CHECKPOINT, "text-classification", _LABELS)

    def predict(self, states: Tensor, attention_mask: Tensor | None) -> Tensor:
        # "cls" is the first place, as in transformers: texts are padded on the right.
        mean = self.config.head_pooling == "mean"
        pooled = Pooling(("mean",))(states, attention_mask) if mean else states[:, 0]
        return self.classifier(self.head(pooled))


class ModernBertForReranking(ModernBertForSequenceClassification):
    """A cross-encoder: pairs of a query and a text (N, L) to logits (N, 1), the higher the more relevant."""

    checkpoint = for_reranking(ModernBertForSequenceClassification.checkpoint)


class ModernBertForTokenClassification(Classifier):
    """Token ids (N, L) to the logits of each token, (N, L, num_labels)."""

    checkpoint = with_labels(_CHECKPOINT, "token-classification", _LABELS)


class ModernBertForQuestionAnswering(Classifier):
    """A question and a text (N, L) to the logits of the answer's first and last token, (N, L) each."""

    checkpoint = with_labels(_CHECKPOINT, "question-answering", _LABELS, expected=2)
    output_names = ("start_logits", "end_logits")

    def predict(self, states: Tensor, attention_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        logits = super().predict(states, attention_mask)
        return logits[:, :, 0], logits[:, :, 1]


class ModernBertForMaskedLM(MaskedLM[ModernBertConfig], ModernBert):
    """Token ids (N, L) to the logits of what stands at each place, (N, L, vocab_size)."""

    checkpoint = for_masked_lm(
        ModernBert.checkpoint,
        "embeddings.tok_embeddings.weight",
        renames=[
            (r"^head\.dense\.", "lm_head.dense."),
            (r"^head\.norm\.", "lm_head.layer_norm."),
            (r"^decoder\.weight$", "lm_head.decoder.weight"),
            (r"^decoder\.bias$", "lm_head.bias"),
        ],
    )

    def language_model_head(self, config: ModernBertConfig) -> LanguageModelHead:
        width, activation = config.hidden_size, config.head_activation
        biases = config.head_bias, config.decoder_bias
        return LanguageModelHead(config.vocab_size, width, width, activation, norm(config), *biases)

    @property
    def table(self) -> Tensor:
        return self.embeddings.tok_embeddings.weight


def main() -> None:
    """Fill a text of token ids, eagerly and in onnxruntime: ``python -m lucid.models.modernbert_tasks FOLDER 1 5``."""
    both = SideBySide(ModernBertForMaskedLM.from_pretrained(checkpoint_folder("modernbert/masked_lm")))
    ids = token_ids(1, 5, 7, 2)
    logits = both(ids, ones_like(ids))
    print(f"{ids[0].tolist()} is read as {logits.argmax(-1)[0].tolist()}; {both.verdict('logits')}")


if __name__ == "__main__":
    main()
