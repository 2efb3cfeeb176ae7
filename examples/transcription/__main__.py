"""Subtitles for recordings, by Whisper in onnxruntime: ``make transcribe FLAGS="speech.wav"``.

``python -m examples.transcription speech.wav`` does the same: it writes speech.srt, with the times of each sentence.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import lucid
from lucid.generation.chat import load_tokenizer
from lucid.models.whisper import Segment, Whisper, WhisperTokenizer, read_wav, transcribe

MODEL = "openai/whisper-base"


def clock(seconds: float) -> str:
    """Seconds as SubRip writes them: 00:01:02,500."""
    minutes, milliseconds = divmod(round(1000 * seconds), 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{milliseconds // 1000:02},{milliseconds % 1000:03}"


def subtitles(segments: Sequence[Segment]) -> str:
    """Segments as a SubRip file."""
    blocks = [
        f"{number}\n{clock(segment.start)} --> {clock(segment.end)}\n{segment.text}\n"
        for number, segment in enumerate(segments, 1)
    ]
    return "\n".join(blocks)


def main() -> None:
    """Read the command line, and write the subtitles of each recording next to it."""
    parser = argparse.ArgumentParser(prog="python -m examples.transcription", description="Subtitles by Whisper.")
    parser.add_argument("recordings", nargs="+", type=Path, help="WAV files")
    parser.add_argument("--model", default=MODEL, help=f"a folder, or a name of Hugging Face's hub [{MODEL}]")
    parser.add_argument("--language", help="such as en; by default each recording's first 30 seconds tell")
    parser.add_argument("--translate", action="store_true", help="write English, whatever is spoken")
    asked = parser.parse_args()
    try:
        write_subtitles(asked)
    except OSError as error:  # also without a network
        parser.exit(1, f"{parser.prog}: {error.strerror or error}\n")
    except ValueError as error:  # no recording
        parser.exit(1, f"{parser.prog}: {error}\n")


def write_subtitles(asked: argparse.Namespace) -> None:
    """Export the model, and transcribe the recordings."""
    whisper = Whisper.from_pretrained(asked.model)
    tokenizer = WhisperTokenizer.from_pretrained(asked.model, load_tokenizer(asked.model).decode)
    encoder, decoder = (
        lucid.runtime.Session(lucid.export.to_onnx(whisper, part=part, cache="growing", target="cpu"), "cpu")
        for part in ("encoder", "decoder")
    )
    for recording in asked.recordings:
        transcription = transcribe(
            (encoder, decoder),
            tokenizer,
            read_wav(recording),
            language=asked.language,
            task="translate" if asked.translate else "transcribe",
            max_positions=whisper.config.max_target_positions,
            on_segment=lambda segment: print(f"{segment.start:7.2f}  {segment.text}", flush=True),
        )
        written = recording.with_suffix(".srt")
        written.write_text(subtitles(transcription.segments), encoding="utf-8")
        print(f"written {written}")


if __name__ == "__main__":
    main()
