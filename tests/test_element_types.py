"""Every op in every element type that it takes: exported for every target that runs on a CPU it gives the eager result,
exactly for integers, or the export is refused with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import Tensor
from lucid.core.graph.types import DTYPES, Array, DType, int8, int32, int64
from lucid.export import ExportError, Target, to_onnx
from lucid.export.exporter import export_graph
from lucid.runtime import Session
from tests.cases import case
from tests.combinations import covering
from tests.samples import NO_KERNEL, SAMPLES, Argument, Sample
from tests.test_ops import ON_CPU, OPS, arrays_of, check, eager, models_of, traced

SPAN = {int32: 2**30, int64: 2**58}  # small integers use their whole range


def _digits(dtype: DType) -> Any:
    """How an input is drawn: integers with all the digits of their type, more than float64 has."""
    info = np.iinfo(dtype.numpy)
    low, high = (-SPAN[dtype], SPAN[dtype]) if dtype in SPAN else (info.min, info.max)
    return lambda generator, shape: generator.integers(low, high, shape)


def _with_digits(s: Sample, dtype: DType) -> Sample:
    if dtype.kind != "int":
        return s

    def full(argument: Argument | None) -> Argument | None:
        plain = argument is not None and argument.draw is None and argument.dtype is None
        return replace(argument, draw=_digits(dtype)) if plain and argument is not None else argument

    return replace(s, inputs=tuple(map(full, s.inputs)))


def drawn(s: Sample, dtype: DType, sizes: Mapping[str, int]) -> list[Array | None]:
    """Reproducible arrays for the inputs."""
    with np.errstate(invalid="ignore"):  # NaN has no integer value
        return arrays_of(s, dtype, sizes)


def runs_of(op: str) -> list[tuple[Sample, DType]]:
    """Every sample of an op with every element type that the op takes eagerly."""
    taken = []
    for s in (s for s in SAMPLES if s.op.name == op):
        for dtype in DTYPES if any(a is not None and a.dtype is None for a in s.inputs) else s.dtypes[:1]:
            try:
                eager(s, drawn(s, dtype, s.sizes[0]), s.sizes[0])
            except TypeError:
                assert dtype not in s.dtypes
                continue
            if s.exported:
                taken.append((_with_digits(s, dtype), dtype))
    return taken


@pytest.mark.parametrize("op", OPS)
def test_what_is_exported_loads_and_keeps_every_digit(op: str) -> None:
    """Every two values of sample, element type, target and onnxruntime's optimization on or off meet."""
    runs = {f"{s.name}-{dtype}": (s, dtype) for s, dtype in runs_of(op)}
    every = product(runs, ON_CPU, (True, False))
    targets: dict[tuple[str, bool], list[str]] = {}
    for name, target, optimized in covering(every, lambda row: (runs[row[0]][0].name, runs[row[0]][1], *row[1:])):
        targets.setdefault((name, optimized), []).append(target)
    for name, optimized in targets:
        with case(name):
            _exported_keeps_every_digit(*runs[name], targets[name, optimized], optimized)


def _exported_keeps_every_digit(s: Sample, dtype: DType, targets: Sequence[str], optimized: bool) -> None:
    arrays = drawn(s, dtype, s.sizes[0])
    expected, inputs = eager(s, arrays, s.sizes[0]), [a for a in arrays if a is not None]
    graph = traced(s, dtype)
    if f"{s.name}-{dtype}" in NO_KERNEL:
        for target in targets:
            with pytest.raises(ExportError, match="no float64 kernel"):
                export_graph(graph, Target(target))
        return
    for target, model in models_of(graph, targets).items():
        session = Session(model, threads=1, optimize=optimized)
        outputs = session.run(dict(zip(session.inputs, inputs, strict=True)))
        for got, want in zip(outputs.values(), expected, strict=True):
            check(got, want, f"{s.name} for {target}, {'as optimised' if optimized else 'as it stands'}")


@pytest.mark.parametrize("provider", ON_CPU)
@pytest.mark.parametrize("dtype", [int8, int32, int64], ids=str)
def test_the_lowest_number_over_minus_one_is_what_numpy_gives(dtype: DType, provider: str) -> None:
    """onnxruntime's Div and Mod end the process."""
    low, high = np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max
    x = np.array([[low], [low + 1], [-7], [0], [7], [high]], dtype.numpy)
    y = np.array([-1, 1, -2, 2, low, high], dtype.numpy)
    spec = lucid.spec("N", 1, dtype=dtype)
    models = [
        (to_onnx(lambda a, b: (a // b, a % b), spec, lucid.spec("M", dtype=dtype), target=provider), [x, y], y),
        (to_onnx(lambda a: (a // Tensor(y), a % Tensor(y)), spec, target=provider), [x], y),
        (to_onnx(lambda a: (a // -1, a % -1), spec, target=provider), [x], np.asarray(-1, dtype.numpy)),
    ]
    for model, inputs, divisor in models:
        quotient, rest = Session(model, threads=1)(*inputs)
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(quotient, x // divisor)
            np.testing.assert_array_equal(rest, x % divisor)


def test_a_constant_divisor_other_than_minus_one_has_no_guard() -> None:
    model = to_onnx(lambda x: (x // 7, x % 7), lucid.spec("N", dtype=int64))
    assert "Where" not in {node.op_type for node in model.graph.node}
