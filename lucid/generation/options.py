"""The options of `generate`, each checked against its range."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal, Required, TypedDict

import numpy as np

from lucid.core.number_ranges import FINITE, Range, at_least, check, check_all
from lucid.core.process import random
from lucid.core.words.safe_text import cut
from lucid.generation.constraints import Constraint
from lucid.generation.logits import LogitsProcessor
from lucid.generation.stops import stop_strings

_COUNTS = ("max_new_tokens", "num_beams", "num_return_sequences", "top_k", "prompt_lookup_num_tokens")
_TOKENS = ("pad_token_id", "forced_bos_token_id", "forced_eos_token_id")
_FROM_0 = (*_TOKENS, "min_new_tokens", "no_repeat_ngram_size", "seed", "logprobs")
_RANGES: Mapping[str, Range] = {
    **dict.fromkeys(_COUNTS, at_least(1)),
    **dict.fromkeys(_FROM_0, at_least(0)),
    **dict.fromkeys(("frequency_penalty", "presence_penalty", "length_penalty"), FINITE),
    **dict.fromkeys(("top_p", "typical_p"), Range("more than 0 and at most 1", lambda x: 0 < x <= 1)),
    "repetition_penalty": Range("more than 0", lambda x: x > 0),
    "temperature": Range(
        "at least 1e-6; for the likeliest token use do_sample=False, on the command line --temperature 0",
        lambda x: x >= 1e-6,
    ),
    "min_p": Range("0 to 1", lambda x: 0 <= x <= 1),
}
"""The ranges of the options that are numbers."""
_ID, _USER = at_least(0), "generate: "


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


_KINDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "do_sample": (lambda value: isinstance(value, (bool, np.bool_)), "True or False"),
    "suppress_tokens": (_is_list, "a list of tokens"),
    "bad_words_ids": (lambda value: _is_list(value) and all(map(_is_list, value)), "a list of lists of tokens"),
    "logit_bias": (lambda value: isinstance(value, Mapping), "a dict of numbers by token"),
    "constraint": (
        lambda value: value is None or isinstance(value, Constraint),
        "what lucid.generation.Vocabulary makes of a JSON schema, a regular expression or a grammar",
    ),
    "logits_processors": (lambda value: _is_list(value) and all(map(callable, value)), "a list of functions"),
}
"""The options that are no numbers: what each may be."""
_OF_SAMPLING = {"temperature": 1, "top_k": None, "min_p": None, "top_p": None, "typical_p": None}
"""Options that only sampling reads, with their defaults."""


class GenerateOptions(TypedDict, total=False):
    """The names and types of the options of `Generator.generate`, whose docstring says what each means."""

    max_new_tokens: Required[int]
    min_new_tokens: int
    do_sample: bool
    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical_p: float | None
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    no_repeat_ngram_size: int
    bad_words_ids: Sequence[Sequence[int]]
    logit_bias: Mapping[int, float]
    num_beams: int
    length_penalty: float
    early_stopping: bool | Literal["never"]
    num_return_sequences: int
    eos_token_id: int | Sequence[int] | None
    pad_token_id: int | None
    forced_bos_token_id: int | None
    forced_eos_token_id: int | None
    suppress_tokens: Sequence[int]
    stop: str | Sequence[str] | None
    seed: int | None
    prompt_lookup_num_tokens: int | None
    logprobs: int | None
    constraint: Constraint | None
    logits_processors: Sequence[LogitsProcessor]


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options with their defaults, which None stands for as in transformers, checked.

    Raises:
        TypeError, ValueError: for a value out of range, or an option that would have no effect.
    """

    max_new_tokens: int
    min_new_tokens: int = 0
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    no_repeat_ngram_size: int = 0
    bad_words_ids: Sequence[Sequence[int]] = ()
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    num_beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    num_return_sequences: int = 1
    eos_token_id: int | Sequence[int] | None = None
    pad_token_id: int | None = None
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | None = None
    suppress_tokens: Sequence[int] = ()
    stop: str | Sequence[str] | None = None
    seed: int | None = None
    prompt_lookup_num_tokens: int | None = None
    logprobs: int | None = None
    constraint: Constraint | None = None
    logits_processors: Sequence[LogitsProcessor] = ()

    def __post_init__(self) -> None:
        for one in fields(self):
            if getattr(self, one.name) is None and one.name != "max_new_tokens":
                default = one.default if one.default_factory is MISSING else one.default_factory()
                object.__setattr__(self, one.name, default)
        check(f"{_USER}max_new_tokens", self.max_new_tokens, _RANGES["max_new_tokens"])
        for name, (fits, expected) in _KINDS.items():
            if not fits(value := getattr(self, name)):
                raise TypeError(f"{_USER}{name} is {cut(repr(value), 80)}, expected {expected}")
        chosen = {name: value for name, value in vars(self).items() if value is not None}
        check_all(vars(self), _RANGES, _USER)
        if self.min_new_tokens > self.max_new_tokens:
            raise ValueError(
                f"generate: min_new_tokens is {self.min_new_tokens}, expected at most "
                f"max_new_tokens={self.max_new_tokens}"
            )
        self._check_tokens()
        stop_strings(self.stop)
        ends = () if self.constraint is None else self.constraint.eos_token_ids
        if ends and not set(ends) & set(self.eos_tokens):
            raise ValueError(
                f"generate: eos_token_id is {self.eos_token_id}, expected one of {list(ends)}, with which "
                "the constraint ends an answer"
            )
        if not self.do_sample:
            _refuse_idle(
                {name: chosen[name] for name in _OF_SAMPLING if name in chosen and chosen[name] != _OF_SAMPLING[name]},
                "sampling; add do_sample=True",
            )
        self._check_beams()

    def _check_tokens(self) -> None:
        """Every id is a whole number from 0 on, every bias a number."""
        tokens: dict[str, Iterable[int]] = {
            "eos_token_id": self.eos_tokens,
            "suppress_tokens": self.suppress_tokens,
            "logit_bias": self.logit_bias,
            "bad_words_ids": [token for word in self.bad_words_ids for token in word],
        }
        for name, several in tokens.items():
            for token in several:
                check(_USER + name, token, _ID)
        if not all(self.bad_words_ids):
            raise ValueError("generate: bad_words_ids has an empty word, expected at least one token in each")
        for token, bias in self.logit_bias.items():
            check(f"{_USER}logit_bias of token {token}", bias, FINITE)

    def _check_beams(self) -> None:
        if self.early_stopping not in (True, False, "never"):
            raise ValueError(f'generate: early_stopping is {self.early_stopping!r}, expected True, False or "never"')
        if self.num_beams > 1:
            if self.num_return_sequences > self.num_beams:
                raise ValueError(
                    f"generate: num_return_sequences is {self.num_return_sequences}, expected at most "
                    f"num_beams={self.num_beams}"
                )
            for name, option in {
                "logprobs": self.logprobs,
                "prompt_lookup_num_tokens": self.prompt_lookup_num_tokens,
            }.items():
                if option is not None:
                    raise ValueError(f"generate: {name} is for sequences without beams; use num_beams=1")
            return
        beams = {"length_penalty": (self.length_penalty, 1), "early_stopping": (self.early_stopping, False)}
        _refuse_idle({name: value for name, (value, idle) in beams.items() if value != idle}, "beams; add num_beams")
        if not self.do_sample and self.num_return_sequences > 1:
            raise ValueError(
                f"generate: num_return_sequences={self.num_return_sequences} gives equal sequences without sampling "
                "and beams; add do_sample=True or num_beams"
            )

    @property
    def eos_tokens(self) -> tuple[int, ...]:
        """The ids that end a sequence."""
        eos = self.eos_token_id
        return () if eos is None else tuple(eos) if isinstance(eos, Sequence) else (eos,)

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """The strings that end a sequence."""
        return stop_strings(self.stop)

    def random(self, row: int = 0) -> np.random.Generator | None:
        """The random numbers of a row; None where nothing is drawn.

        With a seed each row has its own, so that its tokens depend on neither the number of rows nor their ends; row 0
        has those of the seed itself.
        """
        if not self.do_sample:
            return None
        if self.seed is None:
            return random.generator()
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(self.seed, spawn_key=(row,) if row else ())))

    @property
    def padding(self) -> int:
        """The id that follows the end of a sequence: pad_token_id, or the first of eos_token_id, or 0."""
        return self.pad_token_id if self.pad_token_id is not None else (*self.eos_tokens, 0)[0]


def of_one_sequence(user: str, instead: str, options: GenerateOptions) -> Options:
    """The options of a request, checked; `user` names the caller in messages.

    Raises:
        TypeError, ValueError: as `Options`, and for options of batches, with what to do instead.
    """
    if idle := [name for name in ("num_beams", "num_return_sequences", "pad_token_id") if name in options]:
        raise TypeError(f"{user}: got {' and '.join(idle)}, expected options for one sequence; {instead}")
    return Options(**options)


def _refuse_idle(options: Mapping[str, object], needs: str) -> None:
    if options:
        shown = ", ".join(f"{name}={value}" for name, value in options.items())
        raise ValueError(f"generate: {shown} has no effect without {needs}")
