"""A loss of sentence encoders: each vector is to find its own positive in the batch."""

from __future__ import annotations

from lucid import ops
from lucid.core.graph.types import same_shape, show_shape
from lucid.nn.losses import cross_entropy
from lucid.ops.operand_conversion import check_tensors
from lucid.ops.reduction import normalize
from lucid.ops.tensor.tensor import Tensor


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
        scale: what cosines are multiplied by, the inverse of a temperature.
        symmetric: whether the mean is taken with the loss of each positive's own x among all of x.

    Raises:
        ValueError: for positives of another shape than x.
    """
    check_tensors("in_batch_contrastive_loss", x=x, positives=positives)
    if not same_shape(x.shape, positives.shape):
        shapes = show_shape(positives.shape), show_shape(x.shape)
        raise ValueError(
            "in_batch_contrastive_loss: positives {} differ from x {}, expected one for each".format(*shapes)
        )
    x, positives = normalize(x, axis=-1), normalize(positives, axis=-1)
    others = [] if negatives is None else [normalize(negatives, axis=-1)]
    own = ops.arange(x.shape[0])
    loss = cross_entropy(x @ ops.concat([positives, *others], 0).mT * scale, own)
    return (loss + cross_entropy(positives @ x.mT * scale, own)) * 0.5 if symmetric else loss
