"""One model of transformers' own code with Lucid in torch's place: loaded, run and exported, compared with torch's."""

from __future__ import annotations

import importlib
import json
import pickle
import traceback
from pathlib import Path
from typing import Any

import numpy as np

import lucid
from lucid import nn

TOLERANCE = 2e-5
# As for torch.export, which starts at 2; sounds have an eighth of a second or more.
LIMITS = {"N": "2 <= N <= 64", "L": "2 <= L <= 64", "M": "2 <= M <= 64", "T": "2000 <= T <= 16000"}


def preload() -> None:
    """Import what every model uses."""
    from tools.ported_types.imports import install

    install()
    for name in ("modeling_outputs", "masking_utils", "activations", "modeling_rope_utils", "pytorch_utils", "utils"):
        importlib.import_module(f"transformers.{name}")
    import transformers.utils

    from tools.ported_types.stand_ins import factory, false, same

    transformers.utils.auto_docstring = same
    transformers.utils.is_accelerate_available = transformers.utils.import_utils.is_accelerate_available = false
    for name in ("add_start_docstrings", "add_start_docstrings_to_model_forward", "replace_return_docstrings"):
        setattr(transformers.utils, name, factory)
    importlib.import_module("transformers.models.auto.modeling_auto")


def flat(result: Any) -> dict[str, Any]:
    """The tensors of a result by name; those of a tuple by their places."""
    tensors: dict[str, Any] = {}
    for key, value in result.items():
        if isinstance(value, (tuple, list)):
            tensors |= flat({f"{key}_{place}": item for place, item in enumerate(value)})
        elif isinstance(value, lucid.Tensor):
            tensors[key] = value
    return tensors


class Named(nn.Module):
    """A model with its tensors by name."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def forward(self, **inputs: Any) -> Any:
        return flat(self.model(**inputs))


def load(model: Any, weights: dict[str, Any]) -> None:
    """Load torch's weights by name; every one of them must have a place, and every parameter one of them."""
    model.load_state_dict(weights, strict=False)
    own = model.state_dict()
    if missing := sorted(weights.keys() - own.keys()):
        raise KeyError(f"no place for {', '.join(missing)[:200]}")
    loaded = {id(own[key]) for key in weights}
    if left := sorted(key for key, p in own.items() if id(p) not in loaded and isinstance(p, nn.Parameter)):
        raise KeyError(f"not loaded: {', '.join(left)[:200]}")


def difference(own: dict[str, Any], theirs: dict[str, Any]) -> float:
    """The largest difference relative to the largest number of its output."""
    if missing := theirs.keys() - own.keys():
        raise ValueError(f"outputs {', '.join(own)}, without {', '.join(missing)}")
    return max(
        float(np.abs(np.asarray(own[name], np.float64) - theirs[name]).max() / max(1e-9, np.abs(theirs[name]).max()))
        if np.shape(own[name]) == theirs[name].shape
        else np.inf
        for name in theirs
    )


def tried(folder: Path) -> dict[str, Any]:
    """The stage at which a type ends, its differences, and the first message with its line."""
    stage, figures = "import", dict[str, Any]()
    try:
        facts = json.loads((folder / "facts.json").read_text())
        model_class = getattr(importlib.import_module(facts["module"]), facts["class"])
        config = pickle.loads((folder / "config.pickle").read_bytes())
        stage = "construct"
        model = model_class(config).eval()
        stage = "weights"
        load(model, dict(np.load(folder / "weights.npz")))
        runs = [[dict(np.load(folder / f"{what}{i}.npz")) for what in ("inputs", "outputs")] for i in (0, 1)]
        stage, named = "eager", Named(model)
        figures["eager"] = max(
            difference(named(**{k: lucid.tensor(v) for k, v in inputs.items()}), expected) for inputs, expected in runs
        )
        if figures["eager"] > TOLERANCE:
            return {"stage": "eager differs", **figures}
        stage = "export"
        specs = {
            name: lucid.spec(
                *(
                    LIMITS.get(size, size) or number
                    for size, number in zip(facts["axes"][name], array.shape, strict=True)
                ),
                dtype=str(array.dtype),
            )
            for name, array in runs[0][0].items()
        }
        exported = lucid.export.to_onnx(named, kwargs=specs)
        stage = "session"
        session = lucid.runtime.Session(exported, threads=1)
        figures["exported"] = max(
            difference(dict(session.run({k: v for k, v in inputs.items() if k in session.inputs})), expected)
            for inputs, expected in runs
        )
        return {"stage": "exact" if figures["exported"] <= TOLERANCE else "export differs", **figures}
    except Exception as error:  # noqa: BLE001  # any error is a result here
        lines = str(error).strip().splitlines() or [""]
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "transformers" in f.filename]
        where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno} {frames[-1].line}" if frames else ""
        return {"stage": stage, **figures, "error": f"{type(error).__name__}: {lines[0]}"[:400], "where": where[:200]}
