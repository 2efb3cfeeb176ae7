"""GGUF files of each architecture: the model of config.json and safetensors, converted as llama.cpp does.

Names of tensors and metadata are those of the `gguf` library. What its converter changes of a weight is written below.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import (
    MODEL_ARCH,
    MODEL_ARCH_NAMES,
    ExpertGatingFuncType,
    GGUFWriter,
    RopeScalingType,
    get_tensor_name_map,
)

import lucid
from lucid.models.checkpoints.pretrained import ConfigError
from tests.models import goldens
from tests.models.test_gguf import write

Array = np.ndarray[Any, Any]
Weights = dict[str, Array]
USUAL = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers",
    "head_count": "num_attention_heads",
    "head_count_kv": "num_key_value_heads",
}
EXPERTS = {"expert_used_count": "num_experts_per_tok", "expert_feed_forward_length": "moe_intermediate_size"}
LOCAL = {"expert_used_count": "num_experts_per_tok", "expert_count": "num_local_experts"}
SCALES = {
    "attention_scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
}
RMS, LAYER = "layer_norm_rms_eps", "layer_norm_eps"


@dataclass(frozen=True)
class Case:
    """A golden as a GGUF file.

    Args:
        variant: the golden.
        arch: the architecture, as the library calls it.
        adds: what is added to the metadata, by the names of the library's writer, and the options that have it.
        eps: the same of what norms add to the variance.
        changed: options that llama.cpp cannot have, with what its code has.
        prepared: what makes weights that llama.cpp can have.
        turned: whether queries and keys have the rows of their heads in pairs.
        offset: what is added to the weights of norms.
    """

    variant: str
    arch: MODEL_ARCH
    adds: Mapping[str, str] = field(default_factory=dict)
    eps: tuple[str, str] = (RMS, "rms_norm_eps")
    changed: Mapping[str, object] = field(default_factory=dict)
    prepared: Callable[[Weights], Weights] = dict
    turned: bool = False
    offset: float = 0.0


def even(weights: Weights) -> Weights:
    """All layers with the feed-forward network of one that has experts."""
    (layer, *_) = (match[1] for key in weights if (match := re.match(r"model\.layers\.(\d+)\.mlp\.experts\.", key)))
    network = {key.split(".", 3)[3]: w for key, w in weights.items() if key.startswith(f"model.layers.{layer}.mlp.")}
    layers = {key.split(".")[2] for key in weights if key.startswith("model.layers.")}
    kept = {key: w for key, w in weights.items() if ".mlp." not in key}
    return kept | {f"model.layers.{each}.{key}": w for each in layers for key, w in network.items()}


SHARED = {"expert_shared_feed_forward_length": "shared_expert_intermediate_size"}
WINDOW = {"sliding_window": "sliding_window"}
CAPS = {"attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping"}
DEEPSEEK = {
    **EXPERTS,
    "expert_count": "n_routed_experts",
    "expert_shared_count": "n_shared_experts",
    "expert_weights_scale": "routed_scaling_factor",
    "leading_dense_block_count": "first_k_dense_replace",
    "kv_lora_rank": "kv_lora_rank",
    "rope_dimension_count": "qk_rope_head_dim",
}


def tied(weights: Weights) -> Weights:
    return {key: weight for key, weight in weights.items() if key != "lm_head.weight"}


YARN = {
    **{"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 8},
    **{"beta_fast": 8.0, "beta_slow": 1.0, "mscale": 0.8, "mscale_all_dim": 0.8},
}
NO_WINDOW = {"layer_types": None, "sliding_window": None, "use_sliding_window": False, "max_window_layers": None}
CASES = [
    Case(
        "smollm3/base",
        MODEL_ARCH.SMOLLM3,
        changed={**NO_WINDOW, "no_rope_layers": None},
        turned=True,
    ),
    Case("granite/base", MODEL_ARCH.GRANITE, SCALES, turned=True),
    Case("granitemoe/base", MODEL_ARCH.GRANITE_MOE, {**SCALES, **LOCAL}, turned=True),
    Case("mixtral/base", MODEL_ARCH.LLAMA, LOCAL, changed={"sliding_window": None}, turned=True),
    Case(
        "qwen2_moe/base",
        MODEL_ARCH.QWEN2MOE,
        {**EXPERTS, **SHARED},
        changed={**NO_WINDOW, "mlp_only_layers": []},
        prepared=even,
    ),
    Case("qwen3_moe/base", MODEL_ARCH.QWEN3MOE, EXPERTS, changed={"mlp_only_layers": []}, prepared=even),
    Case("olmoe/base", MODEL_ARCH.OLMOE, {"expert_used_count": "num_experts_per_tok"}),
    Case("olmo2/base", MODEL_ARCH.OLMO2),
    Case("seed_oss/base", MODEL_ARCH.SEED_OSS),
    Case("starcoder2/base", MODEL_ARCH.STARCODER2, eps=(LAYER, "norm_epsilon"), changed={"sliding_window": None}),
    Case(
        "cohere/normed",
        MODEL_ARCH.COMMAND_R,
        {"logit_scale": "logit_scale"},
        (LAYER, "layer_norm_eps"),
        {"tie_word_embeddings": True},
        tied,
    ),
    Case(
        "cohere2/base",
        MODEL_ARCH.COHERE2,
        {"logit_scale": "logit_scale", **WINDOW},
        (LAYER, "layer_norm_eps"),
        {"layer_types": None},
    ),
    Case("glm4/base", MODEL_ARCH.GLM4),
    Case("nemotron/base", MODEL_ARCH.NEMOTRON, eps=(LAYER, "norm_eps"), offset=1.0),
    Case("phi/base", MODEL_ARCH.PHI2, eps=(LAYER, "layer_norm_eps")),
    Case("phi3/base", MODEL_ARCH.PHI3, {**WINDOW, "rope_scaling_orig_ctx_len": "original_max_position_embeddings"}),
    Case("phi3/long", MODEL_ARCH.PHI3, {"rope_scaling_orig_ctx_len": "original_max_position_embeddings"}),
    Case("gemma/base", MODEL_ARCH.GEMMA, offset=1.0),
    Case("gemma2/base", MODEL_ARCH.GEMMA2, {**WINDOW, **CAPS}, changed={"query_pre_attn_scalar": 8}, offset=1.0),
    Case(
        "gemma3/base",
        MODEL_ARCH.GEMMA3,
        {**WINDOW, "final_logit_softcapping": "final_logit_softcapping"},
        changed={"layer_types": None, "_sliding_window_pattern": None, "sliding_window_pattern": None},  # then it is 6
        offset=1.0,
    ),
    Case("lfm2/base", MODEL_ARCH.LFM2, {"shortconv_l_cache": "conv_L_cache"}, (RMS, "norm_eps")),
    Case("deepseek_v2/base", MODEL_ARCH.DEEPSEEK2, DEEPSEEK),
    Case(
        "deepseek_v3/base",
        MODEL_ARCH.DEEPSEEK2,
        {
            **DEEPSEEK,
            "q_lora_rank": "q_lora_rank",
            "expert_group_count": "n_group",
            "expert_group_used_count": "topk_group",
            "expert_weights_norm": "norm_topk_prob",
        },
        changed={"rope_parameters": YARN},
    ),
    Case(
        "qwen3_next/base",
        MODEL_ARCH.QWEN3NEXT,
        {
            **EXPERTS,
            **SHARED,
            "ssm_conv_kernel": "linear_conv_kernel_dim",
            "ssm_state_size": "linear_key_head_dim",
            "ssm_group_count": "linear_num_key_heads",
            "ssm_time_step_rank": "linear_num_value_heads",
        },
        changed={"mlp_only_layers": []},
        prepared=even,
        offset=1.0,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.variant.replace("/", "-"))
def test_it_is_the_model_of_config_json_and_safetensors(case: Case, tmp_path: Path) -> None:
    options, weights = prepared(case)
    (tmp_path / "config.json").write_text(json.dumps(options))
    lucid.save(tmp_path / "model.safetensors", weights)
    expected, got = lucid.models.load(tmp_path), lucid.models.load(as_gguf(case, tmp_path / "model.gguf"))
    assert got.config == expected.config
    assert type(got) is type(expected) and got.state_dict().keys() == expected.state_dict().keys()
    for key, tensor in expected.state_dict().items():
        np.testing.assert_allclose(got.state_dict()[key].numpy(), tensor.numpy(), atol=3e-7, err_msg=key)


@pytest.mark.parametrize(
    ("variant", "wrong", "error"),
    [
        ("deepseek_v3/base", {"expert_gating_func": ExpertGatingFuncType.SOFTMAX}, "deepseek2.expert_gating_func = 1"),
        ("deepseek_v3/base", {"expert_group_count": 0}, "metadata deepseek2.expert_group_count is missing or 0"),
        ("gemma3/base", {"sliding_window": 0}, "metadata gemma3.attention.sliding_window is missing or 0"),
        ("olmo2/base", {"sliding_window": 4}, "olmo2.attention.sliding_window = 4"),
        ("qwen3_next/base", {"ssm_inner_size": 25}, r"in_proj_qkvz.weight has shape \[72, 16\], expected"),
    ],
)
def test_what_the_type_cannot_be_is_refused(variant: str, wrong: dict[str, object], error: str, tmp_path: Path) -> None:
    (case,) = (case for case in CASES if case.variant == variant)
    with pytest.raises((ConfigError, KeyError), match=error):
        lucid.models.load(as_gguf(case, tmp_path / "model.gguf", wrong))


# As llama.cpp's converter does it ------------------------------------------------------------------------------------


def prepared(case: Case) -> tuple[dict[str, Any], Weights]:
    """Options and weights that llama.cpp can have."""
    folder = goldens.folder(case.variant)
    options = {**json.loads((folder / "config.json").read_text()), **case.changed}
    options = {name: value for name, value in options.items() if value is not None or name == "q_lora_rank"}
    return options, case.prepared({key: np.array(weight) for key, weight in lucid.load(folder).items()})


def as_gguf(case: Case, path: Path, wrong: Mapping[str, object] | None = None) -> Path:
    options, weights = prepared(case)
    writer = GGUFWriter(path, MODEL_ARCH_NAMES[case.arch])
    for name, value in {**metadata(case, options), **(wrong or {})}.items():
        getattr(writer, f"add_{name}")(value)
    table = get_tensor_name_map(case.arch, options["num_hidden_layers"])
    for key, array in converted(case, options, weights):
        name = table.get_name(key, try_suffixes=(".weight", ".bias"))
        assert name is not None, key
        writer.add_tensor(name, np.ascontiguousarray(array))
    for name in ("long", "short"):
        if f"{name}_factor" in options["rope_parameters"]:
            factors = options["rope_parameters"][f"{name}_factor"]
            writer.add_tensor(f"rope_factors_{name}.weight", np.array(factors, np.float32))
    return write(writer, path)


def metadata(case: Case, options: Mapping[str, Any]) -> dict[str, Any]:
    """By the names of the library's writer."""
    named = {**USUAL, case.eps[0]: case.eps[1], **case.adds}
    told = {name: options[option] for name, option in named.items() if option in options}
    if "num_experts" in options or options["model_type"] == "qwen3_moe":
        told["expert_count"] = options.get("num_experts", options.get("num_local_experts"))
    rope = options["rope_parameters"]
    rope = rope.get("full_attention", rope)
    told["rope_freq_base"] = rope["rope_theta"]
    head_dim = options.get("head_dim", options["hidden_size"] // options["num_attention_heads"])
    if "head_dim" in options:
        told |= {"key_length": head_dim, "value_length": head_dim}
    if "partial_rotary_factor" in rope:
        told["rope_dimension_count"] = int(head_dim * rope["partial_rotary_factor"])
    if rope["rope_type"] == "linear":
        told |= {"rope_scaling_type": RopeScalingType.LINEAR, "rope_scaling_factor": rope["factor"]}
    if options["model_type"] == "lfm2":
        told["head_count_kv"] = [told["head_count_kv"] * (kind != "conv") for kind in options["layer_types"]]
    if case.arch == MODEL_ARCH.DEEPSEEK2:
        told |= {"head_count_kv": 1, "key_length": options["kv_lora_rank"] + head_dim}
        told |= {"value_length": options["kv_lora_rank"], "value_length_mla": options["v_head_dim"]}
        told["key_length_mla"] = options["qk_nope_head_dim"] + head_dim
    if options["model_type"] == "deepseek_v3":
        told |= {"rope_scaling_type": RopeScalingType.YARN, "rope_scaling_factor": rope["factor"]}
        told["rope_scaling_orig_ctx_len"] = rope["original_max_position_embeddings"]
        told["rope_scaling_yarn_log_mul"] = 0.1 * rope["mscale_all_dim"]
        told |= {f"rope_scaling_yarn_{name}": rope[name] for name in ("beta_fast", "beta_slow")}
        told["expert_gating_func"] = ExpertGatingFuncType.SIGMOID
    if options["model_type"] == "qwen3_next":
        told["ssm_inner_size"] = options["linear_value_head_dim"] * options["linear_num_value_heads"]
        told["full_attention_interval"] = 2
    return told


def converted(case: Case, options: Mapping[str, Any], weights: Weights) -> Iterator[tuple[str, Array]]:
    """Weights under Hugging Face's keys or those that llama.cpp's converter gives to parts of them."""
    heads = {"q": options["num_attention_heads"], "k": options["num_key_value_heads"]}
    experts: dict[str, dict[int, Array]] = {}
    for key, array in weights.items():
        expert = re.match(r"(.*\.experts)\.(\d+)\.(.*)", key)
        if key == "lm_head.weight" and options["tie_word_embeddings"]:
            continue
        if expert is not None:
            experts.setdefault(f"{expert[1]}.{expert[3]}", {})[int(expert[2])] = array
        elif case.turned and (found := re.search(r"self_attn\.([qk])_proj\.", key)):
            halves = array.reshape(heads[found[1]], 2, -1, *array.shape[1:])
            yield key, halves.swapaxes(1, 2).reshape(array.shape)
        elif key.endswith("norm.weight") and not key.endswith("linear_attn.norm.weight"):
            yield key, array + np.float32(case.offset)
        elif key.endswith("block_sparse_moe.input_linear.weight"):
            for part, half in zip(("gate", "up"), np.split(array, 2, 1), strict=True):
                yield key.replace("block_sparse_moe.input_linear", f"mlp.experts.{part}_proj"), half
        elif key.endswith("conv1d.weight") or key.endswith("conv.conv.weight"):
            yield key, array[:, 0]
        elif key.endswith("shared_expert_gate.weight"):
            yield key, array[0]
        elif key.endswith("A_log"):
            yield key, -np.exp(array)
        elif key.endswith("dt_bias"):
            yield key.replace("dt_bias", "dt_proj.bias"), array
        elif key.endswith("e_score_correction_bias"):
            yield key.replace("_bias", ".bias"), array
        elif key.endswith("in_proj_qkvz.weight"):
            yield from parts_of_key_heads(key, options, array)
        elif key.endswith("kv_b_proj.weight"):
            keys, values = np.split(array.reshape(heads["q"], -1, array.shape[1]), [options["qk_nope_head_dim"]], 1)
            yield key.replace("kv_b", "k_b"), keys.swapaxes(1, 2)
            yield key.replace("kv_b", "v_b"), values
        else:
            yield key, array
    for key, arrays in experts.items():
        key = re.sub(r"\.(w\d)\.", lambda found: f".{found[1]}.", key)
        yield key, np.stack([arrays[number] for number in range(len(arrays))])


def parts_of_key_heads(key: str, options: Mapping[str, Any], array: Array) -> Iterator[tuple[str, Array]]:
    """Queries, keys and values of all heads, one after the other, and the gates."""
    heads, width = options["linear_num_key_heads"], options["linear_key_head_dim"]
    each = options["linear_num_value_heads"] // heads * options["linear_value_head_dim"]
    rows = array.reshape(heads, -1, array.shape[-1])
    *qkv, gate = (part.reshape(-1, array.shape[-1]) for part in np.split(rows, [width, 2 * width, 2 * width + each], 1))
    yield key.replace("qkvz", "qkv"), np.concatenate(qkv)
    yield key.replace("qkvz", "z"), gate
