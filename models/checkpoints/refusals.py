"""Checkpoints that are refused: all refused options in one error with the way out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TypeVar

from lucid.models.checkpoints.config_file import MAX_NAMED, ConfigError, OptionError

T = TypeVar("T")


def read_or_list_refusals(read: Callable[[tuple[str, ...]], T], ignore: str | Sequence[str]) -> T:
    """What `read` makes of a checkpoint; if it refuses an option, all that it refuses are in the error.

    The refused options are found as a user would find them: by reading again without those that were refused before.

    Args:
        read: reads the checkpoint without the options that it is given.
        ignore: the options that the caller asked to leave out; a string is one name.

    Raises:
        ConfigError: for each refused option what was expected; then the `ignore` that leaves out those that have a
            default.
    """
    asked = (ignore,) if isinstance(ignore, str) else tuple(ignore)
    try:
        return read(asked)
    except OptionError as error:
        refusals, optional = _all_refusals(read, asked, error)
    where = refusals[0].where
    problems = [one.problem if one.where == where else str(one) for one in refusals]
    raise ConfigError(f"{where}: {'; '.join(problems)}{_way_out(asked, optional)}")


def _all_refusals(
    read: Callable[[tuple[str, ...]], object], asked: tuple[str, ...], first: OptionError
) -> tuple[list[OptionError], list[str]]:
    """The refusals, and the names of the options without which the checkpoint is read further."""
    refusals, optional = [first], list[str]()
    while len(refusals) < MAX_NAMED:
        names = refusals[-1].names
        try:
            read((*asked, *optional, *names))
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


def _way_out(asked: Sequence[str], optional: Sequence[str]) -> str:
    """The end of the message."""
    names = [name for name in dict.fromkeys((*asked, *optional)) if name.replace(".", "_").isidentifier()]
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
