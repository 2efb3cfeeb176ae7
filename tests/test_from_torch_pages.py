"""The pages of what goes through `lucid.from_torch` are what their records say, and runs renew single rows."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tools.from_torch_pages import PAGES, ROOT, TYPES, types_page
from tools.records import Records


@pytest.mark.parametrize("name", PAGES)
def test_the_pages_are_current(name: str) -> None:
    path, page = PAGES[name]
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert page(Records(path)) == text, "run python -m tools.from_torch_pages"


@pytest.mark.parametrize("name", PAGES)
def test_every_record_has_its_day_and_releases(name: str) -> None:
    records = [record for row in Records(PAGES[name][0]).rows.values() for record in row.values()]
    assert records and all(len(record["date"]) == 10 and record["releases"]["torch"] for record in records)


def test_a_run_renews_its_rows_alone(tmp_path: Path) -> None:
    path = tmp_path / "records.json"
    old = {"date": "2026-01-02", "releases": {"numpy": "1.0"}, "nodes": 3}
    path.write_text(json.dumps({"a": {"lucid": old, "times": old}, "b": {"lucid": old}}), encoding="utf-8")
    first, second = Records(path), Records(path)
    first.renew("a", "lucid", {"eager": 1 / 3, "nodes": {"torch": 4}}, ["numpy"])
    second.renew("c", "lucid", {"nodes": 5}, ["numpy"])  # by another run, which read the file before
    rows = Records(path).rows
    assert rows["b"] == {"lucid": old} and rows["a"]["times"] == old and rows["c"]["lucid"]["nodes"] == 5
    new = rows["a"]["lucid"]
    assert new["eager"] == 0.333 and new["nodes"] == {"torch": 4} and new["date"] > old["date"]
    assert new["releases"]["numpy"] != "1.0"
    assert path.read_text(encoding="utf-8").count("\n") == 5  # a row a line


def test_the_oldest_rows_come_first_and_those_without_a_record_before_them(tmp_path: Path) -> None:
    records = Records(tmp_path / "records.json")
    records.rows = {name: {"lucid": {"date": f"2026-01-0{day}"}} for name, day in (("a", 3), ("b", 1), ("c", 2))}
    assert records.chosen("lucid", "abcd", [], 3) == ["d", "b", "c"]
    assert records.chosen("times", "abcd", [], 2) == ["a", "b"]
    assert records.chosen("lucid", "abcd", ["c"], 0) == ["c"]
    assert records.days("lucid") == "2026-01-01 to 2026-01-03"
    with pytest.raises(ValueError, match="^no rows e; expected some of a, b, c, d$"):
        records.chosen("lucid", "abcd", ["a", "e"], 0)


def changed(row: str, measurement: str, **figures: Any) -> str:
    """The page of types where a record has other figures."""
    records = Records(TYPES)
    records.rows = copy.deepcopy(records.rows)
    records.rows[row][measurement] |= figures
    return types_page(records)


def test_what_is_worse_than_torchs_is_named() -> None:
    assert "`bert` (2.00)" not in types_page(Records(TYPES))
    twice = 2 * Records(TYPES).rows["bert"]["torch_onnx"]["nodes"]
    assert "`bert` (2.00)" in changed("bert", "lucid", nodes=twice)
    assert "slower by more than 5 %: `bert`. " in changed("bert", "times", torch=1.06)
    assert "torch.onnx alone passes bert" in changed("bert", "lucid", stage="differs")
    assert "| `bert` | yes | differs: at 1e-3 | | | | 2030-01-01 |" in changed(
        "bert", "lucid", stage="differs", error="at 1e-3", date="2030-01-01"
    )
