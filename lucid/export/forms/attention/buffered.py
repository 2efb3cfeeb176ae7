"""Attention over the part of a buffer that is filled.

The body of `buffered_attention` computes over the whole capacity, because the sizes of a body are known while tracing.
The forms here find out when the model runs how much is filled: a step costs as much as the filled part, however large
the buffers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from lucid.core.graph.types import float32, int32
from lucid.core.graph.values import Node
from lucid.core.sizes.dims import Dim, same
from lucid.core.targets.runtimes import ATTENTION_OF_BUFFERS, LONG_INTEGERS, OWN, TENSOR_SCATTER, WRITTEN_BUFFERS
from lucid.export.builder import Builder, Operand, computed
from lucid.export.form import Taken, contrib_form, form, refuse, refuse_wrong
from lucid.export.forms.attention.call import Call, refuse_scale
from lucid.export.forms.attention.nodes import node_output
from lucid.export.forms.attention.open_lengths import branch
from lucid.export.run_time_sizes import sizes_vector
from lucid.ops import logical_or, minimum, reshape
from lucid.ops.attention import buffers
from lucid.ops.attention.buffers import BufferedCall
from lucid.ops.attention.call import AttentionOptions
from lucid.ops.attention.op import joined_heads, split_heads
from lucid.ops.creation import size_op
from lucid.ops.tensor.tensor import Tensor

Attend: TypeAlias = Callable[[Builder, Call], Tensor]


_TAKES = "sinks heads kv_heads scale is_causal window softcap"
_ALL = f"mask {_TAKES}"


@form(
    buffers.buffered_attention,
    takes=_TAKES,
    name=f"{OWN} GroupQueryAttention, which writes the buffers",
    kind="contrib",
    domain=OWN,
    kernel="GroupQueryAttention",
    strategy="partial reads",
)
def group_query_writing(build: Builder, node: Node) -> Taken:
    """It reads and writes buffers in place, if they are bound as outputs; new memory has zeros after what is filled."""
    call = _call(node)
    refuse_wrong(build.target, WRITTEN_BUFFERS)
    if not build.target.rows_apart:
        refuse("it takes several new positions behind others in a single row: Target(rows_apart=True) promises that")
    _refuse_options(call)
    key, value = call.key, call.value
    if call.options.heads is None:
        key, value = joined_heads(key), joined_heads(value)
    build.rows_apart = True
    last = _last(call)
    # The kernel refuses positions beyond this number, and would enlarge buffers that are not bound.
    total = minimum(last.max() + 1, size_op(size=call.capacity).astype(int32))
    names = _operands(build, call, key, value, call.key_buffer, call.value_buffer, last, total)
    output, *written = _node(build, call, names, outputs=3)
    kinds = (call.key_buffer.spec, call.value_buffer.spec)
    present = [computed(build, name, kind) for name, kind in zip(written, kinds, strict=True)]
    return Taken([_as_query(build, call, output), *present], "it reads and writes what is filled, without a copy")


@contrib_form(buffers.buffered_attention, "GroupQueryAttention", _TAKES, opset=24, strategy="partial reads")
def group_query(build: Builder, node: Node) -> Taken:
    """The node that reads the buffers in place. It could also write to them, but `write_at` does so with its checks."""
    call = _call(node)
    batch, length = call.batch, call.queries
    refuse_wrong(build.target, TENSOR_SCATTER)
    refuse_wrong(build.target, ATTENTION_OF_BUFFERS)
    _refuse_options(call)
    several = isinstance(batch, int) and batch > 1
    if several and isinstance(length, int) and length > 1:
        refuse("it takes several new positions only in a single row")
    without = build.target.missing("Attention", float32)
    if without and not same(batch, 1) and not same(length, 1):
        refuse(f"several new positions in several rows go through Attention: {without}")
    key_buffer, value_buffer = call.written()
    # Without new keys of its own, it does not write to the buffers and needs no copy of them.
    width = key_buffer.shape[1] * key_buffer.shape[3]
    none = build.op("ConstantOfShape", sizes_vector(build, (batch, 0, width)), value=_ZERO)
    last = _last(call)
    names = _operands(build, call, none, none, key_buffer, value_buffer, last, last.max() + 1)

    def in_place() -> str:
        return _node(build, call, names, outputs=1)[0]

    def over_a_copy() -> str:
        return build.name_of(joined_heads(_over_filled(build, call, key_buffer, value_buffer, _one_node)))

    why = "it reads what is filled, without a copy"
    if same(length, 1) or same(batch, 1):
        output = in_place()
    else:
        single = build.name_of(logical_or(size_op(size=length) <= 1, size_op(size=batch) <= 1))
        (output,) = branch(build, single, in_place, over_a_copy, [call.joined_query().spec])
        why += "; several new positions in several rows go through a copy"
    return Taken([_as_query(build, call, output), key_buffer, value_buffer], why)


def _refuse_options(call: BufferedCall) -> None:
    """Refuse options that GroupQueryAttention does not compute."""
    width = call.key_buffer.shape[3]
    refuse_scale(call.options.scale)
    if call.query.dtype != float32:
        refuse(f"it computes in float32, as the other forms do, not in {call.query.dtype}")
    if not call.options.is_causal:
        refuse("it takes only causal attention")
    if same(width, 0) or not same(width % 8, 0) or not same(width, call.value_buffer.shape[3]):
        refuse("the width of heads must be a multiple of 8, and the same for values")


def _last(call: BufferedCall) -> Tensor:
    """The last position of each row. In int32 before a maximum: that of no rows is then negative, which the kernel
    refuses, else it divides by their number.
    """
    return (call.starts + (call.queries - 1)).astype(int32)


def _operands(build: Builder, call: BufferedCall, *operands: Operand) -> list[str | None]:
    """Those of GroupQueryAttention: the query, and what follows it."""
    names: list[str | None] = list(build.names_of([call.joined_query(), *operands]))
    if call.sinks is not None:
        names += [*[None] * 4, build.name_of(call.sinks.astype(float32))]
    return names


def _node(build: Builder, call: BufferedCall, names: list[str | None], outputs: int) -> tuple[str, ...]:
    options = call.options
    return build.ops(
        "GroupQueryAttention",
        *names,
        outputs=outputs,
        domain=OWN,
        num_heads=_heads(call),
        kv_num_heads=call.key_buffer.shape[1],
        scale=options.scale,
        local_window_size=options.window,
        softcap=options.softcap or None,
    )


def _heads(call: BufferedCall) -> int:
    return int(call.joined_query().shape[2] // call.key_buffer.shape[3])


def _as_query(build: Builder, call: BufferedCall, output: str) -> Tensor:
    """An output of GroupQueryAttention in the layout of the query."""
    joined = computed(build, output, call.joined_query().spec)
    return joined if call.options.heads is not None else split_heads("query", joined, _heads(call))


@form(buffers.buffered_attention, takes=_ALL, name="attention over what is filled")
def filled_part(build: Builder, node: Node) -> Taken:
    """Attention over a copy of the filled part."""
    call = _call(node)
    if same(call.queries, 0) or same(call.batch, 0):
        refuse("nothing is written, so it has no filled part to find")
    without = build.target.missing("Attention", call.query.dtype if call.query.dtype.itemsize > 2 else float32)
    if without:
        refuse(f"its attention is composed of other ops there, over the whole capacity: {without}")
    key_buffer, value_buffer = call.written()
    output = call.laid_out(_over_filled(build, call, key_buffer, value_buffer, lambda _, part: part.by_best_form()))
    return Taken([output, key_buffer, value_buffer], "computes over what is filled instead of the capacity")


@form(buffers.buffered_attention, takes=_ALL, name="positions in 32 bits", mends=LONG_INTEGERS)
def narrow_positions(build: Builder, node: Node) -> tuple[Tensor, ...]:
    """The body, which compares positions as int32: a buffer has fewer slots."""
    return _call(node).computed(int32)


def _over_filled(
    build: Builder, call: BufferedCall, key_buffer: Tensor, value_buffer: Tensor, attend: Attend
) -> Tensor:
    """The output (N, H, L, d_v): attention to the slots up to the last one that any row has filled."""
    end = build.name_of(reshape(call.starts.max() + call.queries, (1,)))
    name = f"slots up to {end}"  # no size of a model has a name with spaces
    build.sizes[name] = end
    slots = Dim({(name,): 1})

    def cut(x: Tensor, axis: int) -> Tensor:
        shape = (*x.shape[:axis], slots, *x.shape[axis + 1 :])
        return computed(build, build.op("Slice", x, _FIRST, end, np.array([axis])), x.spec.with_shape(shape))

    options = AttentionOptions(scale=call.options.scale, softcap=call.options.softcap)
    key, value, visible = cut(key_buffer, 2), cut(value_buffer, 2), cut(call.visible(), 3)
    return attend(build, Call(call.split_query(), key, value, visible, sinks=call.sinks, options=options))


def _one_node(build: Builder, call: Call) -> Tensor:
    """Without the forms for long inputs: here it is one of two branches, in each layer."""
    return node_output(build, call) if call.sinks is None else call.by_best_form()


def _call(node: Node) -> BufferedCall:
    operands = [None if value is None else Tensor.from_value(value) for value in node.inputs]
    return BufferedCall.from_operands(operands, node.attributes)


_FIRST, _ZERO = np.array([0]), np.zeros(1, np.float32)
