"""`lucid train` makes the losses and the weights of torch, step by step; padding and batches change no loss."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import lucid
from tests.training_cases import CASES

pytest.importorskip("lucid.batch", reason="needs the extra batch", exc_type=ModuleNotFoundError)

from lucid.batch import TrainingOptions, fine_tune  # after the check

STORED = lucid.load(Path(__file__).parents[1] / "goldens" / "training.safetensors")


@pytest.mark.parametrize("case", CASES)
def test_each_step_has_the_loss_of_torch_and_the_last_its_weights(case: str, tmp_path: Path) -> None:
    """tools/make_training_goldens.py trains in torch, with transformers' schedules and groups of decay, and peft."""
    expected = {name.partition("/")[2]: array for name, array in STORED.items() if name.partition("/")[0] == case}
    source = CASES[case].source(tmp_path / "source")
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in CASES[case].rows), encoding="utf-8")
    history = fine_tune(source, rows, tmp_path / "out", TrainingOptions(**CASES[case].all_options))
    losses = expected.pop("losses")
    np.testing.assert_allclose([entry["train_loss"] for entry in history], losses, rtol=2e-5, atol=2e-5)
    (stored,) = (tmp_path / "out").glob("*.safetensors")
    found = lucid.load(stored)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        if name.endswith(("key.bias", "k_proj.bias")):
            continue  # scores of all keys change alike, so its gradient is rounding, of which AdamW makes whole steps
        np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=1e-4, err_msg=name)
