"""Reading WAV files: the format "Microsoft WAVE" in RIFF (Multimedia Programming Interface 1.0, 1991, chapter 3).

Standard library's `wave` reads no floating-point samples. A WAV file is untrusted: each size in it is checked against
the file before anything is allocated.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lucid.core.words.safe_text import show
from lucid.files.atomic import NotAFileError, open_regular
from lucid.files.untrusted import broken
from lucid.models.checkpoints.config import Array
from lucid.models.speech.resampling import resample

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE  # codes of formats
_NAMES = {_PCM: "PCM", 2: "ADPCM", _FLOAT: "IEEE float", 6: "A-law", 7: "mu-law", 0x11: "IMA ADPCM", 0x55: "MP3"}
_SUPPORTED = "expected PCM of 8, 16, 24 or 32 bits or IEEE float of 32 or 64; convert the file"
_SUBFORMAT = bytes.fromhex("000000001000800000aa00389b71")  # of WAVE_FORMAT_EXTENSIBLE, after the code of the format
_UNKNOWN_SIZE = 0xFFFFFFFF  # of the data, as programs write it that cannot go back to the header
_MAX_CHANNELS = 64
_RATES = (4_000, 384_000)
_MAX_CHUNKS = 1_000
_BLOCK = 1 << 16  # sample frames converted at once


def _pcm_24(raw: bytes) -> Array:
    widened = np.zeros((len(raw) // 3, 4), np.uint8)
    widened[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
    return widened.view("<i4")[:, 0] / 2**31


# By the code of the format and the bits of a sample: bytes to samples, PCM from -1 to 1.
_DECODERS: dict[tuple[int, int], Callable[[bytes], Array]] = {
    (_PCM, 8): lambda raw: np.frombuffer(raw, np.uint8) / 2**7 - 1,
    (_PCM, 16): lambda raw: np.frombuffer(raw, "<i2") / 2**15,
    (_PCM, 24): _pcm_24,
    (_PCM, 32): lambda raw: np.frombuffer(raw, "<i4") / 2**31,
    (_FLOAT, 32): lambda raw: np.frombuffer(raw, "<f4").astype(np.float64),
    (_FLOAT, 64): lambda raw: np.frombuffer(raw, "<f8"),
}


class WavError(ValueError):
    """A file that is not a WAV file, is broken, or holds samples of a kind that cannot be read."""


_broken = partial(broken, error=WavError)


class _Format(NamedTuple):
    code: int
    bits: int
    channels: int
    rate: int


def read_wav(path: str | os.PathLike[str], rate: int = 16_000) -> Array:
    """The sound of a WAV file, of one channel and at the sample rate that models expect.

    PCM of 8, 16, 24 or 32 bits and IEEE float of 32 or 64, with a plain header or WAVE_FORMAT_EXTENSIBLE, of 1 to 64
    channels, of 4 to 384 kHz. The size that RIFF's own header gives is not used: recorders often leave it wrong.

    Args:
        path: the file.
        rate: samples per second of the result, a whole number; other rates are resampled.

    Returns:
        (n,) float32, the mean of the channels; from -1 to 1 for PCM, as stored for floating-point.

    Raises:
        TypeError, ValueError: for a rate that is no whole number from 1.
        WavError: for a file of another kind, a broken one, or samples that are not finite.
        OSError: when there is no such file or it may not be read.
    """
    path = Path(path)
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            start = file.read(12)
            if len(start) < 12 or start[:4] != b"RIFF" or start[8:] != b"WAVE":
                got = f"one that begins with {show(start)}" if start else "an empty one"
                raise WavError(f"{show(path)}: expected a WAV file, got {got}; convert it to WAV")
            with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
                kind, begin, end = _find(data, path)
                samples = _mono(data, kind, begin, end)
    except NotAFileError as error:
        raise WavError(str(error)) from None
    if not np.isfinite(samples).all():
        raise _broken(path, "its samples hold NaN or infinity, expected finite numbers")
    return resample(samples, kind.rate, rate)


def _find(data: mmap.mmap, path: Path) -> tuple[_Format, int, int]:
    """The format of the samples, and where they begin and end."""
    kind = None
    for name, begin, size in _chunks(data, path):
        if name == b"fmt ":
            kind = _read_format(data[begin : begin + min(size, 40)], path)
        if name != b"data":
            continue
        if kind is None:
            raise _broken(path, "its samples come before their format, expected the chunk 'fmt ' first")
        frame = kind.channels * kind.bits // 8
        if size == _UNKNOWN_SIZE:
            size = (len(data) - begin) // frame * frame
        elif size % frame:
            raise _broken(path, f"holds {size} bytes of samples, expected a multiple of {frame}")
        return kind, begin, begin + size
    raise _broken(path, "has no samples, expected a chunk 'data'")


def _chunks(data: mmap.mmap, path: Path) -> Iterator[tuple[bytes, int, int]]:
    """The name, beginning and size of each chunk; all of it is in the file, unless its size is unknown."""
    at = 12
    for _ in range(_MAX_CHUNKS):
        if at + 8 > len(data):
            return
        name, size = struct.unpack_from("<4sI", data, at)
        at += 8
        if size > len(data) - at and not (name == b"data" and size == _UNKNOWN_SIZE):
            raise _broken(path, f"chunk {show(name)} takes {size} bytes at byte {at} of {len(data)}: truncated")
        yield name, at, size
        at += size + size % 2  # chunks begin at even places
    raise _broken(path, f"has {_MAX_CHUNKS} chunks before its samples, expected a few")


def _read_format(raw: bytes, path: Path) -> _Format:
    """The content of the chunk 'fmt '."""
    if len(raw) < 16:
        raise _broken(path, f"its format takes {len(raw)} bytes, expected at least 16")
    code, channels, rate, _, frame, bits = struct.unpack_from("<HHIIHH", raw)
    if code == _EXTENSIBLE:
        if len(raw) < 40:
            raise _broken(path, f"its extensible format takes {len(raw)} bytes, expected 40")
        if raw[26:40] != _SUBFORMAT:
            raise WavError(f"{show(path)}: its samples are of format {raw[24:40].hex()}, {_SUPPORTED}")
        code = int.from_bytes(raw[24:26], "little")
    if (code, bits) not in _DECODERS:
        name = _NAMES.get(code, f"format {code:#06x}")
        raise WavError(f"{show(path)}: its samples are {name} of {bits} bits, {_SUPPORTED}")
    if not 1 <= channels <= _MAX_CHANNELS:
        raise _broken(path, f"has {channels} channels, expected 1 to {_MAX_CHANNELS}")
    if not _RATES[0] <= rate <= _RATES[1]:
        raise _broken(path, f"has {rate} samples per second, expected {_RATES[0]} to {_RATES[1]}")
    if frame != channels * bits // 8:
        raise _broken(
            path, f"says {frame} bytes for {channels} samples of {bits} bits, expected {channels * bits // 8}"
        )
    return _Format(code, bits, channels, rate)


def _mono(data: mmap.mmap, kind: _Format, begin: int, end: int) -> Array:
    """The mean of the channels (n,) float32."""
    frame = kind.channels * kind.bits // 8
    samples, decode = np.empty((end - begin) // frame, np.float32), _DECODERS[kind.code, kind.bits]
    for first in range(0, samples.size, _BLOCK):
        last = min(first + _BLOCK, samples.size)
        numbers = decode(data[begin + first * frame : begin + last * frame])
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused afterwards
            samples[first:last] = numbers.reshape(-1, kind.channels).mean(axis=1)
    return samples
