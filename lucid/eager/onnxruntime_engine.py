"""Eager calls computed by onnxruntime, each kind of call by a model of one node."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

import numpy as np

from lucid.context import holding
from lucid.eager.calls import PRODUCTS, Axes, layout
from lucid.export.exporter import to_onnx
from lucid.ops.engine import Engine, engine
from lucid.ops.op import Op
from lucid.ops.tensor import Tensor
from lucid.runtime import denormals
from lucid.runtime.session import Session
from lucid.threads import get_num_threads
from lucid.types import Array, DType, TensorType, spec
from lucid.values import Attributes

_SESSIONS = 64
"""Sessions that are kept. Each has threads of its own, which sleep while it does not run."""

_MICROSECONDS = "200"
"""How long threads of products wait busily for the next one: longer than what comes between, and no longer, as the next
call may want the cores for the threads of another session."""


def onnxruntime_kernels() -> AbstractContextManager[Any]:
    """Inside a with statement, onnxruntime computes the eager calls of this thread that it computes faster than NumPy.

    These are products, convolutions, attention, normalisations, activations and arithmetic of float32 with many numbers
    (`lucid.eager.calls.LEAST`); small calls, other types and other ops stay with NumPy. Results differ in rounding, as
    an exported model's do: the graph of a call is the one that target "cpu" exports. The first call of a kind takes
    some milliseconds, in which its graph is made and loaded. Threads are as many as `lucid.set_num_threads` says.

    Constants computed while tracing, graphs that are run, and references of parity are NumPy's inside, too.
    """
    return holding(engine, _ENGINE)


class _OnnxruntimeEngine:
    """Kernels for calls of these types; see `lucid.ops.engine.Engine`."""

    def kernel(
        self, op: Op[..., Any], operands: Sequence[Tensor | None], attributes: Attributes, results: Sequence[TensorType]
    ) -> Callable[..., Any] | None:
        """Runs the model of such calls; None where NumPy's kernel is faster."""
        found = layout(op.name, operands, attributes, results)
        if found is None:
            return None
        dtypes = tuple(None if x is None else x.dtype for x in operands)
        model = _model(op, found.axes, found.attributes, dtypes)
        shapes = [tuple(map(int, kind.shape)) for kind in results]
        single = shapes[0] if len(shapes) == 1 else None

        def run(first: Array, *others: Array | None, **_: Any) -> Any:
            session = _session(op.name, model, get_num_threads() if found.shared else 1)
            # A tensor of no axes may hold a NumPy number, which kernels take as an array and onnxruntime does not.
            given = [np.reshape(first, found.shape), *(x for x in others if x is not None)]
            arrays = session.run_in_order(list(map(np.asarray, given)))
            if single is not None:
                return arrays[0].reshape(single)
            return tuple(array.reshape(shape) for array, shape in zip(arrays, shapes, strict=True))

        return run


_ENGINE: Engine = _OnnxruntimeEngine()


@lru_cache(maxsize=256)
def _model(
    op: Op[..., Any],
    operands: tuple[Axes | None, ...],
    attributes: tuple[tuple[str, Any], ...],
    dtypes: tuple[DType | None, ...],
) -> bytes:
    """A call as an ONNX model, which is made once for all sizes that are open."""
    kinds = zip(operands, dtypes, strict=True)
    specs = [spec(*axes, dtype=dtype) for axes, dtype in kinds if axes is not None and dtype is not None]

    def call(*tensors: Tensor) -> Any:
        present = iter(tensors)
        return op(*(None if axes is None else next(present) for axes in operands), **dict(attributes))

    with holding(engine, None):
        model: bytes = to_onnx(call, *specs, target="cpu").SerializeToString()
    return model


def _loaded(name: str, model: bytes, threads: int) -> Session:
    if name in PRODUCTS and threads > 1:
        return Session(model, threads=threads, config={"session.intra_op.spin_duration_us": _MICROSECONDS})
    # Hidden keys get weights that are next to nothing: as denormal numbers they would take most of the time.
    flushed = name == "attention" and denormals.AVAILABLE
    return Session(model, threads=threads, spinning=False, flush_denormals=flushed)


_session = lru_cache(maxsize=_SESSIONS)(_loaded)
_of_parents: list[Any] = []


def _after_fork() -> None:
    """The threads of sessions do not survive a fork: the child loads its own, and keeps those that it cannot close."""
    global _session
    _of_parents.append(_session)
    _session = lru_cache(maxsize=_SESSIONS)(_loaded)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
