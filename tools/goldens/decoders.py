"""GPT-2, Llama and its variations: causal language models.

Position ids, as transformers makes them when forward (not generate) gets an attention_mask and no
position_ids: every model here counts 0, 1, 2, ... from the first column, padding included; left padding does
not move them. `<case>.position_ids` holds them. In a left-padded row the first queries see no key;
transformers then returns an average over all keys, so only positions with attention_mask == 1 are compared
("compare": "kept").
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from torch import nn

from .core import Case, Golden, ids, text_cases, write_json

VOCABULARY = 40
GROUPED = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "intermediate_size": 36,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
PLAIN = GROUPED | {"hidden_size": 16, "intermediate_size": 40, "num_attention_heads": 2, "num_key_value_heads": 2}


def to_hub_layout(folder: Path) -> None:
    """The layout of the published gpt2: no `transformer.` prefix, causal masks as buffers, older config."""
    path = folder / "model.safetensors"
    tensors = {key.removeprefix("transformer."): value for key, value in load_file(path).items()}
    for i in range(2):
        tensors[f"h.{i}.attn.bias"] = torch.ones(24, 24).tril()[None, None]
    save_file(tensors, path, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config |= {"n_ctx": config["n_positions"], "task_specific_params": {"text-generation": {"do_sample": True}}}
    del config["dtype"], config["tie_word_embeddings"]
    write_json(folder / "config.json", config)


def gpt2() -> list[Golden]:
    sizes = {"vocab_size": VOCABULARY, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 24}
    special = {"bos_token_id": 0, "eos_token_id": 0}
    common: dict[str, Any] = {
        "cases": text_cases(VOCABULARY, 0, compare="kept", seed=400),
        "outputs": ["logits"],
        "layers": lambda model: {"": model.transformer.h},
        "taps": lambda model: {"last_hidden_state": model.transformer.ln_f},
        "positions": lambda model: model.transformer.wpe,
    }
    scaled = hf.GPT2Config(
        **(sizes | special | {"n_head": 2}),
        n_inner=24,
        activation_function="relu",
        layer_norm_epsilon=1e-6,
        scale_attn_by_inverse_layer_idx=True,
    )
    return [
        Golden(
            "gpt2/base",
            hf.GPT2LMHeadModel(hf.GPT2Config(**sizes, **special)),
            note="as save_pretrained writes it: prefix `transformer.`, lm_head tied to wte and not stored; gelu_new",
            **common,
        ),
        Golden(
            "gpt2/scaled",
            hf.GPT2LMHeadModel(scaled),
            note="n_inner 24, relu, eps 1e-6, scale_attn_by_inverse_layer_idx (scores also divided by layer index + 1)",
            **common,
        ),
        Golden(
            "gpt2/hub_layout",
            hf.GPT2LMHeadModel(hf.GPT2Config(**sizes, **special)),
            note="the layout of the published gpt2: no prefix, buffers h.<i>.attn.bias, older config",
            rewrite=to_hub_layout,
            spare=("transformer.h.", "h."),
            **common,
        ),
    ]


def legacy_rope(config: dict[str, object]) -> dict[str, object]:
    """The config as before transformers 5: separate rope_theta and rope_scaling, torch_dtype, no layer_types."""
    older = {key: value for key, value in config.items() if key not in ("rope_parameters", "dtype", "layer_types")}
    rope = dict(config["rope_parameters"])  # type: ignore[call-overload]
    older["rope_theta"] = rope.pop("rope_theta")
    kind = rope.pop("rope_type")
    older |= {key: rope.pop(key) for key in ("partial_rotary_factor",) if key in rope}
    spelled = "type" if kind in ("linear", "dynamic") else "rope_type"  # a key of Llama 2 files
    older["rope_scaling"] = None if kind == "default" else {spelled: kind, **rope}
    return older | {"torch_dtype": config["dtype"], "transformers_version": "4.44.0"}


def of_language_model(golden: Golden) -> Golden:
    """A golden whose layers are those of the text model within a model that reads images."""

    def layers(model: nn.Module) -> dict[str, nn.ModuleList]:
        return {"": model.model.language_model.layers}

    def taps(model: nn.Module) -> dict[str, nn.Module]:
        return {"last_hidden_state": model.model.language_model.norm}

    return replace(golden, layers=layers, taps=taps, positions=None, legacy=None)


def causal(name: str, model: hf.PreTrainedModel, note: str, **more: Any) -> Golden:
    def layers(model: nn.Module) -> dict[str, nn.ModuleList]:
        return {"": model.model.layers}

    return Golden(
        name,
        model,
        text_cases(VOCABULARY, 0, compare="kept", seed=500),
        ["logits"],
        layers,
        note,
        taps=lambda model: {"last_hidden_state": model.model.norm, "rotary_cos": model.model.rotary_emb},
        positions=lambda model: model.model.rotary_emb,
        legacy=legacy_rope,
        **more,
    )


def llama() -> list[Golden]:
    def scaled(rope: dict[str, object], **changes: object) -> hf.LlamaForCausalLM:
        return hf.LlamaForCausalLM(hf.LlamaConfig(**(PLAIN | {"rope_parameters": rope} | changes)))

    llama3 = {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 100,
    }
    yarn = {
        "rope_type": "yarn",
        "rope_theta": 100.0,
        "factor": 4.0,
        "beta_fast": 8.0,
        "beta_slow": 1.0,
        "original_max_position_embeddings": 64,
    }
    linear = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
    dynamic = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    return [
        causal(
            "llama/llama2",
            hf.LlamaForCausalLM(hf.LlamaConfig(**PLAIN)),
            "Llama 2: full heads, no scaling, lm_head untied",
        ),
        causal(
            "llama/llama3",
            hf.LlamaForCausalLM(
                hf.LlamaConfig(
                    **GROUPED, rope_parameters=llama3, head_dim=8, rms_norm_eps=1e-5, tie_word_embeddings=True
                )
            ),
            "Llama 3: 4 heads over 2, head_dim 8 (not hidden / heads), llama3 scaling with a frequency kept, "
            "one "
            "blended, two divided; tied lm_head",
        ),
        causal("llama/linear", scaled(linear), "linear rotary scaling, factor 4"),
        causal(
            "llama/yarn",
            scaled(yarn, max_position_embeddings=256, attention_bias=True, mlp_bias=True),
            "yarn rotary scaling, factor 4, cos and sin times 0.1 ln(4) + 1; biases in attention and mlp",
        ),
        causal(
            "llama/dynamic",
            scaled(dynamic, max_position_embeddings=8),
            "dynamic NTK scaling: the base grows with the length beyond 8 (case `longer`), each case run afresh",
        ),
        causal(
            "llama/bfloat16_sharded",
            scaled({"rope_type": "default", "rope_theta": 500000.0}).to(torch.bfloat16),
            "weights in bfloat16, in several shards with model.safetensors.index.json; run in float32",
            save={"max_shard_size": "6KB"},
        ),
    ]


def mistral() -> list[Golden]:
    window = hf.MistralConfig(**GROUPED, sliding_window=4, rms_norm_eps=1e-5)
    full = hf.MistralConfig(
        **GROUPED, sliding_window=None, head_dim=10, rope_parameters={"rope_type": "default", "rope_theta": 1e6}
    )
    return [
        causal(
            "mistral/window",
            hf.MistralForCausalLM(window),
            "sliding window 4: a query sees itself and 3 keys before it",
        ),
        causal("mistral/full", hf.MistralForCausalLM(full), "no window (v0.2 and later), theta 1e6, head_dim 10"),
    ]


def qwen2() -> list[Golden]:
    window = hf.Qwen2Config(**GROUPED, use_sliding_window=True, sliding_window=4, max_window_layers=1)
    return [
        causal(
            "qwen2/tied",
            hf.Qwen2ForCausalLM(hf.Qwen2Config(**GROUPED, tie_word_embeddings=True)),
            "biases on q, k, v alone; tied lm_head; use_sliding_window false",
        ),
        causal(
            "qwen2/window", hf.Qwen2ForCausalLM(window), "layer 0 full, layer 1 (>= max_window_layers) with window 4"
        ),
    ]


def qwen3() -> list[Golden]:
    yarn = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 16}
    return [
        causal(
            "qwen3/base",
            hf.Qwen3ForCausalLM(hf.Qwen3Config(**GROUPED, head_dim=8, tie_word_embeddings=True)),
            "norms on the heads of q and k before the rotation, head_dim 8, no biases; tied lm_head",
        ),
        causal(
            "qwen3/yarn",
            hf.Qwen3ForCausalLM(hf.Qwen3Config(**GROUPED, head_dim=12, attention_bias=True, rope_parameters=yarn)),
            "yarn scaling with default betas, attention_bias, head_dim 12, lm_head untied",
        ),
    ]


def mixtral() -> list[Golden]:
    config = hf.MixtralConfig(**GROUPED, num_local_experts=4, num_experts_per_tok=2, sliding_window=4)
    return [
        causal(
            "mixtral/base",
            hf.MixtralForCausalLM(config),
            "4 experts, 2 for each token; a window of 4; keys block_sparse_moe.experts.<i>.w1, w3, w2, as published",
        )
    ]


def qwen3_moe() -> list[Golden]:
    sizes = GROUPED | {"head_dim": 8, "moe_intermediate_size": 8}
    config = hf.Qwen3MoeConfig(**sizes, num_experts=20, num_experts_per_tok=3, norm_topk_prob=True, mlp_only_layers=[0])
    shares = hf.Qwen3MoeConfig(**sizes, num_experts=3, num_experts_per_tok=2, decoder_sparse_step=2)
    return [
        causal(
            "qwen3_moe/base",
            hf.Qwen3MoeForCausalLM(config),
            "20 experts, 3 for each token, their weights normalised; none in layer 0",
        ),
        causal(
            "qwen3_moe/step",
            hf.Qwen3MoeForCausalLM(shares),
            "3 experts, 2 for each token, weights not normalised; in every second layer",
        ),
    ]


def smollm3() -> list[Golden]:
    config = hf.SmolLM3Config(
        **GROUPED | {"num_hidden_layers": 3},
        no_rope_layers=[1, 0, 1],
        use_sliding_window=True,
        sliding_window=4,
        attention_bias=True,
        pad_token_id=0,
    )
    note = "layer 1 without rotary positions and, as it has none, with window 4; biases in attention; tied lm_head"
    return [causal("smollm3/base", hf.SmolLM3ForCausalLM(config), note)]


def granite() -> list[Golden]:
    multipliers = {"embedding_multiplier": 12.0, "attention_multiplier": 0.25, "residual_multiplier": 0.22}
    config = hf.GraniteConfig(**GROUPED, **multipliers, logits_scaling=8.0, mlp_bias=True)
    note = "four multipliers, of embeddings, scores, residuals and (divided) logits; biases in mlp"
    return [causal("granite/base", hf.GraniteForCausalLM(config), note)]


def helium() -> list[Golden]:
    config = hf.HeliumConfig(**GROUPED, head_dim=6, attention_bias=True, pad_token_id=0)
    note = "rotates pairs of neighbours; attention_bias, but none on o_proj"
    return [causal("helium/base", hf.HeliumForCausalLM(config), note)]


def olmo2() -> list[Golden]:
    config = hf.Olmo2Config(**GROUPED, pad_token_id=0)
    note = "norms after attention and mlp, none before; norms over all queries and all keys"
    return [causal("olmo2/base", hf.Olmo2ForCausalLM(config), note)]


def ministral() -> list[Golden]:
    types = ["sliding_attention", "full_attention"]
    config = hf.MinistralConfig(**GROUPED, head_dim=6, layer_types=types, sliding_window=4, pad_token_id=0)
    golden = causal("ministral/base", hf.MinistralForCausalLM(config), "a window of 4 in the first layer alone")
    return [replace(golden, legacy=None)]


def seed_oss() -> list[Golden]:
    config = hf.SeedOssConfig(**GROUPED, head_dim=8, pad_token_id=0)
    note = "biases on queries, keys and values, none on o_proj; heads * head_dim is not hidden_size"
    return [replace(causal("seed_oss/base", hf.SeedOssForCausalLM(config), note), legacy=None)]


SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
WITHOUT_GROUPS = {name: size for name, size in GROUPED.items() if name != "num_key_value_heads"}


def of_base(name: str, model: hf.PreTrainedModel, note: str, legacy: object = legacy_rope) -> Golden:
    """A decoder whose parts may have other names than Llama's: what it returns and its layers are recorded."""
    cases = text_cases(VOCABULARY, 0, compare="kept", seed=500)

    def layers(model: nn.Module) -> dict[str, nn.ModuleList]:
        return {"": model.base_model.layers}

    return Golden(name, model, cases, ["logits"], layers, note, legacy=legacy)  # type: ignore[arg-type]


