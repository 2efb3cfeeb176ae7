"""`import lucid` needs NumPy alone; onnx and onnxruntime load on first use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import lucid

ROOT = Path(__file__).parents[1]


def loaded_after(code: str) -> set[str]:
    """The top-level packages that a fresh Python has loaded after running the code."""
    script = f"{code}\nimport sys\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


HEAVY = {"onnx", "onnxruntime", "google", "safetensors", "torch", "tokenizers"}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import lucid, lucid.nn", set()),
        ("import lucid; lucid.nn.MultiHeadAttention(8, 2)(lucid.randn(1, 2, 8))", set()),
        ("import lucid; lucid.trace(lucid.nn.MultiHeadAttention(8, 2))", set()),
        ("import lucid; lucid.export.to_onnx(lucid.nn.Linear(2, 2))", {"onnx", "google"}),
        ("import lucid; lucid.runtime.Session", {"onnx", "google", "onnxruntime"}),
    ],
    ids=["import", "eager", "trace", "export", "runtime"],
)
def test_only_what_is_used_is_loaded(code: str, expected: set[str]) -> None:
    assert loaded_after(code) & HEAVY == expected


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'lucid' has no attribute 'exprot'"):
        lucid.exprot  # noqa: B018


def test_the_version() -> None:
    assert lucid.__version__ == lucid.version.__version__
    assert len(lucid.__version__.split(".")) == 3
