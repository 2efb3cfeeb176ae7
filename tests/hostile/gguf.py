"""Broken and hostile GGUF files."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.hostile import Cases, device, file_of, pipe

CASES: Cases = {}

U8, U32, F32, BOOL, STRING, ARRAY, U64 = 0, 4, 6, 7, 8, 9, 10
Q4_1, F64, REMOVED, UNKNOWN = 3, 28, 4, 4711  # types of tensors: one that is read, and three that are not


def number(kind: str, *values: float) -> bytes:
    return struct.pack("<" + kind, *values)


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return number("Q", len(raw)) + raw


def u32(value: int) -> bytes:
    return number("I", U32) + number("I", value)


def text(value: str | bytes) -> bytes:
    return number("I", STRING) + string(value)


def array(kind: int, count: int, content: bytes = b"") -> bytes:
    return number("I", ARRAY) + number("I", kind) + number("Q", count) + content


def tensor(name: str | bytes, shape: Sequence[int], offset: int, kind: int = 0, rank: int | None = None) -> bytes:
    """The sizes in the file's order: the last axis first."""
    sizes = b"".join(number("Q", size) for size in shape)
    return string(name) + number("I", len(shape) if rank is None else rank) + sizes + number("IQ", kind, offset)


def gguf(
    metadata: Sequence[bytes] | Mapping[str, bytes],
    tensors: Sequence[bytes],
    data: int = 0,
    counts: tuple[int | None, int | None] = (None, None),
    version: int = 3,
) -> bytes:
    """A file with so many bytes of data; `counts` of tensors and metadata are told in the place of the true ones."""
    entries = [string(key) + value for key, value in metadata.items()] if isinstance(metadata, Mapping) else metadata
    sizes = [len(each) if count is None else count for each, count in zip((tensors, entries), counts, strict=True)]
    header = b"GGUF" + struct.pack("<IQQ", version, *sizes) + b"".join(entries) + b"".join(tensors)
    return header + bytes(-len(header) % 32) + bytes(data)


WIDTH, INNER, VOCABULARY = 32, 64, 8
METADATA = {
    "general.architecture": text("llama"),
    "llama.block_count": u32(1),
    "llama.context_length": u32(64),
    "llama.embedding_length": u32(WIDTH),
    "llama.feed_forward_length": u32(INNER),
    "llama.attention.head_count": u32(4),
    "llama.attention.layer_norm_rms_epsilon": number("I", F32) + number("f", 1e-5),
}
SHAPES = {
    "token_embd": (WIDTH, VOCABULARY),
    "output_norm": (WIDTH,),
    "blk.0.attn_norm": (WIDTH,),
    "blk.0.attn_q": (WIDTH, WIDTH),
    "blk.0.attn_k": (WIDTH, WIDTH),
    "blk.0.attn_v": (WIDTH, WIDTH),
    "blk.0.attn_output": (WIDTH, WIDTH),
    "blk.0.ffn_norm": (WIDTH,),
    "blk.0.ffn_gate": (WIDTH, INNER),
    "blk.0.ffn_up": (WIDTH, INNER),
    "blk.0.ffn_down": (INNER, WIDTH),
}


