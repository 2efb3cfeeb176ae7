"""ResNet, DETR and RT-DETR: objects of images, each with a class and a box."""

from __future__ import annotations

import torch
import transformers as hf
from torch import nn

from .core import Case, Golden, normal
from .dense import cases

STAGES = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 2]}


def settled(model: nn.Module) -> nn.Module:
    """The model with other means and variances in its batch norms than 0 and 1."""
    with torch.no_grad():
        for module in model.modules():
            if hasattr(module, "running_var"):
                module.running_mean.copy_(normal(module.running_mean.shape, 1408) * 0.3)
                module.running_var.copy_(normal(module.running_var.shape, 1409).abs() + 0.5)
    return model


def padded_cases(seed: int, cell: int) -> dict[str, Case]:
    """Images of some cells a side, of which a mask says what is padding; and one without a mask."""
    size, short = (2 * cell, 3 * cell), cell + 3
    mask = torch.zeros(2, *size, dtype=torch.long)
    mask[0, :, : size[1] - 5] = mask[1, :short] = 1
    padded = {"pixel_values": normal((2, 3, *size), seed) * mask.unsqueeze(1), "pixel_mask": mask}
    other = (size[0] + 1, 2 * cell + 3)
    return {
        "padded": Case(f"images of {(size[0], size[1] - 5)} and {(short, size[1])}", padded),
        "other_size": Case(f"one image of {other}", {"pixel_values": normal((1, 3, *other), seed + 1)}),
    }


def resnet() -> list[Golden]:
    early = {"downsample_in_first_stage": True, "downsample_in_bottleneck": True, "hidden_act": "gelu"}

    def golden(variant: str, model: nn.Module, outputs: list[str], note: str) -> Golden:
        return Golden(f"resnet/{variant}", settled(model), cases(1400, (24, 32), (33, 21)), outputs, lambda _: {}, note)

    basic = hf.ResNetConfig(**STAGES, layer_type="basic")
    classifier = hf.ResNetForImageClassification(hf.ResNetConfig(**STAGES, **early, num_labels=5))
    return [
        golden("features", hf.ResNetModel(basic), ["last_hidden_state", "pooler_output"], "layers of two convolutions"),
        golden("classifier", classifier, ["logits"], "bottlenecks that halve in the first stage and convolution; gelu"),
    ]


def rt_detr() -> list[Golden]:
    stages = {"embedding_size": 8, "hidden_sizes": [8, 8, 12, 16], "depths": [1, 2, 1, 1], "out_indices": [2, 3, 4]}
    sizes = {"encoder_hidden_dim": 8, "encoder_in_channels": [8, 12, 16], "decoder_in_channels": [8, 8, 8]}
    sizes |= {"encoder_ffn_dim": 12, "encoder_attention_heads": 2, "d_model": 16, "num_queries": 2, "num_labels": 3}
    sizes |= {"decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 12, "decoder_n_points": 2}
    sizes |= {"num_denoising": 2}

    def golden(variant: str, kind: str, note: str, layer: str, seed: int, **more: object) -> Golden:
        backbone = hf.RTDetrResNetConfig(**stages, layer_type=layer)
        model_type, config = (hf.RTDetrForObjectDetection, hf.RTDetrConfig) if kind == "rt_detr" else _SECOND
        model = settled(model_type(config(**sizes, backbone_config=backbone, **more)))
        images = cases(seed, (32, 64), (96, 32))
        return Golden(f"{kind}/{variant}", model, images, ["logits", "pred_boxes"], lambda _: {}, note)

    wide = {"hidden_expansion": 0.5}
    return [
        golden("objects", "rt_detr", "bottlenecks", "bottleneck", 1430),
        golden("basic", "rt_detr", "layers of two convolutions, narrow blocks", "basic", 1440, **wide),
        golden(
            "objects", "rt_detr_v2", "the second version", "basic", 1450, decoder_offset_scale=0.4, decoder_n_levels=3
        ),
    ]


_SECOND = (hf.RTDetrV2ForObjectDetection, hf.RTDetrV2Config)


def detr() -> list[Golden]:
    few = {"hidden_sizes": [4, 8, 8, 12], "depths": [1, 1, 1, 1], "embedding_size": 4}
    all_stages = hf.ResNetConfig(**few, out_features=["stage1", "stage2", "stage3", "stage4"])
    sizes = {"d_model": 16, "num_queries": 5, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 24}
    sizes |= {"decoder_ffn_dim": 20, "encoder_attention_heads": 4, "decoder_attention_heads": 2, "num_labels": 3}
    sizes |= {"use_timm_backbone": False}
    config = hf.DetrConfig(**sizes, backbone_config=hf.ResNetConfig(**STAGES, out_features=["stage2"]))
    wide = sizes | {"encoder_attention_heads": 8, "backbone_config": all_stages}

    def golden(variant: str, model: nn.Module, outputs: list[str], note: str, cell: int = 8) -> Golden:
        images = padded_cases(1420, cell)
        return Golden(f"detr/{variant}", settled(model), images, outputs, lambda _: {}, note)

    objects, states = ["logits", "pred_boxes"], ["last_hidden_state", "encoder_last_hidden_state"]
    return [
        golden("base", hf.DetrModel(hf.DetrConfig(**wide)), states, "a ResNet of four stages, five queries", 16),
        golden("objects", hf.DetrForObjectDetection(config), objects, "two stages, three classes and that of none"),
        golden("masks", hf.DetrForSegmentation(hf.DetrConfig(**wide)), [*objects, "pred_masks"], "five masks", 16),
    ]
