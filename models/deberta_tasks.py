"""Heads on DeBERTa-v2 and v3: classes of texts and of tokens, answers in a text, tokens behind masks.

::

    model = lucid.models.load("folder of a DebertaV2ForSequenceClassification")
    logits = model(input_ids, attention_mask)                            # (N, num_labels)

The layers of heads have the names of RoBERTa's checkpoints.
"""

from __future__ import annotations

from lucid import Tensor, nn
from lucid.models.deberta import Deberta, DebertaConfig
from lucid.models.parts.demonstration import SideBySide, checkpoint_folder, ones_like, token_ids
from lucid.models.parts.text_heads import (
    LanguageModelHead,
    MaskedLM,
    QuestionAnswerer,
    SequenceClassifier,
    TokenClassifier,
    for_masked_lm,
    for_question_answering,
    for_reranking,
    for_sequence_classification,
    for_token_classification,
)


class DebertaForSequenceClassification(SequenceClassifier[DebertaConfig], Deberta):
    """Texts, or pairs of texts, (N, L) to logits (N, num_labels)."""

    checkpoint = for_sequence_classification(Deberta.checkpoint, [(r"^pooler\.dense\.", "classifier.dense.")])

    def head_activation(self, config: DebertaConfig) -> str:
        return config.head_activation


class DebertaForReranking(DebertaForSequenceClassification):
    """A cross-encoder: pairs of a query and a text (N, L) to logits (N, 1), the higher the more relevant."""

    checkpoint = for_reranking(DebertaForSequenceClassification.checkpoint)


class DebertaForTokenClassification(TokenClassifier[DebertaConfig], Deberta):
    """Token ids (N, L) to the logits of each token, (N, L, num_labels)."""

    checkpoint = for_token_classification(Deberta.checkpoint)


class DebertaForQuestionAnswering(QuestionAnswerer[DebertaConfig], Deberta):
    """A question and a text (N, L) to the logits of the answer's first and last token, (N, L) each."""

    checkpoint = for_question_answering(Deberta.checkpoint)


class DebertaForMaskedLM(MaskedLM[DebertaConfig], Deberta):
    """Token ids (N, L) to the logits of what stands at each place, (N, L, vocab_size)."""

    checkpoint = for_masked_lm(
        Deberta.checkpoint,
        "embeddings.word_embeddings.weight",
        renames=[
            (r"^lm_predictions\.lm_head\.LayerNorm\.", "lm_head.layer_norm."),  # as the authors store it
            (r"^lm_predictions\.lm_head\.", "lm_head."),
            (r"^cls\.predictions\.transform\.LayerNorm\.", "lm_head.layer_norm."),  # as transformers does by default
            (r"^cls\.predictions\.(transform\.)?", "lm_head."),
        ],
    )

    def language_model_head(self, config: DebertaConfig) -> LanguageModelHead:
        norm = nn.LayerNorm(config.hidden_size, config.eps)
        return LanguageModelHead(config.vocab_size, config.hidden_size, config.hidden_size, config.activation, norm)

    @property
    def table(self) -> Tensor:
        return self.embeddings.word_embeddings.weight


def main() -> None:
    """Fill a text of token ids, eagerly and in onnxruntime: ``python -m lucid.models.deberta_tasks FOLDER 1 5 2``."""
    both = SideBySide(DebertaForMaskedLM.from_pretrained(checkpoint_folder("tasks/deberta_fill_mask")))
    ids = token_ids(1, 5, 7, 2)
    logits = both(ids, ones_like(ids))
    print(f"{ids[0].tolist()} is read as {logits.argmax(-1)[0].tolist()}; {both.verdict('logits')}")


if __name__ == "__main__":
    main()
