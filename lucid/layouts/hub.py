"""Folders as on Hugging Face's hub: for onnxruntime alone, optimum, sentence-transformers and transformers.js.

Written for optimum-onnx 0.1, sentence-transformers 5.7 and transformers.js 4.3 (`make test-consumers` loads them).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import lucid
from lucid import Tensor
from lucid.core.graph.types import Array
from lucid.core.targets.runtimes import CPU, CUDA, GENERAL, PROCESSOR, RUNTIMES, WEBGPU, targets_of
from lucid.export import Target
from lucid.files.weights import SINGLE
from lucid.layouts.checkpoint_files import (
    PROMPTS,
    copy_files,
    file_of,
    files_home,
    has_tokenizer,
    is_gguf,
    write_config,
    write_tokenizer,
)
from lucid.layouts.layout import Exported, Layout, Options, export_file
from lucid.layouts.parts import file_parts, parts_of
from lucid.models.checkpoints.pretrained import Pretrained, read_options
from lucid.models.checkpoints.sentence_files import DENSE, ENCODER, MODULES, PREFIX, read_modules
from lucid.models.checkpoints.static_files import TYPES, type_in
from lucid.models.parts.sentences import PooledEncoder
from lucid.nn.cache import CacheShape
from lucid.nn.decoding import CausalDecoder
from lucid.nn.encoder_decoder import EncoderDecoder
from lucid.nn.module import Module
from lucid.nn.published_model import PublishedModel
from lucid.nn.quantized import WeightModule
from lucid.nn.recurrent_decoding import RecurrentDecoder

_SIDE = ".onnx_data"  # the ending by which optimum and transformers.js find the weights of a model
_WIDTHS = (
    ("hidden_size", "d_model", "n_embd"),
    ("num_attention_heads", "num_heads", "n_head", "decoder_attention_heads"),
)
_SCORES = ("text-classification", "reranking")  # the tasks of sentence-transformers' CrossEncoder


@dataclass(frozen=True)
class _Kind:
    """How these folders differ.

    Args:
        place: the folder of the ONNX files.
        targets: the targets that it runs.
        default: the target if none is asked for.
        by_precision: whether the name of a file says how its weights are stored.
        pools: whether the runtime makes embeddings of texts from the states of their tokens.
    """

    place: str
    targets: tuple[str, ...]
    default: str = PROCESSOR
    by_precision: bool = False
    pools: bool = True


_PLAIN = _Kind("", tuple(RUNTIMES), pools=False)
_OPTIMUM = _Kind("", targets_of(CPU, CUDA))
_SENTENCES = _Kind("onnx", targets_of(CPU, CUDA))
_JAVASCRIPT = _Kind("onnx", targets_of(CPU, WEBGPU), GENERAL, by_precision=True)


def _write(kind: _Kind, model: Module, checkpoint: Path, folder: Path, options: Options) -> list[Exported]:
    target = target_of(options, kind.targets, kind.default)
    parts = parts_of(model, options, states=kind.pools)
    precision = _precision(model, options.dtype) if kind.by_precision else ""
    write_tokenizer(checkpoint, folder)
    copy_files(checkpoint, folder, (PROMPTS,))
    files = []
    for name, part in parts.items():
        file = Path(kind.place) / f"{name}{_ENDINGS.get(precision, '')}.onnx"
        exported = export_file(part, folder, file.as_posix(), target, options, f"{file.stem}{_SIDE}")
        files.append(replace(exported, precision=precision))
    more = _for_javascript(folder / kind.place, precision) if kind.by_precision else {}
    write_config(model, checkpoint, folder, more)
    return files


def target_of(options: Options, known: tuple[str, ...], default: str) -> Target:
    """The requested target, or the default.

    Raises:
        ValueError: for a target that the layout does not take.
    """
    target = options.target_name or default
    if target not in known:
        raise ValueError(f"target {target!r} is not for this layout; choose one of {', '.join(known)}")
    return options.target if isinstance(options.target, Target) else options.target_named(target)


def _optimum(model: Module, checkpoint: Path, folder: Path, options: Options) -> list[Exported]:
    _check_config(model, checkpoint, "optimum")
    if (kind := type_in(files_home(checkpoint))) in TYPES:
        raise ValueError(f"{checkpoint}: optimum reads types of transformers, not {kind}; use layout 'onnxruntime'")
    if parts := file_parts(model):
        raise ValueError(
            f"{checkpoint}: a {type(model).__name__} is {len(parts)} files, for which optimum 0.1 has no class; "
            "use layout 'transformers.js' or 'onnxruntime'"
        )
    if isinstance(model, RecurrentDecoder):
        raise ValueError(
            f"{checkpoint}: is the checkpoint of a {type(model).__name__}, whose states optimum 0.1 mistakes for keys "
            "and values; use layout 'transformers.js' or 'onnxruntime'"
        )
    if isinstance(model, Pretrained) and isinstance(model, (CausalDecoder, EncoderDecoder)):
        _check_cache(model, model.cache_shape, checkpoint)
    return _write(_OPTIMUM, model, checkpoint, folder, options)


def _check_cache(model: Pretrained[Any], shape: CacheShape, checkpoint: Path) -> None:
    """Refuse a model for which optimum makes an empty cache of another shape, by a few options of config.json.

    Raises:
        ValueError: naming both shapes.
    """
    options = read_options(files_home(checkpoint), *model.checkpoint.model_types, adapters=model.adapters)
    whole, heads = (next((options.options[name] for name in names if options.has(name)), 0) for names in _WIDTHS)
    kind = options.model_type
    read = model.checkpoint.family.types[kind].optimum
    taken = (
        shape.kv_heads if "num_key_value_heads" in read else heads,
        shape.head_dim if "head_dim" in read or not heads else whole // heads,
    )
    if taken != (shape.kv_heads, shape.head_dim):
        raise ValueError(
            f"the cache has {shape.kv_heads} heads of width {shape.head_dim}, and optimum 0.1 always makes one with "
            f"{taken[0]} heads of width {taken[1]} for model_type {kind}; use layout 'transformers.js', 'genai' or "
            "'onnxruntime'"
        )


def _sentences(model: Module, checkpoint: Path, folder: Path, options: Options) -> list[Exported]:
    _check_config(model, checkpoint, "sentence-transformers")
    if not isinstance(model, PublishedModel) or model.task not in _SCORES:
        write_sentence_layers(model, checkpoint, folder)
    return _write(_SENTENCES, model, checkpoint, folder, options)


# transformers.js ------------------------------------------------------------------------------------------------------


def _javascript(model: Module, checkpoint: Path, folder: Path, options: Options) -> list[Exported]:
    _check_config(model, checkpoint, "transformers.js")
    if _names_its_own_cache(model):
        raise ValueError(
            f"{checkpoint}: is the checkpoint of a {type(model).__name__}, for whose cache transformers.js has names "
            "and sizes of its own; use layout 'onnxruntime'"
        )
    home = files_home(checkpoint)
    texts = "input_ids" in model.input_specs()
    needed = ["tokenizer.json"] if texts and not is_gguf(home) else []
    if not texts or file_parts(model):
        needed.append("preprocessor_config.json")
    for name in needed:
        if not file_of(checkpoint, name).is_file():
            raise FileNotFoundError(
                f"{home}: has no {name}, which transformers.js reads; transformers writes it: "
                "AutoProcessor.from_pretrained(...).save_pretrained(...)"
            )
    return _write(_JAVASCRIPT, model, checkpoint, folder, options)


def _names_its_own_cache(model: Module) -> bool:
    """Whether transformers.js knows the names and sizes of the cache only for the model_type itself."""
    if isinstance(model, RecurrentDecoder):
        return model.has_attention
    published = isinstance(model, Pretrained)
    return published and isinstance(model, CausalDecoder) and model.cache_shape.value_dim is not None


_ENDINGS = {"fp32": "", "fp16": "_fp16", "q8": "_quantized", "q4": "_q4", "q4f16": "_q4f16"}
"""How the names of files end by transformers.js's names of precisions."""


