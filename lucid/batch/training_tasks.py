"""What is learned from rows, by task: which columns are read, the arrays of a batch, the loss, and its evaluation."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from lucid.batch.rows import RowError, missing
from lucid.batch.source import no_column
from lucid.batch.texts import TextReader, checked_text
from lucid.core.graph.types import Array, TensorType, int64, spec
from lucid.core.words.safe_text import listed
from lucid.core.words.suggestions import did_you_mean
from lucid.files.untrusted import json_value
from lucid.generation.chat.template import ChatTemplateError
from lucid.generation.chat.tokenizer import Tokenizer
from lucid.models.parts.decoder_heads import LastTokenClassifier
from lucid.nn import functional as F
from lucid.ops.creation import arange
from lucid.ops.tensor.tensor import Tensor

CLASSES, SENTENCES, TEXTS = "text-classification", "sentence-similarity", "text-generation"
IGNORED = -100
_LONGEST = 1 << 24  # characters of a text
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")  # a text that is a number, and no other text is this one


class Defaults(NamedTuple):
    """The default options of a task."""

    num_train_epochs: int
    batch_size: int
    learning_rate: float
    lora_learning_rate: float


DEFAULTS = {
    CLASSES: Defaults(3, 16, 5e-5, 5e-4),
    SENTENCES: Defaults(1, 16, 2e-5, 2e-4),
    TEXTS: Defaults(3, 8, 2e-5, 2e-4),
}
"""The tasks that are trained, with the defaults of transformers, sentence-transformers and TRL where they have some."""

_MESSAGES = ("messages",)
_COLUMNS: dict[str, list[tuple[str, ...]]] = {
    CLASSES: [("text",)],
    SENTENCES: [("anchor", "positive", "negative"), ("anchor", "positive"), ("sentence1", "sentence2")],
    TEXTS: [_MESSAGES, ("prompt", "completion"), ("text",)],
}


class Columns(NamedTuple):
    """The columns of texts, and the column of a label or score."""

    texts: tuple[str, ...]
    label: str | None

    @property
    def all(self) -> tuple[str, ...]:
        """All that are read."""
        return self.texts if self.label is None else (*self.texts, self.label)


def columns_of(task: str, names: Sequence[str], texts: Sequence[str], label: str | None, where: str) -> Columns:
    """The columns to read: those that are asked for, or those of the usual names that the data has.

    Raises:
        KeyError: for a column that is missing.
        ValueError: for more or fewer columns than the task reads, one of them twice, and a column of labels among those
            of texts.
    """
    usual = _COLUMNS[task]
    fewest, most = {CLASSES: (1, 2), SENTENCES: (2, 3), TEXTS: (1, 2)}[task]
    if texts and not fewest <= len(texts) <= most:
        raise ValueError(f"{task} reads {fewest} or {most} columns of texts, got {len(texts)}: {', '.join(texts)}")
    if len({*texts}) < len(texts):
        raise ValueError(f"the columns of texts are {', '.join(texts)}, expected each once")
    chosen = tuple(texts) or next((each for each in usual if {*each} <= {*names}), usual[-1])
    if label is None and (task == CLASSES or (task == SENTENCES and "score" in names)):
        label = "label" if task == CLASSES else "score"
    if label is not None and task == TEXTS:
        raise ValueError(f"{task} learns from texts alone; leave out the column {label!r} of labels")
    if label in chosen:
        raise ValueError(f"the column {label!r} is what is learned, and cannot be one of the texts; name others")
    columns = Columns(chosen, label)
    for name in columns.all:
        if name not in names:
            fitting = next((other for other in _COLUMNS if _has_columns(names, other)), None)
            if name != label and not texts and fitting is not None:
                raise KeyError(
                    f"{where}: its columns are {', '.join(names)}, of which {task} has no texts; give the task "
                    f"{fitting} (--task), or name the columns of texts (--column)"
                )
            raise no_column(name, where, names, "--label-column" if name == label else "--column")
    return columns


def _has_columns(names: Sequence[str], task: str) -> bool:
    """Whether rows have columns of the usual names of a task."""
    label = {"label"} if task == CLASSES else set[str]()
    return any({*each} | label <= {*names} for each in _COLUMNS[task])


class TrainingTask(ABC):
    """A task to learn from rows.

    Attributes:
        specs: the inputs of `results`.
        least: the rows of a step below which nothing is learned.
        max_length: the most tokens of a text; None for any number.
        truncated: how many rows `example` has seen with more.
    """

    least: ClassVar[int] = 1
    specs: Mapping[str, TensorType]
    max_length: int | None
    truncated = 0

    @abstractmethod
    def example(self, values: Sequence[Any]) -> Any:
        """The example of a row; raises RowError."""

    def labels(self, examples: Sequence[Any]) -> dict[str, int]:
        """How many examples have each class, the most frequent one first; empty without classes."""
        return {}

    @abstractmethod
    def batch(self, examples: Sequence[Any]) -> dict[str, Array]:
        """The inputs of `results` for examples."""

    @abstractmethod
    def results(self, **inputs: Tensor) -> dict[str, Tensor]:
        """The mean ``loss``, a scalar, and for `scores` ``counted`` (), what the mean is of, and ``found`` (N,)."""

    def loss(self, **inputs: Tensor) -> Tensor:
        """The loss alone."""
        return self.results(**inputs)["loss"]

    @abstractmethod
    def scores(self, loss: float, results: Array, examples: Sequence[Any]) -> dict[str, float]:
        """The metrics by name of all examples, from their mean loss and what `found` is for each."""


def _of_text(model: Any, rows: Any = "N") -> dict[str, TensorType]:
    return {name: spec(rows, "L", dtype=int64) for name in model.input_specs()}


class Classification(TrainingTask):
    """A class for each text, or pair of texts: cross-entropy, the share of right answers, and their macro F1."""

    def __init__(self, model: Any, reader: TextReader, labels: Labels) -> None:
        self._model, self._reader, self._labels = model, reader, labels
        self.max_length = reader.max_length
        self._names = _of_text(model)
        self.specs = {**self._names, "labels": spec("N", dtype=int64)}
        if isinstance(model, LastTokenClassifier) and model.config.pad_token_id is None:
            raise ValueError(
                "the config of the checkpoint has no pad_token_id, before which its classifier looks for the end of a "
                "text; add one to config.json"
            )

    def example(self, values: Sequence[Any]) -> tuple[Any, int]:
        row = self._reader.ready(values[:-1])
        self.truncated += row.truncated
        return row.data, self._labels.number(values[-1])

    def labels(self, examples: Sequence[tuple[Any, int]]) -> dict[str, int]:
        counted = sorted(Counter(label for _, label in examples).items(), key=lambda each: (-each[1], each[0]))
        return {self._labels.names[label]: count for label, count in counted}

    def batch(self, examples: Sequence[tuple[Any, int]]) -> dict[str, Array]:
        arrays = self._reader.arrays([data for data, _ in examples])
        return {**arrays, "labels": np.array([label for _, label in examples], np.int64)}

    def results(self, **inputs: Tensor) -> dict[str, Tensor]:
        logits, labels = self._model(**{name: inputs[name] for name in self._names}), inputs["labels"]
        counted = (labels * 0 + 1).sum().float()
        return {"loss": F.cross_entropy(logits, labels), "found": logits.argmax(1), "counted": counted}

    def scores(self, loss: float, results: Array, examples: Sequence[tuple[Any, int]]) -> dict[str, float]:
        labels = np.array([label for _, label in examples])
        return {"accuracy": float((results == labels).mean()), "macro_f1": macro_f1(results, labels)}


def macro_f1(answers: Array, labels: Array) -> float:
    """The mean over classes of the harmonic mean of precision and recall, of two series of classes, (N,) each.

    Classes that neither series has are left out, as by scikit-learn.
    """
    size = 1 + int(max(answers.max(), labels.max()))
    right, answered, there = (
        np.bincount(each, minlength=size) for each in (labels[answers == labels], answers, labels)
    )
    both = answered + there
    return float((2 * right[both > 0] / both[both > 0]).mean())


class Labels:
    """The classes by their names.

    Args:
        names: in the order of their numbers.
        owner: what has these labels and no others, for errors.
    """

    def __init__(self, names: Sequence[str], owner: str) -> None:
        self.names, self._owner = list(names), owner
        self._numbers = {name: number for number, name in enumerate(self.names)}

    @classmethod
    def of(cls, values: Sequence[int | str]) -> Labels:
        """The labels of rows, as `key` gives them, in the order of numbers or of the alphabet.

        Raises:
            ValueError: for fewer than two labels.
        """
        distinct = {*values}
        numbers = all(isinstance(value, int) for value in distinct)
        names = [str(value) for value in sorted(distinct, key=(lambda value: value) if numbers else str)]
        if len(names) < 2:
            raise ValueError(f"all rows have the label {', '.join(names)}, expected two labels or more")
        return cls(names, "the rows to learn from")

    def number(self, value: Any) -> int:
        """The number of a label, which is given by its name or number; raises RowError."""
        label = self.key(value)
        name = str(label)
        if name in self._numbers:
            return self._numbers[name]
        if isinstance(label, int) and 0 <= label < len(self.names) and not all(map(str.isdecimal, self.names)):
            return label
        near = did_you_mean(name, self.names)
        raise RowError(
            f"the label is {value!r}, expected one of {listed(self.names, 8)}, the labels of {self._owner}{near}"
        )

    @staticmethod
    def key(value: Any) -> int | str:
        """A label as a number or a name; text with leading zeros is a name. Raises RowError."""
        if missing(value) or (isinstance(value, str) and not value.strip()):
            raise RowError("the label is missing")
        if isinstance(value, str):
            if value != value.strip():
                raise RowError(f"the label is {value!r}, expected no spaces around it")
            if any("\ud800" <= each <= "\udfff" for each in value):  # bytes that are not UTF-8
                raise RowError(f"the label is {value!r}, expected text in UTF-8")
            return int(value) if _NUMBER.fullmatch(value) else value
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if not isinstance(value, (int, np.integer)):
            raise RowError(f"the label is {value!r}, expected a name or a whole number")
        return int(value)


class Similarity(TrainingTask):
    """Pairs of texts with scores: the square error of their cosine, and Spearman's correlation with the scores.

    Pairs without scores, perhaps with a negative each: the loss of finding each text's positive in the batch, and how
    often it is found.
    """

    def __init__(self, model: Any, reader: TextReader, columns: Columns) -> None:
        self._model, self._reader, self.max_length = model, reader, reader.max_length
        self._texts, self._scored = len(columns.texts), columns.label is not None
        if self._scored and self._texts > 2:
            raise ValueError(f"scores are for pairs of texts, got {len(columns.texts)}: {', '.join(columns.texts)}")
        if not self._scored and self._texts == 2:  # a positive is found among those of the other rows
            self.least = 2  # type: ignore[misc]
        self._names = _of_text(model, f"{self._texts}*N")
        self.specs = {**self._names, **({"scores": spec("N")} if self._scored else {})}

    def example(self, values: Sequence[Any]) -> tuple[list[Any], float]:
        rows = [self._reader.ready([value]) for value in values[: self._texts]]
        self.truncated += any(row.truncated for row in rows)
        return [row.data for row in rows], _score(values[-1]) if self._scored else 0.0

    def batch(self, examples: Sequence[tuple[list[Any], float]]) -> dict[str, Array]:
        arrays = self._reader.arrays([texts[place] for place in range(self._texts) for texts, _ in examples])
        scores = {"scores": np.array([score for _, score in examples], np.float32)} if self._scored else {}
        return {**arrays, **scores}

    def results(self, **inputs: Tensor) -> dict[str, Tensor]:
        vectors = self._model(**{name: inputs[name] for name in self._names})
        first, second, *more = vectors.reshape(self._texts, -1, vectors.shape[-1]).unbind(0)
        if self._scored:
            cosine = F.cosine_similarity(first, second)
            counted = (inputs["scores"] * 0 + 1).sum()
            return {"loss": F.mse_loss(cosine, inputs["scores"]), "found": cosine, "counted": counted}
        scores = F.normalize(first) @ F.normalize(second).mT
        loss = F.in_batch_contrastive_loss(first, second, *more)
        right = (scores.argmax(1) == arange(first.shape[0])).float()
        return {"loss": loss, "found": right, "counted": (right * 0 + 1).sum()}

    def scores(self, loss: float, results: Array, examples: Sequence[tuple[list[Any], float]]) -> dict[str, float]:
        if not self._scored:
            return {"accuracy": float(results.mean())}
        return {"spearman": spearman(results, np.array([score for _, score in examples]))}


def _score(value: Any) -> float:
    try:
        score = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        score = math.nan
    if not -1 <= score <= 1:
        raise RowError(f"the score is {value!r}, expected a number from -1 to 1, as a cosine is")
    return score


def spearman(x: Array, y: Array) -> float:
    """Spearman's correlation of two series, (N,) each: that of their ranks; equal numbers share theirs."""
    first, second = (_ranks(series) - (len(series) - 1) / 2 for series in (x, y))
    size = float(np.sqrt((first @ first) * (second @ second)))
    return float(first @ second) / size if size else 0.0


