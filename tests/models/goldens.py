"""The cases of tests/goldens/<family>/<variant>, and the tolerances. See goldens/README.md."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lucid.files.weights import load

Array = np.ndarray[Any, Any]

TARGETS = ["any", "cpu", "portable"]
"""The targets that models are exported for on a machine without a GPU."""

ROOT = Path(__file__).parent.parent / "goldens"


class Case(NamedTuple):
    """One call of the reference: its inputs, all outputs, and the positions that are compared."""

    name: str
    inputs: dict[str, Array]
    outputs: dict[str, Array]
    kept: Array | None

    def close(self, output: str, result: Any, rtol: float) -> None:
        """The largest difference over the compared positions, relative to the largest number among them."""
        array, expected = np.asarray(result), self.outputs[output]
        assert array.shape == expected.shape, f"{self.name}, {output}: {array.shape}, expected {expected.shape}"
        if self.kept is not None:
            array, expected = array[self.kept], expected[self.kept]
        error = np.abs(array - expected).max() / np.abs(expected).max()
        assert error <= rtol, f"{self.name}, {output}: relative difference {error:.1e}, expected at most {rtol:.0e}"


DIFFERENTIATED = {
    "bert/base": "right_padding",
    "gpt2/base": "right_padding",
    "llama/llama3": "right_padding",
    "vit/base": "plain",
    "whisper/base": "plain",
    "deepseek_v2/grouped": "right_padding",
    "deepseek_v3/base": "right_padding",
    "gpt_oss/base": "right_padding",
    "qwen2_moe/base": "longer",
}
"""The models whose gradients are compared with torch's, and the case: goldens/gradients.safetensors.

Of a mixture of experts, those of its routers. torch's are NaN for padded rows whose window has no token.
"""


def seeds(case: Case, shape: tuple[int, ...]) -> Array:
    """What the first output is multiplied with before it is summed and differentiated; 0 at padding."""
    numbers = np.random.default_rng(44).standard_normal(shape)
    return numbers if case.kept is None else numbers * case.kept[..., None]


def folder(variant: str) -> Path:
    """``gpt2/base`` as a path."""
    return ROOT / variant


def copied(variant: str, target: Path, section: str = "", /, **options: Any) -> Path:
    """A copy of a checkpoint in a folder, which may exist, with other options, or other ones of an object in them."""
    shutil.copytree(folder(variant), target, dirs_exist_ok=True)
    config = json.loads((target / "config.json").read_text())
    (config[section] if section else config).update(options)
    (target / "config.json").write_text(json.dumps(config))
    return target


def cases(variant: str) -> list[Case]:
    """The cases of a variant."""
    about = json.loads((folder(variant) / "cases.json").read_text())["cases"]
    arrays = load(folder(variant) / "io.safetensors")
    result = []
    for name, case in about.items():
        own = {key.removeprefix(f"{name}."): array for key, array in arrays.items() if key.startswith(f"{name}.")}
        inputs = {key: own.pop(key) for key in case["inputs"]}
        kept = inputs["attention_mask"] != 0 if case["compare"] == "kept" else None
        result.append(Case(name, inputs, own, kept))
    return result


def with_mask(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs of an exported model, which always takes a mask: one that keeps everything if a case has none."""
    read = inputs["input_ids" if "input_ids" in inputs else "input_values"]
    return {"attention_mask": np.ones(read.shape, np.int64), **inputs}


def as_exported(inputs: Mapping[str, Array], names: Iterable[str]) -> dict[str, Array]:
    """The inputs of an exported model that takes these, those without which a case ran as they are by default."""
    feeds = with_mask(inputs) if "attention_mask" in names else dict(inputs)
    if "pixel_mask" in names:
        n, _, *size = inputs["pixel_values"].shape
        feeds = {"pixel_mask": np.ones((n, *size), np.int64), **feeds}
    if "bbox" in names:
        feeds = {"bbox": np.zeros((*inputs["input_ids"].shape, 4), np.int64), **feeds}
    return {"token_type_ids": np.zeros_like(inputs["input_ids"]), **feeds} if "token_type_ids" in names else feeds
