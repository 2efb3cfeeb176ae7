"""The models of the table of whole models: published widths, few layers, random weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.graphs import Array

VOCABULARY = 32000  # of language models: a larger one adds the same product to every exporter


@dataclass(frozen=True)
class Entry:
    """A checkpoint with random weights, and one input.

    `kind` is the model_type of config.json, `twin` the class of transformers, `shapes` the inputs with their batch
    first; `options` are those of config.json that are not transformers' defaults. `same` names models that are exported
    by the same code and differ in no node that takes time. `image_tokens`: how many tokens in the place of an image
    each text begins with.
    """

    name: str
    kind: str
    twin: str
    shapes: Mapping[str, tuple[int, ...]]
    options: Mapping[str, Any] = field(default_factory=dict)
    same: str = ""
    image_tokens: int = 0

    def inputs(self, batch: int | None = None) -> dict[str, Array]:
        """Random inputs; `batch`: another number of texts or images."""
        rng, inputs = np.random.default_rng(0), dict[str, Array]()
        for name, (first, *rest) in self.shapes.items():
            shape = (first if batch is None else batch, *rest)
            if name == "attention_mask":
                inputs[name] = np.ones(shape, np.int64)
            elif name == "bbox":
                inputs[name] = np.sort(rng.integers(0, 1000, shape), axis=-1)  # corners in their order
            elif name.endswith("_ids"):
                inputs[name] = rng.integers(5, 1000, shape)
                inputs[name][:, : self.image_tokens] = self.options.get("image_token_id", 0)
            else:
                inputs[name] = rng.standard_normal(shape, np.float32)
        return inputs


def _text(batch: int = 1, length: int = 128) -> dict[str, tuple[int, ...]]:
    return {"input_ids": (batch, length), "attention_mask": (batch, length)}


def _image(batch: int = 1, size: int = 224) -> dict[str, tuple[int, ...]]:
    return {"pixel_values": (batch, 3, size, size)}


def _two_texts(length: int = 128, target: int = 64) -> dict[str, tuple[int, ...]]:
    return {"input_ids": (1, length), "decoder_input_ids": (1, target), "attention_mask": (1, length)}


_TWO_TOWERS = {"input_ids": (2, 16), "pixel_values": (2, 3, 224, 224), "attention_mask": (2, 16)}


def _layers(count: int, **options: Any) -> dict[str, Any]:
    return {"num_hidden_layers": count, **options}


def _decoder(width: int, inner: int, heads: int, kv_heads: int, **options: Any) -> dict[str, Any]:
    sizes = {"hidden_size": width, "intermediate_size": inner, "num_attention_heads": heads}
    return _layers(2, **sizes, num_key_value_heads=kv_heads, vocab_size=VOCABULARY, **options)


ZOO = [
    Entry(
        "BERT base",
        "bert",
        "BertModel",
        _text(),
        _layers(4),
        "RoBERTa, DistilBERT, XLM-RoBERTa, CamemBERT, ELECTRA, ERNIE, sentence encoders",
    ),
    Entry("MPNet base", "mpnet", "MPNetModel", _text(), _layers(4)),
    Entry(
        "ALBERT base",
        "albert",
        "AlbertModel",
        _text(),
        _layers(4, hidden_size=768, intermediate_size=3072, num_attention_heads=12),
    ),
    Entry(
        "LayoutLM base",
        "layoutlm",
        "LayoutLMModel",
        {"input_ids": (1, 128), "bbox": (1, 128, 4), "attention_mask": (1, 128)},
        _layers(4),
    ),
    Entry("ModernBERT base", "modernbert", "ModernBertModel", _text(length=512), _layers(4)),
    Entry("EuroBERT 210M", "eurobert", "EuroBertModel", _text(), _layers(4)),
    Entry(
        "DeBERTa-v3 base",
        "deberta-v2",
        "DebertaV2Model",
        _text(),
        _layers(
            4,
            hidden_size=768,
            intermediate_size=3072,
            num_attention_heads=12,
            relative_attention=True,
            position_buckets=256,
            max_relative_positions=-1,
            share_att_key=True,
            norm_rel_ebd="layer_norm",
            pos_att_type="p2c|c2p",
            position_biased_input=False,
            type_vocab_size=0,
        ),
    ),
    Entry("GPT-2 small", "gpt2", "GPT2LMHeadModel", _text(), {"n_layer": 4}),
    Entry(
        "Llama (SmolLM2-360M)",
        "llama",
        "LlamaForCausalLM",
        _text(),
        _decoder(960, 2560, 15, 5),
        "Mistral, Ministral, SmolLM3, Granite, Helium, Seed-OSS",
    ),
    Entry("Qwen2 0.5B", "qwen2", "Qwen2ForCausalLM", _text(), _decoder(896, 4864, 14, 2)),
    Entry("Qwen3 0.6B", "qwen3", "Qwen3ForCausalLM", _text(), _decoder(1024, 3072, 16, 8, head_dim=128)),
    Entry(
        "Falcon, part of 7B",
        "falcon",
        "FalconForCausalLM",
        _text(),
        _layers(2, hidden_size=1024, num_attention_heads=16),
    ),
    Entry("OLMo 2, half of 1B", "olmo2", "Olmo2ForCausalLM", _text(), _decoder(1024, 4096, 8, 8)),
    Entry(
        "Mixtral, quarter",  # its experts are those of benchmarks/experts.py, and so are Qwen3's
        "mixtral",
        "MixtralForCausalLM",
        _text(),
        _decoder(1024, 1792, 8, 2),
    ),
    Entry(
        "Qwen3-MoE, half",
        "qwen3_moe",
        "Qwen3MoeForCausalLM",
        _text(),
        _decoder(1024, 3072, 16, 2, head_dim=128, num_experts=64, num_experts_per_tok=8, moe_intermediate_size=384),
    ),
    Entry(
        "Gemma 2, half of 2B",
        "gemma2",
        "Gemma2ForCausalLM",
        _text(),
        _decoder(1152, 4608, 4, 2, head_dim=256),
    ),
    Entry("Gemma 3 270M", "gemma3_text", "Gemma3ForCausalLM", _text(), _decoder(640, 2048, 4, 1, head_dim=256)),
    Entry("Phi-3 mini, half", "phi3", "Phi3ForCausalLM", _text(), _decoder(1536, 4096, 16, 16, pad_token_id=0)),
    Entry(
        "DeepSeek-V2-Lite, half",
        "deepseek_v2",
        "DeepseekV2ForCausalLM",
        _text(),
        _decoder(
            *(1024, 5472, 8, 8),
            q_lora_rank=None,
            first_k_dense_replace=1,
            n_routed_experts=32,
            num_experts_per_tok=6,
            moe_intermediate_size=704,
        ),
    ),
    Entry(
        "Qwen3-Next, half",  # three layers of the gated delta rule, and one of attention
        "qwen3_next",
        "Qwen3NextForCausalLM",
        _text(),
        _decoder(1024, 2816, 8, 1, linear_num_key_heads=8, linear_num_value_heads=16, num_experts=64)
        | _layers(4, moe_intermediate_size=256, shared_expert_intermediate_size=256),
    ),
    Entry(
        "LFM2 350M",
        "lfm2",
        "Lfm2ForCausalLM",
        _text(),
        _decoder(1024, 6656, 16, 8, layer_types=["conv", "full_attention"]),
    ),
    Entry(
        "Mamba-2 130M",
        "mamba2",
        "Mamba2ForCausalLM",
        _text(),
        _layers(4, hidden_size=768, num_heads=24, n_groups=1, vocab_size=VOCABULARY, state_size=128),
    ),
    Entry(
        "T5 base",
        "t5",
        "T5ForConditionalGeneration",
        _two_texts(),
        {"d_model": 768, "d_ff": 3072, "num_heads": 12, "num_layers": 2, "num_decoder_layers": 2},
        "mT5, UMT5",
    ),
    Entry(
        "BART base",
        "bart",
        "BartForConditionalGeneration",
        _two_texts(),
        {
            "d_model": 768,
            "encoder_ffn_dim": 3072,
            "decoder_ffn_dim": 3072,
            "encoder_attention_heads": 12,
            "decoder_attention_heads": 12,
            "encoder_layers": 2,
            "decoder_layers": 2,
        },
        "Marian, mBART, M2M-100, NLLB",
    ),
    Entry("ViT-B/16", "vit", "ViTModel", _image(), _layers(4), "DeiT"),
    Entry("DINOv2 base", "dinov2", "Dinov2Model", _image(), _layers(4, image_size=518, patch_size=14)),
    Entry("DINOv3 ViT-S/16", "dinov3_vit", "DINOv3ViTModel", _image(), _layers(4, num_register_tokens=4)),
    Entry(
        "Depth Anything small",
        "depth_anything",
        "DepthAnythingForDepthEstimation",
        _image(size=252),
        {
            "backbone_config": {
                **{"model_type": "dinov2", "hidden_size": 384, "num_hidden_layers": 4, "num_attention_heads": 6},
                **{"image_size": 518, "patch_size": 14, "out_indices": [1, 2, 3, 4], "reshape_hidden_states": False},
            }
        },
    ),
    Entry("SegFormer B0", "segformer", "SegformerModel", _image(size=512), {}),
    Entry("ResNet-50", "resnet", "ResNetModel", _image(), {}),
    Entry(
        "DETR ResNet-50, half",
        "detr",
        "DetrForObjectDetection",
        _image(size=480),
        {"backbone_config": {"model_type": "resnet"}, "encoder_layers": 3, "decoder_layers": 3, "dropout": 0.0},
    ),
    Entry(
        "RT-DETR ResNet-50",
        "rt_detr",
        "RTDetrForObjectDetection",
        _image(size=640),
        {"decoder_layers": 3},
        "RT-DETR v2",
    ),
    Entry("Swin tiny", "swin", "SwinModel", _image(), {"depths": [2, 2, 2, 2]}),
    Entry("ConvNeXt tiny", "convnext", "ConvNextModel", _image(), {"depths": [2, 2, 2, 2]}),
    Entry("ConvNeXt V2 tiny", "convnextv2", "ConvNextV2Model", _image(), {"depths": [2, 2, 2, 2]}),
    Entry(
        "CLIP ViT-B/32",
        "clip",
        "CLIPModel",
        _TWO_TOWERS,
        {"text_config": _layers(3), "vision_config": _layers(3)},
    ),
    Entry(
        "SigLIP base/16",
        "siglip",
        "SiglipModel",
        {**_TWO_TOWERS, "input_ids": (2, 64), "attention_mask": (2, 64)},
        {"text_config": _layers(2), "vision_config": _layers(2)},
    ),
    Entry(
        "SmolVLM 256M",
        "smolvlm",
        "SmolVLMForConditionalGeneration",
        {**_text(), "pixel_values": (1, 1, 3, 512, 512)},
        {
            "image_token_id": 1,
            "scale_factor": 4,
            "text_config": {"model_type": "llama", **_decoder(576, 1536, 9, 3, pad_token_id=0)},
            "vision_config": _layers(2, hidden_size=768, num_attention_heads=12, image_size=512, patch_size=16),
        },
        "Idefics3",
        image_tokens=64,
    ),
    Entry("wav2vec 2.0 base", "wav2vec2", "Wav2Vec2Model", {"input_values": (1, 16000)}, _layers(2), "HuBERT"),
    Entry(
        "Whisper base",
        "whisper",
        "WhisperForConditionalGeneration",
        {"input_features": (1, 80, 3000), "decoder_input_ids": (1, 64)},
        {
            "d_model": 512,
            "encoder_ffn_dim": 2048,
            "decoder_ffn_dim": 2048,
            "encoder_attention_heads": 8,
            "decoder_attention_heads": 8,
            "encoder_layers": 2,
            "decoder_layers": 2,
        },
    ),
]
