"""The loop that turns a prompt into tokens, one per step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, TypeVar, Unpack

import numpy as np

from lucid.core.process import random
from lucid.generation import sampling
from lucid.generation.beams import BeamSearch
from lucid.generation.logits import (
    Logits,
    Rows,
    checked,
    forced,
    likeliest,
    processed,
    repetition_penalised,
    suppressed,
)
from lucid.generation.models import capacity_of, positions_of
from lucid.generation.options import GenerateOptions, Options
from lucid.generation.prompts import Ids, IdsLike, Prompt, read_prompt
from lucid.generation.sequences import Sequences, Stepper
from lucid.generation.stepper import stepper
from lucid.generation.stops import Decode, Stops
from lucid.nn import CausalDecoder
from lucid.runtime.session import Session

C = TypeVar("C")
OnToken: TypeAlias = Callable[[Ids], bool | None]
"""Called with the tokens of each step (N,); True ends the generation."""


class Generator:
    """Continues prompts token by token with a decoder or its export, which give the same tokens.

    Args:
        model: an `nn.CausalDecoder`, or a `lucid.runtime.Session` of one exported with a cache, growing or fixed. For
            an encoder and a decoder see `EncoderDecoderGenerator`.
        decode: token ids to text, such as ``tokenizer.decode`` of a `tokenizers.Tokenizer`; stop strings need it.
        max_positions: the most tokens of a sequence, prompt and new ones together. By default the model's config tells
            it, if it has `max_positions`; of a session, the capacity that its buffers were exported with.

    Raises:
        TypeError: for anything but a decoder or a session.
        ValueError: for a session without a cache.
    """

    def __init__(
        self,
        model: CausalDecoder | Session | Stepper[Any],
        *,
        decode: Decode | None = None,
        max_positions: int | None = None,
    ) -> None:
        self._stepper = stepper(model)
        self._decode = decode
        if max_positions is None:
            max_positions = positions_of(model)
        elif isinstance(model, Session) and (capacity := capacity_of(model)) is not None:
            max_positions = min(max_positions, capacity)
        self._max_positions = max_positions

    def generate(
        self,
        prompt_ids: IdsLike,
        attention_mask: IdsLike | None = None,
        *,
        on_token: OnToken | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Ids:
        """Continue prompts, with the options and results of transformers' `generate`.

        Args:
            prompt_ids: (N, L) integers, or (L,) for one prompt.
            attention_mask: of the same shape, 1 = keep, 0 = padding, which is on the left (`pad_left`).
            on_token: called with the tokens of each step (N,); if it returns True, generation ends.
            max_new_tokens: the most tokens to add to each prompt. The other options may be left out.
            do_sample: draw tokens by their probability; otherwise the likeliest is taken.
            temperature: divides the logits: below 1 likely tokens become likelier.
            top_k: draw from the k likeliest tokens.
            top_p: draw from the fewest likeliest tokens whose probabilities sum to at least p.
            min_p: draw from the tokens that are at least p times as likely as the likeliest.
            repetition_penalty: divides the positive logits of tokens that are in the prompt or the new tokens, and
                multiplies the negative ones. Padding does not count, unlike in transformers.
            num_beams: more than 1 searches with beams for the sequence of the highest mean log probability.
            eos_token_id: the id or ids that end a sequence.
            pad_token_id: what follows the end in a batch; by default the first of `eos_token_id`, or 0.
            forced_bos_token_id: the token that follows a prompt of one token: of translations the target language.
            forced_eos_token_id: the last of `max_new_tokens`.
            suppress_tokens: tokens that are never chosen.
            stop: the string or strings that end a sequence when the text of its new tokens contains one.
            seed: the same seed gives the same tokens; by default draws use the generator of `lucid.manual_seed`.
            logits_processors: functions of the ids so far (N, total) and the logits (N, vocab) that return new logits.
                They are called after the repetition penalty and before the options for sampling, in their order; with
                beams each beam is a row, and the logits are log probabilities.

        Returns:
            (N, new) int64: the new tokens, including those that ended a sequence, then padding.

        Raises:
            LogitsError: for logits that no token can be chosen from, such as NaN.
            TypeError, ValueError: for an invalid prompt or option, or an option that would have no effect.
        """
        chosen = Options(**options)
        prompt, stops = self._prepared(prompt_ids, attention_mask, chosen)
        if chosen.num_beams > 1:
            if on_token is not None:
                raise ValueError(
                    "generate: on_token is given, but beams have no tokens until the search ends; use num_beams=1"
                )
            return self._search(prompt, chosen, stops)
        steps: list[Ids] = []
        for tokens in self._steps(prompt, chosen, stops):
            steps.append(tokens)
            if on_token is not None and on_token(tokens):
                break
        return np.stack(steps, axis=1)

    def stream(self, prompt_ids: IdsLike, **options: Unpack[GenerateOptions]) -> Iterator[int]:
        """Iterate over the tokens that `generate` gives for one prompt, (L,) or (1, L); each is computed when needed.

        Args:
            prompt_ids: the prompt.
            options: those of `generate`, except `num_beams` and `pad_token_id`, which are for batches.

        Raises:
            ValueError, TypeError: for several prompts, and as `generate` for an invalid prompt or option, at the call.
        """
        if idle := [name for name in ("num_beams", "pad_token_id") if name in options]:
            raise TypeError(f"stream: got {' and '.join(idle)}, expected options for one sequence; use generate")
        chosen = Options(**options)
        prompt, stops = self._prepared(prompt_ids, None, chosen)
        if len(prompt.ids) > 1:
            raise ValueError(f"stream: got {len(prompt.ids)} prompts, expected one; use generate(..., on_token=...)")
        return (int(tokens[0]) for tokens in self._steps(prompt, chosen, stops))

    def _prepared(self, prompt_ids: IdsLike, attention_mask: IdsLike | None, options: Options) -> tuple[Prompt, Stops]:
        prompt = read_prompt(prompt_ids, attention_mask)
        longest = int(prompt.mask.sum(axis=1).max())
        total = longest + options.max_new_tokens
        if self._max_positions is not None and total > self._max_positions:
            raise ValueError(
                f"generate: a prompt of {longest} tokens and max_new_tokens={options.max_new_tokens} take {total} "
                f"positions, the model has {self._max_positions}; shorten one of them"
            )
        return prompt, Stops(options.eos_tokens, options.stop_strings, self._decode)

    def _steps(self, prompt: Prompt, options: Options, stops: Stops) -> Iterator[Ids]:
        """The tokens of each step (N,), until all sequences have ended."""
        sequences, draws = Sequences(self._stepper, prompt, options.max_new_tokens), _draws(options)
        running, all_running = np.ones(len(prompt.ids), bool), True
        for _ in range(options.max_new_tokens):
            given = sequences.step()
            if draws is None and not options.changes_logits:
                tokens = likeliest(given, running)
            else:
                logits = _processed(checked(given, running), sequences, running, options)
                if draws is None:
                    tokens = logits.argmax(axis=-1)
                else:
                    tokens = sampling.draw(sampling.filtered(logits, options), draws)
            if not all_running:
                tokens[~running] = options.padding
            yield tokens
            sequences.append(tokens)
            ended = stops.ended(sequences.new)
            if ended.any():
                all_running, running = False, running & ~ended
                if not running.any():
                    return

    def _search(self, prompt: Prompt, options: Options, stops: Stops) -> Ids:
        """The best sequence for each prompt (N, new)."""
        batch, num_beams = len(prompt.ids), options.num_beams
        sequences, draws = Sequences(self._stepper, prompt, options.max_new_tokens), _draws(options)
        beams = BeamSearch(batch, num_beams, options.max_new_tokens, options.padding, stops)
        logits = sequences.step()  # of the prompts: their beams are equal so far
        rows = np.repeat(np.arange(batch), num_beams)
        sequences.select(rows)
        logits = logits[rows]
        while True:
            running = beams.running
            logits = sampling.log_probabilities(checked(logits, running))
            logits = _processed(logits, sequences, running, options)
            if draws is not None:  # each beam keeps a token to go on with, even if all that end it are likelier
                logits = sampling.filtered(logits, options, keep=max(2, 1 + len(stops.tokens)))
            rows, tokens = beams.advance(logits, sequences.new, draws)
            if not beams.open:
                return beams.best()
            sequences.select(rows)
            sequences.append(tokens)
            logits = sequences.step()


def _processed(logits: Logits, sequences: Sequences[C], running: Rows, options: Options) -> Logits:
    """Logits (N, vocab) after the repetition penalty, forced and suppressed tokens, and the user's functions."""
    if options.repetition_penalty != 1:
        logits = repetition_penalised(logits, sequences.ids, sequences.mask, options.repetition_penalty)
    token = options.forced_token(sequences.ids.shape[1], sequences.new.shape[1])
    if token is not None:
        logits = forced(logits, token)
    if options.suppress_tokens:
        logits = suppressed(logits, options.suppress_tokens)
    return processed(logits, sequences.ids, running, options.logits_processors)


def _draws(options: Options) -> np.random.Generator | None:
    """The random numbers to draw tokens with; None where nothing is drawn."""
    if not options.do_sample:
        return None
    return random.generator() if options.seed is None else np.random.Generator(np.random.PCG64(options.seed))
