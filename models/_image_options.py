"""Options that models of images share."""

from __future__ import annotations

from lucid.models.checkpoints.pretrained import MAX_NUMBER, Config


def read_image_size(options: Config) -> tuple[int, int]:
    """Height and width of an image: one number for both, or a list of two."""
    given = options.options.get("image_size")
    if not isinstance(given, list):
        side = options.whole("image_size")
        return side, side
    sides = options.get("image_size", list)
    if len(sides) != 2 or any(type(side) is not int or not 0 < side <= MAX_NUMBER for side in sides):
        raise options.wrong("image_size", f"expected a whole number from 1 to {MAX_NUMBER}, or a list of two")
    return sides[0], sides[1]
