"""`lucid chat`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any

from lucid.cli import terminal
from lucid.cli.commands.generate import prepared, print_speed, write
from lucid.cli.dialogue import Dialogue, joined
from lucid.cli.errors import FAILED, OK, short
from lucid.cli.options.commands import Chat

with suppress(ImportError):  # lines can be edited and called back, where Python has it
    import readline  # noqa: F401


def run(options: Chat) -> int:
    """Answer message after message; returns the exit code."""
    dialogue = Dialogue(*prepared(options), options.system)
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    if not interactive:
        return _converse(dialogue, Interrupts(), _lines())
    notes = terminal.Output(error=True)
    notes.line("Ctrl-C stops an answer, Ctrl-D ends the conversation, /help shows commands", style="dim")
    with Interrupts() as interrupts:
        return _converse(dialogue, interrupts, filter(None, joined(_asked(interrupts))), commands=True)


def _converse(dialogue: Dialogue, interrupts: Interrupts, messages: Iterator[str], *, commands: bool = False) -> int:
    """Answer messages and obey commands; the exit code says whether each message could be answered."""
    notes, code, answered = terminal.Output(error=True), OK, 0
    for message in messages:
        if commands and message.startswith("/"):
            try:
                if not dialogue.obey(message):
                    break
            except (ValueError, OSError) as error:
                notes.line(f"lucid: {short(error)}", style="red")
            continue
        try:
            if "seed" in dialogue.choice and answered:
                dialogue.choice["seed"] += 1  # or every answer would begin with the same draws
            answered += 1
            conversation = dialogue.conversation
            forgotten = conversation.forgotten
            answer = conversation.ask(message, **dialogue.choice)
            if conversation.forgotten > forgotten:
                notes.line(
                    f"the conversation exceeds {dialogue.model.max_positions} positions: "
                    f"{conversation.forgotten} of its messages and their answers are forgotten",
                    style="yellow",
                )
            with terminal.unseen(), interrupts.heard():
                write(answer, dialogue.model)
        except ValueError as error:  # of this message: the next may fit
            notes.line(f"lucid: {short(error)}", style="red")
            code = FAILED
        except KeyboardInterrupt:
            notes.line("interrupted", style="dim")
        else:
            print_speed(answer)
    return code


def _lines() -> Iterator[str]:
    """The lines of the standard input that are not empty."""
    yield from filter(None, map(str.strip, sys.stdin))


def _asked(interrupts: Interrupts) -> Iterator[str]:
    """A line that the user types at the prompt."""
    while True:
        try:
            with interrupts.heard():
                line = input("> ").rstrip()
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()
            continue
        yield line


class Interrupts:
    """Ctrl-C in a conversation stops what waits or computes, and never the program.

    While it is entered, Ctrl-C raises KeyboardInterrupt inside `with heard():` alone, and once.

    Else a second Ctrl-C, pressed while the first is still being handled, would end the program. Where it is not
    entered, Ctrl-C is Python's own.
    """

    def __init__(self) -> None:
        self._heard = False

    def __enter__(self) -> Interrupts:
        self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        signal.signal(signal.SIGINT, self._before)

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Inside, Ctrl-C raises KeyboardInterrupt, also on the way in and out: catch it around."""
        self._heard = True
        try:
            yield
        finally:
            self._heard = False

    def _handle(self, *_: Any) -> None:
        if self._heard:
            self._heard = False
            raise KeyboardInterrupt
