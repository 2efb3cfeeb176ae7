"""Heads on decoders with rotary positions: states of tokens, and classes of texts by the state of their last token.

A model's file derives its classes from these and says what its decoder is, as `models/llama_tasks.py` does.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Protocol, TypeVar

import lucid
from lucid import Tensor, nn
from lucid.models._causal_lm import RotaryDecoder
from lucid.models._labels import reading_labels
from lucid.models._pretrained import Checkpoint, Config, Pretrained
from lucid.models._text_heads import with_labels
from lucid.nn import functional as F


class Sizes(Protocol):
    """What a head reads of its decoder's config, a dataclass."""

    @property
    def hidden_size(self) -> int: ...

    @property
    def num_labels(self) -> int: ...

    @property
    def pad_token_id(self) -> int | None: ...


C = TypeVar("C", bound=Sizes)


class DecoderStates(Pretrained[C]):
    """Token ids (N, L) to hidden states (N, L, E), each of which has seen the tokens up to its own."""

    output_names: ClassVar[Sequence[str]] = ("last_hidden_state",)

    def __init__(self, config: C) -> None:
        super().__init__(config)
        self.model = self.decoder(config)

    @abstractmethod
    def decoder(self, config: C) -> RotaryDecoder:
        """The model without its output layer."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        states, _ = self.model(input_ids, attention_mask)
        normed: Tensor = self.model.norm(states[-1])
        return normed

    def input_specs(self) -> Mapping[str, lucid.TensorType]:
        return {name: lucid.spec("N", "L", dtype=lucid.int64) for name in ("input_ids", "attention_mask")}


def for_states(base: Checkpoint[C]) -> Checkpoint[C]:
    """The checkpoint of `DecoderStates`: without the output layer, and without the head of a classifier."""
    ignored = [*base.ignored_keys, r"^lm_head\.", r"^score\."]
    return replace(base, task="feature-extraction", heads={}, tied_keys={}, ignored_keys=ignored)


class LastTokenClassifier(DecoderStates[C]):
    """Texts (N, L) to logits (N, num_labels), from the state of the last token that is not padding.

    Padding is `pad_token_id`, on either side; without one in the config the last place is read.
    """

    output_names: ClassVar[Sequence[str]] = ("logits",)

    def __init__(self, config: C) -> None:
        super().__init__(config)
        self.score = nn.Linear(config.hidden_size, config.num_labels, bias=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        states, _ = self.model(input_ids, attention_mask)
        last = F.kept_positions(states[-1], self.last_places(input_ids))  # (N, 1, E)
        return self.score(self.model.norm(last)).squeeze(1)

    def last_places(self, input_ids: Tensor) -> Tensor | int:
        """Of the last token of each text, (N,)."""
        padding = self.config.pad_token_id
        if padding is None:
            return 1
        return (
            (input_ids != padding).astype(lucid.int32) * lucid.arange(input_ids.shape[1], dtype=lucid.int32)
        ).argmax(1)


def for_last_token_classification(base: Checkpoint[C]) -> Checkpoint[C]:
    """The checkpoint of a `LastTokenClassifier`."""

    def read(options: Config) -> C:
        padding = options.whole("pad_token_id", None, low=0)
        return replace(base.read(options), pad_token_id=padding)  # type: ignore[type-var]  # a dataclass

    return with_labels(replace(for_states(base), read=read), "text-classification", r"score\.weight")


def for_last_token_reranking(classifier: Checkpoint[C]) -> Checkpoint[C]:
    """The checkpoint of a cross-encoder: that of a classifier of texts, with one label."""
    return replace(classifier, read=reading_labels(classifier.read, r"score\.weight", 1), task="reranking")
