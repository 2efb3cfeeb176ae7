"""GGUF checkpoints, llama.cpp's format: options under the names of a config.json, weights under Hugging Face's keys.

::

    options = read_config("model.gguf", "llama", "qwen2")     # an error if it is of another architecture
    options.size("hidden_size")                               # llama.embedding_length in the file
    options.weights["model.layers.0.self_attn.q_proj.weight"] # blk.0.attn_q.weight, read from the file now

What llama.cpp calls options and tensors is data, below; which models are read, and what is special of each, stands in
`families.py`. Metadata that is not named becomes an option under its own name, so that `Config.done` refuses it:
nothing is silently ignored.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from lucid.models.checkpoints.config import Array, Config, ConfigError, show
from lucid.models.checkpoints.families import MODEL_TYPES
from lucid.models.checkpoints.gguf_file import Header, Strings, Value, read_header
from lucid.models.checkpoints.options_read import options_read
from lucid.models.checkpoints.registry import gguf_type, type_of
from lucid.quantization import Blocks

_OPTIONS = {  # metadata, after the architecture's name and a dot, to the option of config.json
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
_MAY_BE_ABSENT = ("attention.head_count_kv", "attention.key_length", "rope.freq_base")
_HARMLESS = re.compile(
    r"tensor_data_layout|rope\.scaling\.finetuned"
)  # metadata that changes nothing in a forward pass
_KEYS = {  # tensors to Hugging Face's keys; after a dot those of a layer, "blk.0" here and "model.layers.0." there
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    ".attn_norm": "input_layernorm",
    ".attn_q": "self_attn.q_proj",
    ".attn_k": "self_attn.k_proj",
    ".attn_v": "self_attn.v_proj",
    ".attn_output": "self_attn.o_proj",
    ".attn_q_norm": "self_attn.q_norm",
    ".attn_k_norm": "self_attn.k_norm",
    ".ffn_norm": "post_attention_layernorm",
    ".ffn_gate": "mlp.gate_proj",
    ".ffn_up": "mlp.up_proj",
    ".ffn_down": "mlp.down_proj",
}
_TURNED = {".attn_q": "attention.head_count", ".attn_k": "attention.head_count_kv"}
"""Tensors of a layer whose rows rotary positions turn in pairs, and the metadata with their number of heads."""


def read_config(path: str | os.PathLike[str], *model_types: str, ignore: Sequence[str] = ()) -> Config:
    """The options of a GGUF file, whose architecture must be one of those given, by the name of config.json.

    Metadata that nobody is known to read is refused: what llama.cpp reads of it is in no table.

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
    reads = options_read(type_of(source.model_type).like or source.model_type)
    config = Config(options, str(path), lambda: weights, lambda: weights.shapes, reads, strict=True).without(ignore)
    config.expect_type(model_types)
    return config


_log = logging.getLogger("lucid.models")


