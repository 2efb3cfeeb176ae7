"""The files that a command line names: missing ones are errors, and names of Hugging Face's hub are downloaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lucid.cli.errors import usage
from lucid.cli.on_demand import command_module
from lucid.cli.options.groups import Command, ConfigOptions, DeployedOptions
from lucid.core.words.suggestions import or_check
from lucid.files.hub import hub_name, local_checkpoint

_READ = ("model", "data", "tokens", "text", "json_schema", "grammar")  # options that name a file to read


def with_local_source(options: Command) -> Command:
    """The options with the path of the checkpoint, where SOURCE is its name on the hub.

    Raises:
        CommandError: with code 2, for a file, folder or name of the hub that is not there.
    """
    for name in _READ:
        path = vars(options).get(name)
        if isinstance(path, Path) and not path.exists():
            raise usage(f"there is no file {str(path)!r}{or_check(path)}")
    if not isinstance(options, ConfigOptions):
        return options
    field = "folder" if isinstance(options, DeployedOptions) else "source"
    weights = vars(options).get("weights")
    name = weights or vars(options)[field]
    if options.revision is not None:
        if hub_name(name) is None:
            raise usage(f"--revision {options.revision}: SOURCE {str(name)!r} is no name of Hugging Face's hub")
        name = f"{Path(name).as_posix()}@{options.revision}"
    if hub_name(name) is None:
        if isinstance(name, Path) and not name.exists() and name != weights:
            raise command_module("python_source").no_such_checkpoint(str(name))
        return options
    try:
        path = local_checkpoint(name)
    except (FileNotFoundError, ModuleNotFoundError) as error:  # of the hub, or of the extra that reads it
        raise usage(str(error)) from error
    return replace(options, **({"weights": path} if weights else {field: type(vars(options)[field])(path)}))
