"""Small random models of transformers by model type, with inputs: what `tools.from_torch_types` tries."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import CONFIG_MAPPING, PretrainedConfig
from transformers.models.auto import modeling_auto

ROOT = Path(__file__).parents[1]
MAPPINGS = [
    getattr(modeling_auto, name)
    for name in ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "MODEL_MAPPING_NAMES", *sorted(vars(modeling_auto)))
    if name.startswith("MODEL_") and name.endswith("MAPPING_NAMES")
]
SMALL: dict[str, int] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "embed_dim", "dim", "d_embed", "embedding_size"), 32),
    **dict.fromkeys(("word_embed_proj_dim", "moe_intermediate_size", "image_size", "projection_dim"), 32),
    **dict.fromkeys(("intermediate_size", "d_ff", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "hidden_dim"), 64),
    **dict.fromkeys(("n_inner", "max_position_embeddings", "n_positions"), 64),
    **dict.fromkeys(("head_dim", "d_kv", "patch_size", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"), 8),
    "rotary_dim": 4,
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "index_head_dim"), 16),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"), 4),
    **dict.fromkeys(("decoder_attention_heads", "num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_experts_per_tok", "n_group"), 2),
}
SHALLOW: dict[str, int] = {
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_decoder_layers", "num_encoder_layers", "depth", "num_dense_layers"), 2),
    "image_size": 64,
    "num_queries": 10,
    **dict.fromkeys(("entity_vocab_size", "vocab_size_per_layer_input"), 128),
    "vocab_size": 128,
    "type_vocab_size": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 0,
}
UNSET = (
    "num_key_value_heads",
    "pad_token_id",
    "vocab_size",
    "head_dim",
    "num_experts_per_tok",
)  # given a number even where a config has None
LEVELS: tuple[dict[str, int], ...] = (SHALLOW | SMALL, SHALLOW, {})
"""What is made small: all sizes, or the depth, or nothing. The first that gives a model that runs is taken."""
WIDE = {
    **{name: {4: 6, 8: 64, 16: 128, 32: 384, 64: 1536}.get(size, size) for name, size in SMALL.items()},
    **{name: 4 if size == 2 else size for name, size in SHALLOW.items() if name.endswith(("layers", "layer"))},
    **{"vocab_size": 1000, "type_vocab_size": 2, "image_size": 128, "patch_size": 16},
    **{name: size for name, size in SHALLOW.items() if name.endswith("token_id")},
}
"""Realistic widths, for times."""
LIMIT = 100_000_000
MROPE = {"text_config": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}}}
RESNET = {"backbone_config": {"model_type": "resnet", "out_features": ["stage4"]}}
FACTS: dict[str, dict[str, Any]] = {
    "dbrx": {"attn_config": {"rope_theta": 1e4, "clip_qkv": 8.0}},
    "depth_anything": {
        **{"neck_hidden_sizes": [16, 32], "reassemble_factors": [2, 1], "reassemble_hidden_size": 32},
        "backbone_config": {"out_indices": [1, 2], "reshape_hidden_states": False},
    },
    "detr": RESNET,
    "encoder-decoder": {"encoder": {"model_type": "bert"}, "decoder": {"model_type": "bert"}},
    "gemma3n": {"text_config": {"num_kv_shared_layers": 0}},
    "granitemoehybrid": {"mamba_n_heads": 4, "mamba_d_head": 16, "layer_types": ["linear_attention", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "mamba2": {"head_dim": 16, "n_groups": 2},
    "mistral4": {"head_dim": 16},
    "perceiver": {"num_latents": 8, "d_latents": 32, "num_self_attends_per_block": 2},
    "qwen2_5_vl": MROPE,
    "qwen2_vl": MROPE,
    "rt_detr": {"encoder_layers": 1},
    "rt_detr_v2": {"encoder_layers": 1},
    "d_fine": {"encoder_layers": 1},
    "table-transformer": RESNET,
    "zamba2": {
        **{"layers_block_type": ["linear_attention", "hybrid"], "n_mamba_heads": 4, "mamba_d_state": 16},
        **{"hybrid_layer_ids": [1], "num_mem_blocks": 1},
    },
    "zoedepth": {
        "backbone_config": {
            **{
                "model_type": "beit",
                "num_hidden_layers": 4,
                "out_indices": [1, 2, 3, 4],
                "reshape_hidden_states": False,
            },
            "use_relative_position_bias": True,
        },
        **{"neck_hidden_sizes": [8, 16, 32, 64], "num_attractors": [4, 2, 2, 1], "fusion_hidden_size": 32},
        **{"bottleneck_features": 32, "bin_embedding_dim": 16},
    },
}
"""What a config needs besides its sizes."""
SHAPES: dict[str, dict[str, tuple[Any, ...]]] = {
    "audio-spectrogram-transformer": {"input_values": (1024, 128)},
    "clap": {"input_ids": ("L",), "input_features": (1, 1001, 64), "attention_mask": ("L",)},
    "cohere_asr": {"input_features": (64, 80), "decoder_input_ids": ("M",)},
    "dac": {"input_values": (1, 4000)},
    "decision_transformer": {
        **{"states": ("L", 17), "actions": ("L", 4), "rewards": ("L", 1), "returns_to_go": ("L", 1)},
        **{"timesteps": ("L",), "attention_mask": ("L",)},
    },
    "mimi": {"input_values": (1, 4000)},
    "parakeet_ctc": {"input_features": (64, 80)},
    "patchtsmixer": {"past_values": (32, 1)},
    "patchtst": {"past_values": (32, 1)},
    "perceiver": {"inputs": ("L", 32)},
    "pix2struct": {"flattened_patches": (16, 770), "decoder_input_ids": ("M",)},
    "speech-encoder-decoder": {"input_values": ("T",), "decoder_input_ids": ("M",)},
    "speech_to_text": {"input_features": (60, 80), "decoder_input_ids": ("M",)},
    "speecht5": {"input_values": (4000,), "decoder_input_ids": ("M",)},
    "vit_mae": {"pixel_values": (3, 32, 32), "noise": (16,)},
    "wav2vec2-bert": {"input_features": (60, 160)},
}
"""The axes after the first of inputs that the tool cannot guess."""
ALSO = re.findall(
    r"\S+",
    "biogpt blip dbrx deepseek_v2 ernie fnet glm4 granitemoe jamba jetmoe luke mamba mamba2 persimmon phimoe rwkv "
    "speech-encoder-decoder superpoint switch_transformers umt5 vitdet xglm xlnet zamba2 zoedepth",
)


def types() -> list[str]:
    """The model types of optimum's, onnxruntime-genai's and transformers.js's own tables that transformers has, and `ALSO`.

    Raises:
        FileNotFoundError: where one of the three is not installed.
    """
    optimum, genai, javascript = (path.read_text() for path in _tables())
    names = set(re.findall(r'register_tasks_manager_onnx\(\s*"([\w-]+)"', optimum))
    names |= set(re.findall(r"\['([\w-]+)', '\w+'\]", javascript))
    classes = set(re.findall(r'architectures\[0\] == "(\w+)"', genai))
    names |= {kind for mapping in MAPPINGS for kind, name in mapping.items() if name in classes}
    return sorted(name for name in {*names, *ALSO} if name in CONFIG_MAPPING)


def _tables() -> Iterator[Path]:
    for package, path in (("optimum", "exporters/onnx/model_configs.py"), ("onnxruntime_genai", "models/builder.py")):
        spec = find_spec(package)
        folders = spec.submodule_search_locations if spec else None
        if not folders:
            raise FileNotFoundError(f"{package} is not installed, whose table of model types is read")
        yield Path(folders[0]) / path
    yield ROOT / "tests/consumers/node_modules/@huggingface/transformers/src/models/registry.js"


def small_config(config: PretrainedConfig, sizes: dict[str, int], facts: dict[str, Any]) -> PretrainedConfig:
    """A config like this one, with these sizes and those in its inner configs, and what else is known of its type."""
    options: dict[str, Any] = {}
    if isinstance(vars(config).get("depths"), (list, tuple)):  # sizes by stage, which depend on each other
        options, sizes = config.to_dict(), {"image_size": 64} if sizes else {}
    for name, size in sizes.items():
        name = config.attribute_map.get(name, name)
        value = vars(config).get(name, "")
        if (isinstance(value, int) and not isinstance(value, bool)) or (value is None and name in UNSET):
            options[name] = size
    if "kv_lora_rank" in options:  # latent attention has no groups of heads
        options["num_key_value_heads"] = options["num_attention_heads"]
    options |= facts
    inner = {name: value for name, value in vars(config).items() if isinstance(value, PretrainedConfig)}
    inner |= {name: CONFIG_MAPPING[kind]() for name, kind in _kinds(facts)}
    options |= {name: small_config(value, sizes, facts.get(name, {})).to_dict() for name, value in inner.items()}
    small = type(config)(**options)
    small.use_cache = False
    return small


def _kinds(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """The inner configs that facts name a type for."""
    return [
        (name, fact["model_type"]) for name, fact in facts.items() if isinstance(fact, dict) and "model_type" in fact
    ]


def small_model(
    kind: str, sizes: Sequence[tuple[int, int]], levels: Sequence[dict[str, int]] = LEVELS
) -> tuple[Any, int]:
    """The first model of a type that runs at some sizes of inputs, and the way of its inputs.

    Its class is that of language models, or of base models, or any other.
    """
    names = dict.fromkeys(mapping[kind] for mapping in MAPPINGS if kind in mapping)
    classes = [getattr(transformers, name if isinstance(name, str) else name[0]) for name in names][:3]
    first: Exception | None = None
    for level, model_class in product(levels, classes):
        try:
            model = random_model(model_class, small_config(CONFIG_MAPPING[kind](), level, FACTS.get(kind, {})))
        except Exception as error:  # noqa: BLE001  # any error of another library
            first = first or error
            continue
        for way in (0, 1):
            try:
                with torch.no_grad():
                    for rows, length in sizes:
                        model(**inputs_of(kind, model, rows, length, way)[0])
            except Exception as error:  # noqa: BLE001
                first = first or error
            else:
                return model, way
    raise first or ValueError("no model")


def random_model(model_class: Any, config: PretrainedConfig) -> Any:
    """A model with random weights.

    Raises:
        ValueError: for one with more than `LIMIT` parameters.
    """
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in model_class._from_config(config).parameters())
    if count > LIMIT:
        raise ValueError(f"{count // 1_000_000} million parameters")
    torch.manual_seed(0)
    model = model_class._from_config(config)
    with torch.no_grad():  # all zeros or all ones would make ties and hide faults
        for parameter in model.parameters():
            if parameter.numel() > 1 and bool((parameter == parameter.flatten()[0]).all()):
                parameter.add_(torch.randn(parameter.shape) * 0.1)
    return model.eval().float()


def inputs_of(
    kind: str, model: Any, rows: int, length: int, way: int
) -> tuple[dict[str, torch.Tensor], dict[str, tuple[Any, ...]]]:
    """Random inputs by name, and their axes: all that are known (way 0), or the required ones and the first (1)."""
    config, parameters = model.config, inspect.signature(model.forward).parameters
    draw = torch.Generator().manual_seed(1)
    inner = [*(value for value in vars(config).values() if isinstance(value, PretrainedConfig)), config]

    def option(name: str, default: Any) -> Any:
        values = (getattr(part, name, None) for part in inner)
        return next((value for value in values if isinstance(value, (int, list, tuple)) and value), default)

    side = option("image_size", 64)
    shapes: dict[str, tuple[Any, ...]] = {
        "input_ids": ("L",),
        "pixel_values": (option("num_channels", 3), *(side if isinstance(side, (list, tuple)) else (side, side))),
        "input_values": ("T",),
        "input_features": (option("num_mel_bins", 80), 60),
        "attention_mask": ("L",),
        "decoder_input_ids": ("M",),
        "bbox": ("L", 4),
    }
    shapes = SHAPES.get(kind, shapes)
    names = [name for name in shapes if name in parameters]
    if "input_ids" not in names and kind not in SHAPES:
        names = [name for name in names if name != "attention_mask"]
    if way == 1:
        optional = [name for name in names[1:] if parameters[name].default is not inspect.Parameter.empty]
        names = [name for name in names if name not in optional]
    sizes = {"L": length, "M": length - 2, "T": 4000}
    inputs = {name: _drawn(name, (rows, *(sizes.get(size, size) for size in shapes[name])), draw) for name in names}
    return inputs, {
        name: ("N", *(size if size in ("L", "M", "T") else None for size in shapes[name])) for name in names
    }


def _drawn(name: str, shape: tuple[int, ...], draw: torch.Generator) -> torch.Tensor:
    """A random input; its name tells what it holds."""
    if name == "attention_mask":
        mask = torch.ones(shape, dtype=torch.long)
        mask[0, shape[1] - 2 :] = 0
        return mask
    if name == "bbox":
        return torch.randint(0, 50, shape, generator=draw).sort(-1).values
    if name.endswith("_ids") or name == "timesteps":
        return torch.randint(3, 100, shape, generator=draw)
    return torch.randn(shape, generator=draw)


def outputs_of(result: Any) -> dict[str, np.ndarray]:
    """The tensors of a result by name; those of a tuple have its name and their places, as in exported files."""
    tensors: dict[str, np.ndarray] = {}
    for key, value in result.items():
        if isinstance(value, (tuple, list)):
            tensors |= outputs_of({f"{key}_{place}": item for place, item in enumerate(value)})
        elif hasattr(value, "numpy"):
            tensors[key] = np.asarray(value.numpy())
    return tensors
