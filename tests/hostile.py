"""Reading a hostile file must end in a clear error, within a second and below 100 MB."""

from __future__ import annotations

import gc
import runpy
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks.memory import Peak

TOOLS = Path(__file__).parent.parent / "tools"


@cache
def tool(name: str) -> dict[str, Any]:
    """All that tools/hostile_NAME.py defines."""
    return runpy.run_path(str(TOOLS / f"hostile_{name}.py"))


def corpus(name: str) -> dict[str, Any]:
    """The cases of tools/hostile_NAME.py: what is wrong, and the function that writes the file."""
    cases: dict[str, Any] = tool(name)["CASES"]
    return cases


def assert_refused(read: Callable[[Path], object], path: Path, error: type[Exception]) -> None:
    """Read a file, and check the error, its time and its memory."""
    message = refused(read, path, error)
    assert len(message) < 1000, message
    assert path.name in message and "; " in message, "names the file, and says what to do"


def refused(read: Callable[[Path], object], path: Path, error: type[Exception] | tuple[type[Exception], ...]) -> str:
    """The message of the error that reading a file raises: printable, within a second and below 100 MB."""
    for _ in range(3):  # the best of three: other tests run at the same time
        gc.disable()  # it would walk over what other tests left, which is not the reader's time
        start = time.process_time()
        try:
            with Peak() as peak, pytest.raises(error) as caught:
                read(path)
            seconds = time.process_time() - start
        finally:
            gc.enable()
        if seconds < 1:
            break
    assert seconds < 1, f"three times more than a second, the last {seconds:.2f}"
    assert peak.bytes < 100 << 20, f"{peak.bytes >> 20} MB"
    message = str(caught.value)
    assert message.isprintable(), message
    return message
