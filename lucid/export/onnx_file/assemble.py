"""Assembling an ONNX model from the nodes, weights and types that a builder collected."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

from lucid.core.graph.types import Array, TensorType, as_dtype
from lucid.core.sizes.bounds import smallest
from lucid.core.sizes.dims import Size
from lucid.core.targets.runtimes import (
    ACCURACY_LEVEL,
    DEFAULT_LEVEL,
    EXTENSIONS,
    OLDEST_RELEASE,
    OWN,
    ROWS_APART,
    SIZE_BOUNDS,
    SIZE_LIMITS,
)
from lucid.core.words.safe_text import encodable
from lucid.export.builder import Block, Builder, Emitted, Strings
from lucid.export.onnx_file.array_bytes import in_order
from lucid.export.onnx_file.element_codes import onnx_code
from lucid.export.target import ExportError
from lucid.tracing.index_ranges import size_limits

PRODUCER = "lucid"
TARGET = "lucid.target"  # the metadata key
# The versions of domains besides the standard one: onnxruntime's own operators, those of strings and tables, and those
# of onnxruntime-extensions.
_VERSIONS = {OWN: 1, "ai.onnx.ml": 4, EXTENSIONS: 1}


@dataclass(frozen=True)
class Assembled:
    """A model and, separately, its weights, to be joined in memory or streamed to a file."""

    skeleton: onnx.ModelProto
    initializers: Mapping[str, Array]
    headers: Mapping[str, tuple[int, tuple[int, ...]]]
    """The ONNX type and shape of initializers whose arrays only hold the bytes."""

    def header(self, name: str) -> onnx.TensorProto:
        """An initializer without its data."""
        array = self.initializers[name]
        code, shape = self.headers.get(name) or (onnx_code(as_dtype(array.dtype)), array.shape)
        return onnx.TensorProto(name=name, dims=shape, data_type=code)

    @property
    def weight_bytes(self) -> int:
        """The size of all initializers."""
        return sum(array.nbytes for array in self.initializers.values())


def assemble(
    build: Builder, outputs: Sequence[tuple[str, TensorType]], version: str, notes: Mapping[str, str]
) -> Assembled:
    """Make a model of everything that a builder collected, with notes in its metadata.

    Raises:
        ExportError: for an operator of a domain without a known version.
    """
    graph = onnx.GraphProto(name="lucid")
    graph.node.extend(_node(emitted, build) for emitted in build.nodes)
    graph.input.extend(_value_info(name, kind) for name, kind in build.inputs.items())
    graph.output.extend(_value_info(name, kind) for name, kind in outputs)
    graph.value_info.extend(_inner_types(build.nodes, build, {name for name, _ in outputs}))
    used = _domains_in(build.nodes)
    if unknown := sorted(used - {"", *_VERSIONS}):
        raise ExportError(
            f"a form writes an operator of the domain {unknown[0]!r}, expected ONNX's own or one of "
            f"{', '.join(_VERSIONS)}"
        )
    domains = {"": build.target.opset} | {domain: _VERSIONS[domain] for domain in _VERSIONS if domain in used}
    model = onnx.ModelProto(
        ir_version=build.target.ir_version, producer_name=PRODUCER, producer_version=version, graph=graph
    )
    model.metadata_props.add(key=OLDEST_RELEASE, value=build.target.onnxruntime)
    model.metadata_props.add(key=TARGET, value=build.target.name)
    if build.target.accuracy_level != DEFAULT_LEVEL:
        model.metadata_props.add(key=ACCURACY_LEVEL, value=str(build.target.accuracy_level))
    if build.rows_apart:
        model.metadata_props.add(key=ROWS_APART, value="1")
    if limits := size_limits(build.graph):
        model.metadata_props.add(key=SIZE_LIMITS, value=json.dumps(limits))
    if bounds := smallest(build.graph.bounds):
        model.metadata_props.add(key=SIZE_BOUNDS, value=json.dumps(bounds))
    for key, note in notes.items():
        model.metadata_props.add(key=key, value=encodable(note))
    model.opset_import.extend(helper.make_opsetid(domain, number) for domain, number in domains.items())
    return Assembled(model, build.initializers, build.headers)


def tensor(name: str, array: Array) -> onnx.TensorProto:
    """A tensor with its data."""
    kind = onnx_code(as_dtype(array.dtype))
    return onnx.TensorProto(name=name, dims=array.shape, data_type=kind, raw_data=in_order(array).tobytes())


def _domains_in(nodes: Iterable[Emitted]) -> set[str]:
    domains = set()
    for node in nodes:
        domains.add(node.domain)
        for value in node.attributes.values():
            domains |= _domains_in(value.nodes) if isinstance(value, Block) else set()
    return domains


def _inner_types(nodes: Iterable[Emitted], build: Builder, outputs: Collection[str]) -> Iterator[onnx.ValueInfoProto]:
    """The types of the values between the nodes: for readers, and because ONNX's inference does not find all."""
    for emitted in nodes:
        for name in emitted.outputs:
            if name in build.types and name not in outputs:
                yield _value_info(name, build.types[name])


def _node(emitted: Emitted, build: Builder) -> onnx.NodeProto:
    node = onnx.NodeProto(op_type=emitted.op_type, domain=emitted.domain, name=emitted.name)
    node.input.extend(emitted.inputs)
    node.output.extend(emitted.outputs)
    node.attribute.extend(_attribute(name, value, build) for name, value in emitted.attributes.items())
    if build.target.ir_version >= 10 and emitted.module:
        node.metadata_props.add(key="module", value=encodable(emitted.module))
    return node


def _attribute(name: str, value: Any, build: Builder) -> onnx.AttributeProto:
    if isinstance(value, np.ndarray):
        return helper.make_attribute(name, tensor("", value))
    if isinstance(value, Block):
        graph = onnx.GraphProto(name=name)
        graph.node.extend(_node(emitted, build) for emitted in value.nodes)
        graph.input.extend(_value_info(name_of_input, kind) for name_of_input, kind in value.inputs)
        graph.output.extend(_value_info(output, kind) for output, kind in value.outputs)
        graph.value_info.extend(_inner_types(value.nodes, build, {output for output, _ in value.outputs}))
        return helper.make_attribute(name, graph)
    return helper.make_attribute(name, value)


def _value_info(name: str, kind: TensorType | Strings) -> onnx.ValueInfoProto:
    info = onnx.ValueInfoProto(name=name)
    code = onnx.TensorProto.STRING if isinstance(kind, Strings) else onnx_code(kind.dtype)
    info.type.tensor_type.elem_type = code
    shape = info.type.tensor_type.shape
    shape.SetInParent()
    for size in kind.shape:
        _set_size(shape.dim.add(), size)
    return info


def _set_size(field: onnx.TensorShapeProto.Dimension, size: Size) -> None:
    if isinstance(size, int):
        field.dim_value = size
    else:
        field.dim_param = str(size)
