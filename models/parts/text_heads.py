"""Heads on text encoders: classes of texts and of tokens, answers in a text, tokens behind masks.

A model's file derives a class for each task from a head and its encoder, in this order::

    class AlbertForTokenClassification(TokenClassifier[AlbertConfig], Albert):
        checkpoint = for_token_classification(Albert.checkpoint)

The layers of heads have the names of RoBERTa's checkpoints; a checkpoint's `renames` bring others to them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

import lucid
from lucid import Tensor, nn
from lucid.models.checkpoints.held_weights import numbers_of
from lucid.models.checkpoints.labels import reading_labels
from lucid.models.checkpoints.pretrained import ACTIVATIONS, Checkpoint, Config, Pretrained
from lucid.nn import functional as F


class Sizes(Protocol):
    """What a head reads of its encoder's config, a dataclass."""

    @property
    def hidden_size(self) -> int: ...

    @property
    def type_vocab_size(self) -> int: ...  # 0 or 1: texts have no segments

    @property
    def num_labels(self) -> int: ...


C = TypeVar("C", bound=Sizes)
L = TypeVar("L")  # any config that has num_labels


def text_specs(type_vocab_size: int) -> dict[str, lucid.TensorType]:
    """What tokenizers make of texts: ids and a mask (N, L), and segments where the model knows several."""
    segments = ["token_type_ids"] if type_vocab_size > 1 else []
    return {name: lucid.spec("N", "L", dtype=lucid.int64) for name in ("input_ids", "attention_mask", *segments)}


class WithHead(Pretrained[C]):
    """The base, beside that of the encoder, of one with a head. It takes what its tokenizer gives, segments too."""

    output_names: ClassVar[Sequence[str]] = ("logits",)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Any:
        """Token ids (N, L), which to keep (1) or not (0), and segments, to what `output_names` says."""
        segments = () if token_type_ids is None else (token_type_ids,)
        return self.predict(super().forward(input_ids, attention_mask, *segments), attention_mask)

    @abstractmethod
    def predict(self, states: Tensor, attention_mask: Tensor | None) -> Any:
        """From the encoder's states (N, L, E) to the results."""

    def input_specs(self) -> Mapping[str, lucid.TensorType]:
        return text_specs(self.config.type_vocab_size)


# Texts ----------------------------------------------------------------------------------------------------------------


class ClassificationHead(nn.Module):
    """Two layers on the state of the first token, (N, E) to (N, num_labels)."""

    def __init__(self, config: Sizes, activation: str) -> None:
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACTIVATIONS[activation]
        self.out_proj = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, first: Tensor) -> Tensor:
        return self.out_proj(self.activation(self.dense(first)))


class SequenceClassifier(WithHead[C]):
    """Texts, or pairs of texts, (N, L) to logits (N, num_labels)."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.classifier = ClassificationHead(config, self.head_activation(config))

    def head_activation(self, config: C) -> str:
        """The name of the activation between the layers of the head."""
        return "tanh"

    def predict(self, states: Tensor, attention_mask: Tensor | None) -> Tensor:
        return self.classifier(states[:, 0])


def for_sequence_classification(base: Checkpoint[C], renames: Sequence[tuple[str, str]] = ()) -> Checkpoint[C]:
    """The checkpoint of a `SequenceClassifier`; `renames` bring the names of its layers to those of RoBERTa."""
    return replace(
        with_labels(base, "text-classification", r"classifier\.(?:out_proj\.)?weight"),
        renames=[*renames, *base.renames, (r"^classifier\.(weight|bias)$", r"classifier.out_proj.\1")],
        head_keys=[r"^classifier\.dense\.weight", r"^classifier\.out_proj\.weight"],
    )


def for_reranking(base: Checkpoint[C]) -> Checkpoint[C]:
    """The checkpoint of a cross-encoder: that of a classifier of texts, with one label."""
    return replace(base, read=reading_labels(base.read, r"classifier\.(?:out_proj\.)?weight", 1), head="reranking")


# Tokens ---------------------------------------------------------------------------------------------------------------


class TokenClassifier(WithHead[C]):
    """Token ids (N, L) to the logits of each token, (N, L, num_labels)."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def predict(self, states: Tensor, attention_mask: Tensor | None) -> Tensor:
        return self.classifier(states)


