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
from lucid.cli.errors import FAILED, OK, short
from lucid.cli.options.commands import Chat
from lucid.generation.chat import Conversation, LanguageModel

with suppress(ImportError):  # lines can be edited and called back, where Python has it
    import readline  # noqa: F401


def run(options: Chat) -> int:
    """Answer message after message; returns the exit code."""
    model, choice = prepared(options)
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    if not interactive:
        return _converse(model, options.system, choice, Interrupts(), _lines())
    terminal.Output(error=True).line("Ctrl-C stops an answer, Ctrl-D ends the conversation", style="dim")
    with Interrupts() as interrupts:
        return _converse(model, options.system, choice, interrupts, _asked(interrupts))


def _converse(
    model: LanguageModel, system: str | None, choice: dict[str, Any], interrupts: Interrupts, messages: Iterator[str]
) -> int:
    conversation, notes, code = Conversation(model, system), terminal.Output(error=True), OK
    for number, message in enumerate(messages):
        if "seed" in choice and number:
            choice["seed"] += 1  # or every answer would begin with the same draws
        forgotten = conversation.forgotten
        try:
            answer = conversation.ask(message, **choice)
            if conversation.forgotten > forgotten:
                notes.line(
                    f"the conversation exceeds {model.max_positions} positions: "
                    f"{conversation.forgotten} of its messages and their answers are forgotten",
                    style="yellow",
                )
            with interrupts.heard():
                write(answer, model)
        except ValueError as error:  # of this message: the next may fit
            notes.line(f"lucid: {short(error)}", style="red")
            code = FAILED
        except KeyboardInterrupt:
            notes.line("interrupted", style="dim")
        else:
            print_speed(answer)
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
