"""Suggestions for mistyped names and paths, for error messages."""

from __future__ import annotations

import os
from collections.abc import Iterable
from difflib import SequenceMatcher
from itertools import islice

_LIKE = 0.66  # the least similarity; 1 for equal names
_AS_LIKE = 0.1  # how much less similar than the nearest one others may be
_SHOWN = 3
_ENTRIES = 1000  # of a folder that are compared


def near(name: str, known: Iterable[str]) -> list[str]:
    """The known names that a mistyped one may mean, nearest first; case, dashes and underscores are ignored."""
    ranked: list[tuple[float, str]] = []
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(_folded(name))
    for candidate in dict.fromkeys(known):
        matcher.set_seq1(_folded(candidate))
        if matcher.real_quick_ratio() >= _LIKE and matcher.quick_ratio() >= _LIKE:
            ranked.append((-matcher.ratio(), candidate))
    best = min(ranked, default=(0.0, ""))[0]
    return [candidate for ratio, candidate in sorted(ranked) if ratio <= min(-_LIKE, best + _AS_LIKE)][:_SHOWN]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error message: "; did you mean Linear or LinearScaling?", or nothing."""
    return _asked(near(name, known))


def paths_near(path: str | os.PathLike[str]) -> list[str]:
    """Existing files and folders that a path which does not exist may mean."""
    folder, name = os.path.split(os.fspath(path).rstrip("/"))
    try:
        with os.scandir(folder or os.curdir) as entries:
            names = near(name, (entry.name for entry in islice(entries, _ENTRIES)))
    except OSError:  # the folder does not exist either
        return []
    return [os.path.join(folder, name) for name in names]


def or_check(path: str | os.PathLike[str]) -> str:
    """The end of an error message about a path that does not exist."""
    return _asked(paths_near(path)) or "; check the path"


def _asked(suggestions: list[str]) -> str:
    return f"; did you mean {' or '.join(suggestions)}?" if suggestions else ""


def _folded(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
