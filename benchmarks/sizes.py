"""What installations take on disk: ``python -m benchmarks.sizes`` makes each in a new environment and counts its bytes.

Writes benchmarks/sizes.json, which README and docs/install.md show. Needs nothing but Python and a package index.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
import venv
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tools.setup import MINILM, ROOT, TASKS, TORCH, Arguments, Environment

FILE = Path(__file__).with_suffix(".json")
INSTALLATIONS: dict[str, tuple[Arguments, ...]] = {
    "Lucid to export and run: `'.[cpu]'`": ((".[cpu]",),),
    "Lucid with its command: `'.[cpu,cli]'`": ((".[cpu,cli]",),),
    "torch for the CPU, its exporter and onnxruntime": (TORCH, ("onnxscript", "onnxruntime")),
    "`make demo`": TASKS["demo"].installs,
    "of `make demo`, the weights of MiniLM": (MINILM,),
    "`make test`": TASKS["test"].installs,
}


def main() -> None:
    """Measure, and write the file; the pages are written by ``python -m benchmarks --pages``."""
    with tempfile.TemporaryDirectory(prefix="lucid-sizes-") as scratch:
        sizes = {name: _megabytes(Path(scratch) / str(i), INSTALLATIONS[name]) for i, name in enumerate(INSTALLATIONS)}
    data = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "megabytes": sizes,
    }
    FILE.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    print(FILE.read_text(encoding="utf-8"))


def _megabytes(folder: Path, installs: tuple[Arguments, ...]) -> int:
    """What pip adds to an empty environment, compiled code included, in 10^6 bytes."""
    venv.create(folder)
    pip = [sys.executable, "-m", "pip", "--python", str(Environment(folder).python), "install", "--quiet"]
    before = _bytes(folder)
    for arguments in installs:
        subprocess.run([*pip, *arguments], cwd=ROOT, check=True)
    return round((_bytes(folder) - before) / 1e6)


def _bytes(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


def table(data: dict[str, Any]) -> list[list[str]]:
    """The rows of the pages."""
    head = ["Installation", f"MB on disk, {data['date']}, {data['system']}"]
    return [head, *([name, f"{size}"] for name, size in data["megabytes"].items())]


if __name__ == "__main__":
    main()
