"""`lucid.from_torch` of modules that put values, computed of the values at a mask, at the same mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import lucid
from tests.consumers.test_from_torch import AXES, Function, agree

X = torch.randn(3, 6, 8)


def put(change: Callable[..., Any]) -> nn.Module:
    """A module that changes a copy of x in place."""

    def changed(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        change(y, x)
        return y

    return Function(changed).eval()


def raised(y, x):
    y[x > 0] += 1


def chosen(y, x):
    mask = x > 0
    y[mask] = x.flip(-1)[mask]


def rows(y, x):
    mask = x[..., 0] > 0
    y[mask] = torch.tanh(y[mask] * 2 + torch.arange(8.0)) - x[mask]


def written_twice(y, x):
    y[y < 0] = -(y[y < 0] ** 2) + x.shape[1]


def scaled_by_their_length(y, x):
    mask = x[..., 0] > 0
    y[mask] = y[mask] / y[mask].norm(dim=-1, keepdim=True)


def summed(y, x):
    y[x > 0] = x[x > 0].cumsum(0)


@pytest.mark.parametrize("change", [raised, chosen, rows, written_twice])
def test_elements_at_a_mask_are_changed(change: Callable[..., Any]) -> None:
    agree(put(change), X)


@pytest.mark.parametrize("change", [scaled_by_their_length, summed])
def test_values_that_depend_on_other_places_are_refused(change: Callable[..., Any]) -> None:
    imported = lucid.from_torch(put(change), X, dynamic=[AXES])
    with pytest.raises(NotImplementedError, match="another one at each place"):
        imported(lucid.ones(2, 4, 8))
    with pytest.raises(TypeError, match="a traced boolean mask selects a number of elements that is unknown"):
        lucid.export.to_onnx(imported)


class Points(nn.Module):
    """The sampling and grouping of PointNet++: the farthest points, and their neighbours within a distance."""

    def forward(self, x):
        rows, count, _ = x.shape
        distance, far = torch.full((rows, count), 1e10), torch.zeros(rows, dtype=torch.long)
        chosen = torch.zeros(rows, 3, dtype=torch.long)
        for place in range(3):
            chosen[:, place] = far
            near = ((x - x[torch.arange(rows), far].unsqueeze(1)) ** 2).sum(-1)
            closer = near < distance
            distance[closer] = near[closer]
            far = distance.max(-1)[1]
        places = torch.arange(count).repeat(rows, count, 1)
        places[torch.cdist(x, x) > 4.0] = count
        places = F.pad(places.sort(-1)[0], (0, 3), value=1000)[..., :4].clamp(max=count)
        beyond = places == count
        places[beyond] = places[..., :1].repeat(1, 1, 4)[beyond]
        return chosen, places


def test_points_are_sampled_and_grouped() -> None:
    agree(Points().eval(), X)
