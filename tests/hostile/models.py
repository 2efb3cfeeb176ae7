"""Broken and hostile ONNX files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from tests.hostile import Cases

CASES: Cases = {}


def _nothing(folder: Path) -> None:
    pass


def floats(name: str = "w", dims: tuple[int, ...] = (4,), **content: Any) -> TensorProto:
    return TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims, **content)


def external(dims: tuple[int, ...] = (4,), /, data_type: int = TensorProto.FLOAT, **entries: object) -> TensorProto:
    tensor = TensorProto(name="w", data_type=data_type, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def graph_of(*initializers: TensorProto, nodes: tuple[onnx.NodeProto, ...] = ()) -> onnx.GraphProto:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    nodes = nodes or (helper.make_node("Add", ["x", "w"], ["y"]),)
    return helper.make_graph(nodes, "g", values[:1], values[1:], initializers)


def model_of(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)], producer_name="hostile")


def onnx_file(
    name: str,
    wrong: str,
    content: bytes | Callable[[], bytes] | onnx.ModelProto | TensorProto,
    prepare: Callable[[Path], object] = _nothing,
) -> None:
    """A model in model/, next to outside.bin of 16 bytes; `prepare` may add files to model/.

    A function makes content that is large, when it is written.
    """
    model = model_of(graph_of(content)) if isinstance(content, TensorProto) else content
    data = model.SerializeToString(deterministic=True) if isinstance(model, onnx.ModelProto) else model

    def write(folder: Path) -> Path:
        home = folder / "model"
        home.mkdir()
        (folder / "outside.bin").write_bytes(bytes(16))
        prepare(home)
        (home / "model.onnx").write_bytes(data if isinstance(data, bytes) else data())
        return home / "model.onnx"

    CASES[f"onnx_{name}"] = wrong, write


def sixteen(folder: Path) -> None:
    (folder / "data.bin").write_bytes(bytes(16))


FINE = model_of(graph_of(floats(raw_data=bytes(16)))).SerializeToString(deterministic=True)
for label, location in {
    "absolute": "/etc/passwd",
    "parent": "../outside.bin",
    "hidden_parent": "x/../../outside.bin",
    "backslash": "..\\outside.bin",
    "drive": "C:data.bin",
    "unc": "//server/share/data.bin",
    "missing": "nowhere.bin",
    "empty": "",
    "here": ".",
    "newline": "data\n.bin",
    "nul": "data.bin\0",
    "url": "file:///etc/passwd",
    "below_a_file": "data.bin/x",
    "memory": "*/_ORT_MEM_ADDR_/*",
    "itself_as_folder": "../model",
}.items():
    onnx_file(f"location_{label}", f"data at {location!r}", external(location=location), sixteen)
D = external(location="data.bin", offset=0, length=16)
onnx_file("symlink", "data is a link out", D, lambda f: (f / "data.bin").symlink_to("../outside.bin"))
onnx_file(
    "symlink_folder",
    "data below a linked folder",
    external(location="sub/outside.bin"),
    lambda f: (f / "sub").symlink_to(".."),
)
onnx_file(
    "hardlink", "data is another name of a file outside", D, lambda f: os.link(f.parent / "outside.bin", f / "data.bin")
)
onnx_file("pipe", "data is a pipe", D, lambda f: os.mkfifo(f / "data.bin"))
onnx_file("device", "data is a device", D, lambda f: (f / "data.bin").symlink_to("/dev/zero"))
onnx_file("folder", "data is a folder", D, lambda f: (f / "data.bin").mkdir())
onnx_file("data_empty", "a data file without bytes", D, lambda f: (f / "data.bin").write_bytes(b""))
ENTRIES: dict[str, dict[str, Any]] = {
    "offset_beyond": {"offset": 4096, "length": 16},
    "range_beyond": {"offset": 4, "length": 16},
    "offset_negative": {"offset": -16, "length": 16},
    "offset_2_63": {"offset": 1 << 63, "length": 16},
    "offset_2_64": {"offset": 1 << 64, "length": 16},
    "offset_wrapped": {"offset": (1 << 64) - 16, "length": 16},
    "offset_text": {"offset": "0x0", "length": 16},
    "offset_digits": {"offset": "9" * 5000},
    "offset_other_digits": {"offset": "\u0661"},
    "length_negative": {"length": -16},
    "length_short": {"length": 8},
    "length_long": {"length": 32},
    "length_empty": {"length": ""},
    "key_unknown": {"prepacked_0": "x|0;1099511627776"},
}
for label, entries in ENTRIES.items():
    onnx_file(label, f"external data with {str(entries)[:60]}", external(location="data.bin", **entries), sixteen)
onnx_file(
    "overlapping_negative",
    "two tensors over each other in front of the file",
    model_of(graph_of(external(location="data.bin", offset=-8, length=16), floats("v", raw_data=bytes(16)))),
    sixteen,
)
TWICE = external(location="data.bin")
TWICE.external_data.add(key="location", value="../outside.bin")
onnx_file("location_twice", "two locations, one of them outside", TWICE, sixteen)
BOTH = external(location="data.bin")
BOTH.raw_data = bytes(16)
onnx_file("inside_and_outside", "data in the file and outside", BOTH, sixteen)
UNMARKED = external(location="../outside.bin")
UNMARKED.data_location = TensorProto.DEFAULT
onnx_file("unmarked_location", "a location on a tensor that is not external", UNMARKED, sixteen)
onnx_file(
    "external_strings", "strings outside the file", external(data_type=TensorProto.STRING, location="data.bin"), sixteen
)
onnx_file(
    "external_huge", "2^62 times 2^62 numbers in 16 bytes", external((1 << 62, 1 << 62), location="data.bin"), sixteen
)

OUT = external(location="../outside.bin")
CONSTANT = helper.make_node("Constant", [], ["y"], value=OUT)
INNER = helper.make_graph([CONSTANT], "inner", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])])
IF = helper.make_node("If", ["c"], ["y"], then_branch=INNER, else_branch=INNER)
SPARSE = onnx.SparseTensorProto(values=OUT, indices=helper.make_tensor("i", TensorProto.INT64, [4], range(4)), dims=[4])
onnx_file("in_constant", "the location in a Constant", model_of(graph_of(nodes=(CONSTANT,))))
onnx_file("in_subgraph", "the location in a branch", model_of(graph_of(nodes=(IF,))))
onnx_file(
    "in_sparse_attribute",
    "the location in a sparse Constant",
    model_of(graph_of(nodes=(helper.make_node("Constant", [], ["y"], sparse_value=SPARSE),))),
)
onnx_file(
    "in_list_attribute",
    "the location in a list of tensors",
    model_of(graph_of(nodes=(helper.make_node("Custom", [], ["y"], domain="x", values=[OUT]),))),
)
IN_SPARSE = graph_of()
IN_SPARSE.sparse_initializer.append(SPARSE)
onnx_file("in_sparse_initializer", "the location in a sparse initializer", model_of(IN_SPARSE))
IN_FUNCTION = model_of(graph_of(floats(raw_data=bytes(16))))
IN_FUNCTION.functions.append(helper.make_function("x", "f", [], ["y"], [CONSTANT], [helper.make_opsetid("", 20)]))
onnx_file("in_function", "the location in a function", IN_FUNCTION)
IN_TRAINING = model_of(graph_of(floats(raw_data=bytes(16))))
IN_TRAINING.training_info.add().algorithm.CopyFrom(INNER)
onnx_file("in_training", "the location in training data", IN_TRAINING)
onnx_file(
    "context_file",
    "a compiled part in a file outside",
    model_of(
        graph_of(
            nodes=(
                helper.make_node(
                    "EPContext", ["x"], ["y"], domain="com.microsoft", embed_mode=0, ep_cache_context="../outside.bin"
                ),
            )
        )
    ),
)

onnx_file("empty", "no bytes", b"")
onnx_file("garbage", "arbitrary bytes", bytes(range(256)) * 16)
onnx_file("text", "text instead of a model", b"<!DOCTYPE html><html>404</html>")
onnx_file("truncated", "the last bytes are missing", FINE[:-7])
onnx_file("truncated_by_half", "half the file", FINE[: len(FINE) // 2])
onnx_file("zeros", "nothing but zeros", bytes(1000))
onnx_file(
    "no_graph", "a model without a graph", onnx.ModelProto(ir_version=10, opset_import=[helper.make_opsetid("", 20)])
)
onnx_file(
    "no_ir_version",
    "a graph without an IR version",
    onnx.ModelProto(graph=graph_of(), opset_import=[helper.make_opsetid("", 20)]),
)
onnx_file("no_opset", "a model without opsets", onnx.ModelProto(ir_version=10, graph=graph_of()))
onnx_file("bare_tensor", "a tensor instead of a model", floats(raw_data=bytes(16)).SerializeToString())
NEWER = onnx.ModelProto.FromString(FINE)
NEWER.ir_version = 9999
onnx_file("newer_ir", "an IR of the future", NEWER)
onnx_file("length_2_31", "a field of 2^31 bytes in a short file", b"\x08\x0a\x3a\xff\xff\xff\xff\x07")


def nested(depth: int) -> bytes:
    """A model whose Constant is nested in `depth` graphs, encoded by hand: protobuf stops at a hundred levels."""
    data: bytes = OUT.SerializeToString(deterministic=True)
    for tag in b"\x2a\x2a" + b"\x0a\x32\x2a" * depth + b"\x0a":  # t, attribute; node, g, attribute ...; node
        data = bytes([tag]) + varint(len(data)) + data
    return b"\x08\x0a\x42\x02\x10\x14\x3a" + varint(len(data)) + data  # IR, opset, graph


def varint(number: int) -> bytes:
    low = number & 127
    return bytes([low]) if number < 128 else bytes([low | 128]) + varint(number >> 7)


def tiny_initializers(count: int) -> bytes:
    return b"\x08\x0a\x42\x02\x10\x14\x3a" + varint(2 * count) + b"\x2a\x00" * count


onnx_file("bomb_initializers", "five million tensors of two bytes", lambda: tiny_initializers(5_000_000))
onnx_file("nested_10", "the location ten graphs deep", nested(10))
onnx_file("nested_20000", "twenty thousand graphs in each other", lambda: nested(20_000))
HELD = {
    "raw_short": floats(raw_data=bytes(12)),
    "bulk_short": floats(dims=(10_000,), raw_data=bytes(39_996)),
    "bulk_outside_too": external((10_000,), location="data.bin"),
    "raw_long": floats(raw_data=bytes(20)),
    "raw_missing": floats(),
    "typed_short": floats(float_data=[1.0]),
    "typed_wrong_field": floats(int64_data=[1, 2, 3, 4]),
    "raw_and_typed": floats(raw_data=bytes(16), float_data=[1.0] * 4),
    "dims_negative": floats(dims=(-4,), raw_data=bytes(16)),
    "dims_two_negatives": floats(dims=(-2, -2), raw_data=bytes(16)),
    "dims_2_63": floats(dims=((1 << 63) - 1,), raw_data=bytes(16)),
    "dims_overflow": floats(dims=(1 << 32, 1 << 32), raw_data=b""),
    "dims_wrapped": floats(dims=((1 << 62) + 4,), raw_data=bytes(16)),
    "type_undefined": TensorProto(name="w", dims=[4], raw_data=bytes(16)),
    "type_unknown": TensorProto(name="w", data_type=999, dims=[4], raw_data=bytes(16)),
    "int4_short": TensorProto(name="w", data_type=TensorProto.INT4, dims=[5], raw_data=bytes(2)),
    "strings_short": TensorProto(name="w", data_type=TensorProto.STRING, dims=[4], string_data=[b"a"]),
    "segment": floats(raw_data=bytes(16), segment=TensorProto.Segment(begin=0, end=4)),
}
HELD["bulk_outside_too"].raw_data = bytes(40_000)
for label, held in HELD.items():
    onnx_file(label, f"a tensor with {label.replace('_', ' ')}", held)
DENSE = graph_of()
DENSE.sparse_initializer.append(
    onnx.SparseTensorProto(
        values=floats(dims=(1,), raw_data=bytes(4)),
        indices=helper.make_tensor("i", TensorProto.INT64, [1], [0]),
        dims=[1 << 40],
    )
)
onnx_file("sparse_bomb", "four terabytes out of four bytes", model_of(DENSE))


def three_gigabytes(folder: Path) -> Path:
    (folder / "model.onnx").write_bytes(FINE)
    os.truncate(folder / "model.onnx", 3 << 30)
    return folder / "model.onnx"


CASES["onnx_over_2_gib"] = "beyond protobuf's limit", three_gigabytes
