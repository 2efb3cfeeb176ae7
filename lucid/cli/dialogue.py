"""The commands of `lucid chat`: lines that begin with a slash, and messages of several lines."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from lucid.cli import terminal
from lucid.cli.options.commands import RepetitionOptions, SamplingOptions
from lucid.core.words.suggestions import did_you_mean
from lucid.files.atomic import write_atomically
from lucid.generation.chat import Conversation, LanguageModel
from lucid.generation.defaults import over, shown
from lucid.generation.options import Options

_FENCE = '"""'
_HELP = {
    "/help": "show these commands",
    "/clear": "forget the conversation",
    "/system [TEXT]": "set the system message and begin again; without TEXT, show it",
    "/set [NAME [VALUE]]": "set an option, such as temperature 0.7; without VALUE, the checkpoint's; show all",
    "/save FILE": "write the conversation as JSON",
    "/bye": "end, as Ctrl-D does",
    _FENCE: "begins and ends a message of several lines",
}
OPTIONS = (*(one.name for group in (SamplingOptions, RepetitionOptions) for one in fields(group)), "max_new_tokens")
"""The options of `/set`."""


@dataclass
class Dialogue:
    """A conversation on the terminal."""

    model: LanguageModel  # the model that answers
    choice: dict[str, Any]  # the options of its answers
    system: str | None = None  # the system message

    def __post_init__(self) -> None:
        self._notes = terminal.Output(error=True)
        self.conversation = Conversation(self.model, self.system)

    def obey(self, line: str) -> bool:
        """Do what a line with a command says; whether the conversation goes on.

        Raises:
            ValueError, OSError: for a command that cannot be done.
        """
        command, _, rest = line.partition(" ")
        known = {words.split()[0]: words for words in _HELP}
        if command not in known or command == _FENCE:
            raise ValueError(f"there is no command {command}{did_you_mean(command, known) or '; /help shows them'}")
        rest = rest.strip()
        if command == "/bye":
            return False
        if command == "/help":
            for words, text in _HELP.items():
                self._notes.line(f"{words:<21}{text}")
        elif command == "/system" and not rest:
            self._notes.line(self.system or "there is no system message")
        elif command in ("/clear", "/system"):
            self.system = rest or self.system
            self.conversation = Conversation(self.model, self.system)
        elif command == "/save":
            self._save(rest)
        else:
            self._set(*rest.split(maxsplit=1))
        return True

    def _set(self, name: str | None = None, value: str | None = None) -> None:
        if name is not None:
            name = name.replace("-", "_")
            if name not in OPTIONS:
                meant = did_you_mean(name, OPTIONS) or f"; there are {', '.join(OPTIONS)}"
                raise ValueError(f"there is no option {name}{meant}")
            self.choice = self._with(name, None if value is None else _number(name, value))
        options = {name: value for name, value in self.choice.items() if value not in (None, [])}
        self._notes.line(shown(options) or "the likeliest tokens")

    def _with(self, name: str, value: float | None) -> dict[str, Any]:
        """The options with another value of one, checked; with None, the checkpoint's."""
        others = {other: old for other, old in self.choice.items() if other != name}
        if value is None:
            value = self.model.tokenizer.defaults.get(name)
        choice = over(others, {name: value} | ({"do_sample": True} if name == "seed" and value is not None else {}))
        try:
            Options(**{"max_new_tokens": 1 << 30, "eos_token_id": self.model.tokenizer.eos_token_ids, **choice})
        except TypeError as error:  # a number that is not whole
            raise ValueError(str(error)) from None
        return {"seed": secrets.randbits(32), **choice} if choice.get("do_sample") else choice

    def _save(self, file: str) -> None:
        if not file:
            raise ValueError("/save needs the name of a file")
        with write_atomically(file) as written:
            written.write(json.dumps(self.conversation.messages, ensure_ascii=False, indent=2).encode())
        self._notes.line(f"written to {file}")


def _number(name: str, value: str) -> float:
    try:
        number = json.loads(value)
    except ValueError:
        number = value
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise ValueError(f"{name} is {value!r}, expected a number")
    return number


def joined(lines: Iterator[str]) -> Iterator[str]:
    '''Messages from lines: the lines between two """ are one message.'''
    for line in lines:
        if not line.startswith(_FENCE):
            yield line
            continue
        parts = [line.removeprefix(_FENCE)]
        while not parts[-1].endswith(_FENCE) and (more := next(lines, None)) is not None:
            parts.append(more)
        yield "\n".join(parts).removesuffix(_FENCE).strip("\n")
