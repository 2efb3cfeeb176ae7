"""Numbers of options, each checked against its range: `check` names the option, its value and what is expected."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeGuard

import numpy as np


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value is an integer of Python or NumPy, but not a boolean."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


class Range(NamedTuple):
    """Which numbers an option may be."""

    expected: str  # the range in words
    holds: Callable[[float], bool]  # whether a number is in it; NaN and what float64 does not hold are in none
    whole: bool = False  # whether it is of whole numbers
    infinite: bool = False  # whether infinity may be in it


FINITE = Range("a finite number", lambda x: True)
NOT_NEGATIVE = Range("a number of 0 or more", lambda x: x >= 0)
POSITIVE = Range("a number above 0", lambda x: x > 0)
NOT_NEGATIVE_OR_INFINITE = NOT_NEGATIVE._replace(infinite=True)
POSITIVE_OR_INFINITE = POSITIVE._replace(infinite=True)
PROBABILITY = Range("a probability from 0 to 1", lambda x: 0 <= x <= 1)


def at_least(least: int) -> Range:
    """Whole numbers from `least` on."""
    return Range(f"{least} or more", lambda x: x >= least, whole=True)


def check(name: str, value: Any, allowed: Range) -> None:
    """Check the value of an option.

    Args:
        name: of the option, as the message begins.
        value: what should be a number, of Python or NumPy.
        allowed: its range.

    Raises:
        TypeError: for anything but a number of this kind; True and False are none.
        ValueError: for one outside of the range.
    """
    whole = is_whole(value)
    if not whole and (allowed.whole or not isinstance(value, (float, np.floating))):
        raise TypeError(f"{name} is {value!r}, expected a {'whole ' * allowed.whole}number")
    number = int(value) if whole else float(value)  # of Python, which has room for the ends of ranges
    finite = abs(number) <= sys.float_info.max or (allowed.infinite and number == math.inf)
    if not (finite and allowed.holds(number)):
        raise ValueError(f"{name} is {value}, expected {allowed.expected if finite else FINITE.expected}")


def check_all(options: Mapping[str, object], ranges: Mapping[str, Range], user: str = "") -> None:
    """Check each option that has a range, if it is not None; `user` begins the messages. Raises as `check`."""
    for name, allowed in ranges.items():
        if options[name] is not None:
            check(user + name, options[name], allowed)
