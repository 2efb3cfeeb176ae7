"""Llama and its kin (Mistral, Qwen2, Qwen3, ...) for other tasks than writing: states, embeddings, classes, answers.

::

    encoder = lucid.models.load("folder of Qwen3-Embedding, which has a modules.json")
    embeddings = encoder(input_ids, attention_mask)                      # (N, E)
    reranker = lucid.models.load("folder of a Qwen3ForSequenceClassification", "reranking")
    logits = reranker(input_ids, attention_mask)                         # (N, 1)

A token sees only those before it, so what is said of a text is read at its last token.
"""

from __future__ import annotations

from dataclasses import replace

from lucid.models.llama import Decoder, Llama, LlamaConfig
from lucid.models.parts.decoder_heads import (
    DecoderQuestionAnswerer,
    DecoderTokenClassifier,
    LastTokenClassifier,
    RotaryStates,
    for_decoder_question_answering,
    for_decoder_token_classification,
    for_last_token_classification,
    for_last_token_reranking,
    for_states,
)
from lucid.models.parts.demonstration import SideBySide, checkpoint_folder, ones_like, token_ids
from lucid.models.parts.sentences import PooledEncoder


class LlamaStates(RotaryStates[LlamaConfig]):
    """Token ids (N, L) to hidden states (N, L, E), each of which has seen the tokens up to its own."""

    checkpoint = for_states(Llama.checkpoint)

    def decoder(self, config: LlamaConfig) -> Decoder:
        return Decoder(config)


class LlamaSentenceEncoder(PooledEncoder[LlamaConfig], LlamaStates):
    """Llama with the pooling and the layers on top that modules.json lists: one vector for each text, (N, E).

    Without a modules.json it is the state of the last kept token, scaled to length 1.
    """

    checkpoint = replace(LlamaStates.checkpoint, head="sentence-similarity")


class LlamaForSequenceClassification(LastTokenClassifier[LlamaConfig], LlamaStates):
    """Texts, or pairs of texts, (N, L) to logits (N, num_labels)."""

    checkpoint = for_last_token_classification(Llama.checkpoint)


class LlamaForReranking(LlamaForSequenceClassification):
    """A cross-encoder: pairs of a query and a text (N, L) to logits (N, 1), the higher the more relevant."""

    checkpoint = for_last_token_reranking(LlamaForSequenceClassification.checkpoint)


class LlamaForTokenClassification(DecoderTokenClassifier[LlamaConfig], LlamaStates):
    """Token ids (N, L) to the logits of each token, (N, L, num_labels)."""

    checkpoint = for_decoder_token_classification(Llama.checkpoint)


class LlamaForQuestionAnswering(DecoderQuestionAnswerer[LlamaConfig], LlamaStates):
    """A question and a text (N, L) to the logits of the answer's first and last token, (N, L) each."""

    checkpoint = for_decoder_question_answering(Llama.checkpoint)


def main() -> None:
    """Classify a text of token ids, eagerly and in onnxruntime: ``python -m lucid.models.llama_tasks FOLDER 1 5 7``."""
    tiny = "tasks/llama_text_classification"
    both = SideBySide(LlamaForSequenceClassification.from_pretrained(checkpoint_folder(tiny)))
    ids = token_ids(1, 5, 7)
    logits = both(ids, ones_like(ids))
    print(f"{ids[0].tolist()} is of class {logits.argmax(-1)[0].item()}; {both.verdict('logits')}")


if __name__ == "__main__":
    main()
