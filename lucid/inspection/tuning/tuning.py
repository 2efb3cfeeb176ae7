"""`tune`: the fastest form of each distinct node of a model, by measuring them all in onnxruntime on this machine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from lucid.core.graph.graph import Graph
from lucid.core.graph.types import DTypeLike, is_whole, show_shape
from lucid.core.sizes.dims import bind
from lucid.core.words.phases import phase
from lucid.export.exporter import lower, traced_part
from lucid.export.target import Target
from lucid.export.tuned.tuned_table import TunedForm, TunedTable
from lucid.inspection.tuning.candidates import Contest, contests
from lucid.inspection.tuning.isolated import examples
from lucid.inspection.tuning.timing import Measure, in_turns
from lucid.runtime.options import check_threads
from lucid.runtime.session import Session
from lucid.tracing.parts import CacheKind, PartName, TracedPart
from lucid.tracing.trace import Model

Sizes: TypeAlias = Mapping[str, int]
"""Values of the symbolic sizes."""

_DAY = 86400
_LARGEST = 1 << 33  # numbers of an array
GAIN = 0.05
"""The default form is kept unless another takes this share less of the time: measurements differ by some percent."""


@dataclass(frozen=True)
class Tuning:
    """How to measure which forms are fastest, for `lucid.export.to_onnx(tune=...)`.

    Args:
        sizes: where the model will run: values of all of its symbolic sizes, or several of these, of equal weight.
            Nothing for a model whose sizes are fixed.
        threads: of the sessions that will run the model; by default onnxruntime's own number.
        seconds: how long to measure each node at each of the sizes, at least; `in_turns` says how many runs are made.
        measure: what measures; by default `in_turns`.

    Raises:
        ValueError: for sizes, threads or seconds that are none. When it is called, for sizes that the model does not
            have, or that it has and that are not given, or at which a node has an axis of none; and for a target that
            does not run on this machine's processor.
    """

    sizes: Sizes | Sequence[Sizes] = ()
    threads: int | None = None
    seconds: float = 0.2
    measure: Measure = in_turns

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", _points_of(self.sizes))
        if self.threads is not None:
            check_threads("Tuning", self.threads)
        if (
            isinstance(self.seconds, bool)
            or not isinstance(self.seconds, (int, float))
            or not 0 <= self.seconds <= _DAY
        ):
            raise ValueError(f"Tuning: seconds is {self.seconds!r}, expected a number of 0 to {_DAY}")

    def __call__(self, graph: Graph, target: Target) -> TunedTable:
        """For each distinct node of a graph that several forms compute exactly, the fastest of these: that with the
        smallest sum, over the sizes, of its time relative to the fastest one's.
        """
        if target.runtime.device:
            raise ValueError(f'tune: target "{target.name}" computes on a device, expected one for a processor')
        given = _checked(graph, _points_of(self.sizes))
        wanted = target.for_ops(graph.op_names())
        nodes = contests(graph, wanted)
        measured = []
        with phase("measuring forms", len(nodes), "nodes") as advance:
            for node in nodes:
                models = node.models(wanted)
                if len(models) > 1:
                    measured.append(self._measured(node, models, given, target.runtime.provider))
                advance(1)
        return TunedTable(target.name, tuple(measured), self.threads)

    def _measured(self, node: Contest, models: Mapping[str, bytes], given: Sequence[Sizes], provider: str) -> TunedForm:
        # Threads that spin between runs would slow the other forms down.
        sessions = {
            name: Session(model, provider, threads=self.threads, spinning=False) for name, model in models.items()
        }
        points = _points(node, given)
        seconds: dict[str, list[float]] = {name: [] for name in sessions}
        for sizes in points:
            _check_fits(node, sizes)
            arrays = examples(node.alone.inputs, sizes)
            calls = {name: partial(session.run, arrays) for name, session in sessions.items()}
            for name, taken in self.measure(calls, self.seconds).items():
                seconds[name].append(taken)
        microseconds = {name: tuple(round(each * 1e6, 2) for each in taken) for name, taken in seconds.items()}
        default = next(iter(models))
        return TunedForm(node.key, fastest(microseconds, default), default, points, microseconds)


def tune(
    model: Model | Graph | TracedPart,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    part: PartName | None = None,
    cache: CacheKind | None = None,
    capacity: int | None = None,
    target: Target | str = "cpu",
    dtype: DTypeLike | None = None,
    keep_io_types: bool = True,
    sizes: Sizes | Sequence[Sizes] = (),
    threads: int | None = None,
    seconds: float = 0.2,
) -> TunedTable:
    """Measure which form of each attention, norm and other node of several forms is fastest on this machine.

    Args:
        model, inputs, kwargs, part, cache, capacity, dtype, keep_io_types: as for `lucid.export.to_onnx`, since a table
            is for these inputs.
        target: whose forms are measured.
        sizes, threads, seconds: as for `Tuning`.

    Returns:
        The table, for `Target(tuned=...)`; its `save` writes it to a file.

    Raises:
        ValueError: as `Tuning` and `lucid.export.to_onnx`.
    """
    traced = traced_part(model, inputs, kwargs, part, cache, capacity)
    tuning = Tuning(sizes, threads, seconds)
    table = lower(traced, Target.of(target, None, None), dtype, keep_io_types, tune=tuning).table
    assert table is not None, "it has been measured"
    return table


def _points_of(given: object) -> tuple[Sizes, ...]:
    """One point or several as several."""
    points = (given,) if isinstance(given, Mapping) else tuple(given) if isinstance(given, Iterable) else (given,)
    for point in points:
        if not isinstance(point, Mapping) or not all(isinstance(name, str) for name in point):
            raise ValueError(
                f"tune: sizes is {given!r}, expected the values of all symbolic sizes, such as "
                '{"N": 1, "L": 128}, or a list of these'
            )
    return points


def _checked(graph: Graph, points: Sequence[Sizes]) -> Sequence[Sizes]:
    """The sizes, each with all names of the graph."""
    names = graph.sizes()
    if not points and names:
        raise ValueError(f"tune: the model has the sizes {', '.join(sorted(names))}: say at which values it will run")
    for point in points:
        unknown, missing = sorted(point.keys() - names), sorted(names - point.keys())
        if unknown or missing:
            raise ValueError(
                f"tune: sizes {dict(point)}: unknown: {', '.join(unknown) or 'none'}; missing: "
                f"{', '.join(missing) or 'none'}; the model's sizes are {', '.join(sorted(names)) or 'fixed'}"
            )
        for name, value in point.items():
            if not is_whole(value) or value < 1:
                raise ValueError(f"tune: size {name} is {value!r}, expected a whole number of 1 or more")
    return points or [{}]


def _check_fits(node: Contest, sizes: Sizes) -> None:
    """Raise ValueError where a node computes nothing, or its operands need more memory than there is."""
    for value in (*node.alone.inputs, *node.alone.outputs):
        shape = bind(value.type.shape, sizes)
        if any(size < 1 for size in shape) or math.prod(shape) > _LARGEST:
            where = ", ".join(f"{name}={size}" for name, size in sizes.items())
            raise ValueError(f"tune: at {where} {node.key} has an array of {show_shape(shape)}: choose other sizes")


def _points(node: Contest, given: Sequence[Sizes]) -> tuple[Sizes, ...]:
    """The sizes that a node depends on, each combination of values once."""
    found = [{name: int(value) for name, value in sizes.items() if name in node.sizes} for sizes in given]
    return tuple(sizes for index, sizes in enumerate(found) if sizes not in found[:index])


def fastest(times: Mapping[str, Sequence[float]], default: str) -> str:
    """The form with the smallest sum of its times relative to the fastest one's; the default unless another gains."""
    best = [min(each) for each in zip(*times.values(), strict=True)]
    relative = {name: sum(time / least for time, least in zip(of, best, strict=True)) for name, of in times.items()}
    name = min(relative, key=lambda form: relative[form])
    return name if relative[name] < (1 - GAIN) * relative[default] else default
