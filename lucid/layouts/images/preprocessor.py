"""preprocessor_config.json as ops: from decoded images to pixels; and a model with these ops before it."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeGuard

import numpy as np

import lucid
from lucid import Tensor
from lucid.core.graph.types import Array, TensorType
from lucid.core.number_ranges import is_whole
from lucid.core.process import random
from lucid.core.sizes.dims import Size
from lucid.core.words.safe_text import visible
from lucid.files.hub import local_checkpoint
from lucid.layouts.images.pillow import FILTERS, length, resize
from lucid.models.checkpoints.adapters import find_file
from lucid.models.checkpoints.config import read_json, read_optional_json
from lucid.nn.model_parts import ModelPart

CONFIG = "preprocessor_config.json"
_OF_TRAINING = ("do_reduce_labels", "do_convert_annotations")
_KNOWN = ("do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_convert_rgb", *_OF_TRAINING)
_IDLE = {
    "ensure_multiple_of": 1,
    "include_top": False,
    "keep_aspect_ratio": False,
    "rescale_offset": False,
    "size_divisor": 1,
}
"""Options of DPT, EfficientNet and GLPN that change the pixels, with the values that do not."""
_LARGEST = 1 << 14  # pixels of a side
# How the names of classes and models begin for which one number is the side of a square, or the shorter side.
_SQUARE, _BY_EDGE = ("vit", "swin", "siglip"), ("clip", "convnext", "bit", "dinov2")
_UNCROPPED = ("segformer", "rtdetr", "rt_detr")  # which take whole images
_WHOLE = 384  # from this size on ConvNeXt takes the whole image


class NotExactError(ValueError):
    """A preprocessor that is not computed as its checkpoint says; the message says why."""


@dataclass(frozen=True)
class Preprocessor:
    """Images (N, H, W, 3) uint8, red, green and blue, to pixels (N, 3, height, width) float32.

    It computes what transformers' image processors compute with Pillow: resizing bit for bit, then scaling in float32.

    Args:
        window: height and width of the pixels.
        edge: what the shorter side of an image is resized to, before the middle is taken; None where an image gets the
            size `resized`, whatever its own shape.
        resized: height and width that images are resized to.
        resample: Pillow's number of the filter.
        factor: what numbers are multiplied with; None for none.
        mean, deviation: by channel; None for none.
    """

    window: tuple[int, int]
    edge: int | None
    resized: tuple[int, int]
    resample: int
    factor: float | None
    mean: Array | None
    deviation: Array | None

    @classmethod
    def from_folder(cls, folder: str | os.PathLike[str]) -> Self:
        """Read preprocessor_config.json.

        Raises:
            FileNotFoundError: if there is none.
            ConfigError: for a file that is not JSON.
            NotExactError: for options that are not known, or a filter other than bilinear and bicubic.
        """
        path = find_file(local_checkpoint(folder), CONFIG)
        if not path.is_file():
            raise FileNotFoundError(f"{folder}: has no {CONFIG}, which says how images become pixels")
        return cls._read(read_json(path), path)

    @classmethod
    def _read(cls, options: Mapping[str, Any], path: Path) -> Self:
        others = [name for name, value in options.items() if name.startswith("do_") and value and name not in _KNOWN]
        others += [name for name, idle in _IDLE.items() if options.get(name) not in (None, 0, idle)]
        if others or not options.get("do_resize", True):
            what = ", ".join(others) if others else "do_resize false"
            raise NotExactError(f"{path}: {what} is not computed here; make the pixels outside, as transformers does")
        values = _PreprocessorOptions(options, path)
        resample = values.get("resample", 2)
        if not is_whole(resample) or resample not in FILTERS:
            names = ", ".join(f"{number} ({name})" for number, (name, *_) in FILTERS.items())
            raise NotExactError(f"{path}: resample is {visible(repr(resample)[:80])}, expected one of {names}")
        height, width = values.size("size")
        percent = options.get("crop_pct")
        cropped = percent is None and values.kind not in _UNCROPPED and values.get("do_center_crop", False)
        window = values.size("crop_size") if cropped else (height, width)
        edge = height if values.is_edge else None
        if edge is not None and percent is not None:  # ConvNeXt's: larger, of which the middle is taken
            edge = int(edge / values.number("crop_pct", 1.0)) if edge < _WHOLE else None
        elif edge is not None and not cropped:
            raise NotExactError(f"{path}: images keep their own shape (shortest_edge, and no crop); expected one shape")
        smallest = (height, width) if edge is None else (edge, edge)
        if window[0] > smallest[0] or window[1] > smallest[1]:
            raise NotExactError(f"{path}: crop_size is {list(window)}, expected no more than {list(smallest)}")
        scaled, normal = options.get("do_rescale", True), options.get("do_normalize", True)
        return cls(
            window,
            edge,
            (height, width),
            resample,
            values.number("rescale_factor", 1 / 255) if scaled else None,
            values.channels("image_mean") if normal else None,
            values.channels("image_std") if normal else None,
        )

    def require_shape(self, shape: Sequence[Size | str | None]) -> None:
        """Compare the pixels with the shape (N, 3, height, width) that a model takes.

        Raises:
            NotExactError: for another height or width than the model takes.
        """
        window = (3, *self.window)
        if any(isinstance(size, int) and size != each for size, each in zip(shape[1:], window, strict=True)):
            taken = ", ".join(str(size) for size in shape[1:])
            raise NotExactError(f"the preprocessor makes pixels {list(window)}, and the model takes [{taken}]")

    def __call__(self, images: Tensor) -> Tensor:
        """The pixels of images."""
        height, width = (length(size) for size in images.shape[1:3])
        if self.edge is None:
            new = tuple(lucid.tensor(np.float64(size)) for size in self.resized)
        else:  # the longer side, rounded down, which is larger than the edge
            edge = float(self.edge)
            new = tuple(
                lucid.maximum((one * edge / other).floor(), edge) for one, other in ((height, width), (width, height))
            )
        pixels = resize(images, new[0], new[1], self.window, self.resample).astype(lucid.float32)
        if self.factor is not None:
            pixels = pixels * self.factor
        if self.mean is not None and self.deviation is not None:
            pixels = (pixels - lucid.tensor(self.mean)) / lucid.tensor(self.deviation)
        return pixels


class _PreprocessorOptions:
    """The options of a file. Defaults depend on its class; only ViT's are known."""

    def __init__(self, options: Mapping[str, Any], path: Path) -> None:
        self.options, self.path = options, path
        model = read_optional_json(path.with_name("config.json")).get("model_type")
        kinds = (options.get(name) for name in ("image_processor_type", "feature_extractor_type"))
        name = str(next((kind for kind in kinds if kind), model)).lower()
        self.kind = next((kind for kind in (*_SQUARE, *_BY_EDGE, *_UNCROPPED) if name.startswith(kind)), "")

    def get(self, name: str, default: Any) -> Any:
        if name in self.options or self.kind in _SQUARE:
            return self.options.get(name, default)
        raise NotExactError(f"{self.path}: has no {name}, and its default depends on the class; add it to the file")

    @property
    def is_edge(self) -> bool:
        """Whether the size is given for the shorter side."""
        size = self.options.get("size")
        return set(size) == {"shortest_edge"} if isinstance(size, Mapping) else self.kind in _BY_EDGE

    def size(self, name: str) -> tuple[int, int]:
        """Height and width; for a size of the shorter side, twice that side."""
        option = self.get(name, 224)
        sides = option if isinstance(option, Mapping) else {"shortest_edge": option}
        lengths = [sides.get("shortest_edge")] * 2 if len(sides) == 1 else [sides.get("height"), sides.get("width")]
        known = isinstance(option, Mapping) or name == "crop_size" or self.kind
        whole = [side for side in lengths if is_whole(side) and 0 < side <= _LARGEST]
        if not known or len(sides) > 2 or len(whole) != 2:
            shown = visible(repr(option)[:80])
            raise NotExactError(f"{self.path}: {name} is {shown}, expected height and width, or shortest_edge")
        return whole[0], whole[1]

    def number(self, name: str, default: float) -> float:
        """A number above 0."""
        value = self.options.get(name, default)
        if not _is_finite(value) or value <= 0:
            raise NotExactError(f"{self.path}: {name} is {visible(repr(value)[:80])}, expected a number above 0")
        return float(value)

    def channels(self, name: str) -> Array:
        """A number for each channel; what numbers are divided by is not 0."""
        numbers = self.get(name, [0.5, 0.5, 0.5])
        expected = "three numbers other than 0" if name == "image_std" else "three numbers"
        allowed = isinstance(numbers, list) and len(numbers) == 3 and all(map(_is_finite, numbers))
        if not allowed or (name == "image_std" and 0 in numbers):
            raise NotExactError(f"{self.path}: {name} is {visible(repr(numbers)[:80])}, expected {expected}")
        return np.asarray(numbers, np.float32).reshape(3, 1, 1)


