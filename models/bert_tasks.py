"""Heads on BERT and its kin: classes of texts and of tokens, answers in a text, tokens behind masks.

::

    model = lucid.models.load("folder of a BertForSequenceClassification")
    logits = model(input_ids, attention_mask, token_type_ids)            # (N, num_labels)

The layers of heads have the names of RoBERTa's checkpoints. ``python -m lucid.models.bert_tasks FOLDER``
fills a masked text, eagerly and exported.
"""

from __future__ import annotations

from lucid import Tensor, nn
from lucid.models.bert import Bert, BertConfig
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


class BertForSequenceClassification(SequenceClassifier[BertConfig], Bert):
    """Texts, or pairs of texts, (N, L) to logits (N, num_labels)."""

    checkpoint = for_sequence_classification(
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

    checkpoint = for_reranking(BertForSequenceClassification.checkpoint)


class BertForTokenClassification(TokenClassifier[BertConfig], Bert):
    """Token ids (N, L) to the logits of each token, (N, L, num_labels)."""

    checkpoint = for_token_classification(Bert.checkpoint)


class BertForQuestionAnswering(QuestionAnswerer[BertConfig], Bert):
    """A question and a text (N, L) to the logits of the answer's first and last token, (N, L) each."""

    checkpoint = for_question_answering(Bert.checkpoint)


class BertForMaskedLM(MaskedLM[BertConfig], Bert):
    """Token ids (N, L) to the logits of what stands at each place, (N, L, vocab_size)."""

    checkpoint = for_masked_lm(
        Bert.checkpoint,
        "embeddings.word_embeddings.weight",
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

    def language_model_head(self, config: BertConfig) -> LanguageModelHead:
        activation = "gelu" if config.family in ("roberta", "electra") else config.activation
        inner = (config.embedding_size if config.family == "electra" else None) or config.hidden_size
        norm = nn.LayerNorm(inner, config.eps)
        return LanguageModelHead(config.vocab_size, config.hidden_size, inner, activation, norm)

    @property
    def table(self) -> Tensor:
        return self.embeddings.word_embeddings.weight


def main() -> None:
    """Fill a text of token ids, eagerly and in onnxruntime: ``python -m lucid.models.bert_tasks FOLDER 101 103``."""
    both = SideBySide(BertForMaskedLM.from_pretrained(checkpoint_folder("bert/masked_lm")))
    ids = token_ids(1, 5, 7, 2)
    logits = both(ids, ones_like(ids), 0 * ids)
    print(f"{ids[0].tolist()} is read as {logits.argmax(-1)[0].tolist()}; {both.verdict('logits')}")


if __name__ == "__main__":
    main()
