"""Checkpoints and inputs that do not fit: one message lists everything wrong, and nothing is loaded or computed."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import Tensor
from lucid.files.weights import WeightsError
from lucid.models.checkpoints import registry
from lucid.models.checkpoints.pretrained import ConfigError
from tests.combinations import first_of_each
from tests.models import goldens
from tests.models.zoo import ZOO, Entry, reader

_EACH = list({(entry.name, entry.read): entry for entry in reversed(ZOO)}.values())[::-1]
FIRST = first_of_each(_EACH, reader)
"""One checkpoint of each class."""

Damage = Callable[[Path], None]


@pytest.fixture(autouse=True, scope="module")
def _types_of_distributions_are_looked_for_once() -> Iterator[None]:
    """Each checkpoint of an unknown type would look through all that are installed several times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_entry_points", cache(registry._entry_points))
        yield


def named(entries: list[Entry]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("entry", entries, ids=lambda entry: entry.variant)


def read(entry: Entry, folder: Path) -> Any:
    return entry.read.from_pretrained(folder)  # type: ignore[attr-defined]


def copied(entry: Entry, folder: Path) -> Path:
    """A copy of the checkpoint in one file, which a test can damage."""
    target = folder / "model"
    target.mkdir()
    shutil.copy(goldens.folder(entry.variant) / "config.json", target)
    lucid.save(target / "model.safetensors", dict(lucid.load(goldens.folder(entry.variant))))
    return target


def ignored(entry: Entry, key: str) -> bool:
    """Whether a key of the checkpoint is of a part that the model does not have."""
    known = entry.read.checkpoint  # type: ignore[attr-defined]
    return any(re.search(pattern, known.renamed(key)) for pattern in known.ignored_keys)


# Keys -----------------------------------------------------------------------------------------------------------------


@named(FIRST)
def test_missing_extra_and_mis_shaped_keys_are_listed_at_once(entry: Entry, tmp_path: Path) -> None:
    folder = copied(entry, tmp_path)
    arrays = dict(lucid.load(folder))
    used = [key for key in arrays if ".0." in key and arrays[key].ndim and not ignored(entry, key)]  # of first layers
    missing, misshaped = used[0], used[-1]
    arrays["extra.weight"] = np.zeros(3, np.float32)
    arrays[misshaped] = np.zeros((1, 2, 3), np.float32)
    del arrays[missing]
    lucid.save(folder / "model.safetensors", arrays)
    with pytest.raises(KeyError) as caught:
        read(entry, folder)
    message = str(caught.value)
    assert "nothing loaded" in message
    assert "missing: " in message
    assert "extra.weight" in message
    assert "has shape [1, 2, 3], expected" in message


@named(FIRST)
def test_a_config_of_another_architecture_is_refused_by_name(entry: Entry, tmp_path: Path) -> None:
    folder = copied(entry, tmp_path)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": "mamba"}))
    with pytest.raises(ConfigError, match="option model_type is 'mamba', .*supported: "):
        read(entry, folder)


@named(FIRST)
def test_an_option_that_only_transformers_reads_is_refused_by_name(entry: Entry, tmp_path: Path) -> None:
    folder = copied(entry, tmp_path)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"per_layer_config": {"0": {"hidden_act": "relu"}}}))
    with pytest.raises(
        ConfigError,
        match="not supported here, so the results could be wrong: per_layer_config = .*--ignore-option per_",
    ):
        read(entry, folder)


# Files ----------------------------------------------------------------------------------------------------------------


def truncated(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4])


def too_long(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes() + b"\0\0\0\0")


def overlapping(folder: Path) -> None:
    path = folder / "model.safetensors"
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    second = sorted((entry["data_offsets"], name) for name, entry in header.items() if name != "__metadata__")[1][1]
    header[second]["data_offsets"] = [offset - 4 for offset in header[second]["data_offsets"]]
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


def index_to(target: str) -> Damage:
    def damage(folder: Path) -> None:
        keys = list(lucid.load(folder))
        (folder / "model.safetensors").rename(folder.parent / "outside.safetensors")
        text = json.dumps({"metadata": {}, "weight_map": dict.fromkeys(keys, target)})
        (folder / "model.safetensors.index.json").write_text(text)

    return damage


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02cos\nsystem\n.")