def laid_out(shapes: Mapping[str, Sequence[int]]) -> tuple[list[bytes], int]:
    """Tensors in float32, one after the other, and how many bytes they take."""
    laid, offset = [], 0
    for name, shape in shapes.items():
        laid.append(tensor(f"{name}.weight", shape, offset))
        offset += -(-4 * math.prod(shape) // 32) * 32
    return laid, offset


TENSORS, DATA = laid_out(SHAPES)
GOOD = gguf(METADATA, TENSORS, DATA)
ONE = [tensor("token_embd.weight", (WIDTH, VOCABULARY), 0)]
ONE_DATA = 4 * WIDTH * VOCABULARY


def case(name: str, wrong: str, content: bytes, file: str = "model.gguf") -> None:
    CASES[f"gguf_{name}"] = wrong, file_of(file, content)


def metadata(name: str, wrong: str, **changes: bytes | None) -> None:
    """The tiny Llama with other metadata: a double underscore stands for a dot, None for what is missing."""
    changed = METADATA | {key.replace("__", "."): value for key, value in changes.items()}
    kept = {key: value for key, value in changed.items() if value is not None}
    case(name, wrong, gguf(kept, TENSORS, DATA))


def tensors(
    name: str, wrong: str, *infos: bytes, data: int = ONE_DATA, extra: Mapping[str, bytes] | None = None
) -> None:
    case(name, wrong, gguf(METADATA | (extra or {}), infos, data))


# The file as a whole --------------------------------------------------------------------------------------------------

case("empty", "no bytes at all", b"")
case("magic_alone", "four bytes", b"GGUF")
case("other_magic", "another format", b"GGML" + GOOD[4:])
case("safetensors", "a safetensors file under this name", number("Q", 2) + b"{}" + bytes(64))
case("lfs_pointer", "git's placeholder", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
case("version_1", "version 1, whose counts are shorter", gguf(METADATA, TENSORS, DATA, version=1))
case("version_4", "a version to come", gguf(METADATA, TENSORS, DATA, version=4))
case("big_endian", "numbers in the other byte order", gguf(METADATA, TENSORS, DATA, version=3 << 24))
for at in (20, 40, 100, 400, len(GOOD) - DATA - 40, len(GOOD) - 1):
    case(f"truncated_{at}", f"nothing after byte {at}", GOOD[:at])

# Counts and lengths ---------------------------------------------------------------------------------------------------

for label, count in {"2_16": 1 << 16, "2_32": 1 << 32, "2_63": 1 << 63, "2_64": (1 << 64) - 1}.items():
    case(f"tensors_{label}", f"announces {count} tensors", gguf(METADATA, TENSORS, DATA, (count, None)))
    case(f"metadata_{label}", f"announces {count} metadata", gguf(METADATA, TENSORS, DATA, (None, count)))
    huge = array(STRING, count)
    metadata(f"strings_{label}", f"announces {count} strings", tokenizer__ggml__tokens=huge)
    metadata(f"numbers_{label}", f"announces {count} numbers", tokenizer__ggml__scores=array(F32, count))
    metadata(f"text_{label}", f"text of {count} bytes", general__name=number("I", STRING) + number("Q", count))
    tensors(f"name_{label}", f"a name of {count} bytes", number("Q", count) + b"token_embd.weight" + bytes(64))
    tensors(f"size_{label}", f"an axis of {count}", tensor("token_embd.weight", (WIDTH, count), 0))
    tensors(f"offset_{label}", f"an offset of {count}", tensor("token_embd.weight", (WIDTH, VOCABULARY), count))
    tensors(f"rank_{label}", "many axes", tensor("token_embd.weight", (WIDTH,), 0, rank=min(count, (1 << 32) - 1)))
    blocks = u32(min(count, (1 << 32) - 1))
    metadata(f"layers_{label}", "many layers", llama__block_count=blocks)
    metadata(f"heads_{label}", "many heads", llama__attention__head_count=blocks)
    metadata(f"width_{label}", "a wide model", llama__embedding_length=blocks)
case("many_strings", "two million empty strings", gguf({"a": array(STRING, 2_000_000, bytes(16_000_000))}, []))
full = array(STRING, 1 << 20, bytes(8 << 20))
case(
    "strings_then_nothing", "a million empty strings, and no more of the file", gguf({"a": full, "b": u32(1)}, [])[:-40]
)
case("strings_cut", "a million empty strings, the last one missing", gguf({"a": full}, [])[: -(8 + 32)])
case(
    "booleans_then_nothing",
    "eight million booleans, the last one wrong",
    gguf({"a": array(BOOL, 8 << 20, bytes((8 << 20) - 1) + b"\x02")}, []),
)
case("long_text", "text of five megabytes", gguf({"a": text(bytes(5 << 20))}, []))
case("many_metadata", "five thousand metadata", gguf({f"k{i}": u32(1) for i in range(5000)}, []))
case("long_key", "a key of a million letters", gguf({"k" * 1_000_000: u32(1)}, []))
case("long_name", "a tensor's name of a million letters", gguf(METADATA, [tensor("n" * 1_000_000, (1,), 0)], 64))

# Metadata -------------------------------------------------------------------------------------------------------------

duplicate = [string("general.architecture") + text("llama")] * 2
case("duplicate_metadata", "one key twice", gguf(duplicate, TENSORS, DATA))
metadata("unknown_type", "metadata of type 99", general__name=number("I", 99) + bytes(8))
metadata("nested_array", "arrays in an array", general__tags=array(ARRAY, 1, number("I", U8) + number("Q", 0)))
metadata("boolean_two", "a boolean of value 2", general__flag=number("I", BOOL) + b"\x02")
case("key_invalid_utf8", "a key that is not UTF-8", gguf([string(b"\xff") + u32(1)], TENSORS, DATA))
metadata("text_invalid_utf8", "text that is not UTF-8", general__name=text(b"\xff"))
metadata("no_architecture", "no architecture", general__architecture=None)
metadata("architecture_number", "a number for the architecture", general__architecture=u32(1))
metadata("unknown_architecture", "an unknown architecture", general__architecture=text("mamba"))
metadata("architecture_escapes", "an architecture of control characters", general__architecture=text("\x1b[2J\n" * 99))
metadata("split_list", "a list for the number of parts", split__count=array(U32, 2, bytes(8)))
metadata("split", "one part of three", split__count=number("I", 2) + number("H", 3))
for key in METADATA:
    if key != "general.architecture":
        metadata(f"without_{key}", f"no {key}", **{key: None})
        metadata(f"text_{key}", f"text for {key}", **{key: text("7")})
        metadata(f"array_{key}", f"a list for {key}", **{key: array(U32, 2, bytes(8))})
        metadata(f"zero_{key}", f"0 for {key}", **{key: u32(0)})
for label, eps in {"nan": float("nan"), "inf": float("inf"), "negative": -1.0}.items():
    value = number("I", F32) + number("f", eps)
    metadata(f"eps_{label}", f"an epsilon of {eps}", llama__attention__layer_norm_rms_epsilon=value)
    metadata(f"theta_{label}", f"a base of {eps}", llama__rope__freq_base=value)
metadata("heads_odd", "heads that do not divide the width", llama__attention__head_count=u32(5))
metadata("kv_heads", "more heads of keys than of queries", llama__attention__head_count_kv=u32(3))
metadata("rope_part", "positions turn half of a head", llama__rope__dimension_count=u32(4))
metadata("rope_unknown", "an unknown scaling of positions", llama__rope__scaling__type=text("longrope"))
metadata("experts", "a mixture of experts", llama__expert_count=u32(8))
metadata("unknown_option", "an option that is not known", llama__logit_scale=number("I", F32) + number("f", 2.0))
metadata("vocabulary", "another size of the vocabulary", llama__vocab_size=u32(9))
metadata("many_numbers", "a long list for an option", llama__expert_count=array(U8, 1 << 20, bytes(1 << 20)))
for label, alignment in {"0": 0, "3": 3, "2_31": 1 << 31}.items():
    metadata(f"alignment_{label}", f"an alignment of {alignment}", general__alignment=u32(alignment))
metadata("alignment_text", "text for the alignment", general__alignment=text("32"))

# Tensors --------------------------------------------------------------------------------------------------------------

tensors("no_tensors", "no tensors")
tensors("no_embeddings", "no table of embeddings", tensor("output_norm.weight", (WIDTH,), 0))
tensors("duplicate_tensor", "one tensor twice", *ONE, tensor("token_embd.weight", (WIDTH, VOCABULARY), ONE_DATA))
tensors("missing", "most tensors are missing", *ONE)
tensors("past_the_end", "a tensor that ends after the file", *ONE, data=ONE_DATA - 1)
tensors("overlap", "two tensors share bytes", *ONE, tensor("output_norm.weight", (WIDTH,), 32), data=2 * ONE_DATA)
tensors("gap", "unused bytes between tensors", *ONE, tensor("output_norm.weight", (WIDTH,), 2048), data=4096)
tensors("unaligned", "an offset that is not aligned", tensor("token_embd.weight", (WIDTH, VOCABULARY), 1))
tensors("rank_0", "no axes", tensor("token_embd.weight", (), 0))
tensors("rank_5", "five axes", tensor("token_embd.weight", (1,) * 5, 0))
tensors("empty_axis", "an axis of 0", tensor("token_embd.weight", (WIDTH, 0), 0))
tensors("overflow", "2^64 numbers", tensor("token_embd.weight", (1 << 16,) * 4, 0))
tensors("wrapped", "sizes whose product is small modulo 2^64", tensor("token_embd.weight", (1 << 32, 1 << 32, 1, 8), 0))
tensors("half_a_block", "a row that is not whole blocks", tensor("token_embd.weight", (33, VOCABULARY), 0, Q4_1))
tensors("float64", "a type that is not read", tensor("token_embd.weight", (WIDTH, VOCABULARY), 0, F64))
tensors("removed_type", "a type that was removed", tensor("token_embd.weight", (WIDTH, VOCABULARY), 0, REMOVED))
tensors("unknown_kind", "an unknown type", tensor("token_embd.weight", (WIDTH, VOCABULARY), 0, UNKNOWN))
tensors("name_invalid_utf8", "a name that is not UTF-8", tensor(b"\xff", (WIDTH,), 0))
tensors(
    "unknown_tensor", "a tensor without a place", *ONE, tensor("blk.0.ssm_a", (WIDTH,), ONE_DATA), data=2 * ONE_DATA
)
tensors("hub_names", "Hugging Face's names", *ONE, tensor("model.norm.weight", (WIDTH,), ONE_DATA), data=2 * ONE_DATA)
rope = tensor("rope_freqs.weight", (4,), ONE_DATA)
tensors("rope_zero", "factors of 0 for the positions", *ONE, rope, data=2 * ONE_DATA)
for label, change in {
    "q_rows": {"blk.0.attn_q": (WIDTH, 30)},  # not the same number of pairs for each head
    "q_rank": {"blk.0.attn_q": (WIDTH, 2, 16)},
    "norm_rows": {"output_norm": (2 * WIDTH,)},
    "second_layer": {"blk.1.attn_norm": (WIDTH,)},
    "long_rope": {"rope_freqs": (4, 2)},
}.items():
    case(label, f"a tensor of the shape {change}", gguf(METADATA, *laid_out({**SHAPES, **change})))

# What is not a file ---------------------------------------------------------------------------------------------------


def terabytes(folder: Path) -> Path:
    path = folder / "model.gguf"
    path.write_bytes(gguf(METADATA | {"general.name": number("I", STRING) + number("Q", 1 << 41)}, TENSORS))
    os.truncate(path, 1 << 42)  # sparse: takes no room on the disk
    return path


def two_files(folder: Path) -> Path:
    for name in "ab":
        (folder / f"{name}.gguf").write_bytes(GOOD)
    return folder


CASES["gguf_terabytes"] = "text of two terabytes in a file that has them", terabytes
CASES["gguf_pipe"] = "a pipe, which would wait for ever", pipe("model.gguf")
CASES["gguf_device"] = "a link to a device without end", device("model.gguf")
CASES["gguf_folder_of_two"] = "a folder with two files to choose from", two_files
