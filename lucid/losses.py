"""Losses with torch's arguments, for training and evaluation: `lucid.losses`, and in `lucid.nn.functional` too.

All are compositions of ops, so they trace and export with open sizes. `x` holds predictions, called `input` in torch.
`reduction` is "mean", "sum" or "none", which keeps one number for each element; the mean of no elements is NaN.
`lucid.nn` has modules that keep the options of a loss, such as `CrossEntropyLoss`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lucid import ops
from lucid.core.graph.types import same_shape, show_shape
from lucid.core.number_ranges import (
    NOT_NEGATIVE_OR_INFINITE,
    POSITIVE_OR_INFINITE,
    PROBABILITY,
    check,
)
from lucid.core.torch_names.argument_names import torch_names
from lucid.core.torch_names.missing_names import why_absent
from lucid.core.words import package_names
from lucid.ops.elementwise import at_least_float32, log1p
from lucid.ops.operand_conversion import as_tensor, check_tensors
from lucid.ops.reduction import normalize
from lucid.ops.tensor.tensor import Tensor

__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_embedding_loss",
    "cross_entropy",
    "gaussian_nll_loss",
    "hinge_embedding_loss",
    "huber_loss",
    "in_batch_contrastive_loss",
    "kl_div",
    "l1_loss",
    "margin_ranking_loss",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
]
__dir__ = __all__.copy


if not TYPE_CHECKING:  # type checkers know the names

    def __getattr__(name: str) -> object:
        raise package_names.unknown(f"module {__name__!r}", name, __all__, why_absent("functional", name))


# Reductions -----------------------------------------------------------------------------------------------------------


def _reduced(losses: Tensor, reduction: str, counted: Tensor | None = None) -> Tensor:
    """The mean or the sum of losses, or all of them; the mean divides by `counted` in place of their number."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"reduction is {reduction!r}, expected 'none', 'mean' or 'sum'")
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    return losses.mean() if counted is None else (at_least_float32(losses).sum() / counted).astype(losses.dtype)


def _weighted(losses: Tensor, weight: Tensor | None) -> Tensor:
    return losses if weight is None else losses * weight


def _check_alike(name: str, **pair: Tensor) -> None:
    check_tensors(name, **pair)
    (first, x), (second, y) = pair.items()
    if not same_shape(x.shape, y.shape):
        raise ValueError(
            f"{name}: {first} is {show_shape(x.shape)} and {second} {show_shape(y.shape)}, expected one shape"
        )


# Classes --------------------------------------------------------------------------------------------------------------


