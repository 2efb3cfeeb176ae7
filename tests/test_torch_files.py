"""Files of torch's are read without torch, as torch wrote them: both formats, all types, views, shards, folders."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lucid
from lucid.files.weights import NAMES, WeightsError, files_of
from tests.hostile import torch as hostile
from tests.models.goldens import folder as golden
from tests.models.test_adapters import pair, write

DATA = Path(__file__).parent / "data" / "torch_files"
KINDS = {
    "float32": "FloatStorage",
    "int64": "LongStorage",
    "bfloat16": "BFloat16Storage",
    "complex64": "ComplexFloatStorage",
}


def written(arrays: Mapping[str, Any], byteorder: str = "little") -> bytes:
    """Arrays in the format of torch 1.6 and later, as the format is described."""
    tensors, members = {}, {"x/byteorder": byteorder.encode()}
    for number, (name, array) in enumerate(arrays.items()):
        strides = tuple(int(np.prod(array.shape[axis + 1 :])) for axis in range(array.ndim))
        kind = hostile.name("torch", KINDS[array.dtype.name])
        tensors[name] = hostile.tensor(0, array.shape, strides, hostile.storage(f"s{number}", array.size, kind))
        members[f"x/data/s{number}"] = array.tobytes()
    return hostile.archive(hostile.state(**tensors), members)


@pytest.mark.parametrize("file", ["zip.bin", "old.bin"])
def test_every_tensor_is_as_torch_has_it(file: str) -> None:
    expected, loaded = lucid.load(DATA / "expected.safetensors"), lucid.load(DATA / file)
    assert file == "old.bin" or loaded.keys() == expected.keys()
    assert list(loaded)[:3] == ["0.weight", "0.bias", "1.weight"] and len(loaded) >= 27
    for name, array in loaded.items():
        assert array.dtype == expected[name].dtype and array.shape == expected[name].shape, name
        assert array.tobytes() == expected[name].tobytes(), name


@pytest.mark.parametrize("file", ["zip.bin", "old.bin"])
def test_nothing_is_copied_and_views_share_what_they_see(file: str) -> None:
    loaded = lucid.load(DATA / file)
    assert not any(array.flags.writeable or array.flags.owndata for array in loaded.values() if array.size)
    assert all(np.shares_memory(loaded["table"], loaded[name]) for name in ("tied", "transposed", "part", "last_row"))
    assert not np.shares_memory(loaded["table"], loaded["parameter"])


@pytest.mark.parametrize("order", ["little", "big"])
def test_the_order_of_the_bytes_is_that_of_the_machine_that_wrote_them(tmp_path: Path, order: str) -> None:
    arrays = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.array([1, -2, 1 << 40]),
        "c": np.array([1.5, -2], ml_dtypes.bfloat16),
        "d": np.array([1 + 2j], np.complex64),
    }
    stored = arrays if order == "little" else {name: reversed_bytes(array) for name, array in arrays.items()}
    (tmp_path / "w.bin").write_bytes(written(stored, order))
    assert_same(lucid.load(tmp_path / "w.bin"), arrays)


def reversed_bytes(array: Any) -> Any:
    return array.byteswap() if array.dtype.kind != "V" else array.view("u2").byteswap().view(array.dtype)


def assert_same(loaded: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    assert list(loaded) == list(expected)
    for name, array in expected.items():
        assert loaded[name].dtype == array.dtype and np.array_equal(loaded[name], array), name


def test_places_and_sizes_of_64_bits_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an archive of more than 4 GB."""
    monkeypatch.setattr("zipfile.ZIP64_LIMIT", 0)
    file = hostile.archive(hostile.state(a=hostile.tensor()))
    assert b"PK\6\7" in file and file.count(b"\xff" * 4) >= 2
    (tmp_path / "w.bin").write_bytes(file)
    assert_same(lucid.load(tmp_path / "w.bin"), {"a": np.arange(6, dtype=np.float32).reshape(2, 3)})


