"""Losses as modules, which keep their options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, ClassVar

from lucid import losses
from lucid.core.torch_names.argument_names import torch_names
from lucid.losses import cosine_similarity, pairwise_distance
from lucid.nn.module import Module
from lucid.ops.tensor.tensor import Tensor


class _Loss(Module):
    """A function of predictions and a target, with its options; a weight is a buffer."""

    compute: ClassVar[Callable[..., Tensor]]

    def _options(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]  # subclasses are

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return type(self).compute(x, target, **self._options())

    def extra_repr(self) -> str:
        options = self._options().items()
        return ", ".join(f"{name}={each!r}" for name, each in options if isinstance(each, (bool, float, int, str)))


@dataclass(eq=False, repr=False, kw_only=True)
class _PlainLoss(_Loss):
    reduction: str = "mean"


class L1Loss(_PlainLoss):
    """|x - target|: `F.l1_loss` with these options."""

    compute = losses.l1_loss


class MSELoss(_PlainLoss):
    """(x - target)^2: `F.mse_loss` with these options."""

    compute = losses.mse_loss


class SoftMarginLoss(_PlainLoss):
    """log(1 + exp(-target * x)) of targets 1 and -1: `F.soft_margin_loss` with these options."""

    compute = losses.soft_margin_loss


@dataclass(eq=False, repr=False, kw_only=True)
class SmoothL1Loss(_PlainLoss):
    """Squared below `beta`, linear above: `F.smooth_l1_loss` with these options."""

    compute = losses.smooth_l1_loss
    beta: float = 1.0


@dataclass(eq=False, repr=False, kw_only=True)
class KLDivLoss(_PlainLoss):
    """The divergence of log-probabilities x from a target: `F.kl_div` with these options."""

    compute = losses.kl_div
    log_target: bool = False


@dataclass(eq=False, repr=False)
class HuberLoss(_Loss):
    """Squared below `delta`, linear above: `F.huber_loss` with these options."""

    compute = losses.huber_loss
    reduction: str = "mean"
    delta: float = 1.0


@dataclass(eq=False, repr=False)
class NLLLoss(_Loss):
    """The negative of log-probabilities at class indices: `F.nll_loss` with these options."""

    compute = losses.nll_loss
    weight: Tensor | None = None
    _: KW_ONLY
    ignore_index: int = -100
    reduction: str = "mean"


@dataclass(eq=False, repr=False, kw_only=True)
class CrossEntropyLoss(NLLLoss):
    """The negative log-probability of the target, of logits: `F.cross_entropy` with these options."""

    compute = losses.cross_entropy
    label_smoothing: float = 0.0


@dataclass(eq=False, repr=False)
class BCELoss(_Loss):
    """Binary cross-entropy of probabilities: `F.binary_cross_entropy` with these options."""

    compute = losses.binary_cross_entropy
    weight: Tensor | None = None
    _: KW_ONLY
    reduction: str = "mean"


@dataclass(eq=False, repr=False, kw_only=True)
class BCEWithLogitsLoss(BCELoss):
    """Binary cross-entropy of logits: `F.binary_cross_entropy_with_logits` with these options."""

    compute = losses.binary_cross_entropy_with_logits
    pos_weight: Tensor | None = None


class MultiLabelSoftMarginLoss(BCELoss):
    """The mean binary cross-entropy of the classes: `F.multilabel_soft_margin_loss` with these options."""

    compute = losses.multilabel_soft_margin_loss


@dataclass(eq=False, repr=False)
class MultiMarginLoss(_Loss):
    """How far scores reach above the target's, less a margin: `F.multi_margin_loss` with these options."""

    compute = losses.multi_margin_loss
    p: int = 1
    margin: float = 1.0
    weight: Tensor | None = None
    _: KW_ONLY
    reduction: str = "mean"


@dataclass(eq=False, repr=False)
class PoissonNLLLoss(_Loss):
    """The negative log-likelihood of counts: `F.poisson_nll_loss` with these options."""

    compute = losses.poisson_nll_loss
    log_input: bool = True
    full: bool = False
    _: KW_ONLY
    eps: float = 1e-8
    reduction: str = "mean"


@dataclass(eq=False, repr=False, kw_only=True)
class GaussianNLLLoss(_Loss):
    """The negative log-likelihood of normal distributions: `F.gaussian_nll_loss` with these options."""

    compute = losses.gaussian_nll_loss
    full: bool = False
    eps: float = 1e-6
    reduction: str = "mean"

    def forward(self, x: Tensor, target: Tensor, var: Tensor | float) -> Tensor:  # type: ignore[override]
        return losses.gaussian_nll_loss(x, target, var, **self._options())


@dataclass(eq=False, repr=False)
class HingeEmbeddingLoss(_Loss):
    """x, or what a margin leaves of it: `F.hinge_embedding_loss` with these options."""

    compute = losses.hinge_embedding_loss
    margin: float = 1.0
    _: KW_ONLY
    reduction: str = "mean"


@dataclass(eq=False, repr=False)
class MarginRankingLoss(_Loss):
    """Which of two numbers should be greater, by a margin: `F.margin_ranking_loss` with these options."""

    compute = losses.margin_ranking_loss
    margin: float = 0.0
    _: KW_ONLY
    reduction: str = "mean"

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        return type(self).compute(input1, input2, target, **self._options())


class CosineEmbeddingLoss(MarginRankingLoss):
    """How far the angles of vectors are from what they should be: `F.cosine_embedding_loss` with these options."""

    compute = losses.cosine_embedding_loss


@dataclass(eq=False, repr=False)
class TripletMarginLoss(_Loss):
    """The distance to a positive minus the distance to a negative, plus a margin: `F.triplet_margin_loss` with these
    options.
    """

    compute = losses.triplet_margin_loss
    margin: float = 1.0
    p: float = 2.0
    eps: float = 1e-6
    swap: bool = False
    _: KW_ONLY
    reduction: str = "mean"

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:  # type: ignore[override]
        return losses.triplet_margin_loss(anchor, positive, negative, **self._options())


class CosineSimilarity(Module):
    """The cosine of the angle between vectors along an axis; norms are at least `eps`."""

    @torch_names
    def __init__(self, axis: int = 1, eps: float = 1e-8) -> None:
        self.axis, self.eps = axis, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return cosine_similarity(x1, x2, self.axis, self.eps)


class PairwiseDistance(Module):
    """The p-norm of x1 - x2 + eps along the last axis."""

    @torch_names
    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False) -> None:
        self.p, self.eps, self.keepdims = p, eps, keepdims

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return pairwise_distance(x1, x2, self.p, self.eps, self.keepdims)