def ministral3() -> list[Golden]:
    growth = {"llama_4_scaling_beta": 0.5, "original_max_position_embeddings": 4, "factor": 4.0}
    rope = {"rope_type": "yarn", "rope_theta": 1e4, "beta_fast": 8.0, "mscale": 1.0, "mscale_all_dim": 1.0, **growth}
    config = hf.Ministral3Config(**GROUPED, head_dim=8, rope_parameters=rope, **SPECIAL)
    note = "yarn, and queries that grow every 4 positions by half a logarithm"
    return [of_base("ministral3/base", hf.Ministral3ForCausalLM(config), note)]


def olmo() -> list[Golden]:
    config = hf.OlmoConfig(**GROUPED, clip_qkv=0.5, **SPECIAL)
    return [of_base("olmo/base", hf.OlmoForCausalLM(config), "norms without weights; queries, keys and values clipped")]


def olmo3() -> list[Golden]:
    full = {"rope_type": "yarn", "rope_theta": 5e5, "factor": 4.0, "original_max_position_embeddings": 16}
    rope = {"full_attention": full, "sliding_attention": {"rope_type": "default", "rope_theta": 5e5}}
    types = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4}
    config = hf.Olmo3Config(**GROUPED, **types, rope_parameters=rope, **SPECIAL)
    note = "OLMo 2 with a window of 4 in layer 0; yarn in layer 1 alone"

    def legacy(config: dict[str, object]) -> dict[str, object]:
        return legacy_rope({**config, "rope_parameters": config["rope_parameters"]["full_attention"]}) | types  # type: ignore[index]

    return [of_base("olmo3/base", hf.Olmo3ForCausalLM(config), note, legacy)]


