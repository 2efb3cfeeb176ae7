"""Measurements in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def run(module: str, *arguments: object) -> Any:
    """What a module prints last, which is JSON, when it runs as a program."""
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])
