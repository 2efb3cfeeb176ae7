"""The classes of transformers as tiny checkpoints, and what Lucid made of each when tools/compare_architectures.py ran.

A checkpoint is stored without its numbers: these are made of the names of its weights.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import lucid
from lucid import Tensor
from lucid.models.checkpoints.config_file import by_torch

Array = np.ndarray[Any, Any]

GOLDEN = Path(__file__).parents[1] / "goldens" / "architectures.json.gz"
MOST = 48  # numbers that are kept of an output


class Outcome(NamedTuple):
    """What `load` makes of a class: a reader with its task, or a message; `outputs` are transformers' own."""

    kind: str
    name: str
    config: dict[str, Any]
    weights: dict[str, list[int]]
    inputs: dict[str, Any]
    outputs: dict[str, list[float]]
    reader: str
    task: str
    message: str

    @property
    def exact(self) -> bool:
        """Whether it is read; else it is refused."""
        return bool(self.reader)


@cache
def outcomes() -> list[Outcome]:
    """All of them."""
    return [Outcome(**line) for line in json.loads(gzip.decompress(GOLDEN.read_bytes()))]


def plain(error: Exception, folder: Path) -> str:
    """A message without what depends on the machine: the folder, and what torch's way needs there."""
    return str(error).replace(str(folder), "FOLDER").replace(by_torch(), "TORCH")


def numbers(name: str, shape: list[int]) -> Array:
    """Numbers that depend on the name alone; those of norms, and variances, are near 1."""
    array = np.array(0.2 * np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape), np.float32)
    return array + np.float32(1) if len(shape) == 1 and name.endswith(("weight", "running_var")) else array


def write(folder: Path, config: Mapping[str, Any], weights: Mapping[str, list[int]]) -> Path:
    """The checkpoint."""
    (folder / "config.json").write_text(json.dumps(config))
    lucid.save(folder / "model.safetensors", {name: numbers(name, shape) for name, shape in weights.items()})
    return folder


def arrays(inputs: Mapping[str, Any]) -> dict[str, Array]:
    """Inputs: ids as they are, pixels and sounds by their shapes."""
    return {
        name: numbers(name, value["shape"]) if isinstance(value, dict) else np.array(value, np.int64)
        for name, value in inputs.items()
    }


def kept(output: Array, inputs: Mapping[str, Array]) -> Array:
    """Some numbers of an output, in float32; what is in the place of padding counts as 0."""
    mask = inputs.get("attention_mask")
    if mask is not None and output.ndim > 2 and output.shape[:2] == mask.shape:
        output = output * mask[:, :, None]
    elif mask is not None and output.shape == mask.shape:
        output = output * mask
    flat = output.astype(np.float32).ravel()
    return flat[:: -(-flat.size // MOST)]


def answers(model: Any, inputs: Mapping[str, Any]) -> dict[str, Array]:
    """What a model of Lucid gives, by the names of its outputs."""
    feeds = arrays(inputs)
    output = model(**{name: Tensor(feeds[name]) for name in model.full_input_specs()})
    results = output if isinstance(output, tuple) else (output,)
    names = model.output_names or ("logits",)
    return {name: kept(result.numpy(), feeds) for name, result in zip(names, results, strict=True)}


def error(outputs: Mapping[str, Array], expected: Mapping[str, Any]) -> float:
    """The largest difference, relative to the largest number of an output."""
    pairs = [(outputs[name], np.array(values, np.float32)) for name, values in expected.items()]
    return max(float(np.abs(output - reference).max() / np.abs(reference).max()) for output, reference in pairs)


def proposed(message: str) -> list[str]:
    """The tasks that an error proposes."""
    return message.partition("give a task that it has: ")[2].split(", ") if "give a task" in message else []
