"""Models quantized by `--bits` and the options that go with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from lucid.cli.errors import usage
from lucid.cli.on_demand import command_module
from lucid.cli.options.groups import QuantizationOptions, QuantizedModelOptions, WeightOptions, values_of
from lucid.cli.source import adapters_of, checkpoint_in, checkpoint_of, load_model
from lucid.models import Pretrained, with_adapter_inputs
from lucid.nn.decoding import CausalDecoder
from lucid.nn.module import Module
from lucid.nn.quantizing.quantize import Bits, quantize
from lucid.testing.quantizing_cost import QuantizingCost, measurable, quantizing_cost
from lucid.tracing.parts import ModelPart
from lucid.tracing.trace import Model

_UNCHANGED = "float"


def load_quantized(options: QuantizedModelOptions, mapped: bool = True) -> tuple[Model, Module | None]:
    """The model of `load_model`, and its source if --bits quantizes it.

    With `mapped`, a checkpoint that needs no calibration is read layer by layer from the mapped file. With
    --adapter-inputs, its layers take adapters.
    """
    model, original = _load_quantized(options, mapped)
    if not options.adapter_inputs:
        return model, original
    if not options.adapter or not isinstance(model, Pretrained):
        raise usage("--adapter-inputs: for a checkpoint and adapters that fit it; name these with --adapter FOLDER")
    return with_adapter_inputs(model, adapters_of(options)), original


def _load_quantized(options: QuantizedModelOptions, mapped: bool) -> tuple[Model, Module | None]:
    check_quantization(options)
    rounded = options.bits is not None
    mapped = mapped and rounded and only_rounds(options) and checkpoint_of(options.source) is not None
    mapped = mapped and options.via is None
    model = load_model(options, dequantize=rounded, mapped=mapped)
    arguments = quantize_arguments(options, checkpoint_in(options), isinstance(model, CausalDecoder))
    if arguments is None:
        return model, None
    if not isinstance(model, Module):
        raise usage("--bits: SOURCE is a function, expected a Module, whose weights can be quantized")
    small = quantize(model, **arguments, dtype="float32" if mapped else None)
    return small.to("float32") if mapped else small, model


def measured_cost(source: Module | None, model: Model, part_of: Callable[[Any], ModelPart]) -> QuantizingCost | None:
    """The cost of quantizing a part of a model, against its source, which becomes float32.

    None without a source, and for one that is too large to measure, which `print_cost` says.
    """
    if source is None or not measurable(source):
        return None
    return quantizing_cost(part_of(source.to("float32")), part_of(model))


def load_precisions(options: QuantizedModelOptions, dtype: str | None) -> list[tuple[Model, Module | None, str | None]]:
    """The model in each precision of --bits 8,4,float, and in --dtype float16 where that is given with several of them.

    Of each the model, the one that it was quantized from, and the dtype in which its other weights are stored.
    """
    if not several_precisions(options.bits):
        return [(*load_quantized(options), dtype)]
    names = str(options.bits).split(",")
    if len({*names}) < len(names):
        raise usage(f"--bits {options.bits}: expected each precision once")
    unset: dict[str, Any] = dict.fromkeys(field.name for field in fields(QuantizationOptions))
    unchanged = replace(options, **unset)
    each: list[tuple[QuantizedModelOptions, str | None]] = [
        (unchanged if name == _UNCHANGED else replace(options, bits=name), None) for name in names
    ]
    each += [(unchanged, dtype)] * (dtype is not None)
    return [(*load_quantized(one, mapped=False), stored) for one, stored in each]


def several_precisions(bits: str | None) -> bool:
    """Whether --bits names several precisions, such as 8,4,float, and not bits by pattern."""
    names = (bits or "").split(",")
    return len(names) > 1 and all(name.isdecimal() or name == _UNCHANGED for name in names)


def only_rounds(options: QuantizationOptions) -> bool:
    """Whether quantizing needs only the weights, so that they can be read one by one from the mapped file."""
    return options.method != "gptq" and options.activations is None


def check_quantization(options: WeightOptions) -> None:
    """Refuse options of quantized weights without --bits, and --text where nothing reads it, or where it is missing."""
    others = _values(options)
    activations = others.get("activations")
    if others.pop("bits") is None:
        if unused := [name for name, value in others.items() if value]:
            example = 4 if activations is None else 8
            raise usage(f"--{', --'.join(unused)}: for quantized weights; give --bits {example} too")
    elif options.learns and options.text is None:
        what = "--method gptq" if activations is None else "--activations static"
        raise usage(f"{what} learns from texts: give a file of some hundred sentences, as --text texts.txt")
    elif options.text is not None and not options.reads_texts:
        raise usage(
            "--text is for --method gptq and --activations static, for quantize --target-error, and for report; leave "
            "it out"
        )


def quantize_arguments(options: WeightOptions, checkpoint: Path | None, decoder: bool) -> dict[str, Any] | None:
    """The arguments of `lucid.quantize`; None without --bits. A decoder reads --text whole, other models by line."""
    if options.bits is None:
        return None
    calibration = text_calls(options.text, checkpoint, decoder) if options.learns else None
    arguments = _values(options) | {"bits": read_bits(options.bits), "calibration": calibration}
    del arguments["text"]
    return {name: value for name, value in arguments.items() if value is not None and value != []}


def _values(options: WeightOptions) -> dict[str, Any]:
    return values_of(options, QuantizationOptions if isinstance(options, QuantizationOptions) else WeightOptions)


def read_bits(text: str) -> Bits:
    """``4``, or bits by pattern: ``lm_head=8,*=4``."""
    if text.isdecimal():
        return int(text)
    widths: dict[str, int | None] = {}
    for part in text.split(","):
        pattern, equals, bits = (each.strip() for each in part.rpartition("="))
        if not equals or not pattern or pattern in widths or not (bits.isdecimal() or bits == _UNCHANGED):
            raise usage(
                f'--bits {text}: expected 4, 8, or bits by pattern, each once, such as "lm_head=8,*=4"; several '
                "precisions, such as 8,4, are for lucid export --for transformers.js"
            )
        widths[pattern] = None if bits == _UNCHANGED else int(bits)
    return widths


def text_calls(text: Path | None, checkpoint: Path | None, decoder: bool) -> list[Any] | None:
    """The texts of --text as calls of a model; None without the option."""
    if text is None:
        return None
    if checkpoint is None:
        raise usage(
            "--text: SOURCE has no tokenizer; give a checkpoint (a folder or a GGUF file) as SOURCE or --weights"
        )
    calls: list[Any] = command_module("calibration_texts").calls(text, checkpoint, decoder)
    return calls
