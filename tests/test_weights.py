"""Weights files: arrays are loaded as they were saved, without copies, and a crash loses nothing."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lucid.files import atomic as files
from lucid.files import weights
from lucid.files.safetensors import DTYPES
from tests.combinations import some

ROOT = Path(__file__).parent.parent


def example(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "z.weight": rng.standard_normal((3, 5)).astype(np.float32),
        "flag": np.array([True, False, True]),
        "half": rng.standard_normal((2, 1, 3)).astype(np.float16),
        "brain": rng.standard_normal(7).astype(ml_dtypes.bfloat16),
        "scalar": np.array(3.5),
        "empty": np.zeros((0, 4), np.int64),
        'a.ünïcode "quoted"\n': np.arange(5, dtype=np.int8),
    }


def assert_same(got: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert list(got) == list(expected)
    for name, array in expected.items():
        assert (got[name].dtype, got[name].shape) == (array.dtype, array.shape), name
        assert got[name].tobytes() == array.tobytes(), name


def test_torch_s_arguments_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    weights.save(path, example())
    for named in ({"weights_only": True}, {"mmap": False, "map_location": "cpu"}, {"map_location": {"cuda:0": "cpu"}}):
        assert_same(weights.load(path, **named), example())  # type: ignore[arg-type]
    assert_same(weights.load(path, "cpu"), example())
    with pytest.raises(ValueError, match="load: device is 'cuda', but tensors have no device: leave it out"):
        weights.load(path, map_location="cuda")


def index(folder: Path, placed: dict[str, str], **more: object) -> Path:
    path = folder / weights.INDEX
    path.write_text(json.dumps({"metadata": {"total_size": 12}, "weight_map": placed, **more}, indent=2) + "\n")
    return path


# ---------------------------------------------------------------------------------------------- load and save


def test_what_is_saved_comes_back_in_its_order(tmp_path):
    weights.save(tmp_path / "w.safetensors", example(), {"format": "pt"})
    assert_same(weights.load(tmp_path / "w.safetensors"), example())


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_every_dtype_survives(tmp_path, dtype):
    arrays = {"x": np.arange(6).reshape(2, 3).astype(dtype)}
    weights.save(tmp_path / "w.safetensors", arrays)
    assert_same(weights.load(tmp_path / "w.safetensors"), arrays)


def test_arrays_are_read_only_aligned_views_of_the_file(tmp_path):
    weights.save(tmp_path / "w.safetensors", example())
    for array in weights.load(tmp_path / "w.safetensors").values():
        assert not array.flags.writeable and not array.flags.owndata and array.flags.aligned
    with pytest.raises(ValueError, match=r"read-only"):
        array[...] = 0


def test_strided_and_big_endian_arrays_are_written_by_value(tmp_path):
    base = np.arange(12, dtype=np.float32).reshape(3, 4)
    weights.save(tmp_path / "w", {"t": base.T, "step": base[:, ::2], "big": base.astype(">f4")})
    assert_same(weights.load(tmp_path / "w"), {"t": base.T.copy(), "step": base[:, ::2].copy(), "big": base})


def test_the_same_arrays_give_the_same_bytes_in_another_process(tmp_path):
    code = (
        "import sys, numpy as np; from lucid.files import weights;"
        "arrays = {c: np.full(3, i, np.float32) for i, c in enumerate('zebra')};"
        "weights.save(sys.argv[1], arrays, {'k': 'v', 'a': 'b'})"
    )
    for seed in "01":
        env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "-c", code, tmp_path / seed], check=True, env=env)
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes()


def test_a_file_may_be_saved_over_while_its_arrays_are_in_use(tmp_path):
    path = tmp_path / "w.safetensors"
    weights.save(path, example())
    old = weights.load(path)
    weights.save(path, {"x": np.zeros(1)})
    assert_same(old, example())


def test_a_file_without_tensors_is_a_file(tmp_path):
    weights.save(tmp_path / "w", {})
    assert weights.load(tmp_path / "w") == {}


SHAPES = st.lists(st.integers(0, 4), max_size=4)
KINDS = st.sampled_from([d for c, d in DTYPES.items() if not c.startswith(("F8", "BF"))])


@settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), st.tuples(SHAPES, KINDS)))
def test_the_library_reads_our_files_and_we_read_its(tmp_path, described):
    described.pop("__metadata__", None)
    rng = np.random.default_rng(0)
    arrays = {k: rng.integers(0, 2, shape).astype(dtype) for k, (shape, dtype) in described.items()}
    weights.save(tmp_path / "ours", arrays, {"format": "np", "ü": '"{[,\\'})
    theirs = safetensors.numpy.load_file(tmp_path / "ours")
    assert_same({name: theirs[name] for name in arrays}, arrays)
    safetensors.numpy.save_file(arrays, tmp_path / "theirs", {"format": "np", "ü": '"{[,\\'})
    ours = weights.load(tmp_path / "theirs")
    assert_same({name: ours[name] for name in arrays}, arrays)


@settings(derandomize=True, deadline=None, max_examples=some(500))
@given(st.data())
def test_whatever_we_accept_of_a_damaged_file_the_library_reads_alike(tmp_path_factory, data):
    arrays = {
        "a": np.arange(6, dtype=np.int16).reshape(2, 3),
        "b": np.ones(2, bool),
        "c": np.zeros((0, 2), "f4"),
    }
    damaged = bytearray(safetensors.numpy.save(arrays, {"k": "v"}))
    at = data.draw(st.integers(0, len(damaged) - 1))
    damaged[at : at + data.draw(st.integers(0, 2))] = data.draw(
        st.sampled_from([b"", b"0", b"1", b"9", b"-", b'"', b",", b"]", b"}", b" ", b"\\", b"I8", b"\xff", b"\x00"])
    )
    path = tmp_path_factory.mktemp("damaged") / "w"
    path.write_bytes(damaged)
    try:
        ours = weights.load(path)
    except weights.WeightsError:
        return
    theirs = safetensors.numpy.load_file(path)
    assert_same({name: theirs[name] for name in ours}, ours)


def test_why_the_library_does_not_read_for_us(tmp_path):
    """Known differences from the safetensors library; when one disappears, this test says so."""
    path = tmp_path / "w"
    weights.save(path, {"flag": np.array([True, False])})
    path.write_bytes(path.read_bytes()[:-1] + b"\x02")
    assert safetensors.numpy.load_file(path)["flag"].view(np.uint8)[1] == 2
    with pytest.raises(weights.WeightsError, match="neither 0 nor 1"):
        weights.load(path)
    assert safetensors.numpy.load_file(path)["flag"].flags.writeable, "a copy"


@pytest.mark.parametrize(
    "name, array, error",
    [
        ("x", np.zeros(2, "O"), weights.WeightsError),
        ("x", np.zeros(2, np.complex128), weights.WeightsError),
        ("x", np.zeros(2, "U3"), weights.WeightsError),
        ("x", [1.0], TypeError),
        (3, np.zeros(1), TypeError),
        ("__metadata__", np.zeros(1), weights.WeightsError),
        ("n" * 5000, np.zeros(1), weights.WeightsError),
        ("\ud800", np.zeros(1), weights.WeightsError),
    ],
)
def test_what_the_format_cannot_hold_is_refused_before_anything_is_written(tmp_path, name, array, error):
    with pytest.raises(error, match=r"save: "):
        weights.save(tmp_path / "w", {name: array})
    assert os.listdir(tmp_path) == []


def test_metadata_may_hold_json_as_text(tmp_path):
    text = json.dumps({"tags": [{"a, b": [1.5, None, "]}"]}] * 100_000})
    weights.save(tmp_path / "w", {"a": np.ones(2)}, {"tags": text})
    assert_same(weights.load(tmp_path / "w"), {"a": np.ones(2)})


def test_metadata_is_text(tmp_path):
    with pytest.raises(TypeError, match=r"expected only strings"):
        weights.save(tmp_path / "w", {}, {"step": 3})


# ----------------------------------------------------------------------------------------- folders and shards


def test_a_folder_is_loaded_by_its_file_or_its_index(tmp_path):
    weights.save(tmp_path / weights.SINGLE, example())
    assert_same(weights.load(tmp_path), example())


def test_shards_come_together_in_the_order_of_the_index(tmp_path):
    weights.save(tmp_path / "1.safetensors", {"a": np.zeros(1), "c": np.ones(2)})
    weights.save(tmp_path / "2.safetensors", {"b": np.full(3, 2.0)})
    expected = {"c": np.ones(2), "b": np.full(3, 2.0), "a": np.zeros(1)}
    path = index(tmp_path, {"c": "1.safetensors", "b": "2.safetensors", "a": "1.safetensors"})
    assert_same(weights.load(tmp_path), expected)
    assert_same(weights.load(path), expected)


def test_the_links_of_a_hub_cache_are_inside(tmp_path):
    revision, blobs = tmp_path / "snapshots" / "abc", tmp_path / "blobs"
    revision.mkdir(parents=True), blobs.mkdir()
    weights.save(blobs / "0123", {"a": np.ones(2)})
    (revision / "1.safetensors").symlink_to("../../blobs/0123")
    index(revision, {"a": "1.safetensors"})
    assert_same(weights.load(revision), {"a": np.ones(2)})


def test_a_folder_without_weights_says_what_it_holds(tmp_path):
    with pytest.raises(weights.WeightsError, match=r"found none of these; download"):
        weights.load(tmp_path)
    for file in (tmp_path / "onnx" / "model_q4.onnx", tmp_path / "model.onnx"):
        file.parent.mkdir(exist_ok=True), file.touch()
        with pytest.raises(weights.WeightsError, match=r"; its ONNX files are an export, .*; give the checkpoint that"):
            weights.load(tmp_path)
        file.unlink()
    weights.save(tmp_path / "adapter.safetensors", {})
    with pytest.raises(weights.WeightsError, match=r"adapter.safetensors"):
        weights.load(tmp_path)


def test_a_missing_file_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file .*w.safetensors'; check the path"):
        weights.load(tmp_path / "w.safetensors")


def test_a_strangers_name_comes_escaped_into_the_message(tmp_path):
    index(tmp_path, {"a": "\x1b[31m/evil"})
    with pytest.raises(weights.WeightsError) as caught:
        weights.load(tmp_path)
    assert "\x1b" not in str(caught.value) and "\\x1b[31m/evil" in str(caught.value)


# --------------------------------------------------------------------------------------------- atomic writing


def test_an_error_inside_the_block_leaves_the_earlier_file_alone(tmp_path):
    path = tmp_path / "model"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), files.write_atomically(path) as file:
        file.write(b"new")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["model"]


def test_an_interrupt_before_the_block_begins_leaves_nothing(tmp_path, monkeypatch):
    """Ctrl-C may come at any moment: here just after the temporary file was made."""

    def interrupted(file):
        file.close()
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "_lock", interrupted)
    with pytest.raises(KeyboardInterrupt), files.write_atomically(tmp_path / "model"):
        pass
    assert os.listdir(tmp_path) == []


def test_a_killed_writer_leaves_the_earlier_file_and_the_next_one_cleans_up(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")
    code = (
        "import os, signal, sys; from lucid.files import atomic as files\n"
        "with files.write_atomically(sys.argv[1]) as f:\n"
        "    f.write(b'x' * 100000); f.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, path], env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False)
    leftovers = [name for name in os.listdir(tmp_path) if name != "model.onnx"]
    assert len(leftovers) == 1 and leftovers[0].startswith(".model.onnx.") and leftovers[0].endswith(".lucid-tmp")
    assert path.read_bytes() == b"old"
    with files.write_atomically(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new" and os.listdir(tmp_path) == ["model.onnx"]


def test_two_writers_at_once_do_not_take_each_other_for_dead(tmp_path):
    path = tmp_path / "model"
    with files.write_atomically(path) as first, files.write_atomically(path) as second:
        first.write(b"first")
        second.write(b"second")
    assert path.read_bytes() == b"first" and os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_explained(tmp_path, code):
    full = pytest.raises(OSError, match=r"cannot write .*model: .*free some space")
    with full as caught, files.write_atomically(tmp_path / "model"):
        raise OSError(code, os.strerror(code))
    assert caught.value.errno == code and os.listdir(tmp_path) == []


def test_a_really_full_disk_leaves_the_earlier_file(tmp_path):
    resource = pytest.importorskip("resource")
    path = tmp_path / "model"
    weights.save(path, {"old": np.ones(3)})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        with pytest.raises(OSError, match=r"cannot write .*model: .*full.*unchanged"):
            weights.save(path, {"new": np.zeros(1 << 16)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert_same(weights.load(path), {"old": np.ones(3)})
    assert os.listdir(tmp_path) == ["model"]


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"the folder .*nowhere does not exist; create it first"):
        weights.save(tmp_path / "nowhere" / "w.safetensors", {})


@pytest.mark.parametrize("make, error", [(Path.mkdir, "is a folder"), (os.mkfifo, "not a regular file")])
def test_only_a_file_can_be_replaced(tmp_path, make, error):
    make(tmp_path / "taken")
    with pytest.raises(OSError, match=f"cannot write .*taken: .*{error}"):
        weights.save(tmp_path / "taken", {})


def test_missing_permission_is_explained(tmp_path, monkeypatch):
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(files, "open", refused, raising=False)  # root can write anywhere
    with pytest.raises(PermissionError, match=r"cannot write .*model: no permission .*choose another folder"):
        weights.save(tmp_path / "model", {})


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write to protected files")
def test_a_write_protected_file_stays(tmp_path):
    (tmp_path / "model").write_bytes(b"old")
    (tmp_path / "model").chmod(0o444)
    with pytest.raises(PermissionError, match=r"write-protected"):
        weights.save(tmp_path / "model", {})


def test_permissions_stay_and_a_link_is_replaced_not_followed(tmp_path):
    (tmp_path / "model").write_bytes(b"old")
    (tmp_path / "model").chmod(0o640)
    weights.save(tmp_path / "model", {})
    assert (tmp_path / "model").stat().st_mode & 0o777 == 0o640
    (tmp_path / "link").symlink_to("model")
    before = (tmp_path / "model").read_bytes()
    weights.save(tmp_path / "link", {"x": np.ones(1)})
    assert not (tmp_path / "link").is_symlink() and (tmp_path / "model").read_bytes() == before


def test_a_long_name_fits(tmp_path):
    path = tmp_path / ("n" * 251 + ".bin")
    with files.write_atomically(path) as file:
        file.write(b"1")
    assert path.read_bytes() == b"1"
