"""`lucid verify` reads from a file what it was exported of: the inputs, the names of axes and the part of the model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

import lucid
from lucid.export.exporter import lower
from lucid.export.options import ExportOptions
from lucid.models.bert import Bert
from lucid.testing.weights import compare_weights
from lucid.tracing.parts import TracedPart
from tests.console import in_process
from tests.layout_checkpoints import whole
from tests.models import goldens

BERT = goldens.folder("bert/base")


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """A command in this process: its exit code, what it prints, and its errors."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = in_process(arguments, monkeypatch)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def with_epsilon(path: Path, epsilon: float) -> None:
    """Change the epsilon of every normalisation of a file."""
    model = onnx.load(path)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "epsilon":
                attribute.f = epsilon
    onnx.save(model, path)


def files_of(out: str) -> dict[str, Any]:
    return {Path(file["file"]).name: file for file in json.loads(out)["files"]}


LAYOUTS = [
    ("bert/base", ("onnxruntime",)),
    ("bert/base", ("transformers.js",)),
    ("bert/base", ("triton",)),
    ("sentences/dense", ("sentence-transformers",)),
    ("qwen2/tied", ("optimum",)),
    ("llama/llama3", ("genai",)),
    ("whisper/base", ("onnxruntime",)),
    ("llama/llama3", ("onnxruntime", "--cache", "fixed")),
    ("llama/llama3", ("onnxruntime", "--cache", "fixed", "--capacity", "12")),
    ("llama/llama3", ("triton",)),
    ("mamba2/base", ("transformers.js",)),
    ("t5/v1_1", ("onnxruntime",)),
    ("vit/base", ("onnxruntime",)),
    ("clip/gelu", ("onnxruntime",)),
]


@pytest.mark.parametrize(("variant", "options"), LAYOUTS)
def test_a_folder_is_verified_without_options(
    variant: str, options: tuple[str, ...], call: Any, tmp_path: Path
) -> None:
    checkpoint, folder = whole(tmp_path / "checkpoint", variant), tmp_path / "folder"
    assert call("export", checkpoint, "--for", *options, "-o", folder, "--no-check")[0] == 0
    code, out, error = call("verify", checkpoint, folder, "--json")
    assert code == 0, out + error
    reports = files_of(out)
    assert len(reports) == len(list(folder.rglob("*.onnx")))
    for name, report in reports.items():
        weights = report["weights"]
        assert weights["equal"] == weights["compared"] == weights["stored"] > 0, name
        assert not weights["note"] and not weights["missing"], name


