"""Tokens that transformers' `generate` gives with the encoder-decoders of the goldens: greedy and with beams."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import torch
import transformers

from .core import ROOT, normal

MODELS = {
    "t5/v1_0": transformers.T5ForConditionalGeneration,
    "t5/v1_1": transformers.T5ForConditionalGeneration,
    "whisper/base": transformers.WhisperForConditionalGeneration,
    "whisper/uneven": transformers.WhisperForConditionalGeneration,
    "umt5/base": transformers.UMT5ForConditionalGeneration,
    "bart/base": transformers.BartForConditionalGeneration,
    "marian/base": transformers.MarianMTModel,
    "m2m_100/base": transformers.M2M100ForConditionalGeneration,
}
FORCING = ("bart", "marian", "m2m_100")  # families that force and suppress tokens; four cases of each
PAD = 35  # not 0: transformers 5 pads beams with the first eos where pad_token_id is 0


def store_all(folder: Path) -> None:
    """Write the cases, one a line."""
    folder.mkdir(exist_ok=True)
    lines = [json.dumps(case(variant, number)) for variant in MODELS for number in range(cases_of(variant))]
    (folder / "tokens.json").write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def cases_of(variant: str) -> int:
    return 8 if variant.startswith(("t5", "whisper")) else 4


def case(variant: str, number: int) -> dict[str, Any]:
    """Inputs of the encoder, what the texts begin with, options and new tokens.

    Texts are ids, padded on the right; sounds are normal numbers of a seed, rounded to hundredths so that they are the
    same everywhere.
    """
    draw = random.Random(f"{variant} {number}")
    model = MODELS[variant].from_pretrained(ROOT / variant, attn_implementation="eager").eval()
    options: dict[str, Any] = {"max_new_tokens": draw.choice([4, 9, 12]), "num_beams": 1 + number % 4}
    if draw.random() < 0.8:
        options["eos_token_id"] = draw.sample(range(1, 35), draw.choice([1, 2, 6]))
    if number % 2:
        options["repetition_penalty"] = draw.choice([0.8, 1.3, 2.0])
    start, length = model.config.decoder_start_token_id, draw.randrange(3)
    begin = [[start, *(draw.randrange(2, 35) for _ in range(length))] for _ in range(2)]
    if variant.startswith(FORCING):
        # 1 is padding, which has no position in M2M-100's decoder either: it is not written.
        options |= {"forced_bos_token_id": draw.randrange(3, 35), "forced_eos_token_id": 2, "suppress_tokens": [1]}
        begin = [ids[: 1 + number % 2] for ids in begin]
    case: dict[str, Any] = {"model": variant, "begin": begin, "options": options}
    if not variant.startswith("whisper"):
        case["sources"] = [[draw.randrange(1, 35) for _ in range(draw.randrange(1, 7))] for _ in range(2)]
    else:
        config = model.config
        sounds = normal((2, config.num_mel_bins, 2 * config.max_source_positions), number).mul(100).round()
        case["sounds"] = sounds.int().tolist()
    return {**case, "tokens": generated(model, case)}


def generated(model: Any, case: dict[str, Any]) -> list[list[int]]:
    """The new tokens."""
    if "sources" in case:
        longest = max(map(len, case["sources"]))
        rows = [(ids, longest - len(ids)) for ids in case["sources"]]
        inputs = {
            "input_ids": torch.tensor([ids + [PAD] * missing for ids, missing in rows]),
            "attention_mask": torch.tensor([[1] * len(ids) + [0] * missing for ids, missing in rows]),
        }
    else:
        inputs = {"input_features": torch.tensor(case["sounds"], dtype=torch.float32) / 100}
    begin = torch.tensor(case["begin"])
    # Without a config of its own for generation no token is suppressed.
    model.generation_config = transformers.GenerationConfig(
        pad_token_id=PAD, decoder_start_token_id=case["begin"][0][0]
    )
    with torch.no_grad():
        # Whisper's own generate transcribes; this is the one of all models.
        answer = transformers.GenerationMixin.generate(model, **inputs, decoder_input_ids=begin, **case["options"])
    tokens: list[list[int]] = answer[:, begin.shape[1] :].tolist()
    return tokens
