"""Batches of rows from many requests: rows of a similar length that arrived while the model was busy.

A lone request runs at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple, TypeAlias

from lucid.batch.rows import Ready

Run: TypeAlias = Callable[[Sequence[Any]], Sequence[Any]]
"""Computes rows: a result for each."""
_PADDED = 1.25  # the most tokens of a batch, relative to those without padding; more padding costs more than it saves


class _Waiting(NamedTuple):
    row: Ready
    result: asyncio.Future[Any]


class Batcher:
    """Computes rows in batches of those that wait.

    Args:
        run: computes a batch; called in a thread of `threads`, one batch at a time.
        threads: where it runs.
        tokens: the most tokens of a batch, padding included. A row that has more is a batch of its own.
        seen: called with the number of rows of each batch.
    """

    def __init__(self, run: Run, threads: Executor, tokens: int, seen: Callable[[int], object]) -> None:
        self._run, self._threads, self._tokens, self._seen = run, threads, tokens, seen
        self._waiting: list[_Waiting] = []
        self._computing: asyncio.Task[None] | None = None

    async def results(self, rows: Sequence[Ready]) -> list[Any]:
        """The results of rows. If it is cancelled, those that still wait are not computed.

        Raises:
            what `run` raises.
        """
        loop = asyncio.get_running_loop()
        waiting = [_Waiting(row, loop.create_future()) for row in rows]
        self._waiting.extend(waiting)
        if self._computing is None:
            self._computing = loop.create_task(self._compute())
        try:
            return await asyncio.gather(*(one.result for one in waiting))
        finally:
            for one in waiting:
                one.result.cancel()

    async def _compute(self) -> None:
        """Compute batches until nothing waits."""
        loop = asyncio.get_running_loop()
        while batch := self._next():
            self._seen(len(batch))
            computing = loop.run_in_executor(self._threads, self._run, [one.row.data for one in batch])
            await asyncio.wait([computing])
            error = computing.exception()
            results = [None] * len(batch) if error is not None else computing.result()
            for one, result in zip(batch, results, strict=True):
                if one.result.done():  # its client has gone
                    continue
                if error is None:
                    one.result.set_result(result)
                else:
                    one.result.set_exception(error)
        self._computing = None

    def _next(self) -> list[_Waiting]:
        """The row that has waited longest, and rows of a similar length that fit into its batch."""
        self._waiting = [one for one in self._waiting if not one.result.done()]
        if not self._waiting:
            return []
        size = self._waiting[0].row.size
        batch: list[_Waiting] = []
        longest = total = 0
        for one in sorted(self._waiting, key=lambda one: abs(one.row.size - size)):
            longest, total = max(longest, one.row.size), total + one.row.size
            padded = longest * (len(batch) + 1)
            if batch and padded > min(self._tokens, _PADDED * total):
                break
            batch.append(one)
        taken = set(map(id, batch))
        self._waiting = [one for one in self._waiting if id(one) not in taken]
        return batch
