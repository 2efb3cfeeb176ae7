"""GGUF files of each architecture: the model of config.json and safetensors, converted as llama.cpp does.

Names of tensors and metadata are those of the `gguf` library. What its converter changes of a weight is written below.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import (
    MODEL_ARCH,
    MODEL_ARCH_NAMES,
    ExpertGatingFuncType,
    GGMLQuantizationType,
    GGUFWriter,
    RopeScalingType,
    get_tensor_name_map,
)
from gguf.quants import quantize

import lucid
from lucid import WeightsError, nn
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
        joined: whether one tensor has queries, keys and values.
        based: whether the file has the base of rotary positions.
    """

    variant: str
    arch: MODEL_ARCH
    adds: Mapping[str, str] = field(default_factory=dict)
    eps: tuple[str, str] = (RMS, "rms_norm_eps")
    changed: Mapping[str, object] = field(default_factory=dict)
    prepared: Callable[[Weights], Weights] = dict
    turned: bool = False
    offset: float = 0.0
    joined: bool = False
    based: bool = True


def even(weights: Weights) -> Weights:
    """All layers with the feed-forward network of one that has experts."""
    (layer, *_) = (match[1] for key in weights if (match := re.match(r"model\.layers\.(\d+)\.mlp\.experts\.", key)))
    network = {key.split(".", 3)[3]: w for key, w in weights.items() if key.startswith(f"model.layers.{layer}.mlp.")}
    layers = {key.split(".")[2] for key in weights if key.startswith("model.layers.")}
    kept = {key: w for key, w in weights.items() if ".mlp." not in key}
    return kept | {f"model.layers.{each}.{key}": w for each in layers for key, w in network.items()}


def wide(weights: Weights) -> Weights:
    """GPT-2's weights twice as wide: a row of blocks has 32 inputs at least."""
    double = any(key.startswith("transformer.h.") for key in weights)
    return {
        key: np.tile(weight, [2 if double and size % 16 == 0 else 1 for size in weight.shape])
        for key, weight in weights.items()
    }


WIDE = {"gpt2/base": {"n_embd": 32, "n_inner": 128}}
SHARED = {"expert_shared_feed_forward_length": "shared_expert_intermediate_size"}
WINDOW = {"sliding_window": "sliding_window"}
CAPS = {"attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping"}
PARALLEL = {"parallel_residual": "use_parallel_residual"}
FALCON = {"feed_forward_length": "ffn_hidden_size", "head_count_kv": "num_kv_heads"}
STATES = {
    "ssm_conv_kernel": "linear_conv_kernel_dim",
    "ssm_state_size": "linear_key_head_dim",
    "ssm_group_count": "linear_num_key_heads",
    "ssm_time_step_rank": "linear_num_value_heads",
}
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
    Case("glm/base", MODEL_ARCH.CHATGLM),
    Case("glm/base", MODEL_ARCH.CHATGLM, joined=True),
    Case("glm4/base", MODEL_ARCH.GLM4),
    Case("olmo/base", MODEL_ARCH.OLMO, {"clamp_kqv": "clip_qkv"}, eps=(LAYER, "eps"), turned=True),
    Case("olmo3/base", MODEL_ARCH.OLMO2, WINDOW),
    Case("mistral/full", MODEL_ARCH.MISTRAL3, turned=True),
    Case("ministral3/base", MODEL_ARCH.MISTRAL3, turned=True),
    Case("stablelm/base", MODEL_ARCH.STABLELM, PARALLEL, (LAYER, "layer_norm_eps"), based=False),
    Case("stablelm/parallel", MODEL_ARCH.STABLELM, PARALLEL, (LAYER, "layer_norm_eps"), based=False),
    Case("gpt_neox/base", MODEL_ARCH.GPTNEOX, PARALLEL, (LAYER, "layer_norm_eps"), based=False),
    Case(
        "falcon/base",
        MODEL_ARCH.FALCON,
        FALCON,
        (LAYER, "layer_norm_epsilon"),
        {"num_kv_heads": 1},  # which is not read where all queries share the keys
        based=False,
    ),
    Case("falcon/grouped", MODEL_ARCH.FALCON, FALCON, (LAYER, "layer_norm_epsilon"), based=False),
    Case(
        "gpt2/base",
        MODEL_ARCH.GPT2,
        {
            "context_length": "n_positions",
            "embedding_length": "n_embd",
            "feed_forward_length": "n_inner",
            "block_count": "n_layer",
            "head_count": "n_head",
        },
        (LAYER, "layer_norm_epsilon"),
        {"n_inner": 64},
    ),
    Case(
        "mamba2/base",
        MODEL_ARCH.MAMBA2,
        {
            "ssm_conv_kernel": "conv_kernel",
            "ssm_state_size": "state_size",
            "ssm_group_count": "n_groups",
            "ssm_time_step_rank": "num_heads",
        },
        (RMS, "layer_norm_epsilon"),
    ),
    Case("gpt_oss/base", MODEL_ARCH.GPT_OSS, {**LOCAL, **WINDOW, "expert_feed_forward_length": "intermediate_size"}),
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
        {**EXPERTS, **SHARED, **STATES},
        changed={"mlp_only_layers": []},
        prepared=even,
        offset=1.0,
    ),
    Case("qwen3_5_text/base", MODEL_ARCH.QWEN35, STATES, offset=1.0),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.variant.replace('/', '-')}{'-joined' * case.joined}")
