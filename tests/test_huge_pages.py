"""Weights in large pages: what is mapped while a model is loaded, and nothing else."""

from __future__ import annotations

import mmap
import platform
import sys
from pathlib import Path

import numpy as np
import pytest

from lucid.export import to_onnx
from lucid.generation.chat import load_language_model
from lucid.nn import Linear
from lucid.runtime import Session, huge_pages
from lucid.runtime.huge_pages import SIZE, Range, in_huge_pages, mapped, new_ranges
from tests.chat.checkpoints import checkpoint

_MAPPED = 20 * SIZE  # bytes
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these pages")


@pytest.mark.parametrize(
    ("after", "before", "new"),
    [
        ([(0, 9)], [], [(0, 9)]),
        ([(0, 9)], [(0, 9)], []),
        ([(0, 9)], [(2, 4)], [(0, 2), (4, 9)]),
        ([(0, 9)], [(0, 2), (4, 5)], [(2, 4), (5, 9)]),
        ([(3, 9)], [(0, 5), (7, 12)], [(5, 7)]),
        ([(3, 5), (8, 9)], [(0, 1), (5, 8)], [(3, 5), (8, 9)]),
    ],
    ids=str,
)
def test_new_ranges_are_those_outside_of_the_old_ones(
    after: list[tuple[int, int]], before: list[tuple[int, int]], new: list[tuple[int, int]]
) -> None:
    assert list(new_ranges([Range(*r) for r in after], [Range(*r) for r in before])) == new


@on_linux
def test_memory_of_files_is_not_counted(tmp_path: Path) -> None:
    (tmp_path / "zeros").write_bytes(bytes(SIZE))
    with (tmp_path / "zeros").open("rb") as file, mmap.mmap(file.fileno(), SIZE, access=mmap.ACCESS_COPY) as of_file:
        assert not _is_in(of_file, mapped())
        assert _is_in(_memory(), mapped())


@pytest.mark.parametrize("separator", ["\r", "\x0c", "\x85", "\u2028"], ids=ascii)
def test_names_of_mapped_files_may_have_any_characters(
    separator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux writes a line for each, and replaces only \\n in their names."""
    maps = tmp_path / "maps"
    monkeypatch.setattr(huge_pages, "_MAPS", maps)
    text = f"""7f0000000000-7f0000400000 rw-p 00000000 00:00 0
7f0000400000-7f0000800000 rw-p 00000000 08:01 12    /lib{separator}.so
7f0000800000-7f0000c00000 r--p 00000000 00:00 0
7f0000c00000-7f0000e00000 rw-p 00000000 00:00 0    [heap]
7f0000e00000-7f0001000000 rw-p 00000000 00:00 0    [stack]
"""
    maps.write_bytes(text.encode() + b"7f0001000000-7f0001200000 rw-p 00000000 08:01 12    /\xff\n")
    assert mapped() == [(0x7F0000000000, 0x7F0000400000), (0x7F0000C00000, 0x7F0000E00000)]


@on_linux
def test_a_container_may_hide_what_is_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages, "_MAPS", tmp_path / "maps")
    with in_huge_pages():
        pass


@on_linux
def test_what_is_mapped_inside_is_in_large_pages() -> None:
    if tuple(map(int, platform.release().split(".")[:2])) < (6, 1) or not huge_pages.are_allowed():
        pytest.skip("this system puts no memory into large pages later on")
    before = _in_large_pages()
    with in_huge_pages():
        memory = _memory()
        memory.write(b"1" * _MAPPED)
    assert _in_large_pages() - before >= _MAPPED // 2
    assert memory[:] == b"1" * _MAPPED


def test_an_administrator_may_switch_them_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = tmp_path / "enabled"
    monkeypatch.setattr(huge_pages, "_SETTING", setting)
    assert not huge_pages.are_allowed()  # no such file: a kernel without them
    for text, allowed in (("always madvise [never]\n", False), ("always [madvise] never\n", sys.platform == "linux")):
        setting.write_text(text)
        assert huge_pages.are_allowed() == allowed


def test_language_models_are_loaded_into_them_and_others_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    def looked() -> list[Range]:
        looks.append("before and after")
        return []

    monkeypatch.setattr(huge_pages, "are_allowed", lambda: True)
    monkeypatch.setattr(huge_pages, "mapped", looked)
    linear = to_onnx(Linear(4, 4), ("N", 4))
    Session(linear)
    assert not looks
    Session(linear, huge_pages=True)
    assert len(looks) == 2
    load_language_model(checkpoint(tmp_path))
    assert len(looks) == 4


def _memory() -> mmap.mmap:
    """Memory that is mapped anew: what malloc gives may come from the heap, whose pages stay as they are."""
    return mmap.mmap(-1, _MAPPED, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _is_in(memory: mmap.mmap, ranges: list[Range]) -> bool:
    address = int(np.frombuffer(memory, np.uint8).__array_interface__["data"][0])
    return any(start <= address < end for start, end in ranges)


def _in_large_pages() -> int:
    """Bytes."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("AnonHugePages"))
