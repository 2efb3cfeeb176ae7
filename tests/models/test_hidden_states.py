"""The states between layers compared with transformers, and options as releases before transformers 5 spell them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import lucid
from lucid import Tensor
from tests.models import goldens
from tests.models.zoo import ZOO, Entry

MODELS = [entry for entry in ZOO if not entry.is_head]
WITH_STATES = [
    entry
    for entry in MODELS
    if hasattr(entry.read, "hidden_states")
    and not entry.variant.startswith(("sentences/", "albert/", "smolvlm/", "idefics3/"))
    and entry.variant != "deberta/content_to_position"  # transformers lists the first state before its convolution
]
OLDER = [entry for entry in MODELS if (goldens.folder(entry.variant) / "legacy_config.json").exists()]


@pytest.mark.parametrize("entry", WITH_STATES, ids=lambda entry: entry.variant)
def test_hidden_states_are_those_of_transformers(entry: Entry) -> None:
    model: Any = entry.shared()
    for case in goldens.cases(entry.variant):
        inputs = {name: Tensor(array) for name, array in case.inputs.items() if name != "position_ids"}
        states = model.hidden_states(**inputs)
        assert len(states) == len([name for name in case.outputs if name.startswith("hidden_states.")])
        for index, state in enumerate(states):
            case.close(f"hidden_states.{index}", state, rtol=1e-5)


@pytest.mark.parametrize("entry", OLDER, ids=lambda entry: entry.variant)
def test_both_spellings_of_a_config_mean_the_same(entry: Entry, tmp_path: Path) -> None:
    model: Any = entry.shared()
    folder = shutil.copytree(goldens.folder(entry.variant), tmp_path / "model")
    (folder / "legacy_config.json").replace(folder / "config.json")
    older: Any = lucid.models.load(folder, model.task)
    assert older.config == model.config
