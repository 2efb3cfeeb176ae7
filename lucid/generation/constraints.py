"""Structured answers: a JSON schema, a regular expression or a grammar that the new tokens must match.

The library llguidance (extra `structured`) compiles them and says after each token which ones may follow.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from lucid.core.words.safe_text import visible

STRUCTURES = ("json_schema", "regex", "grammar")
"""What an answer may have to match, by the names of the options."""
LONGEST = 1 << 18
"""Characters of a schema, expression or grammar: compiling takes some milliseconds for each thousand."""
_STACK = 256 << 20
"""Bytes of stack to compile on. llguidance descends from rule to rule, up to 13 kB each, and a stack that ends ends the
process. As many rules as LONGEST leaves room for take a quarter of this."""
_NOTHING = "NoExtensionBias"  # llguidance's word for a state after which no token may come
_DRAWN = re.compile(r"\s*(\d+ \|.*|[\^~\s|]*)")  # lines of a message that only point at a place
_STARTING = threading.Lock()  # the size of stacks is set for all threads that start
_WHITESPACE = r"[ \n]?"  # between the parts of JSON; without a bound a model may write spaces until its tokens end


class Vocabulary:
    """The tokens that constraints choose from; made once for a tokenizer, which takes up to a second.

    Args:
        tokenizer: the text of tokenizer.json, such as ``tokenizers.Tokenizer.from_file(PATH).to_str()``.
        eos_token_ids: the ids that end a text, at least one; a constraint allows them where the answer is complete.

    Raises:
        ModuleNotFoundError: if the extra `structured` is not installed.
        ValueError: without ids that end a text, and for a tokenizer that llguidance cannot read.
    """

    def __init__(self, tokenizer: str, eos_token_ids: Sequence[int]) -> None:
        if not eos_token_ids:
            raise ValueError(
                "Vocabulary: eos_token_ids is empty, expected an id that ends an answer once it is complete"
            )
        self.eos_token_ids = tuple(eos_token_ids)
        self._library = _library()
        about = json.loads(tokenizer)
        self._tokens = self._library.LLTokenizer(
            json.dumps({**about, "truncation": None, "padding": None}), eos_token=list(eos_token_ids)
        )

    def json_schema(self, schema: Mapping[str, Any]) -> Constraint:
        """Answers that are JSON of a schema, with at most one space or line end between its parts.

        Raises:
            ValueError: for a schema that cannot be met, or has what llguidance does not implement.
        """
        if not isinstance(schema, Mapping):
            raise TypeError(f"constraint: the JSON schema is a {type(schema).__name__}, expected an object")
        try:
            text = json.dumps(schema)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"constraint: the JSON schema is not JSON: {error}") from None
        _check_length("JSON schema", text)
        make = self._library.LLMatcher.grammar_from_json_schema
        return self._constraint("JSON schema", make(text, {"whitespace_pattern": _WHITESPACE}))

    def regex(self, pattern: str) -> Constraint:
        """Answers that match a regular expression, of Rust's library regex, from their beginning to their end.

        Raises:
            ValueError: for an expression that is wrong, or that nothing matches.
        """
        _check_length("regular expression", pattern)
        return self._constraint("regular expression", self._library.LLMatcher.grammar_from_regex(pattern))

    def grammar(self, lark: str) -> Constraint:
        """Answers of a grammar in llguidance's variant of Lark, whose rule `start` is the answer.

        Raises:
            ValueError: for a grammar that is wrong, or that nothing matches.
        """
        _check_length("grammar", lark)
        return self._constraint("grammar", self._library.LLMatcher.grammar_from_lark(lark))

    def _constraint(self, kind: str, grammar: str) -> Constraint:
        start = _deeply(lambda: self._library.LLMatcher(self._tokens, grammar, log_level=0))
        if start.is_error():
            raise ValueError(f"constraint: the {kind} cannot be read: {_reason(start)}")
        first = start.deep_copy()
        if not any(first.compute_bitmask()) or _reason(first) == _NOTHING:
            raise ValueError(f"constraint: nothing matches the {kind}; a rule or reference of it leads only to itself")
        if first.is_error():
            raise ValueError(f"constraint: the {kind} cannot be followed: {_reason(first)}")
        return Constraint(kind, start, self.eos_token_ids)


class Constraint:
    """A pattern for the new tokens of an answer. `Vocabulary` makes it; the option `constraint` takes it."""

    def __init__(self, kind: str, matcher: Any, eos_token_ids: tuple[int, ...]) -> None:
        self.kind, self.eos_token_ids, self._matcher = kind, eos_token_ids, matcher

    def matcher(self) -> Matcher:
        """The state of one sequence."""
        return Matcher(self.kind, self._matcher)


class Matcher:
    """Which tokens may follow the new ones of a sequence.

    Args:
        kind: of constraint, for messages.
        start: llguidance's matcher before any token.
    """

    def __init__(self, kind: str, start: Any) -> None:
        self._kind, self._start = kind, start
        self._state, self._read = start.deep_copy(), list[int]()

    def allowed(self, new: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Booleans by token; where the answer is complete, they include the tokens that end it.

        A call takes as long as what changed since the last one: usually a token more, with beams other tokens.

        Raises:
            ValueError: if the new tokens do not match, or matching takes more than llguidance's limits.
        """
        tokens = list(new)
        same = next((n for n, (a, b) in enumerate(zip(self._read, tokens, strict=False)) if a != b), len(self._read))
        same = min(same, len(tokens))
        if same < len(self._read):
            self._state.rollback(len(self._read) - same)
        self._state.consume_tokens(tokens[same:])
        self._read = tokens
        bits = b"" if self._state.is_error() else self._state.compute_bitmask()
        if self._state.is_error():
            reason = _reason(self._state)
            self._state, self._read = self._start.deep_copy(), []
            raise ValueError(f"constraint: the {self._kind} cannot be followed: {reason}")
        return np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little").astype(bool)


def _reason(matcher: Any) -> str:
    """llguidance's error message in one line, without its state and without drawings of the place."""
    lines = matcher.get_error().partition("\n<state>")[0].strip().splitlines()
    return visible(" ".join(line.strip() for line in lines if not _DRAWN.fullmatch(line))[:300])


def _deeply(compute: Callable[[], Any]) -> Any:
    """Call a function in a thread with a large stack."""
    with _STARTING:
        usual = threading.stack_size(_STACK)
        try:
            thread = ThreadPoolExecutor(1)
            result = thread.submit(compute)  # starts it
        finally:
            threading.stack_size(usual)
    with thread:
        return result.result()


def _check_length(kind: str, text: str) -> None:
    if not isinstance(text, str):
        raise TypeError(f"constraint: the {kind} is a {type(text).__name__}, expected text")
    if len(text) > LONGEST:
        raise ValueError(f"constraint: the {kind} has {len(text)} characters, at most {LONGEST} are read; shorten it")


def _library() -> Any:  # Any: llguidance is optional
    if find_spec("llguidance") is None:
        raise ModuleNotFoundError("a constraint needs llguidance: pip install 'lucid-onnx[structured]'")
    return import_module("llguidance")
