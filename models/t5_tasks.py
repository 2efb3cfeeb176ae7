"""T5 for other tasks than writing: states and embeddings by its encoder, classes of texts and tokens.

::

    encoder = lucid.models.load("folder of a T5EncoderModel")
    states = encoder(input_ids, attention_mask)                          # (N, L) to (N, L, E)

``lucid.models.load(folder, "feature-extraction")`` reads the encoder of a whole T5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import lucid
from lucid import Tensor, TensorType, nn, ops
from lucid.models.checkpoints.pretrained import Checkpoint, Config, Pretrained
from lucid.models.parts.demonstration import SideBySide, checkpoint_folder, ones_like, token_ids
from lucid.models.parts.sentence_encoder import PooledEncoder
from lucid.models.parts.text_heads import text_specs, with_labels
from lucid.models.t5 import T5, Decoder, Encoder, T5Config


def _read_encoder(options: Config) -> T5Config:
    return T5Config.read(options, decodes=False)


def _read_classifier(options: Config) -> T5Config:
    end = options.whole("eos_token_id", 1, low=0)
    return replace(T5Config.read(options), eos_token_id=end)


_OF_HEADS: Checkpoint[T5Config] = replace(
    T5.checkpoint,
    renames=[(r"^transformer\.", "")],
    ignored_keys=[*T5.checkpoint.ignored_keys, r"^lm_head\."],
)


class T5EncoderStates(Pretrained[T5Config]):
    """Token ids (N, L) to the encoder's states (N, L, E)."""

    checkpoint = replace(
        _OF_HEADS,
        read=_read_encoder,
        head="feature-extraction",
        ignored_keys=[
            *_OF_HEADS.ignored_keys,
            r"^decoder\.",
            r"^(classifier|classification_head|qa_outputs|sentence_layers)\.",
        ],
    )
    output_names: ClassVar[Sequence[str]] = ("last_hidden_state",)

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        self.shared = nn.Embedding(config.vocab_size, config.hidden_size)
        self.encoder = Encoder(config, config.num_layers, decoder=False)

    def states(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        key_mask = None if attention_mask is None else attention_mask.astype(lucid.bool_)
        return self.encoder(self.shared(input_ids), key_mask)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.states(input_ids, attention_mask)

    def input_specs(self) -> Mapping[str, TensorType]:
        return text_specs(0)


class T5SentenceEncoder(PooledEncoder[T5Config], T5EncoderStates):
    """The encoder with the pooling and the layers on top that modules.json lists: one vector for each text, (N, E).

    Without a modules.json it is the mean of the kept tokens' states, scaled to length 1.
    """

    checkpoint = replace(T5EncoderStates.checkpoint, head="sentence-similarity")

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.sentence_embedding(super().forward(input_ids, attention_mask), attention_mask)


class T5ForTokenClassification(T5EncoderStates):
    """Token ids (N, L) to the logits of each token, (N, L, num_labels), by the encoder alone."""

    checkpoint = with_labels(
        replace(_OF_HEADS, read=_read_encoder, ignored_keys=[*_OF_HEADS.ignored_keys, r"^decoder\."]),
        "token-classification",
        r"classifier\.weight",
    )
    output_names = ("logits",)

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.classifier(self.states(input_ids, attention_mask))


class T5ForSequenceClassification(T5EncoderStates):
    """Texts, or pairs of texts, (N, L) to logits (N, num_labels): what the decoder makes of the text's own tokens.

    Each text has an end, `eos_token_id`; the state at the last one is read.
    """

    checkpoint = with_labels(
        replace(_OF_HEADS, read=_read_classifier), "text-classification", r"classification_head\.out_proj\.weight"
    )
    output_names = ("logits",)

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        width = config.hidden_size
        if config.decoder_start_token_id is None:
            raise ValueError("T5ForSequenceClassification: the config has no decoder_start_token_id, expected one")
        self.start = config.decoder_start_token_id
        self.decoder = Decoder(config, config.num_decoder_layers, decoder=True)
        self.classification_head = {"dense": nn.Linear(width, width), "out_proj": nn.Linear(width, config.num_labels)}

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        n, length = input_ids.shape
        key_mask = None if attention_mask is None else attention_mask.astype(lucid.bool_)
        start = ops.full((n, 1), self.start, dtype=lucid.int64)
        shifted = ops.concat([start, input_ids[:, :-1]], 1)
        states = self.decoder(self.shared(shifted), self.states(input_ids, attention_mask), key_mask)
        ends = (input_ids == self.config.eos_token_id).astype(lucid.int64) * lucid.arange(1, length + 1)
        last = ops.take_along(states, ops.unsqueeze(ends.argmax(1), (1, 2)), axis=1).squeeze(1)
        head = self.classification_head
        return head["out_proj"](head["dense"](last).tanh())


def main() -> None:
    """The states of a text, eagerly and exported: ``python -m lucid.models.t5_tasks FOLDER 5 6 1``."""
    both, ids = SideBySide(T5EncoderStates.from_pretrained(checkpoint_folder("t5/v1_1"))), token_ids(5, 6, 7, 1)
    states = both(ids, ones_like(ids))
    print(f"{ids[0].tolist()} has states of shape {states.shape}; {both.verdict('states')}")


if __name__ == "__main__":
    main()
