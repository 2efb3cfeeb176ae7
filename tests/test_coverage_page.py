"""docs/coverage.md and coverage-ops.md are what tools/make_coverage.py makes from the current code, and complete."""

from __future__ import annotations

import itertools

import onnx
import pytest

from lucid import nn
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.tasks import class_of
from tests.models.goldens import TARGETS
from tests.module_samples import MODULES
from tools import make_coverage, model_tables, precision_tables
from tools.figures import Figures, figure
from tools.make_coverage import OPS_PAGE, PAGE, ops_page, page


def test_the_pages_are_current() -> None:
    """All but their figures, which take long to measure: `.ci/run` makes the pages with all of them."""
    for path, write in ((PAGE, page), (OPS_PAGE, ops_page)):
        text = path.read_text(encoding="utf-8")
        assert write(text, again=False) == text, "run python tools/make_coverage.py"


def test_models_in_few_bits_are_as_near_as_the_page_says() -> None:
    """Each model in one of the ways that the page has, the next model in the next; CI measures all."""
    bounds = Figures(PAGE.read_text(encoding="utf-8")).before
    ways = list(itertools.product((4, 8), TARGETS))
    for number, small in enumerate(precision_tables.models()):
        way = number % len(ways)
        bits, target = ways[way]
        assert small.error(bits, target) <= bounds[f"{small.name}, quantized", way], (small.name, bits, target)
        if bits == 4:
            small.check_other_targets()


def test_every_module_is_on_it() -> None:
    """The module classes, without base classes, the classes of caches, and weights."""
    public = {name for name, value in vars(nn).items() if isinstance(value, type)}
    bases = {
        "Module",
        "Buffer",
        "Parameter",
        "RopeScaling",
        "PublishedModel",
        "CausalDecoder",
        "EncoderDecoder",
        "RecurrentDecoder",
    }
    caches = {"KeyValueCache", "KeyValueBuffer", "EncoderDecoderCache", "CacheShape"}
    assert public - bases - caches - {"QuantizedWeight", "Int8Weight", "LoRA"} == set(MODULES)


@pytest.mark.parametrize(
    ("measured", "before", "expected"),
    [
        (3e-8, None, "<= 1e-6"),
        (0.0, None, "<= 1e-6"),
        (6e-7, None, "<= 2e-6"),
        (2.4e-6, None, "<= 5e-6"),
        (4e-6, None, "<= 1e-5"),
        (6e-7, 1e-6, "<= 1e-6"),  # still true
        (1.1e-6, 1e-6, "<= 5e-6"),  # no longer
        (1e-7, 1e-5, "<= 1e-5"),
        (1e-7, 2e-5, "<= 1e-6"),  # far too large
    ],
)
def test_a_figure_stays_as_long_as_it_is_true(measured: float, before: float | None, expected: str) -> None:
    assert figure(measured, before) == expected


def test_figures_are_read_from_the_page_they_were_written_to() -> None:
    rows = make_coverage.table(("model", "a", "b"), [["GPT-2", "<= 1e-6", "<= 2e-5"], ["`x`", "", "<= 5e-6"]])
    assert Figures(rows).before == {("GPT-2", 0): 1e-6, ("GPT-2", 1): 2e-5, ("`x`", 0): 5e-6}


def test_only_new_rows_are_measured_where_that_is_asked_for() -> None:
    rows = make_coverage.table(("model", "a", "b"), [["GPT-2", "<= 1e-6", "<= 2e-5"]])
    assert Figures(rows, again=False).of("GPT-2", lambda: [1.0, 1.0]) == ["<= 1e-6", "<= 2e-5"]
    assert Figures(rows, again=False).of("BERT", lambda: [1e-4]) == ["<= 2e-4"]
    assert Figures(rows).of("GPT-2", lambda: [1e-7, 1e-4]) == ["<= 1e-6", "<= 2e-4"]


def test_every_class_that_load_knows_is_on_it_with_its_task() -> None:
    shown = {(entry.read, task) for _, task, entries in model_tables.groups() for entry in entries}
    assert {(base, base.checkpoint.task) for base in (class_of(family.model) for family in FAMILIES.values())} <= shown


def test_times_stay_until_they_are_measured_again() -> None:
    rows = make_coverage.table(("architecture: task", "nodes a layer", "export"), [["GPT-2: text", "15", "5 ms"]])
    assert dict(model_tables.kept_times(rows)) == {"GPT-2: text": "5 ms"}


@pytest.mark.parametrize(
    ("names", "counted"),
    [
        (["embed/Gather", "model.layers.0/Mul", "model.layers.0.mlp/Add", "model.layers.1.mlp/Add"], "1"),
        (["encoder.layer.0.a/Mul", "encoder.layer.0.b/Add"], "2"),  # the only one
        (["encoder.block.1.layer.0/Add", "decoder.block.1.layer.0/Add", "decoder.block.1.layer.2/Add"], "1, 2"),
        (["encoder.layers.0.blocks.1/Add", "encoder.layers.1.blocks.1/Add"], "1"),  # stages of blocks
        (["attention/MatMul"], ""),
    ],
)
def test_nodes_are_counted_by_layer(names: list[str], counted: str) -> None:
    graph = onnx.helper.make_graph([onnx.helper.make_node("X", [], [], name=name) for name in names], "g", [], [])
    assert model_tables.nodes_a_layer(onnx.helper.make_model(graph)) == counted
