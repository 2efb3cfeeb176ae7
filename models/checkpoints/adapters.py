"""PEFT adapters (LoRA), found next to or for a base model, and merged into its weights as they are read.

`adapter_files.py` reads the folder of an adapter; here its layers are found among the weights of the base model, under
the names of the checkpoint, before a model's own reader sees them. A weight is merged when it is asked for, in float32,
as PEFT's `merge_and_unload` does: no second copy of the model is made.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from lucid import WeightsError
from lucid.core.number_ranges import FINITE, check
from lucid.core.words.safe_text import listed, show
from lucid.files.hub import folder_name, local_checkpoint
from lucid.files.weights import NAMES
from lucid.models.checkpoints.adapter_experts import expert_changes
from lucid.models.checkpoints.adapter_files import CONFIG, PEFT_TASKS, WEIGHTS, Adapter, LowRank, Rows, read_adapter
from lucid.models.checkpoints.config import Array, Config, ConfigError, read_json, read_optional_json
from lucid.models.checkpoints.config_file import MAX_NAMED
from lucid.models.checkpoints.declarations import ModelType
from lucid.models.checkpoints.families import HEADS
from lucid.models.checkpoints.options_read import CLASSES
from lucid.models.checkpoints.quantized_weights import Weight, as_array
from lucid.models.checkpoints.registry import find_family

Adapters: TypeAlias = (
    str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Mapping[str, float] | Mapping[Path, float] | None
)
"""The folder of an adapter, several, or folders with the weight of each; None: what SOURCE itself is or holds."""

_HEADS = {name: HEADS[task] for task, name in PEFT_TASKS.items()}
"""How transformers' classes end, by PEFT's task_type."""
_LABELS = re.compile(r"(^|\.)(classifier|score|classification_head)(\.out_proj)?\.weight$")


def weighted(adapters: Adapters) -> dict[Path, float]:
    """The folders with the weight of each, 1 where none is given.

    Raises:
        TypeError: for another value, or a weight that is no number.
        ValueError: for a folder that is given twice, or a weight that is not finite.
    """
    if adapters is None or isinstance(adapters, (str, os.PathLike)):
        adapters = [] if adapters is None else [adapters]
    if not isinstance(adapters, (Sequence, Mapping)):
        raise TypeError(f"adapters: got {show(adapters)}, expected a folder, a list of folders, or a dict with weights")
    weights = list(adapters.values()) if isinstance(adapters, Mapping) else [1.0 for _ in adapters]
    folders = [local_checkpoint(folder) for folder in adapters]
    for folder, weight in zip(folders, weights, strict=True):
        if sum(folder.resolve() == other.resolve() for other in folders) > 1:
            raise ConfigError(f"{folder}: is given twice as an adapter; give it once, with the sum of the weights")
        check(f"{folder}: the weight of this adapter", weight, FINITE)
    return {folder: float(weight) for folder, weight in zip(folders, weights, strict=True)}


def titles(adapters: Mapping[Path, float]) -> list[str]:
    """Adapters for people: the name of each folder, and its weight where that is not 1."""
    return [
        folder_name(folder) + ("" if weight == 1 else f" (weight {weight:g})") for folder, weight in adapters.items()
    ]


def find_file(source: Path, name: str) -> Path:
    """The path of a checkpoint's file; for an adapter the file in its own folder, or else in its base model's.

    Raises:
        ConfigError, OSError: as `base_of`.
    """
    base = None if (source / name).exists() else base_of(source)
    return (base or source) / name


def base_of(source: Path) -> Path | None:
    """The folder of the base model, if a source is the folder of an adapter; None for any other source.

    Raises:
        ConfigError: if the adapter names no folder that is there.
        OSError: for a file that cannot be read.
    """
    if not (source / CONFIG).exists() or _has_weights(source):
        return None
    name = read_json(source / CONFIG).get("base_model_name_or_path")
    base = Path(name) if isinstance(name, str) and name and "\0" not in name else None
    if base is None or not base.is_dir() or not _has_weights(base):
        of = f"of {show(name)}, which is no folder of a model here" if name else "of a base model that it does not name"
        raise ConfigError(
            f"{source}: is an adapter {of}; give the folder of its base model: load(BASE, adapters={str(source)!r}) or "
            f"lucid export BASE --adapter {source}"
        )
    return base


def find_adapters(source: Path, adapters: Adapters) -> tuple[Path, dict[Path, float]]:
    """The base model of a source, and its adapters; if the source is an adapter, it is the first.

    Raises:
        ConfigError: for an adapter beside its base model which is not among those given, as it may be merged already.
    """
    chosen = weighted(adapters)
    if not source.is_dir():
        return source, chosen
    base = base_of(source)
    if base is not None:
        return base, {source: 1.0, **chosen}
    names = [name for name in (CONFIG, *WEIGHTS) if (source / name).exists()]
    if names and source.resolve() not in [folder.resolve() for folder in chosen]:
        raise ConfigError(
            f"{source}: has an adapter (PEFT's {names[0]}) beside its base model, whose weights may have it already; "
            f"to merge it, load(folder, adapters=folder) or lucid export {source} --adapter {source}; to read the base "
            "model alone, move the adapter elsewhere"
        )
    return source, chosen


def _has_weights(folder: Path) -> bool:
    """Whether a folder holds a model, and not an adapter alone."""
    weights = (folder / "config.json").exists() and any((folder / name).exists() for name in NAMES)
    return weights or any(folder.glob("*.gguf"))


class Change(NamedTuple):
    """The change that an adapter makes to a weight."""

    saved: Array | None  # what takes its place
    low_rank: LowRank | None  # what is added then
    bias: Array | None = None  # what is added to a bias
    rows: Rows | None = None  # what takes the place of some rows


class AdaptedWeights(Mapping[str, Weight]):
    """The weights of a base model with adapters merged into some of them, each when it is asked for.

    A quantized weight that an adapter changes is dequantized first; `dequantized` has the names of those that were.

    Args:
        checkpoint: the weights of the base model.
        prefix: what the names of the base model get in front, where it is the inner model of the one that was adapted.
        changes: by name what is done with a weight, in this order. A new name has a saved weight first.
        adapters: what was merged, for people.
        rounded: whether a merged weight is rounded to the element type of the checkpoint, as PEFT does with a base
            model in half precision; otherwise it is float32.
    """

    def __init__(
        self,
        checkpoint: Mapping[str, Weight],
        prefix: str,
        changes: Mapping[str, Sequence[Change]],
        adapters: Sequence[Adapter],
        rounded: bool,
    ) -> None:
        self.checkpoint, self.changes, self.adapters, self._rounded = checkpoint, changes, tuple(adapters), rounded
        self.dequantized = set[str]()
        self._keys = {f"{prefix}{key}": key for key in checkpoint}
        self._names = list(dict.fromkeys([*self._keys, *changes]))

    def __getitem__(self, name: str) -> Weight:
        changes = self.changes.get(name, ())
        base = self.checkpoint[self._keys[name]] if not changes or changes[0].saved is None else changes[0].saved
        if not changes:
            return base
        if not isinstance(base, np.ndarray):
            self.dequantized.add(name)
        stored = as_array(base)
        original = merged = stored.astype(np.result_type(stored.dtype, np.float32))
        for change in changes:
            if change.low_rank is not None:
                merged = change.low_rank.merged(merged, original)
            if change.bias is not None:
                merged = merged + change.bias
            if change.rows is not None:
                merged = change.rows.put_into(merged)
        return merged.astype(stored.dtype) if self._rounded else merged

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def check_shared(self, shared: Mapping[str, str], renamed: Callable[[str], str]) -> None:
        """Refuse to change a weight that another layer shares: it was trained for one of them.

        Args:
            shared: names of a model's parameters: of the other layer, and of the weight.
            renamed: a key of the checkpoint as such a name.

        Raises:
            WeightsError: naming both.
        """
        changed = {renamed(key) for key, done in self.changes.items() if any(change.low_rank for change in done)}
        for other, name in shared.items():
            if name in changed and not all(adapter.tied for adapter in self.adapters):
                raise WeightsError(
                    f"{self.adapters[0].folder}: changes {name}, which is also {other} (tie_word_embeddings); its "
                    "change was trained for one of them; save the base model with both (tie_word_embeddings=False)"
                )


def with_adapters(config: Config, adapters: Mapping[Path, float], rounded: bool) -> Config:
    """The options of a base model, with weights into which adapters are merged.

    Args:
        config: the base model.
        adapters: folders, and the weight of each, in the order in which they are merged.
        rounded: as for `AdaptedWeights`.

    Raises:
        ConfigError: for an adapter that cannot be merged, naming the option.
        WeightsError: for tensors that are broken, or fit no weight of this base model.
        OSError: if a file is missing.
    """
    if not adapters:
        return config
    kind = str(config.options.get("model_type"))
    family = find_family(kind)
    declared = ModelType() if family is None else family.types[kind]
    read = [
        _with_older_names(read_adapter(folder, weight), declared.newer_names) for folder, weight in adapters.items()
    ]
    prefix = _prefix(read, config.weights)
    shapes = {f"{prefix}{key}": shape for key, shape in config.shapes.items()}
    changes: dict[str, list[Change]] = {}
    owners: dict[str, Adapter] = {}
    for adapter in read:
        for name, change in _changes(adapter, shapes, config.where, declared).items():
            before = owners.setdefault(name, adapter)
            if before is not adapter and any(_replaces(each) for each in (change, *changes[name])):
                raise WeightsError(
                    f"{adapter.folder}: {name} is also changed by {before.folder}, and one of them replaces it, "
                    "or rows of it; give one of these adapters"
                )
            changes.setdefault(name, []).append(change)
    weights = AdaptedWeights(config.weights, prefix, changes, read, rounded)
    options = _options(config, shapes, changes, read)
    return config.with_weights(lambda: weights, lambda: {**shapes, **_saved_shapes(changes)}, options)


def _replaces(change: Change) -> bool:
    return change.saved is not None or change.rows is not None


def _with_older_names(adapter: Adapter, renames: Sequence[tuple[str, str]]) -> Adapter:
    """An adapter with the names that checkpoints have for its layers."""

    def older(name: str) -> str:
        for pattern, replacement in renames:
            name = re.sub(pattern, replacement, name)
        return name

    layers = {older(name): layer for name, layer in adapter.layers.items()}
    return replace(adapter, layers=layers, biases={older(name): bias for name, bias in adapter.biases.items()})


def _prefix(adapters: Sequence[Adapter], keys: Mapping[str, object]) -> str:
    """The prefix of adapters' names that those of a base model lack: ``bert.``, if it is the inner model alone."""
    for adapter in adapters:
        for name in adapter.layers:
            outer, _, inner = name.partition(".")
            if f"{name}.weight" not in keys and f"{inner}.weight" in keys:
                return f"{outer}."
    return ""


