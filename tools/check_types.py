"""mypy over the package as it is shipped, for each system, with messages that name the files of the repository.

The types of Python's library say which names a system has, so code that uses a name of POSIX alone does not pass.

`lucid/__init__.py` tells Python where `models/` is, and a type checker does not run it. So setuptools copies the sources to
build/package first, where `lucid.models` lies in `lucid`, as in a wheel.

python -m tools.check_types          the whole package, as Linux, Windows and macOS have it
python -m tools.check_types FILE     a file of a user
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "build" / "package"
SYSTEMS = ("linux", "win32", "darwin")


def ship(folder: Path) -> None:
    """Copy the package to `folder`, which is emptied before."""
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def check(folder: Path, *targets: str, system: str = sys.platform) -> subprocess.CompletedProcess[str]:
    """What mypy prints about `targets`, which are its arguments, with the package of `folder`."""
    cache = ROOT / ".mypy_cache" / system
    options = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(cache), "--platform", system]
    done = subprocess.run([sys.executable, "-m", "mypy", *options, *targets], cwd=folder, stdout=-1, text=True)
    done.stdout = re.sub(r"^lucid/models/", "models/", done.stdout, flags=re.MULTILINE)
    return done


def main() -> int:
    ship(PACKAGE)
    if files := [str(Path(name).resolve()) for name in sys.argv[1:]]:
        results = [check(PACKAGE, *files)]
    else:
        with ThreadPoolExecutor() as pool:
            results = list(pool.map(lambda system: check(PACKAGE, "--package", "lucid", system=system), SYSTEMS))
    # Most errors are those of every system.
    print("\n".join(dict.fromkeys(line for done in results for line in done.stdout.splitlines())))
    return max(done.returncode for done in results)


if __name__ == "__main__":
    sys.exit(main())