def cohere() -> list[Golden]:
    plain = hf.CohereConfig(**GROUPED, logit_scale=0.3, **SPECIAL)
    normed = hf.CohereConfig(**GROUPED, use_qk_norm=True, attention_bias=True, tie_word_embeddings=False, **SPECIAL)
    note = (
        "one layer norm without a bias before attention and mlp, side by side; neighbours rotated; scaled logits, tied"
    )
    return [
        of_base("cohere/base", hf.CohereForCausalLM(plain), note),
        of_base(
            "cohere/normed", hf.CohereForCausalLM(normed), "norms of each head with weights of its own; biases; untied"
        ),
    ]


def cohere2() -> list[Golden]:
    config = hf.Cohere2Config(
        **GROUPED, sliding_window=4, layer_types=["sliding_attention", "full_attention"], **SPECIAL
    )
    note = "layer 0 with a window of 4 and rotary positions, layer 1 without either"
    return [of_base("cohere2/base", hf.Cohere2ForCausalLM(config), note, None)]


def glm() -> list[Golden]:
    config = hf.GlmConfig(**GROUPED, head_dim=8, **SPECIAL)
    note = "neighbours of the first half of each head rotated; gate and up joined; biases on q, k, v alone"
    return [of_base("glm/base", hf.GlmForCausalLM(config), note)]


