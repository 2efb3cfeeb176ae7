"""A session with its inputs and outputs bound to memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from lucid.runtime.runs import Runs, quiet


class BoundRun:
    """A session whose inputs and outputs are bound to memory (`Session.bind`). One thread at a time may run it."""

    def __init__(self, names: Sequence[str], binding: Any, execute: Callable[..., None], runs: Runs) -> None:
        """`execute` takes the binding and the options of the run."""
        self._names, self._binding, self._runs = names, binding, runs
        self._compute = partial(execute, binding)
        self._options = quiet()  # kept, because making one takes longer than all else in `run`

    def run(self) -> None:
        """Run once.

        Raises:
            RunCancelled: if another thread called the session's `cancel`.
        """
        try:
            self._runs.run(self._compute, self._options)
        finally:
            self._options.terminate = False  # a later run is another one

    def outputs(self) -> dict[str, Any]:
        """What the last run wrote: OrtValues by output name."""
        return dict(zip(self._names, self._binding.get_outputs(), strict=True))
