"""A decoder and its tokenizer: text in, text out, piece by piece."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from lucid.generation.chat.tokenizer import Tokenizer
from lucid.generation.choice import TokenLogprob
from lucid.generation.defaults import over
from lucid.generation.engine import Completion, Engine
from lucid.generation.models import capacity_of
from lucid.generation.stops import stop_strings
from lucid.nn import CausalDecoder
from lucid.runtime import Session

NEW_TOKENS = 512
"""The most new tokens where none is asked for, or as many as the model has positions for."""


class LanguageModel:
    """A decoder that continues texts.

    It keeps earlier prompts: a prompt that begins with an earlier one and its answer, as in a conversation, reads only
    what is new.

    Args:
        model: a decoder, or the session of one exported with its cache.
        tokenizer: what makes ids of text, and text of ids.
        slots, queue: how many answers are written at once, and how many more wait, as for `lucid.generation.Engine`.

    Attributes:
        tokenizer: as given.
        max_positions: the most tokens of a prompt and its answer together: as many as the checkpoint says, and as the
            buffers of an exported model hold; None where neither tells.

    Raises:
        TypeError, ValueError: as `Engine`.
    """

    def __init__(
        self, model: CausalDecoder | Session, tokenizer: Tokenizer, *, slots: int = 1, queue: int = 64
    ) -> None:
        self._session = model if isinstance(model, Session) else None
        capacity = None if self._session is None else capacity_of(self._session)
        known = [count for count in (tokenizer.max_positions, capacity) if count is not None]
        self.tokenizer, self.max_positions = tokenizer, min(known, default=None)
        self._engine = Engine(model, slots, self.max_positions, queue=queue)

    @property
    def active(self) -> int:
        """How many answers are being written."""
        return self._engine.active

    @property
    def waiting(self) -> int:
        """How many answers wait for a slot."""
        return self._engine.waiting

    def answer(
        self,
        prompt_ids: Sequence[int],
        *,
        max_new_tokens: int | None = None,
        stop: str | Sequence[str] = (),
        **options: Any,
    ) -> Answer:
        """The continuation of a prompt, computed as it is iterated over.

        Args:
            prompt_ids: the ids that `tokenizer.encode` or `encode_chat` gives.
            max_new_tokens: the most tokens to write; by default as many as the checkpoint says, or 512, or as many as
                the model has positions for.
            stop: the string or strings that end the text, and are not part of it.
            options: of `Engine.submit`, such as ``temperature=0.7, seed=1``, which take the place of the
                checkpoint's (`tokenizer.defaults`). A temperature of 0 takes the likeliest token; another one, or
                `top_k`, `top_p`, `min_p` or `typical_p`, draws tokens.

        Raises:
            ValueError: for a prompt that the model has no positions for, and as `Engine.submit`.
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
        tokens = self._engine.prepare(prompt_ids, max_new_tokens=max_new_tokens, eos_token_id=ends or None, **options)
        return Answer(tokens, self.tokenizer, stop_strings(stop), constrained=options.get("constraint") is not None)

    def cancel(self) -> None:
        """End the step of a session that is running in another thread; its answer raises `RunCancelled` there."""
        if self._session is not None:
            self._session.cancel()


class Answer:
    """A text as it is written: iterate over its pieces, once. The attributes describe the pieces so far.

    Attributes:
        text: all pieces.
        prompt_tokens: how many tokens the prompt has.
        ids: the new tokens, with those that ended the text.
        ended_by: "eos" for a token that ends a text, "stop" for a stop string, "length" for as many tokens as were
            asked for; None while it goes on, or if it was cancelled.
        constrained: whether it must match a constraint; it does unless `ended_by` is "length" or "stop".
        seconds_to_first: from the first request to the first token; None before.
        seconds: from the first request to the last token so far.
    """

    def __init__(
        self, tokens: Completion, tokenizer: Tokenizer, stop: Sequence[str], *, constrained: bool = False
    ) -> None:
        self._tokens, self._tokenizer, self._stop = tokens, tokenizer, stop
        self.prompt_tokens, self.constrained = tokens.prompt_tokens, constrained
        self.text = ""
        self.ids: list[int] = []
        self.ended_by: str | None = None
        self.seconds_to_first: float | None = None
        self.seconds = 0.0

    @property
    def kept(self) -> int:
        """How many tokens of the prompt were not read again: an earlier prompt and its answer began with them."""
        return self._tokens.kept

    @property
    def logprobs(self) -> list[TokenLogprob] | None:
        """The log probabilities of the tokens so far, perhaps of some more; None without the option `logprobs`."""
        return self._tokens.logprobs

    @property
    def tokens_per_second(self) -> float | None:
        """The speed after the first token; None before the second."""
        if self.seconds_to_first is None or len(self.ids) < 2:
            return None
        return (len(self.ids) - 1) / (self.seconds - self.seconds_to_first)

    def begin(self) -> None:
        """Take part in the next steps, without being iterated over yet.

        Raises:
            EngineFull: if all slots are taken and the queue is full.
        """
        self._tokens.begin()

    def cancel(self) -> None:
        """End it, from any thread."""
        self._tokens.cancel()

    def __iter__(self) -> Iterator[str]:
        stream, start = self._tokenizer.stream(self._stop), time.perf_counter()
        try:
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
        finally:
            self._tokens.cancel()  # the slot is free, also if nobody asks for the rest
        if self._tokens.ended_by == "cancelled" and self.ended_by is None:
            return
        yield from self._piece(stream.end())
        if self.ended_by is None:
            self.ended_by = "stop" if stream.stopped else "length"

    def _piece(self, piece: str) -> Iterator[str]:
        if piece:
            self.text += piece
            yield piece