def _changes(
    adapter: Adapter, shapes: Mapping[str, tuple[int, ...]], where: str, declared: ModelType
) -> dict[str, Change]:
    """What an adapter does to the weights of a base model, by their names; `where` is in messages."""
    outer = {name.partition(".")[0] for name in shapes}
    saved = {_name(name, shapes, outer) or name: array for name, array in adapter.saved.items()}
    shapes = {**shapes, **{name: array.shape for name, array in saved.items()}}
    names = {layer: _name(f"{layer}.weight", shapes, outer) for layer in adapter.layers}
    lost = [layer for layer, name in names.items() if name is None]
    expert_pairs: dict[str, LowRank] = {}
    for module, pairs in adapter.experts:
        transposed = declared.transposed_experts
        some = expert_changes(module, pairs, shapes, lambda name: _name(name, shapes, outer), transposed)
        lost += [] if some else [module]
        expert_pairs |= some
    if lost:
        raise WeightsError(
            f"{adapter.folder}: {listed(map(show, lost), MAX_NAMED)} fit no weight of {where}; expected an "
            f"adapter of this base model (it names {show(adapter.base)}), whose layers have weights of their own"
        )
    changes = {name: Change(array, None) for name, array in saved.items()}
    changes |= {name: Change(saved.get(name), pair) for name, pair in expert_pairs.items()}
    for layer, low_rank in adapter.layers.items():
        name = names[layer] or ""
        placed = low_rank.placed(shapes[name], declared.transposed)
        if placed is None:
            raise WeightsError(
                f"{adapter.folder}: {show(layer)} has lora_A {list(low_rank.a.shape)} and lora_B "
                f"{list(low_rank.b.shape)}, but its weight in {where} has shape {list(shapes[name])}; expected an "
                "adapter of this base model"
            )
        changes[name] = Change(saved.get(name), placed)
    for table, rows in adapter.rows.items():
        at = _name(f"{table}.weight", shapes, outer)
        if at is None or shapes[at][1:] != rows.values.shape[1:] or rows.indices.max(initial=0) >= shapes[at][0]:
            raise WeightsError(
                f"{adapter.folder}: trainable_tokens_delta of {show(table)} has shape {list(rows.values.shape)} and "
                f"rows up to {rows.indices.max(initial=0)}, but {where} has no table of this width and so many rows"
            )
        change = changes.get(at, Change(saved.get(at), None))
        changes[at] = change._replace(rows=rows)
    for layer, bias in adapter.biases.items():
        at = _name(f"{layer}.bias", shapes, outer)
        if at is None or shapes[at] != bias.shape:
            raise WeightsError(
                f"{adapter.folder}: {show(layer)} has lora_B.bias {list(bias.shape)}, but the layer of {where} has no "
                "bias of this shape to add it to"
            )
        changes[at] = Change(saved.get(at), None, bias)
    return changes


