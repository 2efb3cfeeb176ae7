"""Eager calls computed by onnxruntime, each kind of call by a model of one op."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from lucid.core.graph.types import Array, DType, TensorType, spec
from lucid.core.graph.values import Attributes
from lucid.core.process.cache_keys import kind_of
from lucid.core.process.context import holding
from lucid.core.process.threads import get_num_threads
from lucid.eager.calls import HELD_AT_ONCE, HELD_IN_ALL, SHARED, Axes, layout
from lucid.eager.sessions import MOST, run
from lucid.export.exporter import export_graph
from lucid.export.onnx_file.writer import in_memory
from lucid.export.target import Target
from lucid.ops.engine import Engine, engine
from lucid.ops.op import Op
from lucid.ops.shaping import permute
from lucid.ops.tensor.tensor import Tensor
from lucid.tracing.trace import trace

Order: TypeAlias = tuple[int, ...]


def onnxruntime_kernels() -> AbstractContextManager[Any]:
    """Inside a with statement, onnxruntime computes the eager calls of this thread that it computes faster than NumPy.

    These are products, convolutions, attention, normalisations, activations and arithmetic of float32 with many numbers
    (`lucid.eager.calls.LEAST`); small calls, other types and other ops stay with NumPy. Results differ in rounding, as
    an exported model's do: the graph of a call is the one that target "cpu" exports. Numbers below 1.2e-38 count as
    zero where the platform has it. The first calls of a kind take some milliseconds, in which its graph is made and
    loaded. Threads are as many as `lucid.set_num_threads` says.

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
        kind = _Kind(found.instead or op, found.axes, found.attributes, kind_of(found.attributes), dtypes)
        model = None if found.held else _model(kind)
        names, shape = kind.names, tuple(map(int, results[0].shape))
        permuted: dict[tuple[Order, ...], tuple[bytes, list[str]]] = {}

        def computed(first: Array, *others: Array | None) -> Array:
            threads = get_num_threads() if found.shared else 1
            if found.unfolded is not None:
                views, orders = _as_they_lie((first, *others))
                if any(orders):
                    if orders not in permuted:
                        lying = kind.in_orders(orders, found.unfolded)
                        permuted[orders] = _model(lying), lying.names
                    as_they_lie, own_names = permuted[orders]
                    return run(as_they_lie, dict(zip(own_names, views, strict=True)), threads).reshape(shape)
            # A tensor of no axes may hold a NumPy number, which kernels take as an array and onnxruntime does not.
            present = (first.reshape(found.shape), *(x for x in others if x is not None))
            given = list(map(np.asarray, present))
            holding_weights = _held.model(kind, given[1:]) if found.held else None
            if holding_weights is not None:
                return run(holding_weights, {names[0]: given[0]}, threads).reshape(shape)
            return run(model or _model(kind), dict(zip(names, given, strict=True)), threads).reshape(shape)

        return computed


_ENGINE: Engine = _OnnxruntimeEngine()


@dataclass(frozen=True)
class _Kind:
    """Calls that one model computes: all with these sizes, of which names stand for open ones, and attributes."""

    compute: Callable[..., Any]
    axes: tuple[Axes | None, ...]
    attributes: tuple[tuple[str, Any], ...]
    kinds: Hashable  # of the attributes
    dtypes: tuple[DType | None, ...]

    def in_orders(self, orders: tuple[Order, ...], unfolded: Axes) -> _Kind:
        """The same calls with the axes of the operands in these orders, and of the first as many as it has."""
        axes = tuple(
            named and tuple(named[i] for i in order or range(len(named)))
            for named, order in zip((unfolded, *self.axes[1:]), orders, strict=True)
        )
        return replace(self, compute=_Permuted(self.compute, orders), axes=axes)

    @property
    def operands(self) -> list[tuple[Axes, DType]]:
        """Those that are not absent."""
        return [(axes, dtype) for axes, dtype in zip(self.axes, self.dtypes, strict=True) if axes is not None and dtype]

    @property
    def names(self) -> list[str]:
        """Of the operands. They tell their types, so operands of the same name have the same type in all kinds."""
        return ["_".join(map(str, (dtype, *axes, place))) for place, (axes, dtype) in enumerate(self.operands)]

    def model(self, held: Sequence[Array] = ()) -> bytes:
        """It is made once for all sizes that are open.

        Args:
            held: the last operands, if they are constants of the model.
        """
        specs = [spec(*axes, dtype=dtype) for axes, dtype in self.operands]
        inputs = len(specs) - len(held)

        def call(*tensors: Tensor) -> Any:
            given = iter([*tensors, *map(Tensor, held)])
            return self.compute(*(None if axes is None else next(given) for axes in self.axes), **dict(self.attributes))

        with holding(engine, None):
            graph = trace(call, *specs[:inputs])
            # Without the warning of weights with NaN: here they are operands, of which NumPy warns neither.
            assembled, _ = export_graph(graph, Target("cpu"), self.names[:inputs])
        made: bytes = in_memory(assembled).SerializeToString()
        return made


@dataclass(frozen=True)
class _Permuted:
    """An op of operands whose axes are given in other orders; () stands for their own."""

    op: Callable[..., Any]
    orders: tuple[Order, ...]

    def __call__(self, *operands: Tensor | None, **attributes: Any) -> Any:
        given = zip(operands, self.orders, strict=True)
        return self.op(
            *(x if x is None or not order else permute(x, [*map(order.index, range(x.ndim))]) for x, order in given),
            **attributes,
        )


def _as_they_lie(arrays: Sequence[Array | None]) -> tuple[list[Array], tuple[Order, ...]]:
    """Arrays with their axes in the order of memory, and these orders: () for one that has them so, is small or has
    gaps. onnxruntime permutes an operand in less time than NumPy takes to copy it."""
    orders = tuple(() if x is None or x.size < SHARED or x.flags.c_contiguous else _order(x) for x in arrays)
    given = zip(arrays, orders, strict=True)
    return [x.transpose(order) if order else np.asarray(x) for x, order in given if x is not None], orders


def _order(x: Array) -> Order:
    order = tuple(sorted(range(x.ndim), key=lambda axis: -x.strides[axis]))
    return order if x.transpose(order).flags.c_contiguous else ()


@lru_cache(maxsize=MOST)
def _model(kind: _Kind) -> bytes:
    return kind.model()


class _HeldOperands:
    """Models with operands as constants, told by the bytes of these, since arrays may change."""

    def __init__(self) -> None:
        self._models: dict[_Kind, list[tuple[tuple[bytearray, ...], bytes]]] = {}
        self._numbers = self._count = 0

    def model(self, kind: _Kind, operands: Sequence[Array]) -> bytes | None:
        """The model of a kind that holds these; None if there are too many of a kind, which change from call to call
        then, so that each would be copied for nothing, or too many in all."""
        operands = [np.ascontiguousarray(x) for x in operands]
        known = self._models.get(kind, [])
        for contents, model in tuple(known):  # another thread may add one
            if all(content == x.data for content, x in zip(contents, operands, strict=True)):
                return model
        numbers = sum(x.size for x in operands)
        if len(known) >= HELD_AT_ONCE or self._count >= MOST // 2 or self._numbers + numbers > HELD_IN_ALL:
            return None
        model = kind.model(operands)
        self._models.setdefault(kind, []).append((tuple(bytearray(x) for x in operands), model))
        self._numbers, self._count = self._numbers + numbers, self._count + 1
        return model


_held = _HeldOperands()
