"""How llama.cpp stores each decoder in GGUF files: the names of options and tensors, and what its code takes for
granted.

Sources: llama.cpp's converter (convert_hf_to_gguf.py and conversion/) and the tables of the `gguf` library. The entries
of model types in `families.py` name these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from lucid.core.number_ranges import is_whole

Pairs: TypeAlias = Literal["halves", "neighbours"]
Order: TypeAlias = Literal["grouped", "tiled", "tiled columns"]
Convert: TypeAlias = Callable[[dict[str, Any], dict[str, object]], None]
SILU: Mapping[str, object] = {"hidden_act": "silu"}


@dataclass(frozen=True)
class GGUF:
    """How llama.cpp stores the models of one model_type.

    Args:
        architecture: its name for the type, in general.architecture.
        pairs: what rotary positions turn there: the two halves of a head as in Hugging Face's files, or neighbours, so
            that queries and keys have their rows in another order.
        frequencies: the tensor with what divides each frequency of the rotary positions, in files that scale them.
        when: metadata or the end of a tensor's name that only the files of this type have, where other types have the
            same architecture.
        eps: the metadata with what norms add to the variance, and the option of config.json.
        options: metadata, after the architecture's name and a dot, to the option of config.json; None for what
            llama.cpp asks for and the model does not have.
        required: those of them that every file has.
        implied: options with the value that llama.cpp's code has for this architecture.
        flags: options that are true where the file has a tensor, by the end of its name.
        keys: tensors to keys of the model, besides those that all decoders have; after a dot those of a layer. A name
            with ``.weight`` or ``.bias`` is that of the whole tensor.
        layers: what the model calls its layers.
        rows: tensors of a layer whose rows are in another order there: queries, keys and values "grouped" in the model,
            or the heads of values "tiled" over those of keys there; "tiled columns" for the columns.
        norm_offset: what is added to the weights of norms there.
        partial: the option with the part of a head that is rotated, where rope.dimension_count may tell one.
        variants: other files of the type, each with its `when`.
        scalar_layers: of Gemma, the number of layers of the model whose scores are not scaled by the width of a head.
        convert: what else makes options of the metadata: a function of the options and the metadata that is left, by
            its name after the architecture's; it changes both.
    """

    architecture: str
    pairs: Pairs = "halves"
    frequencies: str | None = None
    when: str | None = None
    eps: tuple[str, str | None] = ("attention.layer_norm_rms_epsilon", "rms_norm_eps")
    options: Mapping[str, str | None] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    implied: Mapping[str, object] = field(default_factory=lambda: SILU)
    flags: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    layers: str = "model.layers"
    rows: Mapping[str, Order] = field(default_factory=dict)
    norm_offset: float = 0.0
    partial: str | None = None
    scalar_layers: int | None = None
    variants: tuple[GGUF, ...] = ()
    convert: Convert | None = None


# What some of them convert --------------------------------------------------------------------------------------------


def _kinds_of_layers(options: dict[str, Any], own: dict[str, object]) -> None:
    """LFM2: a layer without keys and values is a convolution."""
    heads = options["num_key_value_heads"]
    if isinstance(heads, list) and any(heads):
        options["layer_types"] = ["full_attention" if count else "conv" for count in heads]
        options["num_key_value_heads"] = max(heads)


def _latent_heads(gating: int) -> Convert:
    """DeepSeek's widths of heads, and what makes weights of the router's scores: 1, a softmax, or 2, sigmoids.

    Newer files have the width of the one latent head, and those of all heads under other names.
    """

    def convert(options: dict[str, Any], own: dict[str, object]) -> None:
        key, value = options.pop("head_dim", None), own.pop("attention.value_length", None)
        key, value = own.pop("attention.key_length_mla", key), own.pop("attention.value_length_mla", value)
        turned = options["qk_rope_head_dim"]
        options["qk_nope_head_dim"] = key - turned if is_whole(key) and is_whole(turned) else key
        options["v_head_dim"], options["num_key_value_heads"] = value, options["num_attention_heads"]
        multiplier = own.pop("rope.scaling.yarn_log_multiplier", None)
        if "rope_scaling" in options and isinstance(multiplier, float):
            options["rope_scaling"] |= dict.fromkeys(("mscale", "mscale_all_dim"), 10 * multiplier)
        if own.get("expert_gating_func") == gating:
            del own["expert_gating_func"]

    return convert


def _query_growth(options: dict[str, Any], own: dict[str, object]) -> None:
    """Ministral 3: the growth of queries, and the option that cancels YaRN's factor of the scores."""
    growth = own.pop("attention.temperature_scale", None)
    if "rope_scaling" in options and growth is not None:
        factors = dict.fromkeys(("mscale", "mscale_all_dim"), own.pop("rope.scaling.yarn_log_multiplier", 0.0))
        options["rope_scaling"] |= {"llama_4_scaling_beta": growth, **factors}


