"""Rows of many requests computed together: what came while the model was busy is the next batch.

Nobody waits for others to come: a request that is alone is computed at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple, TypeAlias

from lucid.batch.rows import Ready

Run: TypeAlias = Callable[[Sequence[Any]], Sequence[Any]]
"""Computes rows: a result for each."""


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
        self._waiting: deque[_Waiting] = deque()
        self._computing: asyncio.Task[None] | None = None

    async def results(self, rows: Sequence[Ready]) -> list[Any]:
        """The results of rows. If it is cancelled, those that still wait are not computed.

        Raises:
            what `run` raises.
        """
        loop = asyncio.get_running_loop()
        asked = [_Waiting(row, loop.create_future()) for row in rows]
        self._waiting.extend(asked)
        if self._computing is None:
            self._computing = loop.create_task(self._compute())
        try:
            return await asyncio.gather(*(one.result for one in asked))
        finally:
            for one in asked:
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
                if one.result.done():  # nobody wants it any more
                    continue
                if error is None:
                    one.result.set_result(result)
                else:
                    one.result.set_exception(error)
        self._computing = None

    def _next(self) -> list[_Waiting]:
        """The longest-waiting rows that fit into a batch."""
        batch: list[_Waiting] = []
        longest = 0
        while self._waiting:
            first = self._waiting[0]
            if not first.result.done():
                longest = max(longest, first.row.size)
                if batch and longest * (len(batch) + 1) > self._tokens:
                    break
                batch.append(first)
            self._waiting.popleft()
        return batch
