"""A choice by a size, made when the model runs."""

from __future__ import annotations

from collections.abc import Callable

from lucid.dims import Size
from lucid.export.builder import Builder, Operand
from lucid.ops.creation import size_op
from lucid.types import TensorType


def by_length(
    build: Builder,
    length: Size,
    limit: int,
    short: Callable[[], Operand],
    long: Callable[[], Operand],
    output: TensorType,
) -> Operand:
    """An If node: `short` up to so many queries, `long` beyond."""
    condition = build.name_of(size_op(size=length) <= limit)
    then = build.block(lambda: [(build.name_of(short()), output)])
    orelse = build.block(lambda: [(build.name_of(long()), output)])
    return build.op("If", condition, then_branch=then, else_branch=orelse)