def pickle_by_another_name(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\x80\x04\x95cos\nsystem\n" + b"." * 40)


def gone(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


DAMAGES = [
    pytest.param(truncated, "ends at byte .* truncated", id="truncated"),
    pytest.param(too_long, "4 bytes after the last tensor, expected none", id="over-long"),
    pytest.param(overlapping, "overlaps", id="overlapping"),
    pytest.param(index_to("../outside.safetensors"), "expected a plain file name in the index's folder", id="index"),
    pytest.param(index_to("/etc/passwd"), "expected a plain file name in the index's folder", id="index to the root"),
    pytest.param(pickled, "pytorch_model.bin'.*only tensors by name are read; if you trust the file", id="pickle"),
    pytest.param(
        pickle_by_another_name,
        "model.safetensors'.*only tensors by name are read; if you trust the file",
        id="hidden pickle",
    ),
    pytest.param(gone, "found none of these; download the model's safetensors files", id="no weights"),
]


def refused(entry: Entry, damage: Damage, message: str, folder: Path) -> None:
    checkpoint = copied(entry, folder)
    damage(checkpoint)
    with pytest.raises(WeightsError, match=f"(?s){message}"):
        read(entry, checkpoint)


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_a_file_that_is_not_exactly_right_is_refused(damage: Damage, message: str, tmp_path: Path) -> None:
    refused(FIRST[0], damage, message, tmp_path)


@named(FIRST)
def test_no_model_reads_one_that_is_not_exactly_right(entry: Entry, tmp_path: Path) -> None:
    """Two ways for each model, the next two for the next."""
    for place in range(2):
        damage, message = DAMAGES[(2 * FIRST.index(entry) + place) % len(DAMAGES)].values
        folder = tmp_path / str(place)
        folder.mkdir()
        refused(entry, damage, message, folder)


@named(FIRST)
def test_a_folder_without_a_config_is_refused(entry: Entry, tmp_path: Path) -> None:
    folder = copied(entry, tmp_path)
    (folder / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        read(entry, folder)


# Inputs ---------------------------------------------------------------------------------------------------------------

WITH_IDS = [
    entry for entry in FIRST if {"input_ids", "decoder_input_ids"} & goldens.cases(entry.variant)[0].inputs.keys()
]


@named(WITH_IDS)
def test_a_token_outside_the_vocabulary_is_refused_eagerly(entry: Entry) -> None:
    model, case = entry.load(), goldens.cases(entry.variant)[0]
    names = case.inputs.keys() & {"input_ids", "decoder_input_ids", "token_type_ids"}
    for name, beyond in product(sorted(names), (-1, 10_000)):
        wrong = case.inputs[name].copy()
        wrong[0, 0] = beyond
        inputs = {key: Tensor(array) for key, array in (case.inputs | {name: wrong}).items()}
        with pytest.raises(IndexError, match=rf"indices range from .*{beyond}.*; the table has \d+ rows"):
            model(**inputs)


WITH_POSITIONS = [
    entry for entry in WITH_IDS if entry.name in ("BERT", "RoBERTa", "DistilBERT", "GPT-2", "CLIP", "SigLIP", "Whisper")
]


@named(WITH_POSITIONS)
def test_more_tokens_than_there_are_positions_are_refused(entry: Entry) -> None:
    model, case = entry.load(), goldens.cases(entry.variant)[0]
    name = "decoder_input_ids" if "decoder_input_ids" in case.inputs else "input_ids"
    inputs = {key: Tensor(array) for key, array in case.inputs.items()}
    inputs[name] = Tensor(np.full((1, 1000), 5))
    inputs.pop("attention_mask", None)
    inputs.pop("token_type_ids", None)
    with pytest.raises(ValueError, match=r"1000 (tokens|positions)"):
        model(**inputs)


def test_roberta_counts_positions_from_behind_the_padding_id() -> None:
    """So fewer tokens are possible than the table has rows; one more would be an index outside it."""
    (entry, *_) = [entry for entry in ZOO if entry.name == "RoBERTa"]
    model: Any = entry.load()
    rows, padding = model.config.max_positions, model.config.pad_token_id
    model(lucid.full((1, rows - padding - 1), 5, dtype=lucid.int64))
    with pytest.raises(IndexError, match="embedding: indices range from"):
        model(lucid.full((1, rows - padding), 5, dtype=lucid.int64))


@named([entry for entry in FIRST if entry.name in ("ViT", "DeiT", "CLIP", "SigLIP", "Whisper")])
def test_an_image_or_a_sound_of_another_size_is_refused(entry: Entry) -> None:
    model, case = entry.load(), goldens.cases(entry.variant)[0]
    name = "input_features" if "input_features" in case.inputs else "pixel_values"
    inputs = {key: Tensor(array) for key, array in case.inputs.items()}
    inputs[name] = inputs[name][..., :-1]
    with pytest.raises(ValueError, match=name):
        model(**inputs)
