"""Calls written as for torch.onnx and onnxruntime either work or say what is written here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.export import ExportError, explain, to_onnx
from lucid.runtime import Session

LINEAR, X = nn.Linear(4, 4), np.ones((2, 4), np.float32)
EXPORT: Any = to_onnx
FROM_TORCH: Any = lucid.from_torch
SIZES = "name the sizes where the inputs are given"

CALLS: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "a path by place": (lambda: EXPORT(LINEAR, ("N", 4), "a.onnx"), ExportError, r"write path='a\.onnx'$"),
    "a Path by place": (lambda: EXPORT(LINEAR, X, Path("a.onnx")), ExportError, r"write path='a\.onnx'$"),
    "a list of inputs": (lambda: EXPORT(LINEAR, [("N", 4)]), TypeError, "x is a list .* without a list"),
    "a tuple of inputs": (
        lambda: EXPORT(LINEAR, (X,)),
        TypeError,
        "x is a tuple .* without a tuple",
    ),
    "a list of which the shape is read": (
        lambda: lucid.trace(lambda x: x.reshape(x.shape), [("N", 4)]),
        AttributeError,
        "x is a list .* without a list",
    ),
    "a list to trace": (lambda: lucid.trace(LINEAR, [("N", 4)]), TypeError, r"x is a list .* without a list"),
    "a list to explain": (lambda: explain(LINEAR, [("N", 4)]), TypeError, r"x is a list .* without a list"),
    "dynamic_axes": (lambda: EXPORT(LINEAR, X, dynamic_axes={"x": {0: "N"}}), TypeError, f"dynamic_axes= .*{SIZES}"),
    "dynamic_shapes": (lambda: EXPORT(LINEAR, X, dynamic_shapes={"x": {0: "N"}}), TypeError, SIZES),
    "args": (lambda: EXPORT(LINEAR, args=(X,)), TypeError, r"args= is not taken: write the inputs by place: to_onnx\("),
    "args and a path": (lambda: EXPORT(LINEAR, args=X, f="a.onnx"), TypeError, "args= is not taken"),
    "training": (
        lambda: EXPORT(LINEAR, X, training=2),
        TypeError,
        "training= is not taken: .* lucid.export.training_s",
    ),
    "verify": (lambda: EXPORT(LINEAR, X, verify=True), TypeError, "verify= is not taken: lucid.testing.assert_parity"),
    "report": (lambda: EXPORT(LINEAR, X, report=True), TypeError, "report= is not taken: lucid.export.explain"),
    "weights outside": (lambda: EXPORT(LINEAR, X, export_params=False), TypeError, "export_params= is not taken: weig"),
    "a mistyped name": (
        lambda: EXPORT(LINEAR, X, ouput_names=["y"]),
        TypeError,
        r"^to_onnx\(\) got an unexpected keyword argument 'ouput_names'; did you mean output_names\?$",
    ),
    "an input by its name": (
        lambda: EXPORT(LINEAR, xs=("N", 4)),
        TypeError,
        r"^to_onnx\(\) got an unexpected .* 'xs'; give an input of the model by its name as kwargs={'xs': \.\.\.}$",
    ),
    "a mistyped name of an op": (
        lambda: lucid.tensor([1.0]).sum(axsi=0),  # type: ignore[call-arg]
        TypeError,
        r"^sum\(\) got an unexpected keyword argument 'axsi'; did you mean axis\?$",
    ),
    "from_torch": (lambda: FROM_TORCH(LINEAR, X, dynamic_shapes=({0: "N"},)), TypeError, r"from_torch\(.*dynamic="),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_in_torch_s_style_says_what_is_written_here(name: str) -> None:
    call, error, message = CALLS[name]
    with pytest.raises(error, match=message):
        call()


def test_arguments_of_torch_s_exporter_may_have_its_defaults() -> None:
    same = {"export_params": True, "training": None, "verify": False, "profile": False, "optimize": True}
    more = {"custom_opsets": None, "fallback": False, "keep_initializers_as_inputs": False, "artifacts_dir": "."}
    assert EXPORT(LINEAR, X, **same, **more) == to_onnx(LINEAR, X)


def test_torch_s_names_of_the_file_and_the_opset_are_taken(tmp_path: Path) -> None:
    model = EXPORT(LINEAR, ("N", 4), f=tmp_path / "a.onnx", opset_version=18, do_constant_folding=True, dynamo=True)
    assert model.opset_import[0].version == 18 and (tmp_path / "a.onnx").is_file()


RUNS: dict[str, tuple[tuple[Any, ...], str]] = {
    "an array": (
        (X,),
        r"got ndarray, expected arrays by input name: session\.run\({'x': array}\); by place: session\(",
    ),
    "onnxruntime's None": ((None, {"x": X}), r"outputs are not chosen: write session\.run\({'x': array}\)"),
    "onnxruntime's names": ((["output"], {"x": X}), r"outputs are not chosen.*it gives all by name: 'output'"),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_in_onnxruntime_s_style_says_what_is_written_here(name: str) -> None:
    arguments, message = RUNS[name]
    session = Session(to_onnx(LINEAR, ("N", 4)))
    with pytest.raises(TypeError, match=message):
        session.run(*arguments)
