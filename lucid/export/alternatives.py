"""Two alternatives in one model: the branches of an If, of which an input says which one is computed."""

from __future__ import annotations

from collections.abc import Sequence

from lucid.core.graph.types import TensorType
from lucid.core.graph.values import Input, Value
from lucid.export.builder import Builder


def either(
    build: Builder, condition: Value, then: Sequence[Value], otherwise: Sequence[Value], types: Sequence[TensorType]
) -> list[Value]:
    """Values of these types: the first ones where a boolean is true, the second ones elsewhere.

    What only one of them needs is computed in its branch. Weights are outside, once for both.
    """
    then_branch = build.block(lambda: build.block_outputs(then))
    else_branch = build.block(lambda: build.block_outputs(otherwise))
    names = build.ops("If", condition, outputs=len(types), then_branch=then_branch, else_branch=else_branch)
    joint = [Input(name, kind) for name, kind in zip(names, types, strict=True)]
    for value in joint:
        build.bind(value, value.name)
    return list(joint)
