"""What `lucid train` writes is read by transformers and sentence-transformers, which compute what Lucid does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

import lucid
from lucid.batch import TrainingOptions, fine_tune
from tests.consumers.folders import close
from tests.layout_checkpoints import whole

TEXTS = ["send it", "pay", "send the bill"]


def trained(folder: Path, variant: str, rows: list[dict[str, Any]], **options: Any) -> Path:
    """The folder of a model of the goldens that was trained on rows."""
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    how = TrainingOptions(learning_rate=0.01, val_set_size=0, **options)
    fine_tune(whole(folder / "source", variant), folder / "rows.jsonl", folder / "out", how)
    return folder / "out"


# transformers 4, which is installed here, does not read the positions of llama3 where transformers 5 writes them.
@pytest.mark.parametrize("variant", ["sentences/cls", "distilbert/base", "albert/base", "roberta/base", "llama/llama2"])
def test_a_classifier_with_a_new_head(variant: str, tmp_path: Path) -> None:
    rows = [{"text": text, "label": text[:4].strip()} for text in TEXTS * 4]
    folder = trained(tmp_path, variant, rows, task="text-classification")
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    assert model.config.id2label == {0: "pay", 1: "send"}
    tokens = AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    logits = lucid.models.load(folder)(**{name: lucid.tensor(value.numpy()) for name, value in tokens.items()})
    close(model(**tokens).logits.detach(), logits.numpy(), 1e-4)


@pytest.mark.parametrize("variant", ["bert/base", "sentences/dense"])
def test_a_sentence_encoder(variant: str, tmp_path: Path) -> None:
    rows = [{"sentence1": text, "sentence2": "pay", "score": 0.5} for text in TEXTS * 4]
    folder = trained(tmp_path, variant, rows, task="sentence-similarity")
    texts = AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True)
    model: Any = lucid.models.load(folder)
    ids, mask = (lucid.tensor(np.array(texts[name])) for name in ("input_ids", "attention_mask"))
    close(SentenceTransformer(str(folder), device="cpu").encode(TEXTS), model(ids, mask).numpy(), 1e-4)


@pytest.mark.parametrize("adapters", [{}, {"lora": 2, "merge": True}])
def test_a_decoder(adapters: dict[str, Any], tmp_path: Path) -> None:
    rows = [{"prompt": text, "completion": " done"} for text in TEXTS * 4]
    folder = trained(tmp_path, "llama/llama2", rows, **adapters)
    ids = AutoTokenizer.from_pretrained(folder)(TEXTS[0], return_tensors="pt")["input_ids"]
    model: Any = lucid.models.load(folder)
    with torch.no_grad():
        expected = AutoModelForCausalLM.from_pretrained(folder)(ids).logits
    close(expected, model(lucid.tensor(ids.numpy())).numpy(), 1e-4)
