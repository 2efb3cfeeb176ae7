"""Waiting for what other threads and processes do."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 300.0
"""Seconds after which a test gives up. Only a fault takes that long, so no result depends on the machine's speed."""


def until(condition: Callable[[], object]) -> None:
    """Wait until the condition is true; what it watches says nothing when it changes."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.005)