def test_the_file_is_the_model_of_config_json_and_safetensors(case: Case, tmp_path: Path) -> None:
    options, weights = prepared(case)
    (tmp_path / "config.json").write_text(json.dumps(options))
    lucid.save(tmp_path / "model.safetensors", weights)
    expected, model = lucid.models.load(tmp_path), lucid.models.load(as_gguf(case, tmp_path / "model.gguf"))
    assert model.config == expected.config
    assert type(model) is type(expected) and model.state_dict().keys() == expected.state_dict().keys()
    for key, tensor in expected.state_dict().items():
        np.testing.assert_allclose(model.state_dict()[key].numpy(), tensor.numpy(), atol=3e-7, err_msg=key)


@pytest.mark.parametrize(
    ("variant", "layer", "joined"),
    [
        ("gpt_neox/base", "self_attn.qkv_proj", False),
        ("gpt2/base", "attn.c_attn", False),
        ("phi/base", "self_attn.v_proj", True),
    ],
)
def test_products_stay_quantized_in_the_order_of_the_model(
    variant: str, layer: str, joined: bool, tmp_path: Path
) -> None:
    (case,) = (case for case in CASES if case.variant == variant)
    case = replace(case, joined=joined, prepared=wide, changed={**case.changed, **WIDE.get(variant, {})})
    options, weights = prepared(case)
    (tmp_path / "config.json").write_text(json.dumps(options))
    lucid.save(tmp_path / "model.safetensors", weights)
    model = lucid.models.load(as_gguf(case, tmp_path / "model.gguf", quantized=True))
    assert {type(m.weight) for name, m in model.named_modules() if name.endswith(layer)} == {nn.QuantizedWeight}
    floats = lucid.models.load(tmp_path / "model.gguf", dequantize=True).state_dict()
    for key, tensor in lucid.models.load(tmp_path).state_dict().items():
        np.testing.assert_allclose(floats[key].numpy(), tensor.numpy(), atol=np.abs(tensor.numpy()).max() / 200)


def test_layers_that_predict_further_tokens_are_left_out(tmp_path: Path) -> None:
    case = CASES[-1]
    more = {"block_count": 3, "nextn_predict_layers": 1}
    names = {"blk.2.nextn.eh_proj.weight": np.zeros((16, 32), np.float32)}
    path = as_gguf(case, tmp_path / "model.gguf", more, names)
    assert lucid.models.load(path).config == lucid.models.load(goldens.folder(case.variant)).config


