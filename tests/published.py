"""Option sets of published checkpoints, and tiny models with the same options.

`goldens/published/configs.json` has by name the options as on the hub, but for those that say nothing of the model
(names, labels, tasks, how text is generated). An entry may be ``like`` another one, ``without`` some of its options.
Its ``source`` is a file on GitHub that has these names and values; without one they are from memory.
`tools/published_configs` makes the answers.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Shapes = Mapping[str, tuple[int, ...]]

ROOT = Path(__file__).parent / "goldens" / "published"
SOURCE, TARGET = [[5, 9, 17, 3, 11], [2, 8, 13, 4, 1]], [[2, 7, 12], [2, 6, 9]]

_TEXT = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
}
DECODER = {**_TEXT, "num_key_value_heads": 2}
_MOE = {**DECODER, "num_experts_per_tok": 2}
_LATENT = {
    **{**_TEXT, "num_key_value_heads": 4, "kv_lora_rank": 16, "v_head_dim": 8},
    **{"qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "first_k_dense_replace": 1, "n_shared_experts": 1},
    **{"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8},
}
_DELTA = {
    **{**DECODER, "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4},
    **{"linear_key_head_dim": 8, "linear_value_head_dim": 8, "full_attention_interval": 2},
}
_GLM = {**DECODER, "head_dim": 8, "pad_token_id": 1, "eos_token_id": 2}
_SEQ2SEQ = {
    "vocab_size": 64,
    "d_model": 32,
    "max_position_embeddings": 64,
    **{f"{side}_layers": 2 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": 40 for side in ("encoder", "decoder")},
}
_T5 = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_heads": 4}
_STACK = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
_IMAGE = {**{name: _TEXT[name] for name in _STACK}, "image_size": 16, "patch_size": 8}
_SOUND = {
    **{name: _TEXT[name] for name in _STACK},
    "conv_dim": [16, 16],
    "conv_kernel": [4, 3],
    "conv_stride": [2, 2],
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 4,
}
_STAGES = {"hidden_sizes": [8, 16], "depths": [1, 2], "num_stages": 2, "patch_size": 4, "image_size": 32}
_SWIN = {"embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 2, "image_size": 32, "patch_size": 4}
_MAMBA = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_heads": 4,
    "head_dim": 16,
    "n_groups": 2,
    "state_size": 8,
}
_WHISPER = {
    **{name: size for name, size in _SEQ2SEQ.items() if name != "max_position_embeddings"},
    "num_mel_bins": 8,
    "max_source_positions": 16,
    "max_target_positions": 16,
    "pad_token_id": 1,
    "decoder_start_token_id": 2,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
_TOWERS = {"text_config": _TEXT, "vision_config": _IMAGE}
_SEGFORMER = {
    "hidden_sizes": [8, 8, 16, 16],
    "depths": [1, 1, 1, 1],
    "num_attention_heads": [1, 2, 2, 4],
    "decoder_hidden_size": 8,
    "image_size": 64,
}
_DEPTH = {
    "backbone_config": {
        **{name: size for name, size in _IMAGE.items() if name != "intermediate_size"},
        "model_type": "dinov2",
        "out_features": ["stage1", "stage2"],
        "out_indices": [1, 2],
        "reshape_hidden_states": False,
    },
    "neck_hidden_sizes": [8, 8],
    "reassemble_factors": [2, 1],
    "reassemble_hidden_size": 32,
    "fusion_hidden_size": 8,
    "head_hidden_size": 8,
    "patch_size": 8,
}
_RESNET = {"hidden_sizes": [8, 16], "depths": [1, 1], "embedding_size": 8}
_DETR = {
    **{name: size for name, size in _SEQ2SEQ.items() if name not in ("vocab_size", "max_position_embeddings")},
    "num_queries": 5,
    "use_timm_backbone": False,  # so that timm is not needed
    "backbone": None,
    "backbone_config": {"model_type": "resnet", **_RESNET, "out_features": ["stage2"], "out_indices": [2]},
}
_RT_DETR = {
    **{name: size for name, size in _DETR.items() if name.startswith(("d_", "decoder_"))},
    **{"encoder_hidden_dim": 32, "encoder_attention_heads": 4, "encoder_ffn_dim": 40, "num_queries": 5},
    **{"encoder_in_channels": [8, 8, 16], "decoder_in_channels": [32, 32, 32]},
    "backbone_config": {
        **{"model_type": "rt_detr_resnet", "hidden_sizes": [8, 8, 8, 16], "depths": [1, 1, 1, 1], "embedding_size": 8},
        **{"out_features": ["stage2", "stage3", "stage4"], "out_indices": [2, 3, 4]},
    },
}
_IMAGES_IN_TEXT = {
    "text_config": {**DECODER, "head_dim": 8, "model_type": "llama", "pad_token_id": 1},
    "vision_config": _IMAGE,
    "image_token_id": 63,
    "scale_factor": 2,
}
SIZES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("t5", "mt5", "umt5"), _T5),
    **dict.fromkeys(("bart", "mbart", "m2m_100"), _SEQ2SEQ),
    **dict.fromkeys(
        ("vit", "deit", "dinov2", "dinov2_with_registers", "clip_vision_model", "siglip_vision_model"), _IMAGE
    ),
    **dict.fromkeys(("clip_text_model", "siglip_text_model"), _TEXT),
    "gemma3": {
        "text_config": {**DECODER, "head_dim": 16, "sliding_window": 3},
        "vision_config": _IMAGE,
        "mm_tokens_per_image": 4,
    },
    **dict.fromkeys(("smolvlm", "idefics3"), _IMAGES_IN_TEXT),
    "segformer": _SEGFORMER,
    "dinov3_vit": _IMAGE,
    "depth_anything": _DEPTH,
    "resnet": _RESNET,
    "detr": _DETR,
    **dict.fromkeys(("rt_detr", "rt_detr_v2"), _RT_DETR),
    **dict.fromkeys(("wav2vec2", "hubert", "wavlm"), _SOUND),
    **dict.fromkeys(("convnext", "convnextv2"), _STAGES),
    **dict.fromkeys(("clip", "siglip"), _TOWERS),
    "albert": {**_TEXT, "embedding_size": 16},
    "electra": {**_TEXT, "embedding_size": 16},
    "distilbert": {"vocab_size": 64, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 40},
    "deberta-v2": {**_TEXT, "position_buckets": 16},
    **dict.fromkeys(("glm", "glm4"), _GLM),
    "gpt_neox": _TEXT,
    "falcon": {**{n: size for n, size in _TEXT.items() if n != "intermediate_size"}, "ffn_hidden_size": 40},
    "phi": {**DECODER, "hidden_size": 80},
    "helium": {**DECODER, "head_dim": 8},
    "marian": {**_SEQ2SEQ, "pad_token_id": 1, "decoder_start_token_id": 2, "eos_token_id": 0},
    "phi3": {**DECODER, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2},
    "smollm3": {**DECODER, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2},
    "gpt2": {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "mamba2": _MAMBA,
    "deepseek_v2": _LATENT,
    "deepseek_v3": {**_LATENT, "q_lora_rank": 16, "n_group": 2, "topk_group": 1},
    "qwen3_next": {
        **_DELTA,
        **_MOE,
        "num_experts": 4,
        "moe_intermediate_size": 8,
        "shared_expert_intermediate_size": 8,
    },
    "qwen3_5_text": _DELTA,
    "qwen3_5": {"text_config": _DELTA, "vision_config": {**_IMAGE, "depth": 1, "num_heads": 4, "out_hidden_size": 32}},
    "lfm2": {**DECODER, "num_hidden_layers": 3, "block_multiple_of": 8, "block_ff_dim": 48},
    "mixtral": {**DECODER, "num_local_experts": 4},
    "qwen3_moe": {**DECODER, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
    "qwen2_moe": {**_MOE, "num_experts": 4, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 16},
    "olmoe": {**_MOE, "num_experts": 4},
    "granitemoe": {**_MOE, "num_local_experts": 4},
    "gpt_oss": {**_MOE, "num_local_experts": 4, "head_dim": 8},
    "swin": _SWIN,
    "whisper": _WHISPER,
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "ernie", "mpnet"), _TEXT),
    **dict.fromkeys(("nomic_bert", "jina_embeddings_v3", "esm", "deberta", "layoutlm"), _TEXT),
    "roformer": {**_TEXT, "embedding_size": 16},
    "eurobert": {**DECODER, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2},
    "modernbert": {
        **_TEXT,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "cls_token_id": 3,
        "sep_token_id": 3,
    },
}
"""The sizes of tiny models by model_type; of others those of decoders."""
_DISENTANGLED = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
NEEDED: dict[str, dict[str, Any]] = {
    "deberta-v2": _DISENTANGLED,
    "deberta": _DISENTANGLED,
    "esm": {"pad_token_id": 1},
    "gpt_oss": {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4}},
    "ministral": {"head_dim": 16, "sliding_window": 3},
    "ministral3": {
        "rope_parameters": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 2,
            "llama_4_scaling_beta": 0.1,
        }
    },
    "t5": {"scale_decoder_outputs": True},
    "umt5": {"scale_decoder_outputs": True},
}
"""Options without which a type is none that Lucid or transformers reads."""
_HALVES = ("head_dim", "sliding_window", "query_pre_attn_scalar", "attention_head_size", "pooler_hidden_size")
_UNTOLD = ("architectures", "auto_map", "torch_dtype", "dtype", "_name_or_path", "quantization_config")


def _entries() -> dict[str, dict[str, Any]]:
    entries: dict[str, dict[str, Any]] = json.loads((ROOT / "configs.json").read_text("utf-8"))
    return entries


def sources() -> dict[str, str]:
    """The files that option sets come from, repository and path, by the names of the sets."""
    return {name: entry["source"] for name, entry in _entries().items() if "source" in entry}


def option_sets() -> dict[str, dict[str, Any]]:
    """All option sets by name."""
    sets: dict[str, dict[str, Any]] = {}
    for name, entry in _entries().items():
        entry.pop("source", None)
        base = dict(sets[entry.pop("like")]) if "like" in entry else {}
        for option in entry.pop("without", []):
            del base[option]
        sets[name] = base | entry
    return sets


def tiny(options: Mapping[str, Any]) -> dict[str, Any]:
    """The same options with the sizes of a tiny model, where they say them or need them."""
    kind = options.get("model_type")
    sizes = SIZES.get(str(kind), DECODER)
    small_options = {name: value for name, value in options.items() if name not in _UNTOLD} | {
        name: (options.get(name) or {}) | size if isinstance(size, dict) else size for name, size in sizes.items()
    }
    heads = options.get("num_attention_heads", 32)
    if "num_key_value_heads" in sizes and options.get("num_key_value_heads", 8) in (heads, None):
        small_options["num_key_value_heads"] = options["num_key_value_heads"] and 4  # as many as heads, or null
    if "num_key_value_heads" in sizes and options.get("num_key_value_heads") == 1:
        small_options["num_key_value_heads"] = 1
    small = {"head_dim": 16, "sliding_window": 3, "query_pre_attn_scalar": 16, "local_attention": 4}
    small |= {"attention_head_size": 8, "pooler_hidden_size": 32, "pad_token_id": 1, "eos_token_id": 2}
    small |= {"decoder_start_token_id": 2, "decoder_vocab_size": 64, "num_decoder_layers": 2, "cls_token_id": 3}
    small |= {"max_relative_positions": 32 if (options.get("max_relative_positions") or 0) > 0 else -1}
    small |= {"original_max_position_embeddings": 32, "bos_token_id": 0, "encoder_stride": 8, "classifier_proj_size": 8}
    small |= {"max_window_layers": 1 if (options.get("max_window_layers") or 0) else 0, "sep_token_id": 3}
    small |= {"num_kv_heads": 2, "num_feat_extract_layers": 2, "out_features": ["stage2"], "out_indices": [2]}
    small |= {"n_group": min(options.get("n_group") or 1, 2), "topk_group": 1}
    small |= {"stage_names": ["stem", "stage1", "stage2"]}
    small_options |= {name: size for name, size in small.items() if options.get(name) is not None and name not in sizes}
    for name in ("text_config_dict", "vision_config_dict"):
        if options.get(name) is not None:
            small_options[name] = {**options[name], **_TOWERS[name.removesuffix("_dict")]}
    aliases = {"num_hidden_layers": 2, "n_ctx": 64, "hidden_size": 32, "num_layers": 2}
    small_options |= {name: size for name, size in aliases.items() if name in options and name not in sizes}
    for name in ("layer_types", "no_rope_layers", "mlp_only_layers"):
        if options.get(name):
            small_options[name] = [options[name][0], options[name][-1]] if name != "mlp_only_layers" else [0]
    for name in ("rope_scaling", "rope_parameters"):
        if isinstance(options.get(name), dict):
            small_options[name] = _tiny_rope(options[name], small_options)
    return small_options


def _tiny_rope(rope: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Rotary parameters for few positions and narrow heads."""
    small_rope: dict[str, Any] = {}
    width = config.get("head_dim", 8)
    rotated = int(width * config.get("partial_rotary_factor", 1.0)) // 2
    for name, value in rope.items():
        if isinstance(value, dict):
            small_rope[name] = _tiny_rope(value, config)
        elif name in ("long_factor", "short_factor"):
            small_rope[name] = value[:rotated]
        else:
            small_rope[name] = 32 if name == "original_max_position_embeddings" else value
    return small_rope


