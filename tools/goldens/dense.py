"""DINOv3, SegFormer and Depth Anything: a result for each place of an image, or features of any size of images."""

from __future__ import annotations

import torch
import transformers as hf
from torch import nn

from .core import Case, Golden, normal
from .vision import SIZES, image_cases


def cases(seed: int, size: tuple[int, int], other: tuple[int, int]) -> dict[str, Case]:
    more = {"other_size": Case(f"one image of {other}", {"pixel_values": normal((1, 3, *other), seed + 9)})}
    return image_cases(seed, size) | more


def dinov3() -> list[Golden]:
    def golden(variant: str, seed: int, note: str, **options: object) -> Golden:
        model = hf.DINOv3ViTModel(hf.DINOv3ViTConfig(**SIZES | options))
        outputs = ["last_hidden_state", "pooler_output"]
        images = cases(seed, (12, 12), (16, 20))
        return Golden(f"dinov3/{variant}", model, images, outputs, lambda model: {"": model.model.layer}, note)

    gated = {"use_gated_mlp": True, "hidden_act": "silu", "key_bias": True, "num_attention_heads": 2}
    return [
        golden("base", 1300, "two registers, no bias on keys", num_register_tokens=2),
        golden("gated", 1310, "gated network, silu, bias on keys, no registers", **gated),
    ]


def segformer() -> list[Golden]:
    sizes = {"num_encoder_blocks": 2, "depths": [1, 2], "hidden_sizes": [8, 12], "num_attention_heads": [1, 2]}
    sizes |= {"sr_ratios": [2, 1], "patch_sizes": [7, 3], "strides": [4, 2], "mlp_ratios": [2, 3]}
    sizes |= {"decoder_hidden_size": 10, "num_labels": 3}

    def golden(variant: str, model: type, output: str, note: str) -> Golden:
        segformer = model(hf.SegformerConfig(**sizes))
        for module in segformer.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.copy_(normal(module.running_mean.shape, 1329) * 0.3)
                module.running_var.copy_(normal(module.running_var.shape, 1328).abs() + 0.5)
        images = cases(1320, (24, 32), (33, 21))
        return Golden(f"segformer/{variant}", segformer, images, [output], lambda model: {}, note)

    with torch.no_grad():
        return [
            golden("base", hf.SegformerModel, "last_hidden_state", "two stages; keys of the published files"),
            golden("classifier", hf.SegformerForImageClassification, "logits", "the mean of the last stage"),
            golden("segmentation", hf.SegformerForSemanticSegmentation, "logits", "both stages joined; batch norm"),
        ]


def depth_anything() -> list[Golden]:
    sizes = {key: value for key, value in SIZES.items() if key != "intermediate_size"}
    backbone: dict[str, object] = {**sizes, "num_hidden_layers": 3}
    backbone |= {"model_type": "dinov2", "mlp_ratio": 2, "reshape_hidden_states": False, "out_indices": [1, 2, 3]}

    def golden(variant: str, note: str, **options: object) -> Golden:
        config = hf.DepthAnythingConfig(
            backbone_config=backbone,
            patch_size=4,
            reassemble_hidden_size=16,
            reassemble_factors=[2, 1, 0.5],
            neck_hidden_sizes=[4, 5, 6],
            fusion_hidden_size=8,
            head_hidden_size=4,
            **options,
        )
        model = hf.DepthAnythingForDepthEstimation(config)
        images = cases(1340, (12, 12), (17, 24))
        return Golden(
            f"depth_anything/{variant}",
            model,
            images,
            ["predicted_depth"],
            lambda model: {"backbone.": model.backbone.encoder.layer},
            note,
        )

    return [
        golden("base", "three layers of a DINOv2, at 2, 1 and 1/2 of its size; relative depths"),
        golden("metric", "depths up to 20 by a sigmoid", depth_estimation_type="metric", max_depth=20),
    ]
