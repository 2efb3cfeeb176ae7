"""A model with its preprocessor: images in, what it makes of their pixels out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lucid
from lucid import Tensor
from lucid.core.graph.types import Array, TensorType
from lucid.core.process import random
from lucid.layouts.images.preprocessor import NotExactError, Preprocessor
from lucid.nn.model_parts import ModelPart

IMAGES = "images"
"""The input of a file that takes images."""

_PIXELS = "pixel_values"


def with_preprocessor(part: ModelPart, specs: Mapping[str, Any], preprocessor: Preprocessor) -> ModelPart:
    """A part of a model that takes `images` (N, height, width, 3) uint8 in the place of `pixel_values`.

    Args:
        part: the part.
        specs: its inputs.
        preprocessor: that of the checkpoint.

    Raises:
        ValueError: for a model that takes no pixels.
        NotExactError: for pixels of another size than the model takes.
    """
    pixels = specs.get(_PIXELS)
    if not isinstance(pixels, TensorType):
        raise ValueError(
            f"a preprocessor in the file is for models of images; this one takes {', '.join(specs) or 'nothing'}"
        )
    wanted = (3, *preprocessor.window)
    if any(isinstance(size, int) and size != made for size, made in zip(pixels.shape[1:], wanted, strict=True)):
        raise NotExactError(f"the preprocessor makes pixels {list(wanted)}, and the model takes {pixels}")

    def read(images: Tensor, **others: Tensor) -> Any:
        return part.function(**{_PIXELS: preprocessor(images).astype(pixels.dtype), **others})

    batch = pixels.shape[0]
    spec = lucid.spec(batch, "height", "width", 3, dtype=lucid.uint8)
    inputs = {IMAGES if name == _PIXELS else name: spec if name == _PIXELS else kind for name, kind in specs.items()}
    names = {str(size): 1 for kind in inputs.values() for size in kind.shape if not isinstance(size, int)}
    large = {"height": preprocessor.window[0] + 37, "width": 2 * preprocessor.window[1] + 11}
    sizes = [{**names, "height": 33, "width": 47}, {**dict.fromkeys(names, 2), **large}]
    return part._replace(function=read, inputs=inputs, sizes=sizes, draw=lambda given: _drawn(given, str(batch)))


def _drawn(sizes: Mapping[str, int], batch: str) -> dict[str, Array]:
    shape = (sizes.get(batch, 1), sizes["height"], sizes["width"], 3)
    return {IMAGES: random.generator().integers(0, 256, shape).astype(lucid.uint8.numpy)}
