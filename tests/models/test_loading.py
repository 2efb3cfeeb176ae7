"""lucid.models: any checkpoint's model by its model_type."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

import lucid
from lucid.models.checkpoints.families import FAMILIES, MODEL_TYPES, OTHER_FAMILIES
from lucid.models.checkpoints.pretrained import ConfigError, Pretrained
from tests.models import goldens
from tests.models.zoo import ZOO, Entry

ROOT = Path(__file__).parents[2]
FILES = [
    *sorted(path.stem for path in (ROOT / "models").glob("[a-z]*.py")),
    *sorted(f"vision.{path.stem}" for path in (ROOT / "models/vision").glob("[a-z]*.py")),
]


@pytest.mark.parametrize("entry", ZOO, ids=lambda entry: entry.variant)
def test_every_checkpoint_is_read_by_its_model(entry: Entry) -> None:
    task = entry.read.checkpoint.task  # type: ignore[attr-defined]
    assert type(lucid.models.load(goldens.folder(entry.variant), task)) is entry.read


def test_every_model_type_that_a_checkpoint_names_is_known() -> None:
    values = [value for name in FILES for value in vars(import_module(f"lucid.models.{name}")).values()]
    classes = [v for v in values if isinstance(v, type) and issubclass(v, Pretrained) and hasattr(v, "checkpoint")]
    named = {kind for cls in classes for kind in cls.checkpoint.model_types}
    assert named == {*MODEL_TYPES, *(kind for family in OTHER_FAMILIES.values() for kind in family.types)}
    for name, family in (FAMILIES | OTHER_FAMILIES).items():
        file, _, model = family.model.rpartition(".")
        assert file.removeprefix("vision.") == name
        assert vars(import_module(f"lucid.models.{file}"))[model].checkpoint.model_types == tuple(family.types)


def test_an_unknown_model_type_is_an_error_that_lists_the_known_ones_and_says_how_one_is_added(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    listed = r"model_type is 'mamba', torch may .*; supported: .*bert, .*whisper, .*; lucid.models.register adds one"
    with pytest.raises(ConfigError, match=listed):
        lucid.models.load(tmp_path)


@pytest.mark.parametrize("variant", ["llama/llama2", "gpt2/base"])
def test_parameters_are_of_the_given_element_type(variant: str) -> None:
    kinds = {p.dtype for p in lucid.models.load(goldens.folder(variant), dtype=lucid.float16).parameters()}
    assert kinds == {lucid.float16}


_BERT = goldens.folder("bert/base")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: lucid.models.load(3), "got 3, expected the path of a checkpoint, or owner/name of Hugging Face's hub"),
        (lambda: lucid.models.load([_BERT]), "expected the path of a checkpoint, or owner/name"),
        (lambda: lucid.models.load(_BERT, 3), "load: task is 3, expected its name as text"),
        (lambda: lucid.models.load(_BERT, architecture=3), "load: architecture is 3, expected its name"),
        (lambda: lucid.models.load(_BERT, ignore=3), "ignore: got 3, expected a name or a list of names"),
        (lambda: lucid.models.load(_BERT, ignore=["hidden_act", 3]), "ignore: got .*3.*, expected a name or a list"),
        (lambda: lucid.models.load(_BERT, outputs=[3]), r"outputs: got \[3\], expected a list of names"),
        (lambda: lucid.models.load(_BERT, adapters=3), "adapters: got 3, expected a folder, a list of folders, or a d"),
        (lambda: lucid.models.load(_BERT, adapters={"a": "b"}), "a: the weight of this adapter is 'b', expected a num"),
        (lambda: lucid.models.save(lucid.nn.ReLU(), _BERT, "x"), "save: got a ReLU, expected a model of a checkpoint"),
        (lambda: lucid.models.save_adapter(lucid.nn.ReLU(), _BERT, "x"), "save_adapter: got a ReLU, expected a model"),
    ],
)
def test_an_argument_of_another_type_is_an_error_that_names_it(call: Any, expected: str) -> None:
    with pytest.raises(TypeError, match=expected):
        call()


def test_only_the_file_of_the_model_is_imported() -> None:
    check = (
        "import sys, lucid; lucid.models.load(sys.argv[1]);"
        "print(*sorted(name for name in sys.modules if name.startswith('lucid.models.') and '._' not in name"
        " and not name.startswith(('lucid.models.checkpoints', 'lucid.models.parts'))))"
    )
    command = [sys.executable, "-c", check, str(goldens.folder("gpt2/base"))]
    shown = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert shown.split() == ["lucid.models.gpt2"]


def test_a_module_that_does_not_exist_is_named_as_it_was_imported() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'lucid\.models\.brt'"):
        import_module("lucid.models.brt")


_SAVED = ("bert/base", "tasks/distilbert_text_classification", "roberta/base", "gpt2/base", "llama/llama3", "t5/v1_1")


@pytest.mark.parametrize("variant", _SAVED)
def test_a_model_is_saved_under_the_names_of_its_checkpoint(tmp_path: Path, variant: str) -> None:
    """Those that transformers reads; also after training."""
    source = goldens.folder(variant)
    model: Any = lucid.models.load(source)
    for parameter in model.parameters():
        parameter.assign(parameter.numpy() + np.float32(0.5))
    lucid.models.save(model, source, tmp_path)
    before, after = lucid.load(source), lucid.load(tmp_path)
    assert after.keys() <= before.keys()
    with safe_open(tmp_path / "model.safetensors", "np") as file:
        assert file.metadata() == {"format": "pt"}, "transformers reads no other"
    assert {name: array.shape for name, array in after.items()} == {name: before[name].shape for name in after}
    again = lucid.models.load(tmp_path).state_dict()
    for name, tensor in model.state_dict().items():
        np.testing.assert_array_equal(again[name].numpy(), tensor.numpy())
