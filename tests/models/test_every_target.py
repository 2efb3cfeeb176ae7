"""Every model with every golden checkpoint, eagerly and for every target, compared with transformers.

Checkpoints of a class take turns at the targets, heads too, and models at older and newer opsets; CI measures the first
of each class for all targets, as docs/coverage.md has them (`.ci/run`).
"""

from __future__ import annotations

import pytest

from tests.combinations import first_of_each, turns
from tests.models.goldens import TARGETS
from tests.models.zoo import OTHERS, ZOO, Entry, reader
from tools import model_tables
from tools.figures import Figures
from tools.make_coverage import PAGE

# The promise is 1e-5 of the largest number, and 2e-5 for the logits of deep models; these have two layers.
RTOL = 5e-6


def bounds() -> dict[tuple[str, str], float]:
    """Of the models that docs/coverage.md has, eager and exported, what it says, too."""
    figures = Figures(PAGE.read_text(encoding="utf-8")).before
    return {
        (entry.variant, way): min(RTOL, figures[f"{architecture}: {task}", place])
        for architecture, task, entries in model_tables.groups()
        for entry in model_tables.measured(entries)
        for place, way in enumerate(("eager", *TARGETS))
    }


BOUNDS = bounds()


@pytest.mark.parametrize("entry", [*ZOO, *OTHERS], ids=lambda entry: entry.variant)
def test_eager(entry: Entry) -> None:
    assert entry.eager_error() <= BOUNDS.get((entry.variant, "eager"), RTOL)


def name_of(value: Entry | str | int) -> str:
    return value.variant if isinstance(value, Entry) else str(value)


MODELS, HEADS = ([entry for entry in (*ZOO, *OTHERS) if entry.is_head is head] for head in (False, True))


@pytest.mark.parametrize(("entry", "target"), turns(MODELS, TARGETS, reader) + turns(HEADS, TARGETS), ids=name_of)
def test_exported(entry: Entry, target: str) -> None:
    assert entry.exported_error(target) <= BOUNDS.get((entry.variant, target), RTOL)


@pytest.mark.parametrize("entry", first_of_each(MODELS, lambda entry: entry.name), ids=name_of)
def test_the_export_for_a_gpu_is_a_valid_model(entry: Entry) -> None:
    assert entry.exported("cuda").graph.node  # every export passes ONNX's checker and shape inference


BASES = [entry for entry in ZOO if entry.variant.endswith(("base", "llama3", "v1_1", "/gelu"))]


@pytest.mark.parametrize(("entry", "opset"), turns(first_of_each(BASES, reader), [17, 20, 26]), ids=name_of)
def test_other_opsets(entry: Entry, opset: int) -> None:
    assert entry.exported_error("any", opset=opset) <= RTOL
