"""Encoders of texts and their heads: classes of texts and of tokens, answers in a text, tokens behind masks.

A model's file has the encoder, and derives a class for each task from a head and the encoder, in this order::

    class Albert(TextEncoder[AlbertConfig]): ...

    class AlbertForTokenClassification(TokenClassifier[AlbertConfig], Albert, on=Albert): ...

The layers of heads have the names of RoBERTa's checkpoints; `head_names` and `head_renames` bring others to them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, TypeVar

import lucid
from lucid import Tensor, nn
from lucid.models.checkpoints.option_table import OptionTable
from lucid.models.checkpoints.pretrained import ACTIVATIONS, Checkpoint, Config, Pretrained
from lucid.models.checkpoints.sentence_files import USUAL_LAYERS, SentenceLayer
from lucid.models.parts.on_model import Head
from lucid.models.parts.options import equal_weights
from lucid.nn import functional as F


class HeadSizes(Protocol):
    """The sizes that a head reads from the config of its model, a dataclass."""

    @property
    def hidden_size(self) -> int: ...

    @property
    def num_labels(self) -> int: ...


class Sizes(HeadSizes, Protocol):
    """The same of an encoder with segments."""

    @property
    def type_vocab_size(self) -> int: ...  # 0 or 1: texts have no segments


C = TypeVar("C", bound=Sizes)
L = TypeVar("L")  # any config


@dataclass(frozen=True, kw_only=True)
class TextConfig(OptionTable):
    """The base of text encoders' configs: facts that heads need and that only the weights tell."""

    num_labels: int = 0
    own_output: bool = False  # of a MaskedLM, whose output layer is not the table of token vectors
    sentence_layers: tuple[SentenceLayer, ...] = USUAL_LAYERS  # of a sentence encoder


def text_specs(type_vocab_size: int = 0) -> dict[str, lucid.TensorType]:
    """The inputs that tokenizers give: ids and a mask (N, L), and segments if the model has several."""
    segments = ["token_type_ids"] if type_vocab_size > 1 else []
    return {name: lucid.spec("N", "L", dtype=lucid.int64) for name in ("input_ids", "attention_mask", *segments)}