def for_token_classification(base: Checkpoint[C]) -> Checkpoint[C]:
    """The checkpoint of a `TokenClassifier`."""
    return with_labels(base, "token-classification", r"classifier\.weight")


class QuestionAnswerer(WithHead[C]):
    """A question and a text (N, L) to the logits of the answer's first and last token, (N, L) each."""

    output_names: ClassVar[Sequence[str]] = ("start_logits", "end_logits")

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)

    def predict(self, states: Tensor, attention_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        logits = self.qa_outputs(states)
        return logits[:, :, 0], logits[:, :, 1]


def for_question_answering(base: Checkpoint[C]) -> Checkpoint[C]:
    """The checkpoint of a `QuestionAnswerer`."""
    return with_labels(base, "question-answering", r"qa_outputs\.weight", expected=2)


# Masked tokens --------------------------------------------------------------------------------------------------------


class PredictionHead(nn.Module):
    """A layer, its activation and a norm: (..., width) to (..., inner)."""

    def __init__(self, width: int, inner: int, activation: str, norm: nn.LayerNorm, bias: bool = True) -> None:
        self.dense = nn.Linear(width, inner, bias)
        self.activation = ACTIVATIONS[activation]
        self.layer_norm = norm

    def forward(self, x: Tensor) -> Tensor:
        return self.layer_norm(self.activation(self.dense(x)))


class LanguageModelHead(PredictionHead):
    """What is multiplied with the table of all tokens' vectors, or with that of `decoder`; then `bias` (vocab_size,) is
    added, if there is one.
    """

    def __init__(
        self,
        vocab_size: int,
        width: int,
        inner: int,
        activation: str,
        norm: nn.LayerNorm,
        bias: bool = True,
        output_bias: bool = True,
    ) -> None:
        super().__init__(width, inner, activation, norm, bias)
        self.bias = nn.init.new_parameter(vocab_size) if output_bias else None
        self.sizes = (inner, vocab_size)
        self.decoder: nn.Linear | None = None


class MaskedLM(WithHead[C]):
    """Token ids (N, L) to the logits of what stands at each place, (N, L, vocab_size)."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.lm_head = self.language_model_head(config)
        if config.own_output:
            self.lm_head.decoder = nn.Linear(*self.lm_head.sizes, bias=False)

    @abstractmethod
    def language_model_head(self, config: C) -> LanguageModelHead:
        """The layers before the table."""

    @property
    @abstractmethod
    def table(self) -> Tensor:
        """The vectors of all tokens, (vocab_size, width)."""

    def predict(self, states: Tensor, attention_mask: Tensor | None) -> Tensor:
        table = self.table if self.lm_head.decoder is None else self.lm_head.decoder.weight
        return F.linear(self.lm_head(states), table, self.lm_head.bias)


def for_masked_lm(base: Checkpoint[C], table: str, renames: Sequence[tuple[str, str]]) -> Checkpoint[C]:
    """The checkpoint of a `MaskedLM`, whose output layer is the `table` of token vectors, named by its key.

    As in transformers 5, a stored output layer with other numbers than the table is one of its own.
    """
    output = "lm_head.decoder.weight"

    def read(options: Config) -> C:
        keys = {checkpoint.renamed(key): key for key in options.weights}
        first, second = (options.weights[keys[name]] if name in keys else None for name in (output, table))
        own = first is not None and second is not None and not np.array_equal(numbers_of(first), numbers_of(second))
        return replace(base.read(options), own_output=own)  # type: ignore[type-var]  # a dataclass

    checkpoint = replace(
        base,
        read=read,
        renames=[*base.renames, *renames],
        tied_keys={output: table, "lm_head.decoder.bias": "lm_head.bias"},
        head="fill-mask",
        head_keys=[r"^lm_head\.dense\.weight"],
    )
    return checkpoint


# Labels ---------------------------------------------------------------------------------------------------------------


def with_labels(base: Checkpoint[L], task: str, key: str, expected: int | None = None) -> Checkpoint[L]:
    """The checkpoint of a head whose last weight has a row for each label.

    `key` is a regular expression for the whole key of that weight; `expected`, if given, how many labels there must be.
    """
    return replace(
        base,
        read=reading_labels(base.read, key, expected),
        # How sentence-transformers makes scores of the logits of a cross-encoder.
        ignored_options=[*base.ignored_options, "sentence_transformers|sbert_ce_.*"],
        head=task,
        head_keys=[f"^{key}"],
    )