def test_a_file_of_a_folder_is_verified_by_itself(call: Any, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    assert call("export", BERT, "--for", "onnxruntime", "-o", folder, "--no-check")[0] == 0
    code, out, _ = call("verify", BERT, folder / "model.onnx")
    assert code == 0 and "batch_size=1 sequence_length=1" in out and "differ" not in out
    with_epsilon(folder / "model.onnx", 1e-9)
    code, out, _ = call("verify", BERT, folder / "model.onnx")
    assert code == 1 and "FAIL  nodes with other attributes: " in out
    code, out, _ = call("verify", BERT, folder)
    assert code == 1 and f"{folder / 'model.onnx'}\n" in out


def test_a_folder_without_models_is_refused(call: Any, tmp_path: Path) -> None:
    code, _, error = call("verify", BERT, tmp_path)
    assert code == 2 and f"{tmp_path}: has no ONNX file" in error


@pytest.mark.parametrize("way", [("-o", "FOLDER/model.onnx"), (), ("--for", "sentence-transformers")])
def test_the_only_export_of_a_checkpoint_is_found(way: tuple[str, ...], call: Any, tmp_path: Path) -> None:
    checkpoint = whole(tmp_path / "checkpoint", "sentences/dense")
    output_options = [word.replace("FOLDER", str(checkpoint)) for word in way]
    code, _, error = call("verify", checkpoint)
    assert code == 2 and f"has no export, such as {checkpoint}.onnx; give MODEL.ONNX after it" in error
    assert call("export", checkpoint, *output_options, "--no-check")[0] == 0
    code, out, error = call("verify", checkpoint)
    assert code == 0 and out.count("bit for bit") == 1 and ".onnx\n" in out.splitlines(keepends=True)[0], error


def test_several_exports_of_a_checkpoint_are_named(call: Any, tmp_path: Path) -> None:
    checkpoint = whole(tmp_path / "checkpoint", "sentences/dense")
    for output_options in ((), ("--for", "onnxruntime")):
        assert call("export", checkpoint, *output_options, "--no-check")[0] == 0
    code, _, error = call("verify", checkpoint)
    named = f"has the exports {checkpoint}.onnx, {checkpoint}-onnxruntime; give MODEL.ONNX after it"
    assert code == 2 and named in " ".join(error.split())
    code, _, error = call("verify", f"{checkpoint}-onnxruntime")
    assert code == 2 and "is an export; give the checkpoint that it was made of before it" in " ".join(error.split())


@pytest.mark.parametrize("axes", ["N,L", "batch_size,sequence_length", "a,b"])
def test_names_of_axes_do_not_matter(axes: str, call: Any, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    assert call("export", BERT, "--for", "onnxruntime", "-o", folder, "--no-check")[0] == 0
    names = [value.name for value in onnx.load(folder / "model.onnx").graph.input]
    inputs = [word for name in names for word in ("-i", f"{name}:int64:{axes}")]
    code, out, _ = call("verify", BERT, folder / "model.onnx", *inputs)
    assert code == 0 and "were not compared" not in out and "nodes are not those" not in out
    with_epsilon(folder / "model.onnx", 1e-9)
    code, out, _ = call("verify", BERT, folder / "model.onnx", *inputs)
    assert code == 1 and "FAIL  nodes with other attributes: " in out


def test_fixed_sizes_come_from_the_file(call: Any, tmp_path: Path) -> None:
    path = tmp_path / "fixed.onnx"
    inputs = [word for name in ("input_ids", "attention_mask") for word in ("-i", f"{name}:int64:2,7")]
    assert call("export", BERT, "-o", path, *inputs)[0] == 0
    code, out, error = call("verify", BERT, path)
    assert code == 0 and "were not compared" not in out, error


def test_limits_of_sizes_come_from_the_file_and_are_compared(call: Any, tmp_path: Path) -> None:
    path, layer = tmp_path / "limited.onnx", ("nn.Linear", "--set", "in_features=3", "--set", "out_features=2")
    limited = ("-i", "x:float32:2 <= N <= 64,3")
    assert call("export", *layer, *limited, "-o", path)[0] == 0
    code, out, error = call("verify", *layer[:1], path, *layer[1:])
    assert code == 0 and "N=64" in out and "N=1 " not in out, error
    model = onnx.load(path)
    (bounds,) = (entry for entry in model.metadata_props if entry.key == "lucid.bounds")
    bounds.value = '{"N": [2, 65]}'
    onnx.save(model, path)
    code, out, _ = call("verify", *layer[:1], path, *layer[1:], *limited)
    assert code == 1 and 'FAIL  metadata lucid.bounds: {"N": [2, 65]}, expected {"N": [2, 64]}' in out


def test_a_loop_is_compared_whatever_its_axes_are_called(tmp_path: Path) -> None:
    def model(x: lucid.Tensor) -> Any:
        return lucid.ops.scan(lambda carry, row: (carry + row.sum() * x.shape[1], carry), lucid.zeros(()), x)

    exported = lucid.export.to_onnx(model, lucid.spec("rows", "columns"), path=tmp_path / "loop.onnx")
    assert any(attribute.HasField("g") for node in exported.graph.node for attribute in node.attribute)
    graph = lucid.trace(model, lucid.spec("N", "L"))
    report = compare_weights(exported, lower(TracedPart(graph), ExportOptions()))
    assert report.passed and not report.note and report.compared == report.stored


def test_what_does_not_fit_says_what_to_give(call: Any, tmp_path: Path) -> None:
    lucid.export.to_onnx(
        Bert.from_pretrained(BERT),
        path=tmp_path / "model.onnx",
        kwargs={"input_ids": lucid.spec("N", "L", dtype="int64")},
    )
    inputs = [word for name in ("input_ids", "attention_mask") for word in ("-i", f"{name}:int64:N,L")]
    code, _, error = call("verify", BERT, tmp_path / "model.onnx", *inputs)
    assert code == 2
    assert "the file has other inputs or outputs than the model as it is called here" in error
    assert "The file maps input_ids to" in error
