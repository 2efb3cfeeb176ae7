"""Cases that share a test: errors name the failed case, and a test without cases fails."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

import pytest

import lucid
from tests.cases import in_one_test


def test_the_error_says_of_which_case_it_is() -> None:
    tried: list[str] = []

    @in_one_test([Path("a/b"), Path("a/c"), Path("a/d")], attrgetter("name"))
    def test(path: Path) -> None:
        tried.append(path.name)
        assert path.name != "c"

    with pytest.raises(AssertionError) as caught:
        test()
    assert tried == ["b", "c"] and caught.value.__notes__ == ["in the case c"]


def test_each_case_draws_the_numbers_of_a_test_of_its_own() -> None:
    drawn = []

    @in_one_test([1, 2])
    def test(_: int) -> None:
        drawn.append(lucid.randn(3).tolist())

    lucid.manual_seed(0)
    first = lucid.randn(3).tolist()
    test()
    assert drawn == [first, first]


def test_a_test_without_cases_is_refused() -> None:
    with pytest.raises(ValueError, match="there are no cases, expected at least one"):
        in_one_test([])
