"""`lucid generate`."""

from __future__ import annotations

import sys

from lucid.cli import answers, show
from lucid.cli.bits_options import FewBits
from lucid.cli.errors import OK
from lucid.cli.options import Writing


def run(
    *,
    source: str,
    text: str,
    writing: Writing,
    few_bits: FewBits,
    ignore: list[str],
    eager: bool,
    providers: list[str],
    threads: int | None,
    json: bool,
) -> int:
    """Continue a text and show what follows; returns the exit code."""
    options = answers.options(writing)
    model = answers.load(source, few_bits, ignore, eager, providers, threads)
    answer = model.answer(model.tokenizer.encode(sys.stdin.read() if text == "-" else text), **options)
    if not json:
        answers.write(answer, model)
        answers.tell_speed(answer)
        return OK
    for _ in answers.pieces(answer, model):
        pass
    show.print_json(
        {
            "text": answer.text,
            "ids": answer.ids,
            "prompt_tokens": answer.prompt_tokens,
            "ended_by": answer.ended_by,
            "seconds_to_first_token": answer.seconds_to_first,
            "tokens_per_second": answer.tokens_per_second,
        }
    )
    return OK
