"""Types of the package as it is shipped: a call has the type of its class's forward, and models have types.

The folders that use the package are checked with it.
"""

from __future__ import annotations

import re
from pathlib import Path

from tools.check_types import CHECKED, check, differing, for_another_system, ship

ROOT = Path(__file__).parents[1]

CALLS = """

from collections.abc import Callable
from typing import assert_type

from lucid.losses import mse_loss


class Pair(nn.Module):
    def forward(self, x: lucid.Tensor, scale: float = 1.0) -> tuple[lucid.Tensor, lucid.Tensor]:
        return x, x * scale


x, either = lucid.randn(2, 3, 64), bool(block.training)
attention = nn.MultiHeadAttention(64, 4)
assert_type(block(x), lucid.Tensor)
assert_type(nn.Linear(64, 8)(x), lucid.Tensor)
assert_type(Pair()(x, scale=2.0), tuple[lucid.Tensor, lucid.Tensor])
assert_type(attention(x, is_causal=True), lucid.Tensor)
assert_type(attention(x, x, x, need_weights=True), tuple[lucid.Tensor, lucid.Tensor])
assert_type(attention(x, need_weights=either), lucid.Tensor | tuple[lucid.Tensor, lucid.Tensor])
activation: Callable[[lucid.Tensor], lucid.Tensor] = nn.GELU()
bert = lucid.models.bert.Bert.from_pretrained("folder")
assert_type(bert, lucid.models.bert.Bert)
assert_type(lucid.models.load("folder"), lucid.models.Pretrained[object])
assert_type(mse_loss(x, x), lucid.Tensor)
assert_type(lucid.losses.mse_loss(x, x), lucid.Tensor)
assert_type(lucid.losses.mse_loss(x, x), lucid._tensor.Tensor)

lucid.from_torch(object(), x, dynamic={"x": {0: "N"}})
providers = ["cuda", "cpu"]
lucid.runtime.Session("model.onnx", providers)
lucid.runtime.Training("step", "start.safetensors", providers)

attention(1, 2, nonsense=4)  # refused: call-overload
block(x, nonsense=4)  # refused: call-arg
block()  # refused: call-arg
block("x")  # refused: arg-type
Pair()(x, "much")  # refused: arg-type
activation = Pair()  # refused: assignment
lucid.models.load(7)  # refused: arg-type
"""

USERS = """
from benchmarks import peers
from examples import head
from tests.fuzz.choices import Choices
from tools import fuzz, model_tables

head.training_step()  # refused: call-arg
fuzz.smaller([1], Choices)  # refused: arg-type
model_tables.measured([])[0].nonsense  # refused: attr-defined
peers.torch.set_threads("two")  # refused: arg-type
"""


def check_refusals(folder: Path, source: str) -> None:
    """A strict checker refuses the marked lines of a program, for the reason given, and no other."""
    (folder / "program.py").write_text(source, encoding="utf-8")
    ship(folder / "package")
    printed = check(folder / "package", str(folder / "program.py")).stdout
    errors = re.findall(r"program\.py:(\d+): error: .*\[([\w-]+)\]$", printed, re.M)
    marks = ((number, re.search(r"# refused: ([\w-]+)", line)) for number, line in enumerate(source.splitlines(), 1))
    assert {(int(number), code) for number, code in errors} == {(number, mark[1]) for number, mark in marks if mark}, (
        printed
    )


def test_a_call_is_typed_as_forward_is(tmp_path: Path) -> None:
    """README's Block, followed by lines that a strict checker must accept, or refuse for the reason given."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    page = next(text for text in re.findall(r"^```python\n(.*?)^```$", readme, re.M | re.S) if "class Block" in text)
    check_refusals(tmp_path, page + CALLS)


def test_examples_tools_and_benchmarks_are_checked_with_the_package(tmp_path: Path) -> None:
    """Also calls of a benchmark's peer, whose library may be absent."""
    assert {"examples", "tools", "benchmarks", "tests.consumers", "tests.devices", "tests.engines"} < {*CHECKED}
    check_refusals(tmp_path, USERS)


def test_modules_that_may_differ_on_another_system_are_checked_for_it(tmp_path: Path) -> None:
    sources = {
        "locks": "import sys\nif sys.platform != 'win32':\n    import fcntl as fcntl\n",
        "forks": "import os.path\n\ndef fork() -> None:\n    os.fork()\n",
        "users": "from pack import locks\n\ndef lock() -> None:\n    locks.fcntl.flock(1, 2)\n",
        "alike": "import math\n\ndef half() -> float:\n    return math.pi / 2\n",
    }
    (tmp_path / "pack").mkdir()
    for name, text in {"__init__": "", **sources}.items():
        (tmp_path / "pack" / f"{name}.py").write_text(text, encoding="utf-8")
    assert differing(tmp_path) == {"pack.locks", "pack.forks", "pack.users"}
    assert check(tmp_path, *for_another_system(tmp_path), system="linux").returncode == 0
    printed = check(tmp_path, *for_another_system(tmp_path), system="win32").stdout
    errors = re.findall(r"pack.(\w+)\.py:\d+: error: .*\[([\w-]+)\]$", printed, re.M)
    assert sorted(errors) == [("forks", "attr-defined"), ("users", "attr-defined")], printed
