"""Broken and hostile WAV files."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.hostile import Cases, file_of, pipe

CASES: Cases = {}

PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
UNKNOWN = 0xFFFFFFFF


def chunk(name: bytes, content: bytes, size: int | None = None) -> bytes:
    """A chunk that says it holds so many bytes; by default those that it has."""
    size = len(content) if size is None else size
    return name + struct.pack("<I", size) + content + bytes(len(content) % 2)


def riff(*chunks: bytes, name: bytes = b"RIFF", kind: bytes = b"WAVE") -> bytes:
    content = kind + b"".join(chunks)
    return name + struct.pack("<I", len(content)) + content


def form(
    code: int = PCM, bits: int = 16, channels: int = 1, rate: int = 16_000, frame: int | None = None, extra: bytes = b""
) -> bytes:
    """The chunk that tells the format."""
    frame = channels * bits // 8 if frame is None else frame
    second = min(frame * rate, 2**32 - 1)
    return chunk(b"fmt ", struct.pack("<HHIIHH", code, channels, rate, second, frame, bits) + extra)


def extensible(
    code: int, bits: int, channels: int = 1, rate: int = 16_000, rest: str = "000000001000800000aa00389b71"
) -> bytes:
    """The same as WAVE_FORMAT_EXTENSIBLE: the valid bits, the speakers' positions, the format as a GUID."""
    extra = struct.pack("<HHIH", 22, bits, 0, code) + bytes.fromhex(rest)
    return form(EXTENSIBLE, bits, channels, rate, extra=extra)


def hostile(name: str, wrong: str, content: bytes) -> None:
    CASES[name] = wrong, file_of("sound.wav", content)


SAMPLES = bytes(64)
DATA = chunk(b"data", SAMPLES)
GOOD = riff(form(), DATA)

hostile("empty", "no bytes at all", b"")
hostile("four_bytes", "the first four bytes", GOOD[:4])
hostile("text", "a text", b"this is not a sound")
hostile("zeros", "zeros", bytes(100))
hostile("mp3", "an MP3 file", b"ID3\x04" + bytes(100))
hostile("big_endian", "RIFX, the big-endian variant", riff(form(), DATA, name=b"RIFX"))
hostile("rf64", "RF64, with sizes of 64 bits", riff(form(), DATA, name=b"RF64"))
hostile("avi", "a RIFF file of another kind", riff(form(), DATA, kind=b"AVI "))
hostile("no_chunks", "a header and nothing else", riff())
hostile("no_format", "samples without a format", riff(DATA))
hostile("format_last", "the format after the samples", riff(DATA, form()))
hostile("no_samples", "a format without samples", riff(form()))
hostile("other_chunks_only", "chunks of other kinds", riff(form(), chunk(b"LIST", SAMPLES), chunk(b"cue ", SAMPLES)))
hostile("chunk_header_cut", "a chunk's name without its size", riff(form()) + b"data")
hostile("format_cut", "the file ends in the format", GOOD[:30])
hostile("format_of_0", "a format of no bytes", riff(chunk(b"fmt ", b""), DATA))
hostile("format_of_14", "a format of 14 bytes", riff(chunk(b"fmt ", form()[8:22]), DATA))
hostile("format_beyond_file", "a format larger than the file", riff(chunk(b"fmt ", form()[8:], size=1 << 20), DATA))
hostile("format_of_4_gb", "a format of 4 GB", riff(chunk(b"fmt ", form()[8:], size=UNKNOWN), DATA))
hostile("data_cut", "the file ends in the samples", GOOD[:-10])
hostile("data_beyond_file", "more samples than the file holds", riff(form(), chunk(b"data", SAMPLES, size=65)))
hostile("data_of_2_gb", "2 GB of samples in 64 bytes", riff(form(), chunk(b"data", SAMPLES, size=2**31 - 1)))
hostile("data_of_4_gb_less_2", "4 GB of samples in 64 bytes", riff(form(), chunk(b"data", SAMPLES, size=UNKNOWN - 1)))
hostile("data_odd", "half a sample", riff(form(), chunk(b"data", bytes(63))))
hostile("data_half_a_frame", "a sample of one channel only", riff(form(channels=2), chunk(b"data", bytes(62))))
hostile(
    "other_chunk_beyond_file", "a list larger than the file", riff(form(), chunk(b"LIST", SAMPLES, size=1 << 30), DATA)
)
hostile("many_chunks", "100,000 empty chunks", riff(form(), chunk(b"junk", b"") * 100_000, DATA))
hostile("no_channels", "0 channels", riff(form(channels=0), DATA))
hostile("no_channels_frame_2", "0 channels in frames of 2 bytes", riff(form(channels=0, frame=2), DATA))
hostile("many_channels", "65,535 channels", riff(form(bits=8, channels=65_535), DATA))
hostile("rate_0", "0 samples a second", riff(form(rate=0), DATA))
hostile("rate_1", "1 sample a second, 16,000 times as many at 16 kHz", riff(form(rate=1), DATA))
hostile("rate_2_32", "2^32 - 1 samples a second", riff(form(rate=2**32 - 1), DATA))
hostile("frame_0", "frames of 0 bytes", riff(form(frame=0), DATA))
hostile("frame_too_large", "frames of 65,535 bytes", riff(form(frame=65_535), DATA))
hostile("bits_0", "samples of 0 bits", riff(form(bits=0), DATA))
hostile("bits_12", "samples of 12 bits", riff(form(bits=12, frame=2), DATA))
hostile("bits_64_pcm", "whole numbers of 64 bits", riff(form(bits=64), DATA))
hostile("bits_16_float", "floating-point numbers of 16 bits", riff(form(FLOAT, 16), DATA))
hostile("code_0", "format 0", riff(form(0), DATA))
hostile("adpcm", "ADPCM", riff(form(2, 4, frame=1), DATA))
hostile("a_law", "A-law", riff(form(6, 8), DATA))
hostile("mp3_inside", "MP3 in a WAV file", riff(form(0x55, 0), DATA))
hostile("extensible_cut", "an extensible format of 18 bytes", riff(form(EXTENSIBLE, extra=bytes(2)), DATA))
hostile("extensible_twice", "an extensible format in an extensible one", riff(extensible(EXTENSIBLE, 16), DATA))
hostile("extensible_other_guid", "a format that is no wave format", riff(extensible(PCM, 16, rest="00" * 14), DATA))
hostile("nan", "NaN", riff(form(FLOAT, 32), chunk(b"data", struct.pack("<2f", 0, float("nan")))))
hostile("infinite", "infinity", riff(form(FLOAT, 32), chunk(b"data", struct.pack("<2f", 0, float("inf")))))
hostile("beyond_float32", "1e300 as a double", riff(form(FLOAT, 64), chunk(b"data", struct.pack("<2d", 0, 1e300))))


def _folder(folder: Path) -> Path:
    (folder / "sound.wav").mkdir()
    return folder / "sound.wav"


CASES["folder"] = "a folder", _folder
CASES["pipe"] = "a pipe that nobody writes to", pipe("sound.wav")
