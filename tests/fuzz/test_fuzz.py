"""Two thousand random models, every one computed in all ways there are. `make fuzz` goes on for as long as it is
given."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

from lucid.export import Target
from lucid.types import DType
from tests.fuzz.checks import Coverage, verify, verify_sample
from tests.fuzz.layers import ATTENTION, LAYERS
from tests.fuzz.programs import Draw, Program, programs
from tests.fuzz.steps import MAKERS
from tests.samples import ORT_LACKS, SAMPLES, Sample

BATCHES, EXAMPLES = 20, 100
COVERAGE = Coverage()
# What Lucid is for comes up most often: about every fourth step is one of attention, every fourth another layer.
STEPS = MAKERS + 3 * LAYERS + 15 * ATTENTION


@st.composite
def targets(draw: Draw) -> Target:
    """Any target, opset and form of attention; most often those with forms of their own."""
    provider = draw(st.sampled_from(["any", "cpu", "cpu", "portable"]))
    attention = draw(st.sampled_from([*["auto"] * 5, "standard", "contrib", "expanded"]))
    return Target(provider, draw(st.sampled_from([*range(17, 27), *[23] * 8])), attention=attention)


# Small sizes find most; beyond 32 queries target "cpu" takes another form of attention.
SIZES = st.fixed_dictionaries(
    {name: st.integers(1, 5) for name in "NSP"} | {"L": st.sampled_from([*range(1, 6)] * 3 + [40])}
)


def fuzz(coverage: Coverage, examples: int, shrink: bool = False) -> Callable[[], None]:
    """A test of so many random programs. The smallest program that fails can take minutes to find: `shrink` asks for
    it."""
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]

    @settings(max_examples=examples, database=None, deadline=None, derandomize=False, phases=phases)
    @given(programs(STEPS), targets(), st.lists(SIZES, min_size=1, max_size=2), st.integers(0, 9))
    def run(program: Program, target: Target, sizes: list[dict[str, int]], number: int) -> None:
        verify(program, target, sizes, number, judge=number < 3, coverage=coverage)

    return run


def fuzz_samples(coverage: Coverage, examples: int, shrink: bool = False) -> Callable[[], None]:
    """A test of the samples of test_ops.py at so many random sizes, types, targets and opsets."""
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]
    runs = [(s, dtype) for s in SAMPLES for dtype in s.dtypes if s.exported and f"{s.name}-{dtype}" not in ORT_LACKS]

    @settings(max_examples=examples, database=None, deadline=None, derandomize=False, phases=phases)
    @given(st.sampled_from(runs), targets(), SIZES)
    def run(case: tuple[Sample, DType], target: Target, sizes: dict[str, int]) -> None:
        verify_sample(*case, target, sizes, coverage)

    return run


@pytest.mark.parametrize("batch", range(BATCHES // 5))
def test_random_op_samples_agree_in_every_form(batch: int) -> None:
    before = COVERAGE.models
    seed(batch)(fuzz_samples(COVERAGE, EXAMPLES))()
    assert COVERAGE.models - before >= EXAMPLES


@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_models_agree_in_every_form(batch: int) -> None:
    before = COVERAGE.models
    seed(batch)(fuzz(COVERAGE, EXAMPLES))()
    assert COVERAGE.models - before >= EXAMPLES
