"""The inputs of transformers' classes: names and axes as in our own files, and examples to export them with."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter, signature
from typing import Any

import torch

from lucid.core.graph.types import TensorType, int64, spec
from lucid.importing.torch_import import TorchImportError
from lucid.importing.transformers_classes import Checkpoint

_SAMPLES = 4000  # of an example: enough for the convolutions of sounds


def input_specs(read: Checkpoint, known: Mapping[str, TensorType]) -> dict[str, TensorType]:
    """The inputs that a checkpoint's files describe, except those that the caller gives.

    Raises:
        TorchImportError: for a class that needs others.
    """
    config, names = read.model.config, signature(read.model.forward).parameters
    text = spec("N", "L", dtype=int64)
    specs: dict[str, TensorType] = {}
    if "input_ids" in names:
        specs["input_ids"] = text
    if "pixel_values" in names and "pixel_values" not in known:
        rows = "M" if specs else "N"
        specs["pixel_values"] = spec(rows, _option(config, "num_channels", 3), *_side(read))
    if "input_ids" in names:
        specs |= _beside_ids(read, names)
    elif "input_values" in names:
        specs |= _sounds(read, names)
    elif "input_features" in names:
        specs["input_features"] = _features(read)
    needed = [
        name
        for name, parameter in names.items()
        if parameter.default is Parameter.empty and parameter.kind is Parameter.POSITIONAL_OR_KEYWORD
    ]
    if missing := [name for name in needed if name not in {*specs, *known}]:
        example = " ".join(f"--input {name}:float32:N,..." for name in missing)
        raise TorchImportError(f"{read.class_name} takes {', '.join(missing)}: describe them, as in {example}")
    if not specs and not known:
        raise TorchImportError(f"{read.class_name} takes {', '.join(names)}, of which none is known: give --input")
    return specs


def _beside_ids(read: Checkpoint, names: Mapping[str, Parameter]) -> dict[str, TensorType]:
    """The inputs that go with token ids."""
    config, text = read.model.config, spec("N", "L", dtype=int64)
    specs: dict[str, TensorType] = {}
    if "bbox" in names:
        specs["bbox"] = spec("N", "L", 4, dtype=int64)
    if "attention_mask" in names:
        specs["attention_mask"] = text
    segments = "token_type_ids" in names and _option(config, "type_vocab_size", 0) > 1
    if segments and read.task != "feature-extraction":
        specs["token_type_ids"] = text
    if config.is_encoder_decoder and "decoder_input_ids" in names and read.task in ("", "feature-extraction"):
        specs["decoder_input_ids"] = spec("N", "T", dtype=int64)
    return specs


def _side(read: Checkpoint) -> tuple[int, int]:
    """The height and width of images, as the preprocessor makes them, or as the config says."""
    size: Any = None
    if read.options.get("do_center_crop", "crop_size" in read.options):
        size = read.options.get("crop_size")
    size = size or read.options.get("size") or _option(read.model.config, "image_size", None)
    if isinstance(size, Mapping):
        size = (size["height"], size["width"]) if "height" in size else size.get("shortest_edge")
    if isinstance(size, int):
        size = (size, size)
    if not isinstance(size, (list, tuple)) or len(size) != 2:
        raise TorchImportError(
            f"{read.class_name}: no file says how large images are: give it, as in --input pixel_values:N,3,224,224"
        )
    return int(size[0]), int(size[1])


def _sounds(read: Checkpoint, names: Mapping[str, Parameter]) -> dict[str, TensorType]:
    """Samples, or spectra that are called so."""
    config = read.model.config
    bands, frames = _option(config, "num_mel_bins", None), _option(config, "max_length", None)
    if bands and frames and "patch_size" in config.to_dict():
        return {"input_values": spec("N", frames, bands)}
    specs = {"input_values": spec("N", "L")}
    if "attention_mask" in names and _option(config, "feat_extract_norm", "") == "layer":
        specs["attention_mask"] = spec("N", "L", dtype=int64)
    return specs


def _features(read: Checkpoint) -> TensorType:
    """Spectra: (N, bands, frames) of one length, or (N, frames, bands) of any."""
    config, frames = read.model.config, read.options.get("nb_max_frames")
    usual = _option(config, "input_feat_per_channel", read.options.get("feature_size", 80))
    bands = _option(config, "num_mel_bins", usual)
    positions = _option(config, "max_source_positions", None)
    if frames is None and read.model.config.model_type == "whisper" and positions:
        frames = 2 * positions
    if frames is not None:
        return spec("N", bands, frames)
    return spec("N", "L", _option(config, "feature_projection_input_dim", bands))


def _option(config: Any, name: str, default: Any) -> Any:
    """An option of a config, or of the one for its images."""
    options = config.to_dict()
    inner = options.get("vision_config") or {}
    value = options.get(name, inner.get(name))
    return default if value is None else value


def axes_of(kind: TensorType) -> list[int | str]:
    """The axes of an input as `dynamic` of `from_torch` has them."""
    return [size if isinstance(size, int) else str(size) for size in kind.shape]


def example(name: str, kind: TensorType, sizes: Mapping[str, int]) -> torch.Tensor:
    """A tensor to export with."""
    shape = [size if isinstance(size, int) else sizes[str(size)] for size in kind.shape]
    if kind.dtype.kind == "float":
        return torch.linspace(-1, 1, max(1, int(torch.Size(shape).numel())), dtype=_dtype(kind)).reshape(shape)
    if name.endswith("ids") and "type" not in name:
        return torch.arange(int(torch.Size(shape).numel())).reshape(shape) % 7 + 3
    return torch.ones(shape, dtype=_dtype(kind))


def _dtype(kind: TensorType) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, kind.dtype.name)
    return dtype


def example_sizes(specs: Mapping[str, TensorType]) -> dict[str, int]:
    """A different number for each named axis, so that none are mixed up: few rows, and some length."""
    sizes: dict[str, int] = {}
    for input_name, kind in specs.items():
        for axis, size in enumerate(kind.shape):
            if not isinstance(size, int) and str(size) not in sizes:
                sizes[str(size)] = _example_size(input_name, kind.rank, axis, len(sizes))
    return sizes


def _example_size(name: str, rank: int, axis: int, others: int) -> int:
    if axis == 0:
        return 2 + others
    if name == "pixel_values":
        return 64 + 32 * axis
    return _SAMPLES if name == "input_values" and rank == 2 else 11 + 2 * others
