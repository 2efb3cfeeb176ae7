"""The options that say how a checkpoint is read."""

from __future__ import annotations

import logging
from typing import Annotated, NamedTuple

import typer

MODEL = "The model"


class Reading(NamedTuple):
    """How a checkpoint is read: `--task` and `--architecture`, None for what its files say, and `--ignore-option`."""

    task: str | None = None
    architecture: str | None = None
    ignore_option: tuple[str, ...] = ()

    @classmethod
    def of(cls, task: str | None, architecture: str | None, ignore: list[str] | None) -> Reading:
        """From the options of a command."""
        return cls(task, architecture, tuple(ignore or ()))


AS_IT_SAYS = Reading()

Task = Annotated[
    str | None,
    typer.Option(
        "--task",
        metavar="NAME",
        rich_help_panel=MODEL,
        help="What a checkpoint is read for, such as feature-extraction or text-classification; by default what its "
        "files say.",
    ),
]
Architecture = Annotated[
    str | None,
    typer.Option(
        "--architecture",
        metavar="NAME",
        rich_help_panel=MODEL,
        help="The class of transformers that a checkpoint is, such as LlamaModel, where its config names another one "
        "or code of its own.",
    ),
]
IgnoreOption = Annotated[
    list[str] | None,
    typer.Option(
        "--ignore-option",
        metavar="NAME",
        rich_help_panel=MODEL,
        help="An option of a checkpoint's config.json that is read as if the file did not have it, such as one that is "
        "refused and that you know to change nothing. Repeatable.",
    ),
]


def _tell_more(wanted: bool) -> None:
    """Let `lucid.models` tell what it does, in the terminal (`show.Notes`)."""
    if wanted:
        logging.getLogger("lucid.models").setLevel(logging.INFO)


Verbose = Annotated[
    bool,
    typer.Option("--verbose", callback=_tell_more, help="List the options of config.json that nobody reads, too."),
]
