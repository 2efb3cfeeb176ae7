"""JSON files of checkpoints, which are untrusted: read within a limit, and shown in messages."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from lucid.files.atomic import NotAFileError, open_regular

MAX_CONFIG = 4 << 20  # bytes of a config.json: twice the largest one published, which names 21,000 classes
MAX_NAMED = 20  # options that one message lists


class ConfigError(ValueError):
    """A config.json asks for something that the model does not support, or lacks a required option."""


class OptionError(ConfigError):
    """Options are refused, or missing.

    Attributes:
        where: the file, and the object in it.
        problem: what the options are, and what was expected.
        names: of the options in the file, ``text_config.hidden_act`` for one of an object.
    """

    def __init__(self, where: str, problem: str, names: Sequence[str]) -> None:
        super().__init__(f"{where}: {problem}")
        self.where, self.problem, self.names = where, problem, tuple(names)


def read_json(path: Path) -> dict[str, Any]:
    """The options in an untrusted JSON file.

    Raises:
        ConfigError: for a file that is not a JSON object.
        OSError: if there is no such file.
    """
    options = parse_json(path)
    if not isinstance(options, dict):
        raise ConfigError(f"{path}: holds a JSON {type(options).__name__}, expected an object of options")
    return options


def parse_json(path: Path) -> Any:
    """What an untrusted JSON file holds.

    Raises:
        ConfigError: for a file that is not valid JSON, or too large for a config.
        OSError: if there is no such file.
    """
    try:
        with open_regular(path) as file:
            text = file.read(MAX_CONFIG + 1)
        if len(text) > MAX_CONFIG:
            raise ConfigError(f"{path}: more than {MAX_CONFIG} bytes, expected a config of a few kilobytes")
        return json.loads(text.decode("utf-8"))
    except NotAFileError as error:
        raise ConfigError(str(error)) from None
    except RecursionError:
        raise ConfigError(f"{path}: not valid JSON (nested too deeply); download it again") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid JSON ({cut(str(error))}); download it again") from None
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{path}: holds a number of thousands of digits; download it again") from None


def without_options(options: Mapping[str, Any], names: Sequence[str], where: str) -> dict[str, Any]:
    """Options as if a file did not have some: ``hidden_size``, or ``text_config.hidden_act`` of an object.

    Raises:
        ConfigError: for one that it does not have.
    """
    found = dict(options)
    for name in names:
        *objects, last = [name] if name in found else name.split(".")
        place: Any = found
        for inner in objects:
            if isinstance(place.get(inner), dict):
                place[inner] = dict(place[inner])
            place = place.get(inner) if isinstance(place.get(inner), dict) else {}
        if last not in place:
            near = "".join(f"; did you mean {shown(meant)}?" for meant in get_close_matches(last, place or found, 1))
            raise ConfigError(f"{where}: has no option {show(name)} to ignore, expected one in the file{near}")
        del place[last]
    return found


def names_of(options: Sequence[str]) -> str:
    """Untrusted names of options in a row, of many the first."""
    more = f" and {len(options) - MAX_NAMED} more" if len(options) > MAX_NAMED else ""
    return ", ".join(cut(shown(name)) for name in options[:MAX_NAMED]) + more


def shown(name: str) -> str:
    """An untrusted name of an option for a message."""
    return name if name.replace(".", "_").isidentifier() else show(name)


_SHORT = reprlib.Repr()
_SHORT.maxlist, _SHORT.maxdict, _SHORT.maxstring, _SHORT.maxlong, _SHORT.maxother = 40, 12, 120, 40, 120


def show(value: object) -> str:
    """An untrusted value for a message: escaped, shortened, and of limited depth."""
    return cut(_SHORT.repr(value))


def cut(text: str) -> str:
    """At most 300 characters of a text."""
    return text if len(text) <= 300 else text[:300] + "..."
