"""Loading weights into a model: from one file or shards, in any float type, and without unnecessary copies."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lucid
from lucid.export import to_onnx
from lucid.models.llama import Llama
from lucid.runtime import Session
from tests.combinations import first_of_each, turns
from tests.models import goldens
from tests.models.zoo import ZOO, Entry, reader

FIRST = list({(entry.name, entry.read): entry for entry in reversed(ZOO)}.values())[::-1]


def named(entries: list[Entry]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("entry", entries, ids=lambda entry: entry.variant)


def read(entry: Entry, folder: Path) -> Any:
    return entry.read.from_pretrained(folder)  # type: ignore[attr-defined]


def stored(entry: Entry) -> dict[str, np.ndarray[Any, Any]]:
    return dict(lucid.load(goldens.folder(entry.variant)))


@named(first_of_each(FIRST, reader))
def test_shards_give_the_same_model(entry: Entry, tmp_path: Path) -> None:
    shutil.copy(goldens.folder(entry.variant) / "config.json", tmp_path)
    arrays = stored(entry)
    placed = {key: f"model-{index % 3 + 1:05}-of-00003.safetensors" for index, key in enumerate(arrays)}
    for shard in set(placed.values()):
        lucid.save(tmp_path / shard, {key: array for key, array in arrays.items() if placed[key] == shard})
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": placed}))
    state, expected = read(entry, tmp_path).state_dict(), entry.load().state_dict()
    assert state.keys() == expected.keys()
    for key in state:
        np.testing.assert_array_equal(state[key], expected[key])


@named(FIRST)
def test_arrays_of_the_files_are_used_without_a_copy(entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = lucid.load(goldens.folder(entry.variant))
    monkeypatch.setattr(lucid, "load", lambda folder: arrays)
    single = any(re.search(r"\.experts\.\d+\.", key) for key in arrays)
    for key, tensor in entry.load().state_dict().items():
        shared = any(np.shares_memory(tensor.numpy(), array) for array in arrays.values())
        assert shared != (single and ".experts." in key), key  # single experts are joined, in an array of their own


@pytest.mark.parametrize(
    ("entry", "half"),
    turns(first_of_each(FIRST, reader), [lucid.float16, lucid.bfloat16]),
    ids=lambda value: value.variant if isinstance(value, Entry) else str(value),
)
def test_a_checkpoint_in_half_precision_becomes_float32_and_stays_half_where_asked(
    entry: Entry, half: lucid.DType, tmp_path: Path
) -> None:
    shutil.copytree(goldens.folder(entry.variant), tmp_path, dirs_exist_ok=True)
    lucid.save(tmp_path / "model.safetensors", {key: a.astype(half.numpy) for key, a in stored(entry).items()})
    model, exact = read(entry, tmp_path), entry.load().state_dict()
    for key, parameter in model.named_parameters():
        original = exact[key].numpy()
        assert parameter.dtype == lucid.float32
        np.testing.assert_array_equal(parameter, original.astype(half.numpy).astype(np.float32))
    kept = entry.read.from_pretrained(tmp_path, dtype="auto")  # type: ignore[attr-defined]
    model.to(half)
    for same in (kept, model):
        assert {parameter.dtype for parameter in same.parameters()} == {half}
    (case, *_) = goldens.cases(entry.variant)
    floats = {n: a.astype(half.numpy) if a.dtype == np.float32 else a for n, a in case.inputs.items()}
    answer = model(**{name: lucid.Tensor(array) for name, array in floats.items()})
    for name, output in zip(entry.outputs, answer if isinstance(answer, tuple) else (answer,), strict=True):
        assert output.dtype == half
        expected = case.outputs[name]
        error = np.abs(output.numpy().astype(np.float64) - expected).max() / np.abs(expected).max()
        assert error < (0.02 if half == lucid.float16 else 0.15), name


@pytest.mark.parametrize(
    "entry", [e for e in FIRST if e.name in ("BERT", "GPT-2", "T5", "ViT")], ids=lambda e: e.variant
)
def test_a_model_in_half_precision_is_exported_with_half_the_bytes(entry: Entry) -> None:
    exported = to_onnx(entry.load().to(lucid.float16))
    kinds = {t.data_type for t in exported.graph.initializer if "constant" not in t.name}
    assert kinds == {10}  # TensorProto.FLOAT16
    (case, *_) = goldens.cases(entry.variant)
    session = Session(exported)
    arrays = goldens.as_exported(case.inputs, session.inputs)
    feeds = {n: a.astype(np.float16) if a.dtype == np.float32 else a for n, a in arrays.items() if n in session.inputs}
    (output,) = session.run(feeds).values()
    expected = case.outputs[entry.outputs[0]]
    assert np.abs(output - expected).max() < 0.02 * np.abs(expected).max()


def test_llama_keeps_the_type_of_its_files_where_asked_and_copies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = lucid.load(goldens.folder("llama/bfloat16_sharded"))
    assert {array.dtype for array in arrays.values()} == {np.dtype(ml_dtypes.bfloat16)}
    monkeypatch.setattr(lucid, "load", lambda folder: arrays)
    llama = Llama.from_pretrained(goldens.folder("llama/bfloat16_sharded"), dtype=lucid.bfloat16)
    for key, parameter in llama.named_parameters():
        assert np.shares_memory(parameter.numpy(), arrays[key])
    names = {tensor.name.removesuffix(".T") for tensor in to_onnx(llama).graph.initializer}
    assert set(arrays) <= names
