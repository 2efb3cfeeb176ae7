"""Differential fuzzing for a given time: random models, each computed on every path, and others differentiated.

    python -m tools.fuzz --seconds 600 --seed 10000

Every model has a number; `--seed` is the first. A model that fails prints its number, and `--seed NUMBER --models 1
--shrink` runs it again and looks for the smallest one that fails. At the end the coverage is printed.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from collections.abc import Sequence

from lucid.core.graph.types import DTYPES
from tests.fuzz.checks import Coverage
from tests.fuzz.choices import Choices, smallest
from tests.fuzz.gradients import compare
from tests.fuzz.suite import model


def main() -> int:
    """Fuzz until the time is up; the exit status says whether something failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long (default: 600)")
    parser.add_argument("--seed", type=int, default=10000, help="the number of the first model (default: 10000)")
    parser.add_argument("--models", type=int, default=sys.maxsize, help="how many at most")
    parser.add_argument("--shrink", action="store_true", help="look for the smallest model that fails")
    options = parser.parse_args()
    coverage = Coverage()
    end = time.monotonic() + options.seconds
    failed = 0
    number = options.seed
    warnings.simplefilter("error")
    while time.monotonic() < end and number - options.seed < options.models:
        choices = Choices(number)
        error = failure(choices, number, coverage)
        if error is None and compare(number) is False:
            error = AssertionError("its gradient is not that of differences: tests.fuzz.gradients.compare(number)")
        if error is not None:
            failed += 1
            print(f"\nmodel {number} failed: {type(error).__name__}: {error}")
            if options.shrink:
                print(f"\nthe smallest found: {_smaller(choices.taken, number)}", flush=True)
            else:
                print(f"again: python -m tools.fuzz --seed {number} --models 1 --shrink\n", flush=True)
        number += 1
    print(report(coverage))
    print(f"\n{coverage.models} exports, {coverage.comparisons} results of onnxruntime compared,")
    print(f"{coverage.judged} of them in onnx's reference evaluator too; of a result on average")
    print(f"{coverage.open / max(1, coverage.results):.1%} left open by rounding; {coverage.refused} runs refused;")
    print(f"models {options.seed} to {number - 1}, {failed} of them failed")
    return 1 if failed else 0


def failure(choices: Choices, number: int, coverage: Coverage) -> Exception | None:
    """The failures of a model, if there are any."""
    try:
        model(choices, number).verify(coverage)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what was looked for
        return error
    return None


def _smaller(taken: Sequence[int], number: int) -> Exception | None:
    kind = type(failure(Choices(given=taken), number, Coverage()))
    best = smallest(taken, lambda given: type(failure(Choices(given=given), number, Coverage())) is kind)
    return failure(Choices(given=best), number, Coverage())


def report(coverage: Coverage) -> str:
    """How often each op was run in each element type (all targets together), on each target, and in each form."""
    by_type: Counter[tuple[str, str]] = Counter()
    by_target: Counter[tuple[str, str]] = Counter()
    for (op, dtype, target), count in coverage.ops.items():
        by_type[op, dtype] += count
        by_target[op, target] += count
    types = [str(dtype) for dtype in DTYPES]
    targets = sorted({target for _, target in by_target})
    lines = [f"{'op':<22}" + "".join(f"{name:>9}" for name in [*types, *targets])]
    for op in sorted({op for op, _ in by_type}):
        counts = [by_type[op, name] for name in types] + [by_target[op, name] for name in targets]
        lines.append(f"{op:<22}" + "".join(f"{count or '.':>9}" for count in counts))
    lines.append("\nforms taken")
    lines += [f"  {op:<20} {form:<34}{count:>8}" for (op, form), count in sorted(coverage.forms.items())]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
