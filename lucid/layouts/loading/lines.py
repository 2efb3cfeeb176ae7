"""The lines for each layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lucid.layouts.loading.javascript import javascript_lines
from lucid.layouts.loading.libraries import genai_lines, optimum_lines, sentence_lines
from lucid.layouts.loading.plain import onnxruntime_lines
from lucid.layouts.loading.server import triton_lines
from lucid.layouts.loading.subject import Subject

_LINES: Mapping[str, tuple[str, Callable[[Subject], str]]] = {
    "onnxruntime": ("python", onnxruntime_lines),
    "transformers.js": ("js", javascript_lines),
    "sentence-transformers": ("python", sentence_lines),
    "optimum": ("python", optimum_lines),
    "genai": ("python", genai_lines),
    "triton": ("python", triton_lines),
}


def lines_for(layout: str, about: Subject) -> tuple[str, str]:
    """The language of the lines, as Markdown calls it, and the lines.

    Args:
        layout: the name of a layout.
        about: the folder that they load.
    """
    language, lines = _LINES[layout]
    return language, about.fill(lines(about))
