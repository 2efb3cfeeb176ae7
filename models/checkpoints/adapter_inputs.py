"""Adapters apart from a loaded model's weights: as inputs of its exported file, or for training; read and written."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import lucid
from lucid import WeightsError
from lucid.core.sizes.dims import bind
from lucid.core.words.name_patterns import named
from lucid.core.words.safe_text import show
from lucid.files.hub import local_checkpoint
from lucid.models.checkpoints.adapter_files import CONFIG, PEFT_TASKS, PREFIX, WEIGHTS, Adapter, LowRank, read_adapter
from lucid.models.checkpoints.adapters import Adapters, weighted
from lucid.models.checkpoints.config import Array, write_json
from lucid.models.checkpoints.pretrained import Pretrained, check_pretrained, read_options
from lucid.models.checkpoints.sentence_files import TASKS, read_modules
from lucid.nn.module import Module
from lucid.nn.parameters import Parameter
from lucid.nn.quantized import WeightModule
from lucid.nn.weights.adapter_inputs import RANK, AdaptedWeight, adapter_inputs
from lucid.nn.weights.layer_weights import WeightPlace, declared_weights, with_weights
from lucid.nn.weights.low_rank import LoRA, LowRankWeight
from lucid.ops.tensor.tensor import Tensor

M = TypeVar("M", bound=Pretrained[Any])


def with_adapter_inputs(model: M, adapters: Adapters) -> M:
    """A model whose layers take adapters when it runs: their A and B are inputs of an exported file.

    One file then serves many adapters. Without one it computes what the model computes. Quantize before, not after.

    Args:
        model: a model of a checkpoint, which may be quantized. It shares its weights with the result.
        adapters: folders of LoRA adapters; each layer that one of them changes gets inputs, of any rank.

    Raises:
        ConfigError: for an adapter that is not LoRA, or has an option that is not supported.
        WeightsError: for an adapter that can only be merged (DoRA, weights that are replaced, biases, convolutions), or
            that fits no layer of this model.
        OSError: if a file is missing.
    """
    places = declared_weights(model)
    opened: dict[WeightPlace, AdaptedWeight] = {}
    for folder, weight in weighted(adapters).items():
        adapter = _read_apart(model, folder, weight)
        for layer, low_rank in adapter.layers.items():
            place = _place(model, adapter, layer, places)
            layer_weight, use = places[place]
            if not isinstance(layer_weight, AdaptedWeight):
                layer_weight = AdaptedWeight(layer_weight, use, place.layer)
            opened[place] = layer_weight
            _check(adapter, layer, low_rank, opened[place])
    result = with_weights(model, opened)
    result.kept_adapters = {**model.kept_adapters, **weighted(adapters)}
    return result


def adapter_arrays(model: Module, folder: Path) -> dict[str, Array]:
    """The A and B of an adapter by the names of the inputs of a model, with the scale and the adapter's weight in B.

    All have the largest rank of the adapter, with zeros for smaller ones and for other layers: onnxruntime counts on
    one rank in a run.

    Raises:
        ConfigError, WeightsError, OSError: as `with_adapter_inputs`; also for a layer that takes no adapter.
    """
    weight = model.kept_adapters.get(folder, 1.0) if isinstance(model, Pretrained) else 1.0
    places, adapter = declared_weights(model), _read_apart(model, folder, weight)
    rank = max((len(layer.a) for layer in adapter.layers.values()), default=1)
    arrays = {
        name: np.zeros(bind(one.kind.shape, {RANK: rank}), one.kind.dtype.numpy)
        for name, one in adapter_inputs(model).items()
    }
    for layer, low_rank in adapter.layers.items():
        opened, _ = places[_place(model, adapter, layer, places)]
        if not isinstance(opened, AdaptedWeight):
            raise WeightsError(
                f"{folder}: {show(layer)} takes no adapter in this model; give this adapter too when you open it: "
                "with_adapter_inputs(model, [folder, ...])"
            )
        _check(adapter, layer, low_rank, opened)
        a, b = (np.asarray(array, np.float32).T for array in (low_rank.a, low_rank.b))
        for name, factor in zip(opened.names, (a, b * np.float32(low_rank.scale)), strict=True):
            place = tuple(slice(size) for size in factor.shape)
            arrays[name][place] = factor
    return arrays


def with_adapter(model: M, folder: str | os.PathLike[str]) -> M:
    """A copy of a model whose layers add an adapter of PEFT, each by an `nn.LoRA`, which can be trained further.

    `nn.LoRA.merge` adds the products to the weights; `load(..., adapters=folder)` does so at once.

    Args:
        model: a model of a checkpoint, which may be quantized and stays so. It shares its weights with the result.
        folder: of the adapter. Weights that it replaces, such as those of a head, are replaced in the copy.

    Raises:
        ConfigError: for an adapter that is not LoRA, or has an option that is not supported.
        WeightsError: for an adapter that can only be merged (DoRA, biases, convolutions, rows of tables), or that fits
            no layer of this model.
        OSError: if a file is missing.
    """
    adapter = read_adapter(local_checkpoint(folder), 1.0)
    _refuse_merged_only(adapter)
    places, added = declared_weights(model), dict[WeightPlace, Parameter | WeightModule]()
    for layer, low_rank in adapter.layers.items():
        place = _place(model, adapter, layer, places)
        weight, use = places[place]
        a, b = (Parameter(np.asarray(array, np.float32), dtype=weight.dtype) for array in (low_rank.a, low_rank.b))
        added[place] = lora = LoRA(weight, use, a, b, low_rank.scale)
        _check(adapter, layer, low_rank, lora)
    result = with_weights(model, added)
    own, modules = model.state_dict(), dict(result.named_modules())
    for key, array in adapter.saved.items():
        name = model.checkpoint.renamed(key)
        path, _, attribute = name.rpartition(".")
        if name not in own or own[name].shape != array.shape:
            raise WeightsError(
                f"{adapter.folder}: replaces {show(key)} by {list(array.shape)}, which this {type(model).__name__} "
                "lacks or has in another shape; load the base model for the adapter's task: load(folder, task)"
            )
        setattr(modules[path], attribute, Parameter(array, dtype=own[name].dtype))
    return result


def save_adapter(
    model: Pretrained[Any],
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    whole: str | Sequence[str] = (),
    base: str | None = None,
) -> None:
    """Write the adapters in a model as a folder of PEFT, which `load(..., adapters=)`, `with_adapter` and PEFT read.

    Args:
        model: with an `nn.LoRA` in the place of some weights.
        source: the checkpoint that it was loaded from, whose names the layers get.
        folder: one that exists. It gets adapter_model.safetensors and adapter_config.json.
        whole: patterns of parameters that are written as they are, such as those of a head that was trained.
        base: what the folder calls the base model; by default `source`.

    Raises:
        TypeError: for a model that no checkpoint has.
        ValueError: for a model without adapters, and a pattern that matches no parameter.
        WeightsError: for a layer for which the checkpoint has no name.
        ConfigError, OSError: as `load`; also if a file cannot be written.
    """
    check_pretrained("save_adapter", model)
    places = {place: (each, use) for place, (each, use) in declared_weights(model).items() if isinstance(each, LoRA)}
    if not places:
        raise ValueError(f"save_adapter: this {type(model).__name__} has no adapter: nn.LoRA.add(model, rank, targets)")
    keys, layers = _checkpoint_keys(model, source), dict[str, LoRA]()
    tensors: dict[str, Array] = {}
    for place, (weight, use) in places.items():
        layer = keys.get(place.key, "").removesuffix(".weight")
        if not layer or layer == keys[place.key]:
            raise WeightsError(f"save_adapter: {place.key} is no weight of one layer in {source}; merge it instead")
        layers[layer] = weight
        for part, tensor in (("A", weight.lora_A), ("B", weight.lora_B)):
            name = f"lora_embedding_{part}" if use == "table" else f"lora_{part}.weight"
            tensors[f"{layer}.{name}"] = tensor.numpy()
    own = {name: value for name, value in model.state_dict().items() if ".lora_" not in name}
    heads = {keys.get(name, name): own[name].numpy() for name in named("save_adapter: whole", whole, list(own))}
    first = next(iter(layers.values()))
    alphas = {layer: weight.scale * weight.rank for layer, weight in layers.items()}
    config = {
        "peft_type": "LORA",
        "task_type": PEFT_TASKS.get(model.task) if heads else None,
        "base_model_name_or_path": base or os.fspath(source),
        "r": first.rank,
        "lora_alpha": first.scale * first.rank,
        "rank_pattern": {layer: each.rank for layer, each in layers.items() if each.rank != first.rank},
        "alpha_pattern": {layer: alpha for layer, alpha in alphas.items() if alpha != first.scale * first.rank},
        "target_modules": list(layers),
        "modules_to_save": sorted({key.rpartition(".")[0] for key in heads}) or None,
        "fan_in_fan_out": any(use == "transposed" for _, use in places.values()),
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
    }
    lucid.save(Path(folder) / WEIGHTS[0], {f"{PREFIX}{name}": array for name, array in (tensors | heads).items()})
    write_json(Path(folder) / CONFIG, config)


def _checkpoint_keys(model: Pretrained[Any], source: str | os.PathLike[str]) -> dict[str, str]:
    """The names that a checkpoint has for the parameters of a model."""
    folder = local_checkpoint(source)
    modules = read_modules(folder) if model.checkpoint.task in TASKS else None
    return model.checkpoint_keys(read_options(folder if modules is None else modules.encoder))


def _place(model: Module, adapter: Adapter, layer: str, places: Mapping[WeightPlace, object]) -> WeightPlace:
    """The layer of a model by its name in an adapter, which may have that of the inner model in front, or lack it."""
    if not isinstance(model, Pretrained):
        raise WeightsError(f"{adapter.folder}: got a {type(model).__name__}, expected a model of a checkpoint")
    known = {f"{place.path}.{place.name}": place for place in places}
    names = [layer, layer.partition(".")[2], *(f"{path.partition('.')[0]}.{layer}" for path, _ in places)]
    renamed = [model.checkpoint.renamed(f"{name}.weight") for name in names]
    place = next((known[name] for name in renamed if name in known), None)
    if place is None:
        raise WeightsError(
            f"{adapter.folder}: {show(layer)} is no layer of this {type(model).__name__} that takes adapters when it "
            "runs; expected an adapter of this model, with products and tables alone, or merge it: load(..., adapters=)"
        )
    tied = model.checkpoint.tied(model.state_dict()).items()
    shared = [copy for copy, name in tied if name == f"{place.path}.{place.name}"]
    if shared and not adapter.tied:
        raise WeightsError(
            f"{adapter.folder}: changes {show(layer)}, whose weight is also {shared[0]}; its change was trained "
            "for one of them"
        )
    return place


def _read_apart(model: Module, folder: Path, weight: float) -> Adapter:
    """An adapter that only adds to weights of layers.

    PEFT also saves the tables and heads to which an adapter adds. They equal those of the model, so they replace
    nothing.
    """
    adapter = read_adapter(folder, weight)
    own, renamed = model.state_dict(), model.checkpoint.renamed if isinstance(model, Pretrained) else str
    changed = [key for key, array in adapter.saved.items() if not _equals(own.get(renamed(key)), array)]
    _refuse_merged_only(adapter, f"a weight in the place of {show(changed[0])}" if changed else "")
    return adapter


def _refuse_merged_only(adapter: Adapter, what: str = "") -> None:
    """Refuse an adapter with a part that can only be merged; `what` may name one."""
    if adapter.biases:
        what = f"a weight in the place of {show(next(iter(adapter.biases)))}.bias"
    if adapter.rows:
        what = f"trainable_token_indices, rows of {show(next(iter(adapter.rows)))}"
    if any(low_rank.magnitude is not None for low_rank in adapter.layers.values()):
        what = "DoRA's lengths of rows"
    if adapter.experts:
        what = f"target_parameters, joined experts in {show(adapter.experts[0][0])}"
    if what:
        raise WeightsError(f"{adapter.folder}: has {what}, which can only be merged: load(..., adapters=folder)")


def _equals(own: Tensor | None, array: Array) -> bool:
    return own is not None and np.array_equal(own.numpy().astype(np.float32), array.astype(np.float32))


def _check(adapter: Adapter, layer: str, low_rank: LowRank, weight: LowRankWeight) -> None:
    inputs, outputs = weight.sizes
    if low_rank.a.shape[1:] != (inputs,) or len(low_rank.b) != outputs or low_rank.b.ndim != 2:
        raise WeightsError(
            f"{adapter.folder}: {show(layer)} has lora_A {list(low_rank.a.shape)} and lora_B {list(low_rank.b.shape)}, "
            f"expected (r, {inputs}) and ({outputs}, r)"
        )
