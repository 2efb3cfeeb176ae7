"""Compare Lucid with torch's samples and print how often they agree.

    python -m tools.torch_samples                      every operator and module that Lucid has under the same name
    python -m tools.torch_samples add nn.GELU          only these
    python -m tools.torch_samples --freeze             also write tests/goldens/torch_samples

Needs torch 2.13 and expecttest, as `make torch-samples` installs them.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

import torch

from tools.torch_samples.differences import DIFFERENCES, Difference, explained
from tools.torch_samples.draw import (
    Drawn,
    errors_of,
    module_samples_of,
    modules,
    operators,
    samples_of,
    without_namesake,
)
from tools.torch_samples.freeze import Selection
from tools.torch_samples.run import TARGETS, Outcome, outcomes

SHOWN = 3  # problems of one operator, way and element type


@dataclass
class Count:
    """The counts of comparisons and their results."""

    samples: int = 0
    agreed: Counter[str] = field(default_factory=Counter)  # by way
    kinds: Counter[str] = field(default_factory=Counter)
    explained: Counter[Difference] = field(default_factory=Counter)
    not_mapped: Counter[str] = field(default_factory=Counter)
    different: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # by operator, way and element type
    ways: Counter[str] = field(default_factory=Counter)

    def add(self, other: Count) -> None:
        """Add the counts of another process."""
        self.samples += other.samples
        self.agreed += other.agreed
        self.kinds += other.kinds
        self.explained += other.explained
        self.not_mapped += other.not_mapped
        self.different += other.different
        self.ways += other.ways

    def note(self, sample: Drawn, outcome: Outcome) -> bool:
        """Count the result; returns whether it is a difference that no row explains."""
        row = explained(sample, outcome) if outcome.problem else None
        if not outcome.problem:
            self.agreed[outcome.way] += 1
            self.kinds[sample.kind] += 1
        elif row is not None:
            self.explained[row] += 1
        else:
            self.ways[outcome.way] += 1
            key = (sample.torch_name, outcome.way, sample.dtype)
            self.different[key] += 1
            if self.different[key] <= SHOWN:
                print(f"DIFFERENT {' '.join(key)} ({sample.kind}): {outcome.problem}\n    {shown(sample)}", flush=True)
            return True
        return False


def shown(sample: Drawn) -> str:
    call = sample.made
    types = ", ".join(f"{array.dtype}{list(array.shape)}" for array in call.tensors)
    return f"{call.name}{call.arguments} {dict(call.options)} {dict(call.constructor or {})} of {types}"[:400]


def compared(name: str) -> tuple[Count, Selection]:
    """All samples of one operator or module."""
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)  # torch's fast path skips padding; the plain path is the definition
    warnings.simplefilter("ignore")  # torch's own warnings, about deprecated arguments in its samples
    count, selection = Count(), Selection()
    for sample in samples(name):
        if sample.call is None:
            count.not_mapped[sample.reason] += 1
            continue
        count.samples += 1
        drawn = list(outcomes(sample))
        bad = [outcome.way for outcome in drawn if count.note(sample, outcome)]
        for way in bad:
            selection.differed(sample, way)
        refused = [outcome.way for outcome in drawn if outcome.problem and outcome.way in TARGETS]
        if not bad and not any(outcome.problem for outcome in drawn if outcome.way not in TARGETS):
            selection.offer(sample, refused)
    selection.choose()
    return count, selection


def samples(name: str) -> Iterator[Drawn]:
    if name in dict(modules()):
        yield from module_samples_of(name, dict(modules())[name])
    else:
        yield from samples_of(name, dict(operators())[name])
        yield from errors_of(name, dict(operators())[name])


def report(count: Count, names: int) -> None:
    """The table."""
    total = count.agreed.total() + count.explained.total() + count.different.total()
    print(f"\n{names} operators and modules, {count.samples} samples, {total} comparisons\n")
    print(f"{'compared':<44}{'agreed':>9}{'different':>11}")
    titles = {
        "eager": "eager with torch",
        "graph": "the graph with NumPy, with eager",
        "any": 'target "any" in onnxruntime, with eager',
        "cpu": 'target "cpu" in onnxruntime, with eager',
        "portable": 'target "portable" in onnxruntime, with eager',
        "error": "torch raises, Lucid raises",
    }
    for way, title in titles.items():
        print(f"{title:<44}{count.agreed[way]:>9}{count.ways[way]:>11}")
    print(f"{'in all':<44}{count.agreed.total():>9}{count.different.total():>11}")
    print("\nkinds of samples among those that agreed: ", end="")
    print(", ".join(f"{kind} {number}" for kind, number in count.kinds.most_common()))
    print(f"\ndeliberately otherwise than torch: {count.explained.total()} comparisons")
    for row, number in count.explained.most_common():
        print(f"{number:>7}  {row.reason}")
    print(f"\nsamples that Lucid has no call for: {count.not_mapped.total()}")
    for reason, number in count.not_mapped.most_common():
        print(f"{number:>7}  {reason}")
    print(f"\ntorch's operators and modules without a namesake in Lucid:\n{', '.join(without_namesake())}")
    for (name, way, dtype), number in count.different.items():
        print(f"DIFFERENT {number:>5}  {name} {way} {dtype}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.torch_samples", description=__doc__)
    parser.add_argument("names", nargs="*", help="torch's names of operators and modules; all by default")
    parser.add_argument("--freeze", action="store_true", help="write tests/goldens/torch_samples")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes that work at once")
    options = parser.parse_args()
    names = options.names or [*dict(operators()), *dict(modules())]
    count, selection = Count(), Selection()
    with ProcessPoolExecutor(options.jobs) as pool:
        for some, chosen in pool.map(compared, names):
            count.add(some)
            selection.add(chosen)
    report(count, len(names))
    stale = [row.reason for row in DIFFERENCES if row not in count.explained]
    if stale and not options.names:
        print("rows of differences.py that explain nothing:", *stale, sep="\n  ")
    selection.remember()
    if options.freeze:
        selection.write()
    return 1 if count.different else 0


if __name__ == "__main__":
    sys.exit(main())
