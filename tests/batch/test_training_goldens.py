"""`lucid train` makes the losses and the weights of torch, step by step; padding and batches change no loss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from tests.batch.rows import write_rows
from tests.layout_checkpoints import whole
from tests.training_cases import CASES

pytest.importorskip("lucid.batch", reason="needs the extra batch", exc_type=ModuleNotFoundError)

from lucid.batch import TrainingOptions, fine_tune  # after the check
from lucid.batch.texts import TextReader
from lucid.batch.training_tasks import Classification, Columns, Generation, Labels, Similarity, TrainingTask
from lucid.generation.chat import load_tokenizer

TASKS = {  # by the rows that they learn: a checkpoint, and the columns
    "text-classification": ("tasks/bert_text_classification", Columns(("text",), "label")),
    "classes of a decoder": ("tasks/llama_text_classification", Columns(("text",), "label")),
    "sentence-similarity": ("sentences/cls", Columns(("sentence1", "sentence2"), "score")),
    "text-generation": ("llama/llama3", Columns(("prompt", "completion"), None)),
}
PAIRS = [("a", "b"), ("bcdefgh", "h"), ("cde", "defg"), ("fg", "abfg"), ("hijklmn", "hij")]
STORED = lucid.load(Path(__file__).parents[1] / "goldens" / "training.safetensors")


@pytest.mark.parametrize("case", CASES)
def test_each_step_has_the_loss_of_torch_and_the_last_its_weights(case: str, tmp_path: Path) -> None:
    """tools/goldens/training.py trains in torch, with transformers' schedules and groups of decay, and peft."""
    expected = {name.partition("/")[2]: array for name, array in STORED.items() if name.partition("/")[0] == case}
    source = CASES[case].source(tmp_path / "source")
    rows = write_rows(tmp_path / "rows.jsonl", CASES[case].rows)
    history = fine_tune(source, rows, tmp_path / "out", TrainingOptions(**CASES[case].all_options))
    losses = expected.pop("losses")
    np.testing.assert_allclose([entry["train_loss"] for entry in history], losses, rtol=2e-5, atol=2e-5)
    (stored,) = (tmp_path / "out").glob("*.safetensors")
    weights = lucid.load(stored)
    assert weights.keys() == expected.keys()
    for name, array in expected.items():
        if name.endswith(("key.bias", "k_proj.bias")):
            continue  # scores of all keys change alike, so its gradient is rounding, of which AdamW makes whole steps
        np.testing.assert_allclose(weights[name], array, rtol=1e-3, atol=1e-4, err_msg=name)


def opened(name: str, folder: Path) -> tuple[TrainingTask, list[Any]]:
    """A task and its examples of `PAIRS`."""
    variant, columns = TASKS[name]
    source = whole(folder, variant)
    model: Any = lucid.models.load(source)
    tokenizer = load_tokenizer(source)
    if name == "text-generation":
        task: TrainingTask = Generation(model, tokenizer, columns, 40)
    else:
        config = json.loads((source / "config.json").read_text())
        reader = TextReader(tokenizer, config, tuple(model.input_specs()), None, 100)
        labels = Labels(["0", "1", "2"], "the data")
        similar = name == "sentence-similarity"
        task = Similarity(model, reader, columns) if similar else Classification(model, reader, labels)
    numbers = [] if columns.label is None else [1]
    return task, [task.example([*pair[: len(columns.texts)], *numbers]) for pair in PAIRS]


def results(task: TrainingTask, examples: list[Any]) -> dict[str, Any]:
    arrays = {name: lucid.tensor(array) for name, array in task.batch(examples).items()}
    return {name: value.numpy() for name, value in task.results(**arrays).items()}


@pytest.mark.parametrize("name", TASKS)
def test_neither_padding_nor_the_division_into_batches_changes_a_loss(name: str, tmp_path: Path) -> None:
    """The loss of all rows is the mean over what is counted, tokens of a decoder, of ragged batches' losses."""
    task, examples = opened(name, tmp_path / "source")
    together = results(task, examples)
    for size in (1, 2, 3):
        parts = [results(task, examples[first : first + size]) for first in range(0, len(examples), size)]
        losses, counts = ([float(part[key]) for part in parts] for key in ("loss", "counted"))
        assert float(np.average(losses, weights=counts)) == pytest.approx(float(together["loss"]), rel=2e-5)
        assert sum(counts) == float(together["counted"])
        np.testing.assert_allclose(np.concatenate([part["found"] for part in parts]), together["found"], atol=1e-5)
