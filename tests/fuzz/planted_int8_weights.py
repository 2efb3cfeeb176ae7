"""Faults of int8 products to plant: in the ops, in the weight, and in the forms that write them."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucid import Tensor
from lucid.export.builder import Builder
from lucid.nn.quantized import Int8Weight
from lucid.ops import int8
from lucid.ops.elementwise import floor
from tests.fuzz.planting import Faults, Patch, changed

INT8_WEIGHTS = Faults()


@INT8_WEIGHTS.fault("inputs are rounded down to codes")
def _(patch: Patch) -> None:
    patch.setattr(int8, "round_", floor)


@INT8_WEIGHTS.fault("the sums of a weight's rows are those of its codes")
def _(patch: Patch) -> None:
    patch.setattr(int8, "row_sums", lambda weight, scales: weight.astype(scales.dtype).sum(axis=-1))


@INT8_WEIGHTS.fault("the parts of an int8 weight have its first scales")
def _(patch: Patch) -> None:
    right = Int8Weight.slice_rows

    def slice_rows(self: Int8Weight, start: int, stop: int, suffix: str) -> Int8Weight:
        part = right(self, start, stop, suffix)
        part.scales = Tensor(self.scales.numpy()[: stop - start])
        return part

    patch.setattr(Int8Weight, "slice_rows", slice_rows)


def _without_zero(build: Builder, inputs: list[Any], attributes: dict[str, Any]) -> None:
    inputs[2:] = []


INT8_WEIGHTS.written("int8 products forget that 0 has a code", "MatMulInteger", _without_zero)
INT8_WEIGHTS.exported(
    "0 has the next code where ranges are known", int8.int8_linear_static, changed(4, lambda zero: zero + np.uint8(1))
)
INT8_WEIGHTS.exported(
    "all rows of an int8 table have the scale of the first",
    int8.int8_embedding,
    changed(2, lambda scales: np.repeat(scales[:1], len(scales))),
)