def _precision(model: Module, dtype: str | None) -> str:
    """transformers.js's name for how weights are stored."""
    bits = {module.bits for module in model.modules() if isinstance(module, WeightModule) and module.quantized}
    if dtype == "bfloat16":
        raise ValueError("transformers.js reads no bfloat16 files; give dtype float16")
    if not bits:
        return "fp16" if dtype else "fp32"
    if min(bits) <= 4:
        return "q4f16" if dtype else "q4"
    if dtype is not None:
        raise ValueError("transformers.js reads no files with both 8-bit weights and float16; leave out the dtype")
    return "q8"


def is_stored_as(file: Path, model: Module, dtype: str | None) -> bool:
    """Whether a file's name stands for the precision in which a model's weights are stored, for transformers.js."""
    ending = next(end for end in sorted(_ENDINGS.values(), key=len, reverse=True) if file.stem.endswith(end))
    return ending == _ENDINGS[_precision(model, dtype)]


def _for_javascript(place: Path, precision: str) -> dict[str, Any]:
    """The section of config.json for transformers.js: which file to load by default, and which have side files."""
    section: dict[str, Any] = {"dtype": precision}
    if with_weights := {path.with_suffix(".onnx").name: 1 for path in sorted(place.glob(f"*{_SIDE}"))}:
        section["use_external_data_format"] = with_weights
    return {"transformers.js_config": section}


