"""The options of weights in few bits, which several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

import typer


class MethodName(StrEnum):
    """How codes are found."""

    rtn = "rtn"
    hqq = "hqq"
    gptq = "gptq"


class FewBits(NamedTuple):
    """What is given of these options; None and empty where nothing is."""

    bits: str | None = None
    block: int | None = None
    symmetric: bool = False
    method: MethodName | None = None
    search: bool = False
    skip: list[str] | None = None
    text: Path | None = None


_BITS = "Weights in few bits"

Bits = Annotated[
    str | None,
    typer.Option(
        "--bits",
        metavar="4|8",
        rich_help_panel=_BITS,
        help="Round weights to 4 or 8 bits: smaller and faster. By layer: [bold]lm_head=8,*=4[/], the first pattern "
        "that matches; [bold]float[/] for as they are.",
    ),
]
Block = Annotated[
    int | None,
    typer.Option(
        "--block", metavar="N", rich_help_panel=_BITS, help="How many weights share a scale: 16, 32, ... 2048.",
        show_default="32",
    ),
]  # fmt: skip
Symmetric = Annotated[
    bool, typer.Option("--symmetric", rich_help_panel=_BITS, help="No zero points: smaller, and loses more.")
]
Method = Annotated[
    MethodName | None,
    typer.Option(
        "--method",
        rich_help_panel=_BITS,
        help="[bold]rtn[/] rounds to the nearest, [bold]hqq[/] fits scales, [bold]gptq[/] learns from --text.",
        show_default="rtn",
    ),
]
Search = Annotated[
    bool, typer.Option("--search", rich_help_panel=_BITS, help="rtn: try smaller ranges too; slower, and nearer.")
]
Skip = Annotated[
    list[str] | None,
    typer.Option("--skip", metavar="PATTERN", rich_help_panel=_BITS, help="Layers that stay as they are. Repeatable."),
]
Text = Annotated[
    Path | None,
    typer.Option(
        "--text",
        metavar="FILE.TXT",
        rich_help_panel=_BITS,
        help="Texts to learn from and to measure with: a decoder reads all of it, other models a text a line.",
    ),
]
