"""One HTML file with everything in it: style, libraries, data."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from lucid.files import write_atomically

_STATIC = files("lucid.report") / "static"
_LIBRARIES = ("cytoscape.min.js", "cytoscape-dagre.min.js", "echarts.min.js")
_OWN = ("graph.js", "charts.js", "page.js")


def write_page(path: Path, data: dict[str, Any]) -> None:
    """Write the page. Its security policy lets it load nothing from anywhere."""
    with write_atomically(path) as file:
        file.write(render(data).encode("utf-8"))


def render(data: dict[str, Any]) -> str:
    """The page as text."""
    scripts = "\n".join(f"<script>\n{_inside_script(_text(name))}\n</script>" for name in (*_LIBRARIES, *_OWN))
    parts = {
        "TITLE": _escaped(str(data["title"])),
        "STYLE": _text("page.css"),
        "LICENSES": _escaped(_text("LICENSES.txt")),
        "DATA": json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        "SCRIPTS": scripts,
    }
    before, *pieces = _text("page.html").split("{{")
    for piece in pieces:  # one pass: what is put in is never looked at again
        name, rest = piece.split("}}", 1)
        before += parts[name] + rest
    return before


def _text(name: str) -> str:
    return (_STATIC / name).read_text(encoding="utf-8")


def _inside_script(code: str) -> str:
    return code.replace("</script", "<\\/script")


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
