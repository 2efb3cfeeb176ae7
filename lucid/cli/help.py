"""The help of commands: as wide as the terminal, with a section for each group of options.

typer's own, in boxes, leaves options with many choices a quarter of 80 columns for their description.
"""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

_GENERAL, _OPTIONS, _ARGUMENTS = "General", "Options", "Arguments"
_OF_ALL = ("json", "verbose", "debug", "help")
_WIDEST = 34  # of an option with its choices, beside its description


class Command(TyperCommand):
    """A command that shows its options in the groups of their `rich_help_panel`."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """As ``[OPTIONS] SOURCE``."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, the options in their groups, and at last those that all commands have."""
        groups: dict[str, list[tuple[str, str]]] = {_ARGUMENTS: [], _OPTIONS: []}
        of_all: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            group = _ARGUMENTS if isinstance(parameter, TyperArgument) else _OPTIONS
            if isinstance(parameter, TyperOption) and parameter.rich_help_panel:
                group = parameter.rich_help_panel
            (of_all if parameter.name in _OF_ALL else groups.setdefault(group, [])).append(_readable(*record))
        for title, rows in {**groups, _GENERAL: of_all}.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows, col_max=min(30, formatter.width * 2 // 5))


class Group(TyperGroup):
    """The commands, each with all of its first sentence."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write them as a list."""
        rows = [(name, _sentence(self.commands[name].help or "")) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _readable(option: str, about: str) -> tuple[str, str]:
    """Without types that say nothing; many choices go to the description, which is wrapped."""
    option = re.sub(r" <str>$", "", option).replace(" range>", ">").replace("<list[", "<").replace("]>", ">")
    about = re.sub(r"\[default: \(([^()]*)\)", r"[default: \1", about)
    choices = re.search(r" <([^<>]*\|[^<>]*)>", option)
    if choices and len(option) > _WIDEST:
        option = option.replace(choices[0], " NAME")
        about = f"{about}  [one of {choices[1].replace('|', ', ')}]"
    return option, about


def _sentence(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split()).partition(". ")[0].rstrip(".")
