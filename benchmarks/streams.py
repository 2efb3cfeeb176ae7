"""Many requests at once in the engine: tokens a second, the wait behind a long prompt, the turn of a conversation."""

from __future__ import annotations

import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import lucid
from benchmarks import peers
from benchmarks.bench import LUCID, Bench
from benchmarks.decoders import Decoding, export, prompts, smollm2, smollm2_file
from benchmarks.decoding import PROMPT_LENGTH, TRANSFORMERS, TimedSession
from benchmarks.few_bits import LLAMA_CPP
from benchmarks.harness import Quartiles
from benchmarks.results import Cell, Goal, Line
from lucid.generation import Engine
from lucid.models.llama import Llama

ALONE, AGAIN = "one after the other", "read from the start"
AT_ONCE, LONG, SHORT, TURNS, NEW = 8, 2000, 20, 1500, 20
MOST = 1000  # the ids of tokens


def engine(bench: Bench) -> list[Line]:
    """SmolLM2 in float32 and 4 bits."""
    model = smollm2()
    if model is None:
        return []
    lines = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, decoder, goal in (("float32", model, 1 / 3), ("4 bits", lucid.quantize(model, bits=4), 0.5)):
            folder = Path(scratch) / name
            folder.mkdir()
            session = TimedSession(export(decoder, folder), threads=bench.threads)
            lines += _lines(bench, name, session, goal)
        if peers.transformers is not None:
            batch: Decoding = peers.transformers.TransformersDecoding(
                peers.transformers.decoder(model), AT_ONCE, PROMPT_LENGTH
            )
            lines.append(_beside(bench, "float32", model, Path(scratch), TRANSFORMERS, batch))
        file = smollm2_file()
        if file is not None and peers.llama_cpp is not None:
            batch = peers.llama_cpp.LlamaCppDecoding(file, AT_ONCE, PROMPT_LENGTH, bench.threads)
            lines.append(_beside(bench, "Q4_1", Llama.from_pretrained(file), Path(scratch), LLAMA_CPP, batch))
    return lines


def _beside(bench: Bench, name: str, model: Llama, scratch: Path, base: str, batch: Decoding) -> Line:
    """A step of several answers in the engine, and that of another program, which reads them as a batch."""
    folder = scratch / f"beside {name}"
    folder.mkdir()
    many = Streams(TimedSession(export(model, folder), threads=bench.threads), AT_ONCE)
    slow = replace(bench, effort=replace(bench.effort, least=3))
    work = f"{name}: a token of each of {AT_ONCE} answers, beside {base.split(',')[0]}"
    return slow.line("engine", work, base, {base: batch.step, LUCID: many.step})


def _lines(bench: Bench, name: str, session: TimedSession, goal: float) -> list[Line]:
    slow = replace(bench, effort=replace(bench.effort, least=3))
    many, one = Streams(session, AT_ONCE), Streams(session, 1)

    def in_turn() -> None:
        for _ in range(AT_ONCE):
            one.step()

    ways = {ALONE: in_turn, LUCID: many.step}
    together = slow.line("engine", f"{name}: a token of each of {AT_ONCE} answers", ALONE, ways, goal=goal)
    behind = Quartiles.of([_behind(session) for _ in range(3)])
    wait = f"{name}: first token of {SHORT} behind {LONG:,} tokens, more than alone"
    python = f"{name}: Python above the run, a step of one answer"
    return [
        together,
        Line("engine", wait, "ms", {LUCID: Cell(behind)}, goal=Goal(LUCID, 500)),
        Line("engine", python, "ms", {LUCID: Cell(_python(session, one))}, goal=Goal(LUCID, 0.15)),
        _turn(slow, name, session),
    ]


class Streams:
    """So many answers that are written without end, each after a prompt."""

    def __init__(self, session: TimedSession, count: int) -> None:
        self._engine = Engine(session, slots=count)
        vocabulary = session.outputs["logits"][1][-1]
        assert isinstance(vocabulary, int)
        self._prompts = prompts(vocabulary, count, PROMPT_LENGTH)
        self._requests = [self._begun(prompt) for prompt in self._prompts]

    def step(self) -> None:
        """A token of each; the prompts of answers that have ended are still in their slots."""
        if any(one.ended_by is not None for one in self._requests):
            self._requests = [self._begun(prompt) for prompt in self._prompts]
        while not all(one.ids for one in self._requests):
            self._engine.step()
        self._engine.step()

    def _begun(self, prompt: np.ndarray) -> lucid.generation.Completion:
        return self._engine.submit(prompt, max_new_tokens=PROMPT_LENGTH)


def _python(session: TimedSession, one: Streams) -> Quartiles:
    times = []
    for _ in range(100):
        session.seconds.clear()
        start = time.perf_counter()
        one.step()
        whole = time.perf_counter() - start
        if len(session.seconds) == 1:
            times.append((whole - session.seconds[0]) * 1e3)
    return Quartiles.of(times)


def _behind(session: TimedSession) -> float:
    """Milliseconds that a short prompt waits more if a long one is being read."""
    engine, draw = Engine(session, slots=2), np.random.default_rng(0)

    def first(length: int) -> float:
        start = time.perf_counter()
        next(engine.submit(draw.integers(5, MOST, length), max_new_tokens=1))
        return time.perf_counter() - start

    first(SHORT)
    alone = first(SHORT)
    long = engine.submit(draw.integers(5, MOST, LONG), max_new_tokens=1)
    reading = threading.Thread(target=next, args=(long,))
    reading.start()
    while not engine.active and long.ended_by is None:
        time.sleep(1e-3)
    behind = first(SHORT)
    reading.join()
    return (behind - alone) * 1e3


def _turn(bench: Bench, name: str, session: TimedSession) -> Line:
    """The first token of the next turn of a conversation."""
    draw = np.random.default_rng(0)
    conversation = draw.integers(5, MOST, TURNS).tolist()
    kept, again = (Engine(session, slots=1) for _ in range(2))
    next(kept.submit(conversation, max_new_tokens=1))

    def next_turn() -> int:
        request = kept.submit([*conversation, *draw.integers(5, MOST, NEW)], max_new_tokens=1)
        next(request)
        assert request.prompt_tokens - request.kept == NEW
        return request.kept

    def anew() -> int:
        begin = [int(draw.integers(5, MOST))]
        request = again.submit([*begin, *conversation[1:], *draw.integers(5, MOST, NEW)], max_new_tokens=1)
        return next(request)

    work = f"{name}: first token after {NEW} new of {TURNS + NEW:,} tokens"
    return bench.line("engine", work, AGAIN, {AGAIN: anew, LUCID: next_turn})
