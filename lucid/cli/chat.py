"""`lucid chat`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from lucid.cli import answers, show
from lucid.cli.bits_options import FewBits
from lucid.cli.errors import FAILED, OK, short
from lucid.cli.interrupts import Interrupts
from lucid.cli.options import Writing
from lucid.generation.chat import Conversation, LanguageModel

with suppress(ImportError):  # lines can be edited and called back, where Python has it
    import readline  # noqa: F401


def run(
    *,
    source: str,
    system: str | None,
    writing: Writing,
    few_bits: FewBits,
    ignore: list[str],
    eager: bool,
    providers: list[str],
    threads: int | None,
) -> int:
    """Answer message after message; returns the exit code."""
    options = answers.options(writing)
    model = answers.load(source, few_bits, ignore, eager, providers, threads)
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    if not interactive:
        return _converse(model, system, options, Interrupts(), _lines())
    show.Output(error=True).line("Ctrl-C stops an answer, Ctrl-D ends the conversation", style="dim")
    with Interrupts() as interrupts:
        return _converse(model, system, options, interrupts, _asked(interrupts))


def _converse(
    model: LanguageModel, system: str | None, options: dict[str, Any], interrupts: Interrupts, messages: Iterator[str]
) -> int:
    conversation, told, code = Conversation(model, system), show.Output(error=True), OK
    for number, message in enumerate(messages):
        if "seed" in options and number:
            options["seed"] += 1  # or every answer would begin with the same draws
        forgotten = conversation.forgotten
        try:
            answer = conversation.ask(message, **options)
            if conversation.forgotten > forgotten:
                told.line(
                    f"the conversation has no room in {model.max_positions} positions: "
                    f"{conversation.forgotten} of its messages and their answers are forgotten",
                    style="yellow",
                )
            with interrupts.heard():
                answers.write(answer, model)
        except ValueError as error:  # of this message: the next may fit
            told.line(f"lucid: {short(error)}", style="red")
            code = FAILED
        except KeyboardInterrupt:
            told.line("interrupted", style="dim")
        else:
            answers.tell_speed(answer)
    return code


def _lines() -> Iterator[str]:
    """The lines of the standard input that say something."""
    yield from filter(None, map(str.strip, sys.stdin))


def _asked(interrupts: Interrupts) -> Iterator[str]:
    """What the user says when asked on the terminal."""
    while True:
        try:
            with interrupts.heard():
                line = input("> ").strip()
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()
            continue
        if line:
            yield line
