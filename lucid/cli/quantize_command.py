"""The command `lucid quantize` and its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lucid.cli import bits_options as b
from lucid.cli import options as o
from lucid.cli.dispatch import run_command
from lucid.core.targets.runtimes import GENERAL

_ANY = o.TargetName(GENERAL)


def quantize(
    source: o.Source,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER|MODEL.ONNX",
            callback=o.folder,
            help="A checkpoint, or an ONNX file.",
            show_default=False,
        ),
    ],
    weights: o.Weights = None,
    task: o.Task = None,
    architecture: o.Architecture = None,
    ignore_option: o.IgnoreOption = None,
    arguments: o.Set = None,
    seed: o.Seed = 0,
    bits: b.Bits = None,
    block: b.Block = None,
    symmetric: b.Symmetric = False,
    method: b.Method = None,
    search: b.Search = False,
    skip: b.Skip = None,
    text: b.Text = None,
    activations: b.Activations = None,
    ranges: b.Ranges = None,
    target_error: Annotated[
        float | None,
        typer.Option(
            "--target-error",
            metavar="0.02",
            help="Find the fewest bits, by layer, with which the outputs differ by no more: the size of the difference "
            "relative to that of the outputs, on --text.",
        ),
    ] = None,
    target: o.Target = _ANY,
    json: o.Json = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,
) -> None:
    """Round the weights of a model to 4 or 8 bits: to a checkpoint that Lucid reads again, or to an ONNX file.

    Examples:

    \b
      lucid quantize SmolLM2-135M --bits 4 -o small
      lucid quantize SmolLM2-135M --bits 4 --method gptq --text texts.txt -o small
      lucid quantize all-MiniLM-L6-v2 --target-error 0.02 --text t.txt -o m.onnx
    """
    run_command(
        "quantize",
        source=source,
        output=output,
        weights=weights,
        reading=o.Reading.of(task, architecture, ignore_option),
        arguments=arguments or [],
        seed=seed,
        few_bits=b.FewBits(bits, block, symmetric, method, search, skip, text, activations, ranges),
        target_error=target_error,
        target=target.value,
        json=json,
    )
