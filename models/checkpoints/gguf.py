"""GGUF checkpoints, llama.cpp's format: options under the names of a config.json, weights under Hugging Face's keys.

::

    options = read_config("model.gguf", "llama", "qwen2")     # an error if it is of another architecture
    options.size("hidden_size")                               # llama.embedding_length in the file
    options.weights["model.layers.0.self_attn.q_proj.weight"] # blk.0.attn_q.weight, read from the file now

What llama.cpp calls options and tensors is data, below, and in `gguf_architectures.py` what is special of each model.
Metadata that is not named becomes an option under its own name, so that `Config.done` refuses it: nothing is silently
ignored.
"""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from lucid.core.number_ranges import is_whole
from lucid.core.words.safe_text import show
from lucid.files.untrusted import broken
from lucid.models.checkpoints.config import Array, Config, ConfigError
from lucid.models.checkpoints.families import MODEL_TYPES
from lucid.models.checkpoints.gguf_architectures import GGUF
from lucid.models.checkpoints.gguf_file import Header, Strings, Value, read_header
from lucid.models.checkpoints.options_read import options_read
from lucid.models.checkpoints.quantized_weights import as_array
from lucid.models.checkpoints.registry import gguf_types, type_of
from lucid.quantization import Blocks
from lucid.quantization.blocks import first_wrong

_OPTIONS = {  # metadata, after the architecture's name and a dot, to the option of config.json
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "rope.freq_base": "rope_theta",
}
_MAY_BE_ABSENT = ("attention.head_count_kv", "attention.key_length", "rope.freq_base")
_HARMLESS = re.compile(
    r"tensor_data_layout|rope\.scaling\.finetuned|rope\.dimension_sections"
)  # metadata that changes nothing in a forward pass; sections are of positions in images
_KEYS = {  # tensors to Hugging Face's keys; after a dot those of a layer, "blk.0" here and "model.layers.0." there
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    ".attn_norm": "input_layernorm",
    ".attn_q": "self_attn.q_proj",
    ".attn_k": "self_attn.k_proj",
    ".attn_v": "self_attn.v_proj",
    ".attn_qkv": "self_attn.[qkv]_proj",  # the rows of all three
    ".attn_output": "self_attn.o_proj",
    ".attn_q_norm": "self_attn.q_norm",
    ".attn_k_norm": "self_attn.k_norm",
    ".ffn_norm": "post_attention_layernorm",
    ".ffn_gate": "mlp.gate_proj",
    ".ffn_up": "mlp.up_proj",
    ".ffn_down": "mlp.down_proj",
}
_LONG_ROPE = {"long_factor": "rope_factors_long.weight", "short_factor": "rope_factors_short.weight"}
_TURNED = (".attn_q", ".attn_k")
"""Tensors of a layer whose rows rotary positions turn in pairs."""
_FLAT = (".A_log", ".mixer.D", ".mixer.norm.weight")
"""The ends of keys of vectors that files have with another axis."""


def read_config(path: str | os.PathLike[str], *model_types: str, ignore: Sequence[str] = ()) -> Config:
    """The options of a GGUF file, whose architecture must be one of those given, by the name of config.json.

    Unknown metadata is refused, because no table says what llama.cpp reads.

    Args:
        ignore: options that are read as if the file did not have them.

    Raises:
        ConfigError: for another architecture, metadata that is missing, contradicts itself or the tensors, or nothing
            to `ignore`.
        WeightsError: for a file that is not exactly right. OSError: when there is none.
    """
    header = read_header(path)
    source = _Source(header)
    weights = GGUFWeights(source)
    if widened := header.widened():
        _log.info("%s: dequantized to float32: %s", path, widened)
    options = source.options()
    config = Config(options, str(path), lambda: weights, lambda: weights.shapes, source.reads, strict=True)
    config = config.without(ignore)
    config.expect_type(model_types)
    return config


_log = logging.getLogger("lucid.models")


