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
from collections.abc import Callable, Sequence
from functools import partial

from lucid.core.graph.types import DTYPES
from tests.fuzz.checks import Coverage
from tests.fuzz.choices import Choices, smallest
from tests.fuzz.gradients import compare, differentiated
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
        for check in (partial(failure, number=number, coverage=coverage), partial(failure_of_gradient, number=number)):
            choices = Choices(number)
            error = check(choices)
            if error is None:
                continue
            failed += 1
            print(f"\nmodel {number} failed: {type(error).__name__}: {error}")
            if options.shrink:
                print(f"\nthe smallest found: {smaller(choices.taken, check)}", flush=True)
            else:
                print(f"again: python -m tools.fuzz --seed {number} --models 1 --shrink\n", flush=True)
            break
        number += 1
    print(report(coverage))
    print(f"\n{coverage.models} exports, {coverage.comparisons} results of onnxruntime compared,")
    print(f"{coverage.judged} of them in onnx's reference evaluator too; of a result on average")
    print(f"{coverage.open / max(1, coverage.results):.1%} left open by rounding; {coverage.refused} runs refused;")
    print(f"models {options.seed} to {number - 1}, {failed} of them failed")
    return 1 if failed else 0


def failure(choices: Choices, number: int, coverage: Coverage) -> Exception | None:
    """The first failure of a model on its paths, if there is one."""
    try:
        model(choices, number).verify(coverage)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what was looked for
        return error
    return None


def failure_of_gradient(choices: Choices, number: int) -> Exception | None:
    """The failure of the program that is differentiated, if there is one."""
    try:
        program = differentiated(choices, number)
        agrees = compare(program, number)
    except Exception as error:  # noqa: BLE001 - as above
        return error
    return AssertionError(f"the gradient is not that of differences\n{program}") if agrees is False else None


def smaller(taken: Sequence[int], check: Callable[[Choices], Exception | None]) -> Exception | None:
    """The failure of the smallest model found that fails in the way of this one."""
    kind = type(check(Choices(recorded=taken)))
    best = smallest(taken, lambda fewer: type(check(Choices(recorded=fewer))) is kind)
    return check(Choices(recorded=best))


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
