"""`lucid.linalg` and `lucid.special`: names that torch keeps there."""

from __future__ import annotations

from typing import Any

from lucid.core.graph.types import broadcast, common_dtype
from lucid.core.sizes.dims import same
from lucid.core.torch_names.argument_names import torch_names
from lucid.core.torch_names.namespaces import Namespace
from lucid.ops.composed import exp2, logit, sinc, xlogy
from lucid.ops.creation import arange, tril, triu
from lucid.ops.elementwise import check_kind, erf, expm1, log1p, round_, sigmoid
from lucid.ops.indexing import take
from lucid.ops.loops import scan
from lucid.ops.neural import log_softmax, softmax
from lucid.ops.operand_conversion import as_tensor
from lucid.ops.rearranging import movedim
from lucid.ops.reduction import logsumexp, norm
from lucid.ops.shaping import expand, squeeze, unsqueeze
from lucid.ops.tensor.tensor import Axes, Tensor, TensorLike


@torch_names
def vector_norm(x: Tensor, ord: Any = 2, axis: Axes = None, keepdims: bool = False, *, dtype: Any = None) -> Tensor:
    """The p-norm, p being `ord`, over axes, all of them by default."""
    return norm(x if dtype is None else x.astype(dtype), ord, axis, keepdims)


@torch_names
def _norm(x: Tensor, ord: Any = None, axis: Axes = None, keepdims: bool = False, *, dtype: Any = None) -> Tensor:
    """The norm of vectors, or Frobenius' of matrices.

    Raises:
        ValueError: for another norm of matrices.
    """
    several = x.ndim == 2 if axis is None else not isinstance(axis, int) and len(axis) == 2
    if several and ord not in (None, "fro"):
        raise ValueError(f"linalg.norm: ord is {ord!r} for matrices, expected 'fro'; others are not computed")
    return vector_norm(x, 2 if several or ord is None else ord, axis, keepdims, dtype=dtype)


@torch_names
def solve_triangular(
    A: TensorLike,  # torch's names
    B: TensorLike,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Tensor:
    """X of A @ X = B, or with `left=False` of X @ A = B, for triangular A (..., n, n), by substitution row by row.

    B is (..., n, columns), or with `left=False` (..., columns, n), and X has its shape, in the promoted element type.
    The other triangle of A is not read, and with `unitriangular` neither is its diagonal, which counts as ones. Other
    axes broadcast; n may be symbolic while tracing.

    Raises:
        TypeError: for matrices that are not floating-point.
        ValueError: for matrices whose sizes do not fit.
    """
    a, b = as_tensor("solve_triangular", A), as_tensor("solve_triangular", B)
    expected = "(..., n, n) and " + ("(..., n, columns)" if left else "(..., columns, n)")
    if min(a.ndim, b.ndim) < 2 or any(not same(a.shape[-1], n) for n in (a.shape[-2], b.shape[-2 if left else -1])):
        raise ValueError(f"solve_triangular: got {a.spec} and {b.spec}, expected {expected}")
    for x in (a, b):
        check_kind("solve_triangular", x.spec, ("float",))
    dtype = common_dtype([a.spec, b.spec])
    a, b = a.astype(dtype), b.astype(dtype)
    if not left:
        return solve_triangular(a.mT, b.mT, upper=not upper, unitriangular=unitriangular).mT
    batch = broadcast("solve_triangular", a.shape[:-2], b.shape[:-2])
    columns = movedim(triu(a) if upper else tril(a), -1, 0)
    rows = arange(b.shape[-2])

    def step(rest: Tensor, x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        row = take(rest, unsqueeze(x["place"], 0), -2)
        if not unitriangular:
            row = row / unsqueeze(take(x["column"], unsqueeze(x["place"], 0), -1), -1)
        return rest - unsqueeze(x["column"], -1) * row, squeeze(row, -2)

    start = expand(b, (*batch, *b.shape[-2:]))
    _, solved = scan(step, start, {"column": columns, "place": rows}, reverse=upper)
    return movedim(solved, 0, -2)


linalg = Namespace("linalg", norm=_norm, solve_triangular=solve_triangular, vector_norm=vector_norm)
special = Namespace(
    "special",
    erf=erf,
    exp2=exp2,
    expit=sigmoid,
    expm1=expm1,
    log1p=log1p,
    log_softmax=log_softmax,
    logit=logit,
    logsumexp=logsumexp,
    round=round_,
    sinc=sinc,
    softmax=softmax,
    xlogy=xlogy,
)
