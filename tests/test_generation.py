"""Generator: prompts, steps, ends and errors, on a decoder whose logits are known."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import Tensor, nn
from lucid.generation import Generator, LogitsError, pad_left
from lucid.generation.lookup import draft
from lucid.generation.options import GenerateOptions, Options
from lucid.nn import CacheShape, CausalDecoder, KeyValueCache
from lucid.runtime import Session

VOCABULARY = 6


class Chain(CausalDecoder):
    """The logits after a token are a row of a table; the cache keeps the tokens, and `steps` what came at each step."""

    def __init__(self, table: Any, width: int = 1) -> None:
        self.table = nn.Parameter(np.asarray(table, np.float32))
        self.width = width
        self.steps: list[dict[str, Any]] = []

    @property
    def cache_shape(self) -> CacheShape:
        return CacheShape(layers=1, kv_heads=1, head_dim=self.width, dtype=lucid.float32)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Sequence[KeyValueCache] | None = None,
    ) -> Tensor | tuple[Tensor, list[KeyValueCache]]:
        logits = lucid.take(self.table, input_ids, 0)
        if past_key_values is None:
            return logits
        n, length = input_ids.shape
        tokens = input_ids.reshape(n, 1, length, 1).astype(lucid.float32) + lucid.zeros(self.width)
        ((key, value),) = past_key_values
        if not input_ids.is_traced:
            inputs = {"ids": input_ids, "mask": attention_mask, "positions": position_ids, "past": key[:, 0, :, 0]}
            self.steps.append({name: tensor.tolist() for name, tensor in inputs.items() if tensor is not None})
        return logits, [KeyValueCache(lucid.concat([key, tokens], 2), lucid.concat([value, tokens], 2))]


def after(*follows: int) -> Chain:
    """A chain in which follows[i] is the likeliest token after i."""
    return Chain(np.eye(len(follows))[list(follows)])


@pytest.fixture
def cycle() -> Chain:
    """0, 1, 2, 3, 4, 5, 0, ..."""
    return after(1, 2, 3, 4, 5, 0)


@pytest.fixture
def noise() -> Chain:
    return Chain(np.random.default_rng(0).normal(size=(VOCABULARY, VOCABULARY)) * 2)


def letters(ids: list[int]) -> str:
    return "".join("abcdef"[i] for i in ids)


# Steps ----------------------------------------------------------------------------------------------------------------


def test_the_likeliest_token_follows(cycle: Chain) -> None:
    assert Generator(cycle).generate([[3, 4], [0, 1]], max_new_tokens=4).tolist() == [[5, 0, 1, 2], [2, 3, 4, 5]]


@pytest.mark.parametrize("prompt", [[3, 4], [[3, 4]], np.array([3, 4], np.int32), lucid.tensor([[3, 4]])])
def test_one_prompt_may_have_no_batch_axis(cycle: Chain, prompt: Any) -> None:
    ids = Generator(cycle).generate(prompt, max_new_tokens=3)
    assert ids.dtype == np.int64
    assert ids.tolist() == [[5, 0, 1]]


def test_the_prompt_is_one_step_and_then_each_token(cycle: Chain) -> None:
    Generator(cycle).generate([[1, 2, 3]], max_new_tokens=3)
    assert cycle.steps == [
        {"ids": [[1, 2, 3]], "mask": [[1, 1, 1]], "positions": [[0, 1, 2]], "past": [[]]},
        {"ids": [[4]], "mask": [[1] * 4], "positions": [[3]], "past": [[1, 2, 3]]},
        {"ids": [[5]], "mask": [[1] * 5], "positions": [[4]], "past": [[1, 2, 3, 4]]},
    ]


def test_padding_on_the_left_has_no_positions(cycle: Chain) -> None:
    ids, mask = pad_left([[2], [0, 1, 2]], pad_id=5)
    assert Generator(cycle).generate(ids, mask, max_new_tokens=2).tolist() == [[3, 4], [3, 4]]
    assert cycle.steps == [
        {
            "ids": [[0, 0, 2], [0, 1, 2]],
            "mask": [[0, 0, 1], [1, 1, 1]],
            "positions": [[0, 0, 0], [0, 1, 2]],
            "past": [[], []],
        },
        {"ids": [[3], [3]], "mask": [[0, 0, 1, 1], [1] * 4], "positions": [[1], [3]], "past": [[0, 0, 2], [0, 1, 2]]},
    ]


def test_the_cache_follows_its_beam(noise: Chain) -> None:
    """At every step what a beam has in its cache, and the token it takes, are its sequence."""
    Generator(noise).generate([[1], [2]], max_new_tokens=5, num_beams=3)
    for before, now in zip(noise.steps[1:], noise.steps[2:], strict=False):
        known = {(*past, *ids) for past, ids in zip(before["past"], before["ids"], strict=True)}
        assert {tuple(past) for past in now["past"]} <= known
    assert [row[0] for row in noise.steps[-1]["past"]] == [1, 1, 1, 2, 2, 2]


# Ends -----------------------------------------------------------------------------------------------------------------


def test_a_sequence_ends_with_eos_and_is_padded(cycle: Chain) -> None:
    ids = Generator(cycle).generate([[2], [0], [4]], max_new_tokens=9, eos_token_id=3, pad_token_id=1)
    assert ids.tolist() == [[3, 1, 1, 1, 1], [1, 2, 3, 1, 1], [5, 0, 1, 2, 3]]


@pytest.mark.parametrize(
    ("eos", "expected"), [(4, [[4, 4], [3, 4]]), ([4, 5], [[4, 4], [3, 4]]), ([5, 4], [[4, 5], [3, 4]])]
)
def test_padding_is_the_first_eos_by_default(cycle: Chain, eos: int | list[int], expected: list[list[int]]) -> None:
    assert Generator(cycle).generate([[3], [2]], max_new_tokens=9, eos_token_id=eos).tolist() == expected


def test_a_stop_string_may_come_in_parts(cycle: Chain) -> None:
    generator = Generator(cycle, decode=letters)
    assert generator.generate([0], max_new_tokens=9, stop="de").tolist() == [[1, 2, 3, 4]]
    assert generator.generate([[0], [3]], max_new_tokens=9, stop=["cd", "fa"]).tolist() == [[1, 2, 3], [4, 5, 0]]


def test_a_stop_string_in_the_prompt_does_not_count(cycle: Chain) -> None:
    assert Generator(cycle, decode=letters).generate([0, 1], max_new_tokens=3, stop="b").tolist() == [[2, 3, 4]]


def test_a_stop_string_that_never_comes_ends_by_max_new_tokens(cycle: Chain) -> None:
    assert Generator(cycle, decode=letters).generate([0], max_new_tokens=4, stop="z").tolist() == [[1, 2, 3, 4]]


def test_stop_strings_end_beams(cycle: Chain) -> None:
    ids = Generator(cycle, decode=letters).generate([0], max_new_tokens=9, num_beams=2, stop="cd")
    assert letters(ids[0].tolist()) == "bcd"


def test_a_callback_gets_the_tokens_of_each_step_and_may_stop(cycle: Chain) -> None:
    seen: list[list[int]] = []

    def until_4(tokens: np.ndarray) -> bool:
        seen.append(tokens.tolist())
        return 4 in tokens

    assert Generator(cycle).generate([[0], [1]], max_new_tokens=9, on_token=until_4).tolist() == [[1, 2, 3], [2, 3, 4]]
    assert seen == [[1, 2], [2, 3], [3, 4]]


# Drafts from the prompt -----------------------------------------------------------------------------------------------


def test_what_the_prompt_says_is_read_in_one_step(cycle: Chain) -> None:
    prompt = [0, 1, 2, 3, 4, 5, 0, 1]
    stream = Generator(cycle).stream(prompt, max_new_tokens=9, prompt_lookup_num_tokens=4)
    assert list(stream) == [2, 3, 4, 5, 0, 1, 2, 3, 4]
    assert [len(step["ids"][0]) for step in cycle.steps] == [8, 5, 3]  # the last draft has room for two
    assert (stream.drafted, stream.accepted) == (6, 6)


def test_a_sequence_ends_within_a_draft(cycle: Chain) -> None:
    prompt = [[0, 1, 2, 3, 4, 5, 0, 1]]
    ids = Generator(cycle).generate(prompt, max_new_tokens=9, prompt_lookup_num_tokens=4, eos_token_id=4)
    assert ids.tolist() == [[2, 3, 4]]


@pytest.mark.parametrize(
    ("ids", "count", "expected"),
    [
        ([1, 2, 3, 9, 1, 2, 3], 2, [9, 1]),
        ([7, 2, 3, 9, 8, 2, 3], 3, [9, 8, 2]),  # two tokens are the same
        ([7, 3, 9, 8, 3], 3, []),  # one says too little
        ([1, 2, 4, 5, 1, 2, 6, 7, 1, 2], 2, [6, 7]),  # of several places the latest
        ([1, 1, 1, 1, 1, 1], 2, [1, 1]),
        ([1, 2], 3, []),
        ([1, 2, 3, 1, 2, 3], 0, []),
    ],
)
def test_a_draft_is_what_followed_the_last_tokens_before(ids: list[int], count: int, expected: list[int]) -> None:
    assert draft(np.array(ids), count).tolist() == expected


# Streams --------------------------------------------------------------------------------------------------------------


def test_a_stream_gives_the_tokens_of_generate(noise: Chain) -> None:
    options: dict[str, Any] = {"max_new_tokens": 8, "do_sample": True, "seed": 5, "eos_token_id": 0}
    generator = Generator(noise)
    assert list(generator.stream([1, 2], **options)) == generator.generate([1, 2], **options)[0].tolist()


def test_a_stream_computes_a_token_when_it_is_asked_for(cycle: Chain) -> None:
    stream = Generator(cycle).stream([0], max_new_tokens=9)
    assert cycle.steps == []
    assert next(stream) == 1
    assert len(cycle.steps) == 1


def test_streams_refuse_the_options_of_batches_and_beams(cycle: Chain) -> None:
    for name in ("num_beams", "num_return_sequences", "pad_token_id"):
        with pytest.raises(TypeError, match=f"stream: got {name}, expected options for one sequence; use generate"):
            Generator(cycle).stream([0], max_new_tokens=9, **{name: 2})


def test_the_options_have_names_and_types_once_more_for_checkers() -> None:
    assert list(GenerateOptions.__annotations__) == [field.name for field in dataclasses.fields(Options)]


# Sampling -------------------------------------------------------------------------------------------------------------


def test_a_seed_gives_the_same_tokens_each_time(noise: Chain) -> None:
    generator = Generator(noise)
    first, again, other = (
        generator.generate([[0], [1]], max_new_tokens=20, do_sample=True, seed=seed).tolist() for seed in (3, 3, 4)
    )
    assert first == again != other


def test_without_a_seed_draws_are_those_of_manual_seed(noise: Chain) -> None:
    draws = []
    for _ in range(2):
        lucid.manual_seed(1)
        draws += [Generator(noise).generate([0], max_new_tokens=20, do_sample=True).tolist() for _ in range(2)]
    assert draws[0] == draws[2] != draws[1] == draws[3]


def test_a_low_temperature_or_one_token_to_draw_from_is_greedy(noise: Chain) -> None:
    greedy = Generator(noise).generate([0], max_new_tokens=9).tolist()
    for options in ({"temperature": 1e-3}, {"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}):
        ids = Generator(noise).generate([0], max_new_tokens=9, do_sample=True, seed=0, **options)  # type: ignore[arg-type]
        assert ids.tolist() == greedy


def test_a_repetition_penalty_counts_prompt_and_new_tokens() -> None:
    chain = Chain(np.tile([1.0, 1.1, 1.2, 1.3], (4, 1)))
    assert Generator(chain).generate([3], max_new_tokens=4, repetition_penalty=2.0).tolist() == [[2, 1, 0, 3]]


def test_the_first_and_the_last_token_may_be_forced(cycle: Chain) -> None:
    """The first one only where the prompt is a single token, as in transformers."""
    forced = {"max_new_tokens": 4, "forced_bos_token_id": 4, "forced_eos_token_id": 2}
    for num_beams in (1, 3):
        answers = [Generator(cycle).generate(prompt, num_beams=num_beams, **forced) for prompt in ([0], [0, 1])]
        assert [ids.tolist() for ids in answers] == [[[4, 5, 0, 2]], [[2, 3, 4, 2]]]
    assert list(Generator(cycle).stream([0], **forced)) == [4, 5, 0, 2]


def test_suppressed_tokens_are_never_chosen() -> None:
    likely = Chain([[0.0, 3, 2, 1]] * 4)
    for num_beams in (1, 2):
        ids = Generator(likely).generate([0], max_new_tokens=2, suppress_tokens=[1, 2], num_beams=num_beams)
        assert ids.tolist() == [[3, 3]]
    with pytest.raises(LogitsError, match="suppress_tokens gave -inf .* leave at least one token possible"):
        Generator(likely).generate([0], max_new_tokens=2, suppress_tokens=[0, 1, 2, 3])
    for option in ({"suppress_tokens": [4]}, {"forced_bos_token_id": 4}):
        with pytest.raises(ValueError, match=" 4, but the model has 4 tokens, from 0 on"):
            Generator(likely).generate([0], max_new_tokens=2, **option)  # type: ignore[arg-type]


def test_functions_of_logits_see_all_tokens_so_far(cycle: Chain) -> None:
    seen: list[list[int]] = []

    def never_2(ids: np.ndarray, logits: np.ndarray) -> np.ndarray:
        seen.append(ids[0].tolist())
        return np.where(np.arange(VOCABULARY) == 2, -np.inf, logits)

    assert Generator(cycle).generate([0], max_new_tokens=3, logits_processors=[never_2]).tolist() == [[1, 0, 1]]
    assert seen == [[0], [0, 1], [0, 1, 0]]


def test_several_sequences_of_a_prompt_are_rows_one_after_the_other(noise: Chain) -> None:
    """Draws with a seed: the first row has those that the prompt alone has."""
    generator, options = Generator(noise), {"max_new_tokens": 8, "do_sample": True, "seed": 4}
    rows = generator.generate([[0], [1]], num_return_sequences=3, **options).tolist()  # type: ignore[arg-type]
    assert len(rows) == 6 and len(set(map(tuple, rows))) == 6
    assert rows[0] == generator.generate([0], **options)[0].tolist()  # type: ignore[arg-type]
    beams = generator.generate([[0], [1]], max_new_tokens=4, num_beams=3, num_return_sequences=2).tolist()
    assert [beams[0], beams[2]] == generator.generate([[0], [1]], max_new_tokens=4, num_beams=3).tolist()


def test_scored_tokens_come_with_their_log_probabilities(noise: Chain) -> None:
    ids, logprobs = Generator(noise).generate_scored([[0], [1]], max_new_tokens=5, eos_token_id=2, logprobs=2)
    assert ids.tolist() == Generator(noise).generate([[0], [1]], max_new_tokens=5, eos_token_id=2).tolist()
    table = noise.table.numpy().astype(np.float64)
    table -= np.log(np.exp(table).sum(axis=1, keepdims=True))
    for first, row, scored in zip((0, 1), ids.tolist(), logprobs, strict=True):
        tokens = row[: row.index(2) + 1] if 2 in row else row
        assert [one.token for one in scored] == tokens
        for before, one in zip([first, *tokens], scored, strict=False):
            assert one.logprob == pytest.approx(table[before, one.token])
            assert [token for token, _ in one.top] == np.argsort(-table[before])[:2].tolist()
    stream = Generator(noise).stream([0], max_new_tokens=5, eos_token_id=2, logprobs=2)
    assert list(stream) and stream.logprobs == logprobs[0]


# Sessions -------------------------------------------------------------------------------------------------------------


OPTIONS: list[dict[str, Any]] = [
    {},
    {"eos_token_id": [2, 3]},
    {"repetition_penalty": 1.5},
    {"do_sample": True, "seed": 1, "temperature": 0.8, "top_k": 5, "top_p": 0.9, "min_p": 0.02},
    {"num_beams": 3, "eos_token_id": 4},
    {"num_beams": 2, "do_sample": True, "seed": 2},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_an_exported_decoder_gives_the_same_tokens(noise: Chain, options: dict[str, Any]) -> None:
    session = Session(lucid.export.to_onnx(noise, cache="growing"))
    ids, mask = pad_left([[1], [2, 3, 4]], pad_id=0)
    expected = Generator(noise).generate(ids, mask, max_new_tokens=12, **options)
    tokens = Generator(session).generate(ids, mask, max_new_tokens=12, **options)
    assert tokens.tolist() == expected.tolist()


def test_a_stream_over_a_session(noise: Chain) -> None:
    session = Session(lucid.export.to_onnx(noise, cache="growing"))
    expected = list(Generator(noise).stream([1], max_new_tokens=5))
    assert list(Generator(session).stream([1], max_new_tokens=5)) == expected


# Errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "mask", "error", "message"),
    [
        ([], None, ValueError, r"prompt_ids has shape \[0\], expected at least one token; give a start token"),
        (np.zeros((2, 0), int), None, ValueError, r"prompt_ids has shape \[2, 0\], expected at least one token"),
        ([[[1]]], None, ValueError, r"prompt_ids has shape \[1, 1, 1\], expected \(L,\) or \(N, L\)"),
        ([[1, 2], [3]], None, ValueError, "prompt_ids has rows of different lengths.*use lucid.generation.pad_left"),
        ([1.5], None, TypeError, "prompt_ids has dtype float64, expected integers"),
        ([-1], None, ValueError, "prompt_ids has the id -1, expected 0 or more"),
        ([[1, 2]], [[1]], ValueError, r"attention_mask has shape \[1, 1\], expected \[1, 2\] as prompt_ids has"),
        ([[1, 2]], [[1, 2]], ValueError, "attention_mask has values from 1 to 2, expected 1 = keep, 0 = padding"),
        ([[1, 2]], [[0.0, 1.0]], TypeError, "attention_mask has dtype float64, expected integers"),
        ([[1], [2]], [[1], [0]], ValueError, "prompt 1 is padding alone, expected at least one token"),
        ([[1, 2]], [[1, 0]], ValueError, "prompt 0 ends with padding, expected it on the left"),
    ],
)
def test_impossible_prompts(cycle: Chain, ids: Any, mask: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Generator(cycle).generate(ids, mask, max_new_tokens=1)


@pytest.mark.parametrize("prompts", [[], [[1], []]])
def test_an_empty_prompt_cannot_be_padded(prompts: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="pad_left: got .*, expected at least one token in each"):
        pad_left(prompts, 0)


@pytest.mark.parametrize(("prompts", "pad_id"), [([[1.7, 2.2]], 0), (["12", "3"], 0), ([[1, 2], [3]], 0.7)])
def test_prompts_of_what_is_no_token_are_refused(prompts: Any, pad_id: Any) -> None:
    with pytest.raises(TypeError, match="expected integers"):
        pad_left(prompts, pad_id)
    assert pad_left(np.array([[5, 6]]), 0)[0].tolist() == [[5, 6]]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"max_new_tokens": 0}, ValueError, "max_new_tokens is 0, expected 1 or more"),
        ({"max_new_tokens": 2.0}, TypeError, "max_new_tokens is 2.0, expected a whole number"),
        (
            {"do_sample": True, "temperature": 0},
            ValueError,
            "temperature is 0, expected at least 1e-6; .* do_sample=False",
        ),
        ({"do_sample": True, "temperature": float("nan")}, ValueError, "temperature is nan, expected a finite number"),
        ({"do_sample": True, "temperature": "hot"}, TypeError, "temperature is 'hot', expected a number"),
        ({"do_sample": True, "top_k": 0}, ValueError, "top_k is 0, expected 1 or more"),
        ({"do_sample": True, "top_p": 0.0}, ValueError, "top_p is 0.0, expected more than 0 and at most 1"),
        ({"do_sample": True, "top_p": 1.1}, ValueError, "top_p is 1.1, expected more than 0 and at most 1"),
        ({"do_sample": True, "min_p": -0.1}, ValueError, "min_p is -0.1, expected 0 to 1"),
        ({"temperature": 0.7, "top_k": 3}, ValueError, "temperature=0.7, top_k=3 has no effect .* add do_sample=True"),
        ({"repetition_penalty": 0.0}, ValueError, "repetition_penalty is 0.0, expected more than 0"),
        ({"num_beams": 0}, ValueError, "num_beams is 0, expected 1 or more"),
        (
            {"num_beams": 2, "on_token": print},
            ValueError,
            "on_token is given, but beams have no tokens until the search ends",
        ),
        ({"min_new_tokens": 2}, ValueError, "min_new_tokens is 2, expected at most max_new_tokens=1"),
        ({"frequency_penalty": float("inf")}, ValueError, "frequency_penalty is inf, expected a finite number"),
        ({"bad_words_ids": [[1], []]}, ValueError, "bad_words_ids has an empty word"),
        ({"bad_words_ids": [[1.5]]}, TypeError, "bad_words_ids is 1.5, expected a whole number"),
        ({"logit_bias": {-1: 2}}, ValueError, "logit_bias is -1, expected 0 or more"),
        ({"logit_bias": {1: "2"}}, TypeError, "logit_bias of token 1 is '2', expected a number"),
        ({"length_penalty": 2}, ValueError, "length_penalty=2 has no effect without beams; add num_beams"),
        ({"early_stopping": True}, ValueError, "early_stopping=True has no effect without beams; add num_beams"),
        ({"num_beams": 2, "early_stopping": "soon"}, ValueError, 'early_stopping is .soon., expected True, False or "'),
        ({"num_beams": 2, "num_return_sequences": 3}, ValueError, "num_return_sequences is 3, expected at most num_b"),
        ({"num_return_sequences": 2}, ValueError, "gives equal sequences without sampling and beams"),
        ({"typical_p": 0.5}, ValueError, "typical_p=0.5 has no effect without sampling; add do_sample=True"),
        ({"prompt_lookup_num_tokens": 0}, ValueError, "prompt_lookup_num_tokens is 0, expected 1 or more"),
        (
            {"prompt_lookup_num_tokens": 2, "num_beams": 2},
            ValueError,
            "prompt_lookup_num_tokens is for sequences without beams; use num_beams=1",
        ),
        ({"logprobs": 2}, ValueError, "logprobs is given, but only ids are returned; use generate_scored"),
        ({"eos_token_id": -1}, ValueError, "eos_token_id is -1, expected 0 or more"),
        ({"eos_token_id": [1, "2"]}, TypeError, "eos_token_id is '2', expected a whole number"),
        ({"pad_token_id": -1}, ValueError, "pad_token_id is -1, expected 0 or more"),
        ({"forced_bos_token_id": 1.5}, TypeError, "forced_bos_token_id is 1.5, expected a whole number"),
        ({"forced_eos_token_id": -1}, ValueError, "forced_eos_token_id is -1, expected 0 or more"),
        ({"suppress_tokens": [1, -2]}, ValueError, "suppress_tokens is -2, expected 0 or more"),
        ({"seed": -1}, ValueError, "seed is -1, expected 0 or more"),
        ({"max_new_tokens": None}, TypeError, "max_new_tokens is None, expected a whole number"),
        ({"do_sample": "no"}, TypeError, "do_sample is 'no', expected True or False"),
        ({"suppress_tokens": 5}, TypeError, "suppress_tokens is 5, expected a list of tokens"),
        ({"suppress_tokens": {5}}, TypeError, r"suppress_tokens is \{5\}, expected a list of tokens"),
        ({"bad_words_ids": [5]}, TypeError, r"bad_words_ids is \[5\], expected a list of lists of tokens"),
        ({"logit_bias": [(5, 1)]}, TypeError, r"logit_bias is \[\(5, 1\)\], expected a dict of numbers by token"),
        ({"constraint": "a+"}, TypeError, "constraint is 'a\\+', expected what lucid.generation.Vocabulary makes"),
        ({"logits_processors": [5]}, TypeError, r"logits_processors is \[5\], expected a list of functions"),
        ({"stop": 5}, TypeError, "stop is 5, expected a string or a list of strings"),
        ({"stop": [1]}, TypeError, "stop has a int, expected strings"),
        ({"stop": ""}, ValueError, "stop has an empty string"),
        ({"stop": "x"}, ValueError, r"stop is \['x'\], which needs the text of tokens; give Generator\(..., decode="),
    ],
)
def test_impossible_options(cycle: Chain, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Generator(cycle).generate([1], **{"max_new_tokens": 1, **options})
    assert cycle.steps == []


def test_none_is_the_default_as_in_transformers(cycle: Chain) -> None:
    absent: dict[str, Any] = dict.fromkeys(GenerateOptions.__annotations__)
    assert Options(**absent | {"max_new_tokens": 3}) == Options(max_new_tokens=3)


def test_a_stream_refuses_what_is_wrong_before_its_first_token(cycle: Chain) -> None:
    with pytest.raises(ValueError, match="stream: got 2 prompts, expected one"):
        Generator(cycle).stream([[1], [2]], max_new_tokens=1)
    with pytest.raises(ValueError, match="expected at least one token"):
        Generator(cycle).stream([], max_new_tokens=1)


def test_more_positions_than_the_model_has_are_refused(cycle: Chain) -> None:
    generator = Generator(cycle, max_positions=6)
    assert generator.generate([1, 2], max_new_tokens=4).shape == (1, 4)
    assert generator.generate([[0, 0, 1, 2]], [[0, 0, 1, 1]], max_new_tokens=4).shape == (1, 4)
    with pytest.raises(ValueError, match="a prompt of 3 tokens and max_new_tokens=4 take 7 positions, the model has 6"):
        generator.generate([1, 2, 3], max_new_tokens=4)


def test_logits_of_nan_are_an_error_not_token_0(noise: Chain) -> None:
    broken = Chain(np.full((VOCABULARY, VOCABULARY), np.nan))
    with pytest.raises(LogitsError, match="the model gave NaN for 6 of 6 tokens in row 0"):
        Generator(broken).generate([1], max_new_tokens=1)
    with pytest.raises(LogitsError, match="the model gave NaN"):
        Generator(broken).generate([1], max_new_tokens=1, num_beams=2)


def test_a_row_that_has_ended_may_have_no_token_to_choose() -> None:
    """Token 1 ends; after it the table has nothing."""
    chain = Chain([[0, 1, 0], [np.nan] * 3, [0, 0, 1]])
    assert Generator(chain).generate([[0], [2]], max_new_tokens=3, eos_token_id=1).tolist() == [[1, 1, 1], [2, 2, 2]]


def test_an_encoder_writes_no_text() -> None:
    names = {
        "input_ids": lucid.spec("N", "L", dtype=lucid.int64),
        "attention_mask": lucid.spec("N", "L", dtype=lucid.int64),
    }
    exported = lucid.export.to_onnx(lambda input_ids, attention_mask: input_ids * attention_mask, kwargs=names)
    with pytest.raises(ValueError, match="Generator: the model gives output and no logits, so it writes no text"):
        Generator(Session(exported))


def test_only_decoders_and_their_sessions_can_be_stepped_through() -> None:
    with pytest.raises(TypeError, match=r"Generator: got str, expected an nn.CausalDecoder or a lucid.runtime.Session"):
        Generator("model.onnx")  # type: ignore[arg-type]
    session = Session(lucid.export.to_onnx(nn.Linear(2, 2)))
    with pytest.raises(ValueError, match=r'the session takes x and gives output; .* to_onnx\(model, cache="growing"\)'):
        Generator(session)
