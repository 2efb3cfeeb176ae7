"""A choice by a size, made when the model runs."""

from __future__ import annotations

from collections.abc import Callable

from lucid.core.graph.types import TensorType
from lucid.core.sizes.dims import Size
from lucid.export.builder import Builder, Operand
from lucid.export.form import refuse, refuse_slower
from lucid.ops import attention
from lucid.ops.creation import size_op


def by_length(
    build: Builder,
    length: Size,
    limit: int,
    short: Callable[[], Operand],
    long: Callable[[], Operand],
    output: TensorType,
) -> Operand:
    """An If node: `short` up to so many queries, `long` beyond; one of them alone where only it is expected."""
    if not build.target.expects(0, limit):
        return long()
    if not build.target.expects(limit + 1):
        return short()
    build.thresholds.append((length, limit))
    condition = build.name_of(size_op(size=length) <= limit)
    then = build.block(lambda: [(build.name_of(short()), output)])
    orelse = build.block(lambda: [(build.name_of(long()), output)])
    return build.op("If", condition, then_branch=then, else_branch=orelse)


def refuse_unexpected(build: Builder, limit: int) -> None:
    """Refuse a form of many queries where no more than `limit` are expected."""
    if not build.target.expects(limit + 1):
        refuse(f"at most {limit} queries are expected (lengths={build.target.lengths}), too few for it to be faster")


def refuse_short(build: Builder, size: Size, least: int, what: str) -> None:
    """Refuse a form that is slower for fewer queries or keys, where they are fewer or may be."""
    if isinstance(size, int) and size < least:
        refuse_slower(build, attention, what)
    if not isinstance(size, int) and build.target.expects(0, least - 1):
        refuse_slower(build, attention, "texts may be short; for these it is slower")


def said_up_to(build: Builder, limit: int, form: str) -> str:
    """The note on what `by_length` takes up to the limit; nothing where no such length is expected."""
    return f"up to {limit} queries it is {form}; " if build.target.expects(0, limit) else ""
