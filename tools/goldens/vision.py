"""ViT, DeiT, DINOv2, CLIP, SigLIP.

pixel_values are (N, 3, height, width). CLIP's text positions count 0, 1, 2, ... from the first column,
padding included; its text tower is causal, so under left padding only kept positions of the hidden states are
compared, while the pooled embedding, taken at the end-of-text token, is always compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from .core import Case, Golden, ids, normal, padding_mask

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "image_size": 12,
    "patch_size": 4,
}


def image_cases(seed: int, size: tuple[int, int] = (12, 12)) -> dict[str, Case]:
    return {
        "plain": Case(f"two images of {size}", {"pixel_values": normal((2, 3, *size), seed)}),
        "one_image": Case(f"one image of {size}", {"pixel_values": normal((1, 3, *size), seed + 1)}),
    }


def vit() -> list[Golden]:
    wide = hf.ViTConfig(
        **(SIZES | {"image_size": [8, 20], "num_attention_heads": 2}), qkv_bias=False, hidden_act="relu", num_labels=5
    )
    return [
        Golden(
            "vit/base",
            hf.ViTModel(hf.ViTConfig(**SIZES)),
            image_cases(800),
            ["last_hidden_state", "pooler_output"],
            lambda model: {"": model.layers},
            "ViTModel: keys without a prefix; gelu; pooler (tanh of the class token)",
        ),
        Golden(
            "vit/classifier",
            hf.ViTForImageClassification(hf.ViTConfig(**SIZES, num_labels=5)),
            image_cases(810),
            ["logits"],
            lambda model: {"": model.vit.layers},
            "ViTForImageClassification: prefix `vit.`, five labels",
            taps=lambda model: {"last_hidden_state": model.vit.layernorm},
        ),
        Golden(
            "vit/wide_classifier",
            hf.ViTForImageClassification(wide),
            image_cases(820, (8, 20)),
            ["logits"],
            lambda model: {"": model.vit.layers},
            "image_size [8, 20] (height, width), qkv_bias false, relu",
            taps=lambda model: {"last_hidden_state": model.vit.layernorm},
        ),
    ]


def deit() -> list[Golden]:
    def tapped(model: nn.Module) -> dict[str, nn.Module]:
        return {"last_hidden_state": model.deit.layernorm}

    def layers(model: nn.Module) -> dict[str, nn.ModuleList]:
        return {"": model.deit.layers}

    config = hf.DeiTConfig(**SIZES, num_labels=5)
    return [
        Golden(
            "deit/base",
            hf.DeiTModel(hf.DeiTConfig(**SIZES)),
            image_cases(830),
            ["last_hidden_state", "pooler_output"],
            lambda model: {"": model.layers},
            "DeiTModel: class token, then distillation token, then patches",
        ),
        Golden(
            "deit/classifier",
            hf.DeiTForImageClassification(config),
            image_cases(840),
            ["logits"],
            layers,
            "DeiTForImageClassification: the class token is read",
            taps=tapped,
        ),
        Golden(
            "deit/with_teacher",
            hf.DeiTForImageClassificationWithTeacher(config),
            image_cases(850),
            ["logits", "cls_logits", "distillation_logits"],
            layers,
            "DeiTForImageClassificationWithTeacher: logits are the mean of cls_logits and distillation_logits",
            taps=tapped,
        ),
    ]


def dinov2() -> list[Golden]:
    sizes = {key: value for key, value in SIZES.items() if key != "intermediate_size"}
    other = {"pixel_values": normal((1, 3, 16, 20), 869)}
    larger = Case("one image of (16, 20): the stored 3 x 3 positions are resized to 4 x 5 (bicubic)", other)
    cases = image_cases(860) | {"other_size": larger}
    common: dict[str, Any] = {
        "cases": cases,
        "outputs": ["last_hidden_state", "pooler_output"],
        "layers": lambda model: {"": model.encoder.layer},
    }
    return [
        Golden(
            "dinov2/base",
            hf.Dinov2Model(hf.Dinov2Config(**sizes, mlp_ratio=2)),
            note="layer scales lambda1, a mask_token that inference does not use; gelu",
            **common,
        ),
        Golden(
            "dinov2/swiglu",
            hf.Dinov2Model(hf.Dinov2Config(**sizes, mlp_ratio=4, use_swiglu_ffn=True, qkv_bias=False)),
            note="SwiGLU feed forward (mlp.weights_in, mlp.weights_out), hidden width 48; qkv_bias false",
            **common,
        ),
        Golden(
            "dinov2/classifier",
            hf.Dinov2ForImageClassification(hf.Dinov2Config(**sizes, mlp_ratio=2, num_labels=5)),
            cases,
            ["logits"],
            lambda model: {"": model.dinov2.encoder.layer},
            "Dinov2ForImageClassification: reads the class token and the mean of the patches",
        ),
    ]


def dinov2_with_registers() -> list[Golden]:
    sizes = {key: value for key, value in SIZES.items() if key != "intermediate_size"} | {"num_register_tokens": 2}
    larger = Case(
        "one image of (16, 20): the stored 3 x 3 positions are resized (bicubic, antialias)",
        {"pixel_values": normal((1, 3, 16, 20), 889)},
    )
    smaller = Case(
        "one image of (8, 8), with fewer patches than positions", {"pixel_values": normal((1, 3, 8, 8), 890)}
    )
    cases = image_cases(880) | {"other_size": larger, "smaller": smaller}
    return [
        Golden(
            "dinov2_with_registers/base",
            hf.Dinov2WithRegistersModel(hf.Dinov2WithRegistersConfig(**sizes, mlp_ratio=2)),
            cases,
            ["last_hidden_state", "pooler_output"],
            lambda model: {"": model.encoder.layer},
            "DINOv2 with two registers after the class token",
        ),
        Golden(
            "dinov2_with_registers/classifier",
            hf.Dinov2WithRegistersForImageClassification(
                hf.Dinov2WithRegistersConfig(**sizes, mlp_ratio=2, num_labels=5)
            ),
            cases,
            ["logits"],
            lambda model: {"": model.dinov2_with_registers.encoder.layer},
            "reads the class token and the mean of the patches, without registers",
        ),
    ]


SIMILARITIES = ["logits_per_image", "logits_per_text", "text_embeds", "image_embeds"]


def clip_cases(vocabulary: int, end: int, pad: int, seed: int) -> dict[str, Case]:
    """Texts are [0, tokens..., end]; `pad` fills the rest."""

    def texts(length: int, kept: tuple[int, ...], side: str, salt: int) -> Tensor:
        tokens = ids((len(kept), length), vocabulary - 2, seed + salt)
        for row, n in zip(tokens, kept, strict=True):
            start = 0 if side == "right" else length - n
            row[:start] = pad
            row[start], row[start + n - 1] = 0, end
            row[start + n :] = pad
        return tokens

    def pixels(n: int, salt: int) -> Tensor:
        return normal((n, 3, 12, 12), seed + salt)

    def case(about: str, inputs: Mapping[str, Tensor], compare: str = "all") -> Case:
        return Case(about, inputs, compare)

    kept = (7, 4, 3)
    padded = {
        f"{side}_padding": case(
            f"attention_mask padded on the {side}, texts (3, 7), kept 7, 4 and 3, one image",
            {
                "input_ids": texts(7, kept, side, 3),
                "attention_mask": padding_mask(7, kept, side),
                "pixel_values": pixels(1, 4),
            },
            "kept",
        )
        for side in ("right", "left")
    }
    return {
        "plain": case(
            "two texts of 5, two images", {"input_ids": texts(5, (5, 5), "right", 0), "pixel_values": pixels(2, 1)}
        ),
        "one_text": case(
            "one text of 11, one image", {"input_ids": texts(11, (11,), "right", 2), "pixel_values": pixels(1, 5)}
        ),
        **padded,
    }


def with_position_buffers(folder: Path) -> None:
    """The first published files also store the position ids of both towers."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["text_model.embeddings.position_ids"] = torch.arange(12)[None]
    tensors["vision_model.embeddings.position_ids"] = torch.arange(10)[None]
    save_file(tensors, path, metadata={"format": "pt"})


