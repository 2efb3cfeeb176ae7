"""Groups of options are handed on by name: each name is an argument of what takes it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import typer

import lucid
from lucid.batch import Predictor, map_rows
from lucid.cli.app import parser
from lucid.cli.commands.export import _checkpoint_for
from lucid.cli.errors import CommandError
from lucid.cli.options import commands, groups
from lucid.cli.options.groups import whole_bytes
from lucid.core.words.byte_sizes import bytes_of
from lucid.export import Target, to_onnx
from lucid.export.options import ExportOptions
from lucid.generation.chat import Tokenizer
from lucid.generation.options import Options
from lucid.layouts import write_folder
from lucid.serving import Limits, application
from lucid.serving.running import Settings
from lucid.testing import assert_parity
from tests.console import in_process


@pytest.mark.parametrize(
    ("group", "takes", "others"),
    [
        (groups.TargetOptions, Target, {"target"}),
        (groups.FileOptions, to_onnx, set()),
        (groups.FileOptions, ExportOptions, set()),
        (groups.ToleranceOptions, assert_parity, set()),
        (groups.QuantizationOptions, lucid.quantize, {"text"}),
        (commands.FolderOptions, write_folder, set()),
        (commands.SamplingOptions, Options, set()),
        (commands.RepetitionOptions, Options, set()),
        (commands.ConstraintOptions, Tokenizer.constraint, set()),
        (commands.PredictorOptions, Predictor, set()),
        (commands.JobOptions, map_rows, set()),
        (commands.ApplicationOptions, application, set()),
        (commands.ProcessOptions, Settings, set()),
        (commands.LimitOptions, Limits, set()),
    ],
)
def test_names_of_options_are_arguments(group: type, takes: Callable[..., Any], others: set[str]) -> None:
    names = {field.name for field in fields(group)}
    assert names - inspect.signature(takes).parameters.keys() == others


def test_no_two_groups_of_a_command_declare_an_option() -> None:
    """A command may itself declare an option of its groups again, to describe it further."""
    for command in vars(commands).values():
        if isinstance(command, type) and issubclass(command, groups.Command):
            bases = [base for base in command.__mro__[1:] if base is not object]
            declared = [name for base in bases for name in inspect.get_annotations(base)]
            assert len(declared) == len(set(declared)), command


def test_no_option_of_a_file_is_ignored_for_a_folder(tmp_path: Path) -> None:
    """One that is declared later is refused as well, until folders take it."""
    (tmp_path / "config.json").touch()
    options = parser()(["export", str(tmp_path), "--for", "onnxruntime"], standalone_mode=False)
    assert _checkpoint_for(options, "onnxruntime") == tmp_path
    of_models = {*groups.names_of(groups.QuantizedModelOptions), *groups.names_of(groups.JsonCommand), "output"}
    taken = {*inspect.signature(write_folder).parameters, *of_models}
    of_files = {field.name for field in fields(options)} - taken
    assert {"opset", "keep_io_types", "inputs", "attention"} <= of_files
    for name in of_files:
        with pytest.raises(CommandError, match=f"the layout decides {name.replace('_', '-')}; leave it out"):
            _checkpoint_for(replace(options, **{name: ["another"]}), "onnxruntime")


def test_items_of_a_list_are_inputs_by_number(tmp_path, monkeypatch, capsys):
    (tmp_path / "net.py").write_text("def step(x, past): return x + past[0] * past[1]\n")
    step = ["export", "net.py:step", "-i", "x:N,4", "-i", "past.1:N,4", "-o", "net.onnx"]
    assert in_process([*step, "-i", "past.0:N,4"], monkeypatch, tmp_path) == 0
    assert "past.0   float32[N, 4]" in capsys.readouterr().out
    for more, says in (
        ("past.2:N,4", "past.0 is missing; number the items of past from 0"),
        ("past:N,4", "give either past or its items"),
        ("past.:N,4", "or NAME.0:... for the first item of a list"),
    ):
        assert in_process([*step, "-i", more], monkeypatch, tmp_path) == 2
        assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "unit", "count"),
    [
        ("4194304", "B", 4 << 20),
        ("4MiB", "B", 4 << 20),
        ("4 mib", "B", 4 << 20),
        ("1.5GB", "B", 1.5e9),
        (".5kB", "B", 500),
        ("7B", "GiB", 7),
        ("2", "GiB", 2 << 30),
        ("0.5", "GB", 5e8),
    ],
)
def test_sizes_have_units(text: str, unit: str, count: float) -> None:
    assert bytes_of(text, unit) == count


@pytest.mark.parametrize("text", ["", "4m", "4 Gb/s", "MiB", "1,5GB", "-1MiB", "1.2.3kB", "4MiB "[::-1]])
def test_other_units_are_named(text: str) -> None:
    expected = f"^{re.escape(repr(text))}, expected a number of bytes, or one with a unit, such as 4MiB or 1.5GB$"
    with pytest.raises(ValueError, match=expected):
        bytes_of(text)


@pytest.mark.parametrize("text", ["0", "0.5", "nan", "inf", "-2", "9e18TB"])
def test_the_limit_of_a_request_is_a_size(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="expected"):
        whole_bytes(text)
    assert whole_bytes("1MiB") == 1 << 20
