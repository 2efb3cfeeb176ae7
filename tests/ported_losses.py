"""Lines of torch's that compute losses; see `ported`. `x` and `y` are (N, 3, 4), `i` is (N, 3), numbers 0 to 2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Line = Callable[..., Any]  # (t, F, nn, *tensors) to a tensor or several


def _all(loss: Callable[[str], Any]) -> tuple[Any, ...]:
    """A loss of each reduction."""
    return tuple(loss(reduction) for reduction in ("mean", "sum", "none"))


LOSSES: dict[str, tuple[str, Line]] = {
    "losses of classes": (
        "x ids v",
        lambda t, F, nn, x, i, v: (
            F.cross_entropy(100 * x[:, :, 0], i[:, 0]),
            F.cross_entropy(input=x[0, :, 0], target=i[0, 0]),
            F.cross_entropy(x.flatten(0, 1), i.flatten(), ignore_index=1),  # as models for tokens write it
            F.cross_entropy(x, i[:, :1] + 0 * i[:, :1] + t.zeros(4, dtype=t.long)),
            F.cross_entropy(x[:, :, 0], i[:, 0] * 0 - 100),
            F.nll_loss(F.log_softmax(x, dim=1), t.stack([i[:, 0]] * 4, 1), x[0, :, 1].abs()),
            *_all(
                lambda how: F.cross_entropy(
                    x.transpose(1, 2), i, v[:4].abs(), ignore_index=2, reduction=how, label_smoothing=0.3
                )
            ),
            *_all(lambda how: F.nll_loss(x.transpose(1, 2), i, ignore_index=0, reduction=how)),
            F.multi_margin_loss(x[:, 0], i[:, 0], p=2, margin=0.5, weight=v[:4].abs()),
            F.multi_margin_loss(x[0, 0], i[0, 0]),
            F.cross_entropy(x[:, 0], i[:, 0].to(t.uint8)),
            nn.NLLLoss(v[:4].abs())(x[:, 1], i[:, 0]),
        ),
    ),
    "losses of probabilities": (
        "x y v",
        lambda t, F, nn, x, y, v: (
            *_all(lambda how: F.cross_entropy(x, y.softmax(1), reduction=how, label_smoothing=0.2)),
            F.cross_entropy(x.transpose(1, 2), y.softmax(2).transpose(1, 2), v[:4].abs()),
            F.cross_entropy(x[0, 0], y[0, 0].softmax(0)),
            *_all(lambda how: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), v[:4].abs(), reduction=how)),
            F.binary_cross_entropy((x > 0).float(), (y > 0).float()),
            *_all(
                lambda how: F.binary_cross_entropy_with_logits(
                    50 * x, y.sigmoid(), x.abs(), pos_weight=v[:4].abs(), reduction=how
                )
            ),
            *_all(lambda how: F.multilabel_soft_margin_loss(x[0], (y[0] > 0).float(), v[:4].abs(), reduction=how)),
            F.multilabel_soft_margin_loss(x.clamp(min=0).log(), (x < 0).float(), reduction="none"),
            *_all(lambda how: F.kl_div(x.log_softmax(-1), (y.softmax(-1) - 0.2).clamp(min=0), reduction=how)),
            F.kl_div(x.log_softmax(-1), y.log_softmax(-1), log_target=True, reduction="batchmean"),
            nn.BCEWithLogitsLoss(pos_weight=v[:4].abs())(x, y.sigmoid()),
        ),
    ),
    "losses of numbers": (
        "x y",
        lambda t, F, nn, x, y: (
            *_all(lambda how: F.mse_loss(x, y, reduction=how)),
            *_all(lambda how: F.l1_loss(x, y, reduction=how, weight=y.abs())),
            *_all(lambda how: F.smooth_l1_loss(x, y, reduction=how, beta=0.7)),
            *_all(lambda how: F.huber_loss(x, y, how, 0.7, weight=y.abs())),
            *_all(lambda how: F.poisson_nll_loss(x, 3 * y.abs(), full=True, reduction=how)),
            *_all(lambda how: F.gaussian_nll_loss(x, y, x[:, :, 0].abs(), full=True, reduction=how)),
            F.mse_loss(x, y, weight=y.abs()),
            F.mse_loss(x[:0], y[:0]),
            F.smooth_l1_loss(x, y, beta=0.0),
            F.poisson_nll_loss(x.abs(), y.abs(), log_input=False),
            F.gaussian_nll_loss(x, y, 0.5),
        ),
    ),
    "losses of vectors": (
        "x y mask",
        lambda t, F, nn, x, y, m: (
            F.cosine_similarity(x, y),
            F.cosine_similarity(x[:, :1], 0 * y, dim=-1, eps=1e-3),
            F.pairwise_distance(x, y, p=1.0, keepdim=True),
            *_all(
                lambda how: F.cosine_embedding_loss(
                    x[:, 0], y[:, 0], m[:, 0, 0].long() * 2 - 1, margin=0.1, reduction=how
                )
            ),
            *_all(lambda how: F.hinge_embedding_loss(x, m.long() * 2 - 1, 0.5, reduction=how)),
            *_all(lambda how: F.margin_ranking_loss(x, y, m.long() * 2 - 1, 0.5, reduction=how)),
            *_all(lambda how: F.soft_margin_loss(9 * x, m.long() * 2 - 1, reduction=how)),
            *_all(lambda how: F.triplet_margin_loss(x[0], y[0], x[1], 0.5, swap=True, reduction=how)),
            F.triplet_margin_loss(x, y, y.flip(0), p=1),
            nn.CosineSimilarity(dim=2)(x, y),
            nn.TripletMarginLoss(p=3.0)(anchor=x, positive=y, negative=y.flip(0)),
        ),
    ),
}