class GGUFWeights(Mapping[str, Array | Blocks]):
    """Weights under Hugging Face's keys, quantized as they are or in float32. Each is read when it is asked for.

    An array that the file holds in float32 is a read-only view of it, unless its rows need another order; other types
    than float32 that `Blocks` cannot hold are dequantized. None is kept.
    """

    def __init__(self, source: _Source) -> None:
        self._source = source
        self._names = {source.key(name): name for name in source.header.tensors if name != source.frequencies}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes by key; no array is read."""
        return {key: self._source.header.tensors[name].shape for key, name in self._names.items()}

    def __getitem__(self, key: str) -> Array | Blocks:
        return self._source.weight(self._names[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class _Source:
    """A file as its architecture explains it."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.name = self._text("general.architecture")
        found = gguf_type(self.name)
        if found is None:
            supported = ", ".join(kind.gguf.architecture for kind in MODEL_TYPES.values() if kind.gguf is not None)
            raise ConfigError(
                f"{header.path}: general.architecture is {show(self.name)}, supported: {supported}; "
                "get the model's config.json and safetensors"
            )
        self.model_type, self.stored = found
        frequencies = self.stored.frequencies
        self.frequencies = frequencies if frequencies in header.tensors else None
        parts = header.metadata.get("split.count", 1)
        if not isinstance(parts, int) or parts > 1:
            raise ConfigError(
                f"{header.path}: one of {show(parts)} files that the model was split into, expected the whole; "
                "merge them with llama-gguf-split --merge"
            )

    def options(self) -> dict[str, object]:
        """The options of a config.json that says the same."""
        own = {
            key.removeprefix(f"{self.name}."): _plain(value)
            for key, value in self.header.metadata.items()
            if key.startswith(f"{self.name}.") and not _is_zero(value)
        }
        for name in _OPTIONS:
            if name not in own and name not in _MAY_BE_ABSENT:
                raise ConfigError(
                    f"{self.header.path}: metadata {self.name}.{name} is missing or 0; get an intact copy"
                )
        options: dict[str, object] = {"model_type": self.model_type, "hidden_act": "silu"}
        options |= {option: own.pop(name) for name, option in _OPTIONS.items() if name in own}
        options.setdefault("num_key_value_heads", options["num_attention_heads"])
        options |= self._vocabulary(own.pop("vocab_size", None))
        options |= _scaling(own)
        self._check_heads(options, own)
        if self.frequencies is not None:
            options["rope_scaling"] = self._llama3_scaling(self.frequencies, options.get("rope_theta", 10000.0))
        return options | {f"{self.name}.{name}": v for name, v in own.items() if not _HARMLESS.fullmatch(name)}

    def key(self, name: str) -> str:
        """Hugging Face's key of a tensor."""
        found = re.fullmatch(r"(?:blk\.(0|[1-9]\d{0,8})(?=\.\w+\.))?(\.?\w+)\.(weight|bias)", name)
        if found is None or found[2] not in _KEYS:
            raise ConfigError(
                f"{self.header.path}: tensor {show(name)} is not supported here, so the results could be wrong; "
                "get the model's config.json and safetensors"
            )
        layer = "" if found[1] is None else f"model.layers.{found[1]}."
        return f"{layer}{_KEYS[found[2]]}.{found[3]}"

    def weight(self, name: str) -> Array | Blocks:
        """A tensor, its rows in Hugging Face's order."""
        weight = self.header.weight(name)
        layer = re.fullmatch(r"blk\.\d+(\.\w+)\.\w+", name)
        if self.stored.pairs == "halves" or layer is None or layer[1] not in _TURNED:
            return weight
        default = self.header.metadata[f"{self.name}.attention.head_count"]
        heads = self.header.metadata.get(f"{self.name}.{_TURNED[layer[1]]}", default)
        if not isinstance(heads, int) or heads < 1 or weight.shape[0] % (2 * heads):
            raise ConfigError(
                f"{self.header.path}: tensor {show(name)} has {weight.shape[0]} rows, expected a multiple of twice the "
                f"{show(heads)} heads; get an intact copy of the file"
            )
        order = np.arange(weight.shape[0]).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)
        return weight.rows(order) if isinstance(weight, Blocks) else weight[order]

    def _text(self, key: str) -> str:
        value = self.header.metadata.get(key)
        if not isinstance(value, str):
            got = "is missing" if value is None else f"is {show(value)}"
            raise ConfigError(f"{self.header.path}: metadata {key} {got}, expected text; get an intact copy")
        return value

    def _vocabulary(self, told: object) -> dict[str, object]:
        """How many tokens there are, and whether the output layer is the table of embeddings."""
        tensors = self.header.tensors
        if "token_embd.weight" not in tensors:
            raise ConfigError(f"{self.header.path}: tensor 'token_embd.weight' is missing; get the whole model")
        size = tensors["token_embd.weight"].shape[0]
        if told not in (None, size):
            raise ConfigError(
                f"{self.header.path}: metadata {self.name}.vocab_size is {show(told)}, expected {size}, the rows of "
                "'token_embd.weight'; get an intact copy of the file"
            )
        return {"vocab_size": size, "tie_word_embeddings": "output.weight" not in tensors}

    def _llama3_scaling(self, name: str, base: object) -> dict[str, object]:
        """Llama 3.1's scaling. The file has what divides each frequency; its options are those that give the same.

        The file tells the factor nowhere else, and the other options were the same in all that Llama published.
        """
        told = self.header.array(name)
        factor = float(told.max())
        if isinstance(base, float) and base > 1 and told.ndim == 1 and 1 <= factor < np.inf:
            turns = 8192 / (2 * np.pi) * base ** (-np.arange(told.size) / told.size)
            kept = np.clip((turns - 1) / 3, 0, 1)  # what turns less than once is stretched, more than four times kept
            if np.allclose(told, 1 / ((1 - kept) / factor + kept), rtol=1e-4):
                options = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
                return {"rope_type": "llama3", "factor": factor, **options}
        raise ConfigError(
            f"{self.header.path}: tensor {show(name)} scales positions as no published Llama does, so the results "
            "could be wrong; get the model's config.json and safetensors"
        )

    def _check_heads(self, options: Mapping[str, object], own: dict[str, object]) -> None:
        """All of a head is turned by its position, and values are as wide as keys: llama.cpp knows others."""
        width, heads = options["hidden_size"], options["num_attention_heads"]
        if not isinstance(width, int) or not isinstance(heads, int):
            return  # what reads the options says so
        head_dim = options.get("head_dim", width // heads)
        for name in ("rope.dimension_count", "attention.value_length"):
            told = own.pop(name, head_dim)
            if told != head_dim:
                raise ConfigError(
                    f"{self.header.path}: metadata {self.name}.{name} is {show(told)}, supported: "
                    f"{show(head_dim)}, the width of a head; get the model's config.json and safetensors"
                )


def _scaling(own: dict[str, object]) -> dict[str, object]:
    """The scaling of the rotary positions, removed from the metadata; an unknown kind is left there."""
    kind = own.get("rope.scaling.type", "linear")  # llama.cpp's default
    if kind not in ("none", "linear", "yarn"):
        return {}
    own.pop("rope.scaling.type", None)
    factor = own.pop("rope.scaling.factor", own.pop("rope.scale_linear", 1.0))  # the second until 2023
    trained = own.pop("rope.scaling.original_context_length", None)
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return {}
    scaling = {"rope_type": kind, "factor": factor, "original_max_position_embeddings": trained}
    return {"rope_scaling": scaling if kind == "yarn" else {"rope_type": kind, "factor": factor}}


def _is_zero(value: Value) -> bool:
    """A 0 counts what the model does not have: experts, a window. A flag is not a count."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == 0


def _plain(value: Value) -> object:
    """As JSON has it. A long list is described: no option is one, and a message does not need its numbers."""
    if isinstance(value, np.ndarray):
        return value.tolist() if value.size <= 1024 else f"{value.size} numbers"
    return str(value) if isinstance(value, Strings) else value
