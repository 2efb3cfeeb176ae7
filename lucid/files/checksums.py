"""Arrays with their checksum, by which a byte that has changed in a file is noticed."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping

import numpy as np

from lucid.core.words.safe_text import show
from lucid.files.untrusted import Array, WeightsError

NAME = "checksum"


def with_checksum(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays by name, and under `NAME` the CRC-32 of their names, types, shapes and bytes."""
    return {**arrays, NAME: np.array(_checksum(arrays))}


def checked(arrays: Mapping[str, Array], path: str | os.PathLike[str]) -> dict[str, Array]:
    """The arrays that a file of `with_checksum` has, without their checksum.

    Raises:
        WeightsError: if its checksum differs or is missing.
    """
    others = {name: array for name, array in arrays.items() if name != NAME}
    if NAME not in arrays or arrays[NAME].tolist() != _checksum(others):
        raise WeightsError(
            f"{show(os.fspath(path))}: its checksum is not that of its numbers, so some have changed since they were "
            "written; take another copy of it, or an earlier checkpoint"
        )
    return others


def _checksum(arrays: Mapping[str, Array]) -> int:
    checksum = 0
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        about = f"{name} {array.dtype} {list(arrays[name].shape)}"
        checksum = zlib.crc32(array.reshape(-1).view(np.uint8).data, zlib.crc32(about.encode(), checksum))
    return checksum
