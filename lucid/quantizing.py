"""`lucid.quantize`: a model whose layers hold their weights in few bits."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from lucid import ops
from lucid.nn.layers import Embedding, Linear
from lucid.nn.module import Module, Parameter
from lucid.nn.quantized import QuantizedWeight, StoredWeight
from lucid.ops.tensor import Tensor
from lucid.quantization import Blocks, Hessian, gptq, hqq, rtn
from lucid.quantization.blocks import check_format
from lucid.types import Array, show_shape

M = TypeVar("M", bound=Module)
Method: TypeAlias = Literal["rtn", "hqq", "gptq"]
METHODS = ("rtn", "hqq", "gptq")
Call: TypeAlias = Tensor | Array | Sequence[Any] | Mapping[str, Any]
"""The inputs of one call of a model: one, several by position, or by name."""


class Layer(NamedTuple):
    """A layer whose weight can be in few bits, and its path."""

    path: str
    module: Linear | Embedding


def quantize(
    model: M,
    bits: int = 4,
    *,
    block: int = 32,
    symmetric: bool = False,
    method: Method = "rtn",
    search: bool = False,
    skip: str | Sequence[str] = (),
    smallest_table: int = 4096,
    calibration: Iterable[Call] | None = None,
) -> M:
    """The same model with the weights of its linear layers and embedding tables in few bits.

    The result has the same modules and calls; a `weight` (N, K) is an `nn.QuantizedWeight` in the place of a parameter,
    and a shared one is shared. Everything else is shared with `model`, which is not changed.

    Args:
        model: any module.
        bits: 4 or 8.
        block: how many weights along the input axis share a scale: a power of two from 16 to 2048. A row whose length
            it does not divide is padded.
        symmetric: whether the middle code is 0 in all blocks, so that no zero points are stored.
        method: "rtn" rounds to the nearest code; "hqq" (half-quadratic quantisation) fits scales and zeros to the
            weights; "gptq" (Frantar et al. 2022) lets later weights make up for the errors of earlier ones, as the
            inputs in `calibration` need it. Tables that are only indexed are rounded.
        search: whether "rtn" also tries smaller ranges for each block: slower, and nearer.
        skip: paths of layers that stay as they are, such as "lm_head" or "encoder.*.dense".
        smallest_table: embedding tables with fewer rows stay as they are: those of positions and types are small, and
            models read them in other ways than by index.
        calibration: of "gptq": calls of the model, each an array, a sequence of them, or a mapping by name; some
            hundred sentences do.

    Raises:
        ValueError: for bits, a block or a method that do not exist; an option that the method does not have; a path
            that matches no layer; a model without such layers or that has been quantised; weights or inputs of layers
            with NaN or infinity; a layer that no call of the calibration reaches.
    """
    check_format("quantize", bits, block)
    _check_method(method, symmetric, search, calibration)
    if any(isinstance(module, QuantizedWeight) for module in model.modules()):
        raise ValueError("quantize: the model has been quantised before; quantise the one with float weights")
    made = _copied(model)
    layers = list(_layers(made, smallest_table))
    if not layers:
        raise ValueError(
            f"quantize: {type(model).__name__} has no linear layers and no embedding tables of {smallest_table} rows"
        )
    skipped = _matching([skip] if isinstance(skip, str) else skip, layers)
    kept = {id(layer.module.weight) for layer in layers if layer.path in skipped}
    layers = [layer for layer in layers if id(layer.module.weight) not in kept]
    seen = {} if calibration is None else _observed(model, {id(layer.module.weight) for layer in layers}, calibration)
    done: dict[int, QuantizedWeight] = {}  # by the parameter, which layers may share
    for path, module in layers:
        weight = module.weight
        if id(weight) not in done:
            try:
                hessian = seen.get(id(weight))
                if method == "gptq" and isinstance(module, Linear) and hessian is None:
                    raise ValueError("no call of the calibration reaches it; give others, or skip it")
                blocks = _found(weight.numpy(), bits, block, symmetric, method, search, hessian)
            except ValueError as error:
                raise ValueError(f"quantize: {path}.weight {show_shape(weight.shape)}: {error}") from error
            done[id(weight)] = QuantizedWeight(blocks, weight.dtype)
        module.weight = done[id(weight)]  # type: ignore[assignment]  # F.linear and F.embedding take both
    return made


def _found(
    weight: Array, bits: int, block: int, symmetric: bool, method: Method, search: bool, hessian: Hessian | None
) -> Blocks:
    if hessian is not None:
        return gptq(weight, hessian.matrix, bits, block, symmetric)
    if method == "hqq":
        return hqq(weight, bits, block)
    return rtn(weight, bits, block, symmetric, search=search or method == "gptq")


def _check_method(method: Method, symmetric: bool, search: bool, calibration: Iterable[Call] | None) -> None:
    if method not in METHODS:
        raise ValueError(f"quantize: method is {method!r}, expected one of {', '.join(METHODS)}")
    if method == "hqq" and symmetric:
        raise ValueError('quantize: method="hqq" finds zero points; leave out symmetric=True, or take another method')
    if search and method != "rtn":
        raise ValueError(f'quantize: search is for method="rtn", and the method is "{method}", which has its own')
    if (method == "gptq") != (calibration is not None):
        found = "no calibration" if calibration is None else "calibration"
        raise ValueError(f'quantize: method="{method}" with {found}; calibration is what method="gptq" learns from')


def _copied(model: M) -> M:
    """The same tree of modules over the same tensors."""
    tensors = [tensor for _, tensor in (*model.named_parameters(), *model.named_buffers())]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})


class _Observed(StoredWeight):
    """A weight that adds up what is multiplied with it."""

    def __init__(self, weight: Parameter) -> None:
        self.dtype, self.shape = weight.dtype, weight.shape
        self.weight = weight
        self.hessian: Hessian | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.hessian is None:
            self.hessian = Hessian(x.numpy().shape[-1])
        self.hessian.add(x.numpy())
        return ops.linear(x, self.weight)

    def rows(self, indices: Tensor) -> Tensor:
        return ops.embedding(indices, self.weight)


def _observed(model: Module, wanted: set[int], calibration: Iterable[Call]) -> dict[int, Hessian]:
    """What the wanted weights are multiplied with, by their parameters."""
    watched = _copied(model)
    weights: dict[int, _Observed] = {}
    for _, module in list(_layers(watched, 0)):
        parameter = module.weight
        if id(parameter) in wanted:
            module.weight = weights.setdefault(id(parameter), _Observed(parameter))  # type: ignore[assignment]
    for call in calibration:
        if isinstance(call, Mapping):
            watched(**call)
        elif isinstance(call, (Tensor, np.ndarray)):
            watched(call)
        else:
            watched(*call)
    return {parameter: weight.hessian for parameter, weight in weights.items() if weight.hessian is not None}


def _layers(model: Module, smallest_table: int) -> Iterator[Layer]:
    """The linear layers, and the tables that have so many rows or share the weight of one."""
    multiplied = {id(module.weight) for module in model.modules() if isinstance(module, Linear)}
    for path, module in model.named_modules():
        if not isinstance(module, (Linear, Embedding)) or not isinstance(module.weight, Parameter):
            continue
        if id(module.weight) in multiplied or module.weight.numpy().shape[0] >= smallest_table:
            yield Layer(path, module)


def _matching(patterns: Sequence[str], layers: Sequence[Layer]) -> set[str]:
    """The paths that match; every pattern must match one."""
    found: set[str] = set()
    for pattern in patterns:
        paths = {layer.path for layer in layers if fnmatchcase(layer.path, pattern)}
        if not paths:
            some = ", ".join([layer.path for layer in layers][:5])
            raise ValueError(f"quantize: skip names {pattern!r}, which no layer has; there are {some}, ...")
        found |= paths
    return found
