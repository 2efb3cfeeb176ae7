"""Names that an option lists, and patterns of names, as in a shell: the parameters and layers that it is about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from lucid.core.words.safe_text import listed, show
from lucid.core.words.suggestions import did_you_mean


def name_list(option: str, names: str | Iterable[str], alone: bool = False) -> tuple[str, ...]:
    """The names that an option lists; `alone` says that a text is one name.

    Raises:
        TypeError: for another value.
    """
    if isinstance(names, str) and alone:
        return (names,)
    if isinstance(names, Iterable) and not isinstance(names, (str, bytes)):
        several = tuple(names)
        if all(isinstance(name, str) for name in several):
            return several
    got = f"the text {show(names)}" if isinstance(names, str) else show(names)
    raise TypeError(f"{option}: got {got}, expected {'a name or ' * alone}a list of names")


def names(pattern: str, key: str) -> bool:
    """Whether a pattern matches the key of a parameter, or the path of its module."""
    return fnmatchcase(key.rpartition(".")[0], pattern) or fnmatchcase(key, pattern)


def _parts_like(pattern: str, keys: Sequence[str]) -> str:
    """The suggestion for a part of a pattern that no name has, such as ``encoderr`` in ``encoderr.*``."""
    known = {part: None for key in keys for part in key.split(".")}
    strange = [part for part in pattern.split(".") if part not in known and not {*part} & {*"*?["}]
    return did_you_mean(strange[0], known) if strange else ""


def named(option: str, patterns: str | Iterable[str], keys: Sequence[str]) -> dict[str, str]:
    """By key the first pattern that matches it; keys that match no pattern are left out.

    Args:
        option: what has the patterns, for the message.
        patterns: one or several.
        keys: of parameters.

    Raises:
        ValueError: for a pattern that matches no key.
    """
    chosen: dict[str, str] = {}
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        matched = [key for key in keys if names(pattern, key)]
        if not matched:
            similar = did_you_mean(pattern, keys) or _parts_like(pattern, keys)
            raise ValueError(f"{option}: {pattern!r} matches no parameter{similar}; there are {listed(keys) or 'none'}")
        for key in matched:
            chosen.setdefault(key, pattern)
    return chosen
