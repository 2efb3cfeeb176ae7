"""Decoding with caches: attention of one step, whole models, long buffers, and what Python and memory cost."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import lucid
from benchmarks import peers, probe
from benchmarks.bench import LUCID, Bench
from benchmarks.decoders import CPU, Decoding, LucidDecoding, export, gpt2_small, session_of, smollm2, smollm2_file
from benchmarks.graphs import Array, unit_normal
from benchmarks.harness import Quartiles, Work
from benchmarks.memory import read_rate
from benchmarks.results import Cell, Goal, Line
from benchmarks.steps_by_hand import group_query, groups_as_queries
from lucid import ops
from lucid.export import Target, to_onnx
from lucid.models.checkpoints.gguf_tokenizer import read_tokenizer
from lucid.runtime import BoundRun, Session
from lucid.runtime.ort_values import ort_value

TRANSFORMERS, GENAI, ANY, GROWING = "transformers", "genai's builder", "Lucid, any", "Lucid, growing"
GROUP_QUERY, GROUPS = "GroupQueryAttention by hand", "Attention by hand, groups as queries"
LIMIT = "reading weights and cache"
HEADS = [(12, 12, 64), (32, 8, 128), (9, 3, 64)]
CACHES = [(512, 511), (2048, 2047), (8192, 8191), (8192, 511)]  # capacity, filled
PROMPT_LENGTH = 128
_FAR = 160e6  # bytes of caches that are used in turn, so that each is read from memory and not from a processor's cache


def steps(bench: Bench) -> list[Line]:
    """Attention of one new token over a cache."""
    lines = []
    for heads, kv_heads, width in HEADS[:1] if bench.quick else HEADS:
        for capacity, filled in CACHES[:2] if bench.quick else CACHES:
            work = f"{heads}/{kv_heads}x{width}, {filled} of {capacity}"
            lines.append(_attention_line(bench, work, heads, kv_heads, width, capacity, filled))
    return lines


def _attention_line(bench: Bench, work: str, heads: int, kv_heads: int, width: int, capacity: int, filled: int) -> Line:
    new = unit_normal((1, 1, heads * width), *[(1, 1, kv_heads * width)] * 2, seed=1 << 20)
    copies = max(1, int(_FAR / (2 * kv_heads * capacity * width * 4)))
    caches = [unit_normal(*[(1, kv_heads, capacity, width)] * 2, seed=seed) for seed in range(copies)]
    start = np.array([filled])
    last, total = (np.array([n], np.int32) for n in (filled, filled + 1))
    sessions: dict[str, tuple[Session, tuple[Array, ...]]] = {
        LUCID: (_attention(CPU, heads, kv_heads, width, bench.threads), (start,)),
        ANY: (_attention("any", heads, kv_heads, width, bench.threads), (start,)),
        GROUP_QUERY: (Session(group_query(heads, kv_heads, width), threads=bench.threads), (last, total)),
        GROUPS: (Session(groups_as_queries(heads, kv_heads, width), threads=bench.threads), (start, start + 1)),
    }
    ways: dict[str, Work] = {
        way: _in_turn([_bound(session, new, cache, sizes) for cache in caches])
        for way, (session, sizes) in sessions.items()
    }
    base = ANY
    if peers.torch is not None:
        base = "torch"
        ways[base] = _in_turn([peers.torch.static_cache(heads, new, cache, filled) for cache in caches])
    first, *others = (np.asarray(way()).reshape(-1) for way in ways.values())
    apart = [float(np.abs(first - other).max()) for other in others]
    assert max(apart) < 1e-5, f"{work}: {dict(zip(list(ways)[1:], apart, strict=True))}"
    return bench.line("steps", work, base, ways)


def _in_turn(works: list[Work]) -> Work:
    """Each call does the next of several pieces of work."""
    turn = -1

    def call() -> object:
        nonlocal turn
        turn = (turn + 1) % len(works)
        return works[turn]()

    return call


def _attention(target: Target | str, heads: int, kv_heads: int, width: int, threads: int) -> Session:
    """A step of attention over buffers."""
    buffer = lucid.spec("N", kv_heads, "C", width)
    model = to_onnx(
        lambda *given: ops.buffered_attention(*given, heads=heads, kv_heads=kv_heads),
        ("N", "L", heads * width),
        *[("N", "L", kv_heads * width)] * 2,
        buffer,
        buffer,
        lucid.spec("N", dtype=lucid.int64),
        target=target,
    )
    return Session(model, threads=threads)


def _bound(session: Session, new: tuple[Array, ...], cache: tuple[Array, ...], sizes: tuple[Array, ...]) -> Work:
    """A step over buffers that are bound once."""
    output = np.zeros_like(new[0])
    values = dict(zip(session.inputs, map(ort_value, (*new, *cache, *sizes)), strict=True))
    held = list(values.values())[3:5]
    bound = session.bind(values, dict(zip(session.outputs, [ort_value(output), *held], strict=True)))

    def call() -> Array:
        bound.run()
        return output

    return call


def decoders(bench: Bench) -> list[Line]:
    """Whole decoders: a prompt of 128 tokens, a step behind it, 32 tokens."""
    models: dict[str, Any] = {"SmolLM2-135M": smollm2(), "GPT-2 small": gpt2_small()}
    lines: list[Line] = []
    rate = read_rate(bench.threads)
    with tempfile.TemporaryDirectory() as folder:
        for name, model in models.items():
            if model is None or (bench.quick and lines):
                continue
            sessions = _sessions(model, Path(folder), bench.threads)
            peer = None if peers.transformers is None else peers.transformers.decoder(model)
            built = built_by_genai(peer, Path(folder) / name, bench.threads)
            for batch in (1,) if bench.quick else (1, 8):
                ways: dict[str, Decoding] = {way: LucidDecoding(s, batch, PROMPT_LENGTH) for way, s in sessions.items()}
                if peer is not None and peers.transformers is not None:
                    ways[TRANSFORMERS] = peers.transformers.TransformersDecoding(peer, batch, PROMPT_LENGTH)
                if built is not None and peers.genai is not None and batch == 1:  # it appends to one text only
                    ways[GENAI] = peers.genai.GenaiDecoding(built, batch, PROMPT_LENGTH)
                least = _bytes_of(model, batch * PROMPT_LENGTH) / rate
                lines += _decoder_lines(bench, f"{name}, {batch} x {PROMPT_LENGTH}", ways, least)
    return lines


def _sessions(model: Any, folder: Path, threads: int) -> dict[str, Session]:
    return {
        LUCID: session_of(model, folder, threads),
        ANY: session_of(model, folder, threads, target="any"),
        GROWING: session_of(model, folder, threads, cache="growing", target="any"),
    }


def built_by_genai(peer: Any, folder: Path, threads: int, precision: str = "fp32") -> Path | None:
    """The graph of genai's own builder, for SmolLM2: it wants a tokenizer, which the random GPT-2 does not have."""
    file = smollm2_file()
    if file is None or peers.genai is None or type(peer).__name__ != "LlamaForCausalLM":
        return None
    assert peers.transformers is not None
    peers.transformers.save(peer, read_tokenizer(file).tokenizer, folder / "checkpoint")
    built: Path = peers.genai.build(folder / "checkpoint", folder / "built", threads, precision)
    return built


