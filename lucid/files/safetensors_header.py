"""The JSON of untrusted weights files: a safetensors header or an index, checked against the file's size.

Source of the format: https://github.com/huggingface/safetensors, "Format": eight bytes of header length
(little-endian), a JSON header `{"name": {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__":
{str: str}}`, then the data, which the tensors cover exactly.
"""

from __future__ import annotations

import codecs
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

import ml_dtypes
import numpy as np

MAX_HEADER = 32 << 20  # bytes of header or index: ten times the largest one published
MAX_TENSORS = 1 << 16  # in one file
MAX_KEYS = 1 << 18  # in an index
MAX_MEMBER = 4096  # bytes of one tensor's name or description

DTYPES: dict[str, np.dtype[np.generic]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
    "C64": np.dtype("<c8"),
}

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
CONVERT = (
    "pickle runs code when it is read, so Lucid does not read it; if you trust the file, convert it: "
    'python -c "import torch, safetensors.torch as s; '
    "d = torch.load('pytorch_model.bin', map_location='cpu', weights_only=True); "
    "s.save_file({k: v.contiguous().clone() for k, v in d.items()}, 'model.safetensors')\""
)
_FOREIGN = {  # other formats that are given by mistake, by their first bytes
    b"PK\x03\x04": f"a zip archive (torch or npz); {CONVERT}",
    b"\x80\x02": f"a pickle; {CONVERT}",
    b"\x80\x03": f"a pickle; {CONVERT}",
    b"\x80\x04": f"a pickle; {CONVERT}",
    b"\x80\x05": f"a pickle; {CONVERT}",
    b"GGUF": "a GGUF file; give it to a model's from_pretrained, or get the model's safetensors file",
    b"\x89HDF": "an HDF5 file; get the model's safetensors file",
    b"\x93NUM": "a .npy array; store it with lucid.save(path, {name: array})",
    b"version https://git-lfs": "a git-lfs pointer, not the file itself; run 'git lfs pull'",
}


class WeightsError(ValueError):
    """A weights file that is broken, hostile or of another kind."""


class Entry(NamedTuple):
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    begin: int
    end: int


def read_header(file: BinaryIO, size: int, path: Path) -> tuple[dict[str, Entry], int]:
    """The checked entries by name, in the header's order, and the offset of the data in the file."""
    first = file.read(32)
    # The first bytes of a pickle can also be a header length, but then the header's brace follows.
    for magic, what in _FOREIGN.items():
        if first.startswith(magic) and first[8:9] != b"{":
            raise WeightsError(f"{show(path)}: expected a safetensors file, got {what}")
    if size < 10:
        raise broken(path, f"{size} bytes, expected at least 10" if size else "an empty file")
    length = int.from_bytes(first[:8], "little")
    if length > size - 8:
        raise broken(path, f"declares a header of {length} bytes in a file of {size}: truncated, or another format")
    if length > MAX_HEADER:
        raise broken(path, f"a header of {length} bytes, expected at most {MAX_HEADER}")
    file.seek(8)
    text = checked_utf8(file.read(length), path)
    entries: dict[str, Entry] = {}
    for name, begin, end in members(text, path):
        if name == "__metadata__":
            if _STRINGS.fullmatch(text, begin, end) is None:
                raise broken(path, "__metadata__ is not an object of strings")
        else:
            entries[name] = _entry(text, begin, end, path, name)
    _check_coverage(entries, size - 8 - length, path)
    return entries, 8 + length


def _entry(text: bytes, begin: int, end: int, path: Path, name: str) -> Entry:
    found = _ENTRY.fullmatch(text, begin, end) if end - begin <= MAX_MEMBER else None
    if found is None or None in found.groups():
        raise broken(path, f"tensor {show(name)}: {show(text[begin : min(end, begin + 120)])}, expected {_FORM}")
    code = found[1].decode()
    if code not in DTYPES:
        raise broken(path, f"tensor {show(name)}: dtype {code}, expected one of {', '.join(DTYPES)}")
    dtype = DTYPES[code]
    shape = tuple(map(int, found[2].split(b","))) if found[2] else ()
    # NumPy's limits; that on the bytes applies even if a zero makes the array empty.
    if len(shape) > 64 or math.prod(filter(None, shape)) * dtype.itemsize >= 1 << 63:
        raise broken(path, f"tensor {show(name)}: shape {show(shape)}, expected <= 64 sizes, < 2^63 bytes")
    entry = Entry(dtype, shape, int(found[3]), int(found[4]))
    size = math.prod(shape) * dtype.itemsize
    if entry.end - entry.begin != size:
        got = f"data_offsets {entry.begin} to {entry.end}"
        raise broken(path, f"tensor {show(name)}: {got}, expected {size} bytes for {code} of shape {show(shape)}")
    return entry


def _check_coverage(entries: Mapping[str, Entry], size: int, path: Path) -> None:
    """Check that the tensors cover the data exactly: no overlap, no gap, no byte left over."""
    covered, before = 0, "the header"
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.end > size:
            raise broken(path, f"tensor {show(name)} ends at byte {entry.end} of {size} bytes of data: truncated")
        if entry.begin != covered:
            relation = "overlaps" if entry.begin < covered else f"starts {entry.begin - covered} bytes after"
            raise broken(path, f"tensor {show(name)} {relation} {show(before)}, expected one directly after the other")
        covered, before = entry.end, name
    if covered != size:
        raise broken(path, f"{size - covered} bytes after the last tensor, expected none")