# What they need -------------------------------------------------------------------------------------------------------


def _check_config(model: Module, checkpoint: Path, runtime: str) -> None:
    """Raise an error for a model without config.json or tokenizer, by which these runtimes find their class."""
    if not isinstance(model, PublishedModel):
        raise ValueError(
            f"{runtime} loads models of checkpoints only, got a {type(model).__name__}; use layout 'onnxruntime'"
        )
    if "input_ids" in model.input_specs() and not has_tokenizer(checkpoint):
        raise FileNotFoundError(
            f"{checkpoint}: has no tokenizer.json, which {runtime} needs; transformers writes it: "
            "AutoTokenizer.from_pretrained(...).save_pretrained(...)"
        )


ONNXRUNTIME = Layout("onnxruntime", "onnxruntime", partial(_write, _PLAIN), preprocesses=True)
OPTIMUM = Layout("optimum", "optimum", _optimum)
SENTENCE_TRANSFORMERS = Layout("sentence-transformers", "sentence-transformers", _sentences)
TRANSFORMERS_JS = Layout("transformers.js", "transformers.js", _javascript, takes_precisions=True)


def write_sentence_layers(model: Module, checkpoint: Path, folder: Path) -> None:
    """modules.json, the config of each layer, and the weights of a Dense, which sentence-transformers computes itself.

    Raises:
        ValueError: for a model without these layers, a checkpoint without modules.json or without a Transformer in it,
            and a quantized Dense.
        OSError: if a file cannot be read or written.
    """
    modules = read_modules(checkpoint)
    if not isinstance(model, PooledEncoder) or modules is None:
        raise ValueError(
            f"{checkpoint}: sentence-transformers takes sentence encoders, which have a {MODULES}, and cross-encoders; "
            f"got a {type(model).__name__}"
        )
    if modules.first != ENCODER:
        raise ValueError(
            f"{checkpoint}: sentence-transformers computes a {modules.first} itself, and reads no ONNX file of one; "
            "give it the checkpoint, or use layout 'onnxruntime'"
        )
    modules.write(folder)
    stored: dict[str, Tensor | Array] = {**model.state_dict(), **modules.weights}
    for layer in modules.layers:
        prefix = f"{PREFIX}.{layer.name}."
        if layer.kind == DENSE:
            weights = {name.removeprefix(prefix): array for name, array in stored.items() if name.startswith(prefix)}
            if "linear.weight" not in weights:
                raise ValueError(
                    f"{prefix}linear.weight is quantized, and sentence-transformers computes this layer itself; "
                    f'leave it as it is: --skip "{PREFIX}.*"'
                )
            lucid.save(folder / layer.name / SINGLE, weights)
