"""Every op's gradient against central differences in float64, over the samples of all ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.core.graph.types import Array, float64
from lucid.gradients import CONSTANT, RULES, Rule
from lucid.ops.op import REGISTERED
from lucid.ops.tensor.tensor import Tensor
from tests.cases import case
from tests.samples import SAMPLES, Sample
from tests.test_ops import attributes_of

OPS = list(dict.fromkeys(s.op.name for s in SAMPLES if any(dtype.kind == "float" for dtype in s.dtypes)))
STRAIGHT = {"int8_linear_dynamic", "int8_linear_rows", "int8_linear_static"}
"""Ops whose rounding counts as none, so that differences say nothing."""
FROZEN = {"quantized_linear", "quantized_embedding", "int8_embedding"}
"""Ops of quantized weights, whose scales have no gradients."""


def is_real(x: Any) -> bool:
    return x is not None and x.dtype.kind == "f"


def real_samples(op: str) -> list[Sample]:
    """The samples of an op that have numbers in float64; a loop's body has a type of its own."""
    samples = [s for s in SAMPLES if s.op.name == op and any(dtype.kind == "float" for dtype in s.dtypes)]
    return [s for s in samples if "body" not in s.attributes or float64 in s.dtypes]


def sampled(s: Sample) -> tuple[list[Array | None], dict[str, Any]]:
    """Inputs in float64, moved away from whole numbers, and attributes with numbers for sizes, of the first sizes."""
    sizes = s.sizes[0]
    generator = np.random.default_rng(7)
    arrays = [None if a is None else a.array(float64, sizes, generator) for a in s.inputs]
    moved = [x + generator.uniform(0.001, 0.01, x.shape) if is_real(x) else x for x in arrays]
    return moved, attributes_of(s, sizes)


def differentiated(
    s: Sample, arrays: Sequence[Array | None], attributes: dict[str, Any], seeds: Sequence[Array]
) -> list[Array]:
    """The gradients of the sum of all outputs times their seeds, with respect to the real inputs."""

    def total(*reals: Tensor) -> Tensor:
        rest = iter(reals)
        inputs = [next(rest) if is_real(x) else None if x is None else Tensor(x) for x in arrays]
        result = s.op(*inputs, **attributes)
        results = [x for x in (result if isinstance(result, tuple) else (result,)) if x.dtype.kind == "float"]
        return sum(((x * seed).sum() for x, seed in zip(results, seeds, strict=True)), start=Tensor(0.0, float64))

    gradients = lucid.grad(total)(*(Tensor(x) for x in arrays if is_real(x)))
    return [x.numpy() for x in (gradients if isinstance(gradients, tuple) else (gradients,))]


def real_outputs(s: Sample, arrays: Sequence[Array | None], attributes: dict[str, Any]) -> list[Array]:
    tensors = [None if a is None else Tensor.from_array(a) for a in arrays]
    result = s.op(*tensors, **attributes)
    return [x.numpy() for x in (result if isinstance(result, tuple) else (result,)) if x.dtype.kind == "float"]


def check(s: Sample) -> None:
    arrays, attributes = sampled(s)
    generator = np.random.default_rng(1)
    seeds = [generator.standard_normal(x.shape) for x in real_outputs(s, arrays, attributes)]
    gradients = differentiated(s, arrays, attributes, seeds)
    places = [i for i, x in enumerate(arrays) if is_real(x)][: 1 if s.op.name in FROZEN else None]
    for place, gradient in zip(places, gradients, strict=False):
        x = arrays[place]
        assert x is not None and gradient.shape == x.shape and gradient.dtype == x.dtype
        direction = generator.choice([-1.0, 1.0], x.shape)
        moved = []
        for step in (1e-6, -1e-6):
            there = [*arrays[:place], x + step * direction, *arrays[place + 1 :]]
            moved.append(
                sum(float(np.vdot(y, seed)) for y, seed in zip(real_outputs(s, there, attributes), seeds, strict=True))
            )
        expected = (moved[0] - moved[1]) / 2e-6
        size = np.abs(gradient).sum() + 1
        assert abs(float(np.vdot(gradient, direction)) - expected) < 1e-7 * size, f"input {place} of {s.name}"


@pytest.mark.parametrize("op", [op for op in OPS if op not in (*STRAIGHT, "stop_gradient")])
def test_a_gradient_is_that_of_central_differences(op: str) -> None:
    for s in real_samples(op):
        arrays, attributes = sampled(s)
        narrow = attributes.get("dtype", float64)
        if op == "cast" and narrow != float64:
            continue  # rounded
        with case(s.name):
            if any(map(is_real, arrays)) and real_outputs(s, arrays, attributes):
                check(s)


def test_a_wrong_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for op, wrong in {
        "tanh": Rule(lambda g, y, x: g * (1 - y)),
        "sub": Rule(lambda g, y, a, b: (g, g)),
        "layer_norm": Rule(lambda g, y, x, weight=None, bias=None, **options: (g, g * x, g)),
        "permute": Rule(lambda g, y, x, *, axes: g.permute(axes)),
        "take": Rule(lambda g, y, x, indices, *, axis: x * 0),
    }.items():
        monkeypatch.setitem(RULES, op, wrong)
        with pytest.raises((AssertionError, ValueError)):  # wrong numbers, or a wrong shape
            for s in real_samples(op):
                check(s)


def test_every_op_of_real_numbers_has_a_rule_or_a_body_or_is_made_of_steps() -> None:
    names = {s.op.name for s in SAMPLES if any(map(is_real, sampled(s)[0])) and s.op.name in OPS}
    real = {name for name in names if any(real_outputs(s, *sampled(s)) for s in real_samples(name))}
    without = {name for name in real if name not in RULES and REGISTERED[name].body is None}
    assert without == {"stop_gradient", "dropout", *CONSTANT} & without
    assert not CONSTANT & RULES.keys() and RULES.keys() <= REGISTERED.keys()