class GGUFWeights(Mapping[str, Array | Blocks]):
    """Weights under Hugging Face's keys, quantized as they are or in float32. Each is read when it is asked for.

    An array that the file holds in float32 is a read-only view of it, unless its rows need another order; other types
    than float32 that `Blocks` cannot hold are dequantized. None is kept.
    """

    def __init__(self, source: _Source) -> None:
        self._pieces = source.pieces()

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes by key; no array is read."""
        return {key: piece.shape for key, piece in self._pieces.items()}

    def __getitem__(self, key: str) -> Array | Blocks:
        return self._pieces[key].read()

    def __iter__(self) -> Iterator[str]:
        return iter(self._pieces)

    def __len__(self) -> int:
        return len(self._pieces)


class _Piece(NamedTuple):
    """One weight of the model: its shape, and what reads it."""

    shape: tuple[int, ...]
    read: Callable[[], Array | Blocks]


class _Source:
    """A file, read by the rules of its architecture."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.name = self._text("general.architecture")
        kinds = gguf_types(self.name)
        if not kinds:
            supported = {kind.gguf.architecture: None for kind in MODEL_TYPES.values() if kind.gguf is not None}
            raise ConfigError(
                f"{header.path}: general.architecture is {show(self.name)}, supported: {', '.join(supported)}; "
                "get the model's config.json and safetensors"
            )
        self.model_type, self.stored = next(filter(self._is_marked, kinds), None) or next(
            (kind for kind in kinds if kind[1].when is None), kinds[0]
        )
        self.reads = options_read(type_of(self.model_type).like or self.model_type)
        further, layers = (
            header.metadata.get(f"{self.name}.{name}") for name in ("nextn_predict_layers", "block_count")
        )
        self._layers: int | None = None  # without those at the end that predict further tokens
        if isinstance(further, int) and isinstance(layers, int) and 0 < further < layers:
            self._layers = layers - further
        self._apart = {self.stored.frequencies, *_LONG_ROPE.values()} & header.tensors.keys()
        parts = header.metadata.get("split.count", 1)
        if not isinstance(parts, int) or parts > 1:
            raise ConfigError(
                f"{header.path}: one of {show(parts)} files that the model was split into, expected the whole; "
                "merge them with llama-gguf-split --merge"
            )

    def _is_marked(self, kind: tuple[str, GGUF]) -> bool:
        """Whether the file has tensors or metadata that only this type has."""
        when = kind[1].when
        if when is None:
            return False
        return f"{self.name}.{when}" in self.header.metadata or any(name.endswith(when) for name in self.header.tensors)

    def options(self) -> dict[str, object]:
        """The same as options of a config.json."""
        own = {
            key.removeprefix(f"{self.name}."): _plain(value)
            for key, value in self.header.metadata.items()
            if key.startswith(f"{self.name}.") and not _is_zero(value)
        }
        stored = self.stored
        names = {**_OPTIONS, stored.eps[0]: stored.eps[1], **stored.options}
        required = {*_OPTIONS, stored.eps[0], *stored.required}.difference(_MAY_BE_ABSENT)
        for name, option in names.items():
            if name in required and option is not None and name not in own:
                raise ConfigError(
                    f"{self.header.path}: metadata {self.name}.{name} is missing or 0; get an intact copy"
                )
        width, heads = own.get("embedding_length"), own.get("attention.head_count")
        options: dict[str, Any] = {"model_type": self.model_type, **stored.implied}
        for name, option in names.items():
            value = own.pop(name, None)
            if value is not None and option is not None:
                options[option] = value
        options |= {
            option: True for option, end in stored.flags.items() if any(n.endswith(end) for n in self.header.tensors)
        }
        if (option := names["attention.head_count_kv"]) is not None and self._is_read(option):
            options.setdefault(option, heads)
        if self._layers is not None:
            del own["nextn_predict_layers"]
            options[str(names["block_count"])] = self._layers
        options |= self._vocabulary(own.pop("vocab_size", None))
        options |= _scaling(own)
        if stored.convert is not None:
            stored.convert(options, own)
        if isinstance(width, int) and isinstance(heads, int):  # else what reads the options says so
            self._check_heads(options, own, width, heads)
        options |= self._long_rope(own)
        if stored.frequencies is not None and stored.frequencies in self._apart:
            options["rope_scaling"] = self._llama3_scaling(stored.frequencies, options.get("rope_theta", 10000.0))
        return options | {f"{self.name}.{name}": v for name, v in own.items() if not _HARMLESS.fullmatch(name)}

    def _is_read(self, option: str) -> bool:
        """Whether models of the type have an option."""
        return self.reads is None or option in self.reads.read

    def key(self, name: str) -> str:
        """Hugging Face's key of a tensor, with a ``*`` for the number of an expert."""
        match = re.fullmatch(r"(?:blk\.(0|[1-9]\d{0,8})(?=\.\w))?(\.?[\w.]+?)(\.weight|\.bias)?", name)
        number, stem, suffix = ("", "", "") if match is None else match.groups("")
        keys = {**_KEYS, **self.stored.keys}
        own = keys.get(f"{stem}{suffix}", f"{keys[stem]}{suffix}" if stem in keys else None)
        if own is None:
            raise ConfigError(
                f"{self.header.path}: tensor {show(name)} is not supported here, so the results could be wrong; "
                "get the model's config.json and safetensors"
            )
        return f"{self.stored.layers}.{number}.{own}" if number else own

    def pieces(self) -> dict[str, _Piece]:
        """The weights by Hugging Face's keys."""
        pieces: dict[str, _Piece] = {}
        for name, entry in self.header.tensors.items():
            if name in self._apart or self._is_further(name):
                continue
            key, shape = self.key(name), entry.shape
            if "*" in key and len(shape) == 3:
                experts = {key.replace("*", str(i)): partial(self.header.weight, name, i) for i in range(shape[0])}
                pieces |= {each: _Piece(shape[1:], read) for each, read in experts.items()}
            elif "[qkv]" in key:
                for letter, rows in zip("qkv", self._rows_of_qkv(name, shape[0]), strict=True):
                    part = _Piece((rows.size, *shape[1:]), partial(self._rows, name, rows))
                    pieces[key.replace("[qkv]", letter)] = part
            else:
                shape = self._shape(key, shape)
                pieces[key] = _Piece(shape, partial(self.weight, name, shape))
        for end, joint in _JOINTS.items():
            for key in [key for key in pieces if key.endswith(joint.first)]:
                stem = key.removesuffix(joint.first)
                if (other := stem + joint.second) in pieces:
                    parts = pieces.pop(key), pieces.pop(other)
                    whole = joint.shape(self, *(part.shape for part in parts))
                    if whole is None:
                        first, second = (list(part.shape) for part in parts)
                        raise ConfigError(
                            f"{self.header.path}: {key} has shape {first} and {other} {second}, which make no {end} of "
                            "this model; get an intact copy of the file"
                        )
                    pieces[stem + end] = _Piece(whole, partial(_joined, joint, self, parts))
        return pieces

    def _is_further(self, name: str) -> bool:
        """Whether a tensor is of a layer that predicts further tokens."""
        match = re.match(r"blk\.(\d{1,9})\.", name)
        return match is not None and self._layers is not None and int(match[1]) >= self._layers

    def _shape(self, key: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the weight in the model."""
        if key.endswith((".conv.weight", ".conv1d.weight")):
            return (shape[0], 1, *shape[1:])
        if key.endswith(".shared_expert_gate.weight"):
            return (1, *shape[-1:])
        if key.endswith(_FLAT):
            return (math.prod(shape),)
        return shape[::-1] if self._is_transposed(shape, key) else shape

    def _is_transposed(self, shape: Sequence[int], name: str) -> bool:
        return type_of(self.model_type).transposed and len(shape) == 2 and re.search(r"\.\d+\.", name) is not None

    def weight(self, name: str, shape: tuple[int, ...]) -> Array | Blocks:
        """A tensor, its rows in Hugging Face's order. Products in blocks have outputs before inputs in any model."""
        weight = self.header.weight(name)
        layer = re.fullmatch(r"blk\.\d+(\.\w+?)(\.(?:weight|bias))?", name)
        order = None if layer is None else self._order(name, layer[1], weight.shape)
        columns = layer is not None and self.stored.rows.get(layer[1]) == "tiled columns"
        if columns and isinstance(weight, Blocks) and self.count("ssm.state_size") % weight.block:
            weight = weight.dequantized()
        if isinstance(weight, Blocks):
            return weight if order is None else weight.columns(order) if columns else weight.rows(order)
        if order is not None:
            weight = weight[..., order] if columns else weight[order]
        if self.stored.norm_offset and name.endswith("norm.weight") and not name.endswith(".ssm_norm.weight"):
            weight = weight - np.float32(self.stored.norm_offset)
        if name.endswith(".ssm_a"):
            if wrong := first_wrong(weight, weight < 0):
                raise broken(self.header.path, f"tensor {show(name)} has {wrong}, expected numbers below 0")
            weight = np.log(-weight)
        return (weight.T if self._is_transposed(weight.shape, name) else weight).reshape(shape)

    def _rows(self, name: str, order: Array) -> Array | Blocks:
        weight = self.header.weight(name)
        return weight.rows(order) if isinstance(weight, Blocks) else weight[order]

    def _rows_of_qkv(self, name: str, rows: int) -> Iterator[Array]:
        """The rows of queries, keys and values."""
        heads, kv_heads = self._heads()
        width, begin = self._share(name, rows, heads + 2 * kv_heads), 0
        for letter, size in zip("qkv", (heads * width, kv_heads * width, kv_heads * width), strict=True):
            order = self._order(name, f".attn_{letter}", (size,))
            yield begin + (np.arange(size) if order is None else order)
            begin += size

    def _order(self, name: str, end: str, shape: Sequence[int]) -> Array | None:
        """The order of the model's rows or columns in a tensor of a layer; None if it is the same."""
        if self.stored.pairs == "neighbours" and end in _TURNED:
            heads = self._heads()[_TURNED.index(end)]
            self._share(name, shape[0], 2 * heads)
            return np.arange(shape[0]).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)
        kind = self.stored.rows.get(end)
        if kind is None:
            return None
        size = shape[-1] if kind == "tiled columns" else shape[0]
        if kind == "grouped":
            heads, groups = self._heads()
            width = self._share(name, size, heads + 2 * groups)
            self._share(name, heads, groups)
            parts = np.split(np.arange(size), [heads * width, (heads + groups) * width])
            return np.concatenate([part.reshape(groups, -1) for part in parts], 1).reshape(-1)
        groups, heads = self.count("ssm.group_count"), self.count("ssm.time_step_rank")
        values = min(size, self.count("ssm.inner_size"))  # they come last
        self._share(name, values, heads)
        tiles = np.arange(size - values, size).reshape(self._share(name, heads, groups), groups, -1)
        return np.concatenate([np.arange(size - values), tiles.swapaxes(0, 1).reshape(-1)])

    def _heads(self) -> tuple[int, int]:
        """The numbers of heads of queries, and of keys and values."""
        heads = self.count("attention.head_count")
        return heads, self.count("attention.head_count_kv", heads)

    def count(self, name: str, default: int | None = None) -> int:
        """A number of heads or features in the metadata."""
        value = self.header.metadata.get(f"{self.name}.{name}", default)
        if not is_whole(value) or value < 1:
            raise ConfigError(
                f"{self.header.path}: metadata {self.name}.{name} is {show(value)}, expected a whole number from 1; "
                "get an intact copy of the file"
            )
        return value

    def _share(self, name: str, size: int, parts: int) -> int:
        """The equal share of a size for each of its parts."""
        if size % parts:
            raise ConfigError(
                f"{self.header.path}: tensor {show(name)} has {size} rows or heads, expected a multiple of {parts}, as "
                "the metadata says; get an intact copy of the file"
            )
        return size // parts

    def _text(self, key: str) -> str:
        value = self.header.metadata.get(key)
        if not isinstance(value, str):
            got = "is missing" if value is None else f"is {show(value)}"
            raise ConfigError(f"{self.header.path}: metadata {key} {got}, expected text; get an intact copy")
        return value

    def _vocabulary(self, declared: object) -> dict[str, object]:
        """How many tokens there are, and whether the output layer is the table of embeddings."""
        tensors = self.header.tensors
        if "token_embd.weight" not in tensors:
            raise ConfigError(f"{self.header.path}: tensor 'token_embd.weight' is missing; get the whole model")
        size = tensors["token_embd.weight"].shape[0]
        if declared not in (None, size):
            raise ConfigError(
                f"{self.header.path}: metadata {self.name}.vocab_size is {show(declared)}, expected {size}, the rows "
                "of 'token_embd.weight'; get an intact copy of the file"
            )
        return {"vocab_size": size, "tie_word_embeddings": "output.weight" not in tensors}

    def _llama3_scaling(self, name: str, base: object) -> dict[str, object]:
        """Llama 3.1's scaling. The file has the divisor of each frequency; the options are those that give the same
        divisors.

        The factor is nowhere else in the file, and all published Llamas share the other options.
        """
        factors = self.header.array(name)
        factor = float(factors.max())
        if isinstance(base, float) and base > 1 and factors.ndim == 1 and 1 <= factor < np.inf:
            turns = 8192 / (2 * np.pi) * base ** (-np.arange(factors.size) / factors.size)
            kept = np.clip((turns - 1) / 3, 0, 1)  # what turns less than once is stretched, more than four times kept
            if np.allclose(factors, 1 / ((1 - kept) / factor + kept), rtol=1e-4):
                options = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
                return {"rope_type": "llama3", "factor": factor, **options}
        raise ConfigError(
            f"{self.header.path}: tensor {show(name)} scales positions as no published Llama does, so the results "
            "could be wrong; get the model's config.json and safetensors"
        )

    def _long_rope(self, own: dict[str, object]) -> dict[str, object]:
        """Phi-3's scaling; the file has the factors of all frequencies."""
        if not self._apart.issuperset(_LONG_ROPE.values()):
            return {}
        factors = {  # the shortest decimals that round to them
            option: [float(str(number)) for number in self.header.array(name).ravel()]
            for option, name in _LONG_ROPE.items()
        }
        factor = own.pop("rope.scaling.attn_factor", None)
        return {"rope_scaling": {"type": "longrope", "attention_factor": factor, **factors}}

    def _check_heads(self, options: dict[str, Any], own: dict[str, object], width: int, heads: int) -> None:
        """Refuse heads that are rotated in part, or values of another width than keys: llama.cpp knows both."""
        head_dim = options.get("head_dim", width // heads)
        if self.reads is not None and self.reads.default("head_dim") is not None:  # another one
            options["head_dim"] = head_dim
        if self.stored.partial is not None and isinstance(head_dim, int) and head_dim:
            turned = own.pop("rope.dimension_count", head_dim)
            if not isinstance(turned, int):
                raise ConfigError(f"{self.header.path}: metadata {self.name}.rope.dimension_count is {show(turned)}")
            # Half a feature more: the product with the width is rounded down.
            options[self.stored.partial] = 1.0 if turned == head_dim else (turned + 0.5) / head_dim
        if self.stored.scalar_layers is not None:
            whole = options["num_hidden_layers"] == self.stored.scalar_layers
            options["query_pre_attn_scalar"] = width // heads if whole else head_dim
        for name in ("rope.dimension_count", "attention.value_length"):
            declared = own.pop(name, head_dim)
            if declared != head_dim:
                raise ConfigError(
                    f"{self.header.path}: metadata {self.name}.{name} is {show(declared)}, supported: "
                    f"{show(head_dim)}, the width of a head; get the model's config.json and safetensors"
                )


def _scaling(own: dict[str, object]) -> dict[str, object]:
    """The scaling of the rotary positions, removed from the metadata; an unknown kind stays there."""
    kind = own.get("rope.scaling.type", "linear")  # llama.cpp's default
    if kind not in ("none", "linear", "yarn"):
        return {}
    own.pop("rope.scaling.type", None)
    factor = own.pop("rope.scaling.factor", own.pop("rope.scale_linear", 1.0))  # the second until 2023
    trained = own.pop("rope.scaling.original_context_length", None)
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return {}
    scaling = {"rope_type": kind, "factor": factor, "original_max_position_embeddings": trained}
    for name, option in (("beta_fast",) * 2, ("beta_slow",) * 2, ("attn_factor", "attention_factor")):
        if f"rope.scaling.yarn_{name}" in own:
            scaling[option] = own.pop(f"rope.scaling.yarn_{name}")
    return {"rope_scaling": scaling if kind == "yarn" else {"rope_type": kind, "factor": factor}}


# Weights that the file has in two tensors -----------------------------------------------------------------------------


class _Joint(NamedTuple):
    """How a weight is made of two that the file has: the ends of their keys, its shape, and its numbers.

    The shape is None where theirs do not fit each other; the numbers are asked for only where they do.
    """

    first: str
    second: str
    shape: Callable[[_Source, tuple[int, ...], tuple[int, ...]], tuple[int, ...] | None]
    join: Callable[[_Source, Array, Array], Array]


def _joined(joint: _Joint, source: _Source, parts: tuple[_Piece, _Piece]) -> Array:
    first, second = (as_array(part.read()) for part in parts)
    return joint.join(source, first, second)


def _shape_of_heads(_: _Source, keys: tuple[int, ...], values: tuple[int, ...]) -> tuple[int, ...] | None:
    if len(keys) != 3 or len(values) != 3 or keys[:2] != values[::2]:
        return None
    return keys[0] * (keys[2] + values[1]), keys[1]


def _join_heads(_: _Source, keys: Array, values: Array) -> Array:
    """The weights from latents to keys (heads, rank, width) and values (heads, width, rank), joined head by head."""
    return np.concatenate([keys.swapaxes(1, 2), values], 1).reshape(-1, keys.shape[1])


def _shape_of_key_heads(source: _Source, qkv: tuple[int, ...], gates: tuple[int, ...]) -> tuple[int, ...] | None:
    heads = source.count("ssm.group_count")
    values = qkv[0] - 2 * heads * source.count("ssm.state_size")
    if len(qkv) != 2 or len(gates) != 2 or qkv[1] != gates[1] or values < 1 or values % heads or gates[0] % heads:
        return None
    return qkv[0] + gates[0], qkv[1]


def _join_key_heads(source: _Source, qkv: Array, gates: Array) -> Array:
    """The rows for queries, keys, values and gates, in the order of the key heads."""
    heads = source.count("ssm.group_count")
    keys = heads * source.count("ssm.state_size")
    parts = (qkv[:keys], qkv[keys : 2 * keys], qkv[2 * keys :], gates)
    return np.concatenate([part.reshape(heads, -1, part.shape[-1]) for part in parts], 1).reshape(-1, qkv.shape[-1])


def _shape_in_turn(_: _Source, gates: tuple[int, ...], ups: tuple[int, ...]) -> tuple[int, ...] | None:
    return (gates[0], 2 * gates[1], *gates[2:]) if gates == ups and len(gates) > 1 else None


def _join_in_turn(_: _Source, gates: Array, ups: Array) -> Array:
    """The rows of both (experts, rows, ...) in turn."""
    return np.stack([gates, ups], 2).reshape(len(gates), -1, *gates.shape[2:])


_JOINTS = {
    "self_attn.kv_b_proj.weight": _Joint(
        "self_attn.k_b_proj.weight", "self_attn.v_b_proj.weight", _shape_of_heads, _join_heads
    ),
    "self_attn.in_proj_qkvz.weight": _Joint(
        "self_attn.in_proj_qkvz.qkv.weight",
        "self_attn.in_proj_qkvz.z.weight",
        _shape_of_key_heads,
        _join_key_heads,
    ),
    "mlp.gate_up": _Joint("mlp.gate_up.gate.weight", "mlp.gate_up.up.weight", _shape_in_turn, _join_in_turn),
    "mlp.gate_up_bias": _Joint("mlp.gate_up.gate.bias", "mlp.gate_up.up.bias", _shape_in_turn, _join_in_turn),
}
"""By the ends of their keys."""


def _is_zero(value: Value) -> bool:
    """Whether a value is the count 0: the model has no experts, or no window. A flag is not a count."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == 0


def _plain(value: Value) -> object:
    """The value as in JSON. A long list is only described: no option is one, and messages do not need its numbers."""
    if isinstance(value, np.ndarray):
        return value.tolist() if value.size <= 1024 else f"{value.size} numbers"
    return str(value) if isinstance(value, Strings) else value
