"""EuroBERT (Boizard et al. 2025): an encoder of texts with the layers of Llama, in which a token sees all others.

::

    encoder = EuroBert.from_pretrained("folder with config.json and model.safetensors")
    states = encoder(lucid.tensor([[128000, 510, 5798, 128001]]))     # (N, L) to (N, L, hidden_size)
    lucid.export.to_onnx(encoder, path="eurobert.onnx")               # any batch, any length
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import lucid
from lucid import Tensor, nn
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import Checkpoint, Config
from lucid.models.checkpoints.sentence_files import USUAL_LAYERS, SentenceLayer
from lucid.models.llama import LlamaConfig
from lucid.models.parts import decoder_heads
from lucid.models.parts.decoders import TIED, WithOutputLayer
from lucid.models.parts.demonstration import encode_text
from lucid.models.parts.on_model import Reranker
from lucid.models.parts.sentences import PooledEncoder, Pooling
from lucid.models.parts.text_encoders import text_specs
from lucid.nn import functional as F


@dataclass(frozen=True)
class EuroBertConfig(LlamaConfig):
    """The sizes and options of a model."""

    head_pooling: str = option.choice(  # of a classifier of texts: the first token, the mean of states, or of logits
        "classifier_pooling", {"bos": "bos", "mean": "mean", "late": "late"}, absent="late"
    )
    sentence_layers: tuple[SentenceLayer, ...] = USUAL_LAYERS

    @classmethod
    def read(cls, options: Config) -> Self:
        config = super().read(options)
        return replace(config, causal=False, parts=replace(config.parts, head_bias=config.mlp_bias))


class EuroBertForMaskedLM(WithOutputLayer[EuroBertConfig]):
    """Token ids (N, L) to the logits of the token at each place, (N, L, vocab_size)."""

    checkpoint = Checkpoint(
        family=FAMILIES["eurobert"],
        read=EuroBertConfig.read,
        renames=[(r"^classifier\.", "score."), (r"^(?!(model|lm_head|score|dense|sentence_layers)\.)", "model.")],
        ignored_keys=[r"rotary_emb\.inv_freq$"],
        tied_keys=TIED,
        head="fill-mask",
    )
    output_names: ClassVar[Sequence[str]] = ("logits",)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.logits(self.model(input_ids, attention_mask)[0][-1])

    def input_specs(self) -> Mapping[str, lucid.TensorType]:
        return text_specs()


class EuroBert(decoder_heads.RotaryStates[EuroBertConfig], on=EuroBertForMaskedLM):
    """Token ids (N, L) to hidden states (N, L, E). ``attention_mask`` (N, L) is 1 for tokens to keep, 0 for padding."""

    other_heads = "lm_head|score|classifier|qa_outputs|dense"


class EuroBertSentenceEncoder(PooledEncoder[EuroBertConfig], EuroBert, on=EuroBert): ...


class EuroBertForSequenceClassification(EuroBert, on=EuroBertForMaskedLM):
    """Texts, or pairs of texts, (N, L) to logits (N, num_labels)."""

    head_task, label_key, other_heads = "text-classification", r"(?:score|classifier)\.weight", "lm_head"
    head_keys = (r"^dense\.weight", r"^score\.weight")
    output_names: ClassVar[Sequence[str]] = ("logits",)

    def __init__(self, config: EuroBertConfig) -> None:
        super().__init__(config)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.score = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        states, mean, how = self.states(input_ids, attention_mask), Pooling(("mean",)), self.config.head_pooling
        if how != "late":
            states = mean(states, attention_mask) if how == "mean" else states[:, 0]
        logits = self.score(F.gelu(self.dense(states)))
        return mean(logits, attention_mask) if how == "late" else logits


class EuroBertForReranking(Reranker[EuroBertConfig], EuroBertForSequenceClassification, on=EuroBertForMaskedLM): ...


class EuroBertForTokenClassification(decoder_heads.TokenClassifier[EuroBertConfig], EuroBert, on=EuroBertForMaskedLM):
    label_key = r"(?:score|classifier)\.weight"


if __name__ == "__main__":
    encode_text(EuroBert, "eurobert/base", 1, 5, 7, 2)
