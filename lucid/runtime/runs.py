"""Runs of a session: those under way, which another thread can cancel, and those bound to memory."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeVar

import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException

from lucid.core.graph.types import Array
from lucid.runtime import denormals

R = TypeVar("R")
_FATAL = 4  # of onnxruntime's levels, the highest

NOT_COMPUTED: tuple[type[Exception], ...] = (Fail, InvalidArgument, RuntimeException)
"""onnxruntime's errors for inputs that a model does not compute, such as a token that its table does not have."""
NOT_COMPUTED_BOUND: tuple[type[Exception], ...] = (*NOT_COMPUTED, RuntimeError)
"""The same, of a run with bound memory."""
_OUTSIDE = re.compile(
    r"running (\w+) node.*idx=(-?\d+) must be within the inclusive range \[-?\d+,(-?\d+)\]", re.DOTALL
)


class IndexOutsideError(ValueError, IndexError):
    """An index, such as a token, that a table of the model has no row for."""


def refuse_index(error: Exception, inputs: Mapping[str, Array]) -> None:
    """Nothing, if onnxruntime's error is another one than an index that a table has no row for.

    Raises:
        IndexOutsideError: naming the input with the index, and the valid indices.
    """
    if (outside := _OUTSIDE.search(str(error))) is not None:
        kind, index, last = outside[1], int(outside[2]), outside[3]
        holding = [name for name, array in inputs.items() if array.dtype.kind == "i" and (array == index).any()]
        of_input = f" of input {' or '.join(holding)}" if holding else ""
        raise IndexOutsideError(f"Session: {kind} got index {index}{of_input}, expected 0 to {last}") from error


class RunCancelled(RuntimeError):  # noqa: N818  # not an error of the model
    """A run was stopped by `Session.cancel`."""


def quiet() -> onnxruntime.RunOptions:
    """Options of a run whose errors are exceptions, and not also lines that onnxruntime prints."""
    options = onnxruntime.RunOptions()
    options.log_severity_level = _FATAL
    # As by default. Where it is absent, the Python of onnxruntime 1.32 raises and catches an error in each run.
    options.add_run_config_entry("gpu_graph_id", "0")
    return options


class Runs:
    """The runs that are under way.

    Args:
        flush: whether they count denormal numbers as zero, also on the calling thread.
    """

    def __init__(self, flush: bool) -> None:
        self.mode = denormals.flushed if flush else nullcontext
        self._options: dict[onnxruntime.RunOptions, bool] = {}  # whether each is cancelled
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._options)

    def run(self, compute: Callable[[onnxruntime.RunOptions], R], options: onnxruntime.RunOptions) -> R:
        """Compute with these options, in this session's mode.

        Raises:
            RunCancelled: if another thread called `cancel`.
        """
        with self._lock:
            self._options[options] = False
        try:
            if self.mode is nullcontext:  # entering it would be three calls more, with cold caches
                return compute(options)
            with self.mode():
                return compute(options)
        except (Fail, RuntimeError) as error:  # the second with an IO binding
            if options.terminate:
                raise RunCancelled("the run was cancelled") from error
            raise
        finally:
            with self._lock:
                if self._options.pop(options):  # a later run may have the same options
                    options.terminate = False

    def cancel(self) -> None:
        """Stop all of them, between two nodes. Later runs are not affected."""
        with self._lock:
            for options in self._options:
                self._options[options] = options.terminate = True


class BoundRun:
    """A session whose inputs and outputs are bound to memory (`Session.bind`). One thread at a time may run it.

    `copied`: the inputs that onnxruntime copies to a device when they are bound, and so are bound again for each run.
    """

    def __init__(
        self,
        names: Sequence[str],
        binding: Any,
        session: onnxruntime.InferenceSession,
        runs: Runs,
        copied: Mapping[str, Any],
    ) -> None:
        self._names, self._binding, self._runs, self._copied = names, binding, runs, copied
        self._compute: Callable[..., None] = partial(session.run_with_iobinding, binding)
        self._session = session._sess  # not the object around it, which Python may clear first when it collects garbage
        self._options = quiet()  # kept, because making one takes longer than all else in `run`

    def run(self) -> None:
        """Run once.

        Raises:
            RunCancelled: if another thread called the session's `cancel`.
        """
        for name, value in self._copied.items():
            self._binding.bind_ortvalue_input(name, value)
        self._runs.run(self._compute, self._options)

    def outputs(self) -> dict[str, Any]:
        """The outputs of the last run: OrtValues by name."""
        results = dict(zip(self._names, self._binding.get_outputs(), strict=True))
        for value in results.values():
            value.computed_by = self._session  # a device's memory belongs to its session, which must outlive the value
        return results
