"""Every stored number of a file compared, bit by bit, with what the model exports now.

The same model gives the same bytes, so a file is compared with an export of the model in memory: each initializer with
that of its name, whatever the exporter did to the weight (transposed, joined, rounded, packed), each node with its
node, and each constant with the one in its place. Files that were exported otherwise, or changed by other tools, differ
in more than numbers: what cannot be compared then is counted and named.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import onnx

from lucid.core.graph.types import Array
from lucid.core.process.threads import share
from lucid.core.targets.runtimes import ACCURACY_LEVEL, OLDEST_RELEASE, ROWS_APART, SIZE_BOUNDS, SIZE_LIMITS
from lucid.core.version import __version__
from lucid.core.words.progress import phase
from lucid.core.words.safe_text import visible
from lucid.export.exporter import Lowered, lower
from lucid.export.onnx_file.array_bytes import byte_blocks, in_order
from lucid.export.onnx_file.assemble import PRODUCER, TARGET, Assembled
from lucid.export.onnx_file.element_codes import element_name
from lucid.export.options import ExportOptions
from lucid.export.target import ExportError, Target
from lucid.runtime.model_file import bytes_of, check_model_file, check_stored_once, stored_tensors
from lucid.testing.matched_nodes import MatchedNodes, match_nodes
from lucid.testing.report import DifferentWeight, WeightReport
from lucid.tracing.parts import TracedPart

_WIDTHS: Mapping[int, int] = {  # bits of the element types of quantized weights
    onnx.TensorProto.INT4: 4,
    onnx.TensorProto.UINT4: 4,
    onnx.TensorProto.INT8: 8,
    onnx.TensorProto.UINT8: 8,
}
_HALVES: Mapping[int, str] = {onnx.TensorProto.FLOAT16: "float16", onnx.TensorProto.BFLOAT16: "bfloat16"}
_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE)
_ABSENT, _OTHER_NODES = "it is not in the export", "the nodes that take it are not those of the export"


def export_again(
    traced: TracedPart,
    exported: onnx.ModelProto | str | os.PathLike[str],
    options: ExportOptions,
) -> Lowered | str:
    """The model as it is exported now, for the opset and release that a file was exported for; or why it cannot be.

    The target is also that of the file, unless the options have a `Target`.

    Raises:
        ModelError, OSError: as `lucid.runtime.check_model_file`.
    """
    model = exported if isinstance(exported, onnx.ModelProto) else check_model_file(exported)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    target = options.target
    if not isinstance(target, Target) and model.producer_name == PRODUCER:
        target = metadata.get(TARGET, target)
    opset = next((entry.version for entry in model.opset_import if not entry.domain), None)
    try:
        record = Target.of(target, opset, None)
        record = replace(
            record,
            onnxruntime=metadata.get(OLDEST_RELEASE, record.onnxruntime),
            accuracy_level=_accuracy_level(model, metadata, record.accuracy_level),
            rows_apart=ROWS_APART in metadata,
        )
        return lower(traced, replace(options, target=record))
    except ExportError as error:
        return f"the model cannot be exported as the file was: {error}"


def _accuracy_level(model: onnx.ModelProto, metadata: Mapping[str, str], default: int) -> int:
    """The accuracy level of a file's products with quantized weights."""
    if metadata.get(ACCURACY_LEVEL, "").isdecimal():
        return int(metadata[ACCURACY_LEVEL])
    levels = (
        attribute.i
        for node in model.graph.node
        for attribute in node.attribute
        if attribute.name == "accuracy_level" and node.op_type == "MatMulNBits"
    )
    return next(levels, default)


