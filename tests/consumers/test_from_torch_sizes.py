"""`lucid.from_torch` of modules that compute with sizes: as fractions, rounded, as numbers of parts and of cells."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import lucid
from lucid.importing import TorchImportError
from tests.consumers.test_from_torch import AXES, Function, agree

X = torch.randn(3, 6, 8)
IMAGES = torch.randn(2, 3, 12, 16)
FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "a mean": lambda x: x.sum(1) * (1 / x.shape[1]),
    "roots": lambda x: (x * x.shape[1] ** -0.5, x / x.shape[1] ** 0.5, x * x.shape[1] ** -1),
    "sums of fractions": lambda x: (
        x + x.shape[1] * 0.3 - x.shape[0] / 3,
        (x.shape[1] + 0.5) * (x.shape[0] - 0.25) * x,
    ),
    "a quotient of two": lambda x: x.shape[1] / x.shape[0] * x,
    "integers": lambda x: (x.long() * (x.shape[1] / 2), x.long() // (1 / x.shape[1])),
    "limits": lambda x: (x.clamp(-1 / x.shape[1], x.shape[1] / 9), x > x.shape[1] / 8),
    "choices": lambda x: (x.masked_fill(x > 0, 1 / x.shape[1]), torch.where(x > 0, x.shape[1] / 2, x)),
    "one everywhere": lambda x: (
        torch.full((x.shape[0],), x.shape[1]),
        torch.full((2,), x.shape[1] / 2),
        torch.full_like(x, x.shape[1] ** -1),
        x.new_full((3,), x.shape[1]),
        torch.tensor(x.shape[1] / 3),
    ),
    "chunks": lambda x: x.repeat(1, 2, 1).chunk(2, 1),
    "halves that are multiplied": lambda x: (lambda a, b: a * b.sigmoid())(*x.repeat(1, 2, 1).chunk(2, 1)),
    "the first of three parts": lambda x: F.pad(x, (0, 0, 1, 1)).split((x.shape[1] + 2) // 2, 1)[:2],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    agree(Function(FUNCTIONS[name]).eval(), X)


def test_sizes_are_rounded_as_python_does() -> None:
    module = Function(lambda x: [x[:, : round(x.shape[1] * part)].sum(1) for part in (0.5, 0.25, 0.625)]).eval()
    imported = lucid.from_torch(module, torch.ones(2, 6), dynamic=[AXES])
    session = lucid.runtime.Session(lucid.export.to_onnx(imported))
    for length in range(1, 25):
        expected = [round(length * part) for part in (0.5, 0.25, 0.625)]
        assert [int(result[0]) for result in session.run({"x": np.ones((2, length), np.float32)}).values()] == expected
        assert [int(result.numpy()[0]) for result in imported(lucid.ones(2, length))] == expected


def test_numbers_made_of_sizes_are_outputs() -> None:
    module = Function(lambda x: {"half": x.shape[1] / 2, "part": x.shape[0] / x.shape[1], "square": x.shape[1] ** 2})
    imported = lucid.from_torch(module.eval(), X, dynamic=[AXES])
    outputs = lucid.runtime.Session(lucid.export.to_onnx(imported)).run({"x": np.ones((2, 5, 8), np.float32)})
    eager = {name: value.numpy() for name, value in imported(lucid.ones(2, 5, 8)).items()}
    for results in (outputs, eager):
        assert {name: value.dtype for name, value in results.items()} == {"half": "f4", "part": "f4", "square": "i8"}
        np.testing.assert_allclose([results["half"], results["part"], results["square"]], [2.5, 0.4, 25], rtol=1e-6)


def test_a_size_rounded_from_an_inexact_fraction_is_refused_with_the_way_out() -> None:
    module = Function(lambda x: F.interpolate(x[None], scale_factor=(0.7, 1.5), mode="area")).eval()
    imported = lucid.from_torch(module, X, dynamic=[(3, "H", "W")])
    with pytest.raises(
        NotImplementedError, match=r"other than halves, .*: write it in integers, x.shape\[1\] \* 3 // 10"
    ):
        lucid.export.to_onnx(imported)


@pytest.mark.parametrize(
    ("mode", "axes", "options"),
    [
        ("nearest-exact", 2, {"scale_factor": (2, 1.5)}),
        ("nearest-exact", 2, {"size": (7, 9)}),
        ("nearest-exact", 1, {"scale_factor": 0.5}),
        ("nearest-exact", 3, {"scale_factor": 2}),
        ("nearest", 3, {"size": (3, 5, 7)}),
        ("trilinear", 3, {"scale_factor": 2}),
        ("trilinear", 3, {"size": (3, 5, 7), "align_corners": True}),
        ("area", 2, {"scale_factor": 0.5}),
        ("area", 2, {"scale_factor": 2.5, "recompute_scale_factor": True}),
    ],
)
def test_images_of_any_size_are_resized(mode: str, axes: int, options: dict[str, Any]) -> None:
    module = Function(lambda x: F.interpolate(x, mode=mode, **options)).eval()
    example = torch.randn(2, 3, 12, 16, 4)[(..., *(0,) * (3 - axes))]
    names = ("N", 3, "H", "W", "D")[: 2 + axes]
    imported = lucid.from_torch(module, example, dynamic=[names])
    session = lucid.runtime.Session(lucid.export.to_onnx(imported))
    for sizes in ((7, 5, 2), (10, 24, 6)):
        x = torch.randn(1, 3, *sizes[:axes])
        for result in (imported(lucid.tensor(x.numpy())).numpy(), session(x.numpy()).numpy()):
            np.testing.assert_allclose(result, module(x).numpy(), atol=2e-5)


def test_means_keep_an_axis_of_any_size() -> None:
    module = Function(lambda x: (F.adaptive_avg_pool2d(x, (1, None)), F.adaptive_avg_pool2d(x, (5, None)))).eval()
    agree(module, IMAGES, axes=("N", 3, 12, "L"))


def test_a_root_that_torch_computes_once_is_refused_with_the_way_out() -> None:
    with pytest.raises(TorchImportError, match=r"math.sqrt\(size\), which torch computes once, size \* 1.0 or size"):
        lucid.from_torch(Function(lambda x: x / math.sqrt(x.shape[1])).eval(), X, dynamic=[AXES])


class Pair(NamedTuple):
    values: torch.Tensor
    mask: torch.Tensor | None = None


class Nested(nn.Module):
    """Parts of inputs that are no tensors."""

    def forward(self, pair, options):
        x = pair.values * options["factor"] + options["x"]
        return Pair(x if pair.mask is None else torch.where(pair.mask, x, 0), pair.mask)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("masked", [True, False])
def test_inputs_have_parts_that_are_no_tensors(rows: int, masked: bool) -> None:
    x, own = X[:rows], lucid.ones(2, 4, 8)
    imported = lucid.from_torch(
        Nested().eval(), Pair(x, x > 0 if masked else None), {"factor": 1.5, "unused": None, "x": x}
    )
    options = {"factor": 1.5, "unused": None, "x": own}
    result = imported(Pair(own, own > 0 if masked else None), options)[0]
    assert result.shape == (2, 4, 8) and result.numpy().min() == 2.5
    inputs = lucid.runtime.Session(lucid.export.to_onnx(imported)).inputs
    assert list(inputs) == ["pair.0", *["pair.1"] * masked, "options.x"]
    for other, message in (({**options, "factor": 2}, "factor is 2"), ({**options, "unused": own}, "a tensor")):
        with pytest.raises(ValueError, match=f"^input options.*{message}, expected .*, as in the example"):
            imported(Pair(own, own > 0 if masked else None), other)
