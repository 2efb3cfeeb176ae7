"""`lucid.linalg` and `lucid.special`: names that torch keeps there."""

from __future__ import annotations

from typing import Any

from lucid.core.torch_names.argument_names import torch_names
from lucid.core.torch_names.namespaces import Namespace
from lucid.ops.composed import exp2, logit, sinc, xlogy
from lucid.ops.elementwise import erf, expm1, log1p, round_, sigmoid
from lucid.ops.neural import log_softmax, softmax
from lucid.ops.reduction import logsumexp, norm
from lucid.ops.tensor.tensor import Axes, Tensor


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


linalg = Namespace("linalg", norm=_norm, vector_norm=vector_norm)
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