def weights_of(shapes: Shapes) -> dict[str, Array]:
    """Random weights of these names and shapes, the same everywhere: those of norms are near 1."""
    weights = {}
    for name, shape in shapes.items():
        noise = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape)
        around = 1.0 if name.endswith(("weight", "running_var")) and len(shape) == 1 else 0.0
        weights[name] = np.asarray(around + noise * (0.1 if len(shape) < 2 else 0.25), np.float32)
    return weights


def inputs_of(options: Mapping[str, Any]) -> dict[str, Array]:
    """The inputs of a tiny model."""
    kind = str(options["model_type"])
    rng = np.random.default_rng(7)
    ids, decoder_ids = np.array(SOURCE), np.array(TARGET)
    if kind == "whisper":
        sound = rng.standard_normal((2, options["num_mel_bins"], 2 * options["max_source_positions"]))
        return {"input_features": sound.astype(np.float32), "decoder_input_ids": decoder_ids}
    if kind in ("wav2vec2", "hubert", "wavlm"):
        return {"input_values": rng.standard_normal((2, 120)).astype(np.float32)}
    vision = options.get("vision_config", options.get("backbone_config", options))
    side = vision.get("image_size", 64)
    pictures = "clip siglip clip_vision_model siglip_vision_model vit deit dinov2 swin convnext segformer dinov3_vit"
    if kind in (
        *pictures.split(),
        "depth_anything",
        "dinov2_with_registers",
        "convnextv2",
        "resnet",
        "detr",
        "rt_detr",
        "rt_detr_v2",
    ):
        height, width = side if isinstance(side, list) else (side, side)
        pixels = rng.standard_normal((2, vision.get("num_channels", 3), height, width)).astype(np.float32)
        return {"input_ids": ids, "pixel_values": pixels} if kind in ("clip", "siglip") else {"pixel_values": pixels}
    if kind in ("smolvlm", "idefics3"):
        ids[:, 1] = options["image_token_id"]
        return {"input_ids": ids, "pixel_values": rng.standard_normal((2, 1, 3, side, side)).astype(np.float32)}
    if kind == "layoutlm":
        return {"input_ids": ids, "bbox": np.sort(rng.integers(0, 1000, (*ids.shape, 4)), axis=-1)}
    if "d_model" in options:
        return {"input_ids": ids, "decoder_input_ids": decoder_ids}
    return {"input_ids": ids}


def sample(output: Array) -> list[float]:
    """Some numbers of an output, evenly spaced, and its largest one."""
    flat = np.asarray(output, np.float64).ravel()
    places = np.linspace(0, flat.size - 1, 12).astype(int)
    return [float(f"{x:.7g}") for x in (*flat[places], np.abs(flat).max())]
