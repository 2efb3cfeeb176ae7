"""training.safetensors: the cases of tests/training_cases.py in torch, transformers and peft.

Each case has the loss of every step, and the weights or adapters at the end. Only what a training begins with comes from
Lucid: the numbers of new heads and adapters, which transformers and peft read from folders. Texts become tokens by
transformers, batches follow docs/howto/train.md, parameters decay as in transformers' Trainer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import numpy as np
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    PreTrainedTokenizerFast,
    Trainer,
    get_scheduler,
)

import lucid
from lucid import nn
from lucid.core.process import random
from lucid.models.checkpoints.labels import head_names, write_with_labels
from tests.training_cases import CASES, TrainingCase

Loss: TypeAlias = Callable[[Any, list[Any]], torch.Tensor]
"""Of a model and rows."""


def padded(tokenizer: Any, texts: list[str]) -> Mapping[str, torch.Tensor]:
    encoded: Mapping[str, torch.Tensor] = tokenizer(
        texts, padding=True, return_tensors="pt", return_token_type_ids=False
    )
    return encoded


def of_classes(tokenizer: Any, rows: list[Any]) -> Loss:
    labels = sorted({row["label"] for row in rows})

    def loss(model: Any, batch: list[Any]) -> torch.Tensor:
        numbers = torch.tensor([labels.index(row["label"]) for row in batch])
        return model(**padded(tokenizer, [row["text"] for row in batch]), labels=numbers).loss

    return loss


def of_sentences(tokenizer: Any, rows: list[Any]) -> Loss:
    """sentence-transformers' CosineSimilarityLoss, or MultipleNegativesRankingLoss with its scale of 20."""

    def loss(model: Any, batch: list[Any]) -> torch.Tensor:
        def vectors(column: str) -> torch.Tensor:
            states = model(**padded(tokenizer, [row[column] for row in batch])).last_hidden_state
            return F.normalize(states[:, 0], dim=-1)

        if "score" in rows[0]:
            cosines = (vectors("sentence1") * vectors("sentence2")).sum(-1)
            return F.mse_loss(cosines, torch.tensor([row["score"] for row in batch]))
        candidates = torch.cat([vectors("positive"), vectors("negative")])
        return F.cross_entropy(vectors("anchor") @ candidates.T * 20, torch.arange(len(batch)))

    return loss


def of_answers(tokenizer: Any, rows: list[Any]) -> Loss:
    """The tokens of completions, and the end; a token is a letter here."""

    def loss(model: Any, batch: list[Any]) -> torch.Tensor:
        texts = [[*tokenizer(row["prompt"] + row["completion"]).input_ids, tokenizer.eos_token_id] for row in batch]
        longest = max(map(len, texts))
        ids, labels, mask = (torch.full((len(batch), longest), number) for number in (0, -100, 0))
        for row, (text, values) in enumerate(zip(texts, batch, strict=True)):
            ids[row, : len(text)], mask[row, : len(text)] = torch.tensor(text), 1
            learned = len(values["prompt"])
            labels[row, learned : len(text)] = torch.tensor(text[learned:])
        return model(input_ids=ids, attention_mask=mask, labels=labels).loss

    return loss


def start(case: TrainingCase, place: Path) -> tuple[Any, Loss]:
    """transformers' model with a new head, and peft's adapters, as Lucid begins with them; and its loss."""
    options, source = case.all_options, case.source(place / "source")
    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<unk>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(source / "tokenizer.json"), **special)
    task = options.get("task") or lucid.models.load(source).checkpoint.task
    kinds = {
        "text-classification": (AutoModelForSequenceClassification, of_classes),
        "sentence-similarity": (AutoModel, of_sentences),
        "text-generation": (AutoModelForCausalLM, of_answers),
    }
    kind, loss = kinds[task]
    if task == "text-classification":
        (place / "start").mkdir()
        write_with_labels(source, sorted({row["label"] for row in case.rows}), place / "start", options["seed"])
        source = place / "start"
    model = kind.from_pretrained(source, **({"add_pooling_layer": False} if kind is AutoModel else {}))
    if "lora" in options:
        ours: Any = lucid.models.load(source, task)
        random.manual_seed(options["seed"])
        head = head_names(ours)
        targets = [
            key.removesuffix(".weight")
            for name in options["target_modules"]
            for key in ours.state_dict()
            if key.endswith(f".{name}.weight") and key not in head
        ]
        adapted = nn.LoRA.add(ours, options["lora"], targets, alpha=2.0 * options["lora"])
        whole = sorted(head) if task == "text-classification" else []
        (place / "adapter").mkdir()
        lucid.models.save_adapter(adapted, source, place / "adapter", whole=whole)
        model = PeftModel.from_pretrained(model, place / "adapter", is_trainable=True)
    return model.eval(), loss(tokenizer, case.rows)


def trained(case: TrainingCase, place: Path) -> dict[str, torch.Tensor]:
    """The losses and the numbers at the end."""
    options, (model, loss) = case.all_options, start(case, place)
    decaying = {*Trainer.get_decay_parameter_names(None, model)}  # which reads nothing of self
    parameters = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
    groups = [
        {"params": [each for name, each in parameters if (name in decaying) == decays], "weight_decay": decay}
        for decays, decay in ((True, options["weight_decay"]), (False, 0.0))
    ]
    optimizer = torch.optim.AdamW(groups, lr=options["learning_rate"])
    size, rows = options["batch_size"], len(case.rows)
    steps = math.ceil(rows / size) * options["num_train_epochs"]
    name = options.get("lr_scheduler_type", "linear")
    name = "constant_with_warmup" if name == "constant" else name
    schedule = get_scheduler(name, optimizer, math.ceil(options["warmup_ratio"] * steps), steps)
    losses = []
    for epoch in range(options["num_train_epochs"]):
        order = np.random.default_rng((options["seed"], epoch)).permutation(rows)
        for first in range(0, rows, size):
            optimizer.zero_grad()
            value = loss(model, [case.rows[row] for row in order[first : first + size]])
            value.backward()
            if limit := options.get("max_grad_norm", 1.0):
                clip_grad_norm_([each for _, each in parameters], limit)
            optimizer.step()
            schedule.step()
            losses.append(value.detach())
    model.save_pretrained(place / "end")
    (stored,) = (place / "end").glob("*.safetensors")
    return {"losses": torch.stack(losses), **load_file(stored)}


def store_all(folder: Path) -> None:
    tensors: dict[str, torch.Tensor] = {}
    for name, case in CASES.items():
        with TemporaryDirectory() as place:
            tensors |= {f"{name}/{key}": value for key, value in trained(case, Path(place)).items()}
    save_file(tensors, folder.with_suffix(".safetensors"))
