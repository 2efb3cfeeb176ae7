"""Folders that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lucid.files import folders
from lucid.files.atomic import DiskFullError, write_atomically
from lucid.files.folders import new_folder
from lucid.files.locks import lock


def test_a_folder_gets_its_name_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "made"
    with new_folder(target) as folder:
        (folder / "a").write_text("x")
        assert not target.exists() and folder.parent == tmp_path
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
    assert (target / "a").read_text() == "x"
    beside = tmp_path / "beside"
    beside.mkdir()
    assert stat.S_IMODE(target.stat().st_mode) == stat.S_IMODE(beside.stat().st_mode)


def test_after_an_error_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "made") as folder:
        (folder / "a").write_text("x")
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


def test_an_empty_folder_is_replaced_also_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    with new_folder(tmp_path / "link") as folder:
        (folder / "a").touch()
    assert (tmp_path / "empty" / "a").exists() and (tmp_path / "link").is_symlink()


def test_what_is_there_already_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full, file, working = tmp_path / "full", tmp_path / "file", tmp_path / "working"
    for folder in (full, working):
        folder.mkdir()
    (full / "mine").write_text("mine")
    file.write_text("mine")
    monkeypatch.chdir(working)
    for target, error, message in [
        (full, FileExistsError, "full: the folder is not empty; give the name of a new one"),
        (file, NotADirectoryError, "file: it is a file; give the name of a folder"),
        (Path("."), FileExistsError, "working: the working folder cannot be replaced; give the name of a new one"),
        (tmp_path / "none" / "made", FileNotFoundError, "the folder .*none does not exist; create it first"),
    ]:
        with pytest.raises(error, match=message), new_folder(target):
            pytest.fail("the block ran")
    assert (full / "mine").read_text() == file.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full", "working"]


@pytest.mark.parametrize("steps", ["one", "three"])
def test_a_folder_that_may_be_replaced_is_replaced_as_a_whole(
    steps: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one step where the system offers it; it stays until the new one is complete, and its permissions are kept."""
    if steps == "three":
        monkeypatch.setattr(folders, "_error_of_exchange", not_offered)
    target = tmp_path / "made"
    target.mkdir(mode=0o750)
    (target / "old").write_text("old")
    with new_folder(target, allowed) as folder:
        (folder / "new").write_text("new")
        assert [path.name for path in target.iterdir()] == ["old"]
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
    assert [path.name for path in target.iterdir()] == ["new"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o750


def not_offered(*_: bytes) -> int:
    return errno.ENOSYS


def allowed(_: Path) -> None:
    """Any folder may be replaced."""


def test_a_folder_that_cannot_be_exchanged_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def moved_once(source: Path, target: Path, rename: Callable[..., None] = os.rename) -> None:
        if source.suffix == ".lucid-tmp":
            raise OSError(errno.EIO, "broken")
        rename(source, target)

    monkeypatch.setattr(folders, "_error_of_exchange", not_offered)
    monkeypatch.setattr(os, "rename", moved_once)
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "old").touch()
    with pytest.raises(OSError, match="broken"), new_folder(tmp_path / "made", allowed) as folder:
        (folder / "new").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["made", "old"]


def test_a_folder_that_may_not_be_replaced_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(folder: Path) -> None:
        raise FileExistsError(f"{folder.name} stays")

    (tmp_path / "made" / "inner").mkdir(parents=True)
    with pytest.raises(FileExistsError, match="made stays"), new_folder(tmp_path / "made", never):
        pytest.fail("the block ran")
    monkeypatch.chdir(tmp_path / "made" / "inner")
    with pytest.raises(FileExistsError, match="the working folder"), new_folder(tmp_path / "made", allowed):
        pytest.fail("the block ran")


def test_a_folder_that_is_filled_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    target = tmp_path / "made"
    with pytest.raises(FileExistsError, match="made: the folder is not empty"), new_folder(target):
        target.mkdir()
        (target / "another's").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_a_full_disk_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    with (
        pytest.raises(DiskFullError, match=r"cannot write .*/made: the disk, quota"),
        new_folder(tmp_path / "made") as folder,
        write_atomically(folder / "a"),
    ):
        raise OSError(28, "No space left on device")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="everything is allowed to root")
def test_a_missing_permission_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with (
        pytest.raises(OSError, match=r"cannot write .*/made: no permission to create files"),
        new_folder(tmp_path / "made"),
    ):
        pytest.fail("the block ran")


@pytest.mark.skipif(sys.platform == "win32", reason="needs locks")
def test_leftovers_of_killed_writers_are_removed_and_those_of_running_ones_kept(tmp_path: Path) -> None:
    dead, running = (tmp_path / f".made.{name}.lucid-tmp" for name in ("dead", "running"))
    for folder in (dead, running):
        folder.mkdir()
        (folder / "a").touch()
    descriptor = os.open(running, os.O_RDONLY)
    lock(descriptor)
    with new_folder(tmp_path / "made"):
        pass
    os.close(descriptor)
    assert sorted(path.name for path in tmp_path.iterdir()) == [running.name, "made"]
