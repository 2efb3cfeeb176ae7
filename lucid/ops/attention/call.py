"""The operands and options of a call of attention, each named once, and the sizes that follow from them.

The body of `ops.attention`, its NumPy kernel, its masks and the exporter's guards all read a call through these
classes. A test checks that their names, order and defaults are those of the op; its docstring describes each of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, Self

from lucid.core.graph.types import DType, float32
from lucid.core.graph.values import Attributes
from lucid.core.number_ranges import FINITE, NOT_NEGATIVE, check, is_whole
from lucid.core.sizes.dims import Size, same
from lucid.ops.tensor.tensor import Tensor


@dataclass(frozen=True)
class AttentionOptions:
    """The options of `ops.attention`.

    Raises:
        TypeError: for a scale or a softcap that is anything but a number.
        ValueError: for an option out of its range.
    """

    heads: int | None = None
    kv_heads: int | None = None
    scale: float | None = None
    is_causal: bool = False
    window: int | None = None
    window_after: int | None = None
    softcap: float = 0.0
    dropout_p: float = 0.0
    need_weights: bool = False

    def __post_init__(self) -> None:
        for name, number, least in (
            ("heads", self.heads, 1),
            ("kv_heads", self.kv_heads, 1),
            ("window", self.window, 1),
            ("window_after", self.window_after, 0),
        ):
            if number is None:
                continue
            if not is_whole(number) or number < least:
                why = ": a query sees at least itself" if name == "window" else ""
                raise ValueError(f"attention: {name} is {number!r}, expected a whole number of {least} or more{why}")
            object.__setattr__(self, name, int(number))
        if self.scale is not None:
            check("attention: scale", self.scale, FINITE)
            object.__setattr__(self, "scale", float(self.scale) + 0.0)  # ONNX has integers apart; -0.0 becomes 0.0
        check("attention: softcap", self.softcap, NOT_NEGATIVE)

    @classmethod
    def from_attributes(cls, attributes: Attributes) -> Self:
        """Read the attributes of an op by name; the others are not read here, as forms refuse unknown ones."""
        return cls(**{name: attributes[name] for name in _OPTIONS if name in attributes})

    @property
    def key_heads(self) -> int | None:
        """H_kv of the packed layout; None where nothing is packed."""
        return None if self.heads is None else self.kv_heads or self.heads

    @property
    def head_counts(self) -> tuple[int, int, int] | None:
        """The numbers of heads in packed queries, keys and values; None where nothing is packed."""
        return None if self.heads is None or self.key_heads is None else (self.heads, self.key_heads, self.key_heads)

    @property
    def ahead(self) -> int | None:
        """How many keys after its own position a query sees; None for all."""
        return 0 if self.is_causal else self.window_after

    @property
    def holds_weights(self) -> bool:
        """Whether all weights must be in memory at once."""
        return self.need_weights or self.dropout_p != 0

    def scale_of(self, width: Size) -> float:
        """The factor of the scores: as given, or 1 / sqrt(d). For heads of width 0 it is 1, as their scores are 0."""
        if self.scale is not None:
            return self.scale
        return 1.0 if same(width, 0) else 1 / math.sqrt(width)


_OPTIONS = tuple(option.name for option in fields(AttentionOptions))


@lru_cache(maxsize=256, typed=True)
def remembered_options(*options: Any) -> AttentionOptions:
    """These options in their order, checked once: eager calls ask for the same ones again and again."""
    return AttentionOptions(*options)


class OfQueries:
    """The sizes that a call, with or without buffers, reads from its query in either layout."""

    query: Tensor

    @property
    def batch(self) -> Size:
        """N, the size of the batch."""
        return self.query.shape[0]

    @property
    def queries(self) -> Size:
        """L, the number of queries."""
        return self.query.shape[-2]


@dataclass(frozen=True, eq=False)
class AttentionCall(OfQueries):
    """The operands and options of one call of `ops.attention`, in its order. Sizes are read from either layout."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None = None
    key_mask: Tensor | None = None
    past_key: Tensor | None = None
    past_value: Tensor | None = None
    sinks: Tensor | None = None
    options: AttentionOptions = field(default=AttentionOptions(), kw_only=True)

    @classmethod
    def from_operands(cls, operands: Sequence[Tensor | None], attributes: Attributes) -> Self:
        """Read the call of the op: operands in its order, attributes by name."""
        query, key, value, *optional = operands
        assert query is not None and key is not None and value is not None
        return cls(query, key, value, *optional, options=AttentionOptions.from_attributes(attributes))

    @property
    def dtype(self) -> DType:
        """The element type of queries, keys and values."""
        return self.query.dtype

    @property
    def scores_type(self) -> DType:
        """The element type in which scores are computed: half precision in float32."""
        return float32 if self.dtype.itemsize == 2 else self.dtype

    @property
    def past(self) -> Size:
        """P, the number of keys in the cache."""
        return 0 if self.past_key is None else self.past_key.shape[2]

    @property
    def new_keys(self) -> Size:
        """S, the number of new keys."""
        return self.key.shape[-2]

    @property
    def keys(self) -> Size:
        """P + S, the number of all keys."""
        return self.past + self.new_keys

    @property
    def width(self) -> Size:
        """d, the width of a query's head."""
        return self.query.shape[-1] // (self.options.heads or 1)

    @property
    def value_width(self) -> Size:
        """d_v, the width of a value's head."""
        return self.value.shape[-1] // (self.options.key_heads or 1)
