"""Some of the samples, written to tests/goldens/torch_samples, where they are replayed without torch.

For every operator and module: an ordinary sample in every element type, and in one or two types an empty one, one that
broadcasts and one with special values. Also every sample that ever differed: their numbers are in `once_different.json`,
to which each run adds new ones.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lucid.core.graph.types import Array
from lucid.files.weights import save
from tests.torch_calls import SINGLE, Call, encoded
from tools.torch_samples.draw import Drawn

FOLDER = Path(__file__).parents[2] / "tests" / "goldens" / "torch_samples"
MEMORY = Path(__file__).with_name("once_different.json")
LARGE = 4_000  # numbers in all tensors of a sample that is kept
TELLING = 12  # the fewest numbers that can show a difference
REMEMBERED = 2  # samples of one operator, way and element type
PLAIN = 4  # ordinary samples of one operator in float32 that differ in options or axes
BOTH_ENDS = ("float32", "float16", "int64")  # where empty, broadcasting and special samples are kept


@dataclass
class Selection:
    """Chooses samples one by one as they are drawn."""

    remembered: dict[str, list[int]] = field(default_factory=lambda: json.loads(MEMORY.read_text()))
    chosen: dict[str, dict[str, Drawn]] = field(default_factory=dict)  # by file, by name of the case
    refused: dict[str, list[str]] = field(default_factory=dict)  # targets that refuse a case
    smallest: dict[tuple[tuple[str, ...], str], tuple[Drawn, Sequence[str]]] = field(default_factory=dict)
    found: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def differed(self, sample: Drawn, way: str) -> None:
        """Record the sample, which is then kept permanently."""
        self.found[sample.torch_name, sample.dtype, way] += 1
        if self.found[sample.torch_name, sample.dtype, way] <= REMEMBERED and _numbers(sample) <= LARGE:
            numbers = self.remembered.setdefault(f"{sample.torch_name} {sample.dtype}", [])
            if sample.number not in numbers:
                numbers.append(sample.number)

    def offer(self, sample: Drawn, refused: Sequence[str]) -> None:
        """A sample that agreed, or that some targets refuse: kept if it once differed, or if no similar one is stored."""
        if sample.kind not in ("plain", "empty", "special"):
            return  # "apart": the replay makes every sample non-contiguous; errors are not stored
        if self._once_differed(sample):
            self._keep(sample, refused)
        elif _traits(sample) == "plain" or sample.dtype in BOTH_ENDS:
            call = sample.made
            ways = str((call.options, call.constructor, [array.ndim for array in call.tensors]))
            likeness = (sample.torch_name, sample.dtype, call.name, *refused, _traits(sample)), ways
            stored = self.smallest.get(likeness)
            if _numbers(sample) <= LARGE and (stored is None or _size(sample) < _size(stored[0])):
                self.smallest[likeness] = sample, refused

    def choose(self) -> None:
        """Of the samples that agreed, the smallest: one of each kind, of ordinary ones in float32 a few."""
        kept: Counter[tuple[str, ...]] = Counter()
        for (key, _), (sample, refused) in sorted(self.smallest.items(), key=lambda item: _size(item[1][0])):
            kept[key] += 1
            if kept[key] <= (PLAIN if _traits(sample) == "plain" and sample.dtype == "float32" else 1):
                self._keep(sample, refused)

    def _keep(self, sample: Drawn, refused: Sequence[str]) -> None:
        cases = self.chosen.setdefault("operators" if sample.made.constructor is None else "modules", {})
        name = f"{sample.torch_name}:{sample.dtype}:{sample.number}:{sample.made.name}"
        cases[name] = sample
        self.refused[name] = list(refused)

    def _once_differed(self, sample: Drawn) -> bool:
        return sample.number in self.remembered.get(f"{sample.torch_name} {sample.dtype}", ())

    def add(self, other: Selection) -> None:
        """Add the samples that another process chose."""
        for key, numbers in other.remembered.items():
            self.remembered[key] = [*{*numbers, *self.remembered.get(key, [])}]
        for file, cases in other.chosen.items():
            self.chosen.setdefault(file, {}).update(cases)
        self.refused |= other.refused

    def remember(self) -> None:
        lines = [f"{json.dumps(key)}: {sorted(numbers)}" for key, numbers in sorted(self.remembered.items())]
        MEMORY.write_text("{\n" + ",\n".join(lines) + "\n}\n")

    def write(self) -> None:
        """The cases and their arrays, in one pair of files for each kind."""
        FOLDER.mkdir(exist_ok=True)
        for file, cases in self.chosen.items():
            store = Store()
            entries = {name: self._entry(name, sample.made, sample.expected, store) for name, sample in cases.items()}
            save(FOLDER / f"{file}.safetensors", store.arrays)
            lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items())
            (FOLDER / f"{file}.json").write_text("{\n" + lines + "\n}\n")
            size = sum(path.stat().st_size for path in FOLDER.glob(f"{file}.*"))
            print(f"{len(cases)} cases, {size / 1000:.0f} kB in {file}.*")

    def _entry(self, name: str, call: Call, expected: Sequence[Array], store: Store) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "call": call.name,
            "inputs": [store.key(array) for array in call.tensors],
            "results": [store.key(array) for array in expected],
            "arguments": [encoded(item) for item in call.arguments],
            "options": {key: encoded(item) for key, item in call.options.items()},
        }
        if call.constructor is not None:
            entry["constructor"] = {key: encoded(item) for key, item in call.constructor.items()}
            entry["state"] = {key: store.key(array) for key, array in call.state.items()}
        if self.refused[name]:
            entry["refused"] = self.refused[name]
        return entry


class Store:
    """Arrays under short names; equal ones are kept once, as many operators draw the same inputs."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        self._keys: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def key(self, array: Array) -> str:
        """The name of an array."""
        key = self._keys.setdefault((str(array.dtype), array.shape, array.tobytes()), str(len(self._keys)))
        self.arrays.setdefault(key, array)
        return key


def _numbers(sample: Drawn) -> int:
    return sum(array.size for array in (*sample.made.tensors, *sample.expected))


def _size(sample: Drawn) -> tuple[bool, int]:
    """The order in which samples are preferred: small ones, but not single numbers."""
    return _numbers(sample) < TELLING, _numbers(sample)


def _traits(sample: Drawn) -> str:
    """What a sample shows."""
    shapes = {array.shape for array in sample.made.tensors}
    return "broadcast" if sample.kind == "plain" and len(shapes) > 1 and sample.made.name in SINGLE else sample.kind
