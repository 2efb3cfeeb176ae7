"""The one place where a choice by a size is made when the model runs: an If node around two forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lucid.core.graph.types import TensorType
from lucid.core.sizes.dims import Size
from lucid.export.builder import Builder, Operand, Operands
from lucid.export.forms.attention.plan import Plan
from lucid.ops.creation import size_op


def by_length(
    build: Builder,
    size: Size,
    plan: Plan,
    short: Callable[[], Operand],
    long: Callable[[], Operand],
    output: TensorType,
) -> Operand:
    """`short` up to the limit of a plan, `long` beyond; one of them alone where only it is expected."""
    assert plan.limit is not None
    if not plan.short:
        return long()
    if not build.target.expects(plan.limit + 1):
        return short()
    build.thresholds.append((size, plan.limit))
    condition = build.name_of(size_op(size=size) <= plan.limit)
    return branch(build, condition, short, long, [output])[0]


def branch(
    build: Builder,
    condition: str,
    then: Callable[[], Operands],
    orelse: Callable[[], Operands],
    outputs: Sequence[TensorType],
) -> tuple[str, ...]:
    """An If node: the outputs of one function or of the other, of these types."""

    def typed(emit: Callable[[], Operands]) -> list[tuple[str, TensorType]]:
        return list(zip(build.names_of(emit()), outputs, strict=True))

    return build.either(condition, lambda: typed(then), lambda: typed(orelse))
