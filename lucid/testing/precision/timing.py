"""Two models exported and run in turns, so that what else the machine does meets both."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from lucid.core.graph.types import Array, TensorType
from lucid.core.targets.runtimes import PROCESSOR
from lucid.export import Target, to_onnx
from lucid.nn.module import Module
from lucid.nn.quantizing.calibration import BoundCall
from lucid.ops.tensor.tensor import Tensor
from lucid.runtime import Session
from lucid.runtime.release import installed
from lucid.testing.precision.report import Times
from lucid.tracing.trace import arguments_of

_WARM_UP, _FEWEST = 2, 5  # runs that do not count, and the fewest that do


def side_by_side(before: Module, after: Module, call: BoundCall, seconds: float) -> Times:
    """The medians of one call of both models, exported for this onnxruntime's CPU provider.

    Args:
        seconds: how long to run them together.
    """
    with TemporaryDirectory(prefix="lucid-", ignore_cleanup_errors=True) as folder:
        sessions = [
            _session(model, call, Path(folder) / f"{index}.onnx") for index, model in enumerate((before, after))
        ]
        arrays = _arrays(before, call)
        times: tuple[list[float], list[float]] = ([], [])
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(times[1]) < _WARM_UP + _FEWEST:
            for session, taken in zip(sessions, times, strict=True):
                given = dict(zip(session.inputs, arrays, strict=True))
                start = time.perf_counter()
                session.run(given)
                taken.append(time.perf_counter() - start)
    counted = [taken[_WARM_UP:] for taken in times]
    return Times(median(counted[0]), median(counted[1]), len(counted[0]))


def _session(model: Module, call: BoundCall, path: Path) -> Session:
    """Threads that spin between runs would slow the other model down."""
    target = Target(PROCESSOR, onnxruntime=installed())
    to_onnx(model, *call.args, kwargs=call.kwargs, target=target, path=path, external_data=True)
    return Session(path, spinning=False)


def _arrays(model: Module, call: BoundCall) -> list[Array]:
    """The arrays of a call, in the order of the exported model's inputs."""
    found: list[Array] = []

    def take(_: str, kind: TensorType, example: Array | None) -> Tensor:
        assert example is not None, f"a call has arrays, not {kind}"
        found.append(example)
        return Tensor.from_array(example)

    arguments_of(model, call.args, call.kwargs, take)
    return found
