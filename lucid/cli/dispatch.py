"""Running a command."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer

from lucid.core.words.progress import phase


def run_command(name: str, /, **arguments: Any) -> None:
    """Load a command's module, and with it onnx and onnxruntime, and run it; a terminal sees its phases."""
    command_module("show").show_notes()
    with command_module("progress").shown_on_terminal():
        with phase("starting"):
            module = command_module(name)
        code = module.run(**arguments)
    raise typer.Exit(code)


def command_module(name: str) -> Any:
    """A module of the commands that is loaded only where it is needed: it may need an extra."""
    return import_module(f"lucid.cli.{name}")
