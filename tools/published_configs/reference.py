"""Tiny models of transformers with given options, and what they and Lucid answer."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers

import lucid
from lucid.models.checkpoints.config import ConfigError
from lucid.models.checkpoints.registry import family_of
from lucid.models.checkpoints.tasks import class_of
from tests.published import Array, inputs_of, weights_of

_AUTO = {
    "text-generation": transformers.AutoModelForCausalLM,
    "text2text-generation": transformers.AutoModelForSeq2SeqLM,
    "object-detection": transformers.AutoModelForObjectDetection,
    "depth-estimation": transformers.AutoModelForDepthEstimation,
    "image-text-to-text": transformers.AutoModelForImageTextToText,
    "automatic-speech-recognition": transformers.AutoModelForSpeechSeq2Seq,
}
_OF_TYPE = {
    "qwen3_5": transformers.AutoModelForImageTextToText.from_config,
    "siglip_text_model": transformers.SiglipTextModel._from_config,
}


class Refused(Exception):  # noqa: N818  # an answer, not a failure
    """Why a library does not take the options."""


class Answer(NamedTuple):
    """The first output of a model, and the weights that it has."""

    output: Array
    shapes: dict[str, tuple[int, ...]]


def theirs(options: Mapping[str, Any], inputs: Mapping[str, Array] | None = None, dtype: str = "float32") -> Answer:
    """What transformers answers for these options, with the weights of `weights_of`, by default for `inputs_of`.

    Args:
        options: of config.json.
        inputs: other inputs.
        dtype: in which it computes.

    Raises:
        Refused: if it does not take them.
    """
    kind = options["model_type"]
    known = class_of(family_of(kind).model).checkpoint
    values = {name: value for name, value in copy.deepcopy(dict(options)).items() if name != "model_type"}
    try:
        config = transformers.AutoConfig.for_model(kind, **values)
        config._attn_implementation = "eager"
        make = _OF_TYPE.get(kind) or _AUTO.get(known.task, transformers.AutoModel).from_config
        model = make(config, attn_implementation="eager")
        with tempfile.TemporaryDirectory() as folder:  # weights have other names in files than in memory
            model.save_pretrained(folder)
            file = Path(folder) / "model.safetensors"
            shapes = {name: tuple(array.shape) for name, array in lucid.load(file).items() if array.dtype.kind == "f"}
            lucid.save(file, weights_of(shapes), {"format": "pt"})
            model = type(model).from_pretrained(folder, config=config, attn_implementation="eager")
        model = model.eval().to(getattr(torch, dtype))
        names = class_of(family_of(kind).model).output_names
        return Answer(_run(model, names, _cast(inputs or inputs_of(options), dtype)), shapes)
    except Exception as error:  # whatever transformers says to strange options
        raise Refused(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}") from error


def _run(model: Any, names: Any, inputs: Mapping[str, Array]) -> Array:
    with torch.no_grad():
        result = model(**{name: torch.from_numpy(array) for name, array in inputs.items()})
    first = next(name for name in (*names, "logits", "last_hidden_state") if name in result)
    output = result[first]
    if not torch.isfinite(output).all():
        raise ValueError("answers numbers that are not finite")
    answer: Array = output.numpy()
    return answer


def _cast(inputs: Mapping[str, Array], dtype: str) -> dict[str, Array]:
    return {name: array.astype(dtype) if array.dtype.kind == "f" else array for name, array in inputs.items()}


def ours(
    options: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], dtype: str = "float32"
) -> tuple[Array, tuple[str, ...]]:
    """What Lucid answers for the same, and which options it ignored.

    Raises:
        Refused: if it does not take them.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(dict(options)))
        lucid.save(Path(folder) / "model.safetensors", weights_of(shapes))
        try:
            model = lucid.models.load(folder)
        except ConfigError as error:
            raise Refused(str(error).split("config.json")[-1].lstrip(":, ")) from error
        inputs = _cast(inputs_of(options), dtype)
        result = model.to(dtype)(**{name: lucid.tensor(array) for name, array in inputs.items()})
    output = result[0] if isinstance(result, tuple) else result
    return output.numpy(), model.unread.ignored


def difference(found: Array, expected: Array) -> float:
    """The largest difference, relative to the largest number; 0 between zeros."""
    if found.shape != expected.shape:
        return float("inf")
    gap = np.abs(found - expected).max()
    return float(gap / np.abs(expected).max()) if gap != 0 else 0.0
