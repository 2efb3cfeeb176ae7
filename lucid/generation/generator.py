"""Prompts as arrays in, tokens as an array out: an `Engine` with a slot for each sequence, or beams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias, Unpack

import numpy as np

from lucid.generation import beams
from lucid.generation.choice import TokenLogprob
from lucid.generation.engine import Completion, Engine
from lucid.generation.memory import Memory, memory_of
from lucid.generation.models import capacity_of, positions_of
from lucid.generation.options import GenerateOptions, Options, of_one_sequence
from lucid.generation.prompts import Ids, IdsLike, check_positions, read_prompt
from lucid.generation.stops import Decode, Stops
from lucid.nn import CausalDecoder
from lucid.runtime.session import Session

OnToken: TypeAlias = Callable[[Ids], bool | None]
"""Called with the tokens of each step (N,); True ends the generation."""


class Scored(NamedTuple):
    """New tokens with their log probabilities."""

    ids: Ids
    """(N, new), as `Generator.generate` returns them."""
    logprobs: list[list[TokenLogprob]]
    """One list for each sequence, with an item for each token up to its end."""


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
        self, model: CausalDecoder | Session | Memory, *, decode: Decode | None = None, max_positions: int | None = None
    ) -> None:
        self._memory = memory_of("Generator", model)
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
            max_new_tokens: the most tokens to add to each prompt. The other options may be left out, or None.
            min_new_tokens: as long as there are fewer, no token of `eos_token_id` is chosen.
            do_sample: draw tokens by their probability; otherwise the likeliest is taken.
            temperature: divides the logits: below 1 likely tokens become likelier.
            top_k: draw from the k likeliest tokens.
            top_p: draw from the fewest likeliest tokens whose probabilities sum to at least p.
            min_p: draw from the tokens that are at least p times as likely as the likeliest.
            typical_p: draw from the most typical tokens whose probabilities sum to at least p (Meister et al. 2022).
            repetition_penalty: divides the positive logits of tokens that are in the prompt or the new tokens, and
                multiplies the negative ones.
            frequency_penalty: is subtracted from the logits of a token for each time that it is among the new ones.
            presence_penalty: is subtracted once from the logits of tokens that are among the new ones.
            no_repeat_ngram_size: no n-gram of this size comes twice in the prompt and the new tokens; 0 for any.
            bad_words_ids: sequences of tokens that are never completed, except single tokens of `eos_token_id`.
            logit_bias: what is added to the logits of tokens, by id.
            num_beams: more than 1 searches with beams for the sequence of the highest mean log probability.
            length_penalty: the power of a sequence's length that divides its log probability in a search with beams.
            early_stopping: whether a search ends with the first `num_beams` sequences that have ended. False ends it
                once no beam is better than them at its present length, "never" once none can be at any length.
            num_return_sequences: how many sequences to return for each prompt: draws, or the best beams.
            eos_token_id: the id or ids that end a sequence.
            pad_token_id: what follows the end in a batch; by default the first of `eos_token_id`, or 0.
            forced_bos_token_id: the token that follows a prompt of one token: of translations the target language.
            forced_eos_token_id: the last of `max_new_tokens`.
            suppress_tokens: tokens that are never chosen.
            stop: the string or strings that end a sequence when the text of its new tokens contains one.
            seed: the same seed gives the same tokens, those of a prompt's first row whatever the other rows are. By
                default draws use the generator of `lucid.manual_seed`.
            prompt_lookup_num_tokens: how many tokens are proposed at most from where the last ones stood before, in the
                prompt or the new tokens, and read in one step: faster where an answer repeats its prompt. The tokens
                are the same. An exported model must give the logits of all tokens that it reads.
            logprobs: how many of the likeliest tokens `generate_scored` gives with each token.
            constraint: what the new tokens must match: a JSON schema, a regular expression or a grammar, which
                `lucid.generation.Vocabulary` makes. An answer matches, or ends with `max_new_tokens` or a stop string.
            logits_processors: functions of the ids so far (1, total) and the logits (1, vocab) of a sequence that
                return new logits. They are called before the options for sampling and after all others, in their
                order; with beams each beam is a sequence, and the logits are log probabilities.

        Returns:
            (N, new) int64: the new tokens, including those that ended a sequence, then padding; N times
            `num_return_sequences` rows, those of a prompt one after the other.

        Raises:
            LogitsError: for logits that no token can be chosen from, such as NaN.
            TypeError, ValueError: for an invalid prompt or option, or an option that would have no effect.
        """
        if options.get("logprobs") is not None:
            raise ValueError("generate: logprobs is given, but only ids are returned; use generate_scored")
        chosen = Options(**options)
        if chosen.num_beams == 1:
            return _joined(*self._begun(prompt_ids, attention_mask, chosen), on_token)
        if on_token is not None:
            raise ValueError(
                "generate: on_token is given, but beams have no tokens until the search ends; use num_beams=1"
            )
        prompts, total = self._prompts(prompt_ids, attention_mask, chosen)
        stops = Stops(chosen.eos_tokens, chosen.stop_strings, self._decode)
        return beams.search(self._memory.slots(len(prompts), total), prompts, chosen, stops)

    def generate_scored(
        self, prompt_ids: IdsLike, attention_mask: IdsLike | None = None, **options: Unpack[GenerateOptions]
    ) -> Scored:
        """The tokens of `generate` with their log probabilities, before options change them.

        Args:
            prompt_ids, attention_mask: as for `generate`.
            options: those of `generate`, without beams; `logprobs` is 0 by default.

        Raises:
            LogitsError, TypeError, ValueError: as `generate`.
        """
        options.setdefault("logprobs", 0)
        engine, requests, padding = self._begun(prompt_ids, attention_mask, Options(**options))
        ids = _joined(engine, requests, padding, None)
        return Scored(ids, [one.logprobs or [] for one in requests])

    def stream(self, prompt_ids: IdsLike, **options: Unpack[GenerateOptions]) -> Completion:
        """Iterate over the tokens that `generate` gives for one prompt, (L,) or (1, L); each is computed when needed.

        Args:
            prompt_ids: the prompt.
            options: those of `generate`, except `num_beams`, `num_return_sequences` and `pad_token_id`, which are for
                batches.

        Raises:
            ValueError, TypeError: for several prompts, and as `generate` for an invalid prompt or option, at the call.
        """
        chosen = of_one_sequence("stream", "use generate", options)
        if (count := len(read_prompt(prompt_ids).ids)) > 1:
            raise ValueError(f"stream: got {count} prompts, expected one; use generate(..., on_token=...)")
        _, (request,), _ = self._begun(prompt_ids, None, chosen)
        return request

    def _prompts(self, prompt_ids: IdsLike, attention_mask: IdsLike | None, options: Options) -> tuple[list[Ids], int]:
        """The tokens of each prompt (L,), and how many the longest has with its new ones."""
        ids, mask = read_prompt(prompt_ids, attention_mask)
        prompts = [row[kept == 1] for row, kept in zip(ids, mask, strict=True)]
        longest = max(map(len, prompts))
        check_positions(longest, options.max_new_tokens, self._max_positions)
        return prompts, longest + options.max_new_tokens

    def _begun(
        self, prompt_ids: IdsLike, attention_mask: IdsLike | None, options: Options
    ) -> tuple[Engine, list[Completion], int]:
        """An engine with a slot for each sequence, the requests, which begin with the first step, and the padding."""
        prompts, total = self._prompts(prompt_ids, attention_mask, options)
        times = options.num_return_sequences
        count = len(prompts) * times
        slots = self._memory.slots(count, total, times)
        engine = Engine(slots, count, total, decode=self._decode, chunk=count * total)
        rows = enumerate(prompt for prompt in prompts for _ in range(times))
        return engine, [engine.prepare_row(prompt, options, row) for row, prompt in rows], options.padding


def _joined(engine: Engine, requests: list[Completion], padding: int, on_token: OnToken | None) -> Ids:
    """The tokens of requests (N, new), until all have ended or the callback returns True."""
    columns: list[Ids] = []
    for tokens in _steps(engine, requests, padding):
        columns.append(tokens)
        if on_token is not None and on_token(tokens):
            break
    return np.stack(columns, axis=1)


def _steps(engine: Engine, requests: list[Completion], padding: int) -> Iterator[Ids]:
    """The tokens of each step (N,)."""
    for one in requests:
        one.begin()
    place = 0
    while True:
        while any(len(one.ids) <= place and one.ended_by is None for one in requests):
            engine.step()
        for one in requests:
            if one.error is not None:
                raise one.error
        if all(len(one.ids) <= place for one in requests):
            return
        yield np.array([one.ids[place] if place < len(one.ids) else padding for one in requests])
        place += 1
