"""Small random models of transformers in torch: their configs, weights, inputs and outputs, a folder for each type."""

from __future__ import annotations

import json
import pickle
from itertools import product
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES
from transformers.models.bert import modeling_bert  # once, before every type has a process of its own

import tools.small_models as small_models
from lucid.files.npz import write_npz
from tools.small_models import FACTS, LEVELS, inputs_of, outputs_of, random_model, small_config

SIZES = ((2, 7), (3, 11))
small_models.LIMIT = 30_000_000
assert modeling_bert


def types() -> list[str]:
    """The types that have a base model, and their parts."""
    return sorted(name for name in MODEL_MAPPING_NAMES if name in CONFIG_MAPPING)


def store(kind: str, folder: Path) -> None:
    """Store a type's model and its runs.

    Raises:
        Exception: the first error, where no small config gives a model that runs.
    """
    names = MODEL_MAPPING_NAMES[kind]
    classes = [getattr(transformers, name) for name in ([names] if isinstance(names, str) else names)]
    first: Exception | None = None
    for level, model_class, way in product(LEVELS[:2], classes, (0, 1)):
        try:
            config = small_config(CONFIG_MAPPING[kind](), level, FACTS.get(kind, {}))
            config._experts_implementation = "batched_mm"
            model = random_model(model_class, config)
            calls = [inputs_of(kind, model, *sizes, way) for sizes in SIZES]
            with torch.no_grad():
                results, again = ([outputs_of(model(**inputs)) for inputs, _ in calls] for _ in range(2))
            if any(not np.array_equal(a[name], b[name]) for a, b in zip(results, again, strict=True) for name in a):
                raise ValueError("its outputs are random")
            if not all(results) or not all(np.isfinite(array).all() for run in results for array in run.values()):
                raise ValueError("no outputs, or some that are not finite")
        except Exception as error:  # noqa: BLE001  # any error of another library
            first = first or error
            continue
        folder.mkdir(parents=True)
        state = {key: tensor.numpy() for key, tensor in model.state_dict().items()}
        files = {"weights": state}
        for i, ((inputs, _), result) in enumerate(zip(calls, results, strict=True)):
            files[f"inputs{i}"] = {name: tensor.numpy() for name, tensor in inputs.items()}
            files[f"outputs{i}"] = result
        for name, arrays in files.items():
            with (folder / f"{name}.npz").open("wb") as file:
                write_npz(file, arrays)
        config.dtype = None
        for inner in vars(config).values():
            if isinstance(inner, transformers.PretrainedConfig):
                inner.dtype = None
        (folder / "config.pickle").write_bytes(pickle.dumps(config))
        facts = {"class": model_class.__name__, "module": model_class.__module__, "axes": calls[0][1]}
        (folder / "facts.json").write_text(json.dumps(facts))
        return
    raise first or ValueError("no model")