def _ranks(series: Array) -> Array:
    _, places, counts = np.unique(series, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts + 1) / 2)[places])


@dataclass(frozen=True)
class Learned:
    """The ids of a text, and which of them are learned."""

    ids: Array
    learned: Array


class Generation(TrainingTask):
    """Texts, or the answers to prompts and in conversations: the cross-entropy of tokens, and its perplexity."""

    max_length: int

    def __init__(self, model: Any, tokenizer: Tokenizer, columns: Columns, max_length: int) -> None:
        self._model, self._tokenizer, self.max_length = model, tokenizer, max_length
        self._make: Callable[..., Learned] = self._completed if len(columns.texts) > 1 else self._text
        self._parses = columns.texts == _MESSAGES
        self.specs = {name: spec("N", "L", dtype=int64) for name in ("input_ids", "labels")}
        tokenizer.library.no_truncation()
        tokenizer.library.no_padding()
        end = tokenizer.library.token_to_id(tokenizer.special_tokens.get("eos_token", ""))
        self._end = [end] if end is not None else list(tokenizer.eos_token_ids[:1])

    def example(self, values: Sequence[Any]) -> Learned:
        whole = self._make(*values)
        kept = Learned(whole.ids[: self.max_length], whole.learned[: self.max_length])
        if not kept.learned[1:].any():
            reason = (
                f"the first {self.max_length} tokens have no answer (max_length)"
                if whole.learned[1:].any()
                else ("there is no answer to learn")
            )
            raise RowError(reason)
        self.truncated += whole.ids.size > self.max_length
        return kept

    def batch(self, examples: Sequence[Learned]) -> dict[str, Array]:
        """Ids, and for each place the id to be predicted there, which is the next one."""
        shape = len(examples), max(each.ids.size for each in examples)
        arrays = {"input_ids": np.zeros(shape, np.int64), "labels": np.full(shape, IGNORED, np.int64)}
        for row, each in enumerate(examples):
            arrays["input_ids"][row, : each.ids.size] = each.ids
            arrays["labels"][row, : each.ids.size - 1] = np.where(each.learned, each.ids, IGNORED)[1:]
        return arrays

    def results(self, **inputs: Tensor) -> dict[str, Tensor]:
        logits, labels = self._model(inputs["input_ids"]), inputs["labels"].flatten()
        loss = F.cross_entropy(logits.flatten(0, 1), labels, ignore_index=IGNORED)
        counted = (labels != IGNORED).float()
        return {"loss": loss, "found": counted[:0], "counted": counted.sum()}

    def scores(self, loss: float, results: Array, examples: Sequence[Learned]) -> dict[str, float]:
        return {"perplexity": math.exp(min(loss, 700.0))}

    def _text(self, value: Any) -> Learned:
        if self._parses and isinstance(value, str):
            value = _parsed(value)
        if isinstance(value, (list, tuple, np.ndarray)):
            return self._conversation(list(value))
        return self._encoded(checked_text(value, _LONGEST), [(0, _LONGEST)])

    def _completed(self, prompt: Any, completion: Any) -> Learned:
        before = checked_text(prompt, _LONGEST)
        return self._encoded(before + checked_text(completion, _LONGEST), [(len(before), _LONGEST)])

    def _conversation(self, messages: list[Any]) -> Learned:
        """A conversation as the template writes it; the messages of the assistant are learned."""
        template = self._tokenizer.chat_template
        if template is None:
            raise RowError("it is a conversation, and the checkpoint has no chat template")
        if not all(isinstance(each, Mapping) and isinstance(each.get("role"), str) for each in messages):
            raise RowError("expected a list of messages, each with a role and content")
        spans: list[tuple[int, int]] = []
        try:
            text = template.render(messages, add_generation_prompt=False)
            for place, message in enumerate(messages):
                if message["role"] == "assistant":
                    parts = [value for name, value in message.items() if name not in ("role", "name")]
                    if not any(str(value or "").strip() for value in parts):
                        raise RowError(f"message {place}, of the assistant, is empty: only its end would be learned")
                    start = template.render(messages[:place], add_generation_prompt=True)
                    stop = template.render(messages[: place + 1], add_generation_prompt=False)
                    if not (stop.startswith(start) and text.startswith(stop)):
                        raise RowError(f"the chat template writes message {place} differently when others follow it")
                    spans.append((len(start), len(stop)))
        except ChatTemplateError as error:
            raise RowError(str(error)) from error
        return self._encoded(text, spans, whole=True)

    def _encoded(self, text: str, spans: Sequence[tuple[int, int]], whole: bool = False) -> Learned:
        """The ids of a text; those of characters in the spans are learned.

        If the text is not `whole`, an end is learned as well: the tokenizer's own, or one that is added here.
        """
        encoding = self._tokenizer.library.encode(text, add_special_tokens=not whole)
        inside = [any(start < last <= stop for start, stop in spans) for _, last in encoding.offsets]
        ids = list(encoding.ids)
        if not whole:
            if ids[-1:] == self._end:  # which no characters of the text belong to
                ids, inside = ids[:-1], inside[:-1]
            ids, inside = [*ids, *self._end], [*inside, *(True for _ in self._end)]
        return Learned(np.array(ids, np.int64), np.array(inside, bool))


def _parsed(value: str) -> list[Any]:
    """The messages of a conversation that a file without lists, such as CSV, has as JSON; raises RowError."""
    reason = ""
    try:
        messages = json_value(value, unique=True)
    except ValueError as error:
        messages, reason = None, f" ({str(error)[:80]})"
    if not isinstance(messages, list):
        raise RowError(
            f"the messages are {value[:40]!r}{reason}, expected a list of them, in a text as JSON: "
            '[{"role": "user", "content": "..."}, ...]; of plain texts name the column text'
        )
    return messages
