"""The engine: requests that join and leave between steps get the tokens that each gets alone."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.export import Target, to_onnx
from lucid.generation import Engine, EngineFull, Generator, LogitsError
from lucid.generation.memory import memory_of
from lucid.models.llama import Llama
from lucid.nn import CausalDecoder
from lucid.runtime import Session
from lucid.runtime.runs import RunCancelled
from tests.models import goldens

VOCABULARY, BROKEN = 40, 39  # the embedding of the last token is NaN
KINDS = ["fixed in place", "fixed", "growing", "eager", "a state"]


@cache
def model(kind: str) -> CausalDecoder | Session:
    if kind == "a state":
        return Session(to_onnx(lucid.models.load(goldens.folder("mamba2/base")), cache="growing"), threads=1)
    llama = Llama.from_pretrained(goldens.folder("llama/llama2"))
    table = llama.state_dict()["model.embed_tokens.weight"].numpy().copy()
    table[BROKEN] = np.nan
    llama.load_state_dict({**llama.state_dict(), "model.embed_tokens.weight": lucid.tensor(table)})
    if kind == "eager":
        return llama
    target = Target("cpu", onnxruntime="1.31", rows_apart=True) if kind == "fixed in place" else "any"
    with pytest.warns(UserWarning, match="weights with NaN"):
        return Session(to_onnx(llama, cache="growing" if kind == "growing" else "fixed", target=target), threads=1)


def build_engine(kind: str = "fixed in place", slots: int = 2, **options: Any) -> Engine:
    return Engine(model(kind), slots, **options)


def letters(ids: list[int]) -> str:
    return "".join(chr(ord("a") + token % 26) for token in ids)


def alone(kind: str, prompt: Any, **options: Any) -> list[int]:
    return Generator(model(kind), decode=letters).generate(prompt, **options)[0].tolist()


def prompts(*lengths: int, seed: int = 0) -> list[list[int]]:
    draw = np.random.default_rng(seed)
    return [draw.integers(3, BROKEN, length).tolist() for length in lengths]


def steps(engine: Engine, most: int = 500) -> int:
    """How many steps there are until nothing is left to do."""
    return next(count for count in range(most) if not engine.step())


# The same tokens as alone ---------------------------------------------------------------------------------------------

OPTIONS: list[dict[str, Any]] = [
    {},
    {"eos_token_id": [4, 17]},
    {"do_sample": True, "seed": 3},
    {"do_sample": True, "temperature": 0.7, "top_k": 9, "seed": 5},
    {"repetition_penalty": 1.4, "stop": ["b", "zz"]},
    {"suppress_tokens": [1, 2, 30], "forced_eos_token_id": 7},
    {"prompt_lookup_num_tokens": 3},
    {"prompt_lookup_num_tokens": 5, "do_sample": True, "temperature": 0.4, "seed": 2, "eos_token_id": 4},
]


@pytest.mark.parametrize("kind", KINDS)
def test_requests_that_join_and_leave_get_the_tokens_that_they_get_alone(kind: str) -> None:
    """Prompts of many lengths, some of which begin with earlier ones and their answers; some requests are cancelled."""
    draw = np.random.default_rng(KINDS.index(kind))
    engine = build_engine(kind, slots=3, chunk=4, decode=letters, queue=50)
    asked: list[tuple[list[int], dict[str, Any], Any]] = []
    possible = OPTIONS[:-2] if kind == "a state" else OPTIONS
    for _ in range(10 if kind == "eager" else 24):
        (prompt,) = prompts(int(draw.integers(1, 15)), seed=int(draw.integers(1000)))
        prompt = prompt * int(draw.integers(1, 3))
        if asked and draw.random() < 0.5:
            before, _, request = asked[draw.integers(len(asked))]
            prompt = [*before, *request.ids[: draw.integers(4)], *prompt][:40]
        options = {"max_new_tokens": int(draw.integers(1, 9)), **possible[draw.integers(len(possible))]}
        asked.append((prompt, options, engine.submit(prompt, **options)))
        for _ in range(draw.integers(5)):
            engine.step()
        if draw.random() < 0.2:
            asked[-1][2].cancel()
    steps(engine)
    assert {request.ended_by for *_, request in asked} >= {"length", "cancelled"}
    for prompt, options, request in asked:
        expected = alone(kind, prompt, **{**options, "prompt_lookup_num_tokens": None})
        whole = expected[: len(request.ids)] if request.ended_by == "cancelled" else expected
        assert request.ids == whole, (prompt, options, request.ended_by)
    assert any(request.kept for *_, request in asked)


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_drafts_of_one_request_are_read_beside_the_steps_of_others(kind: str) -> None:
    """Right and wrong ones: what is wrong is not kept, also for the next turn."""
    engine, (word, other) = build_engine(kind), prompts(4, 3)
    expected = alone(kind, word * 4, max_new_tokens=24)
    first = engine.submit(word * 4, max_new_tokens=24, prompt_lookup_num_tokens=4)
    second = engine.submit(other, max_new_tokens=24)
    assert list(first) == expected
    assert 0 < first.accepted < first.drafted
    assert list(second) == alone(kind, other, max_new_tokens=24)
    again = [*word * 4, *expected, 5, 6]
    third = engine.submit(again, max_new_tokens=4)
    assert list(third) == alone(kind, again, max_new_tokens=4)
    assert third.kept == len(again) - 3


def test_drafts_need_positions_that_can_be_taken_back_and_the_logits_of_all() -> None:
    llama = Llama.from_pretrained(goldens.folder("llama/llama2"))
    last = Session(to_onnx(llama, cache="fixed", kwargs={"logits_to_keep": 1}), threads=1)
    for source, reason in (
        (last, "the file gives the logits of the last token alone; export it without logits_to_keep"),
        (model("a state"), "the model has states, from which a token cannot be taken back"),
    ):
        with pytest.raises(ValueError, match=f"prompt_lookup_num_tokens is 3, but {reason}"):
            Engine(source).submit([3, 4], max_new_tokens=2, prompt_lookup_num_tokens=3)


def test_a_file_with_the_logits_of_some_tokens_verifies_drafts_of_one_less() -> None:
    llama = Llama.from_pretrained(goldens.folder("llama/llama2"))
    engine = Engine(Session(to_onnx(llama, cache="fixed", kwargs={"logits_to_keep": 4}), threads=1))
    (word,) = prompts(4)
    drafted = []
    request = engine.submit(word * 4, max_new_tokens=24, prompt_lookup_num_tokens=10)
    while request.ended_by is None:
        before = request.drafted
        engine.step()
        drafted.append(request.drafted - before)
    assert request.ids == Generator(llama).generate(word * 4, max_new_tokens=24)[0].tolist()
    assert max(drafted) == 3 and request.accepted


def test_equal_prompts_are_read_once() -> None:
    engine, (prompt,) = build_engine(slots=3, chunk=100), prompts(9)
    requests = [engine.submit(prompt, max_new_tokens=5, do_sample=True, seed=seed) for seed in range(3)]
    steps(engine)
    assert [one.kept for one in requests] == [0, 8, 8]
    options = [{"max_new_tokens": 5, "do_sample": True, "seed": seed} for seed in range(3)]
    assert [one.ids for one in requests] == [alone("fixed in place", prompt, **one) for one in options]


def test_many_threads_may_wait_for_their_tokens() -> None:
    engine, answers = build_engine(slots=3, chunk=4), {}
    asked = prompts(5, 17, 1, 9, 3, 12)

    def ask(number: int) -> None:
        answers[number] = list(engine.submit(asked[number], max_new_tokens=8))

    threads = [threading.Thread(target=ask, args=[number]) for number in range(len(asked))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answers[number] for number in range(len(asked))] == [
        alone("fixed in place", one, max_new_tokens=8) for one in asked
    ]


def test_iterating_over_one_request_goes_on_with_the_others() -> None:
    engine = build_engine()
    first, second = (engine.submit(prompt, max_new_tokens=5) for prompt in prompts(3, 4))
    assert list(first) == first.ids
    assert len(second.ids) >= 3


def test_what_ended_a_request_is_told() -> None:
    engine, (prompt,) = build_engine(decode=letters), prompts(4)
    expected = alone("fixed in place", prompt, max_new_tokens=6)
    last = expected[2]
    assert last not in expected[:2]
    for options, reason in (({}, "length"), ({"eos_token_id": last}, "eos"), ({"stop": letters([last])}, "stop")):
        request = engine.submit(prompt, max_new_tokens=6, **options)  # type: ignore[arg-type]
        assert request.ended_by is None
        assert list(request) == (expected if reason == "length" else expected[:3])
        assert request.ended_by == reason


# What is read ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_turn_of_a_conversation_reads_only_what_is_new(kind: str) -> None:
    engine, (prompt, question) = build_engine(kind), prompts(9, 3)
    answer = list(engine.submit(prompt, max_new_tokens=4))
    again = [*prompt, *answer, *question]
    request = engine.submit(again, max_new_tokens=3)
    assert list(request) == alone(kind, again, max_new_tokens=3)
    assert request.kept == len(prompt) + len(answer) - 1  # its last token was never read


@pytest.mark.parametrize("kind", KINDS)
def test_a_beginning_that_is_shorter_than_what_a_slot_holds_is_kept_too(kind: str) -> None:
    """Except for models with states: a state holds all positions."""
    engine, (system, first, second) = build_engine(kind), prompts(12, 2, 3)
    list(engine.submit(system + first, max_new_tokens=3))
    request = engine.submit(system + second, max_new_tokens=3)
    assert list(request) == alone(kind, system + second, max_new_tokens=3)
    assert request.kept == (0 if kind == "a state" else len(system))


def test_the_longest_common_beginning_is_kept_and_the_least_recently_used_slot_given_up() -> None:
    engine, (system, first, second, third, other) = build_engine(slots=3), prompts(12, 3, 4, 5, 6)

    def kept(prompt: list[int]) -> int:
        request = engine.submit(prompt, max_new_tokens=2)
        assert list(request) == alone("fixed in place", prompt, max_new_tokens=2)
        return request.kept

    assert kept(system + first) == 0
    assert kept(other) == 0
    assert kept(system + second) == 12  # in the slot of the first: more is kept than lost
    assert kept(other[:2] + third) == 2  # copied to the slot that was never used
    assert kept(system + second + third) == 16
    assert kept(third) == 0  # in the slot of `other`
    assert kept(other) == 2


def test_a_beginning_is_copied_from_a_request_that_is_still_answered() -> None:
    engine, (system, first, second) = build_engine(), prompts(10, 3, 4)
    one = engine.submit(system + first, max_new_tokens=20)
    for _ in range(3):
        engine.step()
    two = engine.submit(system + second, max_new_tokens=5)
    assert list(two) == alone("fixed in place", system + second, max_new_tokens=5)
    assert two.kept == 10
    assert list(one) == alone("fixed in place", system + first, max_new_tokens=20)


def test_a_long_prompt_stops_neither_answers_nor_short_prompts() -> None:
    engine, (running, long, short) = build_engine(slots=3, chunk=4), prompts(2, 80, 3)
    first = engine.submit(running, max_new_tokens=60)
    engine.step()
    second, begun = engine.submit(long, max_new_tokens=2), len(first.ids)
    engine.step()
    third = engine.submit(short, max_new_tokens=5)
    for _ in range(4):
        engine.step()
    assert len(first.ids) == begun + 5
    assert third.ids == alone("fixed in place", short, max_new_tokens=5)[: len(third.ids)] != []
    assert second.ids == []
    assert list(second) == alone("fixed in place", long, max_new_tokens=2)


def test_a_long_prompt_is_read_while_short_ones_keep_coming() -> None:
    engine, (long, short) = build_engine(chunk=4), prompts(40, 4)
    first = engine.submit(long, max_new_tokens=1)
    for count in range(50):
        if engine.waiting == 0:
            engine.submit([count + 3, *short[1:]], max_new_tokens=1)
        engine.step()
        if first.ids:
            break
    assert first.ids


# More than there is room for ------------------------------------------------------------------------------------------


def test_more_requests_than_slots_wait_up_to_a_limit() -> None:
    engine, asked = build_engine(slots=2, queue=1), prompts(3, 4, 5, 6)
    requests = [engine.submit(prompt, max_new_tokens=3) for prompt in asked[:3]]
    with pytest.raises(EngineFull, match="0 requests are being answered and 3 wait, no more are taken; try again"):
        engine.submit(asked[3], max_new_tokens=3)
    engine.step()
    assert (engine.active, engine.waiting) == (2, 1)
    with pytest.raises(EngineFull, match="2 requests are being answered and 1 wait"):
        engine.submit(asked[3], max_new_tokens=3)
    steps(engine)
    requests.append(engine.submit(asked[3], max_new_tokens=3))
    assert list(requests[3]) == alone("fixed in place", asked[3], max_new_tokens=3)


def test_a_cancelled_request_frees_its_slot_within_one_step() -> None:
    engine = build_engine(slots=1)
    first, second, third = (engine.submit(prompt, max_new_tokens=9) for prompt in prompts(3, 4, 5))
    engine.step()
    first.cancel()
    second.cancel()  # while it waits
    engine.step()
    assert (len(first.ids), second.ids, len(third.ids)) == (1, [], 1)
    assert list(first) == first.ids
    assert (engine.active, engine.waiting, second.ended_by) == (1, 0, "cancelled")


def test_a_request_that_is_cancelled_waits_no_longer() -> None:
    engine, asked = build_engine(slots=1), prompts(3, 3, 3)
    requests = [engine.submit(prompt, max_new_tokens=9) for prompt in asked]
    assert (engine.active, engine.waiting) == (0, 3)
    for number, request in enumerate(requests):
        request.cancel()
        assert engine.waiting == 2 - number  # though nobody computes a step


def test_steps_of_all_rows_share_one_memory_of_logits() -> None:
    """Or each choice of rows would take its own: gigabytes for many slots and a large vocabulary."""
    session = model("fixed in place")
    assert isinstance(session, Session)
    outputs: list[Any] = []
    buffers = memory_of("test", session).slots(3, 16).buffers
    for start, count in ((0, 3), (1, 2), (2, 1), (0, 1)):
        outputs.append(buffers.run(start, np.full((count, 1), 5), np.zeros(count, np.int64)))
    assert all(np.shares_memory(outputs[0], logits) for logits in outputs)


def test_buffers_grow_up_to_the_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucid.generation.memory.FIRST_CAPACITY", 4)
    engine, asked = build_engine(capacity=30), prompts(3, 14)
    requests = [engine.submit(prompt, max_new_tokens=16) for prompt in asked]
    assert [list(one) for one in requests] == [alone("fixed in place", one, max_new_tokens=16) for one in asked]


@pytest.mark.parametrize(
    ("prompt", "options", "error", "message"),
    [
        ([3] * 16, {}, ValueError, "a prompt of 16 tokens and max_new_tokens=1 take 17 positions, the model has 16"),
        ([3], {"max_new_tokens": 16}, ValueError, "1 tokens and max_new_tokens=16 take 17 positions, the model has 16"),
        ([[3], [4]], {}, ValueError, "got 2 prompts, expected one; submit each by itself"),
        ([3], {"num_beams": 2}, TypeError, "got num_beams, expected options for one sequence; use Generator"),
        ([3], {"stop": "a"}, ValueError, "stop is .* needs the text of tokens"),
        ([3], {"temperature": 2.0}, ValueError, "no effect without sampling"),
    ],
)
def test_a_request_that_cannot_be_answered_is_refused_at_once(
    prompt: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    engine = build_engine(capacity=16)
    with pytest.raises(error, match=message):
        engine.submit(prompt, **{"max_new_tokens": 1, **options})
    assert (engine.waiting, engine.step()) == (0, False)


@pytest.mark.parametrize("size", ["slots", "capacity", "chunk"])
def test_sizes_are_above_zero(size: str) -> None:
    with pytest.raises(ValueError, match=f"Engine: {size} is 0, expected 1 or more"):
        Engine(model("fixed"), **{size: 0})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=f"Engine: {size} is 2.5, expected a whole number"):
        Engine(model("fixed"), **{size: 2.5})  # type: ignore[arg-type]


def test_what_is_no_decoder_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Engine: got int, expected an nn.CausalDecoder or a lucid.runtime.Session"):
        Engine(3)  # type: ignore[arg-type]


# Faults of one request ------------------------------------------------------------------------------------------------


def raising(ids: Any, logits: Any) -> Any:
    raise KeyError("of a user's function")


def failing(ids: Any, logits: Any) -> Any:
    raise AssertionError("of a user's function")


FAULTS: list[tuple[list[int], dict[str, Any], type[Exception]]] = [
    ([5, BROKEN, 6], {}, LogitsError),  # in the prompt
    ([5, 6], {"forced_eos_token_id": BROKEN, "max_new_tokens": 2, "logits_processors": [raising]}, KeyError),
    ([5, 6], {"logits_processors": [failing]}, AssertionError),
    ([5, VOCABULARY + 1], {}, Exception),  # no token of the model
    ([5], {"suppress_tokens": [VOCABULARY + 1]}, ValueError),
]


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_a_fault_is_that_of_one_request_alone(kind: str) -> None:
    """NaN that a request left in a slot does not reach the next request."""
    engine, asked = build_engine(kind), prompts(4, 3)
    healthy = engine.submit(asked[0], max_new_tokens=25)
    for prompt, options, error in FAULTS:
        with pytest.raises(error):
            list(engine.submit(prompt, **{"max_new_tokens": 4, **options}))
        assert list(engine.submit(asked[1], max_new_tokens=2)) == alone(kind, asked[1], max_new_tokens=2)
    assert healthy.ended_by is None
    assert list(healthy) == alone(kind, asked[0], max_new_tokens=25)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_of_one_of_several_prompts_that_are_read_together_is_its_alone(kind: str) -> None:
    engine, asked = build_engine(kind, 3), prompts(3, 4)
    unknown = engine.submit([5, VOCABULARY + 1], max_new_tokens=4)
    healthy = [engine.submit(prompt, max_new_tokens=4) for prompt in asked]
    with pytest.raises((ValueError, IndexError), match="expected 0 to 39"):
        list(unknown)
    assert [list(one) for one in healthy] == [alone(kind, prompt, max_new_tokens=4) for prompt in asked]


def test_nan_behind_a_first_token_fails_that_request_only() -> None:
    def broken(ids: Any, logits: Any) -> Any:
        return np.where(np.arange(VOCABULARY) == BROKEN, 100.0, logits) if ids.shape[1] == 4 else logits

    engine, asked = build_engine("fixed"), prompts(3, 3)
    requests = [
        engine.submit(prompt, max_new_tokens=9, logits_processors=functions)
        for prompt, functions in zip(asked, ([broken], []), strict=True)
    ]
    with pytest.raises(LogitsError, match="the model gave NaN"):
        list(requests[0])
    assert (len(requests[0].ids), requests[0].ended_by) == (2, "error")
    assert list(requests[1]) == alone("fixed", asked[1], max_new_tokens=9)


def test_the_second_run_of_prompts_that_are_read_together_may_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, asked = build_engine(chunk=64), prompts(3, 5)
    requests = [engine.submit(prompt, max_new_tokens=5) for prompt in asked]
    run: Callable[..., Any] = engine._memory.buffers.run  # type: ignore[attr-defined]
    calls = itertools.count()

    def cancelled(*arguments: Any) -> Any:
        if next(calls) == 1:
            raise RunCancelled("the run was cancelled")
        return run(*arguments)

    monkeypatch.setattr(engine._memory.buffers, "run", cancelled)  # type: ignore[attr-defined]
    with pytest.raises(RunCancelled):
        steps(engine)
    assert [list(one) for one in requests] == [alone("fixed in place", one, max_new_tokens=5) for one in asked]


@pytest.mark.parametrize("number", [1, 2])
def test_a_run_that_is_cancelled_is_repeated_by_the_next_step(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run that reads the second prompt, or one that writes."""
    engine, asked = build_engine(chunk=4), prompts(3, 4)
    requests = [engine.submit(prompt, max_new_tokens=5) for prompt in asked]
    run: Callable[..., Any] = engine._memory.read
    calls = itertools.count()

    def cancelled(*arguments: Any) -> Any:
        if next(calls) == number:
            raise RunCancelled("the run was cancelled")
        return run(*arguments)

    monkeypatch.setattr(engine._memory, "read", cancelled)
    with pytest.raises(RunCancelled):
        steps(engine)
    assert [list(one) for one in requests] == [alone("fixed in place", one, max_new_tokens=5) for one in asked]
