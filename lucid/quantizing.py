"""`lucid.quantize`: a model whose layers hold their weights in few bits."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from lucid.nn.layers import Embedding, Linear
from lucid.nn.module import Module, Parameter
from lucid.nn.quantized import QuantizedWeight
from lucid.quantization import rtn
from lucid.quantization.blocks import check_format
from lucid.types import show_shape

M = TypeVar("M", bound=Module)
Method: TypeAlias = Literal["rtn"]


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
    skip: str | Sequence[str] = (),
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
        method: "rtn" rounds to the nearest code.
        skip: paths of layers that stay as they are, such as "lm_head" or "encoder.*.dense".

    Raises:
        ValueError: for bits or a block that do not exist, a path that matches no layer, a model without such layers or
            that has been quantised, and weights with NaN or infinity.
    """
    check_format("quantize", bits, block)
    if method != "rtn":
        raise ValueError(f'quantize: method is {method!r}, expected "rtn"')
    if any(isinstance(module, QuantizedWeight) for module in model.modules()):
        raise ValueError("quantize: the model has been quantised before; quantise the one with float weights")
    tensors = [tensor for _, tensor in (*model.named_parameters(), *model.named_buffers())]
    made = copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})
    layers = list(_layers(made))
    if not layers:
        raise ValueError(f"quantize: {type(model).__name__} has no linear layers and no embedding tables")
    skipped = _matching([skip] if isinstance(skip, str) else skip, layers)
    done: dict[int, QuantizedWeight] = {}  # by the parameter, which layers may share
    kept = {id(layer.module.weight) for layer in layers if layer.path in skipped}
    for path, module in layers:
        weight = module.weight
        if id(weight) in kept:
            continue
        if id(weight) not in done:
            try:
                blocks = rtn(weight.numpy(), bits, block, symmetric)
            except ValueError as error:
                raise ValueError(f"quantize: {path}.weight {show_shape(weight.shape)}: {error}") from error
            done[id(weight)] = QuantizedWeight(blocks, weight.dtype)
        module.weight = done[id(weight)]  # type: ignore[assignment]  # F.linear and F.embedding take both
    return made


def _layers(model: Module) -> Iterator[Layer]:
    for path, module in model.named_modules():
        if isinstance(module, (Linear, Embedding)) and isinstance(module.weight, Parameter):
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
