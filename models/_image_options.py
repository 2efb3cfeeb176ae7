"""Shared by models of images: options of config.json, and the number of classes of a classifier."""

from __future__ import annotations

from lucid.models._pretrained import MAX_NUMBER, Config


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


def count_labels(options: Config, encoder: str, key: str = "classifier.weight") -> int:
    """The rows of a classifier's weight.

    Args:
        encoder: the class that reads a checkpoint without a classifier, for the message.

    Raises:
        KeyError: if the checkpoint has no such weight, or one of another number of axes.
    """
    head = options.weights.get(key)
    if head is None:
        raise KeyError(f"{options.where}: the checkpoint has no {key}; use {encoder} for an encoder")
    if len(head.shape) != 2:
        raise KeyError(f"{options.where}: {key} has shape {list(head.shape)}, expected [labels, width]")
    return head.shape[0]
