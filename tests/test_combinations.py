"""What the tests leave out of a full product of options: nothing in which two values meet."""

from __future__ import annotations

from itertools import combinations as every_two
from itertools import product
from typing import Any

import pytest

from tests import combinations
from tests.combinations import covering, pairs, turns

AXES: list[tuple[list[Any], ...]] = [
    ([1, 2, 3], "ab"),
    ([1, 2, 3], "ab", [True, False]),
    (range(38), range(6), [True, False]),
    ("abcd", "efg", "hij", "kl", "mn"),
    ("ab",) * 7,
]  # type: ignore[list-item]
in_part = pytest.mark.skipif(combinations.EVERY, reason="every combination is asked for")


def meetings(row: tuple[Any, ...]) -> set[Any]:
    return set(every_two(enumerate(row), 2))


@pytest.mark.parametrize("axes", AXES, ids=lambda axes: "x".join(str(len(axis)) for axis in axes))
def test_any_two_values_meet(axes: Any) -> None:
    rows = pairs(*axes)
    assert pairs() == [()] and pairs("ab") == [("a",), ("b",)]
    assert set[Any]().union(*map(meetings, rows)) == set[Any]().union(*map(meetings, product(*axes)))
    assert len(set(rows)) == len(rows) and pairs(*axes) == rows


@in_part
def test_pairs_are_hardly_more_than_two_axes_need() -> None:
    assert [len(pairs(*axes)) for axes in AXES] == [6, 6, 228, 14, 8]


def test_a_fault_of_two_values_that_meet_is_found_wherever_it_is_planted() -> None:
    """As a test finds it: it fails in one of its cases."""
    axes = AXES[3]
    for planted in set[Any]().union(*map(meetings, product(*axes))):
        assert any(set(planted) <= set(enumerate(row)) for row in pairs(*axes)), planted


def test_what_no_candidate_has_is_not_asked_for() -> None:
    without = [(a, b) for a, b in product("abc", "de") if (a, b) != ("a", "d")]
    assert covering(without, lambda row: row) == without
    three = covering([row for row in product("abc", "de", "fg") if row[:2] != ("a", "d")], lambda row: row)
    assert set[Any]().union(*map(meetings, three)) >= {((0, "a"), (2, "f")), ((0, "a"), (2, "g"))}


@pytest.mark.parametrize("mark", [pytest.mark.skip("absent"), pytest.mark.skipif(True, reason="absent")])
def test_values_meet_in_a_row_that_is_not_skipped(mark: Any) -> None:
    """As those of a test that also runs in a runtime that is not installed."""
    there = pytest.param("there", marks=pytest.mark.skipif(False, reason="it is not absent"))
    absent = pytest.param("gone", marks=mark)
    for axes in (([there, absent], "ab", "cd"), ([absent, there], range(3), range(4)), ([absent], "ab", "cd")):
        rows = [(first.values[0], *others) for first, *others in pairs(*axes)]
        every = [(first.values[0], *others) for first, *others in product(*axes)]
        run = [[row for row in some if row[0] == "there"] for some in (rows, every)]
        for chosen, whole in ((rows, every), run):
            assert set[Any]().union(*map(meetings, chosen)) == set[Any]().union(*map(meetings, whole))


@in_part
def test_each_group_has_all_values_and_each_item_one() -> None:
    assert turns("abcd", [1, 2]) == [("a", 1), ("b", 2), ("c", 1), ("d", 2)]
    assert turns("aBcCD", [1, 2], str.isupper) == [("a", 1), ("B", 1), ("c", 2), ("C", 2), ("D", 1)]
    assert turns("ab", [1, 2, 3, 4]) == [("a", 1), ("a", 3), ("b", 2), ("b", 4)]


def test_all_of_them_are_tested_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combinations, "EVERY", True)
    assert pairs("ab", "cd", "ef") == [*product("ab", "cd", "ef")]
    assert turns("abc", [1, 2]) == [*product("abc", [1, 2])]