# Untrusted JSON is parsed one member at a time, with patterns that cannot backtrack, so that neither depth nor width
# costs memory: an object here holds strings, and objects without nested objects.
_SPACE = rb"[\x20\t\n\r]*+"
_CHARS = rb'[^"\\\x00-\x1f]*+'
_STRING = rb'"%b(?:\\["\\/bfnrtu]%b)*+"' % (_CHARS, _CHARS)
_OBJECT = rb'\{[^{}"]*+(?:%b[^{}"]*+)*+\}' % _STRING
_COUNT = rb"(?:0|[1-9][0-9]{0,18})"
_FORM = '{"dtype": name, "shape": [size, ...], "data_offsets": [begin, end]} in whole numbers >= 0'


def _json(pattern: bytes) -> re.Pattern[bytes]:
    """A pattern in which a space matches JSON's white space, and N a whole number."""
    return re.compile(pattern.replace(b" ", _SPACE).replace(b"N", _COUNT))


_OPEN = _json(rb" \{ (\})?")
_MEMBER = _json(rb' (%b) : (%b|%b|[^][{},:"\s]++) ([,}])' % (_STRING, _STRING, _OBJECT))
_PAIR = _json(rb"(%b) : (%b)" % (_STRING, _STRING))
_STRINGS = _json(rb"\{ (?:%b : %b (?:, %b : %b )*+)?+\}" % ((_STRING,) * 4))
_DTYPE, _SHAPE = rb'"dtype" : "(\w{1,16})"', rb'"shape" : \[ ((?:N(?: , N)*)?) \]'
_OFFSETS = rb'"data_offsets" : \[ (N) , (N) \]'
# The three in any order; if one occurs twice, the group of another is empty.
_ENTRY = _json(rb"\{ (?:(?:%b|%b|%b) (?:, (?=\")|(?=\}))){3}\}" % (_DTYPE, _SHAPE, _OFFSETS))


def members(text: bytes, path: Path) -> Iterator[tuple[str, int, int]]:
    """Each member's name and the start and end of its value, for `text`, which must be one JSON object."""
    opened = _OPEN.match(text)
    if opened is None:
        raise broken(path, f"byte 0 of the JSON: {text[:40]!r}, expected an object")
    seen: set[str] = set()
    at, last = opened.end(), opened[1] is not None
    while not last:
        member = _MEMBER.match(text, at)
        if member is None:
            raise broken(path, f'byte {at} of the JSON: {text[at : at + 40]!r}, expected "name": {{...}}')
        name = _string(member[1], path)
        if name in seen:
            raise broken(path, f"the name {show(name)} occurs twice")
        if len(seen) == MAX_TENSORS:
            raise broken(path, f"more than {MAX_TENSORS} entries")
        seen.add(name)
        yield name, *member.span(2)
        at, last = member.end(), member[3] == b"}"
    if text[at:].strip(b" \t\n\r"):
        raise broken(path, f"byte {at} of the JSON: {text[at : at + 40]!r} after the closing brace")


def strings(text: bytes, begin: int, end: int, path: Path) -> dict[str, str]:
    """The JSON object of strings in text[begin:end], in one pass, because an index has many."""
    if _STRINGS.fullmatch(text, begin, end) is None:
        raise broken(path, f"{show(text[begin : min(end, begin + 80)])}, expected an object of strings")
    # An entry has at least four quotes without a backslash before them: a fast limit, before anything is decoded.
    if text.count(b'"', begin, end) - text.count(b'\\"', begin, end) > 4 * MAX_KEYS:
        raise broken(path, f"more than {MAX_KEYS} entries")
    found: dict[str, str] = {}
    for pair in _PAIR.finditer(text, begin, end):
        key = _string(pair[1], path)
        if key in found:
            raise broken(path, f"the name {show(key)} occurs twice")
        if len(found) == MAX_KEYS:
            raise broken(path, f"more than {MAX_KEYS} entries")
        found[key] = _string(pair[2], path)
    return found


def _string(raw: bytes, path: Path) -> str:
    if len(raw) > MAX_MEMBER:
        raise broken(path, f"a string of {len(raw)} bytes, {show(raw[:40])}, expected at most {MAX_MEMBER}")
    if b"\\" not in raw:
        return raw[1:-1].decode()
    try:
        value = str(json.loads(raw.decode()))
        value.encode()  # half of a surrogate pair is not text
    except ValueError as error:
        raise broken(path, f"{show(raw[:40])} is not a valid JSON string") from error
    return value


def checked_utf8(text: bytes, path: Path) -> bytes:
    """The text, after a check that it is valid UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for begin in range(0, len(text), 1 << 20):  # in blocks: decoded text may take four times the memory
            decoder.decode(text[begin : begin + (1 << 20)])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise broken(path, f"the JSON is not valid UTF-8 ({error.reason})") from error
    return text


# A message names the file and shows untrusted text escaped and shortened.


def broken(path: Path, what: str) -> WeightsError:
    return WeightsError(f"{show(path)}: {what}; get an intact copy of the file")


def show(value: object) -> str:
    text = repr(os.fspath(value) if isinstance(value, Path) else value)
    return text if len(text) <= 200 else text[:200] + "..."
