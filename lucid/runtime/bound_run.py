"""A session with its inputs and outputs bound to memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import onnxruntime


class RunCancelled(RuntimeError):  # noqa: N818  # not an error of the model
    """A run was stopped by `Session.cancel`."""


class BoundRun:
    """A session whose inputs and outputs are bound to memory (`Session.bind`). One thread at a time may run it."""

    def __init__(
        self,
        names: Sequence[str],
        binding: Any,
        execute: Callable[[Any, onnxruntime.RunOptions], None],
        under_way: Callable[[onnxruntime.RunOptions], AbstractContextManager[onnxruntime.RunOptions]],
    ) -> None:
        self._names, self._binding, self._execute, self._under_way = names, binding, execute, under_way
        self._options = onnxruntime.RunOptions()  # kept, because making one takes longer than all else in `run`

    def run(self) -> None:
        """Run once.

        Raises:
            RunCancelled: if another thread called the session's `cancel`.
        """
        try:
            with self._under_way(self._options) as options:
                self._execute(self._binding, options)
        finally:
            self._options.terminate = False  # a later run is another one

    def outputs(self) -> dict[str, Any]:
        """What the last run wrote: OrtValues by output name."""
        return dict(zip(self._names, self._binding.get_outputs(), strict=True))
