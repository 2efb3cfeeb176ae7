"""Checks that an untrusted ONNX file is safe to load, before onnxruntime reads it.

Tensor data outside the file (ONNX IR, "External Tensor Data") must be inside the model's folder. onnxruntime itself
rejects `..` and symbolic links but follows a hard link, and its checks have changed between versions.

The computation of the model is not checked: a model is a program and may take any time and memory when it runs. Its
demands at loading are counted where that is exact (`demands.py`).
"""

from __future__ import annotations

import math
import mmap
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path, PureWindowsPath

import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto

from lucid.core.words.safe_text import show
from lucid.files.atomic import NotAFileError, open_regular
from lucid.files.safetensors import places
from lucid.files.untrusted import WeightsError, broken
from lucid.files.utf8_paths import local_path
from lucid.runtime.demands import demands
from lucid.runtime.skeleton import WireError, skeleton
from lucid.runtime.subgraphs import nodes_inside, subgraphs

MAX_FILE = (1 << 31) - 1  # protobuf's
MAX_SPARSE = 1 << 31  # bytes of a sparse tensor when dense: as much as a file could hold without sparse tensors

_FLOAT8 = (
    TensorProto.FLOAT8E4M3FN,
    TensorProto.FLOAT8E4M3FNUZ,
    TensorProto.FLOAT8E5M2,
    TensorProto.FLOAT8E5M2FNUZ,
    TensorProto.FLOAT8E8M0,
)
_KINDS: dict[int, tuple[int, ...]] = {  # data types by the bits of an item
    2: (TensorProto.UINT2, TensorProto.INT2),
    4: (TensorProto.UINT4, TensorProto.INT4, TensorProto.FLOAT4E2M1),
    8: (TensorProto.UINT8, TensorProto.INT8, TensorProto.BOOL, *_FLOAT8),
    16: (TensorProto.UINT16, TensorProto.INT16, TensorProto.FLOAT16, TensorProto.BFLOAT16),
    32: (TensorProto.UINT32, TensorProto.INT32, TensorProto.FLOAT),
    64: (TensorProto.UINT64, TensorProto.INT64, TensorProto.DOUBLE, TensorProto.COMPLEX64),
    128: (TensorProto.COMPLEX128,),
}
_BITS = {kind: bits for bits, kinds in _KINDS.items() for kind in kinds}


class ModelError(ValueError):
    """An ONNX file that is broken, or whose data is in a place where it must not be."""


_broken = partial(broken, error=ModelError)


