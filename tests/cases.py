"""Many small cases in one test: to start a test takes longer than most of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import lucid

T = TypeVar("T")


@contextmanager
def case(name: object) -> Iterator[None]:
    """Errors raised inside name their case."""
    try:
        yield
    except BaseException as error:  # also those with which pytest fails a test
        error.add_note(f"in the case {name}")
        raise


def in_one_test(
    cases: Iterable[T], name: Callable[[T], object] = str
) -> Callable[[Callable[[T], None]], Callable[[], None]]:
    """The cases of a test in one: with the same random numbers each, and an error that says which case it is of.

    Raises:
        ValueError: if there are no cases, since the test would then pass whatever is wrong.
    """
    cases = list(cases)
    if not cases:
        raise ValueError("there are no cases, expected at least one")

    def decorate(test: Callable[[T], None]) -> Callable[[], None]:
        def every() -> None:
            for each in cases:
                lucid.manual_seed(0)
                with case(name(each)):
                    test(each)

        every.__name__, every.__doc__ = test.__name__, test.__doc__
        return every

    return decorate
