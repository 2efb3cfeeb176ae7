"""tests/data/megatron_bert: a tiny Megatron-BERT with transformers' results, for docs/howto/own-model.md."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import MegatronBertConfig, MegatronBertForTokenClassification, MegatronBertModel

from .core import DATA


def store_all(folder: Path) -> None:
    folder = DATA / "megatron_bert"
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = MegatronBertConfig(**sizes, intermediate_size=12, max_position_embeddings=32, num_labels=3)
    model = MegatronBertForTokenClassification(config).eval()
    for parameter in model.parameters():
        parameter.data = torch.randn_like(parameter) * 0.5
    model.save_pretrained(folder)
    inputs = {
        "input_ids": torch.tensor([[1, 12, 23, 34, 2], [1, 30, 2, 0, 0]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
        "token_type_ids": torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 0, 0]]),
    }
    with torch.no_grad():
        states = MegatronBertModel.from_pretrained(folder)(**inputs).last_hidden_state
        logits = model(**inputs).logits
    save_file({**inputs, "last_hidden_state": states, "logits": logits}, folder / "io.safetensors")
