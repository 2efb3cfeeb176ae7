"""`lucid chat`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress

from lucid.chat import Conversation
from lucid.cli import answers, show
from lucid.cli.errors import FAILED, OK, short
from lucid.cli.options import Writing

with suppress(ImportError):  # lines can be edited and called back, where Python has it
    import readline  # noqa: F401


def run(
    *, source: str, system: str | None, writing: Writing, eager: bool, providers: list[str], threads: int | None
) -> int:
    """Answer message after message; returns the exit code."""
    options = answers.options(writing)
    model = answers.load(source, eager, providers, threads)
    conversation, told, code = Conversation(model, system), show.Output(error=True), OK
    for number, message in enumerate(_messages()):
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
            answers.write(answer, model)
        except ValueError as error:  # of this message: the next may fit
            told.line(f"lucid: {short(error)}", style="red")
            code = FAILED
        except KeyboardInterrupt:
            told.line("interrupted", style="dim")
        else:
            answers.tell_speed(answer)
    return code


def _messages() -> Iterator[str]:
    """What the user says: the lines of the standard input, asked for if it is a terminal."""
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    if interactive:
        show.Output(error=True).line("Ctrl-C stops an answer, Ctrl-D ends the conversation", style="dim")
    while True:
        try:
            line = input("> " if interactive else "").strip()
        except EOFError:
            if interactive:
                print()
            return
        except KeyboardInterrupt:
            if not interactive:
                raise
            print()
            continue
        if line:
            yield line
