"""Every hostile weights file ends in a clear error, within a second and below 100 MB."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lucid.files import safetensors as weights
from tests.hostile import assert_refused, corpus

CASES = corpus("weights")


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_file_ends_in_a_clear_error(name, tmp_path):
    assert_refused(weights.load, CASES[name][1](tmp_path), weights.WeightsError)
    assert not (tmp_path / "EXECUTED").exists() and not Path("EXECUTED").exists()


def test_the_corpus_is_large():
    assert len(CASES) >= 60


@pytest.mark.parametrize("line", ["torch.load(", "save_file("])
@pytest.mark.parametrize("name", ["pickle_bin", "torch_zip", "folder_of_pickles", "index_shard_pickle"])
def test_a_pickle_is_refused_with_the_way_to_convert_it(name, line, tmp_path):
    with pytest.raises(weights.WeightsError, match=re.escape(line)):
        weights.load(CASES[name][1](tmp_path))