def _window_positions(options: dict[str, Any], own: dict[str, object]) -> None:
    """OLMo 3: the layers with a window have positions that are not scaled."""
    base = own.pop("rope.freq_base_swa", options.get("rope_theta"))
    options["rope_parameters"] = {"sliding_attention": {"rope_theta": base, "rope_type": "default"}}
    slides = own.pop("attention.sliding_window_pattern", None)
    if isinstance(slides, list):
        options["layer_types"] = ["sliding_attention" if each else "full_attention" for each in slides]


def _exact_bounds(options: dict[str, Any], own: dict[str, object]) -> None:
    """gpt-oss: all published models have YaRN's bounds as they are, not as whole numbers."""
    if "rope_scaling" in options:
        options["rope_scaling"]["truncate"] = False


def _width_of_one(total: str, count: str) -> Convert:
    """The width of one head, where the file has the width of all heads."""

    def convert(options: dict[str, Any], own: dict[str, object]) -> None:
        width, heads = options.get(total), options.get(count)
        if is_whole(width) and is_whole(heads) and heads and width % heads == 0:
            options[total] = width // heads

    return convert


def _expansion(options: dict[str, Any], own: dict[str, object]) -> None:
    """Mamba-2: how much wider all heads are than the states, and the width of one."""
    inner, outer = options.get("head_dim"), options["hidden_size"]
    if is_whole(inner) and is_whole(outer) and outer:
        options["expand"] = inner // outer
    _width_of_one("head_dim", "num_heads")(options, own)


# The rows -------------------------------------------------------------------------------------------------------------

_EPSILON = "attention.layer_norm_epsilon"
_AFTER = {".post_attention_norm": "post_attention_layernorm", ".post_ffw_norm": "post_feedforward_layernorm"}
_AROUND = {**_AFTER, ".ffn_norm": "pre_feedforward_layernorm"}
_EXPERTS = {
    ".ffn_gate_inp": "mlp.gate",
    ".ffn_gate_exps": "mlp.experts.*.gate_proj",
    ".ffn_up_exps": "mlp.experts.*.up_proj",
    ".ffn_down_exps": "mlp.experts.*.down_proj",
}
_SHARED_EXPERT = {
    ".ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    **{f".ffn_{name}_shexp": f"mlp.shared_expert.{name}_proj" for name in ("gate", "up", "down")},
}
_USED = {"expert_used_count": "num_experts_per_tok"}
_LOCAL = {**_USED, "expert_count": "num_local_experts"}
_COUNTED = {**_USED, "expert_count": "num_experts", "expert_feed_forward_length": "moe_intermediate_size"}
_SCALES = {
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
}
_CAPS = {
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "attention.sliding_window": "sliding_window",
}
_BIASES = {"attention_bias": ".attn_q.bias", "mlp_bias": ".ffn_up.bias"}
_WINDOW = ("attention.sliding_window",)
_PARTIAL = "partial_rotary_factor"
_QKV = {".attn_qkv": "self_attn.qkv_proj"}
_GROUPED: Mapping[str, Order] = {".attn_qkv": "grouped"}
_GELU = {"hidden_activation": "gelu_pytorch_tanh"}

