"""The classes that transformers has for each model type, by the names that `architectures` may have.

`architectures.json` is generated from the sources of transformers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_TABLE: Mapping[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))

TRANSFORMERS: str = _TABLE["transformers"]
"""The version of the sources."""
CLASSES: Mapping[str, Sequence[str]] = _TABLE["classes"]