def _bytes_of(model: Any, positions: int) -> int:
    """What a step reads: all weights, and the keys and values of so many positions."""
    shape = model.cache_shape
    weights: int = sum(parameter.numpy().nbytes for parameter in model.parameters())
    keys_and_values: int = 2 * shape.layers * shape.kv_heads * positions * shape.head_dim * shape.dtype.itemsize
    return weights + keys_and_values


def _decoder_lines(bench: Bench, where: str, ways: Mapping[str, Decoding], least: float) -> list[Line]:
    """`least`: the seconds in which memory is read once."""
    base = TRANSFORMERS if TRANSFORMERS in ways else ANY
    tokens = {way: decoding.generate(8).tolist() for way, decoding in ways.items()}
    assert all(each == tokens[base] for each in tokens.values()), f"{where}: {tokens}"
    single = where.split(", ")[1].startswith("1 ")

    # A call takes up to seconds, so few of them tell as much as many short ones.
    slow = replace(bench, effort=replace(bench.effort, least=3))

    def line(work: str, calls: Mapping[str, Work], goal: float | None = None, goal_of: str = LUCID) -> Line:
        return slow.line("decoders", f"{where}: {work}", base, calls, goal=goal, goal_of=goal_of)

    step = line("a step", {way: d.step for way, d in ways.items()}, 0.33 if single else None)
    floor, of_base = least * 1e3, least * 1e3 / step.cells[base].value.median
    step.cells[LIMIT] = Cell(Quartiles(floor, floor, floor), Quartiles(of_base, of_base, of_base))
    cells = {way: step.cells[way] for way in (base, ANY)}
    return [
        line("the prompt", {way: d.prefill for way, d in ways.items()}, 0.75 if single else None),
        step,
        *([Line("decoders", f"{where}: a step, any", "ms", cells, base, Goal(ANY, 0.40))] if single else []),
        *([line("32 tokens", {way: _generation(d, 32) for way, d in ways.items()})] if single else []),
    ]


