"""Keys of caches: they distinguish arguments that compare equal, such as 1, 1.0 and True."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import numpy as np


def value_key(value: Any) -> Hashable:
    """A key for a value that Python code may branch on: equal values of other types have others, and NaN has one.

    What is in tuples and frozen sets is told apart as well.
    """
    class_: type = value.__class__
    if isinstance(value, (float, np.floating)):
        return class_, repr(value)
    if isinstance(value, tuple):
        return class_, *map(value_key, value)
    if isinstance(value, frozenset):
        return class_, frozenset(map(value_key, value))
    return class_, value


def type_key(value: Any) -> Hashable:
    """The value's type, for a key next to the value; -0.0 counts as its own type, tuples add their items' types."""
    class_: type = value.__class__
    if class_ is int or class_ is bool or class_ is str:
        return class_
    if class_ is float:
        return class_ if value or math.copysign(1.0, value) > 0 else "-0.0"
    if isinstance(value, tuple):
        for each in value:
            if each.__class__ is not int:
                return (class_, *map(type_key, value))
        return class_  # most tuples hold whole numbers only: the numbers distinguish them
    if isinstance(value, np.floating) and not value and math.copysign(1.0, value) < 0:
        return (class_, "-0.0")
    return class_
