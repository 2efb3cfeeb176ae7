"""Writes one HTML file that contains everything: style, libraries, data."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from lucid.core.words.html import escape
from lucid.core.words.safe_text import encoded, visible
from lucid.files.atomic import write

_STATIC = files("lucid.inspection.report") / "static"
_LIBRARIES = ("cytoscape.min.js", "cytoscape-dagre.min.js", "echarts.min.js")
_IDENTITIES = ("id", "from")
_SCRIPTS = ("elements", "layout", "graph", "search", "outline", "cost", "charts", "attention", "page")
_OWN = tuple(f"{name}.js" for name in _SCRIPTS)


def write_page(path: Path, data: dict[str, Any]) -> None:
    """Write the page. Its content security policy forbids it to load anything."""
    with write(path) as file:
        file.write(encoded(render(data)))


def render(data: dict[str, Any]) -> str:
    """The page as text."""
    scripts = "\n".join(f"<script>\n{_inside_script(_text(name))}\n</script>" for name in (*_LIBRARIES, *_OWN))
    parts = {
        "TITLE": escape(visible(data["title"])),
        "STYLE": _text("page.css"),
        "LICENSES": escape(_text("LICENSES.txt")),
        "DATA": json.dumps(_visible(data), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        "SCRIPTS": scripts,
    }
    page, *sections = _text("page.html").split("{{")
    for section in sections:  # one pass, so text that is put in is never expanded again
        name, rest = section.split("}}", 1)
        page += parts[name] + rest
    return page


def _text(name: str) -> str:
    return (_STATIC / name).read_text(encoding="utf-8")


def _inside_script(code: str) -> str:
    return code.replace("</script", "<\\/script")


def _visible(data: Any) -> Any:
    """The data with its text escaped for display, except for the identities that the page looks things up by."""
    if isinstance(data, dict):
        return {visible(key): v if key in _IDENTITIES else _visible(v) for key, v in data.items()}
    if isinstance(data, (list, tuple)):
        return [_visible(value) for value in data]
    return visible(data) if isinstance(data, str) else data
