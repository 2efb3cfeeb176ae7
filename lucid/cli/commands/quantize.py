"""`lucid quantize`."""

from __future__ import annotations

import json as json_module
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lucid import models
from lucid.cli import terminal
from lucid.cli.errors import OK, CommandError, usage
from lucid.cli.model_inputs import missing_inputs
from lucid.cli.options.commands import Quantize
from lucid.cli.parity import cost_json, print_cost
from lucid.cli.python_source import is_import, no_such_source
from lucid.cli.quantizing import check_quantization, measured_cost, only_rounds, quantize_arguments, text_calls
from lucid.cli.source import checkpoint_in, load_model
from lucid.export import to_onnx
from lucid.export.exporter import check_folder
from lucid.files.folders import check_place, new_folder
from lucid.layouts.checkpoint_files import PROMPTS, copy_files, write_tokenizer
from lucid.nn.decoding import CausalDecoder
from lucid.nn.module import Module
from lucid.nn.published_model import PublishedModel
from lucid.nn.quantizing.quantize import quantize
from lucid.nn.weights.layer_weights import unchanged_bytes
from lucid.testing.precision.search import TargetError, fewest_bits
from lucid.testing.quantizing_cost import QuantizingCost
from lucid.tracing.parts import ModelPart

_MODEL = ".onnx"
_LARGE = 0.05  # of the result: what a type of modules takes to be named among what is unchanged


def run(options: Quantize) -> int:
    """Quantize, write, show; returns the exit code."""
    output = options.output
    terminal.check_apart(output, options.json)
    checkpoint = checkpoint_in(options)
    _check(options)
    weights = replace(options, bits=options.bits or "4")
    check_quantization(weights)
    if checkpoint is None and not is_import(options.source):
        raise no_such_source(options.source)
    if output.suffix.lower() != _MODEL and checkpoint is None:
        raise usage(f"--output {output}: a folder needs a checkpoint as SOURCE; write an ONNX file, as -o model.onnx")
    if output.suffix.lower() == _MODEL:
        check_folder(output)
    else:
        check_place(output)
    # Without calibration, weights are read from the mapped file layer by layer. Other models run, in float32.
    mapped = options.target_error is None and only_rounds(options)
    model = load_model(options, dequantize=True, mapped=mapped)
    if not isinstance(model, Module):
        raise usage(f"SOURCE {options.source!r} is a function, expected a Module, whose weights can be quantized")
    if missing := missing_inputs(model):
        raise usage(
            f"SOURCE {options.source!r} does not know its inputs: describe them to export, as in lucid export --bits "
            f"{weights.bits} {missing}, or return them from the method input_specs of the model"
        )
    before = _weight_bytes(model)
    arguments = quantize_arguments(weights, checkpoint, isinstance(model, CausalDecoder))
    assert arguments is not None, "there are bits"
    search: dict[str, Any] = {}
    if options.target_error is None:
        small = quantize(model, **arguments, dtype="float32" if mapped else None)
    else:
        small, search = _searched(model, arguments, options, checkpoint, options.target_error)
    after = _weight_bytes(small)
    _write(small, checkpoint, output, options.target)
    sizes = {"bytes_before": before, "bytes_after": after, "bytes_unchanged": unchanged_bytes(small)}
    data = {"file": str(output), **sizes, **search}
    source = model if options.check and not search else None  # a search has measured the error on texts
    cost = measured_cost(source, small, _whole)
    if options.json:
        terminal.print_json({**data, "quantizing": cost_json(cost)})
    else:
        _print(terminal.console(beside=output), data, output, options.verbose, source, cost)
    return OK


def _whole(model: Module) -> ModelPart:
    """A model as it is called, in float32, with all inputs that its tokenizer makes."""
    inputs = model.full_input_specs() if isinstance(model, PublishedModel) else {}
    return ModelPart(model.to("float32"), inputs)


def _weight_bytes(model: Module) -> int:
    return sum(parameter.numpy().nbytes for parameter in model.parameters())


def _check(options: Quantize) -> None:
    searches = options.target_error is not None
    if options.bits is None and not searches:
        raise usage("give --bits 4 or 8, or --target-error 0.02, which finds the fewest bits that stay below it")
    if options.bits is not None and searches:
        raise usage("--target-error finds the bits; leave out --bits")
    if searches and options.text is None:
        raise usage("--target-error measures on texts: give a file of some hundred sentences, as --text texts.txt")
    if searches and options.activations is not None:
        raise usage("--target-error finds the bits of weights in blocks; leave out --activations")


def _searched(
    model: Module, arguments: dict[str, Any], options: Quantize, checkpoint: Path | None, target_error: float
) -> tuple[Module, dict[str, Any]]:
    calls = text_calls(options.text, checkpoint, isinstance(model, CausalDecoder))
    assert calls is not None
    others = {name: value for name, value in arguments.items() if name != "bits"}
    try:
        result = fewest_bits(model, lambda bits: quantize(model, bits, **others), calls, target_error)
    except TargetError as error:
        raise CommandError(f"--target-error: {error}") from error
    return result.model, {"bits": result.bits, "error": result.error}


def _write(model: Module, checkpoint: Path | None, output: Path, target: str) -> None:
    if output.suffix.lower() == _MODEL:
        to_onnx(model.to("float32"), path=output, target=target)
        return
    assert checkpoint is not None
    if not isinstance(model, models.Pretrained):
        raise usage(
            f"--output {output}: SOURCE is a {type(model).__name__}, which reads no checkpoints; write an ONNX file"
        )
    with new_folder(output) as folder:
        models.save(model, checkpoint, folder)
        write_tokenizer(checkpoint, folder)
        copy_files(checkpoint, folder, (PROMPTS,))


def _print(
    out: terminal.Output,
    data: Mapping[str, Any],
    output: Path,
    verbose: bool,
    source: Module | None,
    cost: QuantizingCost | None,
) -> None:
    before, after = data["bytes_before"], data["bytes_after"]
    out.line(f"weights     {terminal.size(before)}, quantized {terminal.size(after)} ({after / before:.0%})")
    unchanged = data["bytes_unchanged"]
    large = [f"{module} {terminal.size(count)}" for module, count in unchanged.items() if count >= _LARGE * after]
    if large:
        out.line(f"unchanged   {terminal.size(sum(unchanged.values()))} of these: {', '.join(large)}")
    print_cost(out, source, cost)
    if "bits" in data:
        out.line(f"error       {data['error']:.3g} of the outputs")
        bits = ", ".join(f"{json_module.dumps(name)}: {width}" for name, width in data["bits"].items())
        out.line(f"bits={{{bits}}}")
    if output.is_dir():
        terminal.written_folder(out, output, verbose)
    else:
        terminal.written(out, [output])
