"""Rows of many requests are computed together if they wait, and each gets its own result."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("lucid.serving", reason="needs the extra serve", exc_type=ModuleNotFoundError)

from lucid.batch.rows import Ready
from lucid.serving.batcher import Batcher
from tests.waiting import PATIENCE


class Model:
    """Doubles numbers, when it is let."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.free = threading.Event()

    def run(self, batch: Sequence[Any]) -> list[int]:
        assert self.free.wait(PATIENCE)
        self.batches.append(list(batch))
        if -1 in batch:
            raise ValueError("no -1")
        return [2 * number for number in batch]


def rows(*numbers: int, size: int = 1) -> list[Ready]:
    return [Ready(size, number) for number in numbers]


async def started(batcher: Batcher, *requests: list[Ready]) -> list[asyncio.Task[Any]]:
    """A task for each request, one after the other; all of them wait."""
    tasks = []
    for one in requests:
        tasks.append(asyncio.create_task(batcher.results(one)))
        await asyncio.sleep(0)  # it has begun to wait
        await asyncio.sleep(0)  # and the model to compute
    return tasks


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def batcher(model: Model):
    with ThreadPoolExecutor(1) as thread:
        yield Batcher(model.run, thread, 8, lambda rows: None)


def test_what_comes_while_the_model_is_busy_is_computed_together(model, batcher):
    async def ask() -> None:
        tasks = await started(batcher, rows(1), rows(2, 3), rows(4))
        model.free.set()
        assert await asyncio.gather(*tasks) == [[2], [4, 6], [8]]

    asyncio.run(ask())
    assert model.batches == [[1], [2, 3, 4]]


def test_a_batch_has_only_so_many_tokens_with_padding(model, batcher):
    async def ask() -> None:
        tasks = await started(batcher, rows(0), rows(1, 2, size=3), rows(3, size=2), rows(4, size=99), rows(5))
        model.free.set()
        await asyncio.gather(*tasks)

    asyncio.run(ask())
    assert model.batches == [[0], [1, 2], [3], [4], [5]]


def test_rows_of_a_similar_length_go_together_and_the_oldest_goes_first(model):
    async def ask(batcher: Batcher) -> None:
        sizes = {1: 10, 2: 50, 3: 11, 4: 49, 5: 20}
        tasks = await started(batcher, rows(0), *(rows(number, size=size) for number, size in sizes.items()))
        model.free.set()
        await asyncio.gather(*tasks)

    with ThreadPoolExecutor(1) as thread:
        asyncio.run(ask(Batcher(model.run, thread, 4096, lambda rows: None)))
    assert model.batches == [[0], [1, 3], [2, 4], [5]]


def test_an_error_goes_to_those_of_its_batch_and_the_next_are_computed(model, batcher):
    async def ask() -> None:
        tasks = await started(batcher, rows(1), rows(-1), rows(2))
        model.free.set()
        assert [type(one) for one in await asyncio.gather(*tasks, return_exceptions=True)] == [
            list,
            ValueError,
            ValueError,
        ]
        assert await batcher.results(rows(3)) == [6]

    asyncio.run(ask())


def test_what_nobody_wants_any_more_is_not_computed(model, batcher):
    async def ask() -> None:
        tasks = await started(batcher, rows(1), rows(2, 3), rows(4))
        tasks[1].cancel()
        await asyncio.wait(tasks[1:2])
        model.free.set()
        assert [await tasks[0], await tasks[2]] == [[2], [8]]

    asyncio.run(ask())
    assert model.batches == [[1], [4]]