@pytest.mark.parametrize(
    ("variant", "wrong", "error"),
    [
        ("deepseek_v3/base", {"expert_gating_func": ExpertGatingFuncType.SOFTMAX}, "deepseek2.expert_gating_func = 1"),
        ("deepseek_v3/base", {"expert_group_count": 0}, "metadata deepseek2.expert_group_count is missing or 0"),
        ("gemma3/base", {"sliding_window": 0}, "metadata gemma3.attention.sliding_window is missing or 0"),
        ("olmo2/base", {"logit_scale": 2.0}, "olmo2.logit_scale = 2"),
        ("qwen3_next/base", {"ssm_state_size": None}, "ssm.state_size is None, expected a whole number from 1; get"),
        ("qwen3_next/base", {"ssm_inner_size": 25}, r"in_proj_qkvz.weight has shape \[72, 16\], expected"),
    ],
)
def test_what_the_type_cannot_be_is_refused(variant: str, wrong: dict[str, object], error: str, tmp_path: Path) -> None:
    (case,) = (case for case in CASES if case.variant == variant)
    with pytest.raises((ConfigError, KeyError), match=error):
        lucid.models.load(as_gguf(case, tmp_path / "model.gguf", wrong))


@pytest.mark.parametrize(
    ("variant", "tensor", "array", "error"),
    [
        (
            "gpt_oss/base",
            "ffn_gate_exps.weight",
            np.ones(4),
            r"gate.weight has shape \[4\] and .* no mlp.gate_up of",
        ),
        (
            "gpt_oss/base",
            "ffn_up_exps.bias",
            np.ones((1, 2)),
            r"\[1, 2\], which make no mlp.gate_up_bias of this",
        ),
        (
            "deepseek_v2/base",
            "attn_k_b.weight",
            np.ones(4),
            r"k_b_proj.weight has shape \[4\] and .*v_b_proj.w.* \[",
        ),
        ("deepseek_v2/base", "attn_k_b.weight", np.ones((2, 3, 4)), r"which make no self_attn.kv_b_proj.weight"),
        ("qwen3_next/base", "attn_qkv.weight", np.ones(9), r"which make no self_attn.in_proj_qkvz.weight"),
        ("qwen3_5_text/base", "ssm_out.weight", np.ones(32), r"out_proj.weight has shape \[32\], expected"),
        (
            "mamba2/base",
            "ssm_a",
            np.ones((4, 1)),
            r"'blk.0.ssm_a' has 1.0 at \[0, 0\], expected numbers below 0; get",
        ),
    ],
)
def test_tensors_of_other_shapes_or_numbers_are_refused(
    variant: str, tensor: str, array: Array, error: str, tmp_path: Path
) -> None:
    (case,) = (case for case in CASES if case.variant == variant)
    path = as_gguf(case, tmp_path / "model.gguf", more={f"blk.0.{tensor}": array.astype(np.float32)})
    with pytest.raises((ConfigError, KeyError, WeightsError), match=error):
        lucid.models.load(path)


# As llama.cpp's converter does it ------------------------------------------------------------------------------------


def prepared(case: Case) -> tuple[dict[str, Any], Weights]:
    """Options and weights that llama.cpp can have."""
    folder = goldens.folder(case.variant)
    options = {**json.loads((folder / "config.json").read_text()), **case.changed}
    options = {name: value for name, value in options.items() if value is not None or name == "q_lora_rank"}
    return options, case.prepared({key: np.array(weight) for key, weight in lucid.load(folder).items()})


def as_gguf(
    case: Case,
    path: Path,
    wrong: Mapping[str, object] | None = None,
    more: Mapping[str, Array] | None = None,
    quantized: bool = False,
) -> Path:
    options, weights = prepared(case)
    writer = GGUFWriter(path, MODEL_ARCH_NAMES[case.arch])
    for name, value in {**metadata(case, options), **(wrong or {})}.items():
        if value is not None:
            getattr(writer, f"add_{name}")(value)
    table = get_tensor_name_map(case.arch, options.get("num_hidden_layers", options.get("n_layer")))
    names = {table.get_name(key, try_suffixes=(".weight", ".bias")): a for key, a in converted(case, options, weights)}
    for name, array in (names | (more or {})).items():
        assert name is not None
        blocks = quantized and array.ndim == 2 and array.shape[1] % 32 == 0 and name.startswith("blk.")
        kind = GGMLQuantizationType.Q8_0 if blocks else GGMLQuantizationType.F32
        writer.add_tensor(name, quantize(np.ascontiguousarray(array), kind), raw_dtype=kind)
    for name in ("long", "short"):
        if f"{name}_factor" in options.get("rope_parameters", ()):
            factors = options["rope_parameters"][f"{name}_factor"]
            writer.add_tensor(f"rope_factors_{name}.weight", np.array(factors, np.float32))
    return write(writer, path)


