"""SmolVLM and Idefics3: images among the tokens of a decoder.

An image of 16 x 16 has 4 x 4 patches, of which a square of 2 x 2 is one vector: four image tokens, of id 39.
"""

from __future__ import annotations

import torch
import transformers as hf
from torch import Tensor, nn

from .core import Case, Golden, ids, normal, padding_mask

IMAGE, SIDE = 39, 16


def with_images(tokens: Tensor, *starts: tuple[int, int]) -> Tensor:
    """The texts with the four tokens of an image in these rows, from these columns on."""
    for row, start in starts:
        tokens[row, start : start + 4] = IMAGE
    return tokens


def cases(seed: int) -> dict[str, Case]:
    pixels = normal((2, 2, 3, SIDE, SIDE), seed)
    pixels[1, 1] = 0
    mask = padding_mask(12, (12, 8), "right")
    padded = with_images(ids((2, 12), IMAGE, seed + 1), (0, 1), (0, 6), (1, 2))
    part = torch.zeros((1, 2, SIDE, SIDE), dtype=torch.bool)
    part[0, 0, :12, :7] = part[0, 1, :, :] = True
    return {
        "plain": Case(
            "two texts of 7, an image in each",
            {
                "input_ids": with_images(ids((2, 7), IMAGE, seed + 2), (0, 1), (1, 3)),
                "pixel_values": normal((2, 1, 3, SIDE, SIDE), seed + 3),
            },
        ),
        "padded": Case(
            "two images and one; the fourth is padding of zeros, and texts are padded on the right",
            {"input_ids": padded.where(mask == 1, 0), "attention_mask": mask, "pixel_values": pixels},
            "kept",
        ),
        "parts": Case(
            "two images of one text, of the first of which 3 x 2 patches count",
            {
                "input_ids": with_images(ids((1, 11), IMAGE, seed + 4), (0, 1), (0, 6)),
                "pixel_values": normal((1, 2, 3, SIDE, SIDE), seed + 5),
                "pixel_attention_mask": part,
            },
        ),
        "text": Case("no image", {"input_ids": ids((2, 5), IMAGE, seed + 6)}),
    }


def golden(name: str, config: type, model: type, note: str, seed: int, **options: object) -> Golden:
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    text = sizes | {"model_type": "llama", "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 40}
    vision = sizes | {"num_attention_heads": 2, "image_size": SIDE, "patch_size": 4}
    built = config(
        text_config=text | {"pad_token_id": 0, "max_position_embeddings": 64},
        vision_config=vision,
        scale_factor=2,
        image_token_id=IMAGE,
        pad_token_id=0,
        **options,
    )

    def layers(model: nn.Module) -> dict[str, nn.ModuleList]:
        return {"": model.model.text_model.layers, "vision.": model.model.vision_model.encoder.layers}

    return Golden(
        name,
        model(built),
        cases(seed),
        ["logits"],
        layers,
        note,
        taps=lambda model: {"image_features": model.model.connector},
    )


def smolvlm() -> list[Golden]:
    note = "keys model.vision_model., model.connector., model.text_model. and lm_head.weight"
    return [golden("smolvlm/base", hf.SmolVLMConfig, hf.SmolVLMForConditionalGeneration, note, 1200)]


def idefics3() -> list[Golden]:
    note = "as SmolVLM, with a tied head"
    classes = (hf.Idefics3Config, hf.Idefics3ForConditionalGeneration)
    return [golden("idefics3/base", *classes, note, 1250, tie_word_embeddings=True)]