@torch_names
def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The negative log-probability of the target, of logits (N, C, ...) or (C,).

    Args:
        target: class indices (N, ...) or (), integers; or probabilities of all classes, of the shape of x.
        weight: (C,) a factor of each class. The mean divides by the factors of the targets, not for probabilities.
        ignore_index: the index of targets that count for nothing.
        label_smoothing: the share of the target that all classes get alike (Szegedy et al. 2016).

    Raises:
        ValueError: for a target or weight of another shape, or a smoothing outside of 0 to 1.
        IndexError: for a known index of no class. A negative one that is known only at run time gives NaN.
    """
    check_tensors("cross_entropy", x=x, target=target)
    check("cross_entropy: label_smoothing", label_smoothing, PROBABILITY)
    axis = min(1, x.ndim - 1)
    logs = ops.log_softmax(x, axis=axis)
    if target.dtype.kind != "float":
        losses, counted = _of_indices("cross_entropy", logs, target, weight, ignore_index, label_smoothing)
        return _reduced(losses, reduction, counted)
    _check_alike("cross_entropy", x=x, target=target)
    if ignore_index >= 0:
        raise ValueError("cross_entropy: ignore_index is for class indices, and the target has probabilities")
    scaled = _scaled("cross_entropy", logs, weight)
    return _reduced(_smoothed(-(scaled * target).sum(axis), scaled, label_smoothing), reduction)


@torch_names
def nll_loss(
    x: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    """The negative of log-probabilities (N, C, ...) or (C,) at class indices (N, ...) or (); see `cross_entropy`.

    Raises:
        ValueError: for a target or weight of another shape.
        IndexError: for a known index of no class.
    """
    check_tensors("nll_loss", x=x, target=target)
    losses, counted = _of_indices("nll_loss", x, target, weight, ignore_index)
    return _reduced(losses, reduction, counted)


def _of_indices(
    name: str, logs: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """The loss at each class index, 0 where it is ignored, and the sum of the weights that count."""
    axis = min(1, logs.ndim - 1)
    target = _indices(name, logs, target, axis)
    ignored = target == ignore_index
    indices = ops.where(ignored, 0, target)
    _check_indices(name, indices, logs.shape[axis], "; ignore_index={} leaves such ones out")
    scaled = _scaled(name, logs, weight)
    losses = -ops.take_along(scaled, indices.unsqueeze(axis), axis=axis).squeeze(axis)
    if indices.is_traced:  # runtimes count negative indices from the last class
        losses = ops.where(indices < 0, math.nan, losses)
    counted = (~ignored).sum() if weight is None else ops.where(ignored, 0, ops.take(weight, indices, 0)).sum()
    return ops.where(ignored, 0, _smoothed(losses, scaled, smoothing)), counted


def _indices(name: str, x: Tensor, target: Tensor, axis: int) -> Tensor:
    """Class indices as int64, one for each row of classes along an axis of x."""
    if target.dtype.kind == "float" or not same_shape(target.shape, (*x.shape[:axis], *x.shape[axis + 1 :])):
        raise ValueError(
            f"{name}: got a target {target.spec} of {x.spec}, expected class indices (N, ...) of (N, C, ...)"
        )
    return target.long()


def _check_indices(name: str, indices: Tensor, classes: Any, advice: str = "") -> None:
    if not indices.is_traced and isinstance(classes, int):
        known = indices.numpy()
        wrong = known[(known < 0) | (known >= classes)]
        if wrong.size:
            raise IndexError(f"{name}: target {wrong[0]} is none of {classes} classes{advice.format(wrong[0])}")


def _scaled(name: str, logs: Tensor, weight: Tensor | None) -> Tensor:
    """Each class's log-probability times its weight."""
    if weight is None:
        return logs
    axis = min(1, logs.ndim - 1)
    if not same_shape(weight.shape, logs.shape[axis : axis + 1]):
        raise ValueError(
            f"{name}: weight {show_shape(weight.shape)}, expected a number for each of {logs.shape[axis]} classes"
        )
    return logs * weight.reshape(-1, *(1,) * (logs.ndim - axis - 1))


def _smoothed(losses: Tensor, logs: Tensor, smoothing: float) -> Tensor:
    return losses * (1 - smoothing) - logs.mean(min(1, logs.ndim - 1)) * smoothing if smoothing else losses


@torch_names
def binary_cross_entropy(x: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: str = "mean") -> Tensor:
    """-(target * log(x) + (1 - target) * log(1 - x)) of probabilities x; logarithms are at least -100, as in torch, and
    have no gradient there.

    Args:
        weight: a factor of each loss, broadcast.

    Raises:
        ValueError: for a target of another shape.
    """
    _check_alike("binary_cross_entropy", x=x, target=target)
    losses = -(target * ops.clip(ops.log(x), -100) + (1 - target) * ops.clip(log1p(-x), -100))
    return _reduced(_weighted(losses, weight), reduction)


