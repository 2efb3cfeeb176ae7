"""The package: the wheel is complete and works in an environment that has nothing else.

A wheel, a source archive, a zip, a clone and an editable install each give one `lucid.models`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.layout_checkpoints import whole

ROOT = Path(__file__).parents[1]
CLEAN = {
    name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "COVERAGE"))
}

if find_spec("build") is None or find_spec("twine") is None:
    pytest.skip("needs build and twine (the extra dev)", allow_module_level=True)


def run(*command: object, cwd: Path, code: int = 0, path: Path | str = "") -> str:
    """What a program prints that must end with `code`; `path` is its PYTHONPATH."""
    env = {**CLEAN, "PYTHONPATH": str(path)} if path else CLEAN
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True, timeout=600)
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
    (file,) = dist.glob("*.whl")
    return file


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
    models = {
        f"lucid/{path.relative_to(ROOT)}"
        for ending in ("py", "json")
        for path in (ROOT / "models").rglob(f"*.{ending}")
    }
    assert sources | models == {name for name in names if name.endswith(".py") or "checkpoints" in name}
    extras = set(re.findall(r"^Provides-Extra: (\S+)", metadata, re.M))
    assert {"cpu", "gpu", "demo", "chat", "plot", "bench", "docs", "dev"} <= extras
    assert wheel.stat().st_size < 3_000_000


def test_the_source_archive_builds_what_the_tree_builds(dist):
    (source,) = dist.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    assert {"pyproject.toml", "setup.py", "README.md", "LICENSE", "lucid/py.typed", "models/__init__.py"} <= names


def test_the_index_would_take_both(dist):
    assert "PASSED" in run(sys.executable, "-m", "twine", "check", "--strict", *dist.iterdir(), cwd=dist)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files from which a package is built, as they lie in a clone; there are no symlinks among them."""
    folder = tmp_path_factory.mktemp("clone") / "lucid-main"
    for name in ("lucid", "models"):
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    assert not [path for path in folder.rglob("*") if path.is_symlink()]
    return folder


def environment(folder: Path) -> Path:
    """The Python of a new environment."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    return folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"


def packages_of(python: Path) -> Path:
    """Where the packages of a Python are."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(run(python, "-c", code, cwd=python.parent).strip())


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with this one's libraries but without Lucid."""
    python = environment(tmp_path_factory.mktemp("bare"))
    (packages_of(python) / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    return python


INSTALL = (
    "-m",
    "pip",
    "install",
    "--no-deps",
    "--no-build-isolation",
    "--no-compile",
    "--quiet",
    "--disable-pip-version-check",
)


def models_of(python: Path, path: Path | str = "") -> Path:
    """The folder of `lucid.models` with such a PYTHONPATH, which is whole, and the only package of the models."""
    code = (
        "import sys, lucid, lucid.models.bert as bert;"
        "assert bert is lucid.models.bert and 'models' not in sys.modules;"
        "assert type(lucid.models.load(sys.argv[1])) is lucid.models.llama.Llama; print(lucid.models.__file__)"
    )
    folder = ROOT / "tests" / "goldens" / "llama" / "llama2"
    return Path(run(python, "-c", code, folder, cwd=python.parent, path=path).strip()).parent


def test_a_wheel_has_the_models_in_the_package(wheel, bare, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    assert models_of(bare, tmp_path) == tmp_path / "lucid" / "models"


def test_a_source_archive_has_the_models_next_to_the_package(dist, bare, tmp_path):
    (source,) = dist.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    assert models_of(bare, folder) == folder / "models"


def test_a_zip_of_the_sources_installs_what_the_wheel_does(clone, bare, tmp_path):
    archive = shutil.make_archive(str(tmp_path / "main"), "zip", clone.parent)
    run(sys.executable, *INSTALL, "--target", tmp_path / "site", archive, cwd=tmp_path)
    assert models_of(bare, tmp_path / "site") == tmp_path / "site" / "lucid" / "models"


def test_a_clone_works_as_it_is(clone, bare):
    assert models_of(bare, clone) == clone / "models"
    for statement in ("import models", "import models.bert", "import runpy; runpy.run_module('models.bert')"):
        shown = run(bare, "-c", statement, cwd=clone, code=1)
        assert shown.endswith(
            "ImportError: this is lucid.models: import it by that name, run python -m lucid.models.NAME\n"
        )


def test_an_editable_install_gives_way_to_a_tree_that_python_is_told_of(clone, bare, tmp_path):
    run(sys.executable, "-m", "pip", "--python", bare, *INSTALL[2:], "--editable", clone, cwd=tmp_path)
    assert models_of(bare) == clone / "models"
    assert models_of(bare, ROOT) == ROOT / "models"
    shutil.copytree(clone / "lucid", tmp_path / "lucid")
    shutil.copytree(clone / "models", tmp_path / "lucid" / "models")
    assert models_of(bare, tmp_path) == tmp_path / "lucid" / "models"


def needed(distribution: Distribution, *extras: str) -> Iterator[Distribution]:
    """What a distribution and its extras require, as installed in this environment, with all that this requires."""
    for text in distribution.requires or []:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            there = Distribution.from_name(requirement.name)
            assert requirement.specifier.contains(there.version), f"{there.name} is {there.version}, expected {text}"
            yield from (there, *needed(there, *requirement.extras))


@pytest.fixture(scope="module")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel and its requirements, which are links; returns the folder of its programs.

    Each job of CI that makes an environment gets the same requirements from the index.
    """
    folder = tmp_path_factory.mktemp("fresh")
    python = environment(folder)
    run(sys.executable, "-m", "pip", "--python", python, *INSTALL[2:], wheel, cwd=folder)
    packages = packages_of(python)
    (installed,) = packages.glob("*.dist-info")
    for distribution in {each.name: each for each in needed(Distribution.at(installed), "cpu")}.values():
        for top in {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
            (packages / top).symlink_to(distribution.locate_file(top))
    return python.parent


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