def glm4() -> list[Golden]:
    config = hf.Glm4Config(**GROUPED, head_dim=8, attention_bias=False, **SPECIAL)
    return [of_base("glm4/base", hf.Glm4ForCausalLM(config), "GLM with norms around attention and mlp; no biases")]


def starcoder2() -> list[Golden]:
    config = hf.Starcoder2Config(**GROUPED, sliding_window=4, **SPECIAL)
    return [
        of_base("starcoder2/base", hf.Starcoder2ForCausalLM(config), "layer norms, biases, a plain mlp, window 4; tied")
    ]


def stablelm() -> list[Golden]:
    sizes = GROUPED | {"hidden_size": 32}
    plain = hf.StableLmConfig(**sizes, partial_rotary_factor=0.5, use_qkv_bias=True, **SPECIAL)
    normed = hf.StableLmConfig(**sizes, use_parallel_residual=True, qk_layernorm=True, **SPECIAL)
    note = "attention and mlp side by side; norms of each head with weights of its own; a quarter of each head rotated"
    return [
        of_base(
            "stablelm/base", hf.StableLmForCausalLM(plain), "layer norms; half of each head rotated; biases on q, k, v"
        ),
        of_base("stablelm/parallel", hf.StableLmForCausalLM(normed), note),
    ]


def nemotron() -> list[Golden]:
    config = hf.NemotronConfig(**GROUPED, head_dim=8, attention_bias=True, mlp_bias=True, **SPECIAL)
    note = "layer norms stored minus 1; half of each head rotated; squared relu in a plain mlp; biases"
    return [of_base("nemotron/base", hf.NemotronForCausalLM(config), note)]


