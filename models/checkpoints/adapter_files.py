"""The folder of a PEFT adapter: adapter_config.json and adapter_model.safetensors or .bin, read and checked.

For a layer X of the base model, by its name in transformers' model::

    base_model.model.X.lora_A.weight           (r, inputs), or (r, inputs, *kernel) of a convolution
    base_model.model.X.lora_B.weight           (outputs, r), or (outputs, r, 1, 1)
    base_model.model.X.lora_embedding_A, _B    (r, rows), (width, r) of a table
    base_model.model.X.lora_magnitude_vector   (outputs,): DoRA's lengths of the rows of the merged weight
    base_model.model.X.lora_B.bias             (outputs,): what is added to the layer's bias
    base_model.model.X.token_adapter.trainable_tokens_delta
                                               (n, width): rows that take the place of those of trainable_token_indices
    base_model.model.Y                         a weight or bias that takes the place of the base model's

Pairs for the joined weights of experts are in `adapter_experts.py`.

The weight of X becomes weight + scale * B @ A, where scale is alpha / r, or alpha / sqrt(r) (rsLoRA). DoRA multiplies
each row of the sum by its number in the vector, divided by the length of that row of original weight + scale * B @ A.

The tensors say which layers there are; target_modules and its kin only told PEFT where to put them.

Sources: Hu et al. 2021 (LoRA), Kalajdzievski 2023 (rsLoRA), Liu et al. 2024 (DoRA), and peft 0.21, `tuners/lora`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import lucid
from lucid import WeightsError
from lucid.core.words.safe_text import show
from lucid.models.checkpoints.config import Array, Config, read_json

CONFIG, WEIGHTS = "adapter_config.json", ("adapter_model.safetensors", "adapter_model.bin")

PEFT_TASKS = {
    "text-classification": "SEQ_CLS",
    "token-classification": "TOKEN_CLS",
    "question-answering": "QUESTION_ANS",
}
"""PEFT's task_type by the name of a task."""
_FLOATS = ("float16", "bfloat16", "float32", "float64")
PREFIX = "base_model.model."
_PART = re.compile(r"(.+)\.(lora_(?:embedding_)?[AB]|lora_magnitude_vector|trainable_tokens_delta)(?:\.(weight|bias))?")
_MERGE = (
    "PeftModel.from_pretrained(base, adapter).merge_and_unload().save_pretrained(folder) merges what PEFT can merge, "
    "for load(folder)"
)
_REFUSED = {
    "alora_invocation_tokens": "acts only after certain tokens",
    "arrow_config": "chooses among adapters at run time",
    "kasa_config": "changes the weights of the base model too",
    "layer_replication": "repeats layers of the base model",
    "megatron_config": "has the layers of Megatron",
    "monteclora_config": "draws random numbers",
    "use_bdlora": "stores B or A in blocks",
    "use_qalora": "pools the inputs",
}
_INITS = (True, False, "gaussian", "eva", "orthogonal")  # others change the weights of the base model too
# How it was trained, and where PEFT put the layers.
_HARMLESS = [
    "auto_mapping|base_model_name_or_path|revision|task_type|inference_mode|peft_version|lora_dropout|bias|runtime_config",
    "target_modules|exclude_modules|layers_to_transform|layers_pattern|modules_to_save|fan_in_fan_out|megatron_core",
    "loftq_config|eva_config|corda_config|lora_ga_config|velora_config|qalora_group_size|ensure_weight_tying",
]
_MAX_ALPHA = 1e9
_MAX_NAME = 200  # letters of a layer's name: patterns of strangers are matched with it
_MAX_REPEATS = 3  # in a pattern, for the same reason


