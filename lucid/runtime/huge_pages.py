"""Loaded weights in memory pages of 2 MB.

A step of a decoder reads all weights once. In pages of 4 kB it also waits for the addresses of these pages; the page
"Sessions" has the times. Linux makes large pages only for programs that ask, which onnxruntime does not. What a process
has mapped while it loaded a model can still be asked for afterwards (MADV_COLLAPSE, Linux 6.1): the kernel copies it,
and addresses stay the same.
"""

from __future__ import annotations

import ctypes
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

SIZE = 1 << 21  # bytes of a large page
_COLLAPSE = 25  # MADV_COLLAPSE
_MAPS = Path("/proc/self/maps")
_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")


class Range(NamedTuple):
    """Addresses from `start` up to `end`."""

    start: int
    end: int


@contextmanager
def in_huge_pages(enabled: bool = True) -> Iterator[None]:
    """Memory that the process maps inside is in large pages afterwards, as far as the system has some.

    Nothing happens unless it is enabled, on another system than Linux, on an older one than 6.1, or where an
    administrator has switched large pages off. No call fails for lack of them.
    """
    before = mapped() if enabled and are_allowed() else None
    yield
    if before is not None:
        for start, end in new_ranges(mapped(), before):
            first, last = -(-start // SIZE) * SIZE, end // SIZE * SIZE
            if first < last:
                ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), _COLLAPSE)


def mapped() -> list[Range]:
    """The private memory of this process that it may write and that is no file's, in ascending order."""
    ranges = []
    with _MAPS.open("rb") as lines:  # names of files may have any bytes, except the one that ends a line
        for line in lines:
            addresses, access, _, _, inode, *name = line.split(maxsplit=5)
            if access == b"rw-p" and inode == b"0" and (not name or name[0].rstrip() == b"[heap]"):
                ranges.append(Range(*(int(address, 16) for address in addresses.split(b"-"))))
    return ranges


def new_ranges(after: Sequence[Range], before: Sequence[Range]) -> Iterator[Range]:
    """What is in the ranges `after` and in none of `before`; both are in ascending order."""
    starts, ends = [old.start for old in before], [old.end for old in before]
    for start, end in after:
        for old in before[bisect_right(ends, start) : bisect_left(starts, end)]:  # those that it has a part of
            if start < old.start:
                yield Range(start, old.start)
            start = old.end
        if start < end:
            yield Range(start, end)


def are_allowed() -> bool:
    """Whether the system makes large pages for programs that ask, and says what they have mapped."""
    try:
        return sys.platform == "linux" and "[never]" not in _SETTING.read_text(encoding="utf-8") and _MAPS.exists()
    except OSError:  # a kernel without them, or a container that hides the setting
        return False
