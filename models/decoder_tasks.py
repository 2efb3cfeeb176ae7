"""GPT-2, Gemma, Mixtral, Phi-3 and Mamba-2 for other tasks than writing: states, classes of texts and tokens, answers.

::

    model = lucid.models.load("folder of a GPT2ForSequenceClassification")
    logits = model(input_ids, attention_mask)                            # (N, num_labels)
    states = lucid.models.load("folder of any GPT-2", "feature-extraction")(input_ids, attention_mask)  # (N, L, E)

`llama_tasks.py` has those of Llama and its kin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import lucid
from lucid import Tensor
from lucid.models.checkpoints.pretrained import Pretrained
from lucid.models.gemma import Decoder as GemmaDecoder
from lucid.models.gemma import Gemma, GemmaConfig
from lucid.models.gpt2 import GPT2, GPT2Config, Transformer
from lucid.models.mamba2 import Backbone, Mamba2, Mamba2Config
from lucid.models.mixtral import Mixtral, MixtralConfig, SparseDecoder
from lucid.models.parts.decoder_heads import (
    DecoderQuestionAnswerer,
    DecoderStates,
    DecoderTokenClassifier,
    LastTokenClassifier,
    RotaryStates,
    for_decoder_question_answering,
    for_decoder_token_classification,
    for_last_token_classification,
    for_last_token_reranking,
    for_states,
)
from lucid.models.parts.decoders import RotaryDecoder
from lucid.models.parts.demonstration import SideBySide, checkpoint_folder, ones_like, token_ids
from lucid.models.parts.text_encoders import text_specs
from lucid.models.phi3 import Decoder as Phi3Decoder
from lucid.models.phi3 import Phi3, Phi3Config
from lucid.nn import functional as F


class GPT2States(DecoderStates[GPT2Config]):
    """Token ids (N, L) to hidden states (N, L, E)."""

    checkpoint = for_states(GPT2.checkpoint)

    def __init__(self, config: GPT2Config) -> None:
        super().__init__(config)
        self.transformer = Transformer(config)

    def states(self, input_ids: Tensor, attention_mask: Tensor | None, kept: int | Tensor | None = None) -> Tensor:
        return F.kept_positions(self.transformer(input_ids, attention_mask)[0], kept)


class GPT2ForSequenceClassification(LastTokenClassifier[GPT2Config], GPT2States):
    """Texts, or pairs of texts, (N, L) to logits (N, num_labels)."""

    checkpoint = for_last_token_classification(GPT2.checkpoint)


class GPT2ForReranking(GPT2ForSequenceClassification):
    """A cross-encoder: pairs of a query and a text (N, L) to logits (N, 1), the higher the more relevant."""

    checkpoint = for_last_token_reranking(GPT2ForSequenceClassification.checkpoint)


class GPT2ForTokenClassification(DecoderTokenClassifier[GPT2Config], GPT2States):
    """Token ids (N, L) to the logits of each token, (N, L, num_labels)."""

    checkpoint = replace(
        for_decoder_token_classification(GPT2.checkpoint, r"classifier\.weight"),
        renames=[*GPT2.checkpoint.renames, (r"^classifier\.", "score.")],
        head_keys=[r"^score\.weight"],
    )


class GPT2ForQuestionAnswering(DecoderQuestionAnswerer[GPT2Config], GPT2States):
    """A question and a text (N, L) to the logits of the answer's first and last token, (N, L) each."""

    checkpoint = for_decoder_question_answering(GPT2.checkpoint)


class GemmaStates(RotaryStates[GemmaConfig]):
    """Token ids (N, L) to hidden states (N, L, E)."""

    checkpoint = for_states(Gemma.checkpoint)

    def decoder(self, config: GemmaConfig) -> RotaryDecoder:
        return GemmaDecoder(config)


class GemmaForSequenceClassification(LastTokenClassifier[GemmaConfig], GemmaStates):
    """Texts, or pairs of texts, (N, L) to logits (N, num_labels)."""

    checkpoint = for_last_token_classification(Gemma.checkpoint)


