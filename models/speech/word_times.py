"""When each word is spoken, from the attention of some heads to the sound.

The weights of the heads are standardised over the text, smoothed over time and averaged; the cheapest path through
them, by dynamic time warping, gives the end of each token. Words are runs of tokens.

Source: openai/whisper's `timing.py`, with the numbers of transformers' `return_timestamps="word"`, which attends while
it writes; here the text is read once more.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from lucid.models.checkpoints.config import Array

POSITION = 0.02
"""Seconds from one position of the encoder's output to the next."""
_SPACELESS = ("zh", "ja", "th", "lo", "my", "yue")  # languages that are written without spaces
_OPENING, _CLOSING = "\"'“¡¿([{-", "\"'.。,，!！?？:：”)]}、"


class Word(NamedTuple):
    """A word with its punctuation, and when it is spoken, in seconds."""

    start: float
    end: float
    text: str


def token_ends(weights: Array, filter_width: int) -> Array:
    """The end of each token, in seconds from the beginning of the window, (L,).

    Args:
        weights: of the heads, (H, L, positions).
        filter_width: positions over which a median is taken; odd.
    """
    if weights.shape[1] < 2 or not weights.shape[2]:
        return np.zeros(weights.shape[1])
    weights = weights.astype(np.result_type(weights, np.float32))  # half precision rounds the squares to 0
    centred, spread = weights - weights.mean(1, keepdims=True), weights.std(1, keepdims=True)
    scores = np.divide(centred, spread, out=np.zeros_like(centred), where=spread > 0)  # equal weights tell nothing
    scores = _medians(scores, filter_width).mean(0)
    rows, positions = _cheapest_path(-scores.astype(np.float64))
    ends: Array = positions[np.diff(rows, prepend=-1) > 0] * POSITION
    return ends


def _medians(x: Array, width: int) -> Array:
    half = width // 2
    if x.shape[-1] <= half:
        return x
    mirrored = np.pad(x, ((0, 0), (0, 0), (half, half)), mode="reflect")
    medians: Array = np.sort(np.lib.stride_tricks.sliding_window_view(mirrored, width, -1), -1)[..., half]
    return medians


def _cheapest_path(costs: Array) -> tuple[Array, Array]:
    """The rows and columns of the way through (L, P), from the first corner to the last, that costs least."""
    rows, columns = costs.shape
    total = np.full((rows + 1, columns + 1), np.inf, np.float32)
    total[0, 0] = 0
    steps = np.full(total.shape, 2)  # 0: both, 1: the next row, 2: the next column
    steps[:, 0] = 1
    for diagonal in range(2, rows + columns + 1):  # the cells of one do not need each other
        i = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        j = diagonal - i
        before = np.stack([total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]])
        both, row, column = before
        step = np.where((both < row) & (both < column), 0, np.where((row < both) & (row < column), 1, 2))
        total[i, j] = costs[i - 1, j - 1] + before[step, np.arange(len(i))]
        steps[i, j] = step
    path, (at, time) = [], (rows, columns)
    while at or time:
        path.append((at - 1, time - 1))
        move = 2 if not at else int(steps[at, time])
        at, time = at - (move != 2), time - (move != 1)
    places = np.array(path[::-1])
    return places[:, 0], places[:, 1]


def words_of(
    tokens: Sequence[int],
    times: Sequence[tuple[float, float]],
    decode: Callable[[list[int]], str],
    language: str | None,
) -> list[Word]:
    """The words of a text whose tokens have these times.

    A word begins with a space, where a language has them, and ends with the punctuation after it.
    """
    groups = _characters(tokens, decode)
    if language not in _SPACELESS:
        groups = _joined(groups)
    groups = _with_punctuation(groups)
    return [Word(times[first][0], times[last - 1][1], text) for text, first, last in groups if text]


def _characters(tokens: Sequence[int], decode: Callable[[list[int]], str]) -> list[tuple[str, int, int]]:
    """The shortest runs of tokens that form whole characters: the text, the first token, and the one after the last."""
    whole, parts, first, offset = decode(list(tokens)), list[tuple[str, int, int]](), 0, 0
    for after in range(1, len(tokens) + 1):
        text = decode(list(tokens[first:after]))
        place = offset + text.find("\ufffd")
        if "\ufffd" not in text or place >= len(whole) or whole[place] == "\ufffd":
            parts.append((text, first, after))
            first, offset = after, offset + len(text)
    return parts


def _joined(groups: Sequence[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    words = list[tuple[str, int, int]]()
    for text, first, after in groups:
        if not words or text.startswith(" ") or text.strip() in string.punctuation:
            words.append((text, first, after))
        else:
            words[-1] = (words[-1][0] + text, words[-1][1], after)
    return words


def _with_punctuation(groups: Sequence[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    backwards = list[tuple[str, int, int]]()
    for text, first, after in reversed(groups):
        if backwards and text.startswith(" ") and text.strip() in _OPENING:
            backwards[-1] = (text + backwards[-1][0], first, backwards[-1][2])
        else:
            backwards.append((text, first, after))
    words = list[tuple[str, int, int]]()
    for text, first, after in reversed(backwards):
        if words and not words[-1][0].endswith(" ") and text in _CLOSING:
            words[-1] = (words[-1][0] + text, words[-1][1], after)
        else:
            words.append((text, first, after))
    return words