def phi() -> list[Golden]:
    plain = hf.PhiConfig(**WITHOUT_GROUPS | {"hidden_size": 32}, **SPECIAL)
    normed = hf.PhiConfig(**GROUPED | {"hidden_size": 32}, qk_layernorm=True, **SPECIAL)
    note = "one layer norm before attention and mlp, side by side; half of each head rotated; biases, of lm_head too"
    return [
        of_base("phi/base", hf.PhiForCausalLM(plain), note),
        of_base(
            "phi/normed", hf.PhiForCausalLM(normed), "layer norms on the heads of queries and keys; 4 heads over 2"
        ),
    ]


def gpt_neox() -> list[Golden]:
    sizes = WITHOUT_GROUPS | {"hidden_size": 32}
    parallel = hf.GPTNeoXConfig(**sizes, **SPECIAL)
    after = hf.GPTNeoXConfig(**sizes, use_parallel_residual=False, attention_bias=False, rotary_pct=1.0, **SPECIAL)

    def legacy(config: dict[str, object]) -> dict[str, object]:
        older = legacy_rope(config)
        return older | {"rotary_pct": older.pop("partial_rotary_factor"), "rotary_emb_base": older.pop("rope_theta")}

    note = "attention and mlp side by side, each with its norm; q, k, v of each head together; a quarter rotated"
    return [
        of_base("gpt_neox/base", hf.GPTNeoXForCausalLM(parallel), note, legacy),
        of_base(
            "gpt_neox/sequential", hf.GPTNeoXForCausalLM(after), "mlp after attention; no biases in attention", legacy
        ),
    ]


def gemma() -> list[Golden]:
    config = hf.GemmaConfig(**GROUPED | {"num_key_value_heads": 1}, head_dim=8, hidden_act="gelu", pad_token_id=0)
    note = "norms before attention and mlp, whose weights are stored minus 1; scaled embeddings; tied"
    return [causal("gemma/base", hf.GemmaForCausalLM(config), note)]


def qwen2_moe() -> list[Golden]:
    sizes = GROUPED | {"moe_intermediate_size": 8, "shared_expert_intermediate_size": 12}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": False}
    windows = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
    config = hf.Qwen2MoeConfig(**sizes, **experts, **windows, mlp_only_layers=[1], **SPECIAL)
    note = "4 experts and a shared one with a gate, none in layer 1; layer 0 (< max_window_layers) with window 4"
    return [of_base("qwen2_moe/base", hf.Qwen2MoeForCausalLM(config), note)]


def granitemoe() -> list[Golden]:
    multipliers = {"embedding_multiplier": 12.0, "attention_multiplier": 0.25, "residual_multiplier": 0.22}
    sizes = GROUPED | {"intermediate_size": 16}
    config = hf.GraniteMoeConfig(**sizes, **multipliers, logits_scaling=8.0, num_local_experts=4, **SPECIAL)
    note = "4 experts, 2 for each token, as input_linear and output_linear; four multipliers"
    return [of_base("granitemoe/base", hf.GraniteMoeForCausalLM(config), note)]


def olmoe() -> list[Golden]:
    config = hf.OlmoeConfig(**GROUPED | {"intermediate_size": 8}, num_experts=3, num_experts_per_tok=2, **SPECIAL)
    note = "3 experts, 2 for each token, weights not normalised; norms over all queries and all keys"
    return [of_base("olmoe/base", hf.OlmoeForCausalLM(config), note)]


def gpt_oss() -> list[Golden]:
    rope = {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 8.0, "truncate": False}
    rope |= {"beta_fast": 8.0, "beta_slow": 1.0, "original_max_position_embeddings": 8}
    sizes = GROUPED | {"intermediate_size": 32, "hidden_size": 32, "head_dim": 8}
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
    config = hf.GptOssConfig(**sizes, **experts, sliding_window=4, rope_parameters=rope, **SPECIAL)
    note = "sinks; 4 experts with biases and limited gates; layer 0 with window 4; yarn that is not truncated"
    model = hf.GptOssForCausalLM(config)
    return [of_base("gpt_oss/base", model, note), replace(of_base("gpt_oss/mxfp4", model, MXFP4), rewrite=in_mxfp4)]