class TextEncoder(Pretrained[C]):
    """Token ids (N, L) to hidden states (N, L, E).

    ``attention_mask`` (N, L) is 1 for tokens to keep, 0 for padding; ``token_type_ids`` (N, L) default to 0.
    """

    output_names: ClassVar[Sequence[str]] = ("last_hidden_state",)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        return self.hidden_states(input_ids, attention_mask, token_type_ids)[-1]

    def hidden_states(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> list[Tensor]:
        """The input of the first layer, and the output of each layer, (N, L, E) each."""
        key_mask = None if attention_mask is None else attention_mask != 0
        return self.layer_states(self.embed(input_ids, token_type_ids, key_mask), key_mask)

    @abstractmethod
    def embed(self, input_ids: Tensor, token_type_ids: Tensor | None, key_mask: Tensor | None) -> Tensor:
        """The input of the first layer, (N, L, E); `key_mask` (N, L) is false for padding."""

    @abstractmethod
    def layer_states(self, x: Tensor, key_mask: Tensor | None) -> list[Tensor]:
        """The input of the first layer, and the output of each layer, from that input."""

    def input_specs(self) -> Mapping[str, lucid.TensorType]:
        return text_specs()

    def full_input_specs(self) -> Mapping[str, lucid.TensorType]:
        return text_specs(self.config.type_vocab_size)


def first_row(table: nn.Embedding) -> Tensor:
    """The first row of a table, (E,), named in an exported model."""
    return table.weight[0].named_after(table.weight, "[0]")


# Heads ----------------------------------------------------------------------------------------------------------------


class OnStates(Head[L]):
    """The base class of heads, together with that of the encoder."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Any:
        """Token ids (N, L), which to keep (1) or not (0), and segments, to what `output_names` says."""
        segments = () if token_type_ids is None else (token_type_ids,)
        return self.predict(self.encoder_states(input_ids, attention_mask, *segments), attention_mask)

    def encoder_states(self, *inputs: Tensor | None, **named: Tensor) -> Tensor:
        """The states of the encoder, (N, L, E)."""
        states: Tensor = super().forward(*inputs, **named)
        return states

    @abstractmethod
    def predict(self, states: Tensor, attention_mask: Tensor | None) -> Any:
        """From the encoder's states (N, L, E) to the results."""


class WithHead(OnStates[C]):
    """A head for a task; its exported model has all inputs that the tokenizer gives."""

    output_names: ClassVar[Sequence[str]] = ("logits",)

    def input_specs(self) -> Mapping[str, lucid.TensorType]:
        return text_specs(self.config.type_vocab_size)


class ClassificationHead(nn.Module):
    """Two layers on the state of the first token, (N, E) to (N, num_labels)."""

    def __init__(self, width: int, num_labels: int, activation: str) -> None:
        self.dense = nn.Linear(width, width)
        self.activation = ACTIVATIONS[activation]
        self.out_proj = nn.Linear(width, num_labels)

    def forward(self, state: Tensor) -> Tensor:
        return self.out_proj(self.activation(self.dense(state)))


class SequenceClassifier(WithHead[C]):
    """Texts, or pairs of texts, (N, L) to logits (N, num_labels)."""

    head_task, label_key = "text-classification", r"classifier\.(?:out_proj\.)?weight"
    head_keys = (r"^classifier\.dense\.weight", r"^classifier\.out_proj\.weight")

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.classifier = ClassificationHead(config.hidden_size, config.num_labels, self.head_activation(config))

    def head_activation(self, config: C) -> str:
        """The name of the activation between the layers of the head."""
        return "tanh"

    def predict(self, states: Tensor, attention_mask: Tensor | None) -> Tensor:
        return self.classifier(states[:, 0])


def bert_names(dense: str) -> dict[str, str]:
    """The names of a `SequenceClassifier`'s layers in checkpoints, as in BERT; `dense` is the first layer."""
    return {"classifier.dense": dense, "classifier.out_proj": "classifier"}


class TokenClassifier(WithHead[C]):
    """Token ids (N, L) to the logits of each token, (N, L, num_labels)."""

    head_task, label_key = "token-classification", r"classifier\.weight"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def predict(self, states: Tensor, attention_mask: Tensor | None) -> Tensor:
        return self.classifier(states)


class MultipleChoice(WithHead[C]):
    """A question with each of its C answers, (N, C, L), to the logit of each answer, (N, C); put before a classifier
    of texts of one label.
    """

    head_task, label_count = "multiple-choice", 1

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        texts = (None if each is None else each.flatten(0, 1) for each in (input_ids, attention_mask, token_type_ids))
        logits: Tensor = super().forward(*texts)  # type: ignore[arg-type]  # the first is a tensor
        return logits.reshape(*input_ids.shape[:2])

    def input_specs(self) -> Mapping[str, lucid.TensorType]:
        specs = super().input_specs()
        return {name: lucid.spec("N", "C", "L", dtype=spec.dtype) for name, spec in specs.items()}

    def full_input_specs(self) -> Mapping[str, lucid.TensorType]:
        return self.input_specs()


def start_and_end(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The logits of an answer's first and last token, (N, L) each, from (N, L, 2)."""
    return logits[:, :, 0], logits[:, :, 1]


class QuestionAnswerer(WithHead[C]):
    """A question and a text (N, L) to the logits of the answer's first and last token, (N, L) each."""

    head_task, label_key, label_count = "question-answering", r"qa_outputs\.weight", 2
    output_names: ClassVar[Sequence[str]] = ("start_logits", "end_logits")

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)

    def predict(self, states: Tensor, attention_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        return start_and_end(self.qa_outputs(states))


class PredictionHead(nn.Module):
    """A layer, its activation and a norm: (..., width) to (..., inner)."""

    def __init__(self, width: int, inner: int, activation: str, norm: nn.LayerNorm, bias: bool = True) -> None:
        self.dense = nn.Linear(width, inner, bias)
        self.activation = ACTIVATIONS[activation]
        self.layer_norm = norm

    def forward(self, x: Tensor) -> Tensor:
        return self.layer_norm(self.activation(self.dense(x)))


class LanguageModelHead(PredictionHead):
    """The layers before the output table, which is the table of token vectors or that of `decoder`; `bias`
    (vocab_size,) is added after it, if there is one.
    """

    def __init__(
        self, config: Any, inner: int, activation: str, norm: nn.LayerNorm, bias: bool = True, output_bias: bool = True
    ) -> None:
        super().__init__(config.hidden_size, inner, activation, norm, bias)
        self.bias = nn.init.new_parameter(config.vocab_size) if output_bias else None
        self.decoder = nn.Linear(inner, config.vocab_size, bias=False) if config.own_output else None


_OUTPUT = "lm_head.decoder.weight"


class MaskedLM(WithHead[C]):
    """Token ids (N, L) to the logits of the token at each place, (N, L, vocab_size).

    The output layer is the table of token vectors. As in transformers 5, a stored output layer whose numbers differ
    from the table is used as it is.
    """

    head_task, head_keys = "fill-mask", (r"^lm_head\.dense\.weight",)
    table_key: ClassVar[str] = "embeddings.word_embeddings.weight"
    embeddings: Any  # of the encoder

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.lm_head = self.language_model_head(config, self.table.shape[1].__index__())

    def language_model_head(self, config: Any, inner: int) -> LanguageModelHead:
        """The layers before the table, whose vectors are `inner` wide."""
        return LanguageModelHead(config, inner, config.activation, nn.LayerNorm(inner, config.eps))

    @property
    def table(self) -> Tensor:
        """The vectors of all tokens, (vocab_size, width)."""
        table: Tensor = self.embeddings.word_embeddings.weight
        return table

    def predict(self, states: Tensor, attention_mask: Tensor | None) -> Tensor:
        table = self.table if self.lm_head.decoder is None else self.lm_head.decoder.weight
        return F.linear(self.lm_head(states), table, self.lm_head.bias)

    @classmethod
    def read_config(cls, options: Config, base: Checkpoint[Any]) -> Any:
        keys = {cls.checkpoint.renamed(key): key for key in options.weights}
        shared = equal_weights(options, keys.get(_OUTPUT), keys.get(cls.table_key))
        return replace(super().read_config(options, base), own_output=not shared)

    @classmethod
    def head_checkpoint(cls, base: Checkpoint[Any]) -> Checkpoint[Any]:
        tied = {_OUTPUT: cls.table_key, "lm_head.decoder.bias": "lm_head.bias"}
        return replace(super().head_checkpoint(base), tied_keys=tied)