def _generation(decoding: Decoding, count: int) -> Work:
    return lambda: decoding.generate(count)


def capacity(bench: Bench) -> list[Line]:
    """A step with 511 positions in a buffer of 8192, against one of 512."""
    model = smollm2()
    if model is None:
        return []
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for target in (CPU, "any"):
            session = session_of(model, Path(folder), bench.threads, target=target)
            small, large = (LucidDecoding(session, 1, 511, room) for room in (512, 8192))
            way = LUCID if target is CPU else ANY
            ways = {"capacity 512": small.step, f"{way}, capacity 8192": large.step}
            goal = 1.2 if target is CPU else None
            lines.append(
                bench.line(
                    "capacity", f"511 filled, {way}", "capacity 512", ways, goal=goal, goal_of=f"{way}, capacity 8192"
                )
            )
    return lines


def overhead(bench: Bench) -> list[Line]:
    """What a step costs above the session's run, and the memory of a generation above weights and cache."""
    model = smollm2()
    if model is None:
        return []
    with tempfile.TemporaryDirectory() as folder:
        file = export(model, Path(folder))
        session = TimedSession(file, threads=bench.threads)
        lines = [_python(session, LucidDecoding(session, 1, PROMPT_LENGTH), 20 if bench.quick else 100)]
        used = probe.run("generation", str(file), str(PROMPT_LENGTH), str(bench.threads))
    expected = _bytes_of(model, 2 * PROMPT_LENGTH)
    for what, goal in (("memory", Goal(LUCID, 1.1)), ("memory at the peak, while loading,", None)):
        if used[what]:
            ratio = used[what] / expected
            cells = {LUCID: Cell(Quartiles(ratio, ratio, ratio))}
            lines.append(Line("overhead", f"{what} over weights and cache", "", cells, goal=goal))
    return lines


def _python(session: TimedSession, decoding: LucidDecoding, count: int) -> Line:
    """Milliseconds of a step of the generator that are not onnxruntime's."""
    tokens = decoding.stream(count + 1)
    next(tokens)
    session.seconds.clear()
    whole = []
    for _ in range(count):
        start = time.perf_counter()
        next(tokens)
        whole.append(time.perf_counter() - start)
    above = Quartiles.of([(step - run) * 1e3 for step, run in zip(whole, session.seconds, strict=True)])
    return Line("overhead", "Python, a greedy step", "ms", {LUCID: Cell(above)}, goal=Goal(LUCID, 0.2))


class TimedSession(Session):
    """A session that records how long onnxruntime takes for each run over bound memory."""

    def __init__(self, model: Path, threads: int) -> None:
        super().__init__(model, threads=threads)
        self.seconds: list[float] = []

    def bind(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> BoundRun:
        bound = super().bind(inputs, outputs)
        compute = bound._compute

        def timed(*arguments: Any) -> None:
            start = time.perf_counter()
            compute(*arguments)
            self.seconds.append(time.perf_counter() - start)

        bound._compute = timed
        return bound
