"""SOURCE, --weights and --adapter that are names of Hugging Face's hub: downloaded before a command runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lucid.cli.errors import usage
from lucid.cli.options.groups import Command, ConfigOptions, DeployedOptions
from lucid.files.hub import hub_name, local_checkpoint


def with_local_source(options: Command) -> Command:
    """The options with the path of the checkpoint, where SOURCE is its name on the hub."""
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
        return options
    path = local_checkpoint(name)
    return replace(options, **({"weights": path} if weights else {field: type(vars(options)[field])(path)}))
