"""Untrusted JSON files of checkpoints: read within a size limit, quoted in messages, refused in one error."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from lucid.core.words.name_patterns import name_list
from lucid.core.words.safe_text import cut, encoded, listed, show
from lucid.files.atomic import NotAFileError, open_regular, write_atomically
from lucid.files.untrusted import DepthError, json_value

T = TypeVar("T")

MAX_CONFIG = 4 << 20  # bytes of a config.json: twice the largest one published, which names 21,000 classes
MAX_TOKENIZER = 256 << 20  # bytes of a tokenizer.json; the largest one published has 33 MB
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


def read_json(path: Path, most: int = MAX_CONFIG) -> dict[str, Any]:
    """The options in an untrusted JSON file of at most so many bytes.

    Raises:
        ConfigError: for a file that is not a JSON object.
        OSError: if there is no such file.
    """
    options = parse_json(path, most)
    if not isinstance(options, dict):
        raise ConfigError(f"{path}: holds a JSON {type(options).__name__}, expected an object of options")
    return options


def read_optional_json(path: Path, most: int = MAX_CONFIG) -> dict[str, Any]:
    """The same for a file that may be missing: {} then."""
    return read_json(path, most) if path.exists() else {}


def write_json(path: Path, content: object) -> None:
    """Write a JSON file as people read it, atomically.

    Raises:
        OSError: if it cannot be written.
    """
    with write_atomically(path) as file:
        file.write(encoded(json.dumps(content, indent=2, ensure_ascii=False) + "\n"))  # the escape is JSON's own


def parse_json(path: Path, most: int = MAX_CONFIG) -> Any:
    """The content of an untrusted JSON file of at most so many bytes.

    Raises:
        ConfigError: for a file that is not valid JSON, or too large for a config.
        OSError: if there is no such file.
    """
    try:
        with open_regular(path) as file:
            text = file.read(most + 1)
        if len(text) > most:
            raise ConfigError(f"{path}: more than {most >> 20} MiB, the most that is read of it; download it again")
        return json_value(text.decode("utf-8"))
    except NotAFileError as error:
        raise ConfigError(str(error)) from None
    except (DepthError, json.JSONDecodeError, UnicodeDecodeError) as error:
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
    kept = dict(options)
    for name in names:
        *objects, last = [name] if name in kept else name.split(".")
        place: Any = kept
        for inner in objects:
            if isinstance(place.get(inner), dict):
                place[inner] = dict(place[inner])
            place = place.get(inner) if isinstance(place.get(inner), dict) else {}
        if last not in place:
            near = "".join(f"; did you mean {shown(meant)}?" for meant in get_close_matches(last, place or kept, 1))
            raise ConfigError(f"{where}: has no option {show(name)} to ignore, expected one in the file{near}")
        del place[last]
    return kept


def names_of(options: Sequence[str]) -> str:
    """Untrusted names of options for a message; of many, only the first ones."""
    return listed((cut(shown(name)) for name in options), MAX_NAMED)


def shown(name: str) -> str:
    """An untrusted name of an option for a message."""
    return name if name.replace(".", "_").isidentifier() else show(name)


def read_or_list_refusals(read: Callable[[tuple[str, ...]], T], ignore: str | Sequence[str]) -> T:
    """The result of `read`; if it refuses an option, the error lists all options that it refuses.

    The refused options are found as a user would find them: by reading again without those that were refused before.

    Args:
        read: reads the checkpoint without the options that it is given.
        ignore: the options that the caller asked to leave out; a string is one name.

    Raises:
        ConfigError: for each refused option what was expected; then the `ignore` that leaves out those that have a
            default.
    """
    ignored = name_list("ignore", ignore, alone=True)
    try:
        return read(ignored)
    except OptionError as error:
        refusals, optional = _all_refusals(read, ignored, error)
    where = refusals[0].where
    problems = [one.problem if one.where == where else str(one) for one in refusals]
    raise ConfigError(f"{where}: {'; '.join(problems)}{_way_out(ignored, optional)}")


def _all_refusals(
    read: Callable[[tuple[str, ...]], object], ignored: tuple[str, ...], first: OptionError
) -> tuple[list[OptionError], list[str]]:
    """The refusals, and the names of the options without which the checkpoint is read further."""
    refusals, optional = [first], list[str]()
    while len(refusals) < MAX_NAMED:
        names = refusals[-1].names
        try:
            read((*ignored, *optional, *names))
        except OptionError as error:
            if not set(error.names).isdisjoint((*names, *optional)):
                return refusals, [name for name in optional if name not in error.names]
            refusals.append(error)
        except (KeyError, ValueError):  # the file does not have it, or its weights do not fit a model without it
            return refusals, optional
        else:
            return refusals, [*optional, *names]
        optional += names
    return refusals, optional


def _way_out(ignored: Sequence[str], optional: Sequence[str]) -> str:
    """The end of the message."""
    names = [name for name in dict.fromkeys((*ignored, *optional)) if name.replace(".", "_").isidentifier()]
    if not optional or len(names) > MAX_NAMED:
        return ""
    listed = ", ".join(f'"{name}"' for name in names) + ("," if len(names) == 1 else "")
    options = " ".join(f"--ignore-option {name}" for name in names)
    what = "it changes" if len(optional) == 1 else "they change"
    return f"; if you know that {what} nothing, load with ignore=({listed}) or {options}"


def by_torch() -> str:
    """How torch reads what Lucid does not, and what that needs where it is not installed."""
    missing = not all(map(find_spec, ("torch", "transformers")))
    install = " (pip install 'lucid-onnx[torch]' transformers)" if missing else ""
    return f"torch may read it: lucid export FOLDER --via torch, or lucid.importing.from_transformers{install}"
