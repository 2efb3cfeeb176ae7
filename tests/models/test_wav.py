"""WAV files as sound: every kind of sample, other sample rates, and hostile files."""

from __future__ import annotations

import struct
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lucid.models.speech.wav import WavError, read_wav
from tests.hostile import refused, wav

CASES = wav.CASES
FLOATS = np.array([0, 0.5, -0.5, 1 - 2**-7, -1])  # exact in every kind of PCM


def stored(folder: Path, *chunks: bytes) -> Path:
    path = folder / "sound.wav"
    path.write_bytes(wav.riff(*chunks))
    return path


def data(content: bytes) -> bytes:
    return wav.chunk(b"data", content)


@pytest.mark.parametrize("bits", [8, 16, 24, 32])
@pytest.mark.parametrize("header", [wav.form, wav.extensible])
def test_pcm_is_read_from_minus_1_to_1(tmp_path: Path, bits: int, header: Callable[..., bytes]) -> None:
    whole = (FLOATS * 2 ** (bits - 1)).astype(np.int64)
    if bits == 8:  # the only unsigned one
        whole = whole + 128
    content = b"".join(int(number).to_bytes(bits // 8, "little", signed=bits > 8) for number in whole)
    samples = read_wav(stored(tmp_path, header(wav.PCM, bits), data(content)))
    assert samples.dtype == np.float32
    np.testing.assert_array_equal(samples, FLOATS)


@pytest.mark.parametrize(("bits", "kind"), [(32, "<f4"), (64, "<f8")])
@pytest.mark.parametrize("header", [wav.form, wav.extensible])
def test_floating_point_is_read_as_it_is(tmp_path: Path, bits: int, kind: str, header: Callable[..., bytes]) -> None:
    loud = np.array([0.1, -2.5, 1e-9])
    samples = read_wav(stored(tmp_path, header(wav.FLOAT, bits), data(loud.astype(kind).tobytes())))
    np.testing.assert_array_equal(samples, loud.astype(np.float32))


def test_what_the_standard_library_writes_is_read(tmp_path: Path) -> None:
    samples = np.random.default_rng(0).integers(-(2**15), 2**15, (70_000, 2)).astype("<i2")  # more than one block
    with wave.open(str(tmp_path / "sound.wav"), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(samples.tobytes())
    np.testing.assert_allclose(read_wav(tmp_path / "sound.wav"), samples.mean(axis=1) / 2**15, atol=1e-7)


def test_channels_become_their_mean(tmp_path: Path) -> None:
    frames = struct.pack("<6h", 3000, -3000, 16384, 0, -32768, -16384)
    samples = read_wav(stored(tmp_path, wav.form(channels=2), data(frames)))
    np.testing.assert_array_equal(samples, [0, 0.25, -0.75])


def test_other_chunks_are_passed_over_also_those_of_odd_size(tmp_path: Path) -> None:
    note = wav.chunk(b"LIST", b"abc")
    path = stored(tmp_path, note, wav.form(), note, data(struct.pack("<h", 16384)), note)
    np.testing.assert_array_equal(read_wav(path), [0.5])


def test_a_stream_of_unknown_size_is_read_to_its_end(tmp_path: Path) -> None:
    """As a program writes it into a pipe; a sample that it could not finish is left out."""
    endless = wav.chunk(b"data", struct.pack("<hhb", 16384, -16384, 1), wav.UNKNOWN)[:-1]
    np.testing.assert_array_equal(read_wav(stored(tmp_path, wav.form(), endless)), [0.5, -0.5])


def test_a_recording_without_samples_is_empty(tmp_path: Path) -> None:
    assert read_wav(stored(tmp_path, wav.form(rate=44_100), data(b""))).shape == (0,)


def test_another_sample_rate_is_resampled(tmp_path: Path) -> None:
    tone = np.sin(2 * np.pi * 440 * np.arange(4800) / 48_000).astype("<f4")
    path = stored(tmp_path, wav.form(wav.FLOAT, 32, rate=48_000), data(tone.tobytes()))
    samples = read_wav(path)
    assert samples.shape == (1600,)
    np.testing.assert_allclose(samples[200:-200], tone[::3][200:-200], atol=2e-5)
    assert read_wav(path, rate=48_000).tolist() == tone.tolist()


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_file_ends_in_a_clear_error(name: str, tmp_path: Path) -> None:
    path = CASES[name][1](tmp_path)
    message = refused(read_wav, path, WavError)
    assert path.name in message and ("expected" in message or "truncated" in message), message
    assert "; " in message and len(message) < 1000, message


def test_the_file_that_the_cases_change_is_right(tmp_path: Path) -> None:
    path = tmp_path / "sound.wav"
    path.write_bytes(wav.GOOD)
    assert read_wav(path).shape == (32,)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no file .*missing.wav"):
        read_wav(tmp_path / "missing.wav")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_channels", "has 0 channels, expected 1 to 64"),
        ("rate_0", "has 0 samples per second, expected 4000 to 384000"),
        ("a_law", "its samples are A-law of 8 bits, expected PCM of 8, 16, 24 or 32 bits or IEEE float"),
        ("data_beyond_file", r"chunk b'data' takes 65 bytes at byte 44 of 108: truncated"),
        ("mp3", r"expected a WAV file, got one that begins with b'ID3"),
        ("nan", "its samples hold NaN or infinity"),
    ],
)
def test_the_error_says_what_is_wrong(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(WavError, match=message):
        read_wav(CASES[name][1](tmp_path))
