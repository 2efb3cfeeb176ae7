"""`lucid.quantize`: a model whose layers hold their weights in few bits."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from lucid.nn.layers import Embedding, Linear
from lucid.nn.module import Module, Parameter
from lucid.nn.quantized import QuantizedWeight
from lucid.observing import Call, Use, WatchedWeight, run_call
from lucid.quantization import Blocks, Hessian, gptq, hqq, rtn
from lucid.quantization.blocks import check_format
from lucid.types import Array, show_shape

M = TypeVar("M", bound=Module)
Method: TypeAlias = Literal["rtn", "hqq", "gptq"]
METHODS = ("rtn", "hqq", "gptq")
Bits: TypeAlias = int | Mapping[str, int | None]


class Choice(NamedTuple):
    """The bits of the layers whose paths match a pattern; None: they stay as they are."""

    option: str
    pattern: str
    bits: int | None


class Layer(NamedTuple):
    """A layer whose weight can be in few bits, and its path."""

    path: str
    module: Linear | Embedding


def quantize(
    model: M,
    bits: Bits = 4,
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
        bits: 4 or 8; or by layer, as ``{"lm_head": 8, "model.layers.0.*": None, "*": 4}``: a layer gets the bits of the
            first pattern that matches its path, and stays as it is with None or without a match. A weight that several
            layers share gets those of the first pattern that matches one of them.
        block: how many weights along the input axis share a scale: a power of two from 16 to 2048. A row whose length
            it does not divide is padded.
        symmetric: whether the middle code is 0 in all blocks, so that no zero points are stored.
        method: "rtn" rounds to the nearest code; "hqq" (half-quadratic quantisation) fits scales and zeros to the
            weights; "gptq" (Frantar et al. 2022) lets later weights make up for the errors of earlier ones, as the
            inputs in `calibration` need it. Tables that are only indexed are rounded.
        search: whether "rtn" also tries smaller ranges for each block: slower, and nearer.
        skip: paths or patterns of layers that stay as they are, whatever `bits` says.
        smallest_table: embedding tables with fewer rows stay as they are: those of positions and types are small, and
            models read them in other ways than by index.
        calibration: of "gptq": calls of the model, each an array, a sequence of them, or a mapping by name; some
            hundred sentences do.

    Raises:
        ValueError: for bits, a block or a method that do not exist; an option that the method does not have; a path
            that matches no layer; a model without such layers or that has been quantised; weights or inputs of layers
            with NaN or infinity; a layer that no call of the calibration reaches.
    """
    patterns = [Choice("skip", pattern, None) for pattern in ([skip] if isinstance(skip, str) else skip)]
    patterns += _by_pattern(bits, block)
    _check_method(method, symmetric, search, calibration)
    if any(isinstance(module, QuantizedWeight) for module in model.modules()):
        raise ValueError("quantize: the model has been quantised before; quantise the one with float weights")
    made = _copied(model)
    layers = list(_layers(made, smallest_table))
    if not layers:
        raise ValueError(
            f"quantize: {type(model).__name__} has no linear layers and no embedding tables of {smallest_table} rows"
        )
    chosen = _chosen(patterns, layers)
    seen = {} if calibration is None else _hessians(model, set(chosen), calibration)
    done: dict[int, QuantizedWeight] = {}  # by the parameter, which layers may share
    for path, module in layers:
        weight = module.weight
        if id(weight) not in chosen:
            continue
        if id(weight) not in done:
            try:
                hessian = seen.get(id(weight))
                if method == "gptq" and isinstance(module, Linear) and hessian is None:
                    raise ValueError("no call of the calibration reaches it; give others, or skip it")
                blocks = _found(weight.numpy(), chosen[id(weight)], block, symmetric, method, search, hessian)
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


def _hessians(model: Module, wanted: set[int], calibration: Iterable[Call]) -> dict[int, Hessian]:
    """What the wanted weights are multiplied with, by their parameters."""
    watched = _copied(model)
    hessians: dict[int, Hessian] = {}
    for _, module in list(_layers(watched, 0)):
        parameter = module.weight
        if id(parameter) in wanted:
            hessian = hessians.setdefault(id(parameter), Hessian(parameter.numpy().shape[1]))
            see = partial(_add_products, hessian)
            module.weight = WatchedWeight(parameter, see)  # type: ignore[assignment]
    for number, call in enumerate(calibration):
        run_call(watched, call, f"quantize: call {number} of the calibration")
    return {parameter: hessian for parameter, hessian in hessians.items() if hessian.count}


def _add_products(hessian: Hessian, use: Use) -> None:
    if use.kind == "product":
        hessian.add(use.given.numpy())


def _layers(model: Module, smallest_table: int) -> Iterator[Layer]:
    """The linear layers, and the tables that have so many rows or share the weight of one."""
    multiplied = {id(module.weight) for module in model.modules() if isinstance(module, Linear)}
    for path, module in model.named_modules():
        if not isinstance(module, (Linear, Embedding)) or not isinstance(module.weight, Parameter):
            continue
        if id(module.weight) in multiplied or module.weight.numpy().shape[0] >= smallest_table:
            yield Layer(path, module)


def _by_pattern(bits: Bits, block: int) -> list[Choice]:
    if not isinstance(bits, Mapping):
        check_format("quantize", bits, block)
        return [Choice("bits", "*", bits)]
    if not bits:
        raise ValueError('quantize: bits is {}, expected 4, 8, or bits by pattern, such as {"lm_head": 8, "*": 4}')
    for width in bits.values():
        if width is not None:
            check_format("quantize", width, block)
    return [Choice("bits", pattern, width) for pattern, width in bits.items()]


def _chosen(choices: Sequence[Choice], layers: Sequence[Layer]) -> dict[int, int]:
    """The bits of each weight that gets few: those of the first choice that matches one of its layers."""
    chosen: dict[int, int | None] = {}
    for option, pattern, bits in choices:
        matching = [layer for layer in layers if fnmatchcase(layer.path, pattern)]
        if not matching:
            some = ", ".join([layer.path for layer in layers][:5])
            raise ValueError(f"quantize: {option} names {pattern!r}, which no layer has; there are {some}, ...")
        for layer in matching:
            chosen.setdefault(id(layer.module.weight), bits)
    return {weight: bits for weight, bits in chosen.items() if bits is not None}
