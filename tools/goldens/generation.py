"""Tokens that transformers' `generate` gives with the decoders of the goldens: greedy and with beams."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import torch
import transformers

from goldens.core import ROOT

MODELS = ["gpt2/base", "llama/llama2", "llama/llama3", "mistral/full", "qwen2/tied", "gemma3/base"]
PAD = 35  # not 0: transformers 5 pads beams with the first eos where pad_token_id is 0


def store_all(folder: Path) -> None:
    """Write the cases, one a line."""
    folder.mkdir(exist_ok=True)
    lines = [json.dumps(case(variant, number)) for variant in MODELS for number in range(14)]
    (folder / "tokens.json").write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def case(variant: str, number: int) -> dict[str, Any]:
    """Prompts, options and new tokens. Prompts of one length have a repetition penalty, since padding counts there."""
    draw = random.Random(f"{variant} {number}")
    ragged = number % 2 == 0
    length = draw.randrange(1, 6)
    prompts = [[draw.randrange(1, 35) for _ in range(draw.randrange(1, 6) if ragged else length)] for _ in range(2)]
    options: dict[str, Any] = {"max_new_tokens": draw.choice([4, 9, 14]), "num_beams": 1 + number % 4}
    if draw.random() < 0.8:
        options["eos_token_id"] = draw.sample(range(35), draw.choice([1, 2, 6, 12]))
    if not ragged:
        options["repetition_penalty"] = draw.choice([0.8, 1.3, 2.0])
    return {"model": variant, "prompts": prompts, "options": options, "tokens": generated(variant, prompts, options)}


def generated(variant: str, prompts: list[list[int]], options: dict[str, Any]) -> list[list[int]]:
    model = transformers.AutoModelForCausalLM.from_pretrained(ROOT / variant, attn_implementation="eager").eval()
    model.generation_config = transformers.GenerationConfig(pad_token_id=PAD)
    longest = max(map(len, prompts))
    ids = torch.tensor([[PAD] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    with torch.no_grad():
        tokens: list[list[int]] = model.generate(ids, attention_mask=mask, **options)[:, longest:].tolist()
    return tokens
