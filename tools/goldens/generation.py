"""What transformers' `generate` gives with the decoders of the goldens, greedy and with beams; and its logits processors."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers

from .core import ROOT

MODELS = ["gpt2/base", "llama/llama2", "llama/llama3", "mistral/full", "qwen2/tied", "gemma3/base"]
PAD = 35  # not 0: transformers 5 pads beams with the first eos where pad_token_id is 0


def store_all(folder: Path) -> None:
    """Write the cases, one a line."""
    folder.mkdir(exist_ok=True)
    lines = [json.dumps(case(variant, number)) for variant in MODELS for number in range(14)]
    (folder / "tokens.json").write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    mixed = [mixed_options(random.Random(number)) for number in range(24)]
    lines = [json.dumps(option_case(options, number)) for number, options in enumerate([*ALONE, *mixed])]
    (folder / "options.json").write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    lines = [json.dumps(processor_case(number)) for number in range(len(DRAWN) + 30)]
    (folder / "processors.json").write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


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


EOS = {"eos_token_id": [3, 7, 12, 20, 29]}
ALONE: list[dict[str, Any]] = [
    {"min_new_tokens": 7, **EOS},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 2},
    {"no_repeat_ngram_size": 3},
    {"bad_words_ids": [[5], [9, 4], [3], [11, 2, 6], *([token] for token in range(20, 30))], **EOS},
    {"logit_bias": {"4": 2.5, "9": -100.0, "17": 1.0}},
    {"num_beams": 3, "length_penalty": 2.0, **EOS},
    {"num_beams": 3, "length_penalty": -1.5, **EOS},
    {"num_beams": 3, "length_penalty": 0.0, **EOS},
    {"num_beams": 4, "early_stopping": True, **EOS},
    {"num_beams": 4, "early_stopping": "never", **EOS},
    {"num_beams": 4, "early_stopping": "never", "length_penalty": -0.5, **EOS},
    {"num_beams": 4, "num_return_sequences": 3, **EOS},
]
"""Options that transformers has, each alone."""


def mixed_options(draw: random.Random) -> dict[str, Any]:
    """Several of them at once."""
    options: dict[str, Any] = {"num_beams": draw.choice([1, 1, 2, 3, 4])} | (EOS if draw.random() < 0.8 else {})
    several: dict[str, Callable[[], object]] = {
        "min_new_tokens": lambda: draw.choice([2, 5, 9]),
        "no_repeat_ngram_size": lambda: draw.choice([1, 2, 3]),
        "bad_words_ids": lambda: [draw.sample(range(36), draw.choice([1, 1, 2])) for _ in range(12)],
        "logit_bias": lambda: {str(draw.randrange(36)): draw.uniform(-4, 4) for _ in range(5)},
        "repetition_penalty": lambda: draw.choice([0.8, 1.3, 2.0]),
    }
    options |= {name: value() for name, value in several.items() if draw.random() < 0.5}
    if options["num_beams"] > 1:
        options["length_penalty"] = draw.choice([-0.7, 0.4, 1.0, 1.8])
        options["early_stopping"] = draw.choice([False, True, "never"])
        options["num_return_sequences"] = draw.randrange(1, options["num_beams"] + 1)
    return options


def of_transformers(options: dict[str, Any]) -> dict[str, Any]:
    """Options as transformers spells them: a bias belongs to a sequence of tokens there."""
    plain = {name: value for name, value in options.items() if name != "logit_bias"}
    if "logit_bias" in options:
        plain["sequence_bias"] = [[[int(token)], bias] for token, bias in options["logit_bias"].items()]
    return plain


def option_case(options: dict[str, Any], number: int) -> dict[str, Any]:
    """Two prompts of one length, as padding has n-grams in transformers."""
    draw, variant = random.Random(f"options {number}"), ("llama/llama2", "gpt2/base")[number % 2]
    length = draw.randrange(1, 6)
    prompts = [[draw.randrange(1, 35) for _ in range(length)] for _ in range(2)]
    options = {"max_new_tokens": 12, **options}
    tokens = generated(variant, prompts, of_transformers(options))
    return {"model": variant, "prompts": prompts, "options": options, "tokens": tokens}


DRAWN: list[dict[str, Any]] = [
    {"temperature": 0.6},
    {"top_k": 7},
    {"top_p": 0.8},
    {"min_p": 0.15},
    {"typical_p": 0.3},
    {"typical_p": 0.9},
]
"""Options that draw tokens, each alone; then follow mixtures with those that change logits."""


def processor_case(number: int) -> dict[str, Any]:
    """Ids so far, logits, and what remains of these before a token is drawn."""
    draw = random.Random(f"processors {number}")
    options = dict(DRAWN[number]) if number < len(DRAWN) else drawn_options(draw)
    prompt, ids = draw.randrange(1, 5), [draw.randrange(20) for _ in range(12)]
    logits = [draw.randrange(-6000, 6000) / 1000 for _ in range(36)]
    config = transformers.GenerationConfig(do_sample=True, max_length=64, **{"top_k": 0, **of_transformers(options)})
    model = transformers.AutoModelForCausalLM.from_pretrained(ROOT / "gpt2/base")
    model._prepare_special_tokens(config)
    processors = model._get_logits_processor(config, prompt)
    scores = processors(torch.tensor([ids]), torch.tensor([logits]))[0]
    kept = {token: round(score, 4) for token, score in enumerate(scores.tolist()) if math.isfinite(score)}
    return {"options": options, "start": prompt, "ids": ids, "logits": logits, "kept": kept}


def drawn_options(draw: random.Random) -> dict[str, Any]:
    several: dict[str, Callable[[], object]] = {
        "temperature": lambda: draw.choice([0.5, 0.8, 1.7]),
        "top_k": lambda: draw.choice([4, 12, 30]),
        "top_p": lambda: draw.choice([0.5, 0.8, 0.95]),
        "min_p": lambda: draw.choice([0.01, 0.1]),
        "typical_p": lambda: draw.choice([0.4, 0.8]),
        "repetition_penalty": lambda: draw.choice([0.7, 1.5]),
        "no_repeat_ngram_size": lambda: draw.choice([1, 2]),
        "bad_words_ids": lambda: [[draw.randrange(36)] for _ in range(6)],
        "logit_bias": lambda: {str(draw.randrange(36)): draw.uniform(-4, 4) for _ in range(5)},
        "min_new_tokens": lambda: draw.choice([5, 14]),
        "suppress_tokens": lambda: draw.sample(range(36), 4),
    }
    return EOS | {name: value() for name, value in several.items() if draw.random() < 0.5}
