"""For the site (a hook of mkdocs): a page for each file outside docs/ that the documentation links to.

In a clone `../models/bert.py` leads to the file; the site holds only docs/. So each such file becomes a page of the site,
with what its own text links to, and the links lead there. A link to a file that does not exist stays as it is, and
mkdocs reports it.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")
_ALWAYS = ("CHANGELOG.md", "SECURITY.md")  # they are in the navigation


def source_of(target: str, folder: str) -> str | None:
    """The file of the repository that a link in a file of `folder` leads to, or None if it is in docs/ or not there."""
    path = posixpath.normpath(posixpath.join(folder, target))
    return path if not path.startswith(("docs/", "../")) and (ROOT / path).is_file() else None


def page_of(source: str) -> str:
    """The page of a file, relative to docs/."""
    return f"source/{source.removesuffix('.md')}.md"


def sources_in(markdown: str, folder: str) -> set[str]:
    """The files of the repository that a text links to."""
    return {source for target in _LINK.findall(markdown) if (source := source_of(target, folder))}


def linked(pages: dict[str, str]) -> set[str]:
    """The files that pages link to, with those that these link to in turn: texts by their paths in the repository."""
    left = dict(pages)
    found = set(_ALWAYS)
    while left:
        path, text = left.popitem()
        new = sources_in(text, posixpath.dirname(path)) - found
        found |= new
        left |= {source: (ROOT / source).read_text(encoding="utf-8") for source in new if source.endswith(".md")}
    return found


def turned(markdown: str, folder: str, page: str) -> str:
    """A text that lies in `folder`, with the links that it needs as the page `page` of the site."""

    def link(match: re.Match[str]) -> str:
        source = source_of(match[1], folder)
        path = posixpath.normpath(posixpath.join(folder, match[1]))
        goal = page_of(source) if source else path.removeprefix("docs/") if path.startswith("docs/") else None
        return match[1] if goal is None else posixpath.relpath(goal, posixpath.dirname(page) or ".")

    return _LINK.sub(link, markdown)


def content(source: str) -> str:
    """The page of a file: Markdown as it is, anything else as a block of code. The search leaves it out."""
    text = (ROOT / source).read_text(encoding="utf-8")
    head = "---\nsearch:\n  exclude: true\n---\n"
    if source.endswith(".md"):
        return head + turned(text, posixpath.dirname(source), page_of(source))
    language = {".py": "python", ".yaml": "yaml"}.get(Path(source).suffix, "text")
    return f"{head}# {source}\n\n````{language}\n{text}````\n"


def on_files(files: Any, config: Any) -> Any:
    """Add the pages (an event of mkdocs)."""
    from mkdocs.structure.files import File  # only the site needs mkdocs

    pages = {f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages()}
    for source in sorted(linked(pages)):
        files.append(File.generated(config, page_of(source), content=content(source)))
    return files


def on_post_build(config: Any) -> None:
    """Say where the site is (an event of mkdocs)."""
    logging.getLogger("mkdocs.hooks").info("Open %s in a browser", Path(config["site_dir"]) / "index.html")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn the links of a page (an event of mkdocs)."""
    uri = page.file.src_uri
    return markdown if uri.startswith("source/") else turned(markdown, posixpath.dirname(f"docs/{uri}"), uri)
