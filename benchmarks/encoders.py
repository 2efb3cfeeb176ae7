"""Quantized MiniLM: time and size against float32, and how far its vectors are from float32's."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

import lucid
from benchmarks.bench import Bench
from benchmarks.graphs import Array, runner
from benchmarks.harness import Quartiles
from benchmarks.minilm import folder, inputs, load
from benchmarks.results import Cell, Line
from lucid.export import to_onnx
from lucid.models.bert import SentenceEncoder
from lucid.runtime import Session

FLOAT32, EIGHT, FOUR = "float32", "8 bits, 32", "4 bits, 32"
DYNAMIC, ROWS, STATIC, GPTQ = "dynamic", "dynamic_rows", "static", "4 and 8 bits, GPTQ"
FEW = {"*position*": 8, "*layer.[01].*": 8, "*.value": 8, "*": 4}  # docs/howto/smaller.md
SIZES = [(1, 16), (8, 64), (32, 128)]
LEARNT, HELD = 160, 160  # sentences to learn from, and others to compare
DOCS = Path(__file__).parents[1] / "docs"


def encoders(bench: Bench) -> list[Line]:
    """Sentences to vectors."""
    encoder = load()
    if encoder is None:
        return []
    texts = sentences(LEARNT + HELD)
    learnt, held = (
        [tokenized(part[i : i + 16]) for i in range(0, len(part), 16)] for part in (texts[::2], texts[1::2])
    )
    with tempfile.TemporaryDirectory() as scratch:
        files = {}
        for number, (way, model) in enumerate(models(encoder, learnt).items()):
            files[way] = Path(scratch) / f"{number}.onnx"
            to_onnx(model, target="cpu", path=files[way])
        lines = [_times(bench, files, *size) for size in (SIZES[1:2] if bench.quick else SIZES)]
        sizes = {way: file.stat().st_size / 1e6 for way, file in files.items()}
        lost = {way: apart for way, apart in _apart(files, held).items() if way != FLOAT32}
    return [
        *lines,
        _numbers("file", "MB", sizes),
        _numbers("1 - cosine, the worst", "", {way: float(apart.max()) for way, apart in lost.items()}),
        _numbers("1 - cosine, the mean", "", {way: float(apart.mean()) for way, apart in lost.items()}),
    ]


def models(encoder: SentenceEncoder, learnt: Sequence[dict[str, Array]]) -> dict[str, SentenceEncoder]:
    """Ways to store and compute it."""
    return {
        FLOAT32: encoder,
        EIGHT: lucid.quantize(encoder, bits=8, block=32, symmetric=True),
        DYNAMIC: lucid.quantize(encoder, bits=8, activations="dynamic"),
        ROWS: lucid.quantize(encoder, bits=8, activations="dynamic_rows"),
        STATIC: lucid.quantize(encoder, bits=8, activations="static", calibration=learnt),
        FOUR: lucid.quantize(encoder, bits=4, search=True),
        GPTQ: lucid.quantize(encoder, bits=FEW, block=64, method="gptq", smallest_table=512, calibration=learnt),
    }


def sentences(count: int) -> list[str]:
    """The first sentences of the documentation."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in sorted(DOCS.rglob("*.md")))
    matches = re.findall(r"\b[A-Z][^.|`#*\[\]<>]{30,250}\.(?=\s)", text)
    return [" ".join(sentence.split()) for sentence in matches[:count]]


def tokenized(texts: Sequence[str]) -> dict[str, Array]:
    """Token ids and mask."""
    where = folder()
    assert where is not None
    tokenizer = Tokenizer.from_file(str(where / "tokenizer.json"))
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(list(texts))
    return {
        "input_ids": np.array([each.ids for each in encoded]),
        "attention_mask": np.array([each.attention_mask for each in encoded]),
    }


def _times(bench: Bench, files: Mapping[str, Path], batch: int, length: int) -> Line:
    ways = {way: runner(file, inputs(batch, length), bench.threads) for way, file in files.items()}
    goal = None if length == 16 else 0.45
    return bench.line("encoders", f"{batch, length}", FLOAT32, ways, goal=goal, goal_of=DYNAMIC)


def _apart(files: Mapping[str, Path], held: Sequence[dict[str, Array]]) -> dict[str, Array]:
    """1 - the cosine of each vector with float32's."""
    vectors = {}
    for way, file in files.items():
        session = Session(file)
        vectors[way] = np.concatenate([session.run(texts)["sentence_embedding"] for texts in held]).astype(np.float64)
    return {way: 1 - (vector * vectors[FLOAT32]).sum(axis=-1) for way, vector in vectors.items()}


def _numbers(what: str, unit: str, found: Mapping[str, float]) -> Line:
    return Line("encoders", what, unit, {way: Cell(Quartiles(x, x, x)) for way, x in found.items()})
