"""Folders for NVIDIA's Triton Inference Server: a model repository with one model for its onnxruntime backend.

Triton joins requests along their batch axis (dynamic batching), if they have equal shapes. The schema is
`model_config.proto` of triton-inference-server/common.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from lucid.core.graph.types import TensorType
from lucid.core.sizes.dims import Dim, Size
from lucid.core.targets.runtimes import CPU, CUDA, PROCESSOR, targets_of
from lucid.core.words.safe_text import encoded
from lucid.files.atomic import write_atomically
from lucid.layouts.checkpoint_files import name_of, write_config, write_tokenizer
from lucid.layouts.hub import target_of
from lucid.layouts.layout import Exported, Layout, Options, export_file
from lucid.layouts.parts import file_parts, parts_of
from lucid.nn.encoder_decoder import EncoderDecoder
from lucid.nn.module import Module

_TARGETS = targets_of(CPU, CUDA)
_MAX_BATCH = 32
_TYPES = {
    "bool": "BOOL",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "bfloat16": "BF16",
    **{f"{sign}int{bits}": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


def _write(model: Module, checkpoint: Path, folder: Path, options: Options) -> list[Exported]:
    target = target_of(options, _TARGETS, PROCESSOR)
    if isinstance(model, EncoderDecoder) or file_parts(model):
        raise ValueError(
            f"Triton needs several models and a program between them for a {type(model).__name__}, which Lucid does "
            "not write; use layout 'onnxruntime'"
        )
    (part,) = parts_of(model, options, states=False, cached=False).values()
    name = model_name(checkpoint)
    home = folder / name
    file = export_file(part, folder, f"{name}/1/model.onnx", target, options)
    write_tokenizer(checkpoint, home)
    write_config(model, checkpoint, home)
    with write_atomically(home / "config.pbtxt") as config:
        config.write(encoded(_config(name, file)))
    return [file]


def model_name(checkpoint: Path) -> str:
    """The model's name in Triton: that of the checkpoint, with the characters that are safe in paths and URLs."""
    return re.sub(r"[^\w.-]", "_", name_of(checkpoint), flags=re.ASCII)


def data_type(kind: TensorType) -> str:
    """Triton's name for an element type."""
    return _TYPES[kind.dtype.name]


def _config(name: str, file: Exported) -> str:
    """config.pbtxt, in protobuf's text format."""
    batched = _has_batch([*file.tensors.values(), *file.outputs.values()])
    kind = "KIND_GPU" if file.target.runtime.device else "KIND_CPU"
    lines = [
        f'name: "{name}"',
        'backend: "onnxruntime"',
        'default_model_filename: "model.onnx"',
        f"max_batch_size: {_MAX_BATCH if batched else 0}",
        *(_value("input", *value, batched) for value in file.tensors.items()),
        *(_value("output", *value, batched) for value in file.outputs.items()),
        *(["dynamic_batching { }"] if batched else []),
        f"instance_group [ {{ count: 1 kind: {kind} }} ]",
    ]
    return "\n".join(lines) + "\n"


def _has_batch(types: Iterable[TensorType]) -> bool:
    """Whether all have one first size, which is known only at run time."""
    first = {str(kind.shape[0]) if kind.rank and isinstance(kind.shape[0], Dim) else None for kind in types}
    return len(first) == 1 and None not in first


def _value(what: str, name: str, kind: TensorType, batched: bool) -> str:
    shape: tuple[Size, ...] = kind.shape[1:] if batched else kind.shape
    # One number for each row has no axis after the batch, which the schema cannot express: [ 1 ], reshaped.
    dims = ", ".join(str(size) if isinstance(size, int) else "-1" for size in shape)
    shown = f"dims: [ {dims} ]" if shape else "dims: [ 1 ] reshape { shape: [ ] }"
    return f'{what} [ {{ name: "{name}" data_type: TYPE_{data_type(kind)} {shown} }} ]'


TRITON = Layout("triton", "Triton Inference Server", _write)