def check_model_file(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """Check that an ONNX file parses, and that each tensor's data exists, has its size, and is inside the folder.

    Reads the file itself, never the external data. Nothing is executed. The result is valid as long as nobody changes
    the folder.

    Returns:
        The model without its large data.

    Raises:
        ModelError: for a file that is not a model, is newer than the installed onnx, has a tensor whose data does not
            match its type and shape, or demands more than any real model when it is loaded.
        OSError: for a file that is missing or may not be read.
    """
    return check_and_locate(Path(path))[0]


def check_and_locate(path: Path) -> tuple[onnx.ModelProto, list[range]]:
    """`check_model_file`, and which bytes of the file are each initializer's data; none if the model has it."""
    model, removed = _read(path)
    check_names(model, show(path))
    check_stored_once(model, show(path))
    named: dict[str, dict[str, range]] = {}
    for tensor, bulk in _tensors(model, removed, path):
        if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data:
            _check_external(tensor, bulk, path, named)
        else:
            _check_inline(tensor, bulk, path)
    check_demands(model, path)
    return model, removed


def check_stored_once(model: onnx.ModelProto, title: str) -> None:
    """Raise ModelError for initializers of one name: readers disagree about which of them counts."""
    names = [tensor.name for tensor in model.graph.initializer]
    names += [sparse.values.name for sparse in model.graph.sparse_initializer]
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise ModelError(
            f"{title}: tensor {show(twice)} is stored twice, expected once; get an intact copy of the file"
        )


def check_demands(model: onnx.ModelProto, path: Path) -> None:
    """Raise ModelError for a model that demands too much when it is loaded. Its tensors have been checked before."""
    if excess := demands(model):
        raise ModelError(f"{show(path)}: {excess}; do not use this model, or export it again without them")


def _read(path: Path) -> tuple[onnx.ModelProto, list[range]]:
    """The model without large data, and the bytes of each initializer of its graph that were left out."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if not 0 < size <= MAX_FILE:
                raise _broken(path, f"{size} bytes, expected 1 to {MAX_FILE}")
            with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
                slim, removed = skeleton(data)
    except NotAFileError as error:
        raise ModelError(str(error)) from error
    except WireError as error:
        raise _broken(path, f"not an ONNX model, or a truncated one ({error})") from error
    try:
        model: onnx.ModelProto = onnx.ModelProto.FromString(slim)
    except DecodeError as error:
        raise _broken(path, f"not an ONNX model, or a truncated one ({error})") from error
    if not model.HasField("graph") or model.ir_version < 1:
        raise _broken(path, "expected an ONNX model, found no graph or IR version")
    if model.ir_version > onnx.IR_VERSION:
        raise ModelError(
            f"{show(path)}: IR version {model.ir_version}, expected at most {int(onnx.IR_VERSION)}, the "
            f"newest that onnx {onnx.__version__} knows; install a newer onnx, or export for an older IR"
        )
    if model.ir_version >= 3 and not model.opset_import:
        raise _broken(path, "expected an opset, found none")
    return model, removed


def check_names(model: onnx.ModelProto, title: str) -> None:
    """Raise ModelError for text that is not UTF-8, as in a damaged file: protobuf gives it as bytes."""
    graph = model.graph
    _check_texts(title, model.producer_name, model.producer_version, model.domain, graph.name)
    _check_texts(title, *(text for entry in model.metadata_props for text in (entry.key, entry.value)))
    _check_texts(title, *(entry.domain for entry in model.opset_import))
    nodes = nodes_inside([*graph.node, *(node for function in model.functions for node in function.node)])
    for function in model.functions:
        _check_texts(title, function.name, function.domain, *function.input, *function.output)
    for node in nodes:
        _check_texts(title, node.name, node.op_type, node.domain, *node.input, *node.output)
        _check_texts(title, *(attribute.name for attribute in node.attribute))
    for each in [graph, *(inner for node in nodes for inner in subgraphs(node))]:
        _check_texts(title, *(tensor.name for tensor in each.initializer))
        for value in (*each.input, *each.output, *each.value_info):
            _check_texts(title, value.name, *(size.dim_param for size in value.type.tensor_type.shape.dim))


def _check_texts(title: str, *texts: str | bytes) -> None:
    for text in texts:
        if isinstance(text, bytes):
            raise ModelError(f"{title}: a name is not text in UTF-8: {show(text)}; get an intact copy of the file")


# ---------------------------------------------------------------------------------------------------- tensors


def _tensors(model: onnx.ModelProto, removed: list[range], path: Path) -> Iterator[tuple[TensorProto, int]]:
    """Every tensor, of all graphs, subgraphs, attributes, functions and training, and the bytes removed from it."""
    yield from zip(model.graph.initializer, map(len, removed), strict=True)
    yield from _sparse_tensors(model.graph.sparse_initializer, path)
    graphs: list[GraphProto] = []
    nodes: list[NodeProto] = list(model.graph.node)
    attributes: list[AttributeProto] = []
    for training in model.training_info:
        graphs += [training.initialization, training.algorithm]
    for function in model.functions:
        nodes += function.node
        attributes += function.attribute_proto
    while graphs or nodes or attributes:
        if graphs:
            graph = graphs.pop()
            nodes += graph.node
            yield from ((tensor, 0) for tensor in graph.initializer)
            yield from _sparse_tensors(graph.sparse_initializer, path)
        elif nodes:
            node = nodes.pop()
            attributes += node.attribute
            if node.op_type == "EPContext":
                _check_context(node, path)
        else:
            attribute = attributes.pop()
            yield from ((tensor, 0) for tensor in attribute.tensors)
            yield from _sparse_tensors(attribute.sparse_tensors, path)
            graphs += attribute.graphs
            if attribute.HasField("t"):
                yield attribute.t, 0
            if attribute.HasField("sparse_tensor"):
                yield from _sparse_tensors([attribute.sparse_tensor], path)
            if attribute.HasField("g"):
                graphs.append(attribute.g)


def _sparse_tensors(sparse: Sequence[onnx.SparseTensorProto], path: Path) -> Iterator[tuple[TensorProto, int]]:
    for tensor in sparse:
        size = _byte_size(tensor.values, tensor.dims, path)
        if size > MAX_SPARSE:
            raise _wrong(tensor.values, path, f"a sparse tensor of {size} bytes when dense", f"at most {MAX_SPARSE}")
        yield tensor.values, 0
        yield tensor.indices, 0


def _check_context(node: NodeProto, path: Path) -> None:
    """A compiled part of a model for some device, by default in a second file that an attribute names."""
    values = {attribute.name: attribute for attribute in node.attribute}
    if "embed_mode" in values and values["embed_mode"].i == 0 and "ep_cache_context" in values:
        location = values["ep_cache_context"].s.decode("utf-8", "backslashreplace")
        _inside(location, path, f"node {show(node.name)}")


# ------------------------------------------------------------------------------------------------------- data


def _byte_size(tensor: TensorProto, dims: Sequence[int], path: Path) -> int:
    if tensor.data_type not in _BITS:
        raise _wrong(tensor, path, f"data type {tensor.data_type}", "one of a known size")
    if any(dim < 0 for dim in dims):
        raise _wrong(tensor, path, f"shape {show(list(dims))}", "no negative size")
    return bytes_for(math.prod(dims), tensor.data_type)


def bytes_for(count: int, data_type: int) -> int:
    """The bytes of `count` items of one of ONNX's data types, apart from texts; small items are packed."""
    return (count * _BITS[data_type] + 7) // 8


def _check_inline(tensor: TensorProto, bulk: int, path: Path) -> None:
    if tensor.HasField("segment"):
        raise _wrong(tensor, path, "a segmented tensor", "one without segments; save the model again")
    held = {
        "raw_data": len(tensor.raw_data) + bulk,
        "float_data": len(tensor.float_data),
        "int32_data": len(tensor.int32_data),
        "int64_data": len(tensor.int64_data),
        "double_data": len(tensor.double_data),
        "uint64_data": len(tensor.uint64_data),
        "string_data": len(tensor.string_data),
    }
    filled = {field: length for field, length in held.items() if length}
    if tensor.data_type == TensorProto.STRING:
        if any(dim < 0 for dim in tensor.dims):
            raise _wrong(tensor, path, f"shape {show(list(tensor.dims))}", "no negative size")
        expected = {"string_data": math.prod(tensor.dims)}
    else:
        size = _byte_size(tensor, tensor.dims, path)
        field, length = _field(tensor.data_type, math.prod(tensor.dims))
        expected = {"raw_data": size} if "raw_data" in filled else {field: length}
    if filled != {field: length for field, length in expected.items() if length}:
        raise _wrong(tensor, path, f"data of length {filled or 0}", f"{expected} for shape {show(list(tensor.dims))}")


def _field(data_type: int, count: int) -> tuple[str, int]:
    """The field that holds `count` items that are not raw, and its number of entries (onnx.proto, TensorProto)."""
    field = onnx.helper.tensor_dtype_to_field(data_type)
    if data_type in (TensorProto.COMPLEX64, TensorProto.COMPLEX128):
        return field, 2 * count
    # Items smaller than a byte are packed, with one byte per entry.
    return field, (count * min(_BITS[data_type], 8) + 7) // 8


def _check_external(tensor: TensorProto, bulk: int, path: Path, named: dict[str, dict[str, range]]) -> None:
    """`named`: the places of tensors in the safetensors files that have been read, by the files' locations."""
    fields = [(entry.key, entry.value) for entry in tensor.external_data]
    values = dict(fields)
    # Other keys are onnxruntime's own (prepacked weights): further offsets, to data that the model does not need.
    if len(values) != len(fields) or not values.keys() <= {"location", "offset", "length", "checksum"}:
        got = f"external data with the keys {show([key for key, _ in fields])}"
        raise _wrong(tensor, path, got, "location, offset, length, checksum, each once")
    if tensor.data_location != TensorProto.EXTERNAL or tensor.raw_data or bulk:
        raise _wrong(tensor, path, "data both inside and outside the file", "only one of them")
    size = _byte_size(tensor, tensor.dims, path)
    file_size = _inside(values.get("location", ""), path, f"tensor {show(tensor.name)}")
    offset = _count(tensor, path, "offset", values.get("offset", "0"))
    length = _count(tensor, path, "length", values.get("length", str(size)))
    if length != size:
        raise _wrong(tensor, path, f"external data of {length} bytes", f"{size} for shape {show(list(tensor.dims))}")
    if values["location"].endswith(".safetensors"):
        _check_place(tensor, path, values["location"], range(offset, offset + length), named)
    if offset + length > file_size:
        got = f"external data from byte {offset} to {offset + length} of a file of {file_size}"
        raise _wrong(tensor, path, got, "a range inside it; the data file is truncated, or another model's")


def _check_place(
    tensor: TensorProto, path: Path, location: str, data: range, named: dict[str, dict[str, range]]
) -> None:
    """Refuse a place other than that of the named tensor in a safetensors file, which may have been replaced."""
    if location not in named:
        try:
            stored = places(path.parent / local_path(location))
        except WeightsError as error:
            raise ModelError(f"{show(path)}: {error}") from error
        named[location] = {name: place for name, (_, _, place) in stored.items()}
    place = named[location].get(tensor.name)
    if place is None:
        raise _wrong(tensor, path, f"no tensor of this name in {location}", "one; export the model again")
    if place != data:
        got = f"bytes {data.start} to {data.stop} of {location}, which has it at {place.start} to {place.stop}"
        raise _wrong(tensor, path, got, "its place: write the file as when the model was exported, or export it again")


def _count(tensor: TensorProto, path: Path, key: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise _wrong(tensor, path, f"{key} {show(text)}", "a non-negative integer")
    return int(text)


def _inside(location: str, path: Path, who: str) -> int:
    """The size of the data file at `location`, which must be a regular file, not a link, below the model's folder."""
    parts = location.split("/")
    if (
        "_MEM_ADDR_" in location  # onnxruntime reads it as an address in its own memory
        or not location.isprintable()
        or "\\" in location
        or PureWindowsPath(location).drive
        or any(part in ("", "..") for part in parts)
    ):
        raise ModelError(
            f"{show(path)}: {who}: data location {show(location)}, expected a relative path inside the "
            "model's folder; do not use this model, or correct the location if you trust it"
        )
    data = path.parent
    try:
        for part in parts:
            data = data / local_path(part)
            if data.is_symlink():
                raise _linked(path, who, data, "a symbolic link")
        with open_regular(data) as file:
            status = os.fstat(file.fileno())
    except FileNotFoundError as error:
        raise ModelError(
            f"{show(path)}: {who}: there is no data file {show(data)}; put it into the model's folder"
        ) from error
    except NotADirectoryError as error:
        raise ModelError(f"{show(path)}: {who}: {show(data)} is below a file; get an intact copy") from error
    except NotAFileError as error:
        raise ModelError(f"{show(path)}: {who}: {error}") from error
    if status.st_nlink > 1:
        raise _linked(path, who, data, f"a hard link, one of {status.st_nlink} names of a file")
    return status.st_size


# --------------------------------------------------------------------------------------------------- messages


def _linked(path: Path, who: str, data: Path, kind: str) -> ModelError:
    return ModelError(
        f"{show(path)}: {who}: the data file {show(data)} is {kind}, so it may be a file from elsewhere; "
        "if you trust it, put a copy in its place (cp -L)"
    )


def _wrong(tensor: TensorProto, path: Path, got: str, expected: str) -> ValueError:
    return _broken(path, f"tensor {show(tensor.name)}: {got}, expected {expected}")


def external_files(model: onnx.ModelProto) -> set[str]:
    """The files with a model's external data: a side file, or, for large weights, the model's own file."""
    entries = (entry for tensor in model.graph.initializer for entry in tensor.external_data)
    return {local_path(entry.value) for entry in entries if entry.key == "location"}


def stored_tensors(path: str | os.PathLike[str]) -> tuple[onnx.ModelProto, dict[str, memoryview]]:
    """A file's model without its large data, and the bytes of each initializer of its graph, in C order, by name.

    Raises:
        ModelError, OSError: as `check_model_file`.
    """
    path = Path(path)
    model, places = check_and_locate(path)
    files = {path: _mapped(path)}
    stored: dict[str, memoryview] = {}
    for tensor, place in zip(model.graph.initializer, places, strict=True):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            side, start = path.parent / local_path(entries["location"]), int(entries.get("offset", "0"))
            if side not in files:
                files[side] = _mapped(side)
            stop = start + int(entries["length"]) if "length" in entries else None
            stored[tensor.name] = files[side][start:stop]
        elif place:
            stored[tensor.name] = files[path][place.start : place.stop]
        else:
            stored[tensor.name] = bytes_of(tensor)
    return model, stored


def bytes_of(tensor: onnx.TensorProto) -> memoryview:
    """The bytes of a tensor that holds its data; of texts, one after the other."""
    if tensor.data_type == onnx.TensorProto.STRING:
        return memoryview(b"\0".join(tensor.string_data))
    if tensor.HasField("raw_data"):
        return memoryview(tensor.raw_data)
    return memoryview(onnx.numpy_helper.to_array(tensor).tobytes())


def _mapped(path: Path) -> memoryview:
    with open_regular(path) as file:
        if not os.fstat(file.fileno()).st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
