"""What every test has: the same random numbers each time, and hypothesis without clock or memory."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

import lucid

settings.register_profile(
    "lucid",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("lucid")


@pytest.fixture(autouse=True)
def _seed() -> None:
    """A test draws the same numbers whichever tests ran before it."""
    lucid.manual_seed(0)
