"""Settings of all tests: the same random numbers each time, and hypothesis without deadlines or a database."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import lucid
from lucid.export.forms import FORMS
from lucid.ops import OPS, REGISTERED

settings.register_profile(
    "lucid",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("lucid")


@cache
def without_cuda() -> str:
    """Why the tests that need a GPU cannot run; empty if they can."""
    try:
        lucid.runtime.Session(lucid.export.to_onnx(lucid.nn.Linear(1, 1), ("N", 1)), "cuda")
    except lucid.runtime.ProviderError as error:
        return str(error)
    return ""


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and without_cuda():
        pytest.skip(without_cuda())


@pytest.fixture(autouse=True)
def _seed() -> None:
    """A test draws the same numbers regardless of the tests that ran before it."""
    lucid.manual_seed(0)


@pytest.fixture(autouse=True)
def _no_new_ops() -> Iterator[None]:
    """A test may define ops and forms; they are removed again, since other tests look at all of them."""
    tables: list[dict[str, Any]] = [OPS, REGISTERED, FORMS]
    before = [set(table) for table in tables]
    yield
    for table, names in zip(tables, before, strict=True):
        for name in table.keys() - names:
            del table[name]