@dataclass(frozen=True)
class LowRank:
    """What LoRA adds to the weight of a layer: scale * b @ a."""

    a: Array  # (r, inputs, ...)
    b: Array  # (outputs, r, ...)
    scale: float  # of the product
    magnitude: Array | None = None  # (outputs,) DoRA's lengths of the rows; None without DoRA
    table: bool = False  # whether the layer is an embedding, which stores (inputs, outputs)
    transposed: bool = False  # whether the weight is (inputs, outputs)
    # How many have a product each, in one weight; then a is (experts * r, inputs), b (outputs, r * experts).
    experts: int = 1

    def of_expert(self, number: int, part: int, parts: int) -> LowRank:
        """The change of one part of the rows of an expert's own weight."""
        a = self.a.reshape(self.experts, -1, self.a.shape[1])[number]
        b = self.b.reshape(parts, -1, len(a), self.experts)[part, :, :, number]
        return replace(self, a=a, b=b, experts=1)

    def placed(self, shape: tuple[int, ...], conv1d: bool) -> LowRank | None:
        """The change for a weight of this shape; None if it does not fit it.

        Args:
            shape: of the weight.
            conv1d: whether layers of this type of model store (inputs, outputs), which a square shape does not tell.
        """
        rows, columns = len(self.b), self.a.shape[1:]
        if not self.table and not (conv1d and rows == math.prod(columns)) and shape == (rows, *columns):
            return self
        fits = len(columns) == 1 and shape == (*columns, rows)
        return replace(self, transposed=True) if fits else None

    def merged(self, weight: Array, original: Array) -> Array:
        """The weight with this added, in float32; `original` is the weight before all adapters."""
        a: Array
        b: Array
        a, b = (np.asarray(array, np.float32).reshape(len(array), -1) for array in (self.a, self.b))
        if self.experts > 1:
            a, b = a.reshape(self.experts, -1, a.shape[1]), b.reshape(len(b), -1, self.experts).transpose(2, 0, 1)
        added = b @ a
        added *= np.float32(self.scale)
        added = (added.swapaxes(-1, -2) if self.transposed else added).reshape(weight.shape)
        if self.magnitude is None:
            return np.asarray(weight + added)
        axes = (0,) if self.transposed else tuple(range(1, weight.ndim))
        lengths = np.sqrt(np.square(original + added).sum(axes, keepdims=True))
        factor = np.asarray(self.magnitude, np.float32).reshape(lengths.shape) / lengths
        return np.asarray(factor * (weight + added))


class Rows(NamedTuple):
    """Rows of a table that an adapter replaces."""

    indices: Array
    values: Array

    def put_into(self, table: Array) -> Array:
        """A copy of the table with these rows."""
        table = table.copy()
        table[self.indices] = self.values
        return table


@dataclass(frozen=True)
class Adapter:
    """An adapter as read from its folder."""

    folder: Path  # where it is
    weight: float  # what its scales are multiplied by
    base: object  # what it says of its base model; untrusted
    task: str  # PEFT's task_type, such as "SEQ_CLS", or ""
    layers: Mapping[str, LowRank]  # by the name of a layer what is added to its weight
    biases: Mapping[str, Array]  # by the name of a layer what is added to its bias
    saved: Mapping[str, Array]  # by its name what takes the place of a weight or bias
    # Modules with joined experts, by the names of their parameters what is added to it if it is the one.
    experts: Sequence[tuple[str, Mapping[str, LowRank]]] = ()
    # By the name of a table the indices of rows, and what takes their place.
    rows: Mapping[str, Rows] = field(default_factory=dict)
    tied: bool = False  # whether layers that share a weight with a changed one were trained to keep sharing it


@dataclass
class _Tensors:
    """The tensors of a layer by their part, such as "lora_A"."""

    parts: dict[str, Array] = field(default_factory=dict)

    def get(self, *names: str) -> Array | None:
        return next((self.parts[name] for name in names if name in self.parts), None)


def read_adapter(folder: Path, weight: float) -> Adapter:
    """Read and check an adapter; its tensors stay in the mapped file.

    Raises:
        ConfigError: for an adapter of another kind than LoRA, or an option that cannot be merged, by its name.
        WeightsError: for a file that is broken, and tensors that do not make an adapter.
        OSError: if a file is missing.
    """
    path = folder / CONFIG
    if not path.exists():
        raise FileNotFoundError(f"{folder}: has no {CONFIG}; give the folder of an adapter, as PEFT saves it")
    options = Config({name: value for name, value in read_json(path).items() if value is not False}, str(path))
    scales = _read_scales(options)
    file = weights_file(folder)
    tensors, saved = _sorted(file, lucid.load(file))
    layers, biases, experts, rows = {}, {}, [], {}
    for name, layer in tensors.items():
        if "trainable_tokens_delta" in layer.parts:
            rows[name] = _rows(options, name, layer)
            continue
        module = name.removesuffix(".base_layer")
        pairs = _expert_pairs(module, layer, scales, weight)
        if pairs:
            experts.append((module, pairs))
            continue
        low_rank = _low_rank(file, name, layer, scales, weight)
        layers[name] = low_rank
        bias = layer.get("lora_B.bias")
        if bias is not None:
            biases[name] = np.asarray(bias, np.float32) * np.float32(low_rank.scale)
    if options.has("trainable_token_indices") and not rows:
        raise options.wrong("trainable_token_indices", f"expected trainable_tokens_delta in {file}")
    if not (layers or saved or experts or rows):
        raise WeightsError(f"{file}: has no tensors, expected those of an adapter")
    whole = saved or rows or any(layer.magnitude is not None for layer in layers.values())
    if weight != 1 and whole:
        what = f"replaces {show(next(iter({**saved, **rows})))}" if saved or rows else "has DoRA's lengths of rows"
        raise options.wrong("peft_type", f"but it {what}, which has no part of {weight:g}; give it the weight 1")
    return Adapter(
        folder,
        weight,
        options.options.get("base_model_name_or_path"),
        options.get("task_type", str, ""),
        layers,
        biases,
        saved,
        experts,
        rows,
        bool(options.options.get("ensure_weight_tying")),
    )


