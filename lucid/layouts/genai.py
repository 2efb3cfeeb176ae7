"""Folders for onnxruntime-genai: the model, genai_config.json and the tokenizer.

Written for onnxruntime-genai 0.18, which runs on onnxruntime 1.31 and newer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lucid.core.targets.runtimes import CPU, OWN, PROCESSOR, targets_of
from lucid.export import Target
from lucid.files.atomic import write_atomically
from lucid.generation.chat import Tokenizer, load_tokenizer, save_tokenizer
from lucid.layouts.exporting import export_file
from lucid.layouts.genai_decoders import plan_decoder
from lucid.layouts.genai_plan import Plan
from lucid.layouts.genai_whisper import plan_whisper
from lucid.layouts.layout import Exported, Options
from lucid.models.whisper import Whisper
from lucid.nn.decoding import CausalDecoder
from lucid.nn.model_parts import CACHE_KINDS
from lucid.nn.module import Module
from lucid.nn.recurrent_decoding import RecurrentDecoder
from lucid.tracing.parts import trace_part

_ONNXRUNTIME = "1.31"
_TARGETS = targets_of(CPU, domain=OWN)
_MAX_LENGTH = 2048  # positions: onnxruntime-genai allocates a cache of max_length, by default of all the model has


def write(model: Module, checkpoint: Path, folder: Path, options: Options) -> list[Exported]:
    """A decoder or Whisper in a folder for onnxruntime-genai."""
    target = options.target or PROCESSOR
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
    release = Target(target, onnxruntime=_ONNXRUNTIME)
    return [export_file(part, folder, name, release, options, traced=traced[name]) for name, part in plan.parts.items()]


def _plan(model: Module, checkpoint: Path, options: Options) -> Plan:
    if isinstance(model, CausalDecoder) and not isinstance(model, RecurrentDecoder):
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
    if options.cache is not None and options.cache not in CACHE_KINDS:
        raise ValueError(f"cache {options.cache!r} does not exist: choose one of {', '.join(CACHE_KINDS)}")
    if options.capacity is not None and (isinstance(options.capacity, bool) or options.capacity < 1):
        raise ValueError(f"capacity is {options.capacity!r}, expected a whole number of 1 or more")


def _config(plan: Plan, tokenizer: Tokenizer, vocabulary: int, capacity: int | None) -> dict[str, Any]:
    """What genai_config.json says."""
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
