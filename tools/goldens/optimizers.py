"""optimizers.safetensors: three parameters after five steps of torch's optimizers, with transformers' schedules, and the
losses of a small classifier of texts in 100 steps of AdamW.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, Adafactor, AdamW
from transformers import (
    AutoModelForSequenceClassification,
    get_constant_schedule_with_warmup,
    get_cosine_schedule_with_warmup,
    get_linear_schedule_with_warmup,
)

from .core import ROOT

SHAPES = {"layer.weight": (3, 4), "layer.bias": (3,), "table": (2, 3, 2)}
STEPS = 5


def by_name(parameters: dict[str, torch.Tensor]) -> list[dict[str, Any]]:
    decays = {"layer.weight": 0.3, "layer.bias": 0.0, "table": 0.3}
    return [{"params": [value], "weight_decay": decays[name]} for name, value in parameters.items()]


OPTIMIZERS: dict[str, Callable[[dict[str, torch.Tensor]], torch.optim.Optimizer]] = {
    "sgd": lambda p: SGD(p.values(), 0.1),
    "sgd_momentum": lambda p: SGD(p.values(), 0.1, momentum=0.9, weight_decay=0.02),
    "sgd_nesterov": lambda p: SGD(p.values(), 0.1, momentum=0.8, nesterov=True, weight_decay=0.02),
    "adamw": lambda p: AdamW(p.values(), 0.05),
    "adamw_clipped": lambda p: AdamW(p.values(), 0.05, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1),
    "adamw_by_name": lambda p: AdamW(by_name(p), 0.05),
    "adafactor": lambda p: Adafactor(p.values()),
    "adafactor_options": lambda p: Adafactor(p.values(), 0.7, beta2_decay=-0.6, d=1.5, weight_decay=0.1),
    "linear": lambda p: AdamW(p.values(), 0.05),
    "cosine": lambda p: SGD(p.values(), 0.05),
    "constant": lambda p: SGD(p.values(), 0.05),
}
SCHEDULES: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "linear": lambda optimizer: get_linear_schedule_with_warmup(optimizer, 2, 6),
    "cosine": lambda optimizer: get_cosine_schedule_with_warmup(optimizer, 1, 5),
    "constant": lambda optimizer: get_constant_schedule_with_warmup(optimizer, 3),
}


def losses() -> torch.Tensor:
    model = AutoModelForSequenceClassification.from_pretrained(ROOT / "tasks" / "bert_text_classification").eval()
    random = np.random.default_rng(44)
    ids = torch.tensor(random.integers(1, model.config.vocab_size, (8, 10)))
    labels = torch.tensor(random.integers(0, model.config.num_labels, 8))
    mask = (torch.arange(10) < torch.tensor([10, 9, 8, 7, 6, 5, 3, 1])[:, None]).long()
    optimizer = AdamW(model.parameters(), 1e-3)
    gradients = []
    for _ in range(100):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(ids, mask).logits, labels)
        loss.backward()
        optimizer.step()
        gradients.append(loss.detach())
    return torch.stack(gradients)


def store_all(folder: Path) -> None:
    generator = torch.Generator().manual_seed(44)
    start = {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
    gradients = [
        {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()} for _ in range(STEPS)
    ]
    arrays = {f"start/{name}": value for name, value in start.items()}
    arrays |= {f"gradient {step}/{name}": value for step, each in enumerate(gradients) for name, value in each.items()}
    for case, make in OPTIMIZERS.items():
        parameters = {name: value.clone().requires_grad_() for name, value in start.items()}
        optimizer = make(parameters)
        schedule = SCHEDULES[case](optimizer) if case in SCHEDULES else None
        for gradient in gradients:
            for name, value in parameters.items():
                value.grad = gradient[name].clone()
            if case == "adamw_clipped":
                clip_grad_norm_(parameters.values(), 1.0)
            optimizer.step()
            if schedule is not None:
                schedule.step()
        arrays |= {f"{case}/{name}": value.detach() for name, value in parameters.items()}
    arrays["bert/losses"] = losses()
    save_file(arrays, folder.with_suffix(".safetensors"))
