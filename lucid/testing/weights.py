"""Every stored number of a file compared, bit by bit, with what the model exports now.

The same model gives the same bytes, so a file is compared with an export of the model in memory: each initializer with
that of its name, whatever the exporter did to the weight (transposed, joined, rounded, packed), and each node with its
node. Files that were exported otherwise, or changed by other tools, differ in more than numbers: what cannot be
compared then is counted and named.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import onnx

from lucid.core.graph.types import Array, DTypeLike
from lucid.core.process.threads import share
from lucid.core.targets.known import ACCURACY_LEVEL, OLDEST_RELEASE
from lucid.core.version import __version__
from lucid.core.words.phases import phase
from lucid.export.exporter import Lowered, lower
from lucid.export.onnx_file.array_bytes import byte_blocks, in_order
from lucid.export.onnx_file.assemble import PRODUCER, TARGET, Assembled
from lucid.export.preprocessing import Preprocessing
from lucid.export.target import ExportError, Target
from lucid.runtime.model_file import check_model_file
from lucid.runtime.stored_tensors import bytes_of, stored_tensors
from lucid.testing.report import DifferentWeight, WeightReport
from lucid.tracing.parts import TracedPart

_WIDTHS = {  # bits of the element types of quantized weights
    onnx.TensorProto.INT4: 4,
    onnx.TensorProto.UINT4: 4,
    onnx.TensorProto.INT8: 8,
    onnx.TensorProto.UINT8: 8,
}
_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE)


def export_again(
    traced: TracedPart,
    exported: onnx.ModelProto | str | os.PathLike[str],
    target: Target | str,
    dtype: DTypeLike | None = None,
    keep_io_types: bool = True,
    preprocessing: Preprocessing | None = None,
) -> Lowered | str:
    """The model as it is exported now, for the opset and release that a file was exported for; or why it cannot be.

    The target is the file's too, unless one is given as a `Target`.

    Raises:
        ModelError, OSError: as `lucid.runtime.check_model_file`.
    """
    model = exported if isinstance(exported, onnx.ModelProto) else check_model_file(exported)
    told = {entry.key: entry.value for entry in model.metadata_props}
    if not isinstance(target, Target) and model.producer_name == PRODUCER:
        target = told.get(TARGET, target)
    opset = next((entry.version for entry in model.opset_import if not entry.domain), None)
    try:
        wanted = Target.of(target, opset, None)
        wanted = replace(
            wanted,
            opset=wanted.opset,
            onnxruntime=told.get(OLDEST_RELEASE, wanted.onnxruntime),
            accuracy_level=_accuracy_level(model, told, wanted.accuracy_level),
        )
        return lower(traced, wanted, dtype, keep_io_types, preprocessing=preprocessing)
    except ExportError as error:
        return f"the model cannot be exported as the file was: {error}"


def _accuracy_level(model: onnx.ModelProto, told: Mapping[str, str], default: int) -> int:
    """What a file says of its products with quantized weights."""
    if told.get(ACCURACY_LEVEL, "").isdecimal():
        return int(told[ACCURACY_LEVEL])
    levels = (
        attribute.i
        for node in model.graph.node
        for attribute in node.attribute
        if attribute.name == "accuracy_level" and node.op_type == "MatMulNBits"
    )
    return next(levels, default)


@phase("comparing weights")
def compare_weights(exported: onnx.ModelProto | str | os.PathLike[str], expected: Lowered | str) -> WeightReport:
    """Compare all initializers and nodes of a file with those of an export.

    Args:
        exported: the file, or a model with its data.
        expected: the model as it is exported now; or why it cannot be, for a report of nothing.

    Raises:
        ModelError, OSError: as `lucid.runtime.check_model_file`.
    """
    if isinstance(exported, onnx.ModelProto):
        if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in exported.graph.initializer):
            return WeightReport(0, len(exported.graph.initializer), note="the weights are in a file: compare that")
        model, data = exported, {tensor.name: bytes_of(tensor) for tensor in exported.graph.initializer}
    else:
        model, data = stored_tensors(exported)
    if isinstance(expected, str):
        return WeightReport(0, len(data), note=expected)
    made = expected.assembled
    same, changed = _compared_nodes(model, made.skeleton)
    if changed and not _is_ours(model):
        same, changed = False, []
    # A constant's name counts it: in another graph it is that of another constant.
    counted = set() if same else made.initializers.keys() - expected.lowering.build.parameters
    headers = {tensor.name: tensor for tensor in model.graph.initializer}
    names = [name for name in headers if name in made.initializers and name not in counted]
    found: dict[str, DifferentWeight | str | None] = {}

    def work(jobs: Iterator[str]) -> None:
        for name in jobs:
            found[name] = _compared(headers[name], data[name], made)

    share(sorted(names, key=lambda name: -made.initializers[name].nbytes), work)
    results = {name: found[name] for name in names}
    unlike = {name: result for name, result in results.items() if isinstance(result, str)}
    others = dict.fromkeys((name for name in headers if name not in results), "it is not in the export")
    different = tuple(result for result in results.values() if isinstance(result, DifferentWeight))
    return WeightReport(
        compared=len(results) - len(unlike),
        stored=len(headers),
        numbers=sum(made.initializers[name].size for name in results if name not in unlike),
        different=different,
        not_compared={**unlike, **others},
        missing=tuple(name for name in made.initializers if name not in headers),
        changed_nodes=tuple(changed),
        damaged=bool(changed) or any(item.name not in expected.lowering.build.parameters for item in different),
        note="" if same else _origin(model, made.skeleton),
    )


def _compared(header: onnx.TensorProto, data: memoryview, made: Assembled) -> DifferentWeight | str | None:
    """How an initializer of a file differs from that of the export; why it cannot be compared; None if it is equal."""
    array, wanted = made.initializers[header.name], made.header(header.name)
    shape = list(header.dims)
    if header.data_type == wanted.data_type and shape == list(wanted.dims):
        if _equal(data, array):
            return None
        return _difference(header.name, np.frombuffer(data[: array.nbytes], array.dtype), in_order(array))
    floats = header.data_type in _FLOATS and wanted.data_type in _FLOATS
    if floats and shape in (list(wanted.dims), list(reversed(wanted.dims))):  # rounded or transposed by another tool
        dtype = onnx.helper.tensor_dtype_to_np_dtype(header.data_type)
        rounded = in_order((array if shape == list(wanted.dims) else array.T).astype(dtype))
        got = np.frombuffer(data[: rounded.nbytes], dtype)
        return None if got.tobytes() == rounded.tobytes() else _difference(header.name, got, rounded)
    return f"it is {_type(header)}, and {_type(wanted)} in the export"


def _equal(data: memoryview, array: Array) -> bool:
    """Whether these are the bytes of an array in C order."""
    start = 0
    for block in byte_blocks(array):
        if not np.array_equal(_words(data[start : start + block.nbytes]), _words(block)):
            return False
        start += block.nbytes
    return True


def _words(data: memoryview) -> Array:
    """Bytes as the largest integers that they are a whole number of: fewer to compare."""
    return np.frombuffer(data, np.uint64 if data.nbytes % 8 == 0 else np.uint8)


def _difference(name: str, got: Array, wanted: Array) -> DifferentWeight:
    places = _bits(got).reshape(wanted.shape) != _bits(wanted).reshape(wanted.shape)
    at = tuple(int(i) for i in np.argwhere(places)[0])
    found = got.reshape(wanted.shape)
    with np.errstate(invalid="ignore", over="ignore"):
        largest = float(np.abs(found[places].astype(np.float64) - wanted[places].astype(np.float64)).max())
    return DifferentWeight(name, int(places.sum()), at, str(found[at]), str(wanted[at]), largest)


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(f"u{array.dtype.itemsize}")


def _type(tensor: onnx.TensorProto) -> str:
    return f"{onnx.TensorProto.DataType.Name(tensor.data_type)}{list(tensor.dims)}"


def _compared_nodes(model: onnx.ModelProto, made: onnx.ModelProto) -> tuple[bool, list[str]]:
    """Whether a file computes what the export computes, by its nodes, and the nodes whose attributes differ.

    Nodes are compared by where their inputs come from: the names of the values between them do not matter.
    """
    names: dict[str, str] = {}
    for ours, theirs in ((made.graph.input, model.graph.input), (made.graph.output, model.graph.output)):
        names.update((value.name, other.name) for value, other in zip(ours, theirs, strict=False))
    changed: list[str] = []
    return _same_nodes(made.graph, model.graph, names, changed), changed


def _same_nodes(
    ours: onnx.GraphProto, theirs: onnx.GraphProto, names: dict[str, str], changed: list[str], within: str = ""
) -> bool:
    """Whether the nodes of two graphs are the same in their order.

    Args:
        ours, theirs: the graphs.
        names: by a value of ours that of theirs; those that nodes compute are added.
        changed: gets the nodes whose attributes differ, or the node of the whole graph that holds these in its body.
        within: that node.
    """
    if len(ours.node) != len(theirs.node):
        return False
    for node, other in zip(ours.node, theirs.node, strict=True):
        kinds = (node.op_type, node.domain, len(node.output)), (other.op_type, other.domain, len(other.output))
        if kinds[0] != kinds[1] or [names.get(value, value) for value in node.input] != list(other.input):
            return False
        for value, computed in zip(node.output, other.output, strict=True):
            if not value or not computed:
                if value != computed:
                    return False
            elif names.setdefault(value, computed) != computed:
                return False
        title = within or other.name or other.op_type
        bodies, other_bodies = _bodies(node), _bodies(other)
        if bodies.keys() != other_bodies.keys():
            return False
        if _attributes(node) != _attributes(other):
            changed.append(title)
        for name, body in bodies.items():
            inner = dict(names)
            for values, others in ((body.input, other_bodies[name].input), (body.output, other_bodies[name].output)):
                if len(values) != len(others):
                    return False
                inner.update((value.name, same.name) for value, same in zip(values, others, strict=True))
            if not _same_nodes(body, other_bodies[name], inner, changed, title):
                return False
            if _constants(body) != _constants(other_bodies[name]):
                changed.append(title)
    return True


def _bodies(node: onnx.NodeProto) -> dict[str, onnx.GraphProto]:
    """The graphs among a node's attributes: bodies of loops, and alternatives."""
    return {each.name: each.g for each in node.attribute if each.type == onnx.AttributeProto.GRAPH}


