"""Positions in 32 bits, for runtimes that compute 64-bit integers on the processor only.

Masks, rotary tables and relative positions are computed from ranges, which are int64. Where a runtime computes those on
the processor, a mask of L x S would be made there and copied to the device. So the uses of positions (a comparison, a
cast, a lookup) take them as int32: a Range of int32, and sums, products and lookups of it. The int64 nodes are written
only if something else reads them (`waits_for_use`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from lucid.core.graph.scope import new_node
from lucid.core.graph.types import int32, int64
from lucid.core.graph.values import Constant, Node, Result, Value
from lucid.core.sizes.dims import Size
from lucid.core.targets.runtimes import LONG_INTEGERS
from lucid.export.builder import Builder, Operand, computed
from lucid.export.form import Form, form
from lucid.export.forms.integer_ranges import range_of
from lucid.export.forms.primitives import scalar
from lucid.export.onnx_file.element_codes import onnx_code
from lucid.export.target import Target
from lucid.ops import elementwise, indexing
from lucid.ops.creation import arange_op
from lucid.ops.op import Op
from lucid.ops.tensor.tensor import Tensor

# The operands, by op, that are positions where the result is one.
_COMPUTED: Mapping[str, slice] = MappingProxyType(
    {
        **dict.fromkeys(("add", "sub", "mul", "minimum", "maximum"), slice(0, 2)),
        **dict.fromkeys(("neg", "unsqueeze", "squeeze", "expand", "reshape", "permute"), slice(0, 1)),
        "where": slice(1, 3),
        "take": slice(0, 2),
    }
)


def _is_position(value: Value) -> bool:
    """Whether int64 numbers follow from a range of a symbolic length, and 32 bits hold them."""
    if not isinstance(value, Result) or value.type.dtype != int64:
        return False
    low, high = range_of(value)
    if low < -(2**31) or high >= 2**31:
        return False
    node = value.node
    if node.op is arange_op:
        return True
    read = [each for each in node.inputs[_COMPUTED.get(node.op.name, slice(0, 0))] if each is not None]
    others = [each for each in read if not _is_position(each)]
    return len(others) < len(read) and all(isinstance(each, Constant) or _is_size(each) for each in others)


def _is_size(value: Value) -> bool:
    return isinstance(value, Result) and value.node.op.name == "size"


def waits_for_use(node: Node, target: Target) -> bool:
    """Whether a node computes positions in int64, which forms of this target may not need."""
    return bool(target.wrong(LONG_INTEGERS)) and _is_position(node.results[0])


def _narrow(build: Builder, value: Value) -> Value:
    """Positions, constants or a size as int32."""
    kind = value.type.with_dtype(int32)
    if isinstance(value, Constant):
        return Constant(value.array.astype(np.int32), kind)
    if not isinstance(value, Result) or not _is_position(value):
        return new_node(elementwise.cast, [value], {"dtype": int32}).results[0]
    node = value.node
    if node.op is arange_op:
        start, stop = (_narrow_size(build, node.attributes[name]) for name in ("start", "stop"))
        return computed(build, build.op("Range", start, stop, np.asarray(1, np.int32)), kind).to_value()
    inputs: list[Any] = list(node.inputs)
    place = _COMPUTED[node.op.name]
    inputs[place] = [_narrow(build, each) for each in inputs[place]]
    return new_node(node.op, inputs, node.attributes).results[0]


def _narrow_size(build: Builder, size: Size) -> Operand:
    if isinstance(size, int):
        return np.asarray(size, np.int32)
    return build.op("Cast", scalar(build, size), to=onnx_code(int32))


def _in_32_bits(op: Op[..., Any], used: slice, takes: str = "") -> Form:
    """The op on positions as int32; one of its operands is positions, the others are constants or in the same range."""

    def applies(node: Node) -> bool:
        read = [each for each in node.inputs[used] if each is not None]
        return any(map(_is_position, read)) and all(map(_is_held, read))

    @form(op, takes=takes, name="positions in 32 bits", mends=LONG_INTEGERS, applies=applies)
    def emit(build: Builder, node: Node) -> Tensor:
        inputs: list[Any] = list(node.inputs)
        inputs[used] = [_narrow(build, each) for each in inputs[used]]
        return Tensor.from_value(new_node(op, inputs, node.attributes).results[0])

    return emit


def _is_held(value: Value) -> bool:
    low, high = range_of(value)
    return value.type.dtype == int64 and low >= -(2**31) and high < 2**31


FORMS = (
    *(
        _in_32_bits(op, slice(0, 2))
        for op in (
            elementwise.equal,
            elementwise.not_equal,
            elementwise.less,
            elementwise.less_equal,
            elementwise.greater,
            elementwise.greater_equal,
        )
    ),
    _in_32_bits(elementwise.cast, slice(0, 1), "dtype"),
    _in_32_bits(indexing.take_op, slice(1, 2), "axis"),
)
