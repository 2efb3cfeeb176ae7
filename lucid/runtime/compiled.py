"""`lucid.compile`: a model that runs in onnxruntime when it is called.

::

    fast = lucid.compile(model)
    y = fast(x)  # the first call traces, exports and loads; later ones run

It combines `to_onnx` in memory with a `Session`, for the shapes of the calls.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from lucid.core.graph.pytree import like
from lucid.core.graph.scope import is_tracing
from lucid.core.graph.types import Array, TensorType, as_dtype, bfloat16
from lucid.core.process.cache_keys import value_key
from lucid.core.sizes.dims import Size, SymbolicSizeError, dim
from lucid.export.exporter import to_onnx
from lucid.export.target import Target
from lucid.nn.module import Module
from lucid.ops.tensor.tensor import Tensor, TracedValueError
from lucid.runtime.session import Session
from lucid.tracing.trace import Model, trace

Shape: TypeAlias = tuple[int, ...]

MOST_PROGRAMS = 64
"""The most programs that a model keeps; beyond it those of the structure of arguments compiled first are dropped."""


def compile(
    model: Model,
    *,
    target: Target | str = "cpu",
    providers: str | Sequence[str] | None = None,
    threads: int | None = None,
) -> Compiled:
    """A callable with the model's signature that computes in onnxruntime.

    The first call traces the model in evaluation mode, exports it to memory and loads it. Sizes are fixed until a call
    has others: sizes that differ then become symbolic, and sizes that were always equal share a name. Arguments of
    another element type, number of axes, structure or Python value are compiled separately. A model that cannot be
    traced with symbolic sizes is compiled for each combination of sizes.

    New weights of a module, by `load_state_dict`, `assign` or `to`, are noticed at the next call. Compile again after a
    submodule is replaced, an array is changed in place, or new weights are loaded into a module that a function uses.

    Args:
        model: a module, a method of one, or a function of tensors.
        target: the runtime to export for, as in `to_onnx`.
        providers: onnxruntime's execution providers, as in `Session`.
        threads: the threads of onnxruntime, as in `Session`.

    Raises:
        TypeError: if the model is not callable. Calls raise what tracing, exporting and loading raise.
    """
    if not callable(model):
        raise TypeError(f"compile: the model has type {type(model).__name__}, expected a Module or a function")
    return Compiled(model, target, providers, threads)


@dataclass(frozen=True)
class _Program:
    """A loaded model for calls whose sizes fit."""

    groups: Shape  # the group of each axis of the tensors, in order; axes of one group have the same size
    sizes: tuple[int | None, ...]  # the size of each group, None if symbolic
    inputs: dict[str, TensorType]  # the names of the inputs and their types, in the order of the tensors
    session: Session
    checked: bool  # whether `Session.run` has to convert arrays, such as bfloat16, or to check bounds of sizes
    rebuild: Callable[[Sequence[Any]], Any]  # puts the outputs into the structure that the model returns

    def fits(self, sizes: Shape) -> bool:
        """Whether the program computes tensors whose axes have these sizes."""
        known = list(self.sizes)
        for group, size in zip(self.groups, sizes, strict=True):
            if known[group] is None:
                known[group] = size
            elif known[group] != size:
                return False
        return True

    def run(self, arrays: Sequence[Array]) -> Any:
        """The results of the model for these arrays."""
        feeds = dict(zip(self.inputs, arrays, strict=True))
        session = self.session
        results = list(session.run(feeds).values()) if self.checked else session.run_unchecked(feeds)
        return self.rebuild(list(map(Tensor.from_array, results)))


class Compiled:
    """A model compiled by `lucid.compile`."""

    def __init__(
        self, model: Model, target: Target | str, providers: str | Sequence[str] | None, threads: int | None
    ) -> None:
        self.model = model
        self._target, self._providers, self._threads = target, providers, threads
        self._programs: dict[Any, list[_Program]] = {}
        self._fixed: set[Any] = set()
        self._weights: list[tuple[Tensor, Array]] = []
        self._lock = threading.Lock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute in onnxruntime; tensors or arrays go in, tensors in the structure of the model's result come out."""
        if is_tracing():
            return self.model(*args, **kwargs)
        arrays: list[Array] = []
        key = _key((args, kwargs), arrays)
        sizes = tuple(size for array in arrays for size in array.shape)
        with self._lock:
            if any(tensor.numpy() is not array for tensor, array in self._weights):
                self._programs.clear()
            program = next((known for known in self._programs.get(key, ()) if known.fits(sizes)), None)
            if program is None:
                program = self._compile(key, args, kwargs, arrays, sizes)
        return program.run(arrays)

    def inputs(self) -> list[TensorType]:
        """The input types of the latest program: names stand for its symbolic sizes."""
        kept = [program for programs in self._programs.values() for program in programs]
        return list(kept[-1].inputs.values()) if kept else []

    def __repr__(self) -> str:
        name = type(self.model).__name__ if isinstance(self.model, Module) else getattr(self.model, "__name__", "model")
        return f"compiled {name}, programs: {sum(map(len, self._programs.values()))}"

    def _compile(self, key: Any, args: Any, kwargs: Any, arrays: Sequence[Array], sizes: Shape) -> _Program:
        """A program for these arguments and, if the model allows, for all earlier ones of the same structure."""
        if not self._programs:
            owner = getattr(self.model, "__self__", self.model)
            state = owner.state_dict().values() if isinstance(owner, Module) else ()
            self._weights = [(tensor, tensor.numpy()) for tensor in state]
        earlier = self._programs.get(key, [])
        groups, known = _grouped(earlier[-1] if earlier and key not in self._fixed else None, sizes)
        try:
            program = self._loaded(args, kwargs, arrays, groups, known)
        except (SymbolicSizeError, TracedValueError, ValueError):
            if None not in known:
                raise
            groups, known = _grouped(None, sizes)
            program = self._loaded(args, kwargs, arrays, groups, known)
            self._fixed.add(key)  # the model reads a size, or compares two: a program for each combination
        self._programs.pop(key, None)  # its structure is the newest now
        self._programs[key] = [*(old for old in earlier if not _covers(program, old)), program][-MOST_PROGRAMS:]
        while sum(map(len, self._programs.values())) > MOST_PROGRAMS:
            del self._programs[next(iter(self._programs))]
        return program

    def _loaded(
        self, args: Any, kwargs: Any, arrays: Sequence[Array], groups: Shape, sizes: tuple[int | None, ...]
    ) -> _Program:
        named: list[Size] = [dim(f"s{group}") if size is None else size for group, size in enumerate(sizes)]
        axes = iter(groups)
        kinds = [TensorType(as_dtype(a.dtype), tuple(named[next(axes)] for _ in a.shape)) for a in arrays]

        def call(*tensors: Tensor) -> Any:
            each = iter(tensors)
            return self.model(*_replaced(args, each), **_replaced(kwargs, each))

        graph = trace(call, *kinds)
        session = Session(to_onnx(graph, target=self._target), self._providers, threads=self._threads)
        inputs = {value.name: value.type for value in graph.inputs}
        checked = bool(graph.bounds) or any(value.type.dtype == bfloat16 for value in (*graph.inputs, *graph.outputs))
        return _Program(groups, sizes, inputs, session, checked, graph.rebuild)