@torch_names
def binary_cross_entropy_with_logits(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Binary cross-entropy of sigmoid(x), without overflow.

    Args:
        weight: a factor of each loss, broadcast.
        pos_weight: a factor of the losses of positive targets, broadcast.

    Raises:
        ValueError: for a target of another shape.
    """
    _check_alike("binary_cross_entropy_with_logits", x=x, target=target)
    losses = _weighted(ops.softplus(-x), None if pos_weight is None else (pos_weight - 1) * target + 1)
    losses = (1 - target) * x + losses
    return _reduced(_weighted(losses, weight), reduction)


@torch_names
def multilabel_soft_margin_loss(
    x: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: str = "mean"
) -> Tensor:
    """The mean binary cross-entropy of the classes, the last axis of logits x; `weight`: a factor of each class."""
    losses = target * ops.softplus(-x) + (1 - target) * ops.softplus(x)
    return _reduced(_weighted(losses, weight).mean(-1), reduction)


@torch_names
def multi_margin_loss(
    x: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, *, reduction: str = "mean"
) -> Tensor:
    """max(0, margin - x[target] + x[i])^p, the mean over the classes i of scores (N, C) or (C,), without the target's.

    Args:
        target: class indices (N,) or ().
        weight: (C,) a factor of each class as a target.

    Raises:
        ValueError: for a target of another shape.
        IndexError: for a known index of no class.
    """
    check_tensors("multi_margin_loss", x=x, target=target)
    places = _indices("multi_margin_loss", x, target, x.ndim - 1)
    _check_indices("multi_margin_loss", places, x.shape[-1])
    places = places.unsqueeze(-1)
    losses = ops.relu(margin - ops.take_along(x, places, axis=-1) + x) ** p
    losses = _weighted(losses, weight if weight is None else ops.take(weight, places, 0))
    return _reduced(ops.where(ops.arange(x.shape[-1]) == places, 0, losses).mean(-1), reduction)


@torch_names
def kl_div(x: Tensor, target: Tensor, *, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """target * (log(target) - x) of log-probabilities x (Kullback and Leibler 1951).

    It is 0 where the target is 0, and NaN where it is below.

    Args:
        reduction: also "batchmean", the sum over the size of the first axis.
        log_target: whether the target holds log-probabilities.
    """
    check_tensors("kl_div", x=x, target=target)
    if log_target:
        losses = ops.exp(target) * (target - x)
    else:
        losses = ops.where(target != 0, target * ops.log(ops.where(target != 0, target, 1)), 0) - target * x
    if reduction == "batchmean":
        return losses.sum() / as_tensor("kl_div", x.shape[0], losses.dtype)
    return _reduced(losses, reduction)


# Numbers --------------------------------------------------------------------------------------------------------------


@torch_names
def l1_loss(x: Tensor, target: Tensor, *, reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """|x - target|; with a weight of each element, the mean divides by the sum of the weights."""
    return _reduced(_weighted(abs(x - target), weight), reduction, None if weight is None else weight.sum())


@torch_names
def mse_loss(x: Tensor, target: Tensor, *, reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """(x - target)^2; with a weight of each element, the mean divides by the sum of the weights."""
    return _reduced(_weighted((x - target) ** 2, weight), reduction, None if weight is None else weight.sum())


@torch_names
def smooth_l1_loss(x: Tensor, target: Tensor, *, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """(x - target)^2 / 2 / beta where |x - target| < beta, else |x - target| - beta / 2 (Girshick 2015).

    Raises:
        ValueError: for a negative beta.
    """
    check("smooth_l1_loss: beta", beta, NOT_NEGATIVE_OR_INFINITE)
    difference = x - target
    apart = abs(difference)
    losses = ops.where(apart < beta, difference**2 * (0.5 / beta), apart - beta / 2) if beta else apart
    return _reduced(losses, reduction)


@torch_names
def huber_loss(
    x: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """(x - target)^2 / 2 where |x - target| < delta, else delta * (|x - target| - delta / 2) (Huber 1964).

    Args:
        weight: a factor of each loss.

    Raises:
        ValueError: for a delta that is not positive.
    """
    check("huber_loss: delta", delta, POSITIVE_OR_INFINITE)
    difference = x - target
    apart = abs(difference)
    losses = ops.where(apart < delta, difference**2 * 0.5, (apart - delta / 2) * delta)
    return _reduced(_weighted(losses, weight), reduction)


@torch_names
def poisson_nll_loss(
    x: Tensor, target: Tensor, log_input: bool = True, full: bool = False, *, eps: float = 1e-8, reduction: str = "mean"
) -> Tensor:
    """exp(x) - target * x, of the logarithm x of an expected count; without `log_input` x is the count.

    Args:
        full: whether Stirling's approximation of log(target!) is added, for targets above 1.
        eps: added to a count before its logarithm is taken.
    """
    losses = ops.exp(x) - target * x if log_input else x - target * ops.log(x + eps)
    if full:
        count = ops.where(target > 1, target, 1)
        losses = losses + ops.where(target > 1, count * ops.log(count) - count + 0.5 * ops.log(2 * math.pi * count), 0)
    return _reduced(losses, reduction)


@torch_names
def gaussian_nll_loss(
    x: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """(log(var) + (x - target)^2 / var) / 2, of a normal distribution (Nix and Weigend 1994).

    Args:
        var: variances, at least `eps`: of the shape of x, of that without its last axis, or broadcast.
        full: whether log(2 pi) / 2 is added.

    Raises:
        ValueError: for a known variance below 0.
    """
    variance = as_tensor("gaussian_nll_loss", var, x.dtype)
    if not variance.is_traced and (variance.numpy() < 0).any():
        raise ValueError(f"gaussian_nll_loss: the least var is {variance.numpy().min()}, expected 0 or more")
    if variance.ndim == x.ndim - 1 and same_shape(variance.shape, x.shape[:-1]):
        variance = variance.unsqueeze(-1)
    variance = ops.clip(variance, eps)
    losses = 0.5 * (ops.log(variance) + (x - target) ** 2 / variance)
    return _reduced(losses + 0.5 * math.log(2 * math.pi) if full else losses, reduction)


# Vectors and margins --------------------------------------------------------------------------------------------------


@torch_names
def cosine_similarity(x1: Tensor, x2: Tensor, axis: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along an axis; norms are at least `eps`."""
    return (normalize(x1, axis=axis, eps=eps) * normalize(x2, axis=axis, eps=eps)).sum(axis)


@torch_names
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last axis."""
    return (x1 - x2 + eps).norm(p, -1, keepdims)


@torch_names
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, *, reduction: str = "mean"
) -> Tensor:
    """1 - cos of vectors (N, d) or (d,) where the target is 1; max(0, cos - margin) where it is -1."""
    products, *squares = ((a * b).sum(-1) for a, b in ((input1, input2), (input1, input1), (input2, input2)))
    cosine = products / ((squares[0] + 1e-12) * (squares[1] + 1e-12)).sqrt()
    losses = ops.where(target == 1, 1 - cosine, 0) + ops.where(target == -1, ops.clip(cosine - margin, 0), 0)
    return _reduced(losses, reduction)


@torch_names
def hinge_embedding_loss(x: Tensor, target: Tensor, margin: float = 1.0, *, reduction: str = "mean") -> Tensor:
    """x where the target is 1; max(0, margin - x) where it is -1."""
    losses = ops.where(target != -1, x, 0) + ops.where(target != 1, ops.clip(margin - x, 0), 0)
    return _reduced(losses, reduction)


@torch_names
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, *, reduction: str = "mean"
) -> Tensor:
    """max(0, margin - target * (input1 - input2)); the target is 1 where input1 should be greater, else -1."""
    losses = ops.clip(margin - target * (input1 - input2), 0)
    return _reduced(losses, reduction)


@torch_names
def soft_margin_loss(x: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """log(1 + exp(-target * x)) of targets 1 and -1."""
    return _reduced(ops.softplus(-target * x), reduction)


@torch_names
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    *,
    reduction: str = "mean",
) -> Tensor:
    """max(0, margin + distance of the positive - distance of the negative), by the p-norm (Schroff et al. 2015).

    Args:
        swap: whether the negative's distance from the positive counts where it is less (Balntas et al. 2016).
    """
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    far = ops.minimum(far, pairwise_distance(positive, negative, p, eps)) if swap else far
    return _reduced(ops.clip(near - far + margin, 0), reduction)


def in_batch_contrastive_loss(
    x: Tensor, positives: Tensor, negatives: Tensor | None = None, *, scale: float = 20.0, symmetric: bool = False
) -> Tensor:
    """The cross-entropy of each vector's own positive among all positives of the batch, by scaled cosines.

    InfoNCE (van den Oord et al. 2018) with the other positives as negatives (Henderson et al. 2017), as
    sentence-transformers' `MultipleNegativesRankingLoss`.

    Args:
        x: vectors (N, d).
        positives: (N, d) what belongs to each.
        negatives: (M, d) vectors that belong to none.
        scale: the factor of the cosines, the inverse of a temperature.
        symmetric: whether the mean is taken with the loss of each positive's own x among all of x.

    Raises:
        ValueError: for positives of another shape than x.
    """
    _check_alike("in_batch_contrastive_loss", x=x, positives=positives)
    x, positives = normalize(x, axis=-1), normalize(positives, axis=-1)
    others = [] if negatives is None else [normalize(negatives, axis=-1)]
    own = ops.arange(x.shape[0])
    loss = cross_entropy(x @ ops.concat([positives, *others], 0).mT * scale, own)
    return (loss + cross_entropy(positives @ x.mT * scale, own)) * 0.5 if symmetric else loss
