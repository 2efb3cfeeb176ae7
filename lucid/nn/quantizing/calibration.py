"""Calibration: runs a model on example calls and records the inputs of its weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from itertools import pairwise
from typing import Any, Literal, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np

from lucid.core.graph.types import Array, DType
from lucid.core.words.other_libraries import type_name
from lucid.core.words.progress import phase
from lucid.nn import functional as F
from lucid.nn.module import Module
from lucid.nn.quantized import WeightModule, rows_of
from lucid.nn.weights.layer_weights import Identity, LayerWeight, copy_of, layer_weights
from lucid.ops.tensor.tensor import Tensor
from lucid.quantization import Hessian, Histogram
from lucid.quantization.blocks import first_wrong

O = TypeVar("O")
Call: TypeAlias = Tensor | Array | Sequence[Any] | Mapping[str, Any]
"""The inputs of one call of a model: one, several by position, or by name."""


class Use(NamedTuple):
    """One use of a weight: the input and the result of a product, or indices and the rows read."""

    kind: Literal["product", "rows"]
    operand: Tensor | Array
    result: Tensor
    first: int = 0  # the first of the weight's rows in a product, which has as many as its result has columns


class WatchedWeight(WeightModule):
    """A weight that computes the same as another, and reports each use of it."""

    def __init__(self, weight: Tensor | WeightModule, see: Callable[[Use], None], first: int = 0) -> None:
        """`weight`: (N, K). `see` is called with each use. `first`: the row of a larger weight at which it begins."""
        self.weight, self.shape = weight, weight.shape
        self._see, self._first = see, first

    @property
    def dtype(self) -> DType:
        return self.weight.dtype

    def forward(self, x: Tensor) -> Tensor:
        output = F.linear(x, self.weight)
        self._see(Use("product", x, output, self._first))
        return output

    def rows(self, indices: Tensor) -> Tensor:
        output = F.embedding(indices, self.weight)
        self._see(Use("rows", indices, output))
        return output

    def slice_rows(self, start: int, stop: int, suffix: str) -> Self:
        return type(self)(rows_of(self.weight, start, stop, suffix), self._see, self._first + start)


class BoundCall(NamedTuple):
    """The arguments of a call, arrays as tensors; `by_name` has all that are given."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    by_name: Mapping[str, Any]


def bound_call(model: Module, call: Call, what: str) -> BoundCall:
    """The arguments for a model. `what` starts the messages.

    Raises:
        ValueError: for inputs with other names than the model's, and for NaN and infinity in them.
    """
    by_name = call if isinstance(call, Mapping) else {}
    in_order: Sequence[Any] = () if isinstance(call, Mapping) else call if isinstance(call, (list, tuple)) else (call,)
    signature = inspect.signature(model.forward)
    try:
        bound = signature.bind(*in_order, **by_name)
    except TypeError as error:
        got = ", ".join(map(str, by_name)) or f"{len(in_order)} inputs"
        expected = ", ".join(signature.parameters)
        raise ValueError(f"{what} has {got}, and the model takes {expected}: {error}") from None
    for name, value in bound.arguments.items():
        tensor = Tensor.from_array(value) if isinstance(value, np.ndarray) else value
        is_float = isinstance(tensor, Tensor) and tensor.dtype.kind == "float"
        if is_float and (wrong := first_wrong(tensor.numpy(), np.isfinite(tensor.numpy()))):
            raise ValueError(f"{what}: {name} has {wrong}, expected finite numbers")
        bound.arguments[name] = tensor
    return BoundCall(bound.args, bound.kwargs, bound.arguments)


Seen: TypeAlias = tuple[slice, Hessian]
"""Rows of a weight, and the inputs that they are multiplied with."""


class Products:
    """The inputs of products with a weight (N, K), by the rows that they multiply.

    Attention multiplies some rows of its joined projections with queries and others with keys.
    """

    def __init__(self, rows: int, size: int) -> None:
        self.rows, self.size = rows, size
        self._seen: dict[tuple[int, int], Hessian] = {}

    def add(self, use: Use) -> None:
        """Add the inputs of a product."""
        if use.kind == "product":
            reach = use.first, use.first + use.result.size(-1).__index__()
            self._seen.setdefault(reach, Hessian(self.size)).add(np.asarray(use.operand))

    @property
    def count(self) -> int:
        """The number of added inputs, counted once for each product."""
        return sum(hessian.count for hessian in self._seen.values())

    def by_rows(self) -> list[Seen]:
        """All rows in order, in the largest groups that are in the same products.

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


def hessians(model: Module, chosen: Set[Identity], calibration: Iterable[Call]) -> dict[Identity, Products]:
    """The products with the wanted weights."""
    return _observed(model, chosen, calibration, lambda layer: Products(*layer.tensor.numpy().shape), Products.add)


def histograms(model: Module, chosen: Set[Identity], calibration: Iterable[Call]) -> dict[Identity, Histogram]:
    """Histograms of the inputs of products with the wanted weights."""

    def add(histogram: Histogram, use: Use) -> None:
        if use.kind == "product":
            histogram.add(np.asarray(use.operand))

    return _observed(model, chosen, calibration, lambda layer: Histogram(), add)


@phase("running the calibration")
def _observed(
    model: Module,
    chosen: Set[Identity],
    calibration: Iterable[Call],
    record: Callable[[LayerWeight], O],
    add: Callable[[O, Use], None],
) -> dict[Identity, O]:
    """A record for each of the wanted weights, to which `add` has added each use.

    Raises:
        TypeError: for one call in the place of several, and what is no calls.
        ValueError: for a calibration without calls, inputs of other names than the model's, and NaN and infinity.
    """
    if isinstance(calibration, (Mapping, str)) or not isinstance(calibration, Iterable):
        raise TypeError(f"quantize: calibration is a {type_name(calibration)}, expected a list of calls: [call, ...]")
    watched = copy_of(model)
    records: dict[Identity, O] = {}
    for layer in layer_weights(watched):
        if layer.identity in chosen:
            layer.replace(WatchedWeight(layer.tensor, partial(add, records.setdefault(layer.identity, record(layer)))))
    calls = 0
    for calls, call in enumerate(calibration, 1):
        bound = bound_call(watched, call, f"quantize: call {calls - 1} of the calibration")
        watched(*bound.args, **bound.kwargs)
    if not calls:
        raise ValueError("quantize: the calibration has no calls; give some that are like those the model will get")
    return records
