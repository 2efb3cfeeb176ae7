"""The options of `generate`, each checked against its range."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Required, TypedDict

import numpy as np

from lucid.core.graph.types import is_whole
from lucid.generation.logits import LogitsProcessor


class GenerateOptions(TypedDict, total=False):
    """The names and types of the options of `Generator.generate`, whose docstring says what each means."""

    max_new_tokens: Required[int]
    do_sample: bool
    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float
    num_beams: int
    eos_token_id: int | Sequence[int] | None
    pad_token_id: int | None
    forced_bos_token_id: int | None
    forced_eos_token_id: int | None
    suppress_tokens: Sequence[int]
    stop: str | Sequence[str] | None
    seed: int | None
    logits_processors: Sequence[LogitsProcessor]


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options with their defaults, checked.

    Raises:
        TypeError, ValueError: for a value out of range, or an option that would have no effect.
    """

    max_new_tokens: int
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    num_beams: int = 1
    eos_token_id: int | Sequence[int] | None = None
    pad_token_id: int | None = None
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | None = None
    suppress_tokens: Sequence[int] = ()
    stop: str | Sequence[str] | None = None
    seed: int | None = None
    logits_processors: Sequence[LogitsProcessor] = ()

    def __post_init__(self) -> None:
        _whole("max_new_tokens", self.max_new_tokens, 1)
        _whole("num_beams", self.num_beams, 1)
        _real("repetition_penalty", self.repetition_penalty, "more than 0", lambda x: x > 0)
        for eos in self.eos_tokens:
            _whole("eos_token_id", eos, 0)
        for token in self.suppress_tokens:
            _whole("suppress_tokens", token, 0)
        forced = {"forced_bos_token_id": self.forced_bos_token_id, "forced_eos_token_id": self.forced_eos_token_id}
        for name, given in {"pad_token_id": self.pad_token_id, **forced}.items():
            if given is not None:
                _whole(name, given, 0)
        for text in self.stop_strings:
            if not isinstance(text, str):
                raise TypeError(f"generate: stop has a {type(text).__name__}, expected strings")
            if not text:
                raise ValueError("generate: stop has an empty string, expected at least one character")
        if self.seed is not None:
            _whole("seed", self.seed, 0)
        self._check_sampling()

    def _check_sampling(self) -> None:
        likeliest = "at least 1e-6; for the likeliest token use do_sample=False"
        _real("temperature", self.temperature, likeliest, lambda x: x >= 1e-6)
        if self.top_k is not None:
            _whole("top_k", self.top_k, 1)
        if self.top_p is not None:
            _real("top_p", self.top_p, "more than 0 and at most 1", lambda x: 0 < x <= 1)
        if self.min_p is not None:
            _real("min_p", self.min_p, "0 to 1", lambda x: 0 <= x <= 1)
        if not self.do_sample:
            temperature = None if self.temperature == 1 else self.temperature
            given = {"temperature": temperature, "top_k": self.top_k, "top_p": self.top_p, "min_p": self.min_p}
            if idle := [f"{name}={value}" for name, value in given.items() if value is not None]:
                raise ValueError(f"generate: {', '.join(idle)} has no effect without sampling; add do_sample=True")

    @property
    def eos_tokens(self) -> tuple[int, ...]:
        """The ids that end a sequence."""
        eos = self.eos_token_id
        return () if eos is None else tuple(eos) if isinstance(eos, Sequence) else (eos,)

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """The strings that end a sequence."""
        return () if self.stop is None else (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def changes_logits(self) -> bool:
        """Whether anything comes between the model's logits and the choice of the likeliest token."""
        forced = self.forced_bos_token_id, self.forced_eos_token_id
        return (
            self.repetition_penalty != 1
            or forced != (None, None)
            or bool(self.suppress_tokens)
            or bool(self.logits_processors)
        )

    def forced_token(self, total: int, new: int) -> int | None:
        """The only token that may follow sequences of this length with so many new tokens; None: any may."""
        if self.forced_eos_token_id is not None and new == self.max_new_tokens - 1:
            return self.forced_eos_token_id
        return self.forced_bos_token_id if total == 1 else None

    @property
    def padding(self) -> int:
        """The id that follows the end of a sequence: pad_token_id, or the first of eos_token_id, or 0."""
        return self.pad_token_id if self.pad_token_id is not None else (*self.eos_tokens, 0)[0]


def _whole(name: str, value: int, least: int) -> None:
    if not is_whole(value):
        raise TypeError(f"generate: {name} is {value!r}, expected a whole number")
    if value < least:
        raise ValueError(f"generate: {name} is {value}, expected {least} or more")


def _real(name: str, value: float, expected: str, holds: Callable[[float], bool]) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"generate: {name} is {value!r}, expected a number")
    if not math.isfinite(value) or not holds(value):
        raise ValueError(f"generate: {name} is {value}, expected {expected}")
