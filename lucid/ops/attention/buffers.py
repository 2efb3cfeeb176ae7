"""Buffers of a fixed capacity: writing each row at its own position, and attention over the written part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from lucid.core.graph.types import Array, DType, TensorType, int64, same_shape, show_shape
from lucid.core.graph.values import Attributes
from lucid.core.sizes.dims import Size
from lucid.ops.attention.call import AttentionOptions, OfQueries
from lucid.ops.attention.masks import check_mask, seen_by_position
from lucid.ops.attention.op import attention, joined_heads, split_heads
from lucid.ops.creation import arange_op
from lucid.ops.elementwise import logical_and, where
from lucid.ops.op import composite, primitive
from lucid.ops.shaping import normalize_axis, unsqueeze
from lucid.ops.tensor.tensor import Tensor


def _write_rule(buffer: TensorType, new: TensorType, starts: TensorType, *, axis: int) -> TensorType:
    place = normalize_axis("write_at", axis, buffer.rank)
    others = [i for i in range(buffer.rank) if i != place]
    fits = new.rank == buffer.rank and same_shape([new.shape[i] for i in others], [buffer.shape[i] for i in others])
    if place == 0 or not fits:
        raise ValueError(
            f"write_at: new {show_shape(new.shape)} does not fit the buffer {show_shape(buffer.shape)}: "
            f"only axis {axis}, which is not the first, may differ"
        )
    if new.dtype != buffer.dtype:
        raise TypeError(
            f"write_at: new {new.dtype}, buffer {buffer.dtype}: expected one element type; use .astype(...)"
        )
    if starts.dtype.name != "int64" or not same_shape(starts.shape, buffer.shape[:1]):
        raise ValueError(f"write_at: starts is {starts}, expected int64[{buffer.shape[0]}]: one position for each row")
    return buffer


def _write_kernel(buffer: Array, new: Array, starts: Array, *, axis: int) -> Array:
    place, length, capacity = axis % buffer.ndim, new.shape[axis], buffer.shape[axis]
    beyond = np.flatnonzero((starts < 0) | (starts + length > capacity))
    if beyond.size and new.size:
        row = int(beyond[0])
        raise ValueError(
            f"write_at: row {row} would be written from {int(starts[row])} to {int(starts[row]) + length}, "
            f"and the buffer holds {capacity}: give it more capacity, or fewer new positions"
        )
    written = buffer.copy()
    slots, rows = np.moveaxis(written, place, 1), np.moveaxis(new, place, 1)
    for row, start in enumerate(starts):
        slots[row, start : start + length] = rows[row]
    return written


@primitive(kernel=_write_kernel, rule=_write_rule)
def write_at(buffer: Tensor, new: Tensor, starts: Tensor, *, axis: int) -> Tensor:  # type: ignore[empty-body]
    """The buffer with new elements written over a part of an axis, from another position in each row of the batch.

    Args:
        buffer: (N, ..., C, ...), C along the axis.
        new: (N, ..., L, ...), the same apart from this axis, which is not the first.
        starts: (N,) int64; row n is written from starts[n] to starts[n] + L - 1.

    Raises:
        ValueError: for shapes that do not fit; eagerly, and in onnxruntime, for elements beyond the capacity.
    """


@composite
def buffered_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_buffer: Tensor,
    value_buffer: Tensor,
    starts: Tensor,
    mask: Tensor | None = None,
    sinks: Tensor | None = None,
    *,
    heads: int | None = None,
    kv_heads: int | None = None,
    scale: float | None = None,
    is_causal: bool = True,
    window: int | None = None,
    softcap: float = 0.0,
) -> Any:
    """Attention of new positions over a buffer of earlier ones, into which their keys and values are written first.

    Position j is in slot j of the buffer, and row n of the batch has starts[n] positions in it before the call.

    Args:
        query, key, value: of L new positions, as for `attention`: (N, H, L, d) or, with `heads`, (N, L, H*d).
        key_buffer, value_buffer: (N, H_kv, C, d), (N, H_kv, C, d_v); what lies beyond the filled part is never seen,
            but must be finite.
        starts: (N,) int64: the position of each row's first new token, which is how much of the buffer is filled.
        mask: broadcasts to (N, H, L, C), as for `attention`.
        sinks, heads, kv_heads, scale, window, softcap: as for `attention`.
        is_causal: query i sees the positions up to starts + i; otherwise all that are written.

    Returns:
        The output, laid out as the query, and both buffers with the new keys and values.

    Raises:
        ValueError, TypeError: for sizes and types that do not fit; eagerly, and in onnxruntime, for positions beyond
            the capacity.
    """
    options = AttentionOptions(
        heads=heads, kv_heads=kv_heads, scale=scale, is_causal=is_causal, window=window, softcap=softcap
    )
    return BufferedCall(query, key, value, key_buffer, value_buffer, starts, mask, sinks, options=options).computed()


@dataclass(frozen=True, eq=False)
class BufferedCall(OfQueries):
    """The operands and options of a call of `buffered_attention`, and the steps that its body and forms consist of."""

    query: Tensor
    key: Tensor
    value: Tensor
    key_buffer: Tensor
    value_buffer: Tensor
    starts: Tensor
    mask: Tensor | None = None
    sinks: Tensor | None = None
    options: AttentionOptions = field(default=AttentionOptions(is_causal=True), kw_only=True)

    @classmethod
    def from_operands(cls, operands: Sequence[Tensor | None], attributes: Attributes) -> Self:
        """Read the call of the op: operands in its order, attributes by name."""
        query, key, value, key_buffer, value_buffer, starts, *optional = operands
        assert query is not None and key is not None and value is not None
        assert key_buffer is not None and value_buffer is not None and starts is not None
        options = AttentionOptions.from_attributes(attributes)
        return cls(query, key, value, key_buffer, value_buffer, starts, *optional, options=options)

    @property
    def capacity(self) -> Size:
        """C, the number of slots of a buffer."""
        return self.key_buffer.shape[2]

    def split_query(self) -> Tensor:
        """The query with an axis of heads, (N, H, L, d)."""
        return self.query if self.options.heads is None else split_heads("query", self.query, self.options.heads)

    def joined_query(self) -> Tensor:
        """(N, L, H*d)."""
        return self.query if self.options.heads is not None else joined_heads(self.query)

    def written(self) -> tuple[Tensor, Tensor]:
        """Both buffers with the new keys and values."""
        key, value, heads = self.key, self.value, self.options.key_heads
        if heads is not None:
            key, value = split_heads("key", key, heads), split_heads("value", value, heads)
        return (
            write_at(self.key_buffer, key, self.starts, axis=2),
            write_at(self.value_buffer, value, self.starts, axis=2),
        )

    def computed(self, dtype: DType = int64) -> tuple[Tensor, Tensor, Tensor]:
        """The output and both buffers; `dtype` is that of the positions which are compared."""
        key_buffer, value_buffer = self.written()
        query, visible, scores = self.split_query(), self.visible(dtype), self.options
        output = attention(
            query, key_buffer, value_buffer, visible, sinks=self.sinks, scale=scores.scale, softcap=scores.softcap
        )
        return self.laid_out(output), key_buffer, value_buffer

    def visible(self, dtype: DType = int64) -> Tensor:
        """Which slots each new position sees, (N, 1 or H, L, C): booleans, or what a floating mask adds to scores.

        `dtype` is that of the positions which are compared.
        """
        options, mask = self.options, self.mask
        slots = arange_op(start=0, stop=self.capacity).astype(dtype)
        first = unsqueeze(self.starts.astype(dtype), (1, 2, 3))
        position = first + unsqueeze(arange_op(start=0, stop=self.queries).astype(dtype), 1)
        if options.is_causal:
            seen = seen_by_position(position, slots, 0, options.window)
        else:
            seen = logical_and(slots <= first + (self.queries - 1), position >= 0)  # every query has a row of its own
            if options.window is not None:
                seen = logical_and(seen, seen_by_position(position, slots, None, options.window))
        if mask is None:
            return seen
        heads = self.options.heads or self.query.shape[1]
        advice = f"; it covers the slots of the buffer: F.pad(mask, (0, {self.capacity} - mask.shape[-1]))"
        check_mask("buffered_attention", mask, (self.batch, heads, self.queries, self.capacity), "C", advice)
        hidden = mask.dtype.lowest if mask.dtype.kind == "float" else False
        return logical_and(mask, seen) if mask.dtype.kind == "bool" else where(seen, mask, hidden)

    def laid_out(self, output: Tensor) -> Tensor:
        """An output (N, H, L, d_v) in the layout of the query."""
        return output if self.options.heads is None else joined_heads(output)
