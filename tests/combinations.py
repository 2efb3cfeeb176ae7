"""Which combinations of options are tested where all would take too long: as few as let every two values meet.

Faults hang on one value, or on two that meet; hardly ever on three. So `covering` chooses the fewest combinations it
can in which every two values meet that meet at all, `pairs` does so for lists of values, and `in_pairs` makes them the
cases of a test. In `turns`, many items take turns at a few values, each group of items at all of them; `first_of_each`
has one item a group. Of drawn examples there are `some`. A combination that a mark skips tests nothing, so it counts
only for values that are skipped wherever they meet.

With LUCID_EVERY_COMBINATION=1 in the environment all of these give the full product.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import combinations, product
from typing import Any, TypeVar

import pytest

T, V = TypeVar("T"), TypeVar("V")
ParameterSet = type(pytest.param(None))

EVERY = os.environ.get("LUCID_EVERY_COMBINATION", "") not in ("", "0")


def covering(
    candidates: Iterable[T],
    features: Callable[[T], Sequence[Hashable]],
    skipped: Callable[[T], bool] = lambda candidate: False,
) -> list[T]:
    """A few candidates, in their order, that contain every pair of features that any candidate contains.

    A feature is known by its place: two candidates differ in a feature if they differ at its place. A pair of a
    candidate that is not `skipped` is in a chosen one that is not.
    """
    candidates = list(candidates)
    if EVERY:
        return candidates
    features_of = [list(enumerate(features(candidate))) for candidate in candidates]
    meetings = [list(combinations(each, min(2, len(each)))) for each in features_of]
    tested = {pair for met, each in zip(meetings, candidates, strict=True) if not skipped(each) for pair in met}
    for met, each in zip(meetings, candidates, strict=True):
        if skipped(each):
            met[:] = [pair for pair in met if pair not in tested]
    where: dict[Hashable, list[int]] = {}
    for number, met in enumerate(meetings):
        for pair in met:
            where.setdefault(pair, []).append(number)
    missing, used, chosen = dict.fromkeys(where), Counter[Hashable](), set[int]()
    while missing:
        rivals = where[next(iter(missing))]
        # The one that brings the most new pairs; of several, that whose features were used least.
        new = [len(missing.keys() & meetings[number]) for number in rivals]
        before = [-sum(used[each] for each in features_of[number]) for number in rivals]
        *_, place = max(zip(new, before, range(0, -len(rivals), -1), strict=True))
        best = rivals[-place]
        chosen.add(best)
        used.update(features_of[best])
        for pair in meetings[best]:
            missing.pop(pair, None)
    return [candidate for number, candidate in enumerate(candidates) if number in chosen]


def pairs(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Combinations with one value per axis, in which every two values of different axes meet.

    Two values that meet in a test that runs do so in one that is not skipped by a mark of another value.
    """
    numbered = product(*map(enumerate, axes))
    chosen = covering(
        numbered, lambda row: [number for number, _ in row], lambda row: any(_is_skipped(value) for _, value in row)
    )
    return [tuple(value for _, value in row) for row in chosen]


def in_pairs(*, indirect: Sequence[str] = (), **axes: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrize a test with `pairs` of the values of its arguments; a value may be a `pytest.param`."""
    rows = [parameters(row) for row in pairs(*axes.values())]
    return pytest.mark.parametrize(",".join(axes), rows, indirect=list(indirect))


def parameters(row: Sequence[Any]) -> Any:
    """One of the cases, with all the marks and an id of all values."""
    each = [value if isinstance(value, ParameterSet) else pytest.param(value) for value in row]
    values = [value for parameter in each for value in parameter.values]
    names = [str(parameter.id or _name(*parameter.values)) for parameter in each]
    return pytest.param(*values, id="-".join(names), marks=[mark for parameter in each for mark in parameter.marks])


def _is_skipped(value: Any) -> bool:
    """Whether the marks of a value skip a test; conditions are known, and no texts for pytest to evaluate."""
    marks = value.marks if isinstance(value, ParameterSet) else ()
    return any(mark.name == "skip" or (mark.name == "skipif" and any(mark.args)) for mark in marks)


def _name(value: Any) -> str:
    return str(getattr(value, "__name__", value))


def turns(
    items: Iterable[T], values: Sequence[V], group: Callable[[T], object] = lambda item: None
) -> list[tuple[T, V]]:
    """Every item with a value, so that each group of items has all values: the next item of a group has the next value.

    A group with fewer items than values goes round again. By default the items are one group.
    """
    items = list(items)
    if EVERY:
        return list(product(items, values))
    groups: dict[object, list[int]] = {}
    for number, item in enumerate(items):
        groups.setdefault(group(item), []).append(number)
    rounds = [
        (members[turn % len(members)], turn % len(values))
        for members in groups.values()
        for turn in range(max(len(members), len(values)))
    ]
    return [(items[item], values[value]) for item, value in sorted(set(rounds))]


def first_of_each(items: Iterable[T], group: Callable[[T], object]) -> list[T]:
    """The first item of each group, where each group need only be seen once."""
    items = list(items)
    return items if EVERY else list({group(item): item for item in reversed(items)}.values())[::-1]


def some(examples: int) -> int:
    """The number of examples that hypothesis draws: a third, or all with LUCID_EVERY_COMBINATION."""
    return examples if EVERY else -(-examples // 3)
