"""The commands that make files of a model and compare them, and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lucid.cli import bits_options as b
from lucid.cli import options as o
from lucid.cli.dispatch import run_command
from lucid.cli.errors import usage
from lucid.core.targets.runtimes import GENERAL

_ANY, _AUTO = o.TargetName(GENERAL), o.AttentionName.auto


def export(
    source: o.Source,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="MODEL.ONNX",
            callback=o.file_or_stdout,
            help="The file to write; with --for the folder. By default one beside a checkpoint, named after it.",
            show_default=False,
        ),
    ] = None,
    weights: o.Weights = None,
    task: o.Task = None,
    architecture: o.Architecture = None,
    ignore_option: o.IgnoreOption = None,
    arguments: o.Set = None,
    inputs: o.Inputs = None,
    call: o.Call = None,
    seed: o.Seed = 0,
    layout: o.Layout = None,
    force: o.Force = False,
    with_tokenizer: o.WithTokenizer = False,
    with_preprocessor: o.WithPreprocessor = False,
    target: o.ExportTarget = None,
    opset: o.Opset = None,
    attention: o.Attention = _AUTO,
    external: Annotated[
        bool,
        typer.Option("--external-data", rich_help_panel="The export", help="Write weights to a separate file."),
    ] = False,
    check: Annotated[bool, typer.Option(help="Run the file in onnxruntime and compare with NumPy.")] = True,
    rtol: o.Rtol = None,
    atol: o.Atol = None,
    part: o.Part = None,
    cache: o.Cache = None,
    capacity: o.Capacity = None,
    dtype: o.Half = None,
    keep_io_types: o.KeepTypes = True,
    lengths: o.Lengths = None,
    bits: b.Bits = None,
    block: b.Block = None,
    symmetric: b.Symmetric = False,
    method: b.Method = None,
    search: b.Search = False,
    skip: b.Skip = None,
    text: b.Text = None,
    activations: b.Activations = None,
    ranges: b.Ranges = None,
    json: o.Json = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,
) -> None:
    """Export a model to an ONNX file, check it against NumPy and show the result.

    Examples:

    \b
      lucid export nn.Linear --set in_features=8 --set out_features=4 -o l.onnx
      lucid export all-MiniLM-L6-v2
      lucid export all-MiniLM-L6-v2 --task feature-extraction -o states.onnx
      lucid export net.py:Net -i x:float32:N,80,T --target portable -o net.onnx
      lucid export all-MiniLM-L6-v2 --for transformers.js
      lucid export all-MiniLM-L6-v2 --with-tokenizer -o texts.onnx
      lucid export SmolLM2-135M-Instruct --for genai --bits 4 -o smollm2-genai
    """
    given: dict[str, Any] = {
        "source": source,
        "output": output,
        "weights": weights,
        "reading": o.Reading.of(task, architecture, ignore_option),
        "arguments": arguments or [],
        "seed": seed,
        "check": check,
        "rtol": rtol,
        "atol": atol,
        "few_bits": b.FewBits(bits, block, symmetric, method, search, skip, text, activations, ranges),
        "json": json,
        "cache": cache and cache.value,
        "capacity": capacity,
        "external": external,
        "dtype": dtype and dtype.value,
        "with_tokenizer": with_tokenizer,
        "with_preprocessor": with_preprocessor,
    }
    of_a_file = {
        "inputs": inputs or [],
        "call": call or [],
        "part": part and part.value,
        "opset": opset,
        "lengths": lengths,
    }
    if layout is None:
        if force:
            raise usage("--force is for folders, which --for writes; a file is replaced anyway")
        run_command(
            "export",
            target=target and target.value,
            attention=attention.value,
            keep_io_types=keep_io_types,
            **given,
            **of_a_file,
        )
    else:
        of_a_file["attention"] = attention is not _AUTO
        of_a_file["half-io-types"] = not keep_io_types
        other = [name for name, value in of_a_file.items() if value]
        where = target and target.value
        run_command("export_folder", layout=layout.value, target=where, force=force, other=other, **given)


def verify(
    source: o.Source,
    model: o.ModelPath,
    weights: o.Weights = None,
    task: o.Task = None,
    architecture: o.Architecture = None,
    ignore_option: o.IgnoreOption = None,
    arguments: o.Set = None,
    inputs: o.Inputs = None,
    call: o.Call = None,
    seed: o.Seed = 0,
    providers: o.Providers = None,
    sizes: Annotated[
        list[str] | None,
        typer.Option(
            "--size",
            "-s",
            metavar="N=1,L=7",
            help="Values of the symbolic sizes for one run. Repeatable: one run for each.",
        ),
    ] = None,
    rtol: o.Rtol = None,
    atol: o.Atol = None,
    target: o.VerifiedTarget = None,
    attention: o.Attention = _AUTO,
    part: o.Part = None,
    cache: o.Cache = None,
    capacity: o.Capacity = None,
    dtype: o.Half = None,
    keep_io_types: o.KeepTypes = True,
    bits: b.Bits = None,
    block: b.Block = None,
    symmetric: b.Symmetric = False,
    method: b.Method = None,
    search: b.Search = False,
    skip: b.Skip = None,
    text: b.Text = None,
    activations: b.Activations = None,
    ranges: b.Ranges = None,
    json: o.Json = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,
) -> None:
    """Compare an exported file with its model on NumPy, over several sizes and all providers.

    For the folder that `export --for` wrote, it compares all ONNX files. The inputs, their sizes and the part of the
    model come from the file, unless --input, --call, --part or --cache is given. If results differ, it names the first
    node that does; for this, give the --target and --attention of the export; for a file in half precision,
    its --dtype; for a quantized one, its --bits and what was given with it.

    Examples:

    \b
      lucid verify all-MiniLM-L6-v2 minilm.onnx
      lucid verify all-MiniLM-L6-v2 all-MiniLM-L6-v2-onnxruntime
      lucid verify all-MiniLM-L6-v2 minilm.onnx --size N=2,L=64 --size N=1,L=1
    """
    run_command(
        "verify",
        source=source,
        model=model,
        weights=weights,
        reading=o.Reading.of(task, architecture, ignore_option),
        arguments=arguments or [],
        inputs=inputs or [],
        call=call or [],
        seed=seed,
        providers=providers or [],
        sizes=sizes or [],
        rtol=rtol,
        atol=atol,
        target=target and target.value,
        attention=attention.value,
        few_bits=b.FewBits(bits, block, symmetric, method, search, skip, text, activations, ranges),
        json=json,
        part=part and part.value,
        cache=cache and cache.value,
        capacity=capacity,
        dtype=dtype and dtype.value,
        keep_io_types=keep_io_types,
    )