@phase("comparing weights")
def compare_weights(exported: onnx.ModelProto | str | os.PathLike[str], expected: Lowered | str) -> WeightReport:
    """Compare all initializers and nodes of a file with an export's.

    Args:
        exported: the file, or a model with its data.
        expected: the model as it is exported now; or why it cannot be, for a report of nothing.

    Raises:
        ModelError, OSError: as `lucid.runtime.check_model_file`.
    """
    if isinstance(exported, onnx.ModelProto):
        if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in exported.graph.initializer):
            return WeightReport(0, len(exported.graph.initializer), note="the weights are in a file: compare that")
        check_stored_once(exported, "the exported model")
        model, data = exported, {tensor.name: bytes_of(tensor) for tensor in exported.graph.initializer}
    else:
        model, data = stored_tensors(exported)
    if isinstance(expected, str):
        return WeightReport(0, len(data), note=expected)
    assembled, weights = expected.assembled, expected.lowering.build.parameters
    nodes = match_nodes(model, assembled, weights)
    ours = _is_ours(model)
    if not ours and (nodes.changed or not nodes.same):  # another release or tool may write other constants
        nodes = MatchedNodes(same=False)
    headers = {tensor.name: tensor for tensor in model.graph.initializer}
    jobs = _jobs(headers, data, nodes, assembled, weights)
    results = list(zip(jobs, _run(jobs, assembled), strict=True))
    unlike = {job.tensor.name: result for job, result in results if isinstance(result, str)}
    different = {job.tensor.name: result for job, result in results if isinstance(result, DifferentWeight)}
    compared = {(job.of_body, job.tensor.name): job for job, result in results if not isinstance(result, str)}
    left = [name for name in headers if (False, name) not in compared and name not in unlike]
    held = {*headers, *(job.counterpart for job in jobs)}
    return WeightReport(
        compared=len(compared),
        stored=len(headers) + len({job.tensor.name for job in jobs if job.of_body}),
        numbers=sum(assembled.initializers[job.counterpart].size for job in compared.values()),
        different=tuple(different.values()),
        not_compared={**unlike, **{name: _OTHER_NODES if name in assembled.initializers else _ABSENT for name in left}},
        missing=tuple(name for name in assembled.initializers if name not in held),
        changed_nodes=tuple(nodes.changed),
        declared=tuple(_different_declarations(model, assembled.skeleton, nodes.same)) if ours else (),
        damaged=bool(nodes.changed) or not different.keys() <= weights,
        note=_precision(model, assembled) or ("" if nodes.same else _origin(model, nodes)),
    )


class _Job(NamedTuple):
    """An initializer of a file, its data, and the name of the export's that it is compared with."""

    tensor: onnx.TensorProto
    data: memoryview
    counterpart: str
    of_body: bool = False


def _jobs(
    headers: Mapping[str, onnx.TensorProto],
    data: Mapping[str, memoryview],
    nodes: MatchedNodes,
    assembled: Assembled,
    weights: Set[str],
) -> list[_Job]:
    """The initializers of a file that are compared, each once: weights by their names, constants by their nodes."""
    jobs = [_Job(headers[name], data[name], name) for name in headers if name in weights]
    jobs += [
        _Job(tensor, bytes_of(tensor) if of_body else data[tensor.name], counterpart, of_body)
        for tensor, of_body, counterpart in nodes.constants
    ]
    if nodes.same:  # constants that no node takes
        names = {job.tensor.name for job in jobs}
        jobs += [_Job(headers[n], data[n], n) for n in headers if n in assembled.initializers and n not in names]
    return list({(job.of_body, job.tensor.name, job.counterpart): job for job in jobs}.values())


def _run(jobs: Sequence[_Job], assembled: Assembled) -> list[DifferentWeight | str | None]:
    """The result of each job as by `_compared`, in all threads, large ones first."""
    results: dict[int, DifferentWeight | str | None] = {}

    def work(numbers: Iterator[int]) -> None:
        for number in numbers:
            results[number] = _compared(jobs[number], assembled)

    share(sorted(range(len(jobs)), key=lambda number: -assembled.initializers[jobs[number].counterpart].nbytes), work)
    return [results[number] for number in range(len(jobs))]


def _compared(job: _Job, assembled: Assembled) -> DifferentWeight | str | None:
    """How an initializer of a file differs from the export's, or why they cannot be compared; None if equal."""
    header, data = job.tensor, job.data
    array, expected = assembled.initializers[job.counterpart], assembled.header(job.counterpart)
    name, shape = header.name, list(header.dims)
    if header.data_type == expected.data_type and shape == list(expected.dims):
        if _equal(data, array):
            return None
        return _difference(name, np.frombuffer(data[: array.nbytes], array.dtype), in_order(array))
    floats = header.data_type in _FLOATS and expected.data_type in _FLOATS
    if floats and shape in (
        list(expected.dims),
        list(reversed(expected.dims)),
    ):  # rounded or transposed by another tool
        dtype = onnx.helper.tensor_dtype_to_np_dtype(header.data_type)
        rounded = in_order((array if shape == list(expected.dims) else array.T).astype(dtype))
        got = np.frombuffer(data[: rounded.nbytes], dtype)
        return None if got.tobytes() == rounded.tobytes() else _difference(name, got, rounded)
    return f"it is {_type(header)}, and {_type(expected)} in the export"


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


def _difference(name: str, got: Array, expected: Array) -> DifferentWeight:
    places = _bits(got).reshape(expected.shape) != _bits(expected).reshape(expected.shape)
    at = tuple(int(i) for i in np.argwhere(places)[0])
    values = got.reshape(expected.shape)
    with np.errstate(invalid="ignore", over="ignore"):
        largest = float(np.abs(values[places].astype(np.float64) - expected[places].astype(np.float64)).max())
    return DifferentWeight(name, int(places.sum()), at, str(values[at]), str(expected[at]), largest)


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(f"u{array.dtype.itemsize}")


