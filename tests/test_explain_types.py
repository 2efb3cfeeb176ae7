"""`explain` names ops computed in a wider element type than their input: the cause, and what to write instead."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import Tensor, nn, ops
from lucid.core.graph.types import DType, bfloat16, float16, float32, float64
from lucid.export import explain

SPEC = lucid.spec("N", 4)


class Scaled(nn.Module):
    """A table made with NumPy, in float64."""

    def __init__(self) -> None:
        self.linear = nn.Linear(4, 4)
        self.table = nn.Parameter(lucid.tensor(np.linspace(0, 1, 4), dtype=float64))

    def forward(self, x: Tensor) -> Tensor:
        scaled: Tensor = self.linear(x) * self.table
        return scaled.exp() + x


def test_a_parameter_of_float64_is_named_once_and_not_what_follows() -> None:
    assert str(explain(nn.Sequential(Scaled(), Scaled()), SPEC)) == textwrap.dedent(
        """\
        target any, opset 23, onnxruntime >= 1.28
        0/mul  in float64, with float32 operands
               because   0.table is float64[4]
               instead   0.table.astype(lucid.float32)"""
    )


def test_inputs_constants_and_results_of_float64_are_named() -> None:
    def promotions_of(model: object, *specs: lucid.TensorType) -> list[tuple[str, str]]:
        return [(p.op, p.because) for p in explain(model, *specs).promotions]  # type: ignore[arg-type]

    wide = lucid.spec("N", 4, dtype=float64)
    assert promotions_of(lambda x, y: x - y, SPEC, wide) == [("sub", "the input y is float64[N, 4]")]
    assert promotions_of(lambda x: x * np.linspace(0, 1, 4), SPEC) == [("mul", "a constant is float64[4]")]
    assert promotions_of(lambda x, y: x + y.exp(), SPEC, wide) == [("add", "the result of exp is float64[N, 4]")]
    half = lucid.spec("N", 4, dtype=float16)
    assert explain(lambda x: x * np.ones(4), half).promotions[0].narrow == float16


def test_what_was_meant_is_not_told() -> None:
    wide = lucid.spec("N", 4, dtype=float64)
    for model, kind in (
        (lambda x: x * np.float64(2) / 3.0, SPEC),  # numbers take the tensor's type
        (lambda x: x * np.linspace(0, 1, 4, dtype=np.float32), SPEC),
        (lambda x: x.astype(float64).exp().astype(float32) + x, SPEC),
        (lambda x: x * np.linspace(0, 1, 4), wide),
    ):
        report = explain(model, kind)
        assert not report.promotions
        assert not report.tells
        assert str(report).endswith("no form was refused: each node has the form that is best for the target")


@pytest.mark.parametrize(
    ("model", "dtype", "wide", "kernel"),
    [(lambda x: ops.cumsum(x, axis=0), float32, float64, "CumSum"), (ops.exp, bfloat16, float32, "Exp")],
)
def test_a_node_that_the_export_widens_says_why(model: Any, dtype: DType, wide: DType, kernel: str) -> None:
    report = str(explain(model, lucid.spec("N", 4, dtype=dtype)))
    assert f"in {wide} between casts: 3 nodes" in report
    assert f"refused   {dtype}: onnxruntime's CPU provider has no {dtype} kernel for {kernel}" in report


def test_notebooks_show_wider_element_types() -> None:
    shown = explain(Scaled(), SPEC)._repr_html_()
    assert "in float64, with float32 operands" in shown
    assert "instead: table.astype(lucid.float32)" in shown
