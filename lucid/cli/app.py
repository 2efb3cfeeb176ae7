"""The commands and their options. Each is implemented in its own module, loaded when it runs, so `--help` is fast."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from lucid.cli import bits_options as b
from lucid.cli import model_commands, quantize_command, row_commands, serve_commands, text_commands
from lucid.cli import options as o
from lucid.cli.dispatch import run_command
from lucid.cli.errors import USAGE
from lucid.cli.help import Command, Group
from lucid.core.version import __version__

app = typer.Typer(
    name="lucid",
    cls=Group,
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Attention models in plain Python, exported to exact and lean ONNX files.",
    epilog="Exit codes: 0 success; 1 failure, or results differ; 2 the command line is wrong; 130 interrupted.",
)


def _command(function: Callable[..., None]) -> Callable[..., None]:
    return app.command(cls=Command)(function)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lucid {__version__}")
        raise typer.Exit()


@app.callback()
def _main(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit."),
    ] = False,
    debug: o.Debug = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(USAGE)


_command(model_commands.export)


@_command
def inspect(
    model: o.ModelFile,
    sizes: o.Sizes = None,
    depth: Annotated[int, typer.Option("--depth", "-d", min=0, help="Levels of the module tree to show.")] = 3,
    graph: Annotated[
        Path | None,
        typer.Option("--graph", metavar="FILE.HTML", help="Also write the graph as a page, with modules that fold."),
    ] = None,
    json: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Show what is in an ONNX file, from Lucid or not: modules, cost, inputs and outputs, and what loads it.

    Examples:

    \b
      lucid inspect minilm.onnx --size L=128 --depth 4
      lucid inspect model.onnx --graph graph.html
    """
    run_command("inspect", model=model, sizes=sizes or [], depth=depth, graph=graph, json=json)


_command(model_commands.verify)
_command(quantize_command.quantize)


@_command
def run(
    model: o.ModelFile,
    data: Annotated[Path, typer.Argument(metavar="INPUT.NPZ", help="Arrays by input name.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUTPUT.NPZ",
            callback=o.file_or_stdout,
            help="Where to write the outputs, by name.",
        ),
    ] = None,
    providers: o.Provider = None,
    threads: o.Threads = None,
    json: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Run an ONNX file on the arrays of an .npz file.

    Examples:

    \b
      lucid run mha.onnx input.npz -o output.npz
      lucid run mha.onnx input.npz --provider cuda --json
    """
    run_command("run", model=model, data=data, output=output, providers=providers or [], threads=threads, json=json)


@_command
def bench(
    model: o.ModelFile,
    providers: o.Provider = None,
    sizes: o.Sizes = None,
    threads: o.Threads = None,
    seconds: Annotated[float, typer.Option(min=0.01, help="How long to measure.")] = 3.0,
    peak: Annotated[bool, typer.Option(help="Also measure how fast this machine multiplies matrices.")] = True,
    json: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Measure an ONNX file: latency percentiles, throughput, peak memory, share of the machine's matmul peak.

    Examples:

    \b
      lucid bench minilm.onnx --size N=1 --size L=128
      lucid bench minilm.onnx --provider cuda --seconds 10 --json
    """
    run_command(
        "bench",
        model=model,
        providers=providers or [],
        sizes=sizes or [],
        threads=threads,
        seconds=seconds,
        peak=peak,
        json=json,
    )


@_command
def report(
    source: o.Source,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PAGE.HTML",
            callback=o.file_or_stdout,
            help="The page to write. By default one beside a checkpoint, named after it.",
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
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="INPUT.NPZ", help="Arrays by input name; otherwise a sentence, or random ones."),
    ] = None,
    tokens: Annotated[
        Path | None, typer.Option("--tokens", metavar="FILE", help="Labels for the attention maps, one per line.")
    ] = None,
    sizes: o.Sizes = None,
    targets: Annotated[
        list[o.TargetName] | None,
        typer.Option("--target", "-t", help="What to export for. Repeatable; by default any, cpu and portable."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.01, help="How long to measure each target.")] = 0.5,
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
    """Write an HTML page: graph, cost and time by module, attention maps, errors, time and memory by target.

    Examples:

    \b
      lucid report all-MiniLM-L6-v2
      lucid report all-MiniLM-L6-v2 --size L=32 -o report.html
      lucid report all-MiniLM-L6-v2 --data input.npz --tokens tokens.txt -o r.html
    """
    run_command(
        "report",
        source=source,
        output=output,
        weights=weights,
        reading=o.Reading.of(task, architecture, ignore_option),
        arguments=arguments or [],
        inputs=inputs or [],
        call=call or [],
        seed=seed,
        data=data,
        tokens=tokens,
        sizes=sizes or [],
        targets=[target.value for target in targets or []],
        seconds=seconds,
        few_bits=b.FewBits(bits, block, symmetric, method, search, skip, text, activations, ranges),
        json=json,
    )


_command(text_commands.generate)
_command(text_commands.chat)
app.command("map", cls=Command)(row_commands.map_rows)
_command(serve_commands.serve)


@_command
def doctor(json: o.Json = False, debug: o.Debug = False) -> None:
    """Show what is installed, which providers work and why others do not, and what to install.

    Example: lucid doctor
    """
    run_command("doctor", json=json)