MXFP4 = "the experts rounded to 4 bits, stored as blocks and scales; run in float32"
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def in_mxfp4(folder: Path) -> None:
    """Round the experts of gpt-oss, and store them in MXFP4 under the keys of the published files; the reader gets floats."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for key in [key for key in tensors if key.endswith(("gate_up_proj", "down_proj"))]:
        weight = tensors.pop(key).mT.contiguous()
        groups = weight.reshape(*weight.shape[:-1], -1, 32)
        exponents = (groups.abs().amax(-1) / 6).log2().ceil()
        codes = (groups.abs() / exponents.exp2()[..., None]).unsqueeze(-1).sub(E2M1).abs().argmin(-1)
        codes = (codes + 8 * (groups < 0)).to(torch.uint8)
        tensors[f"{key}_blocks"] = codes[..., ::2] + 16 * codes[..., 1::2]
        tensors[f"{key}_scales"] = (exponents + 127).to(torch.uint8)
    save_file(tensors, path, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    names = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    quantization = {"modules_to_not_convert": names, "quant_method": "mxfp4"}
    write_json(folder / "config.json", config | {"quantization_config": quantization})


def falcon() -> list[Golden]:
    sizes = {name: size for name, size in WITHOUT_GROUPS.items() if name != "intermediate_size"} | SPECIAL
    common = {"ffn_hidden_size": 36}
    kinds = {
        "base": ({}, "one head of keys and values for all; attention and mlp side by side after one norm; tied"),
        "grouped": (
            {"new_decoder_architecture": True, "num_kv_heads": 2, **common},
            "4 heads over 2, each group's q, k and v together; a norm for each of attention and mlp",
        ),
        "separate": (
            {"multi_query": False, "parallel_attn": False, "bias": True, "tie_word_embeddings": False, **common},
            "q, k and v of each head together; mlp after attention; biases; untied",
        ),
    }
    goldens = []
    for name, (options, note) in kinds.items():
        model = hf.FalconForCausalLM(hf.FalconConfig(**sizes, **options))
        golden = of_base(f"falcon/{name}", model, note)
        goldens.append(replace(golden, layers=lambda model: {"": model.transformer.h}))
    return goldens


def gemma2() -> list[Golden]:
    config = hf.Gemma2Config(**GROUPED, head_dim=8, query_pre_attn_scalar=10, sliding_window=4)
    capped = hf.Gemma2Config(
        **GROUPED | {"hidden_size": 16, "num_hidden_layers": 1},
        head_dim=6,
        attention_bias=True,
        attn_logit_softcapping=2.0,
        final_logit_softcapping=None,
        layer_types=["full_attention"],
        tie_word_embeddings=False,
    )
    return [
        causal(
            "gemma2/base", hf.Gemma2ForCausalLM(config), "layer 0 with window 4, layer 1 full; both soft caps; tied"
        ),
        replace(
            causal(
                "gemma2/capped",
                hf.Gemma2ForCausalLM(capped),
                "scores in a tight soft cap, logits in none; biases; untied",
            ),
            legacy=None,
        ),
    ]


def gemma3() -> list[Golden]:
    rope = {
        "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    }
    config = hf.Gemma3TextConfig(
        **GROUPED | {"num_hidden_layers": 3, "num_key_value_heads": 1},
        head_dim=8,
        query_pre_attn_scalar=8,
        sliding_window=4,
        rope_parameters=rope,
        sliding_window_pattern=2,
        final_logit_softcapping=5.0,
    )
    note = "layers 0 and 2 with window 4 and theta 1e4, layer 1 full with 1e6, linear scaling; norms on heads; tied"
    golden = causal("gemma3/base", hf.Gemma3ForCausalLM(config), note)
    golden = replace(golden, taps=lambda model: {"last_hidden_state": model.model.norm}, legacy=gemma3_legacy)
    return [golden, with_images()]


def with_images() -> Golden:
    """A checkpoint that also reads images; the cases are texts alone."""
    text = GROUPED | {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    vision = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = hf.Gemma3Config(
        text_config=text
        | {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 4, "sliding_window_pattern": 2},
        vision_config=vision | {"image_size": 16, "patch_size": 8, "model_type": "siglip_vision_model"},
        mm_tokens_per_image=4,
        image_token_index=39,
        boi_token_index=38,
        eoi_token_index=37,
    )
    note = "the text model of a checkpoint that reads images: prefix `model.language_model.`, head tied"
    golden = causal("gemma3/images", hf.Gemma3ForConditionalGeneration(config), note)
    return of_language_model(golden)


def gemma3_legacy(config: dict[str, object]) -> dict[str, object]:
    """As before transformers 5: two bases, one scaling, and a pattern instead of layer_types."""
    older = {key: value for key, value in config.items() if key not in ("rope_parameters", "dtype", "layer_types")}
    full, sliding = (dict(config["rope_parameters"][f"{kind}_attention"]) for kind in ("full", "sliding"))  # type: ignore[index]
    older |= {"rope_theta": full.pop("rope_theta"), "rope_local_base_freq": sliding["rope_theta"]}
    return older | {"rope_scaling": full, "sliding_window_pattern": 2, "cache_implementation": "hybrid"}


def phi3() -> list[Golden]:
    special = {"pad_token_id": 0, "eos_token_id": 2}
    long = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0, 1.2],
        "long_factor": [1.5, 6.0],
        "original_max_position_embeddings": 10,
        "partial_rotary_factor": 0.75,
    }
    return [
        causal(
            "phi3/base",
            hf.Phi3ForCausalLM(hf.Phi3Config(**GROUPED, **special, sliding_window=4)),
            "joined qkv_proj and gate_up_proj; window 4",
        ),
        replace(
            causal(
                "phi3/long",
                hf.Phi3ForCausalLM(
                    hf.Phi3Config(
                        **GROUPED,
                        **special,
                        rope_parameters=long,
                        original_max_position_embeddings=10,
                        tie_word_embeddings=True,
                    )
                ),
                "longrope, long from 11 tokens on (case `longer`); 4 of 6 features of a head rotated; tied lm_head",
            ),
            legacy=phi3_legacy,
        ),
    ]


def phi3_legacy(config: dict[str, object]) -> dict[str, object]:
    """As before transformers 5: the part that is rotated and the trained length outside of rope_scaling."""
    older = {key: value for key, value in config.items() if key not in ("rope_parameters", "dtype")}
    rope = dict(config["rope_parameters"])  # type: ignore[call-overload]
    for name in ("rope_theta", "partial_rotary_factor", "original_max_position_embeddings"):
        older[name] = rope.pop(name)
    rope.pop("rope_type")
    return older | {"rope_scaling": {"type": "longrope", **rope}}


def mamba2() -> list[Golden]:
    """Chunks of 4 tokens in transformers; a case of 40 fills a chunk of ours too."""
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 6, "chunk_size": 4}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    cases = text_cases(VOCABULARY, 0, compare="kept", seed=700)
    cases["chunks"] = Case("no mask, (2, 40)", {"input_ids": ids((2, 40), VOCABULARY, 710)})
    limited = {"time_step_limit": (0.01, 0.5), "use_bias": True, "use_conv_bias": False, "conv_kernel": 3}
    return [
        Golden(
            f"mamba2/{name}",
            hf.Mamba2ForCausalLM(hf.Mamba2Config(**sizes, **special, **options)),
            cases,
            ["logits"],
            lambda model: {"": model.backbone.layers},
            note,
            taps=lambda model: {"last_hidden_state": model.backbone.norm_f},
        )
        for name, options, note in (
            ("base", {"num_heads": 4, "head_dim": 8, "n_groups": 2}, "4 heads in 2 groups, lm_head untied"),
            (
                "limited",
                {"num_heads": 8, "head_dim": 4, "n_groups": 1, "tie_word_embeddings": True, **limited},
                "one group; limited steps, biases of projections but not of convolutions, kernels of 3; tied lm_head",
            ),
        )
    ]


def lfm2() -> list[Golden]:
    sizes = GROUPED | {"num_hidden_layers": 3, "block_auto_adjust_ff_dim": False}
    config = hf.Lfm2Config(**sizes, layer_types=["conv", "full_attention", "conv"], **SPECIAL)
    adjusted = {"block_multiple_of": 8, "block_ffn_dim_multiplier": 1.2, "full_attn_idxs": [0]}
    biased = hf.Lfm2Config(**GROUPED, **adjusted, conv_bias=True, conv_L_cache=4, tie_word_embeddings=False, **SPECIAL)
    note = "layer 1 attention with norms on heads, the others gated convolutions of 3 tokens; tied"
    other = "layer 1 a convolution of 4 tokens with biases; the feed-forward width 32, computed of 36; untied"
    return [
        of_base("lfm2/base", hf.Lfm2ForCausalLM(config), note, None),
        of_base("lfm2/biased", hf.Lfm2ForCausalLM(biased), other, None),
    ]


LATENT = WITHOUT_GROUPS | {
    "num_key_value_heads": 4,
    "hidden_size": 16,
    "kv_lora_rank": 12,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 5,
    "moe_intermediate_size": 4,
    "first_k_dense_replace": 1,
}


def deepseek_v2() -> list[Golden]:
    experts = {"n_routed_experts": 6, "num_experts_per_tok": 2, "n_shared_experts": 2}
    groups = {"n_group": 3, "topk_group": 2, "topk_method": "group_limited_greedy", "routed_scaling_factor": 2.0}
    greedy = hf.DeepseekV2Config(**LATENT, **experts, q_lora_rank=None, **SPECIAL)
    grouped = hf.DeepseekV2Config(**LATENT, **experts, **groups, q_lora_rank=8, attention_bias=True, **SPECIAL)
    return [
        of_base("deepseek_v2/base", hf.DeepseekV2ForCausalLM(greedy), "latent attention; 2 of 6 experts in layer 1"),
        of_base(
            "deepseek_v2/grouped",
            hf.DeepseekV2ForCausalLM(grouped),
            "2 experts of 2 of 3 groups, times 2; queries of low rank; biases in attention",
        ),
    ]


def deepseek_v3() -> list[Golden]:
    yarn = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 8}
    yarn |= {"mscale": 1.0, "mscale_all_dim": 0.8, "beta_fast": 8.0, "beta_slow": 1.0}
    experts = {"n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2}
    config = hf.DeepseekV3Config(**LATENT, **experts, q_lora_rank=8, rope_parameters=yarn, **SPECIAL)
    model = hf.DeepseekV3ForCausalLM(config)
    torch.manual_seed(0)
    model.model.layers[1].mlp.gate.e_score_correction_bias.uniform_(-0.3, 0.3)
    note = "queries of low rank; sigmoid scores with a bias for the choice, 2 of 4 groups; yarn that scales scores"
    return [of_base("deepseek_v3/base", model, note)]


DELTA = GROUPED | {
    "hidden_size": 16,
    "head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 6,
    "linear_value_head_dim": 6,
    "layer_types": ["linear_attention", "full_attention"],
}


def delta(name: str, model: hf.PreTrainedModel, note: str) -> Golden:
    golden = of_base(name, model, note, None)
    long = Case("no mask, (2, 19)", {"input_ids": ids((2, 19), VOCABULARY, 720)})
    return replace(golden, cases={**golden.cases, "chunks": long})


def qwen3_next() -> list[Golden]:
    experts = {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 4}
    config = hf.Qwen3NextConfig(
        **DELTA | {"intermediate_size": 20},
        **experts,
        shared_expert_intermediate_size=4,
        mlp_only_layers=[0],
        **SPECIAL,
    )
    note = "layer 0 the gated delta rule, 2 key heads for 4; layer 1 gated attention, experts; a quarter rotated"
    return [delta("qwen3_next/base", hf.Qwen3NextForCausalLM(config), note)]


def qwen3_5_text() -> list[Golden]:
    rope = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5, "mrope_section": [1, 1, 0]}
    config = hf.Qwen3_5TextConfig(**DELTA, rope_parameters=rope, tie_word_embeddings=True, **SPECIAL)
    note = "as Qwen3-Next with products apart and no experts; half of each head rotated; tied"
    return [delta("qwen3_5_text/base", hf.Qwen3_5ForCausalLM(config), note), qwen3_5_with_images(config)]


def qwen3_5_with_images(text: hf.Qwen3_5TextConfig) -> Golden:
    """A checkpoint that also reads images; the cases are texts alone."""
    vision = {"hidden_size": 8, "intermediate_size": 12, "depth": 1, "num_heads": 2, "patch_size": 4}
    config = hf.Qwen3_5Config(
        text_config=text.to_dict(),
        vision_config=vision | {"out_hidden_size": 16, "num_position_embeddings": 4},
        **{f"{name}_token_id": 39 - i for i, name in enumerate(("image", "video", "vision_start", "vision_end"))},
    )
    note = "the text model of a checkpoint that reads images: prefix `model.language_model.`, head of its own"
    golden = delta("qwen3_5_text/images", hf.Qwen3_5ForConditionalGeneration(config), note)
    return of_language_model(golden)
