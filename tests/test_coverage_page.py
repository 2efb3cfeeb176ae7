"""docs/coverage.md is what tools/make_coverage.py makes from the current code, and it is complete."""

from __future__ import annotations

import pytest

from lucid import nn
from tests.module_samples import MODULES
from tools import make_coverage
from tools.make_coverage import PAGE, figure, page


def test_the_page_is_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text, "run python tools/make_coverage.py"


def test_every_module_is_on_it() -> None:
    """The module classes, without base classes, the classes of caches, and weights."""
    public = {name for name, value in vars(nn).items() if isinstance(value, type)}
    bases = {"Module", "Parameter", "RopeScaling", "CausalDecoder", "EncoderDecoder"}
    caches = {"KeyValueCache", "KeyValueBuffer", "EncoderDecoderCache", "CacheShape"}
    assert public - bases - caches - {"QuantizedWeight", "Int8Weight"} == set(MODULES)


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
    assert make_coverage._figures(rows) == {("GPT-2", 0): 1e-6, ("GPT-2", 1): 2e-5, ("`x`", 0): 5e-6}
