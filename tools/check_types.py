"""mypy over the package as it is shipped and the folders that use it, with messages that name the files of the repository.

The types of Python's library say which names a system has, so code that uses a name of POSIX alone does not pass. All
modules are checked for Linux, with `examples/`, `tools/`, `benchmarks/` and the tests that need an environment of their
own, which need no annotations; for the other systems the modules of the package whose types may differ there, and the
signatures of the rest.

`lucid/__init__.py` tells Python where `models/` is, and a type checker does not run it. So setuptools copies the sources to
build/package first, where `lucid.models` lies in `lucid`, as in a wheel; mypy looks there before it looks in the tree.

python -m tools.check_types          all of it: the package as Linux, Windows and macOS have it, the folders as Linux does
python -m tools.check_types FILE     a file of a user
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mypy

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "build" / "package"
CHECKED = ("lucid", "examples", "tools", "benchmarks", "tests.consumers", "tests.devices", "tests.engines")
STUBS = Path(mypy.__file__).parent / "typeshed" / "stdlib"


def ship(folder: Path) -> None:
    """Copy the package to `folder`, which is emptied before."""
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def check(folder: Path, *targets: str, system: str = sys.platform) -> subprocess.CompletedProcess[str]:
    """What mypy prints about `targets`, which are its arguments, with the package of `folder` before that of the tree."""
    options = ["--cache-dir", str(ROOT / ".mypy_cache" / system), "--platform", system]
    command = [sys.executable, "-m", "mypy", *options, *targets]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "MYPYPATH": str(folder)}, stdout=-1, text=True)
    shown = folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder
    for shipped, place in ((shown / "lucid" / "models", "models/"), (shown, "")):
        done.stdout = done.stdout.replace(f"{shipped}{os.sep}", place)
    return done


def for_another_system(folder: Path) -> list[str]:
    """Targets of `check`: the modules that may differ on a system, with the signatures of the rest."""
    return ["--follow-imports", "silent", *(f"--module={name}" for name in sorted(differing(folder)))]


def differing(folder: Path) -> set[str]:
    """The modules below `folder` that ask for the system, or import a module that does: others are alike everywhere."""
    sources = {_name(path, folder): path for path in folder.rglob("*.py")}
    stubs = {_name(path, STUBS): path for path in STUBS.rglob("*.pyi")}
    asking = {name for name, path in (sources | stubs).items() if "sys.platform" in path.read_text(encoding="utf-8")}
    return {name for name, path in sources.items() if name in asking or not asking.isdisjoint(_imported(path))}


def _name(path: Path, folder: Path) -> str:
    return ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")


def _imported(path: Path) -> Iterator[str]:
    """The modules that a file may import: `os` and `os.path` for `import os.path` and for `from os import path`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            before = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                parts = f"{before}{alias.name}".split(".")
                yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def main() -> int:
    ship(PACKAGE)
    if files := [str(Path(name).resolve()) for name in sys.argv[1:]]:
        results = [check(PACKAGE, *files)]
    else:
        elsewhere = for_another_system(PACKAGE)
        targets = {"linux": [f"--package={name}" for name in CHECKED], "win32": elsewhere, "darwin": elsewhere}
        with ThreadPoolExecutor() as pool:
            runs = [pool.submit(check, PACKAGE, *names, system=system) for system, names in targets.items()]
        results = [run.result() for run in runs]
    # Most errors are those of every system.
    print("\n".join(dict.fromkeys(line for done in results for line in done.stdout.splitlines())))
    return max(done.returncode for done in results)


if __name__ == "__main__":
    sys.exit(main())
