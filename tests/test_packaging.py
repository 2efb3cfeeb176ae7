"""The installed package: the wheel is complete, and works in an environment that has nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.layout_checkpoints import whole

ROOT = Path(__file__).parents[1]
CLEAN = {
    name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "COVERAGE"))
}

if find_spec("build") is None or find_spec("twine") is None:
    pytest.skip("needs build and twine (the extra dev)", allow_module_level=True)


def run(*command: object, cwd: Path, code: int = 0) -> str:
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=CLEAN, capture_output=True, text=True, timeout=600)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive, and the wheel built from it, by this environment's setuptools: `make dist` gets its own."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"lucid", next(top for top in tops if top.endswith(".dist-info"))}
    for needed in (
        "lucid/py.typed",
        "lucid/inspection/report/static/page.html",
        "lucid/inspection/report/static/LICENSES.txt",
    ):
        assert needed in names
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "lucid").rglob("*.py")}
    models = {f"lucid/models/{path.name}" for path in (ROOT / "models").glob("*.py")}
    assert models and sources | models <= set(names)
    extras = set(re.findall(r"^Provides-Extra: (\S+)", metadata, re.M))
    assert {"cpu", "gpu", "demo", "chat", "plot", "bench", "docs", "dev"} <= extras
    assert wheel.stat().st_size < 3_000_000


def test_the_source_archive_builds_what_the_tree_builds(dist):
    (source,) = dist.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "lucid/py.typed"} <= names


def test_the_index_would_take_both(dist):
    assert "PASSED" in run(sys.executable, "-m", "twine", "check", "--strict", *dist.iterdir(), cwd=dist)


@pytest.fixture(scope="module")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel and its requirements; returns the folder of its programs."""
    folder = tmp_path_factory.mktemp("fresh")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    programs = folder / ("Scripts" if sys.platform == "win32" else "bin")
    # This environment's pip installs into that one, so that it holds only the wheel's requirements.
    pip = (
        sys.executable,
        "-m",
        "pip",
        "--python",
        programs / "python",
        "--disable-pip-version-check",
        "install",
        "--no-compile",
        "--quiet",
    )
    run(*pip, f"{wheel}[cpu]", cwd=folder)
    return programs


def test_the_example_of_the_first_page_runs_in_a_fresh_environment(fresh, tmp_path):
    first = re.search(r"^```python\n(.*?)^```", (ROOT / "docs" / "index.md").read_text(encoding="utf-8"), re.M | re.S)
    assert first is not None
    (tmp_path / "example.py").write_text(first[1], encoding="utf-8")
    run(fresh / "python", "-W", "error", "example.py", cwd=tmp_path)


def test_a_checkpoint_is_read_in_a_fresh_environment(fresh, tmp_path):
    code = (
        "import sys, lucid; model = lucid.models.load(sys.argv[1]); print(type(model).__name__);"
        "print(model(lucid.tensor([[1, 11, 7]])).shape)"
    )
    folder = ROOT / "tests" / "goldens" / "llama" / "llama2"
    assert run(fresh / "python", "-W", "error", "-c", code, folder, cwd=tmp_path) == "Llama\n(1, 3, 40)\n"


def test_folders_for_other_runtimes_are_written_in_a_fresh_environment(fresh, tmp_path):
    """All but that for onnxruntime-genai, which needs the extra chat, and says so."""
    code = (
        "import sys, lucid; source = sys.argv[1]; model = lucid.models.load(source);"
        "[lucid.layouts.write_folder(model, source, name, layout=name) for name in sys.argv[2:]]"
    )
    source = whole(tmp_path / "source", "sentences/cls")
    layouts = ["onnxruntime", "transformers.js", "sentence-transformers", "optimum", "triton"]
    run(fresh / "python", "-W", "error", "-c", code, source, *layouts, cwd=tmp_path)
    assert all("| yes |" in (tmp_path / name / "README.md").read_text() for name in layouts)
    assert "pip install 'lucid-onnx[chat]'" in run(fresh / "python", "-c", code, source, "genai", cwd=tmp_path, code=1)


def test_a_models_program_says_that_it_needs_a_checkpoint(fresh, tmp_path):
    shown = run(fresh / "python", "-m", "lucid.models.gpt2", cwd=tmp_path, code=1)
    assert shown.endswith("; give the folder of one\n")


def test_only_what_is_declared_is_there(fresh, tmp_path):
    unwanted = (
        "import importlib.util as u, sys; sys.exit(any(map(u.find_spec, ['torch', 'pytest', 'safetensors', 'typer'])))"
    )
    run(fresh / "python", "-c", unwanted, cwd=tmp_path)


def test_the_command_line_says_which_extra_it_needs(fresh, tmp_path):
    shown = run(fresh / "lucid", "doctor", cwd=tmp_path, code=1)
    assert shown == "lucid: the command line needs typer and rich: pip install 'lucid-onnx[cli]'\n"
