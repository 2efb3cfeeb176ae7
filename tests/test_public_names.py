"""What `dir`, completion and the reference show is what is public, and nothing else."""

from __future__ import annotations

import ast
import pydoc
import re
import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.core.words.suggestions import near
from lucid.nn import functional

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
PAGES = {
    "lucid": ["lucid"],
    "nn": ["lucid.nn", "lucid.nn.init"],
    "functional": ["lucid.nn.functional"],
    "ops": ["lucid.ops"],
    "optim": ["lucid.optim"],
    "losses": ["lucid.losses"],
    "gradients": ["lucid.gradients"],
    "export": ["lucid.export"],
    "runtime": ["lucid.runtime"],
    "generation": ["lucid.generation"],
    "models": ["lucid.models"],
    "checkpoints": ["lucid.models.checkpoints"],
    "parts": ["lucid.models.parts"],
    "layouts": ["lucid.layouts"],
    "importing": ["lucid.importing"],
    "batch": ["lucid.batch"],
    "tokenizing": ["lucid.layouts.tokenizing"],
    "images": ["lucid.layouts.images"],
    "chat": ["lucid.generation.chat"],
    "quantization": ["lucid.quantization"],
    "testing": ["lucid.testing"],
    "looking": ["lucid.inspection", "lucid.inspection.report", "lucid.inspection.plot"],
}
# Pages also show the classes of what public functions give, and what `lucid.models.whisper` offers.
RESULTS = {
    "testing": {"LayerError", "OutputError", "Ranked", "TextError", "Times"},
    "lucid": {"Compiled"},
    "models": {"Segment", "Transcription", "WhisperTokenizer", "log_mel", "read_wav", "transcribe"},
}
PUBLIC = [import_module(name) for names in PAGES.values() for name in names]


def on_page(page: str) -> set[str]:
    """The names that a page of the reference describes: by their docstrings, or in the first cells of its table."""
    text = (REFERENCE / f"{page}.md").read_text(encoding="utf-8")
    addresses = re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE)
    assert not [address for address in addresses if "._" in address], f"{page}.md shows private modules"
    directives = [address.rpartition(".")[2] for address in addresses]
    cells = re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)
    named = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    repeated = {name for name in named if named.count(name) > 1} | (set(named) & set(directives))
    assert not repeated, f"{page}.md has them twice"
    return {*directives, *named}


@pytest.mark.parametrize("module", PUBLIC, ids=lambda module: module.__name__)
def test_dir_shows_what_is_public(module: ModuleType):
    shown = dir(module)
    assert shown == sorted(set(shown))
    assert {name for name in shown if name.startswith("_")} <= {"__version__"}
    if module is not lucid:  # whose star import brings no packages
        assert set(shown) == set(module.__all__)
    for name in shown:
        value = getattr(module, name)
        if isinstance(value, ModuleType):
            assert value.__name__ == f"{module.__name__}.{name}", f"{name} is a module that is only imported there"
        else:
            home = getattr(value, "__module__", "lucid")
            assert home.startswith("lucid") or home in ("typing", "types", "builtins", "collections.abc"), (name, home)


@pytest.mark.parametrize("page", PAGES)
def test_the_reference_shows_what_is_public(page: str):
    public = {name for module in PAGES[page] for name in dir(import_module(module))}
    if page == "lucid":  # each of the parts has a page
        text = (REFERENCE / "lucid.md").read_text(encoding="utf-8").split("| Names")[0]
        parts = {name for name in public if isinstance(getattr(lucid, name), ModuleType)}
        assert parts == set(re.findall(r"`(\w+)`", text))
        public -= parts
    if page == "models":  # each of the files is in a table
        table = (REFERENCE.parent / "models.md").read_text(encoding="utf-8")
        public -= set(re.findall(r"\[(\w+)\.py\]", table))
    assert on_page(page) - RESULTS.get(page, set()) == public


