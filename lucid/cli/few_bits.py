"""Models with quantized weights, as the options ask for them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lucid.cli.bits_options import FewBits
from lucid.cli.dispatch import command_module
from lucid.cli.errors import usage
from lucid.cli.options import Reading
from lucid.cli.source import checkpoint_of, load_model
from lucid.nn.decoding import CausalDecoder
from lucid.nn.module import Module
from lucid.nn.quantizing.quantize import Bits, quantize
from lucid.tracing.trace import Model

_KEPT = "float"


def load_in_few_bits(
    source: str, arguments: Mapping[str, Any], weights: Path | None, seed: int, given: FewBits, reading: Reading
) -> Model:
    """The model of `load_beside_source`."""
    return load_beside_source(source, arguments, weights, seed, given, reading)[0]


def load_beside_source(
    source: str, arguments: Mapping[str, Any], weights: Path | None, seed: int, given: FewBits, reading: Reading
) -> tuple[Model, Module | None]:
    """The model that SOURCE names (`load_model`), quantised if there is --bits; and then what it was quantised from.

    A checkpoint whose weights are only rounded is read layer by layer from the mapped file.

    Raises:
        CommandError, ValueError: as `load_model` and `in_few_bits`.
    """
    checkpoint, rounded = checkpoint_of(source), given.bits is not None
    mapped = checkpoint is not None and rounded and given.only_rounds
    model = load_model(source, arguments, weights, seed, dequantize=rounded, mapped=mapped, reading=reading)
    small = in_few_bits(model, given, weights or checkpoint, "float32" if mapped else None)
    small = small.to("float32") if mapped and isinstance(small, Module) else small
    return small, model if rounded and isinstance(model, Module) else None


def in_few_bits(model: Model, given: FewBits, checkpoint: Path | None, dtype: str | None = None) -> Model:
    """The model, quantised if there is --bits.

    Args:
        checkpoint: where the tokenizer is that --text needs.
        dtype: of the scales.

    Raises:
        CommandError: for options that do not go together.
        ValueError: as `lucid.quantize`.
    """
    options = arguments(given, checkpoint, isinstance(model, CausalDecoder))
    if options is None:
        return model
    if not isinstance(model, Module):
        raise usage("--bits: SOURCE is a function, expected a Module, whose weights can be quantized")
    return quantize(model, **options, dtype=dtype)


def arguments(given: FewBits, checkpoint: Path | None, decoder: bool) -> dict[str, Any] | None:
    """The arguments of `lucid.quantize`; None without --bits.

    Raises:
        CommandError: for options that do not go together, and --text without a tokenizer.
    """
    if given.bits is None:
        others = [name for name, value in given._asdict().items() if value and name != "bits"]
        if others:
            bits = 4 if given.activations is None else 8
            raise usage(f"--{', --'.join(others)}: for quantized weights; give --bits {bits} too")
        return None
    if given.learns and given.text is None:
        what = "--method gptq" if given.activations is None else "--activations static"
        raise usage(f"{what} learns from texts: give a file of some hundred sentences, as --text texts.txt")
    options: dict[str, Any] = {
        "bits": read_bits(given.bits),
        "block": given.block,
        "symmetric": given.symmetric,
        "method": given.method and given.method.value,
        "search": given.search,
        "activations": given.activations and given.activations.value,
        "ranges": given.ranges and given.ranges.value,
        "skip": given.skip,
        "calibration": text_calls(given.text, checkpoint, decoder) if given.learns else None,
    }
    return {name: value for name, value in options.items() if value is not None}


def read_bits(text: str) -> Bits:
    """``4``, or bits by pattern: ``lm_head=8,*=4``.

    Raises:
        CommandError: for anything else.
    """
    if text.isdecimal():
        return int(text)
    found: dict[str, int | None] = {}
    for part in text.split(","):
        pattern, equals, bits = (each.strip() for each in part.rpartition("="))
        if not equals or not pattern or pattern in found or not (bits.isdecimal() or bits == _KEPT):
            raise usage(f'--bits {text}: expected 4, 8, or bits by pattern, each once, such as "lm_head=8,*=4"')
        found[pattern] = None if bits == _KEPT else int(bits)
    return found


def text_calls(text: Path | None, checkpoint: Path | None, decoder: bool) -> list[Any] | None:
    """The texts of --text as calls of a model; None without the option."""
    if text is None:
        return None
    if checkpoint is None:
        raise usage(
            "--text: SOURCE has no tokenizer; give a checkpoint (a folder or a GGUF file) as SOURCE or --weights"
        )
    calls: list[Any] = command_module("texts").calls(text, checkpoint, decoder)
    return calls
