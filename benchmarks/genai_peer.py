"""onnxruntime-genai, with the graph of its own builder. Imported only if it is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime_genai as genai

from benchmarks.decoders import Decoding, prompts
from benchmarks.graphs import Array


def build(checkpoint: Path, folder: Path, threads: int, precision: str) -> Path:
    """The builder's graph of a checkpoint for the CPU, in "fp32" or "int4"."""
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", str(checkpoint), "-o", str(folder)]
    done = subprocess.run([*command, "-p", precision, "-e", "cpu"], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the builder of onnxruntime-genai failed: {done.stderr[-500:]}")
    file = folder / "genai_config.json"
    config = json.loads(file.read_text())
    config["model"]["decoder"]["session_options"]["intra_op_num_threads"] = threads
    file.write_text(json.dumps(config))
    return folder


class GenaiDecoding(Decoding):
    """A folder that onnxruntime-genai runs."""

    def __init__(self, folder: Path, batch: int, filled: int) -> None:
        self._model = genai.Model(str(folder))
        vocabulary = json.loads((folder / "genai_config.json").read_text())["model"]["vocab_size"]
        self._ids, self._filled = prompts(vocabulary, batch, filled).astype(np.int32), filled
        self._held = self._filled_generator(64)

    def _filled_generator(self, room: int) -> genai.Generator:
        params = genai.GeneratorParams(self._model)
        params.set_search_options(
            max_length=self._filled + room, min_length=self._filled + room, do_sample=False, batch_size=len(self._ids)
        )
        generator = genai.Generator(self._model, params)
        generator.append_tokens(self._ids)
        return generator

    def prefill(self) -> Array:
        logits: Array = self._filled_generator(64).get_logits()
        return logits[:, -1]

    def step(self) -> Array:
        self._held.append_tokens(self._ids[:, :1])
        logits: Array = self._held.get_logits()[:, -1]
        self._held.rewind_to(self._filled)
        return logits

    def generate(self, count: int) -> Array:
        generator = self._filled_generator(count)
        for _ in range(count):
            generator.generate_next_token()
        return np.stack([generator.get_sequence(row)[self._filled :] for row in range(len(self._ids))])
