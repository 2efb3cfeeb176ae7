"""Sampling: which tokens may be drawn, by temperature, top_k, top_p, min_p and typical_p in this order, and the draw.

Each filter takes logits (vocab,) and sets those of removed tokens to -inf. `keep` is how many of the
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
    if options.typical_p is not None and options.typical_p < 1:
        logits = typical_p(logits, options.typical_p, keep)
    return logits


def top_k(logits: Logits, k: int, keep: int = 1) -> Logits:
    """Keep the k likeliest tokens, and those as likely as the last of them."""
    return np.where(logits < _least(logits, max(k, keep)), -np.inf, logits)


def top_p(logits: Logits, p: float, keep: int = 1) -> Logits:
    """Keep the fewest likeliest tokens whose probabilities sum to at least p; of equally likely ones the lower ids."""
    likelihood = probabilities(logits)
    unlikely = likelihood <= (1 - p) / logits.size  # together at most 1 - p: removed without being sorted
    likely = logits.size - int(unlikely.sum())
    order = largest(logits[None], max(likely, keep))[0]
    # The probability of each likely token and all less likely ones: of the kept tokens it is more than 1 - p.
    tail = np.cumsum(likelihood[order[:likely]][::-1])[::-1] + likelihood[unlikely].sum()
    kept = order[: max(int((tail > 1 - p).sum()), keep)]
    result = np.full_like(logits, -np.inf)
    result[kept] = logits[kept]
    return result


def min_p(logits: Logits, p: float, keep: int = 1) -> Logits:
    """Keep the tokens that are at least p times as likely as the likeliest."""
    removed = np.exp(logits - logits.max()) < p
    if keep > 1:  # the likeliest itself is never removed
        removed &= logits < _least(logits, keep)
    return np.where(removed, -np.inf, logits)


def typical_p(logits: Logits, p: float, keep: int = 1) -> Logits:
    """Keep the fewest tokens whose probabilities sum to at least p, of those whose surprise is nearest to the expected.

    The surprise of a token is -log of its probability (Meister et al. 2022); `keep` counts the most typical tokens.
    """
    surprise = -log_probabilities(logits)
    likelihood = np.exp(-surprise)
    possible = likelihood > 0
    expected = likelihood[possible] @ surprise[possible]
    distance = np.abs(surprise - expected)
    order = np.argsort(distance, kind="stable")
    last = min(int((np.cumsum(likelihood[order]) < p).sum()), logits.size - 1)
    removed = distance > distance[order[last]]
    removed[order[:keep]] = False
    return np.where(removed, -np.inf, logits)


def _least(logits: Logits, count: int) -> float:
    """The smallest of so many largest logits."""
    count = min(count, logits.size)
    return float(np.partition(logits, -count)[-count])


def probabilities(logits: Logits) -> Logits:
    """Softmax."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def log_probabilities(logits: Logits) -> Logits:
    """Logarithm of softmax."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def draw(logits: Logits, random: np.random.Generator) -> int:
    """A token, by the probabilities of logits (vocab,): the first whose cumulative one exceeds a random number."""
    cumulative = np.cumsum(probabilities(logits))
    return int(np.argmax(cumulative > random.random() * cumulative[-1]))  # the sum is 1 up to rounding


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
