"""Arrays as the Open Inference Protocol sends them: as JSON, or as bytes after it (its extension for binary data)."""

from __future__ import annotations

import struct
from math import prod
from typing import Any

import numpy as np

from lucid.batch.rows import objects
from lucid.core.graph.types import Array, DType, bfloat16
from lucid.core.words.json_numbers import ABSENT, strict
from lucid.core.words.safe_text import encoded
from lucid.serving.bodies import Fields, wrong
from lucid.serving.responses import RequestError

BYTES = "BYTES"
_KINDS = {
    "BOOL": np.dtype(np.bool_),
    **{
        f"{name}{bits}": np.dtype(f"{code}{bits // 8}")
        for name, code in (("INT", "<i"), ("UINT", "<u"))
        for bits in (8, 16, 32, 64)
    },
    **{f"FP{bits}": np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)},
    "BF16": bfloat16.numpy,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
DATATYPES = [*_KINDS, BYTES]
_FLOATS = "fV"  # NumPy's kinds of floats, and of bfloat16
_PYTHON = {kind: {bool, int} if kind in "iu" else {bool, int, float} for kind in f"biu{_FLOATS}"}
"""The Python types of elements in JSON, by the kind of the array's type."""


def datatype(dtype: DType | None) -> str:
    """The protocol's name of an element type; text, and types without a name, are BYTES."""
    return BYTES if dtype is None else _NAMES.get(np.dtype(dtype.numpy), BYTES)


def read(entry: Fields, data: memoryview, where: str) -> tuple[Array, int]:
    """An input, and how many bytes of `data` it has; `where` it is in the request, for messages.

    Raises:
        RequestError: for a shape or data that do not fit.
    """
    name, kind, shape = entry["name"], entry["datatype"], entry["shape"]
    size = entry.get("parameters", {}).get("binary_data_size", -1)
    if size > len(data):
        place = f"{where}.parameters.binary_data_size"
        raise wrong(size, place, f"expected at most the {len(data)} bytes that are left")
    if size >= 0:
        values = _texts(data[:size], name) if kind == BYTES else _numbers(data[:size], _KINDS[kind], name)
    elif "data" in entry:
        values = _from_json(entry["data"], kind, name)
    else:
        raise RequestError(f"{where}.data is missing, expected a list", f"{where}.data")
    if values.size != prod(shape):
        raise RequestError(f"input {name} has {values.size} elements, and its shape {shape} {prod(shape)}", name)
    try:
        return values.reshape(shape), max(size, 0)
    except (ValueError, OverflowError) as error:  # of no elements, but for such sizes there is no array
        raise wrong(shape, f"{where}.shape", "expected sizes of an array") from error


def _numbers(data: memoryview, kind: np.dtype[Any], name: str) -> Array:
    if len(data) % kind.itemsize:
        raise RequestError(f"input {name} has {len(data)} bytes, no multiple of {kind.itemsize}")
    return np.frombuffer(data, kind)


def _texts(data: memoryview, name: str) -> Array:
    """Elements that each have their length in front."""
    texts: list[bytes] = []
    place = 0
    while place < len(data):
        end = place + 4
        length = struct.unpack_from("<I", data, place)[0] if end <= len(data) else len(data)
        if end + length > len(data):
            raise RequestError(f"input {name} is cut off in element {len(texts)}")
        texts.append(bytes(data[end : end + length]))
        place = end + length
    return objects(texts)


def _from_json(values: list[Any], kind: str, name: str) -> Array:
    wrong = RequestError(f"input {name} has data that are not {kind}", "data")
    try:
        flat = np.array(values, object).ravel()  # of objects: one of texts has the longest one's length for each
    except ValueError as error:  # lists of different lengths
        raise wrong from error
    kinds = set(map(type, flat))
    if kind == BYTES:
        if kinds - {str}:
            raise wrong
        return flat
    dtype, sent = _KINDS[kind], flat
    if str in kinds and dtype.kind in _FLOATS:
        flat = np.array([ABSENT.get(one, one) if isinstance(one, str) else one for one in flat], object)
        kinds = set(map(type, flat))
    if kinds - _PYTHON[dtype.kind]:
        raise wrong
    if dtype.kind in "iu" and flat.size:
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        if not (least <= min(flat) and max(flat) <= most):
            raise wrong
    if dtype.kind not in _FLOATS:
        return flat.astype(dtype)
    try:
        wide = flat.astype(np.float64)
    except OverflowError as error:
        raise wrong from error
    with np.errstate(over="ignore"):  # of which bfloat16 does not tell
        narrow = wide.astype(dtype)
    if any(not isinstance(number, str) for number in sent[np.isinf(narrow)]):  # such as 1e400
        raise wrong
    return narrow


def written(name: str, array: Array, binary: bool) -> tuple[dict[str, Any], bytes]:
    """An output: its description, and its bytes if they come after it."""
    texts = array.dtype.kind == "O"
    kind = BYTES if texts else _NAMES[array.dtype.newbyteorder("<") if array.dtype.itemsize > 1 else array.dtype]
    entry: dict[str, Any] = {"name": name, "datatype": kind, "shape": list(array.shape)}
    if not binary:
        elements = array.ravel().tolist()
        return {**entry, "data": strict(elements) if array.dtype.kind in _FLOATS else elements}, b""
    if texts:
        coded = [encoded(str(text)) for text in array.ravel()]
        data = b"".join(struct.pack("<I", len(text)) + text for text in coded)
    else:
        data = np.ascontiguousarray(array).tobytes()
    return {**entry, "parameters": {"binary_data_size": len(data)}}, data
