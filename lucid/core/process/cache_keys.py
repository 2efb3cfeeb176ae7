"""Keys of caches: what tells apart arguments that are equal, such as 1, 1.0 and True."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import numpy as np


def type_key(value: Any) -> Hashable:
    """What a key needs beside a value, as equal values may mean different calls: its type, the types of what a tuple
    holds, and which of the two zeros it is."""
    class_: type = value.__class__
    if class_ is int or class_ is bool or class_ is str:
        return class_
    if class_ is float:
        return class_ if value or math.copysign(1.0, value) > 0 else "-0.0"
    if isinstance(value, tuple):
        for each in value:
            if each.__class__ is not int:
                return (class_, *map(type_key, value))
        return class_  # tuples of whole numbers alone, as in most calls, are told apart by their numbers
    if isinstance(value, np.floating) and not value and math.copysign(1.0, value) < 0:
        return (class_, "-0.0")
    return class_
