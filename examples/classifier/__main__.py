"""A text classifier in a web page, trained on a table of examples: ``make classifier``.

MiniLM's vectors of the examples are computed with NumPy, and a linear layer is trained on them, by a training step in
onnxruntime. Both are exported as one file, with weights in 8 bits, into a page that needs neither network nor server.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import ClassVar

import numpy as np

import lucid
from examples import head
from examples.browser import __main__ as browser
from examples.minilm import checkpoint, tokenize
from lucid import Tensor, nn
from lucid.layouts import Options, web
from lucid.models.bert import SentenceEncoder
from lucid.nn.model_parts import ModelPart
from lucid.runtime import Training

HERE = Path(__file__).parent


class Classifier(nn.Module):
    """The scores of labels: token ids and mask (N, L) to ``logits`` (N, labels)."""

    output_names: ClassVar[tuple[str, ...]] = ("logits",)

    def __init__(self, encoder: SentenceEncoder, weights: dict[str, np.ndarray]) -> None:
        self.encoder, self.head = encoder, nn.Linear(head.WIDTH, len(weights["bias"]))
        self.head.load_state_dict(weights)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.head(self.encoder(input_ids, attention_mask))


def fit(vectors: np.ndarray, labels: np.ndarray, steps: int = 100) -> dict[str, np.ndarray]:
    """The weights of a linear layer that gives vectors (N, E) their labels (N,), by name."""
    count = int(labels.max()) + 1
    training = Training(head.training_step(count), head.start(count))
    for _ in range(steps):
        training.step(vectors=vectors, labels=labels)
    return training.weights()


def build(folder: Path, table: Path, packages: Path) -> None:
    """Fit, export, and write the page into a folder. `packages` is npm's folder node_modules."""
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = sorted({row["label"] for row in rows})
    labels = np.array([names.index(row["label"]) for row in rows])
    encoder = SentenceEncoder.from_pretrained(checkpoint())
    inputs = {name: lucid.tensor(ids) for name, ids in tokenize(checkpoint(), [row["text"] for row in rows]).items()}
    model = Classifier(encoder, fit(encoder(**inputs).numpy(), labels))
    right = model(**inputs).numpy().argmax(1) == labels
    print(f"{right.sum()} of {len(rows)} examples get their label, of {', '.join(names)}")

    specs = dict.fromkeys(("input_ids", "attention_mask"), lucid.spec("N", "L", dtype=lucid.int64))
    part = ModelPart(lucid.quantize(model, bits=8), specs)
    web.write_page(
        web.LABELS,
        "A classifier in the browser",
        part,
        checkpoint(),
        folder,
        Options(),
        packages,
        dict(enumerate(names)),
    )


def main() -> None:
    """Write the page and say where it is."""
    parser = argparse.ArgumentParser(prog="python -m examples.classifier", description="A classifier in a web page.")
    parser.add_argument("--table", type=Path, default=HERE / "labelled.csv", help="with columns label and text")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/classifier"), help="[build/classifier]")
    parser.add_argument("--packages", type=Path, default=browser.HERE / "node_modules", help="where npm put packages")
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    build(asked.output, asked.table, asked.packages)
    print(f"written: open {asked.output / 'index.html'} in a browser")


if __name__ == "__main__":
    main()
