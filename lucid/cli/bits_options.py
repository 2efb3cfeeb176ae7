"""The options of quantized weights, which several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

import typer


class MethodName(StrEnum):
    """How codes are found."""

    fit = "fit"
    rtn = "rtn"
    hqq = "hqq"
    gptq = "gptq"


class ActivationsName(StrEnum):
    """What inputs of products are rounded to."""

    dynamic = "dynamic"
    dynamic_rows = "dynamic_rows"
    static = "static"


class RangesName(StrEnum):
    """How the ranges of static inputs are found."""

    minmax = "minmax"
    percentile = "percentile"
    entropy = "entropy"


class FewBits(NamedTuple):
    """What is given of these options; None and empty where nothing is."""

    bits: str | None = None
    block: int | None = None
    symmetric: bool = False
    method: MethodName | None = None
    search: bool = False
    skip: list[str] | None = None
    text: Path | None = None
    activations: ActivationsName | None = None
    ranges: RangesName | None = None

    @property
    def learns(self) -> bool:
        """Whether texts tell how weights or inputs are rounded."""
        return self.method is MethodName.gptq or self.activations is ActivationsName.static

    @property
    def only_rounds(self) -> bool:
        """Whether nothing but weights is looked at, so that they can be read one by one from the mapped file."""
        return self.method is not MethodName.gptq and self.activations is None


_BITS = "Quantization"

Bits = Annotated[
    str | None,
    typer.Option(
        "--bits",
        metavar="4|8",
        rich_help_panel=_BITS,
        help="Round weights to 4 or 8 bits: smaller and faster. By layer: lm_head=8,*=4, the first pattern "
        "that matches; float for as they are.",
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
        help="rtn rounds to the nearest, fit and hqq fit scales, gptq learns from --text.",
        show_default="fit for 4 bits, rtn for 8",
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
Activations = Annotated[
    ActivationsName | None,
    typer.Option(
        "--activations",
        rich_help_panel=_BITS,
        help="With --bits 8, round the inputs of products to 8 bits too: dynamic at run time, "
        "dynamic_rows each row by itself, static with ranges learnt from --text.",
        show_default=False,
    ),
]
Ranges = Annotated[
    RangesName | None,
    typer.Option(
        "--ranges", rich_help_panel=_BITS, help="Of static activations: how ranges are found.", show_default="minmax"
    ),
]
