"""peft's adapters on a decoder of transformers. Imported only if torch, transformers and peft are installed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import peft
import torch

from benchmarks.graphs import Array


def adapter_training(model: Any, ids: Array, rank: int, rate: float) -> Callable[[], float]:
    """A step of AdamW on peft's adapters of queries and values, which predict the next tokens; its loss."""
    config = peft.LoraConfig(r=rank, lora_alpha=16, target_modules=["q_proj", "v_proj"], lora_dropout=0.0)
    adapted: Any = peft.get_peft_model(copy.deepcopy(model), config)
    optimizer = torch.optim.AdamW([p for p in adapted.parameters() if p.requires_grad], rate)
    tokens = torch.from_numpy(ids)

    def run() -> float:
        optimizer.zero_grad()
        with torch.enable_grad():
            logits = adapted(tokens, use_cache=False).logits[:, :-1]
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
        optimizer.step()
        return float(loss.item())

    return run
