"""What checks of files say: differing weights, damaged names, accuracy levels and what quantizing cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import lucid
from lucid import nn
from lucid.inspection import inspect_model
from lucid.models.bert import Bert
from lucid.runtime import ModelError, Session, check_model_file
from lucid.testing import ParityError, assert_parity, bisect
from lucid.testing.quantizing_cost import quantizing_cost
from lucid.testing.report import DifferentWeight, WeightReport
from lucid.tracing.parts import ModelPart
from tests.console import in_process
from tests.layout_checkpoints import whole
from tests.models import goldens

BERT = goldens.folder("bert/base")


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """A command in this process: its exit code, and what it prints."""

    def run(*arguments: object) -> tuple[int, str]:
        code = in_process(arguments, monkeypatch)
        return code, "".join(capsys.readouterr())

    return run


def report(count: int, weights: int) -> str:
    different = tuple(DifferentWeight(f"w{i}", count, (0,), "1", "2") for i in range(weights))
    return WeightReport(9, 9, different=different).lines()[0]


def test_numbers_and_weights_that_differ_are_counted_in_words() -> None:
    assert report(1, 1) == "FAIL  weights: 8 of 9 equal the model's, bit for bit; 1 number in 1 weight differs"
    assert report(19200, 1).endswith("; 19,200 numbers in 1 weight differ")
    assert report(2, 3).endswith("; 6 numbers in 3 weights differ")


def test_weights_that_are_equal_do_not_fail_for_the_attributes_of_nodes() -> None:
    first, second, *_ = WeightReport(9, 9, changed_nodes=("norm",), damaged=True).lines()
    assert first == "ok    weights: 9 of 9 equal the model's, bit for bit"
    assert second == "FAIL  nodes with other attributes: norm"


@pytest.mark.parametrize("stored", [("--bits", "4"), ("--dtype", "float16"), ("--bits", "4", "--dtype", "bfloat16")])
def test_a_file_of_another_precision_than_the_model_says_what_to_give(stored: Any, call: Any, tmp_path: Path) -> None:
    source = ("nn.Linear", "--set", "in_features=64", "--set", "out_features=32")
    assert call("export", *source, *stored, "-o", tmp_path / "m.onnx")[0] == 0
    code, out = call("verify", source[0], tmp_path / "m.onnx", *source[1:])
    assert code == 1
    assert f"in another precision than the model: give {' '.join(stored)}, or the same options as the export" in out


@pytest.mark.parametrize(
    ("stored", "options", "what_to_do"),
    [
        ((), ("--bits", "4"), "leave out --bits"),
        ((), ("--dtype", "float16"), "leave out --dtype"),
        (("--dtype", "float16"), ("--bits", "4"), "give --dtype float16 and leave out --bits"),
        (("--bits", "4"), ("--bits", "8"), "give --bits 4"),
        (("--bits", "0=4,1=8"), ("--bits", "8"), "give --bits PATTERN=BITS,..."),
    ],
)
def test_the_options_of_another_precision_than_the_files_are_named(
    stored: Any, options: Any, what_to_do: str, call: Any, tmp_path: Path
) -> None:
    (tmp_path / "net.py").write_text(
        "from lucid import nn\n\n\ndef make():\n    return nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 32))\n"
    )
    source = (f"{tmp_path / 'net.py'}:make", "-i", "x:N,64")
    assert call("export", *source, *stored, "-o", tmp_path / "m.onnx")[0] == 0
    code, out = call("verify", source[0], tmp_path / "m.onnx", *source[1:], *options)
    assert code == 1
    assert f"another precision than the model: {what_to_do}, or the same options as the export" in out


# Damaged names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["node", "input", "weight", "size"])
def test_a_name_that_is_not_text_is_an_error_that_names_the_file(place: str, call: Any, tmp_path: Path) -> None:
    path = tmp_path / "damaged.onnx"
    model = lucid.export.to_onnx(nn.Linear(4, 4), lucid.spec("rows", 4))
    names = {"node": model.graph.node[0].name, "input": "x", "weight": "bias", "size": "rows"}
    data, name = model.SerializeToString(), names[place].encode()
    at = data.index(bytes([len(name)]) + name) + 1
    path.write_bytes(data[:at] + bytes(255 - byte for byte in data[at : at + len(name)]) + data[at + len(name) :])
    for read in (check_model_file, inspect_model, Session):
        with pytest.raises(ModelError, match=r"damaged\.onnx'?: a name is not text in UTF-8.*intact copy"):
            read(path)
    sizes = ("--set", "in_features=4", "--set", "out_features=4")
    code, out = call("verify", "nn.Linear", path, *sizes)
    assert code == 2 and "damaged.onnx" in out and "a name is not text in UTF-8" in out


# The first difference -------------------------------------------------------------------------------------------------


def with_zeroed_rows(tmp_path: Path) -> tuple[Bert, Path]:
    """A model, and its file without the row of a token that is never drawn."""
    model = Bert.from_pretrained(BERT)
    exported = lucid.export.to_onnx(model)
    (table,) = (tensor for tensor in exported.graph.initializer if tensor.name == "embeddings.word_embeddings.weight")
    array = onnx.numpy_helper.to_array(table).copy()
    array[-1] = 0
    table.CopyFrom(onnx.numpy_helper.from_array(array, table.name))
    onnx.save(exported, tmp_path / "rows.onnx")
    return model, tmp_path / "rows.onnx"


def test_bisect_names_weights_where_no_node_differs(tmp_path: Path) -> None:
    model, path = with_zeroed_rows(tmp_path)
    ids = {"input_ids": np.zeros((2, 3), np.int64), "attention_mask": np.ones((2, 3), np.int64)}
    for exported in (path, str(path), onnx.load(path)):
        difference = bisect(model, exported=exported, arrays=ids)
        assert difference is not None
        assert str(difference).startswith(
            "no node differs on these inputs; these weights differ: embeddings.word_embeddings"
        )
        assert (
            difference.node == "embeddings.word_embeddings.weight" and difference.module == "embeddings.word_embeddings"
        )
        assert difference.max_abs == np.abs(model.state_dict()[difference.node].numpy()[-1]).max()
        assert [weight.name for weight in difference.weights] == [difference.node]


def test_bisect_takes_what_a_failed_parity_gives(tmp_path: Path) -> None:
    model, path = with_zeroed_rows(tmp_path)
    with pytest.raises(ParityError) as error:
        assert_parity(model, exported=path)
    assert bisect(model, exported=path, arrays=error.value.report.failing) is not None
    assert bisect(model, exported=path, arrays={}) is not None, "of no run that failed: its own"
    assert bisect(model, exported=lucid.export.to_onnx(model), arrays={}) is None
    with pytest.raises(
        KeyError, match="bisect: arrays has no attention_mask, expected one array for each of: input_ids"
    ):
        bisect(model, exported=path, arrays={"input_ids": np.zeros((1, 1), np.int64)})


# What quantizing cost -------------------------------------------------------------------------------------------------


def test_export_and_card_say_at_which_accuracy_level_they_compared(call: Any, tmp_path: Path) -> None:
    note = "compared at accuracy level 0; level 4 adds up to "
    checkpoint = whole(tmp_path / "checkpoint", "llama/llama3")
    for options in (("-o", tmp_path / "m4.onnx"), ("--for", "onnxruntime", "-o", tmp_path / "folder")):
        code, out = call("export", checkpoint, "--bits", 4, "--block", 16, "--target", "cpu", *options)
        assert code == 0 and note in out
        assert "cost  of quantizing (NumPy, quantized weights in float32 against the source): " in out
    assert note in call("verify", checkpoint, tmp_path / "folder", "--bits", 4, "--block", 16)[1]
    card = (tmp_path / "folder" / "README.md").read_text(encoding="utf-8")
    assert note in card and "computed by NumPy" in card


def test_the_cost_is_that_of_texts_and_the_same_for_a_file_and_a_folder() -> None:
    model = Bert.from_pretrained(BERT)
    small = lucid.quantize(model, 4, block=16)
    full = dict(model.full_input_specs())
    assert "token_type_ids" in full
    costs = []
    for inputs in ({}, full):
        lucid.manual_seed(len(costs))  # the checks before it draw numbers too
        costs.append(quantizing_cost(ModelPart(model, inputs), ModelPart(small, inputs)).outputs)
    assert costs[0] == costs[1]


# Records in folders ---------------------------------------------------------------------------------------------------


def test_a_card_without_a_tokenizer_names_no_file_that_is_missing(call: Any, tmp_path: Path) -> None:
    assert call("export", BERT, "--for", "onnxruntime", "-o", tmp_path / "folder", "--no-check")[0] == 0
    assert not (tmp_path / "folder" / "tokenizer.json").exists()
    card = (tmp_path / "folder" / "README.md").read_text(encoding="utf-8")
    code = card.split("```python\n")[1].split("```")[0]
    assert "tokenizer.json" not in code and "np.zeros([1, 1], np.int64)" in code
    assert "The checkpoint has no tokenizer.json" in card
