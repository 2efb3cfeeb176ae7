"""The `lucid` console script, as installed with the package."""

from __future__ import annotations

import runpy
import signal
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import pytest

LUCID = Path(sys.executable).with_name("lucid")


def in_process(arguments: Sequence[object], monkeypatch: pytest.MonkeyPatch, cwd: Path | None = None) -> int:
    """Run the script's file in this process, which is much faster than starting a new one; returns the exit code."""
    assert LUCID.exists(), "the console script is not installed: pip install -e ."
    modules, interrupt = set(sys.modules), signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        if cwd is not None:
            patch.chdir(cwd)
        patch.setattr(sys, "argv", ["lucid", *map(str, arguments)])
        patch.setattr(sys, "path", list(sys.path))
        patch.setattr(sys, "excepthook", sys.excepthook)
        patch.setattr(warnings, "showwarning", warnings.showwarning)
        try:
            runpy.run_path(str(LUCID), run_name="__main__")
        except SystemExit as end:
            return int(end.code or 0)
        except Exception as error:  # noqa: BLE001  # as Python itself
            sys.excepthook(type(error), error, error.__traceback__)
            return 1
        finally:
            signal.signal(signal.SIGINT, interrupt)  # after a Ctrl-C the command leaves the next one to the system
            for name in set(sys.modules) - modules:
                if name.startswith("lucid_source_"):  # another test's file may have the same name
                    del sys.modules[name]
    return 0
