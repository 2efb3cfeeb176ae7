"""Quantized decoders beside float32, the 4-bit graph of genai's own builder, and llama.cpp."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import lucid
from benchmarks import peers
from benchmarks.bench import Bench
from benchmarks.decoders import CPU, Decoding, LucidDecoding, export, smollm2, smollm2_file
from benchmarks.decoding import PROMPT_LENGTH, TRANSFORMERS, built_by_genai
from benchmarks.harness import Quartiles, Work
from benchmarks.results import Cell, Line
from lucid.export import Target
from lucid.models.checkpoints.gguf_tokenizer import read_tokenizer
from lucid.models.llama import Llama
from lucid.runtime import Session

FLOAT32, FOUR, FOUR_64, EIGHT = "Lucid, float32", "Lucid, 4 bits", "Lucid, 4 bits, blocks of 64", "Lucid, 8 bits"
FOUR_ANY, KEPT, GENAI_FOUR = "Lucid, any, 4 bits", "Lucid, the file's Q4_1", "genai's builder, int4"
LLAMA_CPP = "llama.cpp, the file's Q4_1"
BILLION = {
    "vocab_size": 32000,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
}
MB = 1e6


def decoders(bench: Bench) -> list[Line]:
    """SmolLM2: a prompt of 128 tokens, a step behind it, and the files."""
    model = smollm2()
    if model is None:
        return []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        files = _files(model, folder)
        sizes = {way: _size(file) for way, file in files.items()}
        ways: dict[str, Decoding] = {
            way: LucidDecoding(Session(file, threads=bench.threads, huge_pages=True), 1, PROMPT_LENGTH)
            for way, file in files.items()
        }
        if peers.transformers is not None:
            peer = peers.transformers.decoder(model)
            ways[TRANSFORMERS] = peers.transformers.TransformersDecoding(peer, 1, PROMPT_LENGTH)
            built = built_by_genai(peer, folder / "genai", bench.threads, "int4")
            if built is not None and peers.genai is not None:
                ways[GENAI_FOUR] = peers.genai.GenaiDecoding(built, 1, PROMPT_LENGTH)
                sizes[GENAI_FOUR] = _size(built)
        file = smollm2_file()
        if file is not None and peers.llama_cpp is not None:
            ways[LLAMA_CPP] = peers.llama_cpp.LlamaCppDecoding(file, 1, PROMPT_LENGTH, bench.threads)
            sizes[LLAMA_CPP] = file.stat().st_size / MB
        return [*_times(bench, ways), _line_of_sizes("SmolLM2-135M", sizes)]


def billion(bench: Bench) -> list[Line]:
    """A random Llama of 1.1e9 weights, beside genai's: a prompt of 128 tokens, a step behind it, and the files."""
    file = smollm2_file()  # genai's builder wants a tokenizer
    if file is None or peers.transformers is None or peers.genai is None:
        return []
    name = "Llama of 1.1e9 weights"
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        peers.transformers.save(
            peers.transformers.random_model("llama", "LlamaForCausalLM", BILLION),
            read_tokenizer(file).tokenizer,
            folder / "checkpoint",
        )
        built = peers.genai.build(folder / "checkpoint", folder / "built", bench.threads, "int4")
        files = {}
        for way, block in ((FOUR, 32), (FOUR_64, 64)):
            (folder / way).mkdir()
            model = Llama.from_pretrained(folder / "checkpoint")
            files[way] = export(lucid.quantize(model, bits=4, block=block), folder / way)
            del model  # of 4.4 GB
        ways: dict[str, Decoding] = {
            way: LucidDecoding(Session(file, threads=bench.threads, huge_pages=True), 1, PROMPT_LENGTH)
            for way, file in files.items()
        }
        ways[GENAI_FOUR] = peers.genai.GenaiDecoding(built, 1, PROMPT_LENGTH)
        sizes = {way: _size(file) for way, file in files.items()} | {GENAI_FOUR: _size(built)}
        return [*_beside(bench, "billion", name, GENAI_FOUR, ways), _line_of_sizes(name, sizes, "billion")]


def _files(model: Any, folder: Path) -> dict[str, Path]:
    """Exports over buffers, by what they are called in the table."""
    exports: dict[str, tuple[Any, Target | str]] = {
        FLOAT32: (model, CPU),
        FOUR: (lucid.quantize(model, bits=4, block=32), CPU),
        FOUR_64: (lucid.quantize(model, bits=4, block=64), CPU),
        FOUR_ANY: (lucid.quantize(model, bits=4, block=32), "any"),
        EIGHT: (lucid.quantize(model, bits=8, block=32), CPU),
    }
    file = smollm2_file()
    if file is not None:
        exports[KEPT] = Llama.from_pretrained(file), CPU
    files = {}
    for number, (way, (quantized, target)) in enumerate(exports.items()):
        (folder / str(number)).mkdir()
        files[way] = export(quantized, folder / str(number), target=target)
    return files


def _times(bench: Bench, ways: Mapping[str, Decoding]) -> list[Line]:
    base = TRANSFORMERS if TRANSFORMERS in ways else FLOAT32
    slow = replace(bench, effort=replace(bench.effort, least=3))  # a call takes up to a second

    def line(work: str, calls: Mapping[str, Work], goal: float) -> Line:
        return slow.line("few_bits", f"SmolLM2-135M, 1 x {PROMPT_LENGTH}: {work}", base, calls, goal=goal, goal_of=FOUR)

    lines = [
        line("the prompt", {way: decoding.prefill for way, decoding in ways.items()}, 0.6),
        line("a step", {way: decoding.step for way, decoding in ways.items()}, 0.1),
    ]
    if GENAI_FOUR in ways:
        beside = {way: ways[way] for way in (GENAI_FOUR, FOUR, FOUR_64)}
        lines += _beside(bench, "few_bits", "SmolLM2-135M", GENAI_FOUR, beside)
    if LLAMA_CPP in ways:
        beside = {way: ways[way] for way in (LLAMA_CPP, KEPT, FOUR)}
        lines += _beside(bench, "few_bits", "SmolLM2-135M", LLAMA_CPP, beside)
    return lines


def _beside(bench: Bench, section: str, model: str, base: str, ways: Mapping[str, Decoding]) -> list[Line]:
    """A prompt and a step beside another program alone: memory is shared with fewer others, and ratios are to it."""
    slow = replace(bench, effort=replace(bench.effort, least=3))
    prompt, step = (0.95, 1.0) if base == GENAI_FOUR else (None, None)
    named = f"{model}, 1 x {PROMPT_LENGTH}"
    works = (
        ("the prompt", prompt, {way: decoding.prefill for way, decoding in ways.items()}),
        ("a step", step, {way: decoding.step for way, decoding in ways.items()}),
    )
    return [
        slow.line(section, f"{named}: {work}, beside {base.split(',')[0]}", base, calls, goal=goal, goal_of=FOUR)
        for work, goal, calls in works
    ]


def _line_of_sizes(model: str, sizes: Mapping[str, float], section: str = "few_bits") -> Line:
    cells = {way: Cell(Quartiles(size, size, size)) for way, size in sizes.items()}
    return Line(section, f"{model}: files", "MB", cells)


def _size(path: Path) -> float:
    """Megabytes of a model file with the weights beside it, or of what a folder holds as models."""
    folder = path if path.is_dir() else path.parent
    return sum(file.stat().st_size for file in folder.iterdir() if ".onnx" in file.name) / MB
