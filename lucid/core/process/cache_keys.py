"""Keys of caches: they distinguish arguments that compare equal, such as 1, 1.0 and True."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

_IDENTITY: Any = object.__eq__


def value_key(value: Any) -> Hashable:
    """A key for a value that Python code may branch on: equal values of other types have others, and NaN has one.

    What is in tuples, frozen sets, slices and dataclasses is told apart as well.
    """
    class_: type = value.__class__
    if isinstance(value, (float, complex, np.inexact)):
        return class_, repr(value)
    if isinstance(value, frozenset):
        return class_, frozenset(map(value_key, value))
    inner = _compared(value)
    return (class_, value) if inner is None else (class_, *map(value_key, inner))


def type_key(value: Any) -> Hashable:
    """The value's type, for a key next to the value; -0.0 counts as its own type.

    Tuples, slices and dataclasses add the types of what is in them.
    """
    class_: type = value.__class__
    if class_ is int or class_ is bool or class_ is str:
        return class_
    if class_ is float:
        return class_ if value or math.copysign(1.0, value) > 0 else "-0.0"
    if class_.__eq__ is _IDENTITY:  # such as None and element types, which are equal to themselves alone
        return class_
    inner = value if class_ is tuple else _compared(value)
    if inner is not None:
        for each in inner:
            if each.__class__ is not int:
                return (class_, *map(type_key, inner))
        return class_  # most tuples hold whole numbers only: the numbers distinguish them
    if isinstance(value, np.floating) and not value and math.copysign(1.0, value) < 0:
        return (class_, "-0.0")
    return class_


def _compared(value: Any) -> Sequence[Any] | None:
    """The values by which a tuple, a slice or a dataclass is equal to another one; None for other values."""
    if isinstance(value, tuple):
        return value
    class_ = value.__class__
    if class_ is slice:
        return value.start, value.stop, value.step
    if class_.__eq__ is _IDENTITY or not is_dataclass(class_):
        return None
    return [getattr(value, field.name) for field in fields(class_) if field.compare]
