"""Every hostile weights file ends in a clear error, within a second and below 100 MB."""

from __future__ import annotations

from pathlib import Path

import pytest

from lucid.files import weights
from tests.hostile import assert_refused, torch
from tests.hostile import weights as hostile

CASES = hostile.CASES | torch.CASES


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_file_ends_in_a_clear_error(name, tmp_path):
    assert_refused(weights.load, CASES[name][1](tmp_path), weights.WeightsError)
    assert not (tmp_path / "EXECUTED").exists() and not Path("EXECUTED").exists()


def test_the_corpus_is_large():
    assert len(CASES) >= 200
