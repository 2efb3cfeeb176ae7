"""A decoder and its tokenizer: text in, text out, piece by piece."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lucid.generation import Generator
from lucid.generation.chat.tokenizer import Tokenizer
from lucid.generation.defaults import over
from lucid.generation.models import capacity_of
from lucid.nn import CausalDecoder
from lucid.runtime import Session

NEW_TOKENS = 512
"""The most new tokens where none is asked for, or as many as the model has positions for."""


class LanguageModel:
    """A decoder that continues texts.

    Args:
        model: a decoder, or the session of one exported with its cache.
        tokenizer: what makes ids of text, and text of ids.

    Attributes:
        tokenizer: as given.
        max_positions: the most tokens of a prompt and its answer together: as many as the checkpoint says, and as the
            buffers of an exported model hold; None where neither tells.

    Raises:
        TypeError, ValueError: as `Generator`.
    """

    def __init__(self, model: CausalDecoder | Session, tokenizer: Tokenizer) -> None:
        self._session = model if isinstance(model, Session) else None
        capacity = None if self._session is None else capacity_of(self._session)
        known = [count for count in (tokenizer.max_positions, capacity) if count is not None]
        self.tokenizer, self.max_positions = tokenizer, min(known, default=None)
        self._generator = Generator(model, max_positions=self.max_positions)

    def answer(
        self,
        prompt_ids: Sequence[int],
        *,
        max_new_tokens: int | None = None,
        stop: Sequence[str] = (),
        **options: Any,
    ) -> Answer:
        """What follows a prompt; it is computed as it is iterated over.

        Args:
            prompt_ids: the ids that `tokenizer.encode` or `encode_chat` gives.
            max_new_tokens: the most tokens to write; by default as many as the checkpoint says, or 512, or as many as
                the model has positions for.
            stop: strings that end the text, and are not part of it.
            options: of `Generator.stream`, such as ``temperature=0.7, seed=1``, which take the place of the
                checkpoint's (`tokenizer.defaults`). A temperature of 0 takes the likeliest token; another one, or
                `top_k`, `top_p`, `min_p` or `typical_p`, draws tokens.

        Raises:
            ValueError: for a prompt that the model has no positions for, and as `Generator.stream`.
        """
        prompt, positions = len(prompt_ids), self.max_positions
        if positions is not None and prompt >= positions:
            raise ValueError(
                f"{self.tokenizer.where}: the prompt has {prompt} tokens and the model {positions} positions, which "
                "leaves none for an answer; shorten the prompt"
            )
        options = over(self.tokenizer.defaults, options)
        usual = options.pop("max_new_tokens", NEW_TOKENS)
        if max_new_tokens is None:
            max_new_tokens = usual if positions is None else min(usual, positions - prompt)
        ends = self.tokenizer.eos_token_ids
        tokens = self._generator.stream(prompt_ids, max_new_tokens=max_new_tokens, eos_token_id=ends or None, **options)
        return Answer(tokens, prompt, self.tokenizer, stop, constrained=options.get("constraint") is not None)

    def cancel(self) -> None:
        """End the step of a session that is running in another thread; its answer raises `RunCancelled` there."""
        if self._session is not None:
            self._session.cancel()


def _always() -> bool:
    return True


class Answer:
    """A text as it is written: iterate over its pieces, once. What follows is of the pieces so far.

    Attributes:
        text: all of them.
        prompt_tokens: how many tokens the prompt has.
        ids: the new tokens, with those that ended the text.
        ended_by: "eos" for a token that ends a text, "stop" for a stop string, "length" for as many tokens as were
            asked for; None while it goes on, or if nobody wanted more of it.
        constrained: whether it must match a constraint; it does unless `ended_by` is "length" or "stop".
        seconds_to_first: from the first request to the first token; None before.
        seconds: from the first request to the last token so far.
        wanted: asked after each token whether more are wanted, also while tokens give no text; by default always.
    """

    def __init__(
        self,
        tokens: Iterator[int],
        prompt_tokens: int,
        tokenizer: Tokenizer,
        stop: Sequence[str],
        *,
        constrained: bool = False,
    ) -> None:
        self._tokens, self._tokenizer, self._stop = tokens, tokenizer, stop
        self.prompt_tokens, self.constrained = prompt_tokens, constrained
        self.text = ""
        self.ids: list[int] = []
        self.ended_by: str | None = None
        self.wanted: Callable[[], bool] = _always
        self.seconds_to_first: float | None = None
        self.seconds = 0.0

    @property
    def tokens_per_second(self) -> float | None:
        """The speed after the first token; None before the second."""
        if self.seconds_to_first is None or len(self.ids) < 2:
            return None
        return (len(self.ids) - 1) / (self.seconds - self.seconds_to_first)

    def __iter__(self) -> Iterator[str]:
        stream, start = self._tokenizer.stream(self._stop), time.perf_counter()
        for token in self._tokens:
            self.seconds = time.perf_counter() - start
            if self.seconds_to_first is None:
                self.seconds_to_first = self.seconds
            self.ids.append(token)
            if token in self._tokenizer.eos_token_ids:
                self.ended_by = "eos"
                break
            yield from self._piece(stream.add(token))
            if stream.stopped:
                self.ended_by = "stop"
                return
            if not self.wanted():
                return
        yield from self._piece(stream.end())
        if self.ended_by is None:
            self.ended_by = "stop" if stream.stopped else "length"

    def _piece(self, piece: str) -> Iterator[str]:
        if piece:
            self.text += piece
            yield piece
