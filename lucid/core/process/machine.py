"""What measured times depend on: the processor, and the installed onnxruntime, told without loading it."""

from __future__ import annotations

import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("onnxruntime", "onnxruntime-gpu")
_CPUINFO = Path("/proc/cpuinfo")


def processor() -> str:
    """The processor, as the system calls it, with the numbers that tell apart generations of one name on x86."""
    told = _CPUINFO.read_text(encoding="utf-8", errors="replace") if _CPUINFO.exists() else ""
    fields = dict(re.findall(r"^(model name|cpu family|model)\s*: *(.*)$", told, re.MULTILINE))
    if "model name" not in fields:
        return platform.processor() or platform.machine()
    return f"{fields['model name'].strip()} (family {fields.get('cpu family')}, model {fields.get('model')})"


def onnxruntime_version() -> str:
    """The version of the installed onnxruntime; empty if there is none."""
    for package in _PACKAGES:
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return ""
