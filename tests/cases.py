"""Many small cases in one test: to start a test takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def case(name: object) -> Iterator[None]:
    """Inside, an error says which case it is of."""
    try:
        yield
    except BaseException as error:  # also those with which pytest fails a test
        error.add_note(f"in the case {name}")
        raise
