"""Folders for onnxruntime-genai: decoders and Whisper, with genai_config.json and the tokenizer.

Written for onnxruntime-genai 0.18, which runs on onnxruntime 1.31 and newer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lucid.core.graph.graph import Graph
from lucid.core.number_ranges import at_least, check
from lucid.core.targets.runtimes import CPU, OWN, PROCESSOR, targets_of
from lucid.files.atomic import write_atomically
from lucid.generation.chat import Tokenizer, load_tokenizer, save_tokenizer
from lucid.layouts.layout import Exported, Options, export_file
from lucid.layouts.parts import file_parts, with_last_logits
from lucid.models.checkpoints.pretrained import Pretrained, read_options
from lucid.models.whisper import Whisper
from lucid.nn.cache import CacheShape
from lucid.nn.decoding import CausalDecoder
from lucid.nn.model_parts import CacheKind, ModelPart
from lucid.nn.module import Module
from lucid.nn.recurrent_decoding import RecurrentDecoder
from lucid.tracing.parts import check_cache, trace_part

_ONNXRUNTIME = "1.31"
_TARGETS = targets_of(CPU, domain=OWN)
_MAX_LENGTH = 2048  # positions: onnxruntime-genai allocates a cache of max_length, by default of all the model has


def write(model: Module, checkpoint: Path, folder: Path, options: Options) -> list[Exported]:
    """A decoder or Whisper in a folder for onnxruntime-genai."""
    target = options.target_name or PROCESSOR
    _check_options(target, options)
    plan = _plan(model, checkpoint, options)
    tokenizer = load_tokenizer(checkpoint)
    traced = {name: trace_part(part) for name, part in plan.parts.items()}
    vocabulary = list(traced.values())[-1].graph.outputs[0].type.shape[-1]
    assert isinstance(vocabulary, int)  # the rows of a weight
    config = _config(plan, tokenizer, vocabulary, options.capacity)
    for name, data in {"genai_config.json": json.dumps(config, indent=2).encode(), **plan.files}.items():
        with write_atomically(folder / name) as file:
            file.write(data)
    save_tokenizer(tokenizer, folder)
    release = options.target_named(target, onnxruntime=_ONNXRUNTIME, rows_apart=True)
    return [export_file(part, folder, name, release, options, traced=traced[name]) for name, part in plan.parts.items()]


def _plan(model: Module, checkpoint: Path, options: Options) -> Plan:
    own = isinstance(model, RecurrentDecoder) or file_parts(model)  # states, or several files
    if isinstance(model, CausalDecoder) and not own and model.cache_shape.value_dim is None:
        return plan_decoder(model, checkpoint, options.cache)
    if isinstance(model, Whisper):
        return plan_whisper(model, options.cache)
    raise ValueError(
        f"{checkpoint}: is the checkpoint of a {type(model).__name__}, which onnxruntime-genai does not run; expected "
        "an nn.CausalDecoder, such as GPT2 or Llama (Llama, Mistral, Qwen2, Qwen3), or Whisper"
    )


def _check_options(target: str, options: Options) -> None:
    if target not in _TARGETS:
        raise ValueError(f"target {target!r}: onnxruntime-genai on a CPU takes models for {' and '.join(_TARGETS)}")
    if options.dtype is not None:
        raise ValueError(f"dtype {options.dtype!r}: onnxruntime-genai's folders are float32; weights may be quantized")
    check_cache(options.cache, None)
    if options.capacity is not None:
        check("capacity", options.capacity, at_least(1))


def _config(plan: Plan, tokenizer: Tokenizer, vocabulary: int, capacity: int | None) -> dict[str, Any]:
    """The content of genai_config.json."""
    positions = plan.positions or tokenizer.max_positions
    if positions is None:
        raise ValueError(
            f"{tokenizer.where}: does not say how many positions the model has, which onnxruntime-genai must know; "
            "expected max_position_embeddings or n_positions in its config.json"
        )
    if capacity is not None and capacity > positions:
        raise ValueError(f"capacity is {capacity}, and the model has {positions} positions; give a smaller one")
    eos = tokenizer.eos_token_ids
    if not eos or max(eos) >= vocabulary:
        raise ValueError(
            f"{tokenizer.where}: the ids that end a text are {list(eos)}, expected one or more below {vocabulary}, the "
            "size of the model's vocabulary; name them as eos_token_id in its generation_config.json"
        )
    bos, pad = (_id(tokenizer, name, vocabulary) for name in ("bos_token", "pad_token"))
    model = {
        "type": plan.kind,
        "vocab_size": vocabulary,
        "context_length": positions,
        **({} if bos is None else {"bos_token_id": bos}),
        "eos_token_id": list(eos) if len(eos) > 1 else eos[0],
        "pad_token_id": eos[0] if pad is None else pad,
        **plan.sections,
    }
    search = {
        "max_length": capacity or min(positions, _MAX_LENGTH),
        "do_sample": False,
        "past_present_share_buffer": plan.shares_buffer,
    }
    return {"model": model, "search": search}


def _id(tokenizer: Tokenizer, name: str, vocabulary: int) -> int | None:
    """The id of a special token; None without one that the model knows."""
    token = tokenizer.special_tokens.get(name)
    number = None if token is None else tokenizer.library.token_to_id(token)
    return number if number is not None and number < vocabulary else None


@dataclass(frozen=True)
class Plan:
    """The files of a folder, and what genai_config.json says of them."""

    kind: str  # the model's type for onnxruntime-genai
    parts: Mapping[str, ModelPart]  # the ONNX files by name. The first output of the last one is the logits
    sections: Mapping[str, Any]  # of `model` in genai_config.json, besides ids and sizes
    positions: int | None = None  # the most tokens of a text; None where only the tokenizer knows
    # Whether the past and the present of the cache are one buffer, as large as `search.max_length`.
    shares_buffer: bool = False
    files: Mapping[str, bytes] = field(default_factory=dict)  # others by name


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
    cache = cache or ("fixed" if decoder.takes_fixed_cache else "growing")
    part = decoder.part(cache)
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
    kind = read_options(checkpoint, *decoder.checkpoint.model_types, adapters=decoder.adapters).model_type
    return kind if decoder.checkpoint.family.types[kind].genai else _ANY_TYPE


_ENCODER, _DECODER, _SOUND = "encoder.onnx", "decoder.onnx", "audio_processor_config.json"
_POSITIONS = 1500  # of the encoder in 30 seconds: onnxruntime-genai takes no other number
_WINDOW, _HOP, _SECONDS = 400, 160, 30  # samples of a Fourier transform, and from one to the next, at 16 kHz


def plan_whisper(whisper: Whisper, cache: CacheKind | None) -> Plan:
    """The plan for Whisper.

    Raises:
        ValueError: for a fixed cache, or a number of positions other than that of 30 seconds.
    """
    config, shape = whisper.config, whisper.cache_shape
    if cache == "fixed":
        raise ValueError("cache='fixed': onnxruntime-genai runs Whisper over a growing cache; use cache='growing'")
    if config.max_source_positions != _POSITIONS:
        raise ValueError(
            f"the encoder has {config.max_source_positions} positions, onnxruntime-genai runs a Whisper with "
            f"{_POSITIONS}, those of {_SECONDS} seconds"
        )
    own, sound = "past_key_values.%d.decoder", "past_key_values.%d.encoder"
    decoder = stack_section(
        _DECODER,
        shape,
        {
            "input_ids": "input_ids",
            "past_key_names": f"{own}.key",
            "past_value_names": f"{own}.value",
            "cross_past_key_names": f"{sound}.key",
            "cross_past_value_names": f"{sound}.value",
        },
        {
            "logits": "logits",
            "present_key_names": "present.%d.decoder.key",
            "present_value_names": "present.%d.decoder.value",
        },
    )
    encoder = stack_section(
        _ENCODER,
        shape,
        {"audio_features": "input_features"},
        {
            "encoder_hidden_states": "last_hidden_state",
            "cross_present_key_names": "present.%d.encoder.key",
            "cross_present_value_names": "present.%d.encoder.value",
        },
    )
    encoder |= {"hidden_size": whisper.encoder_width, "num_attention_heads": shape.kv_heads}
    step = with_last_logits(whisper.part("decoder", "growing"), whisper)
    return Plan(
        kind="whisper",
        parts={_ENCODER: whisper.part("encoder", "growing"), _DECODER: step},
        sections={
            "encoder": encoder,
            "decoder": {**decoder, "num_attention_heads": shape.kv_heads},
            "speech": {"config_filename": _SOUND},
        },
        positions=config.max_target_positions,
        files={_SOUND: json.dumps(_features(config.num_mel_bins), indent=2).encode()},
    )


def _features(mels: int) -> dict[str, object]:
    """How onnxruntime-genai makes the logarithm of a mel spectrogram of a sound file."""
    frame = {"n_fft": _WINDOW, "hop_length": _HOP}
    steps: list[dict[str, object]] = [
        {"name": "audio_decoder", "type": "AudioDecoder"},
        {"name": "STFT", "type": "STFTNorm", "attrs": {**frame, "frame_length": _WINDOW}},
        {
            "name": "log_mel_spectrogram",
            "type": "LogMelSpectrum",
            "attrs": {**frame, "n_mel": mels, "chunk_size": _SECONDS},
        },
    ]
    return {"feature_extraction": {"sequence": [{"operation": step} for step in steps]}}
