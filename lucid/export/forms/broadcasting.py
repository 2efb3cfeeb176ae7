"""Operands with as many axes as each other, for runtimes whose kernels are wrong or stop where they differ."""

from __future__ import annotations

from typing import Any

from lucid.core.graph.values import Node, operand
from lucid.core.sizes.dims import same
from lucid.core.targets.runtimes import NO_AXES, RANKS_APART, VECTOR_PRODUCTS
from lucid.export.builder import Builder
from lucid.export.form import Form, form
from lucid.ops import elementwise, matmul, squeeze, unsqueeze
from lucid.ops.op import Op
from lucid.ops.shaping import unsqueeze_op
from lucid.ops.tensor.tensor import Tensor

_WIDE = 4  # numbers that a kernel reads at once


def _has_vector(node: Node) -> bool:
    return any(operand(node, index).type.rank == 1 for index in range(2))


@form(matmul, name="matrices", mends=VECTOR_PRODUCTS, applies=_has_vector)
def vectors_as_matrices(build: Builder, node: Node) -> Tensor:
    """A vector as a matrix of one row or column."""
    x, y = Tensor.from_value(operand(node)), Tensor.from_value(operand(node, 1))
    product = matmul(unsqueeze(x, 0) if x.ndim == 1 else x, unsqueeze(y, 1) if y.ndim == 1 else y)
    return squeeze(product, tuple(axis for axis, each in ((-2, x), (-1, y)) if each.ndim == 1))


def _stops(node: Node) -> bool:
    """Whether the kernel may stop. It reads four numbers at once if the shared axes hold a multiple of that: where the
    last axis does not, it looks at the axes before it, also where the shorter operand has none.
    """
    shorter, longer = sorted((operand(node).type, operand(node, 1).type), key=lambda kind: kind.rank)
    return 1 < shorter.rank < longer.rank and not same(shorter.shape[-1] % _WIDE, 0)


def _of_one_rank(op: Op[..., Any]) -> Form:
    @form(op, name="operands of one rank", mends=RANKS_APART, applies=_stops)
    def aligned(build: Builder, node: Node) -> Tensor:
        x, y = Tensor.from_value(operand(node)), Tensor.from_value(operand(node, 1))
        rank = max(x.ndim, y.ndim)
        result: Tensor = op(*(unsqueeze(each, tuple(range(rank - each.ndim))) for each in (x, y)))
        return result

    return aligned


@form(unsqueeze_op, takes="axes", name="nothing", mends=NO_AXES, applies=lambda node: not node.attributes["axes"])
def without_axes(build: Builder, node: Node) -> str:
    return build.name_of(node.inputs[0])


FORMS = (
    *(vectors_as_matrices, without_axes),
    *map(
        _of_one_rank,
        (
            *(elementwise.add, elementwise.sub, elementwise.mul, elementwise.true_div, elementwise.pow_),
            *(elementwise.equal, elementwise.not_equal, elementwise.less, elementwise.less_equal),
            *(elementwise.greater, elementwise.greater_equal, elementwise.logical_and),
        ),
    ),
)
