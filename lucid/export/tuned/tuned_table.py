"""The forms that were fastest for the nodes of a model on one machine, with the times measured."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from lucid.core.process.machine import onnxruntime_version, processor
from lucid.core.version import __version__
from lucid.core.words.text import visible
from lucid.files.atomic import write

SCHEMA = 1
"""The version of the format of files."""


@dataclass(frozen=True)
class TunedForm:
    """The fastest form of a node.

    Attributes:
        node: the node as text (`lucid.export.tuned.site.Site.key`).
        form: the name of its fastest form, as `explain` shows it.
        default: the form that it takes without a table.
        sizes: the values of the symbolic sizes at which forms were measured.
        microseconds: by form, the time of a run at each of these.

    Raises:
        ValueError: for times that are not as many as sizes, or no positive numbers.
    """

    node: str
    form: str
    default: str
    sizes: tuple[Mapping[str, int], ...] = ()
    microseconds: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, times in self.microseconds.items():
            if len(times) != len(self.sizes) or not all(0 < time < math.inf for time in times):
                raise ValueError(
                    f"TunedForm: the times of {name!r} are {times}, expected {len(self.sizes)}, one for each of sizes"
                )

    def lines(self) -> tuple[str, ...]:
        """The times as text, one line for each size, the fastest form first."""
        found = []
        for index, sizes in enumerate(self.sizes):
            times = sorted((times[index], name) for name, times in self.microseconds.items())
            where = ", ".join(f"{visible(name)}={size}" for name, size in sizes.items())
            figures = ", ".join(f"{visible(name)} {_shown(time)}" for time, name in times)
            found.append(f"{where}: {figures}" if where else figures)
        return tuple(found)


@dataclass(frozen=True)
class TunedTable:
    """The fastest forms of a model's nodes, as `lucid.inspection.tuning.tune` and `lucid tune` measure them.

    Attributes:
        target: the name of the target whose forms were measured.
        forms: one for each distinct node that has several.
        threads: of the session; None: onnxruntime's default.
        processor, onnxruntime, lucid: on which processor, and with which versions.
    """

    target: str
    forms: tuple[TunedForm, ...]
    threads: int | None = None
    processor: str = field(default_factory=processor)
    onnxruntime: str = field(default_factory=onnxruntime_version)
    lucid: str = __version__

    def find(self, key: str) -> TunedForm | None:
        """The fastest form of a node, by its key; None if it was not measured."""
        return self._by_node.get(key)

    @cached_property
    def _by_node(self) -> Mapping[str, TunedForm]:
        return {form.node: form for form in self.forms}

    def about(self) -> list[str]:
        """Where it was measured, and a note for each thing that is different here."""
        threads = "default threads" if self.threads is None else f"{self.threads} thread{'s' * (self.threads != 1)}"
        lines = [f"tuned on {visible(self.processor)}, onnxruntime {visible(self.onnxruntime)}, {threads}"]
        if self.processor != processor():
            lines.append(f"note: the processor of this machine is another one, {processor()}")
        if onnxruntime_version() not in ("", self.onnxruntime):
            lines.append(f"note: the onnxruntime installed here is another one, {onnxruntime_version()}")
        if self.lucid != __version__:
            lines.append(f"note: the table was made by lucid {visible(self.lucid)}; this is {__version__}")
        return lines

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file, which `Target(tuned=path)` reads. It appears whole or not at all.

        Raises:
            OSError: if it cannot be written.
        """
        *head, (last, forms) = self.data().items()
        lines = [f"{json.dumps(name)}: {json.dumps(value)}," for name, value in head]
        lines += [f"{json.dumps(last)}: [", ",\n".join(map(json.dumps, forms)), "]"]
        with write(path) as file:
            file.write("\n".join(["{", *lines, "}\n"]).encode())

    def data(self) -> dict[str, Any]:
        """What a file holds; `forms` is the last field."""
        fields = asdict(self)
        forms = fields.pop("forms")
        return {"schema": SCHEMA, **fields, "forms": forms}


def _shown(microseconds: float) -> str:
    if microseconds < 1000:
        return f"{microseconds:.3g} µs"
    return f"{microseconds / 1000:.3g} ms" if microseconds < 1e6 else f"{microseconds / 1e6:.3g} s"
