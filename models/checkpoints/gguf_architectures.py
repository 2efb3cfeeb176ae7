"""What llama.cpp calls the options and the tensors of each architecture that is read from GGUF files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """How llama.cpp stores the models of one architecture.

    Args:
        model_type: what config.json calls it.
        options: metadata, after the architecture's name and a dot, to the option of config.json.
        required: the metadata that every file must have.
        constants: options that the architecture implies.
        harmless: regular expressions for metadata that changes nothing in a forward pass.
        keys: tensors to Hugging Face's keys; those of a layer, after ``blk.0.`` here and ``model.layers.0.`` there,
            begin with a dot.
        frequencies: a tensor with what divides each frequency of the rotary positions.
        permuted: tensors of a layer -> metadata with their number of heads. llama.cpp turns pairs of neighbours where
            Hugging Face turns the two halves of a head, so these have their rows in another order.
    """

    model_type: str
    options: Mapping[str, str]
    required: tuple[str, ...]
    constants: Mapping[str, object] = field(default_factory=dict)
    harmless: tuple[str, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    frequencies: str | None = None
    permuted: Mapping[str, str] = field(default_factory=dict)


_OPTIONS = {
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
_REQUIRED = (
    "embedding_length",
    "feed_forward_length",
    "block_count",
    "context_length",
    "attention.head_count",
    "attention.layer_norm_rms_epsilon",
)
_KEYS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    ".attn_norm": "input_layernorm",
    ".attn_q": "self_attn.q_proj",
    ".attn_k": "self_attn.k_proj",
    ".attn_v": "self_attn.v_proj",
    ".attn_output": "self_attn.o_proj",
    ".attn_q_norm": "self_attn.q_norm",
    ".attn_k_norm": "self_attn.k_norm",
    ".ffn_norm": "post_attention_layernorm",
    ".ffn_gate": "mlp.gate_proj",
    ".ffn_up": "mlp.up_proj",
    ".ffn_down": "mlp.down_proj",
}


_DECODER = Architecture(
    model_type="llama",
    options=_OPTIONS,
    required=_REQUIRED,
    constants={"hidden_act": "silu"},
    harmless=("tensor_data_layout", r"rope\.scaling\.finetuned"),
    keys=_KEYS,
)
ARCHITECTURES = {
    "llama": replace(  # Mistral's files call themselves so, too
        _DECODER,
        frequencies="rope_freqs.weight",
        permuted={".attn_q": "attention.head_count", ".attn_k": "attention.head_count_kv"},
    ),
    "qwen2": replace(_DECODER, model_type="qwen2"),
    "qwen3": replace(_DECODER, model_type="qwen3"),
}
"""By the name that a file gives in general.architecture."""
