"""Worker threads for NumPy kernels, and BLAS limited to one thread while they run.

NumPy releases the interpreter lock inside its loops, so plain threads use all cores: one thread per core, each with a
single-threaded BLAS, is faster than one thread with a multi-threaded BLAS as soon as there is more work than matrix
products. BLAS has one setting for the whole process: it is saved when the first kernel starts and restored when the
last one ends.
"""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from lucid.core.number_ranges import at_least, check
from lucid.core.process.numpy_errstate import without_warnings

Job = TypeVar("Job")

_FEW = 1 << 14  # numbers in the inputs of a model up to which one BLAS thread is as fast
_SMALL = 1 << 11  # up to as many numbers come from NumPy's own cache of memory, without new pages
KEPT = 4 << 20  # bytes of the largest buffer that a thread keeps


def get_num_threads() -> int:
    """How many threads Lucid's NumPy kernels use, including the calling one; by default the cores of this process."""
    return _workers.size


def set_num_threads(n: int) -> None:
    """Set how many threads Lucid's NumPy kernels use, including the calling one; running calls are not affected.

    Raises:
        TypeError: `n` is no whole number.
        ValueError: `n` is below 1.
    """
    check("set_num_threads: n", n, at_least(1))
    _workers.resize(int(n))


def share(jobs: Iterable[Job], work: Callable[[Iterator[Job]], None]) -> None:
    """Run `work` in this thread and in as many workers as there are jobs for; each gets an iterator of jobs.

    Meanwhile BLAS runs with one thread, and NumPy does not warn in any of the threads. Many threads may call this at
    once, also after the main thread has ended: if there are no workers, this thread does all jobs. After the first
    exception, jobs that have not started are dropped; those that have started finish, and the exception is raised.
    """
    with single_threaded_blas():
        _workers.share(jobs, work)


def single_threaded_blas() -> AbstractContextManager[None]:
    """Limit BLAS to one thread, in the whole process, inside a with statement; with statements may overlap."""
    return _blas.single_threaded()


def blas_threads_for(numbers: int) -> AbstractContextManager[None]:
    """A with statement for running a model: one BLAS thread if its inputs hold few numbers, else all threads.

    With few rows, a product takes as long as reading its weights once, which a second thread hardly shortens. But
    threads wait for each other after each product, which takes ten times as long on a machine with busy cores.
    """
    return single_threaded_blas() if numbers <= _FEW else nullcontext()


class _Workers:
    """A pool of `size - 1` threads, started on first use: the calling thread is a worker too."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def resize(self, size: int) -> None:
        with self._lock:
            old, self._pool, self.size = self._pool, None, size
        if old is not None:
            old.shutdown(wait=False)

    def share(self, jobs: Iterable[Job], work: Callable[[Iterator[Job]], None]) -> None:
        queue = deque(jobs)
        helpers: list[Future[None]] = []
        with self._lock:  # so that the pool is not shut down before the last submit
            count = min(self.size, len(queue)) - 1
            if count > 0:
                helpers = self._begin(count, queue, work)
        try:
            _until_done(queue, work)
        finally:
            begun = [helper for helper in helpers if not helper.cancel()]
            wait(begun)
        for helper in begun:
            helper.result()

    def _begin(self, count: int, queue: deque[Job], work: Callable[[Iterator[Job]], None]) -> list[Future[None]]:
        """Start helpers: none if the interpreter is shutting down or the system has no more threads."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.size - 1, thread_name_prefix="lucid")
        helpers: list[Future[None]] = []
        try:
            for _ in range(count):
                helpers.append(self._pool.submit(_until_done, queue, work))
        except RuntimeError:
            self._pool.shutdown(wait=False, cancel_futures=True)  # a queued helper would never be waited for
            self._pool = None
        return helpers


def _until_done(queue: deque[Job], work: Callable[[Iterator[Job]], None]) -> None:
    """Let `work` take jobs from a queue shared with other threads; after an error, no thread takes another job."""
    try:
        without_warnings(work, _take(queue))
    finally:
        queue.clear()


def _take(queue: deque[Job]) -> Iterator[Job]:
    while True:
        try:
            job = queue.popleft()
        except IndexError:
            return
        yield job


class _Blas:
    """The process's BLAS libraries, limited to one thread while at least one kernel runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._before: list[int] = []
        self._controller: ThreadpoolController | None = None  # finding the libraries is slow, so it is done once

    @contextmanager
    def single_threaded(self) -> Iterator[None]:
        with self._lock:
            if self._controller is None:
                self._controller = ThreadpoolController().select(user_api="blas")
            libraries = self._controller.lib_controllers
            if self._running == 0:
                self._before = [library.num_threads for library in libraries]
                for library in libraries:
                    library.set_num_threads(1)
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                if self._running == 0:
                    for library, threads in zip(libraries, self._before, strict=True):
                        library.set_num_threads(threads)


class _Buffers(threading.local):
    """Memory that a thread keeps for its next job: new pages from the system can cost more than the computation."""

    def __init__(self) -> None:
        self._memory: dict[str, npt.NDArray[np.uint8]] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        size = math.prod(shape) * dtype.itemsize
        memory = self._memory.get(name)
        if memory is None or memory.size < size:
            memory = np.empty(size + 64, np.uint8)
            memory = memory[-memory.ctypes.data % 64 :][:size]  # on a cache line
            if size <= KEPT:
                self._memory[name] = memory
        return memory[:size].view(dtype).reshape(shape)


def usable_cores() -> int:
    """The number of cores that this process may run on; in a container or under taskset, fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_workers = _Workers(usable_cores())
_blas = _Blas()
_buffers = _Buffers()


def buffer(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """This thread's uninitialised buffer of that name; valid until the thread asks for the name again."""
    return _buffers.take(name, shape, dtype) if math.prod(shape) > _SMALL else np.empty(shape, dtype)


def _after_fork() -> None:
    """After a fork the child needs new workers and locks: threads do not survive it, and one may have held a lock."""
    global _workers, _blas
    _workers, _blas = _Workers(_workers.size), _Blas()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
