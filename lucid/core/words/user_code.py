"""The line of the user's code that an error comes from, such as one in `forward`, added to the error as a note."""

from __future__ import annotations

import inspect
import linecache
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from traceback import walk_stack, walk_tb
from types import CodeType
from typing import NamedTuple

_WIDEST = 100  # characters of a source line
_LIBRARY = os.path.dirname(os.__file__)


@contextmanager
def located_errors() -> Iterator[None]:
    """Add a note with the last line of user code to any error that leaves the block.

    Models of `lucid.models` count as user code: they are meant to be read.
    """
    try:
        yield
    except Exception as error:
        note = _line_of(error)
        if note and note not in vars(error).get("__notes__", []):  # nested blocks add the note once
            error.add_note(note)
        raise


class Place(NamedTuple):
    """A line of code that is being run, and how many calls it is away from the function that asks."""

    code: CodeType
    number: int
    depth: int

    def __str__(self) -> str:
        return _shown(self.code, self.number)


def user_place() -> Place | None:
    """The line outside of Lucid that is being run."""
    for depth, (frame, number) in enumerate(walk_stack(inspect.currentframe())):
        if not _is_lucids(frame.f_globals.get("__name__", "")):
            return Place(frame.f_code, number, depth)
    return None


def calling_line() -> str:
    """The source line outside of Lucid that is being run, or nothing."""
    place = user_place()
    return "" if place is None else linecache.getline(place.code.co_filename, place.number).strip()


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn in the name of the line outside of Lucid that is being run."""
    place = user_place()
    warnings.warn(message, category, stacklevel=1 if place is None else place.depth)


def _line_of(error: BaseException) -> str | None:
    frames = [
        (frame.f_code, number)
        for frame, number in walk_tb(error.__traceback__)
        if not _is_lucids(frame.f_globals.get("__name__", ""))
    ]
    own = [(code, number) for code, number in frames if not _is_installed(code.co_filename)]
    return _shown(*(own or frames)[-1]) if frames else None


def _is_lucids(module: str) -> bool:
    top, _, rest = module.partition(".")
    return top == "contextlib" or (top == "lucid" and not rest.startswith("models."))


def _is_installed(file: str) -> bool:
    """Whether a file belongs to Python's library or an installed package."""
    return file.startswith(("<frozen", _LIBRARY)) or "site-packages" in file or "dist-packages" in file


def _shown(code: CodeType, number: int) -> str:
    path = code.co_filename
    with suppress(OSError):  # of a working folder that has been removed
        path = path.removeprefix(os.path.join(os.getcwd(), ""))
    source = linecache.getline(code.co_filename, number).strip()
    name = code.co_qualname.rpartition("<locals>.")[2]
    return f"in {name}, {path}:{number}" + (f": {source[:_WIDEST]}" if source else "")
