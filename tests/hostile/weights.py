"""Broken and hostile weights files."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.hostile import Cases, device, file_of, pipe

Json = dict[str, object]
CASES: Cases = {}


def _nothing(folder: Path) -> None:
    pass


def safetensors(header: bytes | Mapping[str, object], data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(begin: object, end: object, shape: object = (2,), dtype: object = "F32") -> Json:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def weights(name: str, wrong: str, content: bytes | Callable[[], bytes], file: str = "model.safetensors") -> None:
    CASES[name] = wrong, file_of(file, content)


GOOD = safetensors({"a": tensor(0, 8)}, bytes(8))
A = b'"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'

weights("empty", "no bytes at all", b"")
weights("seven_bytes", "shorter than the header's length", bytes(7))
weights("zero_header", "a header of no bytes", bytes(16))
weights("header_beyond_file", "the header is longer than the file", safetensors(b"{}", length=1000))
weights("header_2_63", "a header of 2^63 bytes", safetensors(b"{}", length=1 << 63))
weights("header_2_64", "a header of 2^64-1 bytes", safetensors(b"{}", length=(1 << 64) - 1))
weights(
    "header_invalid_utf8",
    "a name that is not UTF-8",
    safetensors(A.join((b"{", b"}")).replace(b"a", b"\xff"), bytes(8)),
)
weights("header_cut_utf8", "UTF-8 that ends inside a letter", safetensors(b'{"\xe2\x82'))
weights("header_utf16", "JSON in UTF-16", safetensors("{}".encode("utf-16")))
weights("header_list", "a JSON list instead of an object", safetensors(b"[]"))
weights("header_cut_json", "JSON that stops", safetensors(b'{"a":{"dtype":"F32"'))
weights("header_comma", "a comma after the last member", safetensors(b"{" + A + b",}", bytes(8)))
weights("header_comment", "a comment in the JSON", safetensors(b"{/* */" + A + b"}", bytes(8)))
weights("header_second_object", "text after the closing brace", safetensors(b"{" + A + b"}{}", bytes(8)))
weights("header_nul_padding", "padding with NUL bytes", safetensors(b"{" + A + b"}\0\0", bytes(8)))
weights("duplicate_tensor", "one name twice", safetensors(b"{" + A + b"," + A + b"}", bytes(8)))
weights(
    "duplicate_escaped",
    "one name twice, once spelled \\u0061",
    safetensors(b"{%s,%s}" % (A, A.replace(b'"a"', b'"\\u0061"')), bytes(8)),
)
weights(
    "duplicate_field", "two shapes", safetensors(b"{" + A.replace(b'"shape"', b'"shape":[9],"shape"') + b"}", bytes(8))
)
weights("duplicate_metadata", "__metadata__ twice", safetensors(b'{"__metadata__":{},"__metadata__":{}}'))
weights("metadata_numbers", "metadata that is not text", safetensors({"__metadata__": {"step": 3}}))
weights("metadata_nested", "metadata inside metadata", safetensors({"__metadata__": {"a": {"b": "c"}}}))
weights("metadata_list", "metadata that is a list", safetensors({"__metadata__": []}))
weights("bomb_lists", "a million open lists", lambda: safetensors(b'{"a":' + b"[" * 1_000_000))
weights("bomb_objects", "a million objects in each other", lambda: safetensors(b'{"a":' * 1_000_000))
weights("bomb_in_shape", "lists nested in a shape", safetensors(b'{"a":{"dtype":"F32","shape":' + b"[" * 3000))
weights("bomb_wide", "five million empty lists", lambda: safetensors(b'{"a":[' + b"[]," * 5_000_000 + b"[]]}"))
weights("bomb_numbers", "twelve million numbers", lambda: safetensors(b'{"a":[' + b"1," * 12_000_000 + b"1]}"))
weights("bomb_quotes", "a name after the other", lambda: safetensors(b'{"a":' + b'"' * 20_000_000))
weights(
    "bomb_names",
    "two hundred thousand names in one tensor",
    lambda: safetensors(b'{"a":{' + b",".join(b'"%080d":0' % i for i in range(200_000)) + b"}}"),
)
weights("bomb_digits", "a number of twenty million digits", lambda: safetensors(b'{"a":' + b"9" * 20_000_000 + b"}"))
weights(
    "bomb_of_wide_letters",
    "metadata whose letters take four bytes each when they are decoded",
    lambda: safetensors(b'{"__metadata__":{"a":"\xf0\x9f\x98\x80' + b"x" * 16_000_000 + b'"}}'),
)
weights("bomb_members", "a million empty members", lambda: safetensors(b'{"":{}' + b',"":{}' * 1_000_000 + b"}"))
weights(
    "bomb_metadata",
    "a million wrong metadata entries",
    lambda: safetensors(b'{"__metadata__":{' + b'"":"",' * 1_000_000 + b'"":0}}'),
)
weights("bomb_escapes", "a name of four million escapes", lambda: safetensors(b'{"' + b"\\n" * 4_000_000 + b'":{}}'))
weights("long_name", "a name of a million letters", lambda: safetensors({"n" * 1_000_000: tensor(0, 8)}, bytes(8)))
weights(
    "many_entries",
    "a hundred thousand tensors",
    lambda: safetensors({str(i): tensor(0, 0, [0]) for i in range(100_000)}),
)
weights(
    "many_entries_last_wrong",
    "sixty-five thousand good tensors and a bad one",
    lambda: safetensors({str(i): tensor(0, 0, [0]) for i in range(65_000)} | {"a": tensor(0, 8, [3])}, bytes(8)),
)
weights("metadata_surrogate", "metadata under half a surrogate pair", safetensors({"__metadata__": {"\ud800": ""}}))
weights("minus_zero", "an offset of minus zero", safetensors(b"{" + A.replace(b"[0,8]", b"[-0,8]") + b"}", bytes(8)))
weights("name_surrogate", "a name with half a surrogate pair", safetensors({"\ud800": tensor(0, 8)}, bytes(8)))
weights(
    "name_control",
    "a raw control character in a name",
    safetensors(b"{" + A.replace(b'"a"', b'"a\n"') + b"}", bytes(8)),
)
weights(
    "name_bad_escape", "an unknown escape in a name", safetensors(b"{" + A.replace(b'"a"', b'"\\x61"') + b"}", bytes(8))
)
weights("entry_number", "a number for a tensor", safetensors({"a": 1}))
weights("entry_null", "null for a tensor", safetensors({"a": None}))
weights("entry_empty", "a tensor without fields", safetensors({"a": {}}))
weights("entry_without_shape", "no shape", safetensors({"a": {"dtype": "F32", "data_offsets": [0, 8]}}, bytes(8)))
weights("entry_more", "an unknown field", safetensors({"a": tensor(0, 8) | {"stride": "1"}}, bytes(8)))
for label, dtype in {
    "unknown": "F128",
    "lower": "f32",
    "number": 1,
    "null": None,
    "packed": "F4",
    "object": "O",
}.items():
    weights(f"dtype_{label}", f"dtype {dtype!r}", safetensors({"a": tensor(0, 8, dtype=dtype)}, bytes(8)))
for label, shape in {
    "negative": [-2],
    "two_negatives": [-2, -1],
    "float": [2.0],
    "bool": [True, 2],
    "string": ["2"],
    "null": None,
    "nan": [float("nan")],
    "huge": [1 << 63],
    "huge_digits": [int("9" * 3000)],
    "overflow": [1 << 32, 1 << 32, 1 << 32, 2],  # 0 bytes modulo 2^64
    "wrapped": [(1 << 62) + 2],  # 8 bytes modulo 2^64
    "rank_65": [1] * 64 + [2],
    "nested": [[2]],
    "too_small": [1],
    "too_large": [3],
}.items():
    weights(f"shape_{label}", f"shape {str(shape)[:40]}", safetensors({"a": tensor(0, 8, shape)}, bytes(8)))
weights("shape_huge_but_empty", "2^62 times 2^62 times 0", safetensors({"a": tensor(0, 0, [1 << 62, 1 << 62, 0])}))
for label, offsets in {
    "reversed": [8, 0],
    "negative": [-8, 0],
    "beyond": [0, 16],
    "wrapped": [(1 << 64) - 8, 1 << 64],
    "one": [8],
    "three": [0, 8, 8],
    "float": [0.0, 8.0],
    "string": ["0", "8"],
}.items():
    weights(
        f"offsets_{label}",
        f"data_offsets {offsets}",
        safetensors({"a": {**tensor(0, 8), "data_offsets": offsets}}, bytes(8)),
    )
weights("overlap", "two tensors share bytes", safetensors({"a": tensor(0, 8), "b": tensor(4, 12)}, bytes(12)))
weights("overlap_same", "two tensors at one place", safetensors({"a": tensor(0, 8), "b": tensor(0, 8)}, bytes(8)))
weights("gap", "unused bytes between tensors", safetensors({"a": tensor(0, 8), "b": tensor(12, 20)}, bytes(20)))
weights("gap_first", "unused bytes in front", safetensors({"a": tensor(8, 16)}, bytes(16)))
weights("over_long", "bytes after the last tensor", GOOD + b"#!/bin/sh")
weights("truncated", "the last bytes are missing", GOOD[:-3])
weights("truncated_by_half", "half the data is missing", safetensors({"a": tensor(0, 8), "b": tensor(8, 16)}, bytes(8)))
weights("bool_two", "a boolean of value 2", safetensors({"a": tensor(0, 2, [2], "BOOL")}, b"\x01\x02"))

EVIL_PICKLE = b"\x80\x04cos\nsystem\n(S'touch EXECUTED'\ntR."
weights("pickle_bin", "a pickle that runs a command", EVIL_PICKLE, "pytorch_model.bin")
weights("pickle_renamed", "the same under a safe name", EVIL_PICKLE)
weights("pickle_protocol_2", "torch's old format", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19." + EVIL_PICKLE)
weights("pickle_text", "a pickle of protocol 0", EVIL_PICKLE[2:])
weights("torch_zip", "torch's zip format", b"PK\x03\x04" + bytes(26) + b"archive/data.pkl" + EVIL_PICKLE)
weights("npy", "a NumPy file", b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }")
weights("gguf", "a GGUF file", b"GGUF\x03\x00\x00\x00" + bytes(64))
weights("hdf5", "an HDF5 file", b"\x89HDF\r\n\x1a\n" + bytes(64))
weights("lfs_pointer", "git's placeholder", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
weights("html", "an error page saved as a file", b"<!DOCTYPE html><html>404</html>")


def header_over_cap(folder: Path) -> Path:
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", 64 << 20) + b"{")
    os.truncate(path, 65 << 20)  # sparse: takes no space on the disk
    return path


def terabytes(folder: Path) -> Path:
    path = folder / "model.safetensors"
    path.write_bytes(safetensors({"a": tensor(0, 8)}, bytes(8)))
    os.truncate(path, 1 << 42)
    return path


def subfolder(folder: Path) -> Path:
    (folder / "model.safetensors").mkdir()
    return folder / "model.safetensors"


def only_pickles(folder: Path) -> Path:
    (folder / "pytorch_model.bin").write_bytes(EVIL_PICKLE)
    return folder


CASES["header_over_cap"] = "a header of 64 MB", header_over_cap
CASES["over_long_terabytes"] = "four terabytes after the last tensor", terabytes
CASES["pipe"] = "a pipe, which would wait for ever", pipe("model.safetensors")
CASES["device"] = "a link to a device without end", device("model.safetensors")
CASES["folder_as_file"] = "a folder with a file's name", subfolder
CASES["folder_of_pickles"] = "a folder with nothing but a pickle", only_pickles


def index(name: str, wrong: str, content: object, prepare: Callable[[Path], object] = _nothing) -> None:
    """An index next to one valid shard 1.safetensors, which holds the tensor a."""

    def write(folder: Path) -> Path:
        home = folder / "model"
        home.mkdir()
        (home / "1.safetensors").write_bytes(GOOD)
        (folder / "outside.safetensors").write_bytes(GOOD)
        prepare(home)
        text = content if isinstance(content, bytes) else json.dumps(content).encode()
        (home / "model.safetensors.index.json").write_bytes(text)
        return home

    CASES[f"index_{name}"] = wrong, write


for label, shard in {
    "parent": "../outside.safetensors",
    "hidden_parent": "x/../../outside.safetensors",
    "subfolder": "sub/1.safetensors",
    "here": "./1.safetensors",
    "absolute": "/etc/passwd",
    "backslash": "..\\outside.safetensors",
    "drive": "C:1.safetensors",
    "url": "https://example.org/1.safetensors",
    "nul": "1.safetensors\0.txt",
    "empty_name": "",
    "dots": "..",
    "pickle": "pytorch_model.bin",
    "missing": "2.safetensors",
}.items():
    index(f"shard_{label}", f"a shard named {shard!r}", {"weight_map": {"a": shard}})
S1 = {"weight_map": {"a": "1.safetensors"}}
L = {"weight_map": {"a": "link.safetensors"}}
index(
    "link_outside",
    "a shard that is a link out",
    L,
    lambda f: (f / "link.safetensors").symlink_to("../outside.safetensors"),
)
index(
    "link_absolute",
    "a shard that is a link to /dev/zero",
    L,
    lambda f: (f / "link.safetensors").symlink_to("/dev/zero"),
)
index(
    "link_loop",
    "a shard that is a link to itself",
    L,
    lambda f: (f / "link.safetensors").symlink_to("link.safetensors"),
)
index("pipe", "a shard that is a pipe", L, lambda f: os.mkfifo(f / "link.safetensors"))
index("folder", "a shard that is a folder", L, lambda f: (f / "link.safetensors").mkdir())
index("shard_truncated", "a shard that is cut", L, lambda f: (f / "link.safetensors").write_bytes(GOOD[:-1]))
index("key_lacking", "a key that its shard lacks", {"weight_map": {"a": "1.safetensors", "b": "1.safetensors"}})
index(
    "key_omitted",
    "a key that the index omits",
    L,
    lambda f: (f / "link.safetensors").write_bytes(safetensors({"a": tensor(0, 8), "b": tensor(8, 16)}, bytes(16))),
)
index("empty_file", "no bytes", b"")
index("empty_map", "no weights", {"weight_map": {}})
index("no_map", "no weight_map", {"metadata": {}})
index("list", "a list", [S1])
index("map_list", "a weight_map that is a list", {"weight_map": ["1.safetensors"]})
index("map_numbers", "a shard that is a number", {"weight_map": {"a": 1}})
index("map_nested", "a shard that is an object", {"weight_map": {"a": {"file": "1.safetensors"}}})
index("two_maps", "two weight_maps", b'{"weight_map":{"a":"1.safetensors"},"weight_map":{}}')
index("duplicate_key", "one key twice", b'{"weight_map":{"a":"1.safetensors","a":"2.safetensors"}}')
index("invalid_utf8", "not UTF-8", b'{"weight_map":{"\xff":"1.safetensors"}}')
index("bomb", "a million open lists", b'{"metadata":' + b"[" * 1_000_000)
index(
    "bomb_wide", "a million members", b'{"weight_map":{' + b",".join(b'"%d":""' % i for i in range(1_000_000)) + b"}}"
)
