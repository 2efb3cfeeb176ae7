"""Adapters kept apart: a loaded model whose layers take A and B when it runs, and an adapter's arrays for them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from lucid import WeightsError
from lucid.core.sizes.dims import bind
from lucid.models.checkpoints.adapter_files import Adapter, LowRank, read_adapter
from lucid.models.checkpoints.adapters import Adapters, weighted
from lucid.models.checkpoints.config import Array, show
from lucid.models.checkpoints.pretrained import Pretrained
from lucid.nn.adapter_inputs import RANK, AdaptedWeight, adapter_inputs
from lucid.nn.module import Module
from lucid.nn.quantizing.layer_weights import WeightPlace, layer_weights, weight_modules, with_weights
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
    places = _places(model)
    opened: dict[WeightPlace, AdaptedWeight] = {}
    for folder, weight in weighted(adapters).items():
        adapter = _read_apart(model, folder, weight)
        for layer, low_rank in adapter.layers.items():
            place = _place(model, adapter, layer, places)
            found, use = places[place]
            opened[place] = found if isinstance(found, AdaptedWeight) else AdaptedWeight(found, place.layer, use)
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
    places, adapter = _places(model), _read_apart(model, folder, weight)
    rank = max((len(layer.a) for layer in adapter.layers.values()), default=1)
    arrays = {
        name: np.zeros(bind(given.kind.shape, {RANK: rank}), given.kind.dtype.numpy)
        for name, given in adapter_inputs(model).items()
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
        for name, found in zip(opened.names, (a, b * np.float32(low_rank.scale)), strict=True):
            place = tuple(slice(size) for size in found.shape)
            arrays[name][place] = found
    return arrays


def _places(model: Module) -> dict[WeightPlace, tuple[Any, Any]]:
    """The weights of layers, and how each is used; of those that layers share, the first place."""
    found: dict[WeightPlace, tuple[Any, Any]] = {
        WeightPlace(each.path, each.name): (each.parameter, each.use) for each in layer_weights(model)
    }
    modules = dict(model.named_modules())
    for place, weight in weight_modules(model).items():
        use = modules[place.path].quantizable[place.name]
        found[place] = weight, use
    return found


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
    own, tied = model.state_dict(), model.checkpoint.tied_keys.items()
    shared = [copy for copy, name in tied if name == f"{place.path}.{place.name}" and copy not in own]
    if shared and not adapter.tied:
        raise WeightsError(
            f"{adapter.folder}: changes {show(layer)}, whose weight is also {shared[0]}; its change was trained "
            "for one of them"
        )
    return place


def _read_apart(model: Module, folder: Path, weight: float) -> Adapter:
    """An adapter that adds to weights of layers, and does nothing else.

    PEFT also saves the tables and heads to which an adapter adds: as they are in the model, they replace nothing.
    """
    adapter = read_adapter(folder, weight)
    own = {name.removesuffix(".base"): value for name, value in model.state_dict().items()}  # of an `AdaptedWeight`
    renamed = model.checkpoint.renamed if isinstance(model, Pretrained) else str
    changed = [key for key, array in adapter.saved.items() if not _equals(own.get(renamed(key)), array)]
    replaced = [*changed, *(f"{name}.bias" for name in adapter.biases)]
    what = f"a weight in the place of {show(replaced[0])}" if replaced else ""
    if adapter.rows:
        what = f"trainable_token_indices, rows of {show(next(iter(adapter.rows)))}"
    if any(low_rank.magnitude is not None for low_rank in adapter.layers.values()):
        what = "DoRA's lengths of rows"
    if adapter.experts:
        what = f"target_parameters, joined experts in {show(adapter.experts[0][0])}"
    if what:
        raise WeightsError(f"{folder}: has {what}, which can only be merged: load(..., adapters=folder)")
    return adapter


def _equals(own: Tensor | None, array: Array) -> bool:
    return own is not None and np.array_equal(own.numpy().astype(np.float32), array.astype(np.float32))


def _check(adapter: Adapter, layer: str, low_rank: LowRank, weight: AdaptedWeight) -> None:
    inputs, outputs = weight.sizes
    if low_rank.a.shape[1:] != (inputs,) or len(low_rank.b) != outputs or low_rank.b.ndim != 2:
        raise WeightsError(
            f"{adapter.folder}: {show(layer)} has lora_A {list(low_rank.a.shape)} and lora_B {list(low_rank.b.shape)}, "
            f"expected (r, {inputs}) and ({outputs}, r)"
        )