def _name(name: str, names: Mapping[str, object], outer: set[str]) -> str | None:
    """The base model's name of a layer of an adapter; the name of the inner model may come in front."""
    within = [f"{prefix}.{name}" for prefix in outer if f"{prefix}.{name}" in names]
    return name if name in names else within[0] if len(within) == 1 else None


def _saved_shapes(changes: Mapping[str, Sequence[Change]]) -> dict[str, tuple[int, ...]]:
    return {name: done[0].saved.shape for name, done in changes.items() if done[0].saved is not None}


def _options(
    config: Config,
    shapes: Mapping[str, tuple[int, ...]],
    changes: Mapping[str, Sequence[Change]],
    adapters: Sequence[Adapter],
) -> dict[str, object]:
    """The options of config.json with the head and the table size that the model had when the adapter was trained."""
    options, classes = dict(config.options), CLASSES.get(str(config.options.get("model_type")), ())
    saved = {name: done[0].saved for name, done in changes.items() if done[0].saved is not None}
    for ending in [_HEADS[adapter.task] for adapter in adapters if adapter.task in _HEADS]:
        heads = [name for name in classes if name.endswith(ending)]
        if heads and any(name not in shapes for name in saved):
            options["architectures"] = heads[:1]
        options |= _labels(options, saved, adapters) if heads else {}
    for name, array in saved.items():
        if name.endswith("lm_head.weight") and name not in shapes:  # of a model that shares it with its table
            twins = [other for key, other in saved.items() if key != name and other.shape == array.shape]
            if not any(np.array_equal(array, other) for other in twins):
                options["tie_word_embeddings"] = False
    vocabulary = options.get("vocab_size")
    rows = {
        len(array)
        for name, array in saved.items()
        if array.ndim == 2 and shapes.get(name) == (vocabulary, array.shape[1])
    }
    return {**options, "vocab_size": rows.pop()} if len(rows) == 1 else options


def _labels(
    options: Mapping[str, object], saved: Mapping[str, Array], adapters: Sequence[Adapter]
) -> dict[str, object]:
    """The names of the labels of a head that comes with an adapter: those of a config.json next to it, as `lucid train`
    writes it, else of the base model, if these are as many, else those that transformers gives."""
    counts = [len(array) for name, array in saved.items() if _LABELS.search(name)]
    if not counts:
        return {}
    numbers = list(map(str, range(counts[0])))
    named = [read_optional_json(adapter.folder / "config.json").get("id2label") for adapter in adapters]
    for names in (*named, options.get("id2label")):
        if isinstance(names, dict) and names.keys() == {*numbers}:
            labels = [str(names[number]) for number in numbers]
            break
    else:
        labels = [f"LABEL_{number}" for number in numbers]
    return {
        "id2label": dict(zip(numbers, labels, strict=True)),
        "label2id": {label: n for n, label in enumerate(labels)},
    }
