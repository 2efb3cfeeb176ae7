"""The suite's random models, by number: the number determines everything about a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import ModuleType

from lucid.core.graph.types import DType
from lucid.export import Target
from lucid.export.forms import convolution
from lucid.export.forms.attention import thresholds
from lucid.ops.attention import tiles as attention_tiles
from lucid.ops.kernels import pieces
from lucid.runtime import installed
from tests.fuzz.caches import CACHES
from tests.fuzz.checks import Coverage, Run, exported, runs_of_program, runs_of_sample, verify
from tests.fuzz.choices import Choices
from tests.fuzz.int8_weights import INT8_WEIGHTS
from tests.fuzz.layers import ATTENTION, LAYERS, masked_attention
from tests.fuzz.loops import LOOPS
from tests.fuzz.programs import Program, program
from tests.fuzz.quantized_weights import QUANTIZED_WEIGHTS, ROUNDED
from tests.fuzz.shapes import SHAPES
from tests.fuzz.steps import ELEMENTWISE
from tests.fuzz.sums import AFRESH, SUMS, added_in_half
from tests.fuzz.values import PLAIN, Recipe, recipe
from tests.samples import SAMPLES, Sample

MODELS = 2600
IN_TESTS = 200  # run with the tests, as do those that find planted faults; `.ci/run` computes the others
EVERY = 25  # the first of so many models is of a rare form: blocks of queries, whose masks hide whole rows
CACHED = (5, 12, 19)  # and these of them are steps through caches
QUANTIZED = (2, 9, 18)  # these have quantized weights
INT8 = (1, 6)  # and these int8 products
LOOPED = (14,)  # and these loops
KNOWN_EVERY = 4  # one in so many programs is exported for known sizes, too: forms of known lengths are others
SAMPLES_EVERY = 6  # one in so many of the others is the sample of an op
# The main use of Lucid is drawn most often: about every fourth step is attention, every fourth another layer.
STEPS = ELEMENTWISE + SHAPES + SUMS + 9 * AFRESH + 2 * [added_in_half] + 3 * LAYERS + 15 * ATTENTION + CACHES
CASES = [(s, dtype) for s in SAMPLES for dtype in s.dtypes if s.exported]
OPSETS = [*range(17, 27), *[23] * 8]


@dataclass(frozen=True)
class Model:
    """A random model, and how to run it."""

    what: Program | tuple[Sample, DType, Recipe]
    target: Target
    runs: Sequence[Mapping[str, int]]
    seed: int
    small_tiles: bool
    known: bool  # whether it is exported for the first of its sizes alone, too

    def verify(self, coverage: Coverage) -> None:
        """Compute it on every path."""
        with tiles(self.small_tiles):
            plain = isinstance(self.what, Program) and all(recipe == PLAIN for recipe in self.what.recipes)
            verify(self._runs(coverage), self.target, plain and self.seed < 3, coverage)
            # A size that is known to be 0 is refused while tracing where one of any length is not.
            if self.known and isinstance(self.what, Program) and 0 not in self.runs[0].values():
                runs = runs_of_program(self.what, self.runs, self.seed, coverage, known=True)
                verify(runs, self.target, False, coverage)

    def fingerprint(self) -> list[bytes]:
        """Its eager results and its export: two paths can differ only if one of these does."""
        with tiles(self.small_tiles):
            runs = list(self._runs(Coverage()))
            models = [exported(run.graph, self.target)[0].SerializeToString(deterministic=True) for run in runs[:1]]
            return [*models, *(array.tobytes() for run in runs for array in run.eager)]

    def _runs(self, coverage: Coverage) -> Iterator[Run]:
        if isinstance(self.what, Program):
            return runs_of_program(self.what, self.runs, self.seed, coverage)
        sizes = self.runs[0] if self.what[0].empty else {name: max(1, size) for name, size in self.runs[0].items()}
        return runs_of_sample(*self.what, sizes, coverage)


def model(choices: Choices, number: int) -> Model:
    """The model made from these choices; its number says whether it is a program or an op's sample."""
    place = number % EVERY
    if place == 0:
        target = Target("cpu")
    elif place in CACHED and choices.flag():  # with the form that reads buffers where they are
        target = Target("cpu", choices.choose([24, 24, 26]), onnxruntime=installed())
    else:
        target = draw_target(choices)
    runs = [draw_sizes(choices) for _ in range(choices.number(1, 2))]
    seed, small = choices.number(0, 9), choices.flag()
    known = number % KNOWN_EVERY == 1
    if place in QUANTIZED:
        level = choices.choose([0, 0, 4])
        steps = 3 * QUANTIZED_WEIGHTS + ELEMENTWISE + LAYERS if level == 0 else ROUNDED
        return Model(program(choices, steps, steps=3), replace(target, accuracy_level=level), runs, seed, small, known)
    if place in INT8:
        steps = 2 * INT8_WEIGHTS + ELEMENTWISE
        return Model(program(choices, steps, steps=3), target, runs, seed, small, known)
    if place in LOOPED:
        return Model(program(choices, 3 * LOOPS + ELEMENTWISE + LAYERS, steps=3), target, runs, seed, small, known)
    if place == 0:
        return Model(program(choices, [masked_attention], steps=2), target, runs, seed, small, known)
    if place in CACHED:
        return Model(program(choices, CACHES, steps=2), target, runs, seed, small, known)
    if number % SAMPLES_EVERY == 0:
        s, dtype = choices.choose(CASES)
        return Model((s, dtype, recipe(choices, dtype)), target, runs, seed, small, known)
    return Model(program(choices, STEPS), target, runs, seed, small, known)


