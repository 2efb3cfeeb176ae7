"""Decoders in folders for onnxruntime-genai: GPT-2, Llama and its kin, and any `nn.CausalDecoder`.

The cache is a fixed one by default, which onnxruntime-genai allocates once for `search.max_length` positions, and the
graph writes it in place. It is right for every batch: onnxruntime-genai pads on the right, and in a fixed cache what
padding wrote is overwritten by the next tokens. In a growing cache padding stays between a text and its continuation.
The attention mask hides it, but windows are counted over it, so a model with windows is refused there. Only a growing
cache can be reordered by a beam search.
"""

from __future__ import annotations

from pathlib import Path

from lucid.core.graph.graph import Graph
from lucid.layouts.genai_plan import Plan, stack_section
from lucid.layouts.parts import with_last_logits
from lucid.models.checkpoints.pretrained import Pretrained, read_model_type
from lucid.nn.decoding import CausalDecoder
from lucid.nn.model_parts import CacheKind
from lucid.tracing.parts import trace_part

_MODEL = "model.onnx"
_ANY_TYPE = "decoder"
_INPUTS = {
    "input_ids": "input_ids",
    "attention_mask": "attention_mask",
    "position_ids": "position_ids",
    "past_key_names": "past_key_values.%d.key",
    "past_value_names": "past_key_values.%d.value",
}
_OUTPUTS = {
    "logits": "logits",
    "present_key_names": "present.%d.key",
    "present_value_names": "present.%d.value",
}


def plan_decoder(decoder: CausalDecoder, checkpoint: Path, cache: CacheKind | None) -> Plan:
    """The plan for a decoder.

    Raises:
        ValueError: for a growing cache and a model with windows.
    """
    part = decoder.part(cache or "fixed")
    if decoder.takes_logits_to_keep:
        part = with_last_logits(part, decoder)
    if cache == "growing" and _has_windows(trace_part(part).graph):
        raise ValueError(
            "cache='growing': the model has sliding windows, which onnxruntime-genai would count over the padding "
            "between a text and its continuation; use cache='fixed'"
        )
    return Plan(
        kind=_type(decoder, checkpoint),
        parts={_MODEL: part},
        sections={"decoder": stack_section(_MODEL, decoder.cache_shape, _INPUTS, _OUTPUTS)},
        shares_buffer=cache != "growing",
    )


def _has_windows(graph: Graph) -> bool:
    return any(node.attributes.get("window") is not None for node in graph.nodes())


def _type(decoder: CausalDecoder, checkpoint: Path) -> str:
    if not isinstance(decoder, Pretrained):
        return _ANY_TYPE
    kind = read_model_type(checkpoint, *decoder.checkpoint.model_types)
    return kind if decoder.checkpoint.family.types[kind].genai else _ANY_TYPE