def test_a_damaged_file_is_an_error_or_reads_within_itself(tmp_path: Path) -> None:
    """Each byte of what describes the tensors is changed: nothing but WeightsError is raised, nothing else is read."""
    for whole in (hostile.archive(hostile.GOOD), hostile.old(hostile.GOOD)):
        for at in range(0, len(whole), 3):
            damaged = whole[:at] + bytes([whole[at] ^ (1, 255, 128)[at % 3]]) + whole[at + 1 :]
            (tmp_path / "w.bin").write_bytes(damaged)
            try:
                loaded = lucid.load(tmp_path / "w.bin")
            except WeightsError:
                continue
            assert sum(array.nbytes for array in loaded.values()) <= 24


# Folders --------------------------------------------------------------------------------------------------------------


def checkpoint(folder: Path, shards: int = 1) -> dict[str, Any]:
    """A checkpoint whose weights are in torch's files; returns them."""
    source = golden("tasks/bert_fill_mask")
    (folder / "config.json").write_bytes((source / "config.json").read_bytes())
    arrays = lucid.load(source)
    if shards == 1:
        (folder / "pytorch_model.bin").write_bytes(written(arrays))
        return arrays
    index = {}
    for shard in range(shards):
        own = dict(list(arrays.items())[shard::shards])
        (folder / f"pytorch_model-{shard}.bin").write_bytes(written(own))
        index |= dict.fromkeys(own, f"pytorch_model-{shard}.bin")
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": index}))
    return arrays


@pytest.mark.parametrize("shards", [1, 3])
def test_a_folder_with_torchs_files_alone_is_a_checkpoint(tmp_path: Path, shards: int) -> None:
    arrays = checkpoint(tmp_path, shards)
    assert lucid.load(tmp_path).keys() == arrays.keys()
    model, expected = lucid.models.load(tmp_path), lucid.models.load(golden("tasks/bert_fill_mask"))
    assert_same(*({name: value.numpy() for name, value in one.state_dict().items()} for one in (model, expected)))
    assert lucid.export.to_onnx(model).SerializeToString() == lucid.export.to_onnx(expected).SerializeToString()
    assert all(path.name.startswith("pytorch_model") for path in files_of(tmp_path))
    assert len(files_of(tmp_path)) == (1 if shards == 1 else 4)


def test_an_adapter_may_be_a_file_of_torchs_as_older_peft_wrote_it(tmp_path: Path) -> None:
    base = golden("llama/llama3")
    adapter = write(tmp_path / "adapter", pair("model.layers.0.self_attn.q_proj"))
    expected = lucid.models.load(base, adapters=adapter).state_dict()
    (adapter / "adapter_model.bin").write_bytes(written(lucid.load(adapter / "adapter_model.safetensors")))
    (adapter / "adapter_model.safetensors").unlink()
    weights = lucid.models.load(base, adapters=adapter).state_dict()
    assert_same(*({name: value.numpy() for name, value in one.items()} for one in (weights, expected)))


def test_safetensors_come_first_as_in_transformers(tmp_path: Path) -> None:
    checkpoint(tmp_path, 2)
    for name in reversed(NAMES):
        if name.endswith(".json"):
            text = {"weight_map": {name: f"{name}.1"}}
            (tmp_path / name).write_text(json.dumps(text))
            lucid.save(tmp_path / f"{name}.1", {name: np.ones(1)})
        else:
            lucid.save(tmp_path / name, {name: np.ones(1)})
        assert list(lucid.load(tmp_path)) == [name]


@pytest.mark.parametrize(
    ("pickled", "message"),
    [
        (hostile.state(model=hostile.DICT), "'model' is of type dict, expected the tensors of a state_dict by name"),
        (hostile.PROGRAMS["whole_module"], "the global 'torch.nn.modules.linear.Linear', expected tensors"),
        (hostile.state(a=hostile.SYSTEM), "the global 'os.system', expected tensors, their storages and dtypes only"),
    ],
)
def test_the_error_names_what_is_no_tensor_and_how_torch_writes_them(
    tmp_path: Path, pickled: bytes, message: str
) -> None:
    (tmp_path / "w.bin").write_bytes(hostile.archive(pickled))
    with pytest.raises(WeightsError) as caught:
        lucid.load(tmp_path / "w.bin")
    assert message in str(caught.value) and "torch.load(" in str(caught.value) and "save_file(" in str(caught.value)
