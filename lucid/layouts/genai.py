"""Folders for onnxruntime-genai: model.onnx, genai_config.json and the tokenizer, under the names of its model builder.

Written for onnxruntime-genai 0.18, which runs on onnxruntime 1.31 and newer.

The cache is a fixed one by default, which onnxruntime-genai allocates once for `search.max_length` positions, and the
graph writes it in place. It is right for every batch: onnxruntime-genai pads on the right, and in a fixed cache what
padding wrote is overwritten by the next tokens. In a growing cache padding stays between a text and its continuation.
The attention mask hides it, but windows are counted over it, so a model with windows is refused there. Only a growing
cache can be reordered by a beam search.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lucid.chat import Tokenizer, load_tokenizer, save_tokenizer
from lucid.export import Target, to_onnx
from lucid.files import write_atomically
from lucid.graph import Graph
from lucid.layouts.layout import Exported, Layout, Options
from lucid.models._pretrained import Pretrained, read_model_type
from lucid.nn.cache import Cache
from lucid.nn.decoding import CausalDecoder
from lucid.nn.module import Module
from lucid.nn.parts import CACHE_KINDS
from lucid.ops.tensor import Tensor
from lucid.parts import trace_part

_MODEL = "model.onnx"
_ONNXRUNTIME = "1.31"
_TARGETS = ("cpu", "any")  # the first by default
# Types that onnxruntime-genai knows and runs alike. Its "gpt2" takes the keys and values of a layer as one tensor.
_TYPES, _ANY_TYPE = ("llama", "mistral", "qwen2", "qwen3"), "decoder"
_MAX_LENGTH = 2048  # positions: onnxruntime-genai allocates a cache of max_length, by default of all the model has


class LastTokens(Module):
    """A decode step with logits (N, 1, vocabulary), of the last token of each row: the one of the largest position.

    onnxruntime-genai gives padding, which it writes after a text, position 0.
    """

    def __init__(self, decoder: CausalDecoder) -> None:
        self.decoder = decoder

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor, past_key_values: Sequence[Cache]
    ) -> tuple[Tensor, list[Cache]]:
        last = position_ids.argmax(1)
        return self.decoder(
            input_ids, attention_mask, position_ids, past_key_values=past_key_values, logits_to_keep=last
        )


def _write(model: Module, checkpoint: Path, folder: Path, options: Options) -> list[Exported]:
    if not isinstance(model, CausalDecoder):
        raise ValueError(
            f"{checkpoint}: is the checkpoint of a {type(model).__name__}, which does not continue texts; expected an "
            "nn.CausalDecoder, such as GPT2 or Llama (Llama, Mistral, Qwen2, Qwen3)"
        )
    cache, target = options.cache or "fixed", options.target or _TARGETS[0]
    _check_options(cache, target, options.capacity)
    tokenizer = load_tokenizer(checkpoint)
    part = model.part(cache)
    if model.takes_logits_to_keep:
        part = part._replace(function=LastTokens(model))
    traced = trace_part(part)
    graph = traced.graph
    if cache == "growing" and _has_windows(graph):
        raise ValueError(
            "cache='growing': the model has sliding windows, which onnxruntime-genai would count over the padding "
            "between a text and its continuation; use cache='fixed'"
        )
    vocabulary = graph.outputs[0].type.shape[-1]
    assert isinstance(vocabulary, int)  # the rows of a weight
    section = _model_section(tokenizer, model, _type(model, checkpoint), vocabulary)
    search = {
        "max_length": _max_length(options.capacity, section["context_length"]),
        "do_sample": False,
        "past_present_share_buffer": cache == "fixed",
    }
    with write_atomically(folder / "genai_config.json") as file:
        file.write(json.dumps({"model": section, "search": search}, indent=2).encode())
    save_tokenizer(tokenizer, folder)
    to_onnx(traced, path=folder / _MODEL, target=Target(target, onnxruntime=_ONNXRUNTIME))
    return [Exported(_MODEL, part)]


def _check_options(cache: str, target: str, capacity: int | None) -> None:
    if cache not in CACHE_KINDS:
        raise ValueError(f"cache {cache!r} does not exist: choose one of {', '.join(CACHE_KINDS)}")
    if target not in _TARGETS:
        raise ValueError(f"target {target!r}: onnxruntime-genai on a CPU takes models for {' and '.join(_TARGETS)}")
    if capacity is not None and (isinstance(capacity, bool) or capacity < 1):
        raise ValueError(f"capacity is {capacity!r}, expected a whole number of 1 or more")


def _has_windows(graph: Graph) -> bool:
    return any(node.attributes.get("window") is not None for node in graph.nodes())


def _type(model: CausalDecoder, checkpoint: Path) -> str:
    if not isinstance(model, Pretrained):
        return _ANY_TYPE
    kind = read_model_type(checkpoint, *model.checkpoint.model_types)
    return kind if kind in _TYPES else _ANY_TYPE


def _model_section(tokenizer: Tokenizer, decoder: CausalDecoder, kind: str, vocabulary: int) -> dict[str, Any]:
    """The section `model` of genai_config.json."""
    if tokenizer.max_positions is None:
        raise ValueError(
            f"{tokenizer.where}: does not say how many positions the model has, which onnxruntime-genai must know; "
            "expected max_position_embeddings or n_positions in its config.json"
        )
    eos = tokenizer.eos_token_ids
    if not eos or max(eos) >= vocabulary:
        raise ValueError(
            f"{tokenizer.where}: the ids that end a text are {list(eos)}, expected one or more below {vocabulary}, the "
            "size of the model's vocabulary; name them as eos_token_id in its generation_config.json"
        )
    bos, pad = (_id(tokenizer, name, vocabulary) for name in ("bos_token", "pad_token"))
    shape = decoder.cache_shape
    section: dict[str, Any] = {
        "type": kind,
        "vocab_size": vocabulary,
        "context_length": tokenizer.max_positions,
        "eos_token_id": list(eos) if len(eos) > 1 else eos[0],
        "pad_token_id": eos[0] if pad is None else pad,
        "decoder": {
            "filename": _MODEL,
            "session_options": {"provider_options": []},
            "num_hidden_layers": shape.layers,
            "num_key_value_heads": shape.kv_heads,
            "head_size": shape.head_dim,
            "inputs": {
                "input_ids": "input_ids",
                "attention_mask": "attention_mask",
                "position_ids": "position_ids",
                "past_key_names": "past_key_values.%d.key",
                "past_value_names": "past_key_values.%d.value",
            },
            "outputs": {
                "logits": "logits",
                "present_key_names": "present.%d.key",
                "present_value_names": "present.%d.value",
            },
        },
    }
    return section if bos is None else {**section, "bos_token_id": bos}


def _id(tokenizer: Tokenizer, name: str, vocabulary: int) -> int | None:
    """The id of a special token; None without one that the model knows."""
    token = tokenizer.special_tokens.get(name)
    number = None if token is None else tokenizer.library.token_to_id(token)
    return number if number is not None and number < vocabulary else None


def _max_length(capacity: int | None, positions: int) -> int:
    if capacity is not None and capacity > positions:
        raise ValueError(f"capacity is {capacity}, and the model has {positions} positions; give a smaller one")
    return capacity or min(positions, _MAX_LENGTH)


GENAI = Layout("genai", "onnxruntime-genai", _write)
