"""mypy over the package as it is shipped, with messages that name the files of the repository.

`lucid/__init__.py` tells Python where `models/` is, and a type checker does not run it. So setuptools copies the sources to
build/package first, where `lucid.models` lies in `lucid`, as in a wheel.

python -m tools.check_types          the whole package
python -m tools.check_types FILE     a file of a user
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "build" / "package"


def ship(folder: Path) -> None:
    """Copy the package to `folder`, which is emptied before."""
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def check(folder: Path, *targets: str) -> subprocess.CompletedProcess[str]:
    """What mypy prints about `targets`, which are its arguments, with the package of `folder`."""
    options = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    done = subprocess.run([sys.executable, "-m", "mypy", *options, *targets], cwd=folder, stdout=-1, text=True)
    done.stdout = re.sub(r"^lucid/models/", "models/", done.stdout, flags=re.MULTILINE)
    return done


def main() -> int:
    ship(PACKAGE)
    done = check(PACKAGE, *([str(Path(name).resolve()) for name in sys.argv[1:]] or ["--package", "lucid"]))
    print(done.stdout, end="")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
