"""Checks of exported files run every branch that a size chooses, and say which one they leave out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

import lucid
from lucid.core.sizes.dims import dim, sym_min
from lucid.export.exporter import Lowered, lower
from lucid.export.onnx_file.writer import in_memory
from lucid.export.options import ExportOptions
from lucid.models.llama import Llama
from lucid.testing import ParityError, assert_parity
from lucid.testing.part_parity import part_parity
from lucid.testing.run_sizes import QUICK, branches_by_size, default_sizes
from lucid.tracing.parts import ModelPart, TracedPart, trace_part
from tests.console import in_process
from tests.models import goldens

LLAMA = goldens.folder("llama/llama3")
ABOVE = 192  # queries, from which on attention of a Llama is computed in blocks on a CPU


@pytest.fixture(scope="module")
def llama() -> Llama:
    return Llama.from_pretrained(LLAMA)


def lowered(model: Any, target: str = "cpu") -> Lowered:
    return lower(TracedPart(lucid.trace(model)), ExportOptions(target))


def wrong_when_long(model: Any) -> onnx.ModelProto:
    """The export with a fault that only blocks of queries have: each one starts at another key."""
    model_file = in_memory(lowered(model).assembled)
    (node,) = (node for node in model_file.graph.node if node.name == "model.layers.0.self_attn/attention/Max_2")
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model_file.graph.initializer}
    (zero,) = (place for place, name in enumerate(node.input) if name in arrays and arrays[name].tolist() == 0)
    many = next(name for name, array in arrays.items() if array.tolist() == ABOVE)
    model_file.graph.node.insert(0, onnx.helper.make_node("Add", [node.input[zero], many], ["first key"]))
    node.input[zero] = "first key"
    return model_file


def test_a_fault_of_many_queries_is_found_by_running(llama: Llama) -> None:
    wrong = wrong_when_long(llama)
    report = part_parity(ModelPart(llama, {}), wrong, ExportOptions("cpu"))
    assert {c.sizes["L"] for c in report.comparisons if not c.passed} == {ABOVE + 1}
    with pytest.raises(ParityError, match=f"L={ABOVE + 1}"):
        assert_parity(llama, exported=wrong, target="cpu")


def test_verify_finds_a_fault_of_many_queries(
    llama: Llama, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(wrong_when_long(llama), tmp_path / "model.onnx")
    assert in_process(["verify", LLAMA, tmp_path / "model.onnx", "--target", "cpu"], monkeypatch) == 1
    printed = capsys.readouterr().out
    assert f"L={ABOVE + 1} N=1" in printed and "first difference: model.layers.0.self_attn/attention/If" in printed


def test_every_branch_of_a_new_export_is_run(llama: Llama) -> None:
    report = assert_parity(llama, target="cpu")
    assert {ABOVE + 1} < {c.sizes["L"] for c in report.comparisons} and not report.branches_not_run
    assert ABOVE + 1 not in {c.sizes["L"] for c in assert_parity(llama, target="any").comparisons}, "it has no branches"


@pytest.mark.parametrize("kind", ["growing", "fixed"])
def test_a_branch_is_reached_by_the_prompt_of_steps(kind: Any, llama: Llama) -> None:
    part = llama.part(kind)
    lowered_part = lower(trace_part(part), ExportOptions("cpu"))
    lowered_part.lowering.build.thresholds.append((dim("sequence_length"), 100))
    report = part_parity(part, in_memory(lowered_part.assembled), again=lowered_part)
    assert report.passed and not report.branches_not_run
    assert [c.sizes["sequence_length"] for c in report.comparisons if c.output == "logits"][-5:] == [101, 1, 1, 1, 1]


def test_a_branch_that_takes_too_long_is_named(llama: Llama) -> None:
    export = lowered(llama)
    report = part_parity(
        ModelPart(llama, {}), in_memory(export.assembled), again=export, effort=QUICK._replace(branches=0.0)
    )
    assert report.passed and report.branches_not_run == [f"L above {ABOVE}"]
    assert f"note  not run, since it takes longer than this check may: the branch for L above {ABOVE}" in str(report)


@pytest.mark.parametrize(
    ("thresholds", "lengths"),
    [
        ([(dim("L"), 20)], []),  # the run of 64 is longer
        ([(dim("L"), 192)], [193]),
        ([(dim("L"), 192), (dim("L"), 511), (dim("L"), 192)], [193, 512]),
        ([(dim("L"), 5), (dim("L"), 40)], [6]),  # above 40 it is the run of 64, below 6 that of 3
        ([(2 * dim("L") + 1, 300)], [150]),
        ([(dim("L") // 3, 100)], [303]),
        ([(sym_min(dim("L"), 10), 192)], []),  # it is never so large
    ],
)
def test_sizes_just_above_each_threshold_that_no_run_reaches(llama: Llama, thresholds: Any, lengths: list[int]) -> None:
    graph = lucid.trace(llama)
    branches = branches_by_size(graph, thresholds, default_sizes(graph), QUICK.branches)
    assert branches.reached == [{"L": length, "N": 1} for length in lengths] and not branches.not_run


def test_a_branch_beyond_the_table_of_positions_is_left_out() -> None:
    model = lucid.models.load(goldens.folder("bert/base"))
    graph = lucid.trace(model)
    branches = branches_by_size(graph, [(dim("L"), 100)], default_sizes(graph), QUICK.branches)
    assert not branches.reached and not branches.not_run