def _type(tensor: onnx.TensorProto) -> str:
    return f"{element_name(tensor.data_type)}{list(tensor.dims)}"


def _bits_of_weights(model: onnx.ModelProto, types: Mapping[str, int]) -> set[int]:
    """The widths of the quantized weights of products, in a model with initializers of such element types."""
    widths = set[int]()
    for node in model.graph.node:
        if node.op_type == "MatMulNBits":
            widths |= {attribute.i for attribute in node.attribute if attribute.name == "bits"}
        elif node.op_type in ("DequantizeLinear", "MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"):
            widths |= {_WIDTHS[types[name]] for name in node.input if types.get(name) in _WIDTHS}
    return widths


def _halves(types: Mapping[str, int]) -> set[str]:
    """The types in half precision among the element types of weights."""
    return {_HALVES[each] for each in types.values() if each in _HALVES}


def _is_ours(model: onnx.ModelProto) -> bool:
    return model.producer_name == PRODUCER and model.producer_version == __version__


def _precision(model: onnx.ModelProto, assembled: Assembled) -> str:
    """What to give where a file stores its weights in another precision than the export; "" for the same one."""
    give, leave_out = list[str](), list[str]()
    types = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    expected_types = {name: assembled.header(name).data_type for name in assembled.initializers}
    bits, expected = _bits_of_weights(model, types), _bits_of_weights(assembled.skeleton, expected_types)
    if bits and bits != expected:
        give.append(f"--bits {max(bits) if len(bits) == 1 else 'PATTERN=BITS,...'}")
    if _is_ours(model):  # another tool may have cast some weights only, or have other forms of them
        halves, expected_halves = _halves(types), _halves(expected_types)
        give += [f"--dtype {name}" for name in sorted(halves - expected_halves)]
        leave_out += ["--bits"] if expected and not bits else []
        leave_out += ["--dtype"] if expected_halves and not halves else []
    steps = [f"{verb} {' '.join(options)}" for verb, options in (("give", give), ("leave out", leave_out)) if options]
    if not steps:
        return ""
    return (
        f"the file stores its weights in another precision than the model: {' and '.join(steps)}, or the same options "
        "as the export; in Python, the quantized model or dtype="
    )


def _origin(model: onnx.ModelProto, nodes: MatchedNodes) -> str:
    """A likely reason why a file has other nodes than the export, and how many were compared all the same."""
    if not _is_ours(model):
        maker = f"{model.producer_name or 'something unknown'} {model.producer_version}".strip()
        return f"the file's nodes are not those of this export: {maker} made it, this is Lucid {__version__}"
    return (
        "the file's nodes are not those of this export: it was exported with other options, or changed afterwards; "
        f"{nodes.compared} of {nodes.nodes} nodes were compared"
    )


_KEYS = (OLDEST_RELEASE, SIZE_LIMITS, SIZE_BOUNDS, ACCURACY_LEVEL, ROWS_APART)


def _different_declarations(file: onnx.ModelProto, export: onnx.ModelProto, same_nodes: bool) -> list[str]:
    """What differs, as text. Nothing is compared where the inputs have other types or axes of other names.

    Args:
        file, export: the models.
        same_nodes: whether they have the same nodes; other nodes may give outputs of another element type.
    """
    if [_declared_type(value) for value in file.graph.input] != [_declared_type(value) for value in export.graph.input]:
        return []
    differences = []
    for value, expected in zip(file.graph.output, export.graph.output, strict=False):
        got, declared = _declared_type(value), _declared_type(expected)
        if got[1:] != declared[1:] or (same_nodes and got != declared):
            differences.append(f"output {value.name}: declared as {_shown_type(got)}, expected {_shown_type(declared)}")
    stored, current = ({entry.key: entry.value for entry in model.metadata_props} for model in (file, export))
    for key in _KEYS:
        if stored.get(key) != current.get(key):
            differences.append(f"metadata {key}: {stored.get(key, 'nothing')}, expected {current.get(key, 'nothing')}")
    return [visible(each) for each in differences]


def _declared_type(value: onnx.ValueInfoProto) -> tuple[int, int | str, *tuple[int | str, ...]]:
    """The element type, the number of axes, and their sizes."""
    kind = value.type.tensor_type
    sizes = [size.dim_value if size.HasField("dim_value") else size.dim_param for size in kind.shape.dim]
    return kind.elem_type, len(sizes) if kind.HasField("shape") else "no shape", *sizes


def _shown_type(kind: Sequence[int | str]) -> str:
    return f"{element_name(int(kind[0]))}[{', '.join(map(str, kind[2:]))}]"