@dataclass(frozen=True)
class _Scales:
    """Ranks and scales by the name of a layer."""

    options: Config
    rank: int
    alpha: float
    ranks: Mapping[str, Any]
    alphas: Mapping[str, Any]
    roots: bool
    dora: bool
    parameters: tuple[str, ...]

    def rank_of(self, layer: str) -> int:
        rank: int = self._of(layer, self.ranks, self.rank)
        return rank

    def scale_of(self, layer: str) -> float:
        rank = self.rank_of(layer)
        alpha: float = self._of(layer, self.alphas, self.alpha)
        return alpha / (math.sqrt(rank) if self.roots else rank)

    def _of(self, layer: str, patterns: Mapping[str, Any], usual: Any) -> Any:
        return next((value for key, value in patterns.items() if re.match(rf"(.*\.)?({key})$", layer)), usual)


def _read_scales(options: Config) -> _Scales:
    if options.get("peft_type", str) != "LORA":
        raise options.wrong("peft_type", f"supported: LORA; {_MERGE}")
    for name, reason in _REFUSED.items():
        if options.has(name):
            raise options.wrong(name, f"which {reason} and is not merged here; {_MERGE}")
    inits = options.options.get("init_lora_weights", True)
    options.has("init_lora_weights")
    if inits not in _INITS:
        raise options.wrong(
            "init_lora_weights",
            "which changes the weights of the base model too; save it as plain LoRA: "
            "save_pretrained(folder, path_initial_model_for_weight_conversion=...)",
        )
    scales = _Scales(
        options,
        options.whole("r", 8),
        options.real("lora_alpha", 8.0, low=-_MAX_ALPHA, high=_MAX_ALPHA),
        _read_patterns(options, "rank_pattern"),
        _read_patterns(options, "alpha_pattern"),
        options.get("use_rslora", bool, False),
        options.get("use_dora", bool, False),
        tuple(map(str, options.get("target_parameters", list, []))),
    )
    options.get("lora_bias", bool, False)
    options.has("trainable_token_indices")
    options.done(_HARMLESS)
    return scales


def _read_patterns(options: Config, name: str) -> dict[str, Any]:
    """Numbers by regular expressions. The expressions are untrusted: those that could run forever are refused."""
    patterns = options.get(name, dict, {})
    for pattern, value in patterns.items():
        whole = type(value) is int and 1 <= value < 1 << 31
        if not (whole if name == "rank_pattern" else type(value) in (int, float) and abs(value) <= _MAX_ALPHA):
            raise options.wrong(name, f"expected a number for {show(pattern)}")
        repeats = len(re.findall(r"[*+{]", pattern))
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError):
            repeats = _MAX_REPEATS + 1
        if repeats > _MAX_REPEATS or re.search(r"\)[*+?{]", pattern):
            raise options.wrong(
                name,
                f"expected regular expressions of at most {_MAX_REPEATS} repetitions and none of a group, found "
                f"{show(pattern)}",
            )
    return dict(patterns)


def weights_file(folder: Path) -> Path:
    """The file of an adapter's tensors.

    Raises:
        FileNotFoundError: if there is none.
    """
    files = [folder / name for name in WEIGHTS if (folder / name).exists()]
    if not files:
        raise FileNotFoundError(
            f"{folder}: has no {WEIGHTS[0]}; PEFT writes it by "
            "PeftModel.from_pretrained(base, adapter).save_pretrained(folder)"
        )
    return files[0]


