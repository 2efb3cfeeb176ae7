"""`lucid.quantize`: a model whose layers hold quantized weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from lucid.core.graph.types import Array, DTypeLike, as_dtype, show_shape
from lucid.core.words.name_patterns import names
from lucid.core.words.other_libraries import check_model
from lucid.core.words.progress import phase
from lucid.core.words.safe_text import listed
from lucid.nn.module import Module
from lucid.nn.quantized import Activations, Int8Weight, QuantizedWeight, WeightModule
from lucid.nn.quantizing.calibration import Call, Products, Seen, hessians
from lucid.nn.quantizing.int8_activations import Int8Quantizer, Ranges, check_activations
from lucid.nn.weights.layer_weights import Identity, LayerWeight, copy_of, layer_weights
from lucid.quantization import Blocks, by_row, fit, gptq, hqq, rtn
from lucid.quantization.blocks import check_format, joined

M = TypeVar("M", bound=Module)
Method: TypeAlias = Literal["fit", "rtn", "hqq", "gptq"]
METHODS = ("fit", "rtn", "hqq", "gptq")
_BLOCK = 32
Bits: TypeAlias = int | Mapping[str, int | None]


class Choice(NamedTuple):
    """The bits of layers whose paths match a pattern; None: they stay unquantized."""

    option: str
    pattern: str
    bits: int | None


def quantize(
    model: M,
    bits: Bits = 4,
    *,
    block: int | None = None,
    symmetric: bool = False,
    method: Method | None = None,
    search: bool = False,
    activations: Activations | None = None,
    ranges: Ranges | None = None,
    skip: str | Sequence[str] = (),
    smallest_table: int = 4096,
    calibration: Iterable[Call] | None = None,
    dtype: DTypeLike | None = None,
    progress: Callable[[str, int, int], object] | None = None,
) -> M:
    """The same model with the weights of its linear layers and embedding tables quantized.

    Modules declare these parameters (`nn.Module.quantizable`). The result has the same modules and calls, with an
    `nn.QuantizedWeight` or `nn.Int8Weight` in the place of each parameter; layers that shared a parameter share it.
    Everything else is shared with `model`, which is not changed.

    Args:
        model: any module.
        bits: 4 or 8; or by layer, as ``{"lm_head": 8, "model.layers.0.*": None, "*": 4}``: a layer gets the bits of the
            first pattern that matches its path, and stays as it is with None or without a match. A weight that several
            layers share gets those of the first pattern that matches one of them.
        block: the number of weights along the input axis that share a scale: a power of two from 16 to 2048, by default
            32. Rows are padded to a multiple of it. An 8-bit table that is only indexed has one scale for each row, as
            an `nn.Int8Weight`: only the kernels of products need blocks.
        symmetric: whether the middle code is 0 in all blocks, so that no zero points are stored.
        method: "rtn" rounds to the nearest code; "fit" fits the scale and the zero of each block to its weights by
            least squares; "hqq" (half-quadratic quantization) fits them by another norm; "gptq" (Frantar et al. 2022)
            lets later weights make up for the errors of earlier ones, as the inputs in `calibration` need it. Tables
            that are only indexed are rounded. By default it is "fit" for 4 bits, the best that needs no data, and
            "rtn" for 8 bits, where "fit" gains nothing, and with `search`.
        search: whether "rtn" also tries smaller ranges for each block: slower, more accurate.
        activations: also rounds the inputs of layers to 8 bits; each weight is then an `nn.Int8Weight` of 8 bits with a
            scale for each row. "dynamic" rounds an input to 256 numbers from its minimum to its maximum at run time;
            "dynamic_rows" does so for each row separately, which loses less and makes results of rows independent, but
            takes longer; "static" takes ranges from `calibration`.
        ranges: for "static": "minmax", the default, covers all inputs of the calibration; "percentile" 99.99 % of them;
            "entropy" the most informative range (see `lucid.quantization.ranges`).
        skip: paths or patterns of layers that stay unquantized; it overrides `bits`.
        smallest_table: embedding tables with fewer rows stay unquantized: those of positions and types are small.
        calibration: for "gptq" and "static": calls of the model, each an array, a sequence of arrays, or a mapping by
            name; a few hundred sentences are enough.
        dtype: the element type of block scales and of the rows of tables; by default that of each weight. A
            half-precision checkpoint loses less with "float32".
        progress: called before each layer, with its path, its number and the number of layers.

    Raises:
        TypeError: for a `dtype` that is not floating-point.
        ValueError: for bits, a block or a method that do not exist; an option that the method does not have; a path
            that matches no layer; a model without such layers or that has been quantized; weights or inputs of layers
            with NaN or infinity; a layer that no call of the calibration reaches.
    """
    check_model("quantize", model)
    patterns = [Choice("skip", pattern, None) for pattern in ([skip] if isinstance(skip, str) else skip)]
    patterns += _by_pattern(bits, _BLOCK if block is None else block)
    options = {"block": block, "symmetric": symmetric, "search": search}
    check_activations(activations, ranges, calibration, options, method)
    if activations is None:
        method = "rtn" if search and method is None else method
        _check_method(method, symmetric, search, calibration)
    elif dtype is not None:
        raise ValueError("quantize: dtype is for weights in blocks, and activations are given; leave out one of them")
    if dtype is not None and as_dtype(dtype).kind != "float":
        raise TypeError(f"quantize: dtype is {as_dtype(dtype)}, expected a floating-point type, that of the scales")
    result, layers = _copy(model, smallest_table)
    chosen = _bits_by_weight(patterns, layers, result)
    quantizer: Callable[[LayerWeight], WeightModule]
    if activations is None:
        seen = {} if calibration is None else hessians(model, set(chosen), calibration)
        multiplied = {id(layer.parameter) for layer in layers if layer.use != "table"}
        size = _BLOCK if block is None else block
        quantizer = _BlockQuantizer(chosen, size, symmetric, method, search, seen, dtype, multiplied)
    else:
        quantizer = Int8Quantizer(model, chosen, activations, ranges, calibration)
    _replace([layer for layer in layers if layer.identity in chosen], quantizer, progress)
    return result


def _copy(model: M, smallest_table: int) -> tuple[M, list[LayerWeight]]:
    """A copy of a model, and the weights of its layers. None of them is quantized yet."""
    if any(isinstance(module, WeightModule) for module in model.modules()):
        raise ValueError(
            "quantize: the model has been quantized before; quantize the one with float weights "
            "(lucid.models.load(..., dequantize=True) reads those of a quantized checkpoint)"
        )
    result = copy_of(model)
    layers = layer_weights(result, smallest_table)
    if not layers:
        raise ValueError(
            f"quantize: {type(model).__name__} has no linear layers and no embedding tables of {smallest_table} rows"
        )
    return result, layers


def _replace(
    layers: Sequence[LayerWeight],
    quantizer: Callable[[LayerWeight], WeightModule],
    progress: Callable[[str, int, int], object] | None,
) -> None:
    """Replace each weight by a quantized one; layers that share a weight share the new one."""
    done: dict[Identity, WeightModule] = {}
    with phase("rounding weights", len(layers)) as advance:
        for number, layer in enumerate(layers):
            if progress is not None:
                progress(layer.path, number, len(layers))
            if layer.identity not in done:
                try:
                    done[layer.identity] = quantizer(layer)
                except ValueError as error:
                    raise ValueError(f"quantize: {layer.key} {show_shape(layer.parameter.shape)}: {error}") from error
            layer.replace(done[layer.identity])
            advance(1)


@dataclass(frozen=True)
class _BlockQuantizer:
    """Quantizes weights in blocks; the arguments are those of `quantize`."""

    chosen: Mapping[Identity, int]
    block: int
    symmetric: bool
    method: Method | None
    search: bool
    seen: Mapping[Identity, Products]
    dtype: DTypeLike | None
    multiplied: Set[int]  # the identities of parameters that are in products

    def __call__(self, layer: LayerWeight) -> WeightModule:
        dtype = layer.parameter.dtype if self.dtype is None else as_dtype(self.dtype)
        if self.chosen[layer.identity] == 8 and id(layer.parameter) not in self.multiplied:
            return Int8Weight(by_row(layer.tensor.numpy()), dtype, None)
        products = self.seen.get(layer.identity)
        only_indexed = layer.use == "table" and products is not None and not products.count
        inputs = [] if products is None or only_indexed else products.by_rows()
        blocks = self._found(layer.tensor.numpy(), self.chosen[layer.identity], inputs)
        return QuantizedWeight(blocks, dtype)

    def _found(self, weight: Array, bits: int, seen: Sequence[Seen]) -> Blocks:
        if seen:
            return joined(
                [gptq(weight[rows], hessian.matrix, bits, self.block, self.symmetric) for rows, hessian in seen]
            )
        if self.method == "hqq":
            return hqq(weight, bits, self.block)
        if self.method == "fit" or (self.method is None and bits == 4):
            return fit(weight, bits, self.block, self.symmetric)
        return rtn(weight, bits, self.block, self.symmetric, search=self.search or self.method == "gptq")


def _check_method(method: Method | None, symmetric: bool, search: bool, calibration: Iterable[Call] | None) -> None:
    if method is not None and method not in METHODS:
        raise ValueError(f"quantize: method is {method!r}, expected one of {', '.join(METHODS)}")
    if method == "hqq" and symmetric:
        raise ValueError('quantize: method="hqq" finds zero points; leave out symmetric=True, or take another method')
    if search and method != "rtn":
        raise ValueError(f'quantize: search is for method="rtn", and the method is "{method}", which has its own')
    if (method == "gptq") != (calibration is not None):
        state = "no calibration" if calibration is None else "calibration"
        raise ValueError(
            f'quantize: method="{method or "fit"}" with {state}; method="gptq" needs calibration, the others take none'
        )


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


def _bits_by_weight(choices: Sequence[Choice], layers: Sequence[LayerWeight], model: Module) -> dict[Identity, int]:
    """The bits of each weight to quantize, by the first choice that matches one of its layers."""
    chosen: dict[Identity, int | None] = {}
    for option, pattern, bits in choices:
        matching = [layer for layer in layers if layer.matches(pattern)]
        if not matching:
            raise ValueError(f"quantize: {option} names {pattern!r}, {_unmatched(pattern, layers, model)}")
        for layer in matching:
            chosen.setdefault(layer.identity, bits)
    return {weight: bits for weight, bits in chosen.items() if bits is not None}


def _unmatched(pattern: str, layers: Sequence[LayerWeight], model: Module) -> str:
    """The end of the message about a pattern that matches no layer."""
    small = [layer for layer in layer_weights(model) if layer.matches(pattern)]
    if small:
        path, rows = small[0].path, small[0].parameter.size(0)
        return f"and {path} is a table of {rows} rows, which stays as it is without smallest_table={rows} or less"
    others = [f"{key} {show_shape(p.shape)}" for key, p in model.named_parameters() if names(pattern, key)]
    if others:
        reason = "as weights of experts, convolutions, recurrent layers, norms and biases do"
        return f"and {others[0]} stays as it is, {reason}; leave out the pattern"
    if inside := [layer.path for layer in layers if layer.path.startswith(f"{pattern}.")]:
        return f"which no layer has; {pattern}.* names {inside[0]}"
    paths = [layer.path for layer in layers if layer.path]
    if not paths:
        return "which no layer has; the model is itself the only one, which * names"
    return f"which no layer has; there are {listed(paths)}"