def test_help_of_an_op_shows_its_arguments() -> None:
    assert pydoc.plain(pydoc.render_doc(lucid.exp)).splitlines()[2] == "exp = <op exp(x)>"
    assert repr(lucid.ops.softmax) == "<op softmax(x, *, axis=-1)>"


def test_texts_name_what_an_installation_has() -> None:
    """Docstrings and messages: no files of the repository that are not in a wheel, and pages by their titles."""
    root = REFERENCE.parents[1]
    titles = set(re.findall(r'^ +- "?([^":\n]+)"?: \S+\.md$', (root / "mkdocs.yml").read_text(), re.MULTILINE))
    titles |= {page.read_text().partition("\n")[0].removeprefix("# ") for page in root.glob("docs/**/*.md")}
    for file in (*root.glob("lucid/**/*.py"), *root.glob("models/**/*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                absent = re.findall(r"(?<![\w/.])(?:docs|tests|tools|examples|benchmarks)/[\w./-]+", node.value)
                assert not absent, f"{file}, line {node.lineno} names {absent[0]}"
                pages = {" ".join(page.split()) for page in re.findall(r'\b[Tt]he\s+page\s+"([^"]+)"', node.value)}
                assert pages <= titles, f"{file}, line {node.lineno} names {pages - titles}"


def test_a_tensor_has_a_second_address():
    assert import_module("lucid._tensor").Tensor is lucid.Tensor


def test_a_model_is_found_without_importing_its_file():
    assert lucid.models.gpt2.GPT2.__module__ == "lucid.models.gpt2"


@pytest.mark.parametrize(
    ("module", "name", "expected"),
    [
        (nn, "MultiHeadAtention", "; did you mean MultiHeadAttention or MultiheadAttention?"),
        (nn, "layer_norm", "; did you mean LayerNorm?"),
        (nn, "CTCLoss", ": it sums over alignments, which only training needs; compute it in torch"),
        (functional, "gelo", "; did you mean gelu?"),
        (lucid.ops, "sofmax", "; did you mean softmax?"),
        (lucid.export, "to_onx", "; did you mean to_onnx?"),
        (lucid.models, "wisper", "; did you mean whisper?"),
        (lucid, "exprot", "; did you mean export?"),
        (lucid, "xylophone", ""),
        (nn, "__wrapped__", ""),
    ],
)
def test_an_unknown_name_is_an_error_with_what_it_may_mean(module: ModuleType, name: str, expected: str):
    with pytest.raises(AttributeError) as error:
        getattr(module, name)
    assert str(error.value) == f"module '{module.__name__}' has no attribute {name!r}{expected}"
    assert traceback.format_exception_only(error.value) == [f"AttributeError: {error.value}\n"], "Python adds nothing"


def test_near_names_come_nearest_first_and_distant_ones_not_at_all():
    assert near("to-onx", ["to_onnx", "explain"]) == ["to_onnx"]
    assert near("Conv2D", ["Conv1d", "Conv2d", "Conv3d"]) == ["Conv2d"]
    assert near("cache", ["rows", "Linear"]) == []
    assert near("", ["a"]) == near("a", []) == []


def test_an_attribute_of_a_tensor_is_suggested():
    x = lucid.ones(2)
    with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'sofmax'; did you mean softmax"):
        x.sofmax  # noqa: B018


def test_numpy_asks_a_tensor_for_protocols_without_a_search_for_suggestions(monkeypatch: pytest.MonkeyPatch):
    """Which took 50 us for each of the two names that np.asarray asks for."""
    x = lucid.ones(2)
    monkeypatch.setattr("lucid.ops.tensor.tensor.why_absent", lambda *_: pytest.fail("searched"))
    assert np.asarray(x).tolist() == [1, 1]
    with pytest.raises(AttributeError, match=r"^'Tensor' object has no attribute '__cuda_array_interface__'$"):
        x.__cuda_array_interface__  # noqa: B018
