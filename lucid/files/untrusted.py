"""Shared by readers of untrusted files and requests: the error, limits, names for messages, JSON within bounds."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from lucid.core.words.json_numbers import strict
from lucid.core.words.safe_text import cut, show

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]

MAX_HEADER = 24 << 20  # bytes of what describes the tensors: seven times the largest header published
MAX_TENSORS = 1 << 16  # in one file
MAX_KEYS = 1 << 18  # names in a header or index
MAX_NAME = 4096  # bytes of one tensor's name
MAX_DEPTH = 100  # lists and objects within each other: code that walks through them calls itself for each


class WeightsError(ValueError):
    """A weights file that is broken, hostile or of another kind."""


# A message names the file and shows untrusted text escaped and shortened.


def broken(path: Path, what: str, error: type[ValueError] = WeightsError) -> ValueError:
    """The error for a file that does not follow its format."""
    return error(f"{show(path)}: {what}; get an intact copy of the file")


def check_name(name: str, path: Path) -> None:
    """Refuse a name of more than `MAX_NAME` bytes.

    Raises:
        WeightsError: for a longer one.
    """
    if len(name.encode()) > MAX_NAME:
        raise broken(path, f"a name of {len(name)} letters, {show(name)}, expected at most {MAX_NAME} bytes")


def check_shape(path: Path, name: str, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> None:
    """Check NumPy's limits; that on the bytes applies even if a zero makes the array empty.

    Raises:
        WeightsError: for a shape beyond them.
    """
    if len(shape) > 64 or math.prod(filter(None, shape)) * dtype.itemsize >= 1 << 63:
        raise broken(path, f"tensor {show(name)}: shape {show(list(shape))}, expected <= 64 sizes, < 2^63 bytes")


def check_booleans(path: Path, name: str, array: Array) -> None:
    """Check that the bytes of booleans are 0 or 1, as NumPy assumes: from others it computes wrong results.

    Raises:
        WeightsError: for another byte.
    """
    if array.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
        raise broken(path, f"tensor {show(name)}: a BOOL byte is neither 0 nor 1")


class DepthError(ValueError):
    """JSON of more lists and objects within each other than `MAX_DEPTH`."""


def json_value(text: str | bytes, standard: bool = False, unique: bool = False) -> Any:
    """The value of a JSON text from anyone, which other code may walk through, and write again.

    Args:
        text: as it was read.
        standard: whether NaN, Infinity and -Infinity are errors. JSON lacks them, but Python and the configs of
            checkpoints write them.
        unique: whether a name that occurs twice in one object is an error. Otherwise its last value counts, as
            transformers reads a config.

    Raises:
        DepthError: for more lists and objects within each other than `MAX_DEPTH`.
        ValueError: for other text that is no JSON; the message says where.
    """
    constants: list[float] = []

    def constant(name: str) -> float:
        constants.append(float(name))
        return constants[-1]

    try:
        value = json.loads(
            text,
            parse_constant=constant if standard else None,
            object_pairs_hook=_unique if unique else None,
        )
    except RecursionError:
        raise _too_deep() from None
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _inside(outer) if isinstance(inner, (dict, list))]
        if not level:
            break
    else:
        raise _too_deep()
    if constants:
        place, name = (_place(value, constants[0]) or "a value").removeprefix("."), strict(constants[0])
        raise ValueError(
            f'{cut(place)} is {name}, which JSON does not have; where {name} is served, it is the text "{name}"'
        )
    return value


def _too_deep() -> DepthError:
    return DepthError(f"nested too deeply: expected at most {MAX_DEPTH} lists and objects within each other")


def _place(outer: Any, member: object) -> str | None:
    """Where an object is in plain data, such as ``.inputs[0].data[2]``; None if it is not there."""
    entries = outer.items() if isinstance(outer, dict) else enumerate(outer) if isinstance(outer, list) else ()
    for key, value in entries:
        inner = "" if value is member else _place(value, member)
        if inner is not None:
            return (f".{show(key)[1:-1]}" if isinstance(key, str) else f"[{key}]") + inner
    return None


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


# One of the characters :,[{ outside of strings, the first in a group; or the end. It cannot backtrack.
_TOKEN = re.compile(rb'(?:[^":,\[{]++|"(?:[^"\\]++|\\.)*+"?)*+(?:(:)|[,\[{]|\Z)', re.DOTALL)
_MOST_MEMBERS = MAX_KEYS + 64
_MOST_VALUES = 16 * MAX_TENSORS


def parse_bounded(text: bytes, path: Path) -> Any:
    """The value of an untrusted JSON text. The memory that it takes is bounded before it is parsed.

    Whole numbers of 0 and more are integers, of up to 19 digits; other numbers are of another type.
    """
    _check_bounds(text, path)
    try:
        decoded = text.decode()
        del text  # which would take memory while it is parsed
        return json.loads(decoded, object_pairs_hook=_object, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        raise broken(path, f"no valid JSON: {error}") from error


def _check_bounds(text: bytes, path: Path) -> None:
    wide = 4 if re.search(rb"[\xf0-\xff]", text) else 2 if re.search(rb"[\xc4-\xff]", text) else 1
    if len(text) * wide > MAX_HEADER:  # decoded, each character takes as many bytes as the widest
        raise broken(path, f"JSON of {len(text)} bytes, {wide} for each character, expected at most {MAX_HEADER}")
    # Counted with those in strings, which takes no time, most texts have few enough.
    if text.count(b":") <= _MOST_MEMBERS and sum(map(text.count, (b",", b"[", b"{"))) <= _MOST_VALUES - 2:  # 2: the end
        return
    members = values = 0
    for token in _TOKEN.finditer(text):
        members, values = members + (token.lastindex is not None), values + 1
        if members > _MOST_MEMBERS or values - members > _MOST_VALUES:
            raise broken(path, f"JSON of more than {_MOST_MEMBERS} members or {_MOST_VALUES} values")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        (name, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the name {show(name)} occurs twice")
    return members


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = _unique(pairs)
    for name in members:
        name.encode()  # half of a surrogate pair is not text
    return members


def _whole(text: str) -> int | float:
    return int(text) if text.isdecimal() and len(text) < 20 else float(text)
