"""docs/extending.md is complete: the lines it shows, and nothing else, work when added to a copy of the sources."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.pages import Block, blocks
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "extending.md"
COPIED = ("lucid", "models", "tests", "docs", "tools", "benchmarks", "examples", "pyproject.toml", "setup.py")


class Section(NamedTuple):
    """A part of the page: what to write, and what then works."""

    title: str
    written: list[Block]
    tried: list[Block]
    tests: list[list[str]]


def sections() -> list[Section]:
    text = PAGE.read_text(encoding="utf-8")
    starts = [(text[: text.index(f"\n## {title}\n")].count("\n"), title) for title in TITLES]
    parts = []
    for (start, title), (end, _) in zip(starts, [*starts[1:], (10**9, "")], strict=True):
        own = [block for block in blocks(PAGE) if start < block.line < end]
        commands = [shlex.split(line) for b in own if b.language == "sh" for line in b.text.splitlines()]
        parts.append(
            Section(
                title,
                [block for block in own if block.title and block.title != "try it"],
                [block for block in own if block.title == "try it"],
                [command[1:] for command in commands],
            )
        )
    return parts


TITLES = ("An op", "A gradient", "A form", "A runtime", "An option", "A decoder", "An encoder", "A model", "Finally")
GOLDENS = ROOT / "tests" / "extending" / "goldens"  # what the page says to make with transformers
SECTIONS = sections()


def add(block: Block, root: Path) -> None:
    """Write a file, or add a block's new lines next to its other lines."""
    path = root / block.title
    if block.language == "python":
        assert not path.exists(), f"{block.title} is there already"
        path.write_text(block.text, encoding="utf-8")
        return
    lines = block.text.splitlines(keepends=True)
    assert {line[0] for line in lines} <= set(" +-"), f"{block.title}: every line begins with a blank, + or -"
    old = "".join(line[1:] for line in lines if line[0] != "+")
    new = "".join(line[1:] for line in lines if line[0] != "-")
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{block.title} has the lines of docs/extending.md {text.count(old)} times"
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources with all lines of the page added."""
    root = tmp_path_factory.mktemp("extended")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, root / name)
        else:
            shutil.copy(source, root / name)
    shutil.copytree(GOLDENS, root / "tests" / "goldens", dirs_exist_ok=True)
    for section in SECTIONS:
        for block in section.written:
            add(block, root)
    return root


def python(root: Path, *arguments: str, patience: float = PATIENCE) -> str:
    """The output of Python run with the copy instead of the sources."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=patience,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


PROGRAMS = """
import json, sys
for title, program in json.loads(sys.argv[1]):
    exec(compile(program, title, "exec"), {"__name__": "__main__"})
import lucid
print(lucid.__file__)
"""


@pytest.fixture(scope="module")
def programs(copy: Path) -> None:
    """The page's programs ran, all in one process; the traceback of one that fails names its section."""
    programs = [(section.title, block.text) for section in SECTIONS for block in section.tried]
    file = python(copy, "-c", PROGRAMS, json.dumps(programs)).splitlines()[-1]
    assert Path(file).is_relative_to(copy)


COMMANDS = """
import json, runpy, sys
import pytest

def code(command):
    if command[:2] == ["-m", "pytest"]:  # which also fails if no test is selected
        return int(pytest.main([*command[2:], "-q", "-p", "no:cacheprovider", "-n", "0"]))
    sys.argv = command[command[0] == "-m":]
    (runpy.run_module if command[0] == "-m" else runpy.run_path)(sys.argv[0], run_name="__main__")
    return 0

codes = {}
for title, commands in json.loads(sys.argv[1]):
    print(f"{title}:", flush=True)
    codes[title] = [code(command) for command in commands]
print(json.dumps(codes))
"""


@pytest.fixture(scope="module")
def exits(copy: Path, programs: None) -> tuple[dict[str, list[int]], str]:
    """How the page's commands ended, by section, and what they printed: in one process, as most take less time than its
    start."""
    commands = [(section.title, [_shortened(command) for command in section.tests]) for section in SECTIONS]
    printed = python(copy, "-c", COMMANDS, json.dumps(commands), patience=len(commands) * PATIENCE)
    return json.loads(printed.splitlines()[-1]), printed


def _shortened(command: list[str]) -> list[str]:
    """Without comments; the page of coverage takes long to make, and the averager has no goldens."""
    command = command[: command.index("#")] if "#" in command else command
    left_out = ["-k", "not is_current and not in_few_bits and not every_class"]
    return [*command, *(left_out if command[-1] == "tests/test_coverage_page.py" else [])]


@pytest.mark.parametrize("section", SECTIONS, ids=TITLES)
def test_what_the_page_says_to_write_is_enough(section: Section, exits: tuple[dict[str, list[int]], str]) -> None:
    codes, printed = exits
    assert section.tests
    assert codes[section.title] == [0] * len(section.tests), printed


def test_without_its_sample_an_op_fails_a_test(tmp_path: Path) -> None:
    """As the page says."""
    shutil.copytree(ROOT / "lucid", tmp_path / "lucid")
    shutil.copytree(ROOT / "models", tmp_path / "models")
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("goldens", "fuzz", "models"))
    for block in SECTIONS[0].written:
        if not block.title.startswith("tests/"):
            add(block, tmp_path)
    with pytest.raises(AssertionError, match="lisht"):
        python(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_ops.py", "-k", "has_a_sample")
