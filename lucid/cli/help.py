"""The help of commands: as wide as the terminal, with a section for each group of options.

typer's own, in boxes, leaves options with many choices a quarter of 80 columns for their description.
"""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

_GENERAL, _OPTIONS, _ARGUMENTS = "General", "Options", "Arguments"
_LAST = {"json": 1, "verbose": 2, "debug": 3, "help": 4}  # what most commands have
_WIDEST = 34  # of an option with its choices, beside its description


class CommandHelp(TyperCommand):
    """A command that shows its options in the groups of their `rich_help_panel`."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """As ``[OPTIONS] SOURCE``."""
        return [re.sub(r"[{}]", "", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, the options in their groups, and those of all commands last."""
        groups: dict[str, list[tuple[str, str]]] = {_ARGUMENTS: [], _OPTIONS: []}
        for parameter in sorted(self.get_params(ctx), key=lambda parameter: _LAST.get(parameter.name or "", 0)):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            group = _ARGUMENTS if isinstance(parameter, TyperArgument) else _OPTIONS
            if isinstance(parameter, TyperOption) and parameter.rich_help_panel:
                group = parameter.rich_help_panel
            groups.setdefault(_GENERAL if parameter.name in _LAST else group, []).append(_readable(*record))
        for title, rows in groups.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows, col_max=min(30, formatter.width * 2 // 5))


class GroupHelp(TyperGroup):
    """The commands, each with its whole first sentence."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write them as a list."""
        rows = [(name, _sentence(self.commands[name].help or "")) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _readable(option: str, about: str) -> tuple[str, str]:
    """Rows without types that say nothing; many choices go to the description, which is wrapped."""
    option = option.replace(" range>", ">").replace("<list[", "<").replace("]>", ">")
    option = re.sub(r"^([A-Z.]+) <\w+>$", r"\1", option).replace("<str>", "NAME")
    about = re.sub(r"\[default: \(([^()]*)\)", r"[default: \1", about)
    choices = re.search(r" <([^<>]*\|[^<>]*)>", option)
    if choices and len(option) > _WIDEST:
        option = option.replace(choices[0], " NAME")
        about = f"{about}  [one of {choices[1].replace('|', ', ')}]"
    return option, about


def _sentence(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split()).partition(". ")[0].rstrip(".")
