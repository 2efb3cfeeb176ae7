"""The page of torch's names is what its tool makes, and has an answer for each of them."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
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


ADVICE = {  # with what torch's function gives
    "hardshrink": [-2.0, 0.0, 0.0, math.nan, 3.0],
    "softshrink": [-1.0, 0.0, 0.0, math.nan, 2.0],
    "threshold": [7.0, 7.0, 7.0, math.nan, 3.0],
    "lp_pool1d": [2.0, 4.0],
}


@pytest.mark.parametrize("name", ADVICE)
def test_what_is_to_write_gives_what_torch_does(name: str) -> None:
    with pytest.raises(AttributeError, match="write") as caught:
        getattr(F, name)
    code = str(caught.value).partition("write ")[2].partition(", count being")[0].replace("avg_pool2d", "avg_pool1d")
    x = lucid.tensor([-2.0, -0.5, 0.5, math.nan, 3.0])
    if name == "lp_pool1d":  # a sum of x ** p, whatever the sign of x
        x = lucid.tensor([[[1.0, 1.0, 5.0, -1.0]]])
    got = eval(code, {"lucid": lucid, "F": F, "x": x, "bound": 1, "value": 7, "p": 1, "size": 2, "count": 2})
    np.testing.assert_array_equal(got.numpy().reshape(-1), np.asarray(ADVICE[name], np.float32))


def test_signed_types_are_told_by_what_the_advice_says() -> None:
    with pytest.raises(AttributeError, match="write") as caught:
        lucid.is_signed  # noqa: B018
    code = str(caught.value).partition("write ")[2]
    signed = {name: eval(code, {"lucid": lucid, "x": lucid.zeros(2, dtype=name)}) for name in ("int8", "uint8", "bool")}
    assert signed == {"int8": True, "uint8": False, "bool": False}


def test_what_is_written_instead_is_counted() -> None:
    counts = json.loads(COUNTS.read_text(encoding="utf-8"))
    assert all(name in counts[room] for room, names in INSTEAD.items() for name in names)


def test_most_modeling_files_of_transformers_run_with_their_imports_changed() -> None:
    stages = json.loads(PORTED.read_text(encoding="utf-8"))
    exact = sum(stage == "exact" for stage in stages.values())
    assert exact >= 220
    assert f"{exact} of {len(stages)} model types" in PAGE.read_text(encoding="utf-8")
