"""Lines of torch's run with Lucid in torch's place, as after changing an import: values, shapes and element types.

`tools/goldens/ported.py` ran the same lines with torch. See goldens/README.md.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import lucid
from lucid import Tensor, nn
from lucid.core.graph.types import Array
from lucid.export import to_onnx
from lucid.files.weights import load
from lucid.nn import functional
from lucid.runtime import Session
from tests.cases import in_one_test
from tests.ported import FLAGS, LINES, SPECS, WHOLE, weights_in_two_parts

GOLDENS = load(Path(__file__).parent / "goldens" / "ported.safetensors")
INPUTS = {name: GOLDENS[f"input.{name}"] for name in SPECS}
# onnxruntime has no float64 kernel or other rounding for these element types; they are compared eagerly.
TARGETS = ("any", "cpu", "portable")
weights_in_two_parts(lucid)  # its modules are made before a trace


def run(name: str, tensors: list[Tensor]) -> list[Tensor]:
    results = LINES[name][1](lucid, functional, nn, *tensors)
    return list(results) if isinstance(results, tuple) else [results]


def expected(name: str) -> list[Array]:
    arrays = []
    while f"{name}.{len(arrays)}" in GOLDENS:
        arrays.append(GOLDENS[f"{name}.{len(arrays)}"])
    return arrays


def check(got: list[Array], name: str, way: str) -> None:
    want = expected(name)
    assert len(got) == len(want) > 0
    for i, (mine, theirs) in enumerate(zip(got, want, strict=True)):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype), f"{name}, result {i}, {way}"
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-6, err_msg=f"{name}, result {i}, {way}")


@in_one_test(LINES)
def test_a_line_of_torch_gives_what_torch_gives(name: str) -> None:
    check([t.numpy() for t in run(name, [Tensor(INPUTS[need]) for need in LINES[name][0].split()])], name, "eager")


@cache
def traced() -> lucid.Graph:
    """All lines with symbolic sizes."""
    kinds = {name: "int64" if name in WHOLE else "bool" if name in FLAGS else "float32" for name in SPECS}

    def model(*tensors: Tensor) -> list[list[Tensor]]:
        operands = dict(zip(SPECS, tensors, strict=True))
        return [run(name, [operands[need] for need in needs.split()]) for name, (needs, _) in LINES.items()]

    specs = [lucid.spec(*shape, dtype=kinds[name]) for name, shape in SPECS.items()]
    return lucid.trace(model, *specs)


@pytest.mark.parametrize("target", TARGETS)
def test_the_lines_give_the_same_traced_with_symbolic_sizes_and_exported(target: str) -> None:
    session = Session(to_onnx(traced(), target=target), threads=1)
    outputs = iter(session.run(dict(zip(session.inputs, INPUTS.values(), strict=True))).values())
    for name in LINES:
        check([np.asarray(next(outputs)) for _ in expected(name)], name, target)
