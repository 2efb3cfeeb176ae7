"""Gradients of whole models and of routers of experts, compared with torch's: eagerly, and exported for any sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import Tensor, nn
from lucid.runtime import Session
from tests.models import goldens
from tests.models.zoo import ZOO, Entry

GRADIENTS = lucid.load(goldens.ROOT / "gradients.safetensors")


def differentiated(variant: str) -> tuple[nn.Module, Any, dict[str, Any]]:
    """A model, the gradients of its first output times seeds as a function of these and the inputs, and such a case."""
    entry: Entry = next(entry for entry in ZOO if entry.variant == variant)
    (case,) = (case for case in goldens.cases(variant) if case.name == goldens.DIFFERENTIATED[variant])
    model = entry.load()

    def value(seeds: Tensor, **inputs: Tensor) -> Tensor:
        outputs = model(**inputs)
        return ((outputs[0] if isinstance(outputs, tuple) else outputs) * seeds).sum()

    seeds = goldens.seeds(case, case.outputs[entry.outputs[0]].shape).astype(np.float32)
    return model, lucid.grad(value, wrt=model), {"seeds": seeds, **case.inputs}


def compare(variant: str, gradients: Mapping[str, Any]) -> None:
    expected = {key.removeprefix(f"{variant}/"): g for key, g in GRADIENTS.items() if key.startswith(f"{variant}/")}
    whole = np.sqrt(sum(float(np.vdot(g, g)) for g in expected.values()))
    assert expected.keys() <= gradients.keys()
    for name, gradient in expected.items():
        # That of a key's bias is 0, as it adds the same to all scores of a query: it is compared with the others.
        size = max(float(np.linalg.norm(gradient)), 1e-3 * whole)
        error = float(np.linalg.norm(np.asarray(gradients[name]) - gradient)) / size
        assert error < 2e-5, f"{variant}, {name}: {error:.1e}"


@pytest.mark.filterwarnings("ignore:value_and_grad. the value does not depend on (pooler|.*correction_bias)")
@pytest.mark.parametrize("variant", goldens.DIFFERENTIATED)
def test_gradients_of_parameters_are_torchs(variant: str) -> None:
    _, gradients, arrays = differentiated(variant)
    compare(variant, gradients(**{name: Tensor(array) for name, array in arrays.items()}))


@pytest.mark.filterwarnings("ignore:value_and_grad. the value does not depend on (pooler|.*correction_bias)")
@pytest.mark.parametrize("target", goldens.TARGETS)
@pytest.mark.parametrize("variant", goldens.DIFFERENTIATED)
def test_exported_gradients_are_torchs(variant: str, target: str) -> None:
    model, gradients, arrays = differentiated(variant)
    specs = {name: kind for name, kind in model.input_specs().items() if name in arrays}
    specs["seeds"] = lucid.trace(model, kwargs=specs).outputs[0].type
    session = Session(lucid.export.to_onnx(gradients, kwargs=specs, target=target), threads=1)
    compare(variant, session.run({name: arrays[name] for name in session.inputs}))
