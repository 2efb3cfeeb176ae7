"""Operators of torch along axes, of tensors without axes: without torch."""

from __future__ import annotations

import pytest

import lucid
from lucid.importing.table import TABLE

OF_A_NUMBER = {  # torch takes a tensor without axes as if it had one
    "aten.softmax.int": ((0,), [1]),
    "aten.cumsum.default": ((-1,), [3]),
    "aten.sort.default": ((), [3, 0]),
    "aten.topk.default": ((1, 0), [3, 0]),
    "aten.max.dim": ((0, True), [3, 0]),
    "aten.argmax.default": ((0,), [0]),
    "aten.sum.dim_IntList": (([0], True), [3]),
    "aten.linalg_vector_norm.default": ((2, [0]), [3]),
    "aten.transpose.int": ((0, -1), [3]),
    "aten.flip.default": (([0],), [3]),
    "aten.gather.default": ((0, lucid.tensor(0)), [3]),
    "aten.scatter_add.default": ((0, lucid.tensor(0), lucid.tensor(2.0)), [5]),
    "aten.cummax.default": ((0,), [3, 0]),
    "aten.mode.default": ((0,), [3, 0]),
    "aten.nanmedian.dim": ((0,), [3, 0]),
}


@pytest.mark.parametrize("name", OF_A_NUMBER)
def test_operators_along_axes_take_numbers(name: str) -> None:
    arguments, expected = OF_A_NUMBER[name]
    result = TABLE[name](lucid.tensor(3.0), *arguments)
    results = list(result) if isinstance(result, tuple) else [result]
    assert [(each.shape, each.item()) for each in results] == [((), number) for number in expected]


def test_a_number_at_several_places_is_a_row() -> None:
    assert TABLE["aten.gather.default"](lucid.tensor(3.0), 0, lucid.tensor([0, 0])).tolist() == [3, 3]
