"""Images of rows as pixels, by the checkpoint's preprocessor_config.json as transformers' image processors read it."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from lucid.batch.rows import Ready, RowError, missing
from lucid.files import open_regular
from lucid.models._config import ConfigError, read_json
from lucid.types import Array

_CONFIG = "preprocessor_config.json"
_PATCH = 16 * 16  # pixels that count as a token
_MOST_PIXELS = 89_000_000  # beyond, Pillow warns of decompression bombs
_RESAMPLING = {0: Image.Resampling.NEAREST, 1: Image.Resampling.LANCZOS, 2: Image.Resampling.BILINEAR} | {
    3: Image.Resampling.BICUBIC,
    4: Image.Resampling.BOX,
    5: Image.Resampling.HAMMING,
}


class ImageReader:
    """Makes pixels of images.

    Args:
        folder: where preprocessor_config.json is.
        shape: of the model's input.

    Raises:
        OSError: if the file is missing.
        ConfigError: for a size that it gives in a way that is not known.
    """

    def __init__(self, folder: Path, shape: tuple[int | str | None, ...]) -> None:
        path = folder / _CONFIG
        if not path.is_file():
            raise FileNotFoundError(f"{folder}: has no {_CONFIG}, which says how images become pixels")
        self._options, self._where, self._shape = read_json(path), path, shape
        self._sides("size", {"height": 224, "width": 224})  # errors come before the first image

    def ready(self, values: Sequence[Any]) -> Ready:
        """The pixels (3, H, W) of an image.

        Raises:
            RowError: for anything but an image, and for one that is too large or broken.
        """
        pixels = self._pixels(_image(values[0]))
        for size, expected in zip(pixels.shape, self._shape[1:], strict=True):
            if isinstance(expected, int) and size != expected:
                raise ConfigError(
                    f"{self._where}: makes pixels {list(pixels.shape)}, and the model takes {list(self._shape[1:])}"
                )
        return Ready(max(1, pixels.shape[1] * pixels.shape[2] // _PATCH), pixels)

    def arrays(self, batch: Sequence[Any]) -> dict[str, Array]:
        """The inputs of the model; images of a batch have one size."""
        return {"pixel_values": np.stack(batch)}

    def _pixels(self, image: Image.Image) -> Array:
        options = self._options
        if options.get("do_resize", True):
            image = self._resized(image)
        if options.get("do_center_crop", False):
            image = _cropped(image, *self._sides("crop_size", {"height": 224, "width": 224}))
        pixels: Array = np.asarray(image, np.float32)
        if options.get("do_rescale", True):
            pixels = pixels * np.float32(options.get("rescale_factor", 1 / 255))
        if options.get("do_normalize", True):
            mean, deviation = (options.get(name, [0.5, 0.5, 0.5]) for name in ("image_mean", "image_std"))
            pixels = (pixels - np.asarray(mean, np.float32)) / np.asarray(deviation, np.float32)
        return np.ascontiguousarray(pixels.transpose(2, 0, 1))

    def _resized(self, image: Image.Image) -> Image.Image:
        method = _RESAMPLING[int(self._options.get("resample", 2))]
        size = self._options.get("size")
        crop = self._options.get("crop_pct")
        if isinstance(size, Mapping) and "shortest_edge" in size:
            edge = int(size["shortest_edge"])
            if crop is not None and edge < 384:  # ConvNeXt's: larger, of which the middle is taken
                larger = _shortest(image, int(edge / float(crop)))
                return _cropped(image.resize(larger, method), edge, edge)
            wanted = (edge, edge) if crop is not None else _shortest(image, edge)
            return image.resize(wanted, method)
        height, width = self._sides("size", {"height": 224, "width": 224})
        return image.resize((width, height), method)

    def _sides(self, name: str, default: Mapping[str, int]) -> tuple[int, int]:
        """Height and width, which older configs give as one number."""
        size = self._options.get(name, default)
        if isinstance(size, int):
            return size, size
        if isinstance(size, Mapping) and "shortest_edge" in size:
            return int(size["shortest_edge"]), int(size["shortest_edge"])
        if not isinstance(size, Mapping) or not {"height", "width"} <= size.keys():
            raise ConfigError(f"{self._where}: {name} is {size!r}, expected height and width, or shortest_edge")
        return int(size["height"]), int(size["width"])


def _image(value: Any) -> Image.Image:
    if missing(value):
        raise RowError("the image is null")
    if isinstance(value, np.ndarray):
        if value.dtype != np.uint8 or value.ndim != 3 or value.shape[2] != 3 or not value.size:
            raise RowError(f"expected an image (H, W, 3) uint8, got {list(value.shape)} {value.dtype}")
        return Image.fromarray(value)
    if not isinstance(value, (bytes, str, Path)):
        raise RowError(f"expected an image: a path, bytes or an array, got {type(value).__name__}")
    try:
        with io.BytesIO(value) if isinstance(value, bytes) else open_regular(value) as file, Image.open(file) as found:
            if found.width * found.height > _MOST_PIXELS:
                raise RowError(
                    f"the image has {found.width} x {found.height} pixels, at most {_MOST_PIXELS:,} are read"
                )
            return found.convert("RGB")
    except RowError:
        raise
    except UnidentifiedImageError:
        raise RowError("it is no image, or of a format that Pillow does not read") from None
    except Image.DecompressionBombError as error:
        raise RowError(f"the image is too large: {error}") from error
    except (OSError, SyntaxError, ValueError) as error:  # what Pillow raises for broken files
        raise RowError(f"the image cannot be read: {error}") from error


def _shortest(image: Image.Image, edge: int) -> tuple[int, int]:
    """Width and height with the shorter one as given."""
    width, height = image.size
    if width <= height:
        return edge, int(edge * height / width)
    return int(edge * width / height), edge


def _cropped(image: Image.Image, height: int, width: int) -> Image.Image:
    """The middle; what is outside of a smaller image is black."""
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))
