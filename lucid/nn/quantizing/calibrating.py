"""What the weights of a model are multiplied with, learnt from calls of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from itertools import pairwise
from typing import Protocol, TypeAlias, TypeVar

import numpy as np

from lucid.core.words.phases import phase
from lucid.nn.module import Module
from lucid.nn.quantizing.layer_weights import Identity, LayerWeight, copied, layer_weights
from lucid.nn.quantizing.observing import Call, Use, WatchedWeight, bound_call
from lucid.quantization import Hessian, Histogram

Seen: TypeAlias = tuple[slice, Hessian]
"""Rows of a weight, and what they are multiplied with."""


class Products:
    """The inputs of products with a weight (N, K), by the rows that they are with: attention multiplies parts of its
    joined projections with queries and others with keys."""

    def __init__(self, rows: int, size: int) -> None:
        self.rows, self.size = rows, size
        self._seen: dict[tuple[int, int], Hessian] = {}

    def add(self, use: Use) -> None:
        """Add the inputs of a product."""
        if use.kind == "product":
            reach = use.first, use.first + use.found.size(-1).__index__()
            self._seen.setdefault(reach, Hessian(self.size)).add(np.asarray(use.given))

    @property
    def count(self) -> int:
        """How many inputs were added, once for each product."""
        return sum(hessian.count for hessian in self._seen.values())

    def by_rows(self) -> list[Seen]:
        """All rows in order, in the largest parts whose rows are in the same products.

        Raises:
            ValueError: for rows that are in no product.
        """
        ends = sorted({0, self.rows}.union(*self._seen))
        return [(slice(start, stop), self._sum(start, stop)) for start, stop in pairwise(ends)]

    def _sum(self, start: int, stop: int) -> Hessian:
        total = Hessian(self.size)
        for (first, last), hessian in self._seen.items():
            if first <= start and stop <= last:
                total = total + hessian
        if not total.count:
            rows = "it" if (start, stop) == (0, self.rows) else f"its rows {start} to {stop - 1}"
            raise ValueError(f"no call of the calibration reaches {rows}; give others, or skip it")
        return total


class Inputs:
    """The inputs of all products with a weight, counted."""

    def __init__(self) -> None:
        self.histogram = Histogram()

    def add(self, use: Use) -> None:
        """Add the inputs of a product."""
        if use.kind == "product":
            self.histogram.add(np.asarray(use.given))


class _Observer(Protocol):
    def add(self, use: Use) -> None: ...


O = TypeVar("O", bound=_Observer)


def hessians(model: Module, wanted: Set[Identity], calibration: Iterable[Call]) -> dict[Identity, Products]:
    """The products with the wanted weights."""
    return _observed(model, wanted, calibration, lambda layer: Products(*layer.tensor.numpy().shape))


def histograms(model: Module, wanted: Set[Identity], calibration: Iterable[Call]) -> dict[Identity, Histogram]:
    """Of the inputs of products with the wanted weights."""
    observed = _observed(model, wanted, calibration, lambda layer: Inputs())
    return {identity: inputs.histogram for identity, inputs in observed.items()}


@phase("running the calibration")
def _observed(
    model: Module, wanted: Set[Identity], calibration: Iterable[Call], observer: Callable[[LayerWeight], O]
) -> dict[Identity, O]:
    """An observer for each of the wanted weights, which has seen each use of it.

    Raises:
        ValueError: for a calibration without calls, inputs of other names than the model's, and NaN and infinity.
    """
    watched = copied(model)
    observers: dict[Identity, O] = {}
    for layer in layer_weights(watched):
        if layer.identity in wanted:
            seen = observers.setdefault(layer.identity, observer(layer))
            layer.replace(WatchedWeight(layer.tensor, seen.add))
    calls = 0
    for calls, call in enumerate(calibration, 1):
        bound = bound_call(watched, call, f"quantize: call {calls - 1} of the calibration")
        watched(*bound.args, **bound.kwargs)
    if not calls:
        raise ValueError("quantize: the calibration has no calls; give some that are like those the model will get")
    return observers
