"""The page of torch's names is what its tool makes, and has an answer for each of them."""

from __future__ import annotations

import json
import re

import pytest

import lucid
from tools.make_torch_names import COUNTS, INSTEAD, PAGE, PORTED, ROOMS, ours, page


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python tools/make_torch_names.py"


def test_every_name_has_an_answer() -> None:
    counts = json.loads(COUNTS.read_text(encoding="utf-8"))
    names = [(room, name) for room in ROOMS for name in counts[room]]
    assert len(names) > 190
    assert [pair for pair in names if ours(*pair) == "-"] == []


PUBLIC = json.loads(COUNTS.with_name("torch_public_names.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("place", PUBLIC)
def test_every_name_that_torch_documents_is_there_or_says_what_to_write(place: str) -> None:
    home, silent = eval(place), []
    if isinstance(home, type):
        home = lucid.zeros(2, 2)
    for name in PUBLIC[place].split():
        try:
            getattr(home, name)
        except AttributeError as error:
            advice = str(error).partition(" has no attribute ")[2].removeprefix(repr(name))
            if not re.match(": .{10}|; did you mean", advice):
                silent.append(name)
    assert silent == []
    assert len(PUBLIC[place].split()) > 15


def test_what_is_written_instead_is_counted() -> None:
    counts = json.loads(COUNTS.read_text(encoding="utf-8"))
    assert all(name in counts[room] for room, names in INSTEAD.items() for name in names)


def test_most_modeling_files_of_transformers_run_with_their_imports_changed() -> None:
    stages = json.loads(PORTED.read_text(encoding="utf-8"))
    exact = sum(stage == "exact" for stage in stages.values())
    assert exact >= 220
    assert f"{exact} of {len(stages)} model types" in PAGE.read_text(encoding="utf-8")
