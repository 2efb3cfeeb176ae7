"""The suite's random models find every planted fault. `finds.json` has the model that found each; if it no longer does,
all are searched, and `python -m tools.planted_faults --record` stores the new ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fuzz.planted import FAULTS
from tests.fuzz.planting import Fault, failure, found_by
from tests.fuzz.suite import MODELS

FINDS = json.loads((Path(__file__).parent / "finds.json").read_text(encoding="utf-8"))


def test_there_are_thirty_and_each_has_a_name_of_its_own() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(names) >= 30
    assert len(set(names)) == len(names)
    assert set(FINDS) <= set(names)


@pytest.mark.parametrize("planted", FAULTS, ids=lambda fault: fault.name)
def test_random_models_find(planted: Fault) -> None:
    first = [FINDS[planted.name]] if planted.name in FINDS else []
    assert any(found_by(planted, number) for number in [*first, *range(MODELS)])


def test_nothing_stays_planted() -> None:
    assert not any(failure(number) for number in range(3))