def _is_finite(value: object) -> TypeGuard[float]:
    return is_whole(value) or (isinstance(value, float) and math.isfinite(value))


IMAGES = "images"
"""The input of a file that takes images."""

PIXELS = "pixel_values"
"""The input of a model of images."""


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
    pixels = specs.get(PIXELS)
    if not isinstance(pixels, TensorType):
        raise ValueError(
            f"a preprocessor in the file is for models of images; this one takes {', '.join(specs) or 'nothing'}"
        )
    preprocessor.require_shape(pixels.shape)

    def read(images: Tensor, **others: Tensor) -> Any:
        return part.function(**{PIXELS: preprocessor(images).astype(pixels.dtype), **others})

    batch = pixels.shape[0]
    spec = lucid.spec(batch, "height", "width", 3, dtype=lucid.uint8)
    inputs = {IMAGES if name == PIXELS else name: spec if name == PIXELS else kind for name, kind in specs.items()}
    names = {str(size): 1 for kind in inputs.values() for size in kind.shape if not isinstance(size, int)}
    large = {"height": preprocessor.window[0] + 37, "width": 2 * preprocessor.window[1] + 11}
    sizes = [{**names, "height": 33, "width": 47}, {**dict.fromkeys(names, 2), **large}]
    return part._replace(function=read, inputs=inputs, sizes=sizes, draw=lambda values: _drawn(values, str(batch)))


def _drawn(sizes: Mapping[str, int], batch: str) -> dict[str, Array]:
    shape = (sizes.get(batch, 1), sizes["height"], sizes["width"], 3)
    return {IMAGES: random.generator().integers(0, 256, shape).astype(lucid.uint8.numpy)}
