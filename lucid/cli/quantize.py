"""`lucid quantize`."""

from __future__ import annotations

import json as json_module
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lucid import models
from lucid.cli import show
from lucid.cli.bits_options import FewBits
from lucid.cli.errors import OK, CommandError, usage
from lucid.cli.few_bits import arguments as few_bits_arguments
from lucid.cli.few_bits import text_calls
from lucid.cli.options import Reading
from lucid.cli.source import checkpoint_of, load_model
from lucid.cli.values import settings
from lucid.export import to_onnx
from lucid.export.exporter import check_folder
from lucid.files.folders import check_place, new_folder
from lucid.layouts.companions import SENTENCE_COMPANIONS, copy_files, write_tokenizer
from lucid.nn.decoding import CausalDecoder
from lucid.nn.module import Module
from lucid.nn.quantizing.layer_weights import unchanged_bytes
from lucid.nn.quantizing.quantize import quantize
from lucid.testing.precision.search import TargetError, fewest_bits

_MODEL = ".onnx"
_LARGE = 0.05  # of the result: what a type of modules takes to be named among what is unchanged


def run(
    *,
    source: str,
    output: Path,
    weights: Path | None,
    reading: Reading,
    arguments: list[str],
    seed: int,
    few_bits: FewBits,
    target_error: float | None,
    target: str,
    json: bool,
) -> int:
    """Quantise, write, show; returns the exit code."""
    show.check_apart(output, json)
    checkpoint = weights or checkpoint_of(source)
    _check(few_bits, target_error)
    if output.suffix.lower() != _MODEL and (checkpoint is None or not checkpoint.exists()):
        raise usage(f"--output {output}: a folder needs a checkpoint as SOURCE; write an ONNX file, as -o model.onnx")
    if output.suffix.lower() == _MODEL:
        check_folder(output)
    else:
        check_place(output)
    # What is only rounded is read from the mapped file, layer by layer; other models run, in float32.
    mapped = target_error is None and few_bits.only_rounds
    model = load_model(
        source, settings("--set", arguments), weights, seed, dequantize=True, mapped=mapped, reading=reading
    )
    if not isinstance(model, Module):
        raise usage(f"SOURCE {source!r} is a function, expected a Module, whose weights can be quantized")
    before = _weight_bytes(model)
    bits = "4" if few_bits.bits is None else few_bits.bits
    options = few_bits_arguments(few_bits._replace(bits=bits), checkpoint, isinstance(model, CausalDecoder))
    assert options is not None
    found: dict[str, Any] = {}
    if target_error is None:
        small = quantize(model, **options, dtype="float32" if mapped else None)
    else:
        small, found = _searched(model, options, few_bits, checkpoint, target_error)
    after = _weight_bytes(small)
    _write(small, checkpoint, output, target)
    sizes = {"bytes_before": before, "bytes_after": after, "bytes_unchanged": unchanged_bytes(small)}
    data = {"file": str(output), **sizes, **found}
    if json:
        show.print_json(data)
    else:
        _print(show.console(beside=output), data, output)
    return OK


def _weight_bytes(model: Module) -> int:
    return sum(parameter.numpy().nbytes for parameter in model.parameters())


def _check(few_bits: FewBits, target_error: float | None) -> None:
    if few_bits.bits is None and target_error is None:
        raise usage("give --bits 4 or 8, or --target-error 0.02, which finds the fewest bits that stay below it")
    if few_bits.bits is not None and target_error is not None:
        raise usage("--target-error finds the bits; leave out --bits")
    if target_error is not None and few_bits.text is None:
        raise usage("--target-error measures on texts: give a file of some hundred sentences, as --text texts.txt")
    if target_error is not None and few_bits.activations is not None:
        raise usage("--target-error finds the bits of weights in blocks; leave out --activations")
    if target_error is None and few_bits.text is not None and not few_bits.learns:
        raise usage("--text is for --method gptq, --activations static and --target-error; leave it out")


def _searched(
    model: Module,
    options: dict[str, Any],
    few_bits: FewBits,
    checkpoint: Path | None,
    target_error: float,
) -> tuple[Module, dict[str, Any]]:
    calls = text_calls(few_bits.text, checkpoint, isinstance(model, CausalDecoder))
    assert calls is not None
    given = {name: value for name, value in options.items() if name != "bits"}
    try:
        found = fewest_bits(model, lambda bits: quantize(model, bits, **given), calls, target_error)
    except TargetError as error:
        raise CommandError(f"--target-error: {error}") from error
    return found.model, {"bits": found.bits, "error": found.error}


def _write(model: Module, checkpoint: Path | None, output: Path, target: str) -> None:
    if output.suffix.lower() == _MODEL:
        to_onnx(model.to("float32"), path=output, target=target)
        return
    assert checkpoint is not None
    if not isinstance(model, models.Pretrained):
        raise usage(
            f"--output {output}: SOURCE is a {type(model).__name__}, which reads no checkpoints; write an ONNX file"
        )
    with new_folder(output) as made:
        models.save(model, checkpoint, made)
        write_tokenizer(checkpoint, made)
        copy_files(checkpoint, made, SENTENCE_COMPANIONS)


def _print(out: show.Output, data: Mapping[str, Any], output: Path) -> None:
    before, after = data["bytes_before"], data["bytes_after"]
    out.line(f"weights     {show.size(before)}, quantized {show.size(after)} ({after / before:.0%})")
    unchanged = data["bytes_unchanged"]
    large = [f"{module} {show.size(taken)}" for module, taken in unchanged.items() if taken >= _LARGE * after]
    if large:
        out.line(f"unchanged   {show.size(sum(unchanged.values()))} of these: {', '.join(large)}")
    if "bits" in data:
        out.line(f"error       {data['error']:.3g} of the outputs")
        bits = ", ".join(f"{json_module.dumps(name)}: {width}" for name, width in data["bits"].items())
        out.line(f"bits={{{bits}}}")
    show.written(out, sorted(path for path in output.rglob("*") if path.is_file()) if output.is_dir() else [output])