def _grouped(earlier: _Program | None, sizes: Shape) -> tuple[Shape, tuple[int | None, ...]]:
    """The groups of axes that had equal sizes in this call and in those of the earlier program, and their sizes.

    If an earlier group is divided, axes of size 1 are fixed: they broadcast to the others.
    """
    old = [(size, None) for size in sizes] if earlier is None else [(g, earlier.sizes[g]) for g in earlier.groups]
    last = dict(zip(old, sizes, strict=True))
    divided = {group for group, size in zip(old, sizes, strict=True) if last[group] != size}
    numbers: dict[tuple[Any, int], int] = {}
    known: list[int | None] = []
    groups = []
    for (group, before), size in zip(old, sizes, strict=True):
        if (group, size) not in numbers:
            numbers[group, size] = len(known)
            stays = earlier is None or before == size or (size == 1 and (group, before) in divided)
            known.append(size if stays else None)
        groups.append(numbers[group, size])
    return tuple(groups), tuple(known)


def _covers(program: _Program, other: _Program) -> bool:
    """Whether a program fits all calls that another one fits."""
    pairs = set(zip(other.groups, program.groups, strict=True))
    return len({mine for _, mine in pairs}) == len(pairs) and all(
        program.sizes[mine] in (None, other.sizes[theirs]) for theirs, mine in pairs
    )


def _key(value: Any, arrays: list[Array]) -> Any:
    """The key of a call: the structure of its arguments, the types of tensors, and Python values."""
    if isinstance(value, (Tensor, np.ndarray)):
        arrays.append(value.numpy() if isinstance(value, Tensor) else value)
        return (arrays[-1].dtype, arrays[-1].ndim)
    if isinstance(value, (list, tuple)):
        return (type(value), *(_key(item, arrays) for item in value))
    if isinstance(value, dict):
        return (dict, *((value_key(name), _key(item, arrays)) for name, item in value.items()))
    if not isinstance(value, Hashable):
        raise TypeError(
            f"compile: an argument is or holds {type(value).__name__}, expected tensors, arrays, lists, tuples, dicts "
            "and Python values that can be hashed; give tensors, or bind the value with functools.partial"
        )
    return value_key(value)


def _replaced(value: Any, tensors: Iterator[Tensor]) -> Any:
    """The structure with its tensors and arrays replaced."""
    if isinstance(value, (Tensor, np.ndarray)):
        return next(tensors)
    if isinstance(value, (list, tuple)):
        return like(value, [_replaced(item, tensors) for item in value])
    if isinstance(value, dict):
        return {name: _replaced(item, tensors) for name, item in value.items()}
    return value