def _constants(body: onnx.GraphProto) -> dict[str, bytes]:
    return {tensor.name: tensor.SerializeToString(deterministic=True) for tensor in body.initializer}


def _attributes(node: onnx.NodeProto) -> dict[str, bytes]:
    plain = (attribute for attribute in node.attribute if attribute.type != onnx.AttributeProto.GRAPH)
    return {attribute.name: attribute.SerializeToString(deterministic=True) for attribute in plain}


def _bits_of_weights(model: onnx.ModelProto) -> set[int]:
    """The widths of the quantized weights of products."""
    types = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    found = set[int]()
    for node in model.graph.node:
        if node.op_type == "MatMulNBits":
            found |= {attribute.i for attribute in node.attribute if attribute.name == "bits"}
        elif node.op_type in ("DequantizeLinear", "MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"):
            found |= {_WIDTHS[types[name]] for name in node.input if types.get(name) in _WIDTHS}
    return found


def _is_ours(model: onnx.ModelProto) -> bool:
    return model.producer_name == PRODUCER and model.producer_version == __version__


def _origin(model: onnx.ModelProto, made: onnx.ModelProto) -> str:
    """What may be the reason that a file has other nodes."""
    bits = _bits_of_weights(model)
    if bits and not _bits_of_weights(made):
        return f"the file's weights are quantized and the model's are not: give --bits {max(bits)}, or the same " + (
            "options as the export; in Python, the quantized model"
        )
    maker = f"{model.producer_name or 'something unknown'} {model.producer_version}".strip()
    if not _is_ours(model):
        return f"the file's nodes are not those of this export: {maker} made it, this is Lucid {__version__}"
    return "the file's nodes are not those of this export: it was exported with other options, or changed afterwards"