def _sorted(where: Path, arrays: Mapping[str, Array]) -> tuple[dict[str, _Tensors], dict[str, Array]]:
    """The tensors by layer, and those that replace weights."""
    layers, saved = dict[str, _Tensors](), dict[str, Array]()
    for key, array in arrays.items():
        if not key.startswith(PREFIX) or len(key) > _MAX_NAME + len(PREFIX):
            raise WeightsError(
                f"{where}: has {show(key)}, expected names that begin with {PREFIX}, as PEFT writes them"
            )
        if array.dtype.name not in _FLOATS:
            raise WeightsError(f"{where}: {show(key)} is {array.dtype}, expected one of {', '.join(_FLOATS)}")
        if not np.isfinite(array).all():
            raise WeightsError(f"{where}: {show(key)} has NaN or infinity; get an intact copy of the adapter")
        name = re.sub(r"\.base_layer\.(?!lora_)", ".", key.removeprefix(PREFIX)).replace(".token_adapter.", ".")
        match = _PART.fullmatch(name)
        if match is not None:
            part = f"{match[2]}.bias" if match[3] == "bias" else match[2]
            layers.setdefault(match[1], _Tensors()).parts[part] = array
        elif "lora_" in name or ".token_adapter." in key:
            raise WeightsError(f"{where}: has {show(key)}, which no LoRA of PEFT has that is merged here; {_MERGE}")
        else:
            saved[name] = array
    return layers, saved


def _rows(options: Config, table: str, layer: _Tensors) -> Rows:
    """The rows of a table that are replaced."""
    indices: object = options.options.get("trainable_token_indices")
    if isinstance(indices, dict):
        indices = next((value for name, value in indices.items() if f".{table}".endswith(f".{name}")), None)
    values = layer.parts["trainable_tokens_delta"]
    known = isinstance(indices, list) and all(type(index) is int and 0 <= index < 1 << 31 for index in indices)
    if not known or values.ndim != 2 or len(set(indices)) != len(values):  # type: ignore[call-overload]
        expected = f"expected {len(values)} different rows of {show(table)}, for trainable_tokens_delta"
        raise options.wrong("trainable_token_indices", f"{expected} {list(values.shape)}")
    return Rows(np.array(indices, np.int64), values)


def _expert_pairs(module: str, layer: _Tensors, scales: _Scales, weight: float) -> dict[str, LowRank]:
    """The changes of the parameters of a module with joined experts, for each that target_parameters names."""
    a, b = layer.get("lora_A"), layer.get("lora_B")
    if a is None or b is None or a.ndim != 2 or b.ndim != 2 or len(a) != b.shape[1]:
        return {}
    by_parameter = {}
    for name in scales.parameters:
        inner, _, parameter = name.rpartition(".")
        full = f"{module}.{parameter}"
        rank = scales.rank_of(full)
        if inner and f".{module}".endswith(f".{inner}") and len(a) > rank and len(a) % rank == 0:
            by_parameter[parameter] = LowRank(a, b, weight * scales.scale_of(full), experts=len(a) // rank)
    return by_parameter


def _low_rank(file: Path, name: str, layer: _Tensors, scales: _Scales, weight: float) -> LowRank:
    where = f"{file}: {show(name)}"
    a, b = layer.get("lora_A", "lora_embedding_A"), layer.get("lora_B", "lora_embedding_B")
    table = "lora_embedding_A" in layer.parts
    if a is None or b is None or table != ("lora_embedding_B" in layer.parts):
        raise WeightsError(f"{where} has {', '.join(layer.parts)}, expected lora_A and lora_B; get an intact copy")
    rank, magnitude = scales.rank_of(name), layer.get("lora_magnitude_vector")
    if a.ndim < 2 or b.ndim < 2 or a.shape[0] != rank or b.shape[1] != rank or math.prod(b.shape) != len(b) * rank:
        raise WeightsError(
            f"{where} has lora_A {list(a.shape)} and lora_B {list(b.shape)}, expected ({rank}, inputs) and "
            f"(outputs, {rank}) for r = {rank} in {CONFIG}"
        )
    if (magnitude is not None) != scales.dora or (magnitude is not None and magnitude.size != len(b)):
        what = "no lora_magnitude_vector" if magnitude is None else f"lora_magnitude_vector {list(magnitude.shape)}"
        expected = f"one of {len(b)} numbers as use_dora is true" if scales.dora else "none as use_dora is false"
        raise WeightsError(f"{where} has {what}, expected {expected}")
    return LowRank(a, b, weight * scales.scale_of(name), magnitude, table)