class GemmaForReranking(GemmaForSequenceClassification):
    """A cross-encoder: pairs of a query and a text (N, L) to logits (N, 1), the higher the more relevant."""

    checkpoint = for_last_token_reranking(GemmaForSequenceClassification.checkpoint)


class GemmaForTokenClassification(DecoderTokenClassifier[GemmaConfig], GemmaStates):
    """Token ids (N, L) to the logits of each token, (N, L, num_labels)."""

    checkpoint = for_decoder_token_classification(Gemma.checkpoint)


class MixtralStates(RotaryStates[MixtralConfig]):
    """Token ids (N, L) to hidden states (N, L, E)."""

    checkpoint = for_states(Mixtral.checkpoint)

    def decoder(self, config: MixtralConfig) -> RotaryDecoder:
        return SparseDecoder(config)


class MixtralForSequenceClassification(LastTokenClassifier[MixtralConfig], MixtralStates):
    """Texts, or pairs of texts, (N, L) to logits (N, num_labels)."""

    checkpoint = for_last_token_classification(Mixtral.checkpoint)


class MixtralForReranking(MixtralForSequenceClassification):
    """A cross-encoder: pairs of a query and a text (N, L) to logits (N, 1), the higher the more relevant."""

    checkpoint = for_last_token_reranking(MixtralForSequenceClassification.checkpoint)


class MixtralForTokenClassification(DecoderTokenClassifier[MixtralConfig], MixtralStates):
    """Token ids (N, L) to the logits of each token, (N, L, num_labels)."""

    checkpoint = for_decoder_token_classification(Mixtral.checkpoint)


class MixtralForQuestionAnswering(DecoderQuestionAnswerer[MixtralConfig], MixtralStates):
    """A question and a text (N, L) to the logits of the answer's first and last token, (N, L) each."""

    checkpoint = for_decoder_question_answering(Mixtral.checkpoint)


class Phi3States(RotaryStates[Phi3Config]):
    """Token ids (N, L) to hidden states (N, L, E)."""

    checkpoint = for_states(Phi3.checkpoint)

    def decoder(self, config: Phi3Config) -> RotaryDecoder:
        return Phi3Decoder(config)


class Phi3ForSequenceClassification(LastTokenClassifier[Phi3Config], Phi3States):
    """Texts, or pairs of texts, (N, L) to logits (N, num_labels)."""

    checkpoint = for_last_token_classification(Phi3.checkpoint)


class Phi3ForReranking(Phi3ForSequenceClassification):
    """A cross-encoder: pairs of a query and a text (N, L) to logits (N, 1), the higher the more relevant."""

    checkpoint = for_last_token_reranking(Phi3ForSequenceClassification.checkpoint)


class Phi3ForTokenClassification(DecoderTokenClassifier[Phi3Config], Phi3States):
    """Token ids (N, L) to the logits of each token, (N, L, num_labels)."""

    checkpoint = for_decoder_token_classification(Phi3.checkpoint)


class Mamba2States(Pretrained[Mamba2Config]):
    """Token ids (N, L) to hidden states (N, L, E)."""

    checkpoint = replace(
        Mamba2.checkpoint,
        head="feature-extraction",
        tied_keys={},
        ignored_keys=[*Mamba2.checkpoint.ignored_keys, r"^lm_head\."],
    )
    output_names: ClassVar[Sequence[str]] = ("last_hidden_state",)

    def __init__(self, config: Mamba2Config) -> None:
        super().__init__(config)
        self.backbone = Backbone(config)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        states: Tensor = self.backbone(input_ids, attention_mask, None)[0]
        return states

    def input_specs(self) -> Mapping[str, lucid.TensorType]:
        return text_specs(0)


def main() -> None:
    """The states of a text, eagerly and exported: ``python -m lucid.models.decoder_tasks FOLDER 1 5 7``."""
    both = SideBySide(GPT2States.from_pretrained(checkpoint_folder("gpt2/base")))
    ids = token_ids(1, 5, 7)
    states = both(ids, ones_like(ids))
    print(f"{ids[0].tolist()} has states of shape {states.shape}; {both.verdict('states')}")


if __name__ == "__main__":
    main()
