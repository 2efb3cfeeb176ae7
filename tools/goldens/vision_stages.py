"""Swin, ConvNeXt and ConvNeXt V2: images get smaller and wider from stage to stage."""

from __future__ import annotations

import transformers as hf
from torch import nn

from .core import Case, Golden, normal
from .vision import image_cases


def swin() -> list[Golden]:
    sizes = {"embed_dim": 8, "patch_size": 2, "window_size": 3, "depths": [2, 1], "num_heads": [2, 4], "mlp_ratio": 2}

    def blocks(model: nn.Module) -> dict[str, nn.ModuleList]:
        return {f"{i}.": stage.blocks for i, stage in enumerate(model.encoder.layers)}

    wide = {"image_size": [10, 16], "qkv_bias": False, "use_absolute_embeddings": True, "hidden_act": "relu"}
    return [
        Golden(
            "swin/base",
            hf.SwinModel(hf.SwinConfig(**sizes, image_size=12)),
            image_cases(1000),
            ["last_hidden_state", "pooler_output"],
            blocks,
            "SwinModel: 6 x 6 patches in windows of 3 x 3, shifted in the second layer; then one window",
        ),
        Golden(
            "swin/classifier",
            hf.SwinForImageClassification(hf.SwinConfig(**sizes | wide, num_labels=5)),
            image_cases(1010, (10, 16)),
            ["logits"],
            lambda model: blocks(model.swin),
            "5 x 8 patches, filled up to 6 x 9 for windows and to 6 x 8 for merging; image_size [10, 16] (height, width), "
            "qkv_bias false, learned positions, relu",
        ),
    ]


def convnext() -> list[Golden]:
    sizes = {"hidden_sizes": [8, 12], "depths": [1, 2], "num_stages": 2, "patch_size": 2}
    cases = image_cases(1020)
    cases["other_size"] = Case("one image of (17, 11)", {"pixel_values": normal((1, 3, 17, 11), 1029)})

    def golden(variant: str, model: nn.Module, outputs: list[str], note: str) -> Golden:
        return Golden(f"convnext/{variant}", model, cases, outputs, lambda model: {}, note)

    return [
        golden(
            "base",
            hf.ConvNextModel(hf.ConvNextConfig(**sizes)),
            ["last_hidden_state", "pooler_output"],
            "ConvNextModel: layer scale",
        ),
        golden(
            "classifier",
            hf.ConvNextForImageClassification(hf.ConvNextConfig(**sizes, layer_scale_init_value=0.0, num_labels=5)),
            ["logits"],
            "no layer scale",
        ),
        golden(
            "v2_classifier",
            hf.ConvNextV2ForImageClassification(hf.ConvNextV2Config(**sizes, num_labels=5)),
            ["logits"],
            "ConvNeXt V2: global response normalisation",
        ),
    ]
