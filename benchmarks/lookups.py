"""Prompt lookup: answers that repeat their prompt, with drafts from it and without."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.bench import LUCID, Bench
from benchmarks.decoders import export, smollm2, smollm2_file
from benchmarks.results import Line
from lucid.generation import Engine
from lucid.generation.chat import load_tokenizer
from lucid.generation.lookup import VERIFIED
from lucid.runtime import Session

ALONE, PROPOSED, TOKENS = "one token a step", 4, 100
_TEXT = (
    "The harbour of the town was built in 1874, when ships still brought coal from the north. The stone for its two "
    "piers came from a quarry nine kilometres inland, on a railway that was made for it. After the railway was closed "
    "in 1931, fishing boats used the inner basin, and the outer one was left to the sand. Today the town council wants "
    "to clear the outer basin for ferries. Fishermen say that the work would destroy the mussel beds behind the east "
    "pier, which feed eleven families. A decision is expected in spring."
)
_CODE = """def mean(values):
    total = 0
    for value in values:
        total += value
    return total / len(values)


def spread(values):
    middle = mean(values)
    return sum((value - middle) ** 2 for value in values) / len(values)
"""
ASKED = {
    "a summary": f"Summarize this text in three sentences.\n\n{_TEXT}",
    "changed code": f"Rename the function mean to average in this code, and show the whole code.\n\n{_CODE}",
}


def prompts() -> dict[str, list[int]]:
    """The token ids of the conversations by what they ask for."""
    file = smollm2_file()
    assert file is not None
    tokenizer = load_tokenizer(file)
    return {work: tokenizer.encode_chat([{"role": "user", "content": text}]) for work, text in ASKED.items()}


def lookup(bench: Bench) -> list[Line]:
    """SmolLM2 in float32 on one thread: a new answer each time; its prompt is read once."""
    model = smollm2()
    if model is None:
        return []
    slow = replace(bench, effort=replace(bench.effort, least=3))
    with tempfile.TemporaryDirectory() as folder:
        session = Session(export(model, Path(folder), keep=1 + VERIFIED), threads=1)
        return [_line(slow, session, work, ids) for work, ids in prompts().items()]


def _line(bench: Bench, session: Session, work: str, ids: list[int]) -> Line:
    engine = Engine(session, slots=1)

    def answer(proposed: int | None) -> Callable[[], list[int]]:
        return lambda: list(engine.submit(ids, max_new_tokens=TOKENS, prompt_lookup_num_tokens=proposed))

    plain, proposing = answer(None), engine.submit(ids, max_new_tokens=TOKENS, prompt_lookup_num_tokens=PROPOSED)
    assert list(proposing) == plain()
    kept = f"{proposing.accepted} of {proposing.drafted} proposed tokens are right"
    ways = {ALONE: plain, LUCID: answer(PROPOSED), f"{LUCID}, {VERIFIED} proposed": answer(VERIFIED)}
    return bench.line("lookup", f"{work}: {TOKENS} tokens, {kept}", ALONE, ways)
