"""Writes a corpus of broken and hostile files: `python tools/make_hostile_files.py FOLDER`.

Each case is a folder named after it; manifest.json lists name, kind (weights, gguf, wav or onnx), the path to open and
what is wrong. The corpus is the same every time. The tests open each case and expect a clear error.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import hostile_demands
import hostile_gguf
import hostile_models
import hostile_torch
import hostile_wav
import hostile_weights


def write_corpus(folder: Path) -> int:
    """Fill a new folder with the corpus; returns the number of cases."""
    folder.mkdir(parents=True)
    manifest = []
    for kind, cases in (
        ("weights", hostile_weights.CASES),
        ("weights", hostile_torch.CASES),
        ("gguf", hostile_gguf.CASES),
        ("wav", hostile_wav.CASES),
        ("onnx", hostile_models.CASES),
        ("onnx", hostile_demands.CASES),
    ):
        for name, (wrong, write) in cases.items():
            (folder / name).mkdir()
            path = write(folder / name).relative_to(folder).as_posix()
            manifest.append({"name": name, "kind": kind, "path": path, "wrong": wrong})
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return len(manifest)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python tools/make_hostile_files.py FOLDER   (a new folder)")
    print(f"{write_corpus(Path(sys.argv[1]))} hostile files in {sys.argv[1]}")
