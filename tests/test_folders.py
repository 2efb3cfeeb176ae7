"""Folders that appear whole or not at all."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from lucid.file_locks import lock
from lucid.files import DiskFullError, write_atomically
from lucid.folders import new_folder


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
