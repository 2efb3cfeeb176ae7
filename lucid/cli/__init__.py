"""The `lucid` command: the command line (`options`, `app`), the subcommands (`commands`), and what they share.

Nothing imports from it. What a user could want from Python belongs to a room below.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec

_NEEDED = ("typer", "rich")


def main() -> None:
    """The console script; says what to install if the extra `cli` is missing."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        sys.exit(f"lucid: the command line needs {' and '.join(missing)}: pip install 'lucid-onnx[cli]'")
    import_module("lucid.cli.console").main()
