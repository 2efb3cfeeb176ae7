"""The loop that turns a prompt into tokens, one per step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias, Unpack

import numpy as np

from lucid.generation import sampling
from lucid.generation.beams import BeamSearch
from lucid.generation.choice import Chooser, TokenLogprob
from lucid.generation.logits import checked
from lucid.generation.models import capacity_of, positions_of
from lucid.generation.options import GenerateOptions, Options
from lucid.generation.prompts import Ids, IdsLike, Prompt, check_positions, read_prompt
from lucid.generation.sequences import Sequences, StepLogits, Stepper
from lucid.generation.stepper import stepper
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
    """Of each sequence, for its tokens up to its end."""


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
        prompt, stops = self._prepared(prompt_ids, attention_mask, chosen)
        if chosen.num_beams > 1:
            if on_token is not None:
                raise ValueError(
                    "generate: on_token is given, but beams have no tokens until the search ends; use num_beams=1"
                )
            return self._search(prompt, chosen, stops)
        return _joined(self._steps(prompt, chosen, stops, _choosers(prompt, chosen)), on_token)

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
        chosen = Options(**options)
        prompt, stops = self._prepared(prompt_ids, attention_mask, chosen)
        choosers = _choosers(prompt, chosen)
        ids = _joined(self._steps(prompt, chosen, stops, choosers), None)
        return Scored(ids, [chooser.logprobs or [] for chooser in choosers])

    def stream(self, prompt_ids: IdsLike, **options: Unpack[GenerateOptions]) -> TokenStream:
        """Iterate over the tokens that `generate` gives for one prompt, (L,) or (1, L); each is computed when needed.

        Args:
            prompt_ids: the prompt.
            options: those of `generate`, except `num_beams`, `num_return_sequences` and `pad_token_id`, which are for
                batches.

        Raises:
            ValueError, TypeError: for several prompts, and as `generate` for an invalid prompt or option, at the call.
        """
        if idle := [name for name in ("num_beams", "num_return_sequences", "pad_token_id") if name in options]:
            raise TypeError(f"stream: got {' and '.join(idle)}, expected options for one sequence; use generate")
        chosen = Options(**options)
        prompt, stops = self._prepared(prompt_ids, None, chosen)
        if len(prompt.ids) > 1:
            raise ValueError(f"stream: got {len(prompt.ids)} prompts, expected one; use generate(..., on_token=...)")
        choosers = _choosers(prompt, chosen)
        return TokenStream((int(tokens[0]) for tokens in self._steps(prompt, chosen, stops, choosers)), choosers[0])

    def _prepared(self, prompt_ids: IdsLike, attention_mask: IdsLike | None, options: Options) -> tuple[Prompt, Stops]:
        prompt = read_prompt(prompt_ids, attention_mask)
        longest = int(prompt.mask.sum(axis=1).max())
        check_positions(longest, options.max_new_tokens, self._max_positions)
        return prompt, Stops(options.eos_tokens, options.stop_strings, self._decode)

    def _begun(self, prompt: Prompt, options: Options, times: int) -> tuple[Sequences[Any], StepLogits]:
        """Each prompt so many times, and the logits after it."""
        sequences = Sequences(self._stepper, prompt, options.max_new_tokens)
        logits = sequences.step()
        if times > 1:
            rows = np.repeat(np.arange(len(prompt.ids)), times)
            sequences.select(rows)
            logits = logits[rows]
        return sequences, logits

    def _steps(self, prompt: Prompt, options: Options, stops: Stops, choosers: Sequence[Chooser]) -> Iterator[Ids]:
        """The tokens of each step (N,), until all sequences have ended."""
        sequences, logits = self._begun(prompt, options, options.num_return_sequences)
        running = np.ones(len(choosers), bool)
        for left in range(options.max_new_tokens, 0, -1):
            tokens = np.full(len(choosers), options.padding, np.int64)
            for row in running.nonzero()[0].tolist():
                tokens[row] = choosers[row].choose(sequences.row(row), logits[row])
            yield tokens
            sequences.append(tokens)
            running &= ~stops.ended(sequences.new)
            if left == 1 or not running.any():
                return
            logits = sequences.step()

    def _search(self, prompt: Prompt, options: Options, stops: Stops) -> Ids:
        """The best sequences for each prompt (N, new)."""
        batch, num_beams = len(prompt.ids), options.num_beams
        beams = BeamSearch(
            batch,
            num_beams,
            options.max_new_tokens,
            options.padding,
            stops,
            options.length_penalty,
            options.early_stopping,
        )
        sequences, logits = self._begun(prompt, options, num_beams)  # the beams of a prompt are equal so far
        choosers, random = _choosers(prompt, options, num_beams), options.random()
        # Each beam keeps a token to go on with, even if all that end it are likelier.
        keep = max(2, 1 + len(stops.tokens))
        while True:
            scores = np.zeros(logits.shape)
            for row in beams.running.nonzero()[0].tolist():
                scores[row] = sampling.log_probabilities(checked(logits[row], row))
                scores[row] = choosers[row].process(sequences.row(row), scores[row])
                if random is not None:
                    scores[row] = sampling.filtered(scores[row], options, keep)
            rows, tokens = beams.advance(scores, sequences.new, random)
            if not beams.open:
                return beams.best(options.num_return_sequences)
            sequences.select(rows)
            sequences.append(tokens)
            logits = sequences.step()


class TokenStream(Iterator[int]):
    """The tokens of one sequence, each computed when it is asked for."""

    def __init__(self, tokens: Iterator[int], chooser: Chooser) -> None:
        self._tokens, self._chooser = tokens, chooser

    def __next__(self) -> int:
        return next(self._tokens)

    @property
    def logprobs(self) -> list[TokenLogprob] | None:
        """Of the tokens so far; None without the option `logprobs`."""
        return self._chooser.logprobs


def _choosers(prompt: Prompt, options: Options, times: int | None = None) -> list[Chooser]:
    """One for each row: a prompt has `num_return_sequences` of them, or `times`."""
    lengths = np.repeat(prompt.mask.sum(axis=1), times or options.num_return_sequences).tolist()
    return [Chooser(options, length, row) for row, length in enumerate(lengths)]


def _joined(steps: Iterator[Ids], on_token: OnToken | None) -> Ids:
    """The tokens of steps (N, new), until the callback returns True."""
    found: list[Ids] = []
    for tokens in steps:
        found.append(tokens)
        if on_token is not None and on_token(tokens):
            break
    return np.stack(found, axis=1)
