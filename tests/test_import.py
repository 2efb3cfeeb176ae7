"""Everything is loaded on first use: `import lucid` loads nothing, its tensors NumPy, its parts what they need."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import lucid
from lucid.core import offered as public
from lucid.core.torch_names.namespaces import Namespace

ROOT = Path(__file__).parents[1]


def loaded_after(code: str) -> set[str]:
    """The top-level packages that a new Python process has loaded after running the code."""
    script = f"{code}\nimport sys\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


HEAVY = {"numpy", "onnx", "onnxruntime", "google", "safetensors", "torch", "tokenizers", "pyarrow", "ray"}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import lucid; lucid.__version__", set()),
        ("import lucid.cli.app", set()),
        ("import lucid, lucid.nn", {"numpy"}),
        ("from lucid.losses import mse_loss; import lucid.linalg as l; from lucid.cuda import is_available", {"numpy"}),
        ("from lucid._tensor import Tensor; Tensor.randn(2, 3) + 1", {"numpy"}),
        ("from lucid.ops.tensor.tensor import Tensor; Tensor.randn(2, 3) + 1", {"numpy"}),
        ("import lucid; lucid.nn.MultiHeadAttention(8, 2)(lucid.randn(1, 2, 8))", {"numpy"}),
        ("import lucid; lucid.trace(lucid.nn.MultiHeadAttention(8, 2))", {"numpy"}),
        ("import lucid; lucid.export.to_onnx(lucid.nn.Linear(2, 2))", {"numpy", "onnx", "google"}),
        ("import lucid; lucid.runtime.Session", {"numpy", "onnx", "google", "onnxruntime"}),
        ("import lucid; lucid.generation.Generator", {"numpy", "onnx", "google", "onnxruntime"}),
    ],
    ids=[
        "import",
        "command",
        "nn",
        "namespaces",
        "tensor, as it was",
        "tensor",
        "eager",
        "trace",
        "export",
        "runtime",
        "generation",
    ],
)
def test_only_what_is_used_is_loaded(code: str, expected: set[str]) -> None:
    assert loaded_after(code) & HEAVY == expected


def test_every_namespace_is_imported_by_its_address() -> None:
    kinds = ModuleType, Namespace
    namespaces = {name for name in dir(lucid) if isinstance(getattr(lucid, name), kinds)}
    assert {"losses", "optim", "linalg", "autograd", "distributed"} <= namespaces
    for name in namespaces:
        assert import_module(f"lucid.{name}") is getattr(lucid, name)
    for name in ("tensor", "utils", "losses.inner"):
        with pytest.raises(ModuleNotFoundError):
            import_module(f"lucid.{name}")


@pytest.mark.parametrize(("setting", "telemetry"), [(None, "1"), ("0", "0")])
def test_onnxruntime_keeps_no_record_of_its_use(setting: str | None, telemetry: str, tmp_path: Path) -> None:
    """It gives the device an id, in a file of the home folder, and sends reports, unless it is told not to."""
    pytest.importorskip("onnxruntime", reason="needs the extra cpu")
    environment = {name: text for name, text in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    if setting is not None:
        environment["ORT_DISABLE_TELEMETRY"] = setting
    code = "import lucid, os; lucid.runtime.Session; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env={**environment, "HOME": str(tmp_path)}, capture_output=True, text=True)
    assert done.stdout == f"{telemetry}\n", done.stderr
    if setting is None:
        assert [*tmp_path.rglob("*")] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'lucid' has no attribute 'exprot'"):
        lucid.exprot  # noqa: B018


def test_what_is_offered_is_found_and_listed() -> None:
    offered = {name for name in vars(public) if not name.startswith("_")}
    assert offered <= set(dir(lucid)) and {"nn", "export"} <= set(dir(lucid))
    assert all(vars(public)[name] is getattr(lucid, name) for name in offered)
    modules = {path.stem for path in (ROOT / "lucid").glob("*")}
    assert not offered & modules, "a module of that name would hide it"


def test_a_star_brings_what_is_offered() -> None:
    loaded_after("from lucid import *; assert trace and Tensor and randn(2).shape == (2,)")


def test_the_version() -> None:
    assert lucid.__version__ == lucid.core.version.__version__
    assert len(lucid.__version__.split(".")) == 3
