"""The page of torch's names is what its tool makes, and has an answer for each of them."""

from __future__ import annotations

import json

from tools.make_torch_names import COUNTS, INSTEAD, PAGE, PORTED, ROOMS, ours, page


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python tools/make_torch_names.py"


def test_every_name_has_an_answer() -> None:
    counts = json.loads(COUNTS.read_text(encoding="utf-8"))
    names = [(room, name) for room in ROOMS for name in counts[room]]
    assert len(names) > 190
    assert [pair for pair in names if ours(*pair) == "-"] == []


def test_what_is_written_instead_is_counted() -> None:
    counts = json.loads(COUNTS.read_text(encoding="utf-8"))
    assert all(name in counts[room] for room, names in INSTEAD.items() for name in names)


def test_most_modeling_files_of_transformers_run_with_their_imports_changed() -> None:
    stages = json.loads(PORTED.read_text(encoding="utf-8"))
    exact = sum(stage == "exact" for stage in stages.values())
    assert exact >= 220
    assert f"{exact} of {len(stages)} model types" in PAGE.read_text(encoding="utf-8")