def metadata(case: Case, options: Mapping[str, Any]) -> dict[str, Any]:
    """By the names of the library's writer."""
    named = {**USUAL, case.eps[0]: case.eps[1], **case.adds}
    fields = {name: options[option] for name, option in named.items() if option in options}
    if options["model_type"] in ("gpt2", "mamba2"):
        wide = {"ssm_inner_size": 2 * options.get("hidden_size", 0), "head_count": 0, "feed_forward_length": 0}
        return {**wide, "context_length": 1 << 20, **fields} if case.arch == MODEL_ARCH.MAMBA2 else fields
    if "num_experts" in options or options["model_type"] == "qwen3_moe":
        fields["expert_count"] = options.get("num_experts", options.get("num_local_experts"))
    rope = options["rope_parameters"]
    rope = rope.get("full_attention", rope)
    if case.based:
        fields["rope_freq_base"] = rope["rope_theta"]
    if rope["rope_type"] == "yarn":
        fields |= {"rope_scaling_type": RopeScalingType.YARN, "rope_scaling_factor": rope["factor"]}
        fields["rope_scaling_orig_ctx_len"] = rope["original_max_position_embeddings"]
        fields |= {f"rope_scaling_yarn_{name}": rope[name] for name in ("beta_fast", "beta_slow") if name in rope}
    head_dim = options.get("head_dim", options["hidden_size"] // options["num_attention_heads"])
    if "head_dim" in options:
        fields |= {"key_length": head_dim, "value_length": head_dim}
    if "partial_rotary_factor" in rope:
        fields["rope_dimension_count"] = int(head_dim * rope["partial_rotary_factor"])
    if rope["rope_type"] == "linear":
        fields |= {"rope_scaling_type": RopeScalingType.LINEAR, "rope_scaling_factor": rope["factor"]}
    if options["model_type"] == "lfm2":
        fields["head_count_kv"] = [fields["head_count_kv"] * (kind != "conv") for kind in options["layer_types"]]
    if case.arch == MODEL_ARCH.DEEPSEEK2:
        fields |= {"head_count_kv": 1, "key_length": options["kv_lora_rank"] + head_dim}
        fields |= {"value_length": options["kv_lora_rank"], "value_length_mla": options["v_head_dim"]}
        fields["key_length_mla"] = options["qk_nope_head_dim"] + head_dim
    if options["model_type"] == "deepseek_v3":
        fields["rope_scaling_yarn_log_mul"] = 0.1 * rope["mscale_all_dim"]
        fields["expert_gating_func"] = ExpertGatingFuncType.SIGMOID
    if options["model_type"] == "olmo":
        fields["layer_norm_eps"] = 1e-5
    if options["model_type"] == "olmo3":
        fields["sliding_window_pattern"] = [kind == "sliding_attention" for kind in options["layer_types"]]
    if options["model_type"] == "ministral3":
        fields["rope_scaling_yarn_log_mul"] = rope["mscale_all_dim"]
        fields["attn_temperature_scale"] = rope["llama_4_scaling_beta"]
    if "linear_num_key_heads" in options:
        fields["ssm_inner_size"] = options["linear_value_head_dim"] * options["linear_num_value_heads"]
        fields["full_attention_interval"] = 2
    return fields


def converted(case: Case, options: Mapping[str, Any], weights: Weights) -> Iterator[tuple[str, Array]]:
    """Weights under Hugging Face's keys or those that llama.cpp's converter gives to parts of them."""
    counts = options.get("num_attention_heads", 0), options.get("num_key_value_heads", options.get("num_kv_heads"))
    heads = {"q": counts[0], "k": counts[1] or counts[0], "v": counts[1] or counts[0]}
    experts: dict[str, dict[int, Array]] = {}
    for key, array in weights.items():
        expert = re.match(r"(.*\.experts)\.(\d+)\.(.*)", key)
        if key == "lm_head.weight" and options["tie_word_embeddings"]:
            continue
        if "linear_attn" in key and case.arch == MODEL_ARCH.QWEN35:
            array = tiled(key, options, array)
        if expert is not None:
            experts.setdefault(f"{expert[1]}.{expert[3]}", {})[int(expert[2])] = array
        elif case.turned and (match := re.search(r"self_attn\.([qk])_proj\.", key)):
            halves = array.reshape(heads[match[1]], 2, -1, *array.shape[1:])
            yield key, halves.swapaxes(1, 2).reshape(array.shape)
        elif key.endswith("norm.weight") and not key.endswith("linear_attn.norm.weight"):
            yield key, array + np.float32(case.offset)
        elif key.endswith("block_sparse_moe.input_linear.weight"):
            for part, half in zip(("gate", "up"), np.split(array, 2, 1), strict=True):
                yield key.replace("block_sparse_moe.input_linear", f"mlp.experts.{part}_proj"), half
        elif match := re.fullmatch(r"(.*self_attn\.[qk]_layernorm)\.norms\.(\d+)(\.weight)", key):
            experts.setdefault(f"{match[1]}{match[3]}", {})[int(match[2])] = array
        elif key.endswith(("query_key_value.weight", "query_key_value.bias")):
            share = heads["q"] // heads["k"]
            groups = array.reshape(heads["k"], share + 2, -1, *array.shape[1:])
            parts = np.split(groups, [share, share + 1], 1)
            yield key, np.concatenate([part.reshape(-1, *array.shape[1:]) for part in parts])
        elif case.joined and (match := re.search(r"self_attn\.([qkv])_proj\.", key)):
            if match[1] == "q":
                parts = [weights[key.replace("q_proj", f"{letter}_proj")] for letter in "qkv"]
                yield key.replace("q_proj", "qkv_proj"), np.concatenate(parts)
        elif case.arch == MODEL_ARCH.GPT2 and re.search(r"\.c_\w+\.weight$", key):
            yield key, array.T
        elif case.arch == MODEL_ARCH.MAMBA2 and key.endswith((".D", "mixer.norm.weight", "A_log")):
            array = -np.exp(array) if key.endswith("A_log") else array
            yield key, array.reshape(options["n_groups"], -1) if "norm" in key else array[:, None]
        elif case.arch == MODEL_ARCH.GPT_OSS and (match := re.fullmatch(r"(.*experts\.)(\w+?)_proj(_bias)?", key)):
            array = array if match[3] else array.swapaxes(1, 2)
            parts = {"gate": array[:, ::2], "up": array[:, 1::2]} if match[2] == "gate_up" else {"down": array}
            for name, part in parts.items():
                yield f"{match[1]}{name}_proj.{'bias' if match[3] else 'weight'}", part
        elif key.endswith(".sinks"):
            yield f"{key}.weight", array
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
        key = re.sub(r"\.(w\d)\.", lambda match: f".{match[1]}.", key)
        yield key, np.stack([arrays[number] for number in range(len(arrays))])


def parts_of_key_heads(key: str, options: Mapping[str, Any], array: Array) -> Iterator[tuple[str, Array]]:
    """Queries, keys and values of all heads, one after the other, and the gates."""
    heads, width = options["linear_num_key_heads"], options["linear_key_head_dim"]
    each = options["linear_num_value_heads"] // heads * options["linear_value_head_dim"]
    rows = array.reshape(heads, -1, array.shape[-1])
    *qkv, gate = (part.reshape(-1, array.shape[-1]) for part in np.split(rows, [width, 2 * width, 2 * width + each], 1))
    yield key.replace("qkvz", "qkv"), np.concatenate(qkv)
    yield key.replace("qkvz", "z"), gate


def tiled(key: str, options: Mapping[str, Any], array: Array) -> Array:
    """The heads of values one after the other over all heads of keys, not those of each together."""
    groups, heads = options["linear_num_key_heads"], options["linear_num_value_heads"]
    if key.endswith("out_proj.weight"):
        return tiled("", options, array.T).T
    if key.endswith("norm.weight"):
        return array
    before = len(array) - (heads * options["linear_value_head_dim"] if "qkv" in key or "conv1d" in key else len(array))
    own = array[before:].reshape(groups, heads // groups, -1, *array.shape[1:])
    return np.concatenate([array[:before], own.swapaxes(0, 1).reshape(-1, *array.shape[1:])])
