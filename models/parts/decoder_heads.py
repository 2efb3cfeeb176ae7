"""Heads on decoders: states of tokens, classes of tokens and of texts, answers in a text.

A model's file derives its classes from these, as `lucid.models.llama` does. A token sees only earlier ones, so the
class of a text is read at its last token.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol, TypeVar

import lucid
from lucid import Tensor, nn, ops
from lucid.models.checkpoints.pretrained import Checkpoint, Config
from lucid.models.parts.decoders import Decoder, DecoderConfig, WithOutputLayer
from lucid.models.parts.on_model import Head
from lucid.models.parts.sentences import OfModules
from lucid.models.parts.text_encoders import HeadSizes, start_and_end, text_specs
from lucid.nn import functional as F


class PaddedSizes(HeadSizes, Protocol):
    """Sizes with the token of padding."""

    @property
    def pad_token_id(self) -> int | None: ...


class EndedSizes(HeadSizes, Protocol):
    """Sizes with the token that ends a text."""

    @property
    def eos_token_id(self) -> int: ...


C = TypeVar("C", bound=HeadSizes)
P = TypeVar("P", bound=PaddedSizes)
E = TypeVar("E", bound=EndedSizes)
M = TypeVar("M")
R = TypeVar("R", bound=DecoderConfig)


class States(Head[M]):
    """Token ids (N, L) to hidden states (N, L, E); each has seen the tokens up to its own."""

    head_task = "feature-extraction"
    other_heads = "lm_head|score|classifier|qa_outputs"
    output_names: ClassVar[Sequence[str]] = ("last_hidden_state",)

    @abstractmethod
    def states(self, input_ids: Tensor, attention_mask: Tensor | None, kept: int | Tensor | None = None) -> Tensor:
        """States after the last norm, of all positions or of the kept ones; see `F.kept_positions`."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Any:
        return self.states(input_ids, attention_mask)

    def input_specs(self) -> Mapping[str, lucid.TensorType]:
        return text_specs()


class RotaryStates(States[R]):
    """`States` of a decoder with rotary positions."""

    def __init__(self, config: R) -> None:
        super().__init__(config)
        self.model = Decoder(config)

    def states(self, input_ids: Tensor, attention_mask: Tensor | None, kept: int | Tensor | None = None) -> Tensor:
        states, _ = self.model(input_ids, attention_mask)
        normed: Tensor = self.model.norm(F.kept_positions(states[-1], kept))
        return normed


class LastTokenClassifier(States[P]):
    """Texts (N, L) to logits (N, num_labels), from the state of the last token that is not padding.

    Padding is `pad_token_id`, on either side. Without one in the config, attention_mask says what padding is, so that a
    text has the same logits in any batch (transformers then takes one text at a time); without a mask nothing is.
    """

    head_task, label_key, other_heads = "text-classification", r"score\.weight", "lm_head"
    output_names: ClassVar[Sequence[str]] = ("logits",)

    def __init__(self, config: P) -> None:
        super().__init__(config)
        self.score = nn.Linear(config.hidden_size, config.num_labels, bias=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        last = self.states(input_ids, attention_mask, self.last_places(input_ids, attention_mask))  # (N, 1, E)
        return self.score(last).squeeze(1)

    def last_places(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor | int:
        """The position of the last token of each text, (N,); 1 for the last place of all."""
        padding = self.config.pad_token_id
        if padding is not None:
            tokens = input_ids != padding
        elif attention_mask is not None:
            tokens = attention_mask != 0
        else:
            return 1
        return (tokens.astype(lucid.int32) * lucid.arange(input_ids.shape[1], dtype=lucid.int32)).argmax(1)

    @classmethod
    def read_config(cls, options: Config, base: Checkpoint[Any]) -> Any:
        padding = options.text.whole_or_none("pad_token_id", low=0)
        return replace(super().read_config(options, base), pad_token_id=padding)


class EndClassifier(States[E]):
    """Texts, or pairs of texts, (N, L) to logits (N, num_labels): two layers on the state at the end of each.

    Each text has an end, `eos_token_id`; the state at the last one is read.
    """

    head_task, label_key, other_heads = "text-classification", r"classification_head\.out_proj\.weight", "lm_head"
    output_names: ClassVar[Sequence[str]] = ("logits",)

    def __init__(self, config: E) -> None:
        super().__init__(config)
        width = config.hidden_size
        self.classification_head = {"dense": nn.Linear(width, width), "out_proj": nn.Linear(width, config.num_labels)}

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        states, head = self.states(input_ids, attention_mask), self.classification_head
        places = (input_ids == self.config.eos_token_id).astype(lucid.int64) * lucid.arange(1, input_ids.shape[1] + 1)
        state = ops.take_along(states, ops.unsqueeze(places.argmax(1), (1, 2)), axis=1).squeeze(1)
        return head["out_proj"](head["dense"](state).tanh())

    @classmethod
    def read_config(cls, options: Config, base: Checkpoint[Any]) -> Any:
        return replace(super().read_config(options, base), eos_token_id=options.whole("eos_token_id", low=0))


class TokenClassifier(States[C]):
    """Token ids (N, L) to the logits of each token, (N, L, num_labels); each has seen the tokens up to its own."""

    head_task, label_key, other_heads = "token-classification", r"score\.weight", "lm_head"
    output_names: ClassVar[Sequence[str]] = ("logits",)

    def __init__(self, config: C) -> None:
        super().__init__(config)
        self.score = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.score(self.states(input_ids, attention_mask))

    @classmethod
    def read_config(cls, options: Config, base: Checkpoint[Any]) -> Any:
        options.only("token_classification_bias", True)
        return super().read_config(options, base)


class QuestionAnswerer(States[C]):
    """A question and a text (N, L) to the logits of the answer's first and last token, (N, L) each."""

    head_task, label_key, label_count = "question-answering", r"qa_outputs\.weight", 2
    other_heads = "lm_head"
    output_names: ClassVar[Sequence[str]] = ("start_logits", "end_logits")

    def __init__(self, config: C) -> None:
        super().__init__(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return start_and_end(self.qa_outputs(self.states(input_ids, attention_mask)))


class GenerativeReranker(OfModules[R], WithOutputLayer[R]):
    """A decoder that scores the relevance of a text by the token that would come next.

    The prompt holds a query and a text; its score is the logit of one token, such as "yes", less that of another, "no".
    """

    head_task = "generative-reranking"
    output_names: ClassVar[Sequence[str]] = ("logits",)

    def __init__(self, config: R) -> None:
        super().__init__(config)
        if not config.sentence_layers[0].tokens:
            raise ValueError(f"{type(self).__name__}: no token is scored, expected a modules.json with a LogitScore")

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """(N, L) token ids, padded on either side, to the logits (N, 1)."""
        places = lucid.arange(input_ids.shape[1], dtype=lucid.int64)
        last = 1 if attention_mask is None else ((attention_mask != 0).astype(lucid.int64) * places).argmax(1)
        logits: Tensor = self.logits(F.kept_positions(self.model(input_ids, attention_mask)[0][-1], last))[:, 0]
        scores = [logits[:, token : token + 1] for token in self.config.sentence_layers[0].tokens]
        return scores[0] - scores[1] if len(scores) > 1 else scores[0]

    def input_specs(self) -> Mapping[str, lucid.TensorType]:
        return text_specs()
