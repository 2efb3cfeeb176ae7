"""gradients.safetensors: the gradients that torch computes of the parameters of nine models of tests/goldens, in float64.

Of mixtures of experts only the routers' gradients are kept. The value is the sum of the outputs times normal random numbers,
which `tests.models.goldens.seeds` gives again.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

from tests.models import goldens


def gradients(variant: str, name: str) -> dict[str, np.ndarray]:
    """The gradients of a model for one of its cases, by the names of its parameters."""
    folder = goldens.folder(variant)
    about = json.loads((folder / "cases.json").read_text())
    model = (
        getattr(transformers, about["class"])
        .from_pretrained(folder, attn_implementation="eager", experts_implementation="eager")
        .double()
        .eval()
    )
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None  # Lucid's models have none: the row of the padding token is a row like others
    (case,) = (case for case in goldens.cases(variant) if case.name == name)
    inputs = {
        key: torch.tensor(array.astype(float) if array.dtype.kind == "f" else array)
        for key, array in case.inputs.items()
    }
    output = model(**inputs)[about["outputs"][0]]
    (output * torch.tensor(goldens.seeds(case, tuple(output.shape)))).sum().backward()
    for parameter in model.parameters():
        parameter.data = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    with TemporaryDirectory() as saved:  # under the names of the checkpoint, which differ from the model's
        model.float().save_pretrained(saved)
        arrays = load_file(Path(saved) / "model.safetensors")
    routers = {key for key in arrays if re.search(r"\.(router|gate|shared_expert_gate)\.(weight|bias)$", key)}
    return {key: gradient for key, gradient in arrays.items() if gradient.any() and key in (routers or arrays)}


def store_all(folder: Path) -> None:
    arrays = {
        f"{variant}/{key}": gradient
        for variant, name in goldens.DIFFERENTIATED.items()
        for key, gradient in gradients(variant, name).items()
    }
    save_file(arrays, folder.with_suffix(".safetensors"))
