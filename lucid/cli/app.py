"""The command line is parsed to the options of a command; only then, for speed, is the command loaded and run."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

import typer
from typer.main import get_command

from lucid.cli.errors import USAGE
from lucid.cli.help import CommandHelp, GroupHelp
from lucid.cli.on_demand import check_extra, command_module
from lucid.cli.options import commands
from lucid.cli.options.groups import Command, ConfigOptions
from lucid.core.version import __version__
from lucid.core.words.progress import phase

app = typer.Typer(
    name="lucid",
    cls=GroupHelp,
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Attention models in plain Python, exported to exact and lean ONNX files.",
    epilog="Exit codes: 0 success; 1 failure, or results differ; 2 what was asked is refused; 130 interrupted.",
)

COMMANDS: dict[type[Command], str] = {
    commands.Export: "export",
    commands.Inspect: "inspect",
    commands.Verify: "verify",
    commands.Quantize: "quantize",
    commands.Train: "train",
    commands.Run: "run",
    commands.Bench: "bench",
    commands.Report: "report",
    commands.Generate: "generate",
    commands.Chat: "chat",
    commands.Map: "map",
    commands.Serve: "serve",
    commands.Doctor: "doctor",
}
"""The commands by their options: called with the values of the command line, a class makes what `run_command` takes."""

_ROOMS = {commands.Map: "lucid.batch", commands.Train: "lucid.batch", commands.Serve: "lucid.serving"}
"""Rooms with an extra of their own: loaded before anything else, they name the extra that has all that is missing."""

for options, name in COMMANDS.items():
    app.command(name, cls=CommandHelp)(options)


def _show_version(version: bool) -> None:
    if version:
        typer.echo(f"lucid {__version__}")
        raise typer.Exit()


@app.callback()
def _main(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(USAGE)


@cache
def parser() -> Any:
    """The parser of command lines, which typer makes of all options: called with words, it returns a `Command`."""
    return get_command(app)


def run_command(options: Command) -> int:
    """Load a command's module, and with it onnx and onnxruntime, and run it; returns the exit code.

    A terminal sees its phases.
    """
    command_module("terminal").show_notes(isinstance(options, ConfigOptions) and options.verbose)
    with command_module("progress").shown_on_terminal():
        with phase("starting"):
            if (room := _ROOMS.get(type(options))) is not None:
                check_extra(room)
            module = command_module(f"commands.{COMMANDS[type(options)]}")
            hub = command_module("hub_source")
        code: int = module.run(hub.with_local_source(options))
    return code
