"""New heads for classes have transformers' names and deviation, and the other weights are as they were."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.models.checkpoints.config import ConfigError
from lucid.models.checkpoints.labels import head_names, write_with_labels
from tests.models import goldens

HEAD = {f"classification_head.{layer}.{kind}" for layer in ("dense", "out_proj") for kind in ("weight", "bias")}


@pytest.mark.parametrize(
    ("variant", "name", "prefix", "deviation"),
    [
        ("bart/base", "BartForSequenceClassification", "model.", 0.02),
        ("mbart/base", "MBartForSequenceClassification", "model.", 0.02),
        ("t5/v1_1", "T5ForSequenceClassification", "transformer.", 16**-0.5),
        ("mt5/base", "MT5ForSequenceClassification", "transformer.", 16**-0.5),
        ("umt5/base", "UMT5ForSequenceClassification", "transformer.", 16**-0.5),
    ],
)
def test_encoder_decoders_get_a_head(variant: str, name: str, prefix: str, deviation: float, tmp_path: Path) -> None:
    source = goldens.folder(variant)
    write_with_labels(source, ["a", "b", "c"], tmp_path)
    before, after = lucid.load(source), lucid.load(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [name]
    assert {key for key in after if not key.startswith(prefix)} == HEAD
    dropped = ("lm_head.weight", "final_logits_bias")
    kept = {prefix + key.removeprefix(prefix): array for key, array in before.items() if key not in dropped}
    assert {*after} - HEAD == {*kept}
    assert all(np.array_equal(after[key], array) for key, array in kept.items())
    dense = after["classification_head.dense.weight"]
    assert dense.std() == pytest.approx(deviation, rel=0.2) and not after["classification_head.dense.bias"].any()
    model: Any = lucid.models.load(tmp_path)
    assert head_names(model) == HEAD and model.config.num_labels == 3


@pytest.mark.parametrize(
    ("variant", "layer"),
    [
        ("tasks/bert_text_classification", "classifier"),
        ("tasks/roberta_text_classification", "classifier.out_proj"),
        ("tasks/distilbert_text_classification", "classifier"),
        ("tasks/llama_text_classification", "score"),
        ("bart/text_classification", "classification_head.out_proj"),
    ],
)
def test_a_head_for_other_labels_keeps_all_but_its_last_layer(variant: str, layer: str, tmp_path: Path) -> None:
    """As transformers does with `ignore_mismatched_sizes`, but also for as many labels with other names."""
    source = tmp_path / "source"
    shutil.copytree(goldens.folder(variant), source)
    options = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**options, "problem_type": "multi_label_classification"}))
    before = lucid.load(source)
    same = before[f"{layer}.weight"].shape[0]
    for count in (same, same + 1):
        (folder := tmp_path / str(count)).mkdir()
        write_with_labels(source, list("abcdefgh"[:count]), folder)
        after, config = lucid.load(folder), json.loads((folder / "config.json").read_text())
        assert after.keys() == before.keys() and "problem_type" not in config
        changed = {key for key, array in after.items() if not np.array_equal(array, before[key])}
        assert changed == {key for key in after if key.startswith(f"{layer}.")}
        model: Any = lucid.models.load(folder)
        assert model.config.num_labels == len(config["id2label"]) == count


def test_padding_that_a_config_leaves_out_stays_that_of_its_type(tmp_path: Path) -> None:
    """RoBERTa counts positions by it: with the end of a text in its place they would be others."""
    for name, kind, padding in (("roberta/base", "roberta", None), ("llama/llama2", "llama", 2)):
        (folder := tmp_path / kind).mkdir()
        source, target = copied(folder, name, "pad_token_id"), folder / "with_labels"
        target.mkdir()
        write_with_labels(source, ["a", "b"], target)
        assert json.loads((target / "config.json").read_text()).get("pad_token_id") == padding


def copied(folder: Path, variant: str, without: str) -> Path:
    """A copy of a golden checkpoint without an option."""
    target = folder / "source"
    shutil.copytree(goldens.folder(variant), target)
    options = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({key: value for key, value in options.items() if key != without}))
    return target


def test_a_type_without_such_a_class_in_transformers_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="model_type is 'marian', supported for text-classification .*: bart, mbart"):
        write_with_labels(goldens.folder("marian/base"), ["a", "b"], tmp_path)
