"""What a kind of model needs in a folder for onnxruntime-genai."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lucid.nn.cache import CacheShape
from lucid.nn.model_parts import ModelPart


@dataclass(frozen=True)
class Plan:
    """The files of a folder, and what genai_config.json says of them.

    Args:
        kind: the model's type for onnxruntime-genai.
        parts: the ONNX files by name. The first output of the last one is the logits.
        sections: of `model` in genai_config.json, beside ids and sizes.
        positions: the most tokens of a text; None where only the tokenizer knows.
        shares_buffer: whether the past and the present of the cache are one buffer, as large as `search.max_length`.
        files: others by name.
    """

    kind: str
    parts: Mapping[str, ModelPart]
    sections: Mapping[str, Any]
    positions: int | None = None
    shares_buffer: bool = False
    files: Mapping[str, bytes] = field(default_factory=dict)


def stack_section(
    file: str, shape: CacheShape, inputs: Mapping[str, str], outputs: Mapping[str, str]
) -> dict[str, Any]:
    """The section of a file in genai_config.json, with its names for inputs and outputs."""
    return {
        "filename": file,
        "session_options": {"provider_options": []},
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "head_size": shape.head_dim,
        "inputs": dict(inputs),
        "outputs": dict(outputs),
    }
