"""Exported folders of models of the goldens, with a token for each letter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lucid
from lucid.layouts import write_folder
from tests.layout_checkpoints import whole


def exported(folder: Path, variant: str, layout: str = "onnxruntime", config: dict[str, Any] | None = None) -> Path:
    """The folder that `lucid export --for` writes.

    Args:
        folder: where checkpoint and folder are made.
        variant: of the goldens.
        layout: of the folder.
        config: more options for its config.json.
    """
    source, target = whole(folder / "checkpoint", variant), folder / "exported"
    if config:
        path = source / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | config))
    write_folder(lucid.models.load(source), source, target, layout=layout, external_data=True, check=False)
    return target