LLAMA = GGUF("llama", "neighbours", "rope_freqs.weight", flags=_BIASES)
MIXTRAL = replace(LLAMA, when="expert_count", options=_LOCAL, flags={}, keys=_EXPERTS)
MISTRAL3 = GGUF("mistral3", "neighbours")
MINISTRAL3 = replace(MISTRAL3, when="attention.temperature_scale", convert=_query_growth)
SMOLLM3 = GGUF("smollm3", "neighbours", flags=_BIASES)
GRANITE = GGUF("granite", "neighbours", options=_SCALES, flags=_BIASES)
GRANITE_MOE = GGUF("granitemoe", "neighbours", options={**_SCALES, **_LOCAL}, keys=_EXPERTS)
QWEN2_MOE = GGUF(
    "qwen2moe",
    options={**_COUNTED, "expert_shared_feed_forward_length": "shared_expert_intermediate_size"},
    implied={**SILU, "norm_topk_prob": False, "qkv_bias": False},
    flags={"qkv_bias": ".attn_q.bias"},
    keys={**_EXPERTS, **_SHARED_EXPERT},
)
QWEN3_MOE = GGUF("qwen3moe", options=_COUNTED, implied={**SILU, "norm_topk_prob": True}, keys=_EXPERTS)
OLMOE = GGUF("olmoe", options=_COUNTED | {"feed_forward_length": "intermediate_size"}, keys=_EXPERTS)
OLMO = GGUF("olmo", "neighbours", eps=(_EPSILON, None), options={"attention.clamp_kqv": "clip_qkv"})
OLMO2 = GGUF("olmo2", keys=_AFTER)
OLMO3 = replace(
    OLMO2,
    when="attention.sliding_window",
    options={"attention.sliding_window": "sliding_window"},
    convert=_window_positions,
)
SEED_OSS = GGUF(
    "seed_oss",
    flags={**_BIASES, "attention_out_bias": ".attn_output.bias"},
    keys={".post_attention_norm": "post_attention_layernorm"},
)
STARCODER2 = GGUF(
    "starcoder2",
    eps=(_EPSILON, "norm_epsilon"),
    implied={"hidden_act": "gelu_pytorch_tanh", "sliding_window": None, "use_bias": False},
    flags={"use_bias": ".attn_q.bias"},
)
COHERE = GGUF(
    "command-r",
    eps=(_EPSILON, "layer_norm_eps"),
    options={"logit_scale": "logit_scale"},
    flags={"attention_bias": ".attn_q.bias", "use_qk_norm": ".attn_q_norm.weight"},
)
COHERE2 = GGUF(
    "cohere2",
    eps=(_EPSILON, "layer_norm_eps"),
    options={"logit_scale": "logit_scale", "attention.sliding_window": "sliding_window"},
    required=_WINDOW,
)
CHATGLM = GGUF(
    "chatglm",
    implied={**SILU, "attention_bias": False},
    flags={"attention_bias": (".attn_q.bias", ".attn_qkv.bias")},
    partial=_PARTIAL,
    keys={".ffn_up": "mlp.gate_up_proj"},
)
GLM4 = replace(
    CHATGLM,
    architecture="glm4",
    keys={
        **CHATGLM.keys,
        ".post_attention_norm": "post_self_attn_layernorm",
        ".post_ffw_norm": "post_mlp_layernorm",
    },
)
NEMOTRON = GGUF(
    "nemotron",
    eps=(_EPSILON, "norm_eps"),
    implied={"hidden_act": "relu2"},
    flags=_BIASES,
    norm_offset=1.0,
    partial=_PARTIAL,
)
STABLELM = GGUF(
    "stablelm",
    eps=(_EPSILON, "layer_norm_eps"),
    options={"use_parallel_residual": "use_parallel_residual"},
    implied={**SILU, "use_qkv_bias": False, "qk_layernorm": False},
    flags={"use_qkv_bias": ".attn_q.bias", "qk_layernorm": ".attn_q_norm.weight"},
    partial=_PARTIAL,
)
GPT_NEOX = GGUF(
    "gptneox",
    eps=(_EPSILON, "layer_norm_eps"),
    options={"use_parallel_residual": "use_parallel_residual", "rope.freq_base": "rotary_emb_base"},
    implied={"hidden_act": "gelu"},
    keys=_QKV,
    rows=_GROUPED,
    partial="rotary_pct",
)
FALCON = GGUF(
    "falcon",
    eps=(_EPSILON, "layer_norm_epsilon"),
    options={"feed_forward_length": "ffn_hidden_size", "attention.head_count_kv": "num_kv_heads"},
    implied={"activation": "gelu", "new_decoder_architecture": True, "num_ln_in_parallel_attn": 1},
    keys=_QKV,
    rows=_GROUPED,
)
FALCON = replace(
    FALCON,
    variants=(
        replace(
            FALCON,
            when=".attn_norm_2.weight",
            implied={**FALCON.implied, "num_ln_in_parallel_attn": 2},
            keys={**_QKV, ".attn_norm": "post_attention_layernorm", ".attn_norm_2": "input_layernorm"},
        ),
    ),
)
GPT2 = GGUF(
    "gpt2",
    eps=(_EPSILON, "layer_norm_epsilon"),
    options={
        "embedding_length": "n_embd",
        "feed_forward_length": "n_inner",
        "block_count": "n_layer",
        "context_length": "n_positions",
        "attention.head_count": "n_head",
    },
    implied={"activation_function": "gelu_new"},
    keys={
        "token_embd": "transformer.wte",
        "position_embd": "transformer.wpe",
        "output_norm": "transformer.ln_f",
        ".attn_norm": "ln_1",
        ".attn_qkv": "attn.c_attn",
        ".attn_output": "attn.c_proj",
        ".ffn_norm": "ln_2",
        ".ffn_up": "mlp.c_fc",
        ".ffn_down": "mlp.c_proj",
    },
    layers="transformer.h",
)
MAMBA2 = GGUF(
    "mamba2",
    eps=("attention.layer_norm_rms_epsilon", "layer_norm_epsilon"),
    options={
        "context_length": None,
        "feed_forward_length": None,
        "attention.head_count": None,
        "ssm.conv_kernel": "conv_kernel",
        "ssm.state_size": "state_size",
        "ssm.group_count": "n_groups",
        "ssm.time_step_rank": "num_heads",
        "ssm.inner_size": "head_dim",  # of all heads together
    },
    required=("ssm.time_step_rank", "ssm.inner_size"),
    implied={**SILU, "use_conv_bias": False},
    flags={"use_conv_bias": ".ssm_conv1d.bias", "use_bias": ".ssm_in.bias"},
    keys={
        "token_embd": "backbone.embeddings",
        "output_norm": "backbone.norm_f",
        ".attn_norm": "norm",
        ".ssm_in": "mixer.in_proj",
        ".ssm_conv1d": "mixer.conv1d",
        ".ssm_dt.bias": "mixer.dt_bias",
        ".ssm_a": "mixer.A_log",
        ".ssm_d": "mixer.D",
        ".ssm_norm": "mixer.norm",
        ".ssm_out": "mixer.out_proj",
    },
    layers="backbone.layers",
    convert=_expansion,
)
GPT_OSS = GGUF(
    "gpt-oss",
    options={
        **_LOCAL,
        "expert_feed_forward_length": "intermediate_size",
        "attention.sliding_window": "sliding_window",
    },
    required=_WINDOW,
    implied={},
    keys={
        ".post_attention_norm": "post_attention_layernorm",
        ".attn_sinks.weight": "self_attn.sinks",
        ".ffn_gate_inp": "mlp.router",
        ".ffn_gate_exps": "mlp.gate_up.gate",
        ".ffn_up_exps": "mlp.gate_up.up",
        ".ffn_down_exps.weight": "mlp.down",
        ".ffn_down_exps.bias": "mlp.down_bias",
    },
    convert=_exact_bounds,
)
PHI2 = GGUF("phi2", eps=(_EPSILON, "layer_norm_eps"), implied={"hidden_act": "gelu_new"}, partial=_PARTIAL)
PHI3 = GGUF(
    "phi3",
    options={
        "attention.sliding_window": "sliding_window",
        "rope.scaling.original_context_length": "original_max_position_embeddings",
    },
    keys={**_QKV, ".ffn_up": "mlp.gate_up_proj"},
    partial=_PARTIAL,
)
GEMMA = GGUF("gemma", implied={"hidden_act": "gelu_pytorch_tanh"}, norm_offset=1.0)
GEMMA2 = GGUF("gemma2", options=_CAPS, required=_WINDOW, implied=_GELU, keys=_AROUND, norm_offset=1.0, scalar_layers=46)
GEMMA3 = replace(GEMMA2, architecture="gemma3", scalar_layers=62)
LFM2 = GGUF(
    "lfm2",
    eps=("attention.layer_norm_rms_epsilon", "norm_eps"),
    options={"shortconv.l_cache": "conv_L_cache"},
    implied={"block_auto_adjust_ff_dim": False},
    flags={"conv_bias": ".shortconv.conv.bias"},
    keys={
        "token_embd_norm": "model.norm",
        ".shortconv.conv": "conv.conv",
        ".shortconv.in_proj": "conv.in_proj",
        ".shortconv.out_proj": "conv.out_proj",
    },
    convert=_kinds_of_layers,
)
DEEPSEEK2 = GGUF(
    "deepseek2",
    options={
        "attention.q_lora_rank": "q_lora_rank",
        "attention.kv_lora_rank": "kv_lora_rank",
        "rope.dimension_count": "qk_rope_head_dim",
        "leading_dense_block_count": "first_k_dense_replace",
        "expert_count": "n_routed_experts",
        "expert_shared_count": "n_shared_experts",
        "expert_used_count": "num_experts_per_tok",
        "expert_feed_forward_length": "moe_intermediate_size",
        "expert_weights_scale": "routed_scaling_factor",
    },
    required=("attention.kv_lora_rank", "rope.dimension_count", "expert_used_count"),
    implied={
        **SILU,
        "q_lora_rank": None,
        "first_k_dense_replace": 0,
        "routed_scaling_factor": 1.0,
    },
    keys={
        **_EXPERTS,
        ".exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
        **{f".ffn_{name}_shexp": f"mlp.shared_experts.{name}_proj" for name in ("gate", "up", "down")},
        ".attn_q_a": "self_attn.q_a_proj",
        ".attn_q_b": "self_attn.q_b_proj",
        ".attn_q_a_norm": "self_attn.q_a_layernorm",
        ".attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
        ".attn_kv_a_norm": "self_attn.kv_a_layernorm",
        ".attn_kv_b": "self_attn.kv_b_proj",
        ".attn_k_b": "self_attn.k_b_proj",
        ".attn_v_b": "self_attn.v_b_proj",
    },
    convert=_latent_heads(1),
)
DEEPSEEK3 = replace(
    DEEPSEEK2,
    when=".exp_probs_b.bias",
    options={
        **DEEPSEEK2.options,
        "expert_weights_norm": "norm_topk_prob",
        "expert_group_count": "n_group",
        "expert_group_used_count": "topk_group",
    },
    required=(*DEEPSEEK2.required, "expert_group_count", "expert_group_used_count"),
    implied={**DEEPSEEK2.implied, "norm_topk_prob": False},
    convert=_latent_heads(2),
)
_DELTA_NET = {
    ".post_attention_norm": "post_attention_layernorm",
    ".attn_qkv": "self_attn.in_proj_qkv",
    ".attn_gate": "self_attn.in_proj_z",
    ".ssm_conv1d": "self_attn.conv1d",
    ".ssm_dt.bias": "self_attn.dt_bias",
    ".ssm_a": "self_attn.A_log",
    ".ssm_norm": "self_attn.norm",
    ".ssm_out": "self_attn.out_proj",
}
QWEN35 = GGUF(
    "qwen35",
    options={
        "full_attention_interval": "full_attention_interval",
        "ssm.conv_kernel": "linear_conv_kernel_dim",
        "ssm.state_size": "linear_key_head_dim",
        "ssm.group_count": "linear_num_key_heads",
        "ssm.time_step_rank": "linear_num_value_heads",
        "ssm.inner_size": "linear_value_head_dim",  # of all heads together
    },
    required=("ssm.group_count", "ssm.time_step_rank", "ssm.inner_size"),
    keys={**_DELTA_NET, ".ssm_beta": "self_attn.in_proj_b", ".ssm_alpha": "self_attn.in_proj_a"},
    rows={
        **dict.fromkeys((".attn_qkv", ".attn_gate", ".ssm_beta", ".ssm_alpha"), "tiled"),
        **dict.fromkeys((".ssm_conv1d", ".ssm_dt", ".ssm_a"), "tiled"),
        ".ssm_out": "tiled columns",
    },
    norm_offset=1.0,
    partial=_PARTIAL,
    convert=_width_of_one("linear_value_head_dim", "linear_num_value_heads"),
)
QWEN3_NEXT = replace(
    QWEN35,
    architecture="qwen3next",
    options={**QWEN2_MOE.options, **QWEN35.options},
    implied={**SILU, "norm_topk_prob": True},
    keys={
        **QWEN2_MOE.keys,
        **_DELTA_NET,
        ".ssm_in": "self_attn.in_proj_qkvz",
        ".attn_qkv": "self_attn.in_proj_qkvz.qkv",
        ".attn_gate": "self_attn.in_proj_qkvz.z",
        ".ssm_ba": "self_attn.in_proj_ba",
    },
    rows={},
)