def draw_target(choices: Choices) -> Target:
    """Any target, opset, form of attention and release; most often targets with special forms."""
    provider = choices.choose(["any", "cpu", "cpu", "portable"])
    attention = choices.choose([*["auto"] * 5, "standard", "contrib", "expanded"])
    release = choices.choose(["1.28", "1.28", installed()])
    return Target(provider, choices.choose(OPSETS), onnxruntime=release, attention=attention)


def draw_sizes(choices: Choices) -> dict[str, int]:
    """Small sizes, 0 included, find most faults; above 32 queries eager attention may take several tiles."""
    sizes = {name: choices.choose([1, 2, 3, 4, 5]) for name in "NSP"}
    sizes["L"] = choices.choose([*[1, 2, 3, 4, 5] * 3, 40])
    if not choices.number(0, 7):
        sizes[choices.choose("NNLLSP")] = 0
    return sizes


@contextmanager
def tiles(small: bool) -> Iterator[None]:
    """Eager attention in tiles, kernels in pieces, and exported attention in blocks, so small that a few numbers take
    several; or unchanged, which for small sizes means one of each and the plain node."""
    with ExitStack() as stack:
        for module, name, value in _SMALL if small else ():
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, value)
        yield


_SMALL: list[tuple[ModuleType, str, object]] = [
    *(
        (attention_tiles, *tile)
        for tile in {"ROWS": 3, "KEYS": 4, "EDGE": 2, "TILE": 16, "SMALL": 64, "FEW": 24}.items()
    ),
    *((pieces, *size) for size in {"PIECE": 8, "LARGE": 8, "SHARED": 64}.items()),
    *((thresholds, *block) for block in {"NARROW": (2, 0.0), "WIDE": (3, 0.0), "REACH": 3}.items()),
    *((thresholds, *limit) for limit in {"WHOLE": 2, "SHORT": 2, "SHORT_IF_NOT_CAUSAL": 2}.items()),
    (thresholds, "HANDED_ON_ABOVE", 3),
    *((thresholds, *least) for least in {"TILED": 2, "TILED_IF_SPLIT": 3}.items()),
    (thresholds, "FEW_HEADS", 2),
    *((thresholds, f"SHARED{kind}", 3) for kind in ("", "_IF_PACKED", "_IF_PACKED_AND_CAUSAL")),
    *((thresholds, name, ((40, 2),)) for name in ("ROWS_HANDED_ON", "ROWS_HANDED_ON_IF_GROUPED")),
    (thresholds, "FEW", 2),
    *((convolution, *limit) for limit in {"BLOCK": 1, "DEEP": 2, "LONG": 2}.items()),
]