def clip() -> list[Golden]:
    text = {
        "vocab_size": 40,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    text |= {"max_position_embeddings": 12, "bos_token_id": 0}
    image = {"hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    image |= {"image_size": 12, "patch_size": 4}

    def model(act: str, end: int, pad: int, **towers: int) -> hf.CLIPModel:
        shared = {"hidden_act": act, **towers}
        return hf.CLIPModel(
            hf.CLIPConfig(
                text_config=text | shared | {"eos_token_id": end, "pad_token_id": pad},
                vision_config=image | shared,
                projection_dim=12,
            )
        )

    common: dict[str, Any] = {
        "outputs": SIMILARITIES,
        "layers": lambda model: {
            "text.": model.text_model.encoder.layers,
            "vision.": model.vision_model.encoder.layers,
        },
        "taps": lambda model: {
            "text.last_hidden_state": model.text_model.final_layer_norm,
            "vision.pooled": model.vision_model.post_layernorm,  # of the class token only
        },
        "padding_is_free": False,  # the end-of-text token is found by its id
    }
    return [
        Golden(
            "clip/quick_gelu",
            model("quick_gelu", 2, 1),
            clip_cases(40, 39, 1, 900),
            note="quick_gelu; eos_token_id 2 as in the first published files: pooled at the highest id (39); "
            "both towers' embeddings.position_ids are stored, to be skipped",
            rewrite=with_position_buffers,
            spare=("text_model.embeddings.position_ids", "vision_model.embeddings.position_ids"),
            **common,
        ),
        Golden(
            "clip/gelu",
            model("gelu", 38, 38),
            clip_cases(40, 38, 39, 950),
            note="gelu; eos_token_id 38: pooled at the first 38, though padding (39) is higher",
            **common,
        ),
        Golden(
            "clip/images",
            model("gelu", 38, 38, projection_dim=12),
            image_cases(960),
            ["image_embeds", "last_hidden_state"],
            lambda model: {"": model.vision_model.encoder.layers},
            "the image tower of a whole CLIP, as CLIPVisionModelWithProjection reads it",
            reader=hf.CLIPVisionModelWithProjection.from_pretrained,
            spare=("text_model.", "text_projection.", "logit_scale"),
        ),
        Golden(
            "clip/texts",
            model("gelu", 38, 38, projection_dim=12),
            only_texts(clip_cases(40, 38, 39, 970)),
            ["text_embeds", "last_hidden_state"],
            lambda model: {"": model.text_model.encoder.layers},
            "the text tower of a whole CLIP, as CLIPTextModelWithProjection reads it",
            reader=hf.CLIPTextModelWithProjection.from_pretrained,
            spare=("vision_model.", "visual_projection.", "logit_scale"),
            padding_is_free=False,
        ),
    ]


def only_texts(cases: Mapping[str, Case]) -> dict[str, Case]:
    """The same cases without images."""
    return {
        name: replace(case, inputs={key: value for key, value in case.inputs.items() if key != "pixel_values"})
        for name, case in cases.items()
    }


def siglip() -> list[Golden]:
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
    text = sizes | {"vocab_size": 40, "max_position_embeddings": 12}

    def model(**others: object) -> hf.SiglipModel:
        vision = {**sizes, "num_attention_heads": 2, "image_size": 12, "patch_size": 4}
        return hf.SiglipModel(hf.SiglipConfig(text_config=text | others, vision_config=vision | others))

    cases = clip_cases(40, 39, 1, 980)  # one with a mask: the last token is pooled all the same
    del cases["left_padding"]
    cases["right_padding"] = replace(cases["right_padding"], compare="kept")
    common: dict[str, Any] = {"padding_is_free": False}
    return [
        Golden(
            "siglip/base",
            model(),
            cases,
            SIMILARITIES,
            lambda model: {"text.": model.text_model.encoder.layers, "vision.": model.vision_model.encoder.layers},
            "gelu_pytorch_tanh; the image is pooled by attention with a learned query, the text at its last token",
            **common,
        ),
        Golden(
            "siglip/images",
            model(hidden_act="gelu"),
            image_cases(990),
            ["last_hidden_state", "pooler_output"],
            lambda model: {"": model.encoder.layers},
            "the image tower of a whole SigLIP, as SiglipVisionModel reads it; gelu",
            reader=hf.SiglipVisionModel.from_pretrained,
            spare=("text_model.", "logit_"),
        ),
        Golden(
            "siglip/texts",
            model(hidden_act="gelu"),
            only_texts(cases),
            ["last_hidden_state", "pooler_output"],
            lambda model: {"": model.encoder.layers},
            "the text tower of a whole SigLIP, as SiglipTextModel reads it; gelu",
            reader=hf.SiglipTextModel.from_pretrained,
            spare=("vision_model.", "logit_"),
            **common,
        ),
    ]
