"""Differential fuzzing for as long as it is given: random models, each computed in every way there is.

    python -m tools.fuzz --seconds 600 --seed 1

Every batch has a number; `--seed` says with which to begin. A batch that fails prints its number, and `--seed NUMBER
--batches 1 --shrink` runs it again and looks for the smallest model that fails. At the end stands what was covered.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter

from hypothesis import seed

from lucid.types import DTYPES
from tests.fuzz.checks import Coverage
from tests.fuzz.test_fuzz import fuzz, fuzz_samples

EXAMPLES = 200  # models a batch
SAMPLES_EVERY = 5  # of so many batches, one is of op samples


def main() -> int:
    """Fuzz until the time is up or something fails; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long (default: 600)")
    parser.add_argument("--seed", type=int, default=1, help="the number of the first batch (default: 1)")
    parser.add_argument("--batches", type=int, default=sys.maxsize, help="how many at most")
    parser.add_argument("--shrink", action="store_true", help="look for the smallest model that fails")
    options = parser.parse_args()
    coverage = Coverage()
    end = time.monotonic() + options.seconds
    failed = 0
    number = options.seed
    warnings.simplefilter("error")
    while time.monotonic() < end and number - options.seed < options.batches:
        test = fuzz_samples if number % SAMPLES_EVERY == 0 else fuzz
        try:
            seed(number)(test(coverage, EXAMPLES, options.shrink))()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what was looked for
            failed += 1
            print(f"\nbatch {number} failed: {type(error).__name__}: {error}")
            print(f"again: python -m tools.fuzz --seed {number} --batches 1 --shrink\n", flush=True)
        number += 1
    print(report(coverage))
    print(f"\n{coverage.models} models, {coverage.comparisons} results of onnxruntime compared,")
    print(f"{coverage.judged} results judged by onnx's reference evaluator;")
    print(f"batches {options.seed} to {number - 1}, {failed} of them failed")
    return 1 if failed else 0


def report(coverage: Coverage) -> str:
    """How often each op met each element type (all targets together), each target, and which forms were taken."""
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
