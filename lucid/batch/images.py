"""Images as pixels, by preprocessor_config.json of the checkpoint, as transformers' image processors read it."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from lucid.batch.rows import Ready, RowError, missing
from lucid.core.graph.types import Array
from lucid.files.atomic import open_regular
from lucid.layouts.images import Preprocessor

_PATCH = 16 * 16  # pixels that count as a token
_MOST_PIXELS = 89_000_000  # beyond, Pillow warns of decompression bombs
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")  # Pillow has more: its decoder of EPS starts Ghostscript

_ORIENTATION = 0x0112  # the tag of EXIF
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}  # what makes an image of this orientation upright


class ImageReader:
    """Turns images into pixels like the checkpoint's `Preprocessor`, but with Pillow, which resizes faster than ops.

    Args:
        folder: the folder with preprocessor_config.json.
        shape: the shape of the model's input.

    Attributes:
        preprocessor: that of the checkpoint.

    Raises:
        FileNotFoundError, ValueError: as `Preprocessor.from_folder`, and if the pixels do not fit the model's input.
    """

    def __init__(self, folder: Path, shape: tuple[int | str | None, ...]) -> None:
        self.preprocessor = Preprocessor.from_folder(folder)
        try:
            self.preprocessor.require_shape(shape)
        except ValueError as error:
            raise ValueError(f"{folder}: {error}") from None

    def ready(self, values: Sequence[Any]) -> Ready:
        """The pixels (3, H, W) of a PNG, JPEG, WebP, GIF, BMP or TIFF image, whatever the file's name.

        The image is made upright first, as EXIF says, which transformers' pipelines do too.

        Raises:
            RowError: for anything but an image, a broken image, and one that is too large before or after resizing.
        """
        preprocessor = self.preprocessor
        image = _cropped(_resized(_image(values[0]), preprocessor), *preprocessor.window)
        pixels: Array = np.asarray(image, np.float32).transpose(2, 0, 1)
        if preprocessor.factor is not None:
            pixels = pixels * np.float32(preprocessor.factor)
        if preprocessor.mean is not None and preprocessor.deviation is not None:
            pixels = (pixels - preprocessor.mean) / preprocessor.deviation
        return Ready(max(1, pixels[0].size // _PATCH), pixels)

    def arrays(self, batch: Sequence[Any]) -> dict[str, Array]:
        """The inputs of the model: pixels (N, 3, H, W)."""
        return {"pixel_values": np.stack(batch)}


def _image(value: Any) -> Image.Image:
    if missing(value):
        raise RowError("the image is null")
    if isinstance(value, np.ndarray):
        if value.dtype != np.uint8 or value.ndim != 3 or value.shape[2] != 3 or not value.size:
            raise RowError(f"expected an image (H, W, 3) uint8, got {list(value.shape)} {value.dtype}")
        return Image.fromarray(value)
    if not isinstance(value, (bytes, str, Path)):
        held = "; give its field bytes as the column" if isinstance(value, dict) and "bytes" in value else ""
        raise RowError(f"expected an image: a path, bytes or an array, got {type(value).__name__}{held}")
    try:
        with (
            io.BytesIO(value) if isinstance(value, bytes) else open_regular(value) as file,
            Image.open(file, formats=_FORMATS) as image,
        ):
            if image.width * image.height > _MOST_PIXELS:
                raise RowError(
                    f"the image has {image.width} x {image.height} pixels, at most {_MOST_PIXELS:,} are read"
                )
            pixels = image.convert("RGB")
            turn = _turn(image)  # once it is loaded: Pillow turns TIFF itself
            return pixels if turn is None else pixels.transpose(turn)
    except RowError:
        raise
    except UnidentifiedImageError:
        raise RowError(f"it is not an image in a supported format: {', '.join(_FORMATS)}; convert it") from None
    except Image.DecompressionBombError as error:
        raise RowError(f"the image is too large: {error}") from error
    except (OSError, SyntaxError, ValueError) as error:  # what Pillow raises for broken files
        raise RowError(f"the image cannot be read: {error}") from error


def _turn(image: Image.Image) -> Image.Transpose | None:
    """The transposition that makes an image upright, by its EXIF; None without a readable one, as browsers do."""
    try:
        return _UPRIGHT.get(image.getexif().get(_ORIENTATION, 1))
    except (SyntaxError, ValueError, struct.error):  # what Pillow raises for broken EXIF
        return None


def _resized(image: Image.Image, preprocessor: Preprocessor) -> Image.Image:
    height, width = preprocessor.resized
    if preprocessor.edge is not None:  # of the shorter side; the longer one is rounded down
        width, height = (preprocessor.edge * side // min(image.size) for side in image.size)
    most = max(height, image.height)  # rows come to their width first, and all of them are kept until then
    if width * most > _MOST_PIXELS:
        raise RowError(
            f"the image has {image.width} x {image.height} pixels, and {width} x {most} while it is resized; at most "
            f"{_MOST_PIXELS:,} are computed"
        )
    return image.resize((width, height), preprocessor.resample)  # its number is Pillow's


def _cropped(image: Image.Image, height: int, width: int) -> Image.Image:
    """The middle of an image; a smaller image gets a black border."""
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))
