"""The bytes of arrays in C order, fast and with little memory: most weights are exported transposed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

import numpy as np

from lucid.core.graph.types import Array
from lucid.core.process.threads import share

_CHUNK = 1 << 24  # bytes copied at a time where an array is not contiguous
_TILE = (256, 32)  # rows and columns that fit into the L1 cache twice: 5 to 8 times as fast as row by row


def in_order(array: Array) -> Array:
    """The array in C order: itself if it already is, else a copy, made tile by tile."""
    if array.flags.c_contiguous or array.ndim != 2 or array.strides[1] == array.itemsize:
        return np.ascontiguousarray(array)
    copied = np.empty(array.shape, array.dtype)
    height, width = _TILE
    for row in range(0, array.shape[0], height):
        for column in range(0, array.shape[1], width):
            tile = slice(row, row + height), slice(column, column + width)
            copied[tile] = array[tile]
    return copied


def byte_blocks(array: Array) -> Iterator[memoryview]:
    """The bytes of an array in C order, in blocks; only a view that is not contiguous is copied, a block at a time."""
    if array.flags.c_contiguous:
        yield array.reshape(-1).view(np.uint8).data
        return
    if array.ndim > 2 and array[0].nbytes >= _CHUNK:
        for part in array:
            yield from byte_blocks(part)
        return
    rows = max(1, _CHUNK // max(1, array[0].nbytes))
    for start in range(0, array.shape[0], rows):
        yield in_order(array[start : start + rows]).reshape(-1).view(np.uint8).data


def fingerprint(arrays: Mapping[str, Array]) -> str:
    """A hash of the arrays and their names: 16 hexadecimal digits."""
    digests: dict[str, bytes] = {}

    def work(names: Iterator[str]) -> None:
        for name in names:
            digests[name] = _digest(arrays[name])

    share(arrays, work)
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {array.shape} ".encode() + digests[name])
    return digest.hexdigest()[:16]


def _digest(array: Array) -> bytes:
    """The hash of an array as stored in memory, which saves transposing it."""
    digest = hashlib.sha256(str(array.strides).encode())
    for block in byte_blocks(array.T if array.flags.f_contiguous else array):
        digest.update(block)
    return digest.digest()
