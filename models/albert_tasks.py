"""Heads on ALBERT: classes of texts and of tokens, answers in a text, tokens behind masks.

::

    model = lucid.models.load("folder of an AlbertForTokenClassification")
    logits = model(input_ids, attention_mask, token_type_ids)            # (N, L, num_labels)

The layers of heads have the names of RoBERTa's checkpoints.
"""

from __future__ import annotations

from lucid import Tensor, nn
from lucid.models.albert import Albert, AlbertConfig
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


class AlbertForSequenceClassification(SequenceClassifier[AlbertConfig], Albert):
    """Texts, or pairs of texts, (N, L) to logits (N, num_labels)."""

    checkpoint = for_sequence_classification(Albert.checkpoint, [(r"^albert\.pooler\.", "classifier.dense.")])


class AlbertForReranking(AlbertForSequenceClassification):
    """A cross-encoder: pairs of a query and a text (N, L) to logits (N, 1), the higher the more relevant."""

    checkpoint = for_reranking(AlbertForSequenceClassification.checkpoint)


class AlbertForTokenClassification(TokenClassifier[AlbertConfig], Albert):
    """Token ids (N, L) to the logits of each token, (N, L, num_labels)."""

    checkpoint = for_token_classification(Albert.checkpoint)


class AlbertForQuestionAnswering(QuestionAnswerer[AlbertConfig], Albert):
    """A question and a text (N, L) to the logits of the answer's first and last token, (N, L) each."""

    checkpoint = for_question_answering(Albert.checkpoint)


class AlbertForMaskedLM(MaskedLM[AlbertConfig], Albert):
    """Token ids (N, L) to the logits of what stands at each place, (N, L, vocab_size)."""

    checkpoint = for_masked_lm(
        Albert.checkpoint,
        "embeddings.word_embeddings.weight",
        renames=[(r"^predictions\.LayerNorm\.", "lm_head.layer_norm."), (r"^predictions\.", "lm_head.")],
    )

    def language_model_head(self, config: AlbertConfig) -> LanguageModelHead:
        norm = nn.LayerNorm(config.embedding_size, config.eps)
        return LanguageModelHead(config.vocab_size, config.hidden_size, config.embedding_size, config.activation, norm)

    @property
    def table(self) -> Tensor:
        return self.embeddings.word_embeddings.weight


def main() -> None:
    """Fill a text of token ids, eagerly and in onnxruntime: ``python -m lucid.models.albert_tasks FOLDER 2 4 3``."""
    both = SideBySide(AlbertForMaskedLM.from_pretrained(checkpoint_folder("albert/masked_lm")))
    ids = token_ids(2, 5, 4, 3)
    logits = both(ids, ones_like(ids), 0 * ids)
    print(f"{ids[0].tolist()} is read as {logits.argmax(-1)[0].tolist()}; {both.verdict('logits')}")


if __name__ == "__main__":
    main()
