"""What an export replaces and what it writes into, and who can read a file while it is written."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from lucid import nn
from lucid.export import ExportError, to_onnx
from lucid.files import atomic as files
from lucid.files import weights
from tests.test_reliability import names_in

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX modes and devices")
Writing = Callable[[Path], None]


def test_a_model_goes_through_a_pipe_as_it_goes_to_a_file(tmp_path: Path) -> None:
    pipe, model = tmp_path / "pipe", nn.Linear(64, 64)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        returned = to_onnx(model, ("N", 64), path=pipe)
        data = os.read(reader, 1 << 16)  # a pipe holds as much, and the model is smaller
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert onnx.load_from_string(data) == returned == to_onnx(model, ("N", 64))


def test_what_went_through_a_pipe_is_never_referred_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucid.export.onnx_file.writer.HELD", 100)
    returned = to_onnx(nn.Linear(64, 64), ("N", 64), path="/dev/null")
    assert all(tensor.raw_data for tensor in returned.graph.initializer)


def test_a_pipe_that_nobody_reads_is_an_error_and_no_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match=r"cannot write .*pipe: the pipe has no reader"):
        to_onnx(nn.Linear(8, 8), ("N", 8), path=tmp_path / "pipe")


@pytest.mark.parametrize("link", [False, True], ids=["itself", "through a link"])
def test_a_device_stays_a_device(link: bool, tmp_path: Path) -> None:
    before, path = os.stat("/dev/null"), Path("/dev/null")
    if link:
        path = tmp_path / "null"
        path.symlink_to("/dev/null")
    to_onnx(nn.Linear(8, 8), ("N", 8), path=path)
    after = os.stat("/dev/null")
    assert stat.S_ISCHR(after.st_mode) and after.st_rdev == before.st_rdev
    assert path.is_symlink() is link


@pytest.mark.parametrize("to", ["file", "pipe", "nothing"])
def test_the_name_of_a_descriptor_is_never_replaced(to: str, tmp_path: Path) -> None:
    """/dev/stdout is such a link; as root, an export replaced it when the output went to a file."""
    name = tmp_path / "stdout"
    ends = (os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT | os.O_APPEND),) if to == "file" else os.pipe()
    (tmp_path / "fd").symlink_to(f"/proc/self/fd/{ends[-1]}")
    name.symlink_to("fd")
    try:
        if to == "nothing":
            for end in ends:
                os.close(end)
            ends = ()
            with pytest.raises(FileNotFoundError):
                to_onnx(nn.Linear(8, 8), ("N", 8), path=name)
        else:
            os.write(ends[-1], b"before")
            exported = to_onnx(nn.Linear(8, 8), ("N", 8), path=name)
            got = (tmp_path / "out").read_bytes() if to == "file" else os.read(ends[0], 1 << 16)
            assert got.startswith(b"before"), "written after what was there"
            assert onnx.load_from_string(got.removeprefix(b"before")) == exported
    finally:
        for end in ends:
            os.close(end)
    assert name.is_symlink() and (tmp_path / "fd").is_symlink()


def test_weights_beside_a_pipe_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(ExportError, match="is a pipe or device, which has no separate file of weights"):
            to_onnx(nn.Linear(8, 8), ("N", 8), path=path, external_data=True)
    assert names_in(tmp_path) == ["pipe"]


def test_other_writers_refuse_what_is_no_file(tmp_path: Path) -> None:
    """A safetensors file must be mappable."""
    (tmp_path / "stdout").symlink_to("/proc/self/fd/1")
    os.mkfifo(tmp_path / "pipe")
    for name in ("stdout", "pipe"):
        with pytest.raises(OSError, match=f"cannot write .*{name}: not a regular file"):
            weights.save(tmp_path / name, {"x": np.ones(1)})
    assert names_in(tmp_path) == ["pipe", "stdout"]
    assert (tmp_path / "stdout").is_symlink()


# Who may read it --------------------------------------------------------------------------------------------------


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=["umask 000", "umask 022", "umask 077"])
def umask(request: pytest.FixtureRequest):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.parametrize("mode", [None, 0o600, 0o640, 0o664, 0o444, 0o604])
def test_while_it_is_written_nobody_may_do_more_than_with_the_file(
    mode: int | None, umask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mode is not None and not mode & 0o200 and os.geteuid():
        pytest.skip("only root replaces a write-protected file")
    path = tmp_path / "model"
    if mode is not None:
        path.write_bytes(b"old")
        path.chmod(mode)
    permissions = 0o666 & ~umask if mode is None else mode
    seen: list[int] = []

    def note() -> None:
        seen.extend(stat.S_IMODE(entry.stat().st_mode) for entry in os.scandir(tmp_path) if entry.name != "model")

    for step in ("fsync", "replace", "chmod", "fchmod", "fchown"):
        real = getattr(os, step)
        monkeypatch.setattr(os, step, lambda *args, real=real, **kwargs: (note(), real(*args, **kwargs), note())[1])
    lock = files._lock

    def noted(file):
        note()
        return lock(file)

    monkeypatch.setattr(files, "_lock", noted)
    with files.write_atomically(path) as file:
        note()
        file.write(b"new" * 10000)
        note()
    assert stat.S_IMODE(path.stat().st_mode) == permissions
    assert len(seen) >= 5
    assert not [oct(other) for other in seen if other & ~permissions]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives files away")
def test_root_leaves_a_file_to_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"old")
    path.chmod(0o640)
    os.chown(path, 1234, 2345)
    with files.write_atomically(path) as file:
        file.write(b"new")
    status = path.stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (1234, 2345, 0o640)


@pytest.mark.parametrize("mode, expected", [(0o640, 0o600), (0o664, 0o644), (0o660, 0o600), (0o666, 0o666)])
def test_a_group_that_cannot_be_kept_gets_no_more_than_others_have(
    mode: int, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    status, path = os.stat, tmp_path / "model"
    path.write_bytes(b"old")
    path.chmod(mode)

    def of_another(name, **options):
        real = status(name, **options)
        fields = list(real)
        fields[4:6] = [4321, 5432]
        return os.stat_result(fields) if str(name) == str(path) else real

    monkeypatch.setattr(os, "fchown", refused)
    monkeypatch.setattr(os, "stat", of_another)
    with files.write_atomically(path) as file:
        file.write(b"new")
    assert stat.S_IMODE(status(path).st_mode) == expected
