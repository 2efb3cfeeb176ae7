"""Sampling: which tokens may be drawn, by temperature, top_k, top_p and min_p in this order, and the draw.

Each filter takes logits (N, vocab) and gives those of the tokens that it removes as -inf. `keep` is how many of the
likeliest tokens it never removes.
"""

from __future__ import annotations

import numpy as np

from lucid.generation.logits import Logits
from lucid.generation.options import Options
from lucid.generation.prompts import Ids


def filtered(logits: Logits, options: Options, keep: int = 1) -> Logits:
    """The logits after all filters that the options ask for."""
    with np.errstate(over="ignore"):  # of the lowest number, which some functions write for -inf
        logits = logits / options.temperature
    if options.top_k is not None:
        logits = top_k(logits, options.top_k, keep)
    if options.top_p is not None:
        logits = top_p(logits, options.top_p, keep)
    if options.min_p is not None:
        logits = min_p(logits, options.min_p, keep)
    return logits


def top_k(logits: Logits, k: int, keep: int = 1) -> Logits:
    """Keep the k likeliest tokens, and those as likely as the last of them."""
    k = min(max(k, keep), logits.shape[-1])
    least = np.partition(logits, -k, axis=-1)[:, [-k]]
    return np.where(logits < least, -np.inf, logits)


def top_p(logits: Logits, p: float, keep: int = 1) -> Logits:
    """Keep the fewest likeliest tokens whose probabilities sum to at least p; of equally likely ones the lower ids."""
    kept = np.full_like(logits, -np.inf)
    for row, likelihood, result in zip(logits, probabilities(logits), kept, strict=True):
        unlikely = likelihood <= (1 - p) / row.size  # together at most 1 - p: removed without being sorted
        likely = row.size - int(unlikely.sum())
        order = largest(row[None], max(likely, keep))[0]
        # The probability of each likely token and all less likely ones: of the kept tokens it is more than 1 - p.
        tail = np.cumsum(likelihood[order[:likely]][::-1])[::-1] + likelihood[unlikely].sum()
        count = max(int((tail > 1 - p).sum()), keep)
        result[order[:count]] = row[order[:count]]
    return kept


def min_p(logits: Logits, p: float, keep: int = 1) -> Logits:
    """Keep the tokens that are at least p times as likely as the likeliest."""
    removed = np.exp(logits - logits.max(axis=-1, keepdims=True)) < p
    if keep > 1:  # the likeliest itself is never removed
        kept = min(keep, logits.shape[-1])
        removed &= logits < np.partition(logits, -kept, axis=-1)[:, [-kept]]
    return np.where(removed, -np.inf, logits)


def probabilities(logits: Logits) -> Logits:
    """Softmax."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def log_probabilities(logits: Logits) -> Logits:
    """Logarithm of softmax."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def draw(logits: Logits, random: np.random.Generator) -> Ids:
    """One token a row (N,), each with its probability: the first whose cumulative probability exceeds a random number.

    Each row has its own random number, so a row's token does not depend on the logits of the others.
    """
    cumulative = np.cumsum(probabilities(logits), axis=-1)
    threshold = random.random(len(logits)) * cumulative[:, -1]  # the sum is 1 up to rounding
    return np.asarray(np.argmax(cumulative > threshold[:, None], axis=-1), np.int64)


def draw_distinct(logits: Logits, count: int, random: np.random.Generator) -> Ids:
    """`count` different columns a row, drawn one after the other (Gumbel top-k, Kool et al. 2019), (N, count)."""
    perturbed = logits + random.gumbel(size=logits.shape)
    return largest(perturbed, count)


def largest(values: Logits, count: int) -> Ids:
    """The columns of the largest values of each row, largest first; of equal ones the lower column first."""
    count = min(count, values.shape[-1])
    least = np.partition(values, -count, axis=-1)[:, -count]
    columns = [np.flatnonzero(row >= bound) for row, bound in zip(values, least, strict=True)]
    chosen = [c[np.argsort(-row[c], kind="stable")[:count]] for row, c in zip(values, columns, strict=True)]
    return np.stack(chosen).astype(np.int64)
