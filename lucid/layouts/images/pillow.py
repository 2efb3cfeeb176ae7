"""Images resized as Pillow resizes them, bit for bit.

Pillow (`Resample.c`) brings the rows of an image to their new width, rounds to whole numbers, and then does the same
for the columns. Each new number is a sum of old ones with weights of 22 bits after the point. Here such a pass is a
matrix product, in float64, which adds these integers without rounding. Pixels that are cropped away afterwards are not
computed.

Rows come first, as in Pillow up to 12. Pillow 13 begins with the columns where the height shrinks by more than twice as
many pixels as the width does, and gives other numbers then.
"""

from __future__ import annotations

from collections.abc import Callable

import lucid
from lucid import Tensor
from lucid.core.sizes.dims import Size
from lucid.ops.creation import size_op

_BITS = 22  # of weights, after the point
_Filter = Callable[[Tensor], Tensor]


def _bilinear(x: Tensor) -> Tensor:
    return lucid.where(x < 1.0, 1.0 - x, 0.0)


def _bicubic(x: Tensor) -> Tensor:
    a = -0.5
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * a
    return lucid.where(x < 1.0, near, lucid.where(x < 2.0, far, 0.0))


FILTERS: dict[int, tuple[str, float, _Filter]] = {2: ("bilinear", 1.0, _bilinear), 3: ("bicubic", 2.0, _bicubic)}
"""By Pillow's number, the name of a filter, how far it reaches, and its weight at a distance."""


def length(size: Size) -> Tensor:
    """A size as a number in float64."""
    return size_op(size=size).astype(lucid.float64)


def resize(images: Tensor, height: Tensor, width: Tensor, window: tuple[int, int], resample: int) -> Tensor:
    """The middle of resized images.

    Args:
        images: (N, H, W, C) uint8.
        height, width: the size after resizing, whole numbers in float64.
        window: height and width of the part cut from the middle, at most the resized size.
        resample: Pillow's number of a filter, in `FILTERS`.

    Returns:
        (N, C, *window), whole numbers from 0 to 255 in float64.
    """
    pixels = images.permute(0, 3, 1, 2).astype(lucid.float64)
    rows = _weights(pixels.shape[2], height, window[0], resample)
    columns = _weights(pixels.shape[3], width, window[1], resample)
    return _rounded(rows @ _rounded(pixels @ columns.T))


def _weights(old: Size, new: Tensor, count: int, resample: int) -> Tensor:
    """The weights (count, old), times 2^22, of the old numbers in the middle ones of the new."""
    _, reach, filter_at = FILTERS[resample]
    scale = length(old) / new
    stretch = lucid.maximum(scale, 1.0)
    start = ((new - count) / 2.0).floor()
    middles = ((start + lucid.arange(count, dtype=lucid.float64) + 0.5) * scale).unsqueeze(1)
    support = stretch * reach
    first, end = (middles - support + 0.5).floor(), (middles + support + 0.5).floor()
    places = lucid.arange(old, dtype=lucid.float64).unsqueeze(0)
    weights = filter_at(abs((places - middles + 0.5) * (1.0 / stretch)))
    weights = lucid.where((places >= first) & (places < end), weights, 0.0)
    weights = weights / weights.sum(1, keepdims=True) * float(1 << _BITS)
    return lucid.where(weights < 0.0, -(0.5 - weights).floor(), (0.5 + weights).floor())


def _rounded(sums: Tensor) -> Tensor:
    return ((sums + float(1 << (_BITS - 1))) / float(1 << _BITS)).floor().clip(0.0, 255.0)
