"""The memory that a piece of work takes, and how fast memory is read."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from threadpoolctl import threadpool_limits

from lucid.core.process.memory import peak_memory

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Peak:
    """The memory of this process inside a with statement above that at its start: at the peak (`bytes`), at the end."""

    bytes = 0
    at_the_end = 0

    def __enter__(self) -> Self:
        if _RESET.exists():
            _RESET.write_text("5", encoding="utf-8")  # the high-water mark starts again from here
        self._before = _now()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bytes = max(0, peak_memory() - self._before)
        self.at_the_end = max(0, _now() - self._before)


def _now() -> int:
    if not _STATUS.exists():
        return peak_memory()
    line = next(line for line in _STATUS.read_text(encoding="ascii").splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def read_rate(threads: int) -> float:
    """Bytes a second that threads read from memory, at best."""
    chunks = [np.ones(64_000_000 // threads, np.float32) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool, threadpool_limits(1):
        seconds = []
        for _ in range(10):
            start = time.perf_counter()
            list(pool.map(lambda chunk: np.dot(chunk, chunk), chunks))
            seconds.append(time.perf_counter() - start)
    return sum(chunk.nbytes for chunk in chunks) / min(seconds)
