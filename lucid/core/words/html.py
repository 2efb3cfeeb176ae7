"""Small pieces of HTML for notebooks. They take only text and numbers, so that every module can use them."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lucid.core.words.safe_text import visible_lines

_CELL = "text-align:left;padding:2px 10px 2px 0;vertical-align:top"
_MONO = "font-family:monospace;white-space:pre"
_PIXELS = 12  # width and height of one weight
_LABEL = 70  # pixels for the tokens' labels


def escape(text: object) -> str:
    """Text as HTML, with control characters and those that change the text direction escaped."""
    shown = visible_lines(text)
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        shown = shown.replace(character, entity)
    return shown


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; cells are text."""
    head = "".join(f'<th style="{_CELL}">{escape(column)}</th>' for column in columns)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL};{_MONO}">{escape(cell)}</td>' for cell in row) + "</tr>" for row in rows
    )
    return f'<table style="border-collapse:collapse"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def paragraph(text: object, good: bool | None = None) -> str:
    """A line; green or red if `good` is True or False."""
    colour = "" if good is None else f";color:{'#2e7d32' if good else '#c62828'};font-weight:bold"
    return f'<p style="margin:4px 0{colour}">{escape(text)}</p>'


def folded(summary: object, inside: str, is_open: bool = False) -> str:
    """HTML that opens with a click on its summary."""
    shown = " open" if is_open else ""
    return f'<details{shown} style="margin-left:14px"><summary>{escape(summary)}</summary>{inside}</details>'


def listing(text: str) -> str:
    """The text of a printed graph; the lines after ``# module`` are folded under the module's name."""
    first, *between, last = text.splitlines()
    parts: list[tuple[str, list[str]]] = [("", [first])]
    for line in between:
        if line.startswith("  # "):
            parts.append((line[4:], []))
        else:
            parts[-1][1].append(line)
    return "".join(_part(module, lines) for module, lines in [*parts, ("", [last])])


def _part(module: str, lines: Sequence[str]) -> str:
    inside = f'<pre style="margin:0;line-height:1.3">{escape(chr(10).join(lines))}</pre>'
    return folded(f"{module} ({len(lines)})", inside) if module not in ("", "top level") else inside


@dataclass(frozen=True, eq=False)
class AttentionMaps:
    """Attention weights as pictures, one per head: rows are queries, columns keys, dark is a large weight.

    Args:
        weights: (L, S), (H, L, S) or (N, H, L, S), of which the first item is shown; a tensor or array.
        tokens: labels of the positions.

    Raises:
        ValueError: for weights of another rank, or a number of tokens that is neither that of queries nor of keys.
    """

    weights: Any
    tokens: Sequence[str] = ()

    def maps(self) -> npt.NDArray[np.float32]:
        """The weights (H, L, S) that are shown."""
        return heads_of(self.weights, self.tokens)

    def _repr_html_(self) -> str:
        shown = self.maps()
        pictures = "".join(
            f'<figure style="margin:0 12px 8px 0">{_svg(each, self.tokens)}'
            f"<figcaption>head {number + 1}, at most {each.max(initial=0):.3f}</figcaption></figure>"
            for number, each in enumerate(shown)
        )
        return f'<div style="display:flex;flex-wrap:wrap">{pictures}</div>'


def heads_of(weights: Any, tokens: Sequence[str]) -> npt.NDArray[np.float32]:
    """Weights (H, L, S) of weights with or without heads and batch; checks that the tokens fit."""
    array = np.asarray(weights)
    if array.ndim not in (2, 3, 4):
        raise ValueError(
            f"attention weights: got shape {list(array.shape)}, expected (L, S), (H, L, S) or (N, H, L, S)"
        )
    array = array[0] if array.ndim == 4 else array[None] if array.ndim == 2 else array
    if tokens and len(tokens) not in array.shape[1:]:
        raise ValueError(
            f"tokens: got {len(tokens)}, expected as many as queries or keys ({array.shape[1]}, {array.shape[2]})"
        )
    return array.astype(np.float32)


def _svg(weights: npt.NDArray[np.float32], tokens: Sequence[str]) -> str:
    queries, keys = weights.shape
    left = _LABEL if len(tokens) == queries else 0
    top = _LABEL if len(tokens) == keys else 0
    width, height = keys * _PIXELS, queries * _PIXELS
    text = 'font-size="10" fill="currentColor"'
    labels = [
        f'<text x="{left - 4}" y="{top + (i + 0.75) * _PIXELS}" text-anchor="end" {text}>{escape(token)}</text>'
        for i, token in enumerate(tokens if left else ())
    ]
    labels += [
        f'<text transform="translate({left + (i + 0.75) * _PIXELS},{top - 4}) rotate(-60)" {text}>'
        f"{escape(token)}</text>"
        for i, token in enumerate(tokens if top else ())
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 30}" height="{top + height}">{"".join(labels)}'
        f'<image x="{left}" y="{top}" width="{width}" height="{height}" preserveAspectRatio="none" '
        f'style="image-rendering:pixelated" href="data:image/png;base64,{_png(weights)}"/></svg>'
    )


def _png(weights: npt.NDArray[np.float32]) -> str:
    """A picture with one byte per pixel, white to blue (PNG specification: IHDR, PLTE, IDAT, IEND)."""
    highest = float(weights.max(initial=0.0)) or 1.0
    pixels = np.clip(np.nan_to_num(weights) * (255 / highest), 0, 255).astype(np.uint8)
    ramp = np.linspace([247, 248, 252], [40, 53, 147], 256).astype(np.uint8)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"PLTE", ramp.tobytes()), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    data = b"\x89PNG\r\n\x1a\n"
    for name, content in chunks:
        data += struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
    return base64.b64encode(data).decode("ascii")
