"""Attention over a buffer, exported: every form agrees with float64 wherever the rows of a batch begin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import lucid
from lucid import ops
from lucid.core.targets.runtimes import ROWS_APART
from lucid.export import Target, explain, to_onnx
from lucid.export.options import ExportOptions
from lucid.generation.memory import memory_of
from lucid.models.llama import Llama
from lucid.runtime import Session, installed
from lucid.runtime.ort_values import numpy_of, ort_value
from lucid.testing.part_parity import part_parity
from tests.console import in_process
from tests.models import goldens
from tests.op_references import buffered_attention

CAPACITY = 16
CASES = [  # rows, new positions, where each row begins
    (1, 1, [0]),
    (1, 1, [15]),
    (2, 1, [5, 3]),
    (1, 4, [0]),
    (1, 6, [10]),
    (2, 4, [0, 0]),
    (3, 4, [5, 12, 0]),
    (1, 16, [0]),
]
OPTIONS: list[dict[str, Any]] = [
    {"heads": 4, "kv_heads": 2},
    {"heads": 4, "kv_heads": 4, "window": 3, "scale": 0.3},
    {"heads": 4, "kv_heads": 1, "softcap": 2.0},
    {"heads": 4, "kv_heads": 2, "window": 1},
    {"heads": 4, "kv_heads": 2, "window": 3, "sinks": np.array([-1, 0.5, 2, 90], np.float32)},
]
IN_PLACE = Target("cpu", onnxruntime="1.31")
WRITING = Target("cpu", rows_apart=True)
TARGETS = [Target("any"), Target("cpu"), IN_PLACE, WRITING, Target("any", opset=23), Target("portable")]
# An older onnxruntime ends the process where GroupQueryAttention reads buffers: it is not what they are exported for.
TARGETS = [target for target in TARGETS if target.release <= Target(onnxruntime=installed()).release]


def shown(target: Target) -> str:
    return f"{target.name}-{target.opset}-{target.onnxruntime}" + "-apart" * target.rows_apart


def exported(target: Target, options: dict[str, Any], width: int = 8) -> Any:
    heads, kv_heads = options["heads"], options["kv_heads"]
    buffer = lucid.spec("N", kv_heads, "C", width)
    return to_onnx(
        lambda *operands: ops.buffered_attention(*operands, **options),  # sinks are a constant of the model
        ("N", "L", heads * width),
        *[("N", "L", kv_heads * width)] * 2,
        buffer,
        buffer,
        lucid.spec("N", dtype=lucid.int64),
        target=target,
    )


def drawn(rows: int, length: int, options: dict[str, Any], width: int = 8) -> list[np.ndarray]:
    random = np.random.default_rng(rows * 100 + length)
    heads, kv_heads = options["heads"], options["kv_heads"]
    new = [(rows, length, n * width) for n in (heads, kv_heads, kv_heads)]
    return [random.standard_normal(shape, np.float32) for shape in (*new, *[(rows, kv_heads, CAPACITY, width)] * 2)]


def run(session: Session, arrays: list[np.ndarray], in_place: bool) -> dict[str, np.ndarray]:
    """The outputs; in place the buffers are bound as inputs and outputs."""
    inputs = dict(zip(session.inputs, arrays, strict=True))
    if not in_place:
        return session.run(inputs)
    values = {name: ort_value(array.copy()) for name, array in inputs.items()}
    output, *buffers = session.outputs
    held = list(values.values())[3:5]
    bound = session.bind(values, {output: "cpu", **dict(zip(buffers, held, strict=True))})
    bound.run()
    return {name: numpy_of(value).copy() for name, value in bound.outputs().items()}


@pytest.mark.parametrize("target", TARGETS, ids=shown)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_form_agrees_with_float64(options: dict[str, Any], target: Target) -> None:
    session = Session(exported(target, options), threads=1)
    for rows, length, starts in CASES:
        if target.rows_apart and rows > 1 and length > 1 and any(starts):
            continue
        arrays, at = drawn(rows, length, options), np.array(starts)
        for row, start in enumerate(starts):  # nothing in a slot that is not filled reaches a result
            arrays[3][row, :, start:], arrays[4][row, :, start:] = 1e30, 1e30
        want = buffered_attention(
            *[a.astype(np.float64) for a in arrays],
            at,
            **{"scale": None, "is_causal": True, "window": None, "softcap": 0.0, **options},
        )
        got = run(session, [*arrays, at], in_place=target.rows_apart)
        for output, expected in zip(got.values(), want, strict=True):
            np.testing.assert_allclose(output, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("target", TARGETS, ids=shown)
def test_nan_stays_with_its_query(target: Target) -> None:
    """As NaN; among several new positions it may become 0, as in one kernel of onnxruntime (docs/attention.md)."""
    session = Session(exported(target, OPTIONS[0]), threads=1)
    for length in (1, 4):
        arrays, starts = drawn(1, length, OPTIONS[0]), np.array([5])
        run = lambda starts=starts, arrays=arrays: session(*arrays, starts)[0].numpy()  # noqa: E731
        right = run()
        arrays[0][0, 0] = np.nan
        got = run()
        assert np.isnan(got[0, 0]).all() or (length > 1 and not got[0, 0].any())
        np.testing.assert_array_equal(got[0, 1:], right[0, 1:])


@pytest.mark.parametrize("target", [target for target in TARGETS if target in (IN_PLACE, WRITING)], ids=shown)
@pytest.mark.parametrize("length", [1, 3])
def test_a_batch_of_no_rows_is_an_error_in_onnxruntime(length: int, target: Target) -> None:
    """GroupQueryAttention once divided by the number of rows, which ended the process."""
    session = Session(exported(target, OPTIONS[0]), threads=1)
    with pytest.raises(ValueError, match="has N = 0 at axis 0") as error:
        session(*drawn(0, length, OPTIONS[0]), np.zeros(0, np.int64))
    assert "total_sequence_length must be positive" in str(error.value.__cause__)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(
    ("rows", "length", "starts", "message"),
    [
        (1, 1, [CAPACITY], "out of range"),
        (1, 3, [CAPACITY - 2], "out of range"),
        (2, 1, [3, 900], "out of range"),
        (1, 1, [-1], "out of range|must be positive"),
        (1, 3, [-1], "too small|must be at least"),
        (2, 3, [1, 0], "batch_size must be 1"),
    ],
)
def test_the_kernel_that_writes_refuses_positions_beyond_the_buffer(
    rows: int, length: int, starts: list[int], message: str, in_place: bool
) -> None:
    """It also refuses several new positions in several rows, except at the beginning."""
    session = Session(exported(WRITING, OPTIONS[0]), threads=1)
    with pytest.raises(Exception, match=message):
        run(session, [*drawn(rows, length, OPTIONS[0]), np.array(starts)], in_place)


def test_buffers_that_are_not_bound_have_zeros_after_what_is_filled() -> None:
    session = Session(exported(WRITING, OPTIONS[0]), threads=1)
    arrays = drawn(2, 1, OPTIONS[0])
    _, *apart = run(session, [*arrays, np.array([5, 3])], in_place=False).values()
    _, *bound = run(session, [*arrays, np.array([5, 3])], in_place=True).values()
    for new, written, before in zip(apart, bound, arrays[3:], strict=True):
        for row, filled in enumerate([6, 4]):
            np.testing.assert_array_equal(new[row, :, :filled], written[row, :, :filled])
            np.testing.assert_array_equal(written[row, :, filled:], before[row, :, filled:])
            assert not new[row, :, filled:].any()


@pytest.mark.parametrize("opset", [17, 24])
def test_a_form_may_need_the_size_of_what_is_filled(opset: int) -> None:
    """In float64 the exporter writes the product with the softcap with a row of ones, whose size it needs."""
    new, buffer = (lucid.spec("N", 2, size, 8, dtype=lucid.float64) for size in ("L", "C"))
    at = lucid.spec("N", dtype=lucid.int64)
    function = lambda *operands: ops.buffered_attention(*operands, softcap=2.0)  # noqa: E731  # as a user writes it
    session = Session(to_onnx(function, new, new, new, buffer, buffer, at, opset=opset), threads=1)
    for rows, length, starts in CASES:
        random = np.random.default_rng(length)
        arrays = [random.standard_normal((rows, 2, size, 8)) for size in (*[length] * 3, *[CAPACITY] * 2)]
        options = {"heads": None, "kv_heads": None, "scale": None, "is_causal": True, "window": None, "softcap": 2.0}
        want = buffered_attention(*arrays, np.array(starts), **options)[0]
        got = session(*arrays, np.array(starts))[0].numpy()
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def test_the_form_of_a_step_is_explained() -> None:
    def taken(target: Target | str, **options: Any) -> str:
        model = lambda *operands: ops.buffered_attention(*operands, heads=4, **options)  # noqa: E731  # as a user writes it
        new, buffer = ("N", "L", 32), ("N", 4, "C", 8)
        starts = lucid.spec("N", dtype=lucid.int64)
        decisions = explain(model, new, new, new, buffer, buffer, starts, target=target).attention
        return next(decision.taken for decision in decisions if decision.op == "buffered_attention")

    newest = Target("cpu", onnxruntime="1.31")
    assert taken(newest) == taken(newest, window=3) == "com.microsoft GroupQueryAttention"
    assert taken(Target("cpu", 25, onnxruntime="1.31")) == "expanded"  # for several rows it needs Attention too
    assert taken(newest, is_causal=False) == taken("cpu") == taken("any") == "attention over what is filled"
    assert taken("portable") == "expanded"
    assert taken(WRITING) == "com.microsoft GroupQueryAttention, which writes the buffers"
    assert taken(WRITING, is_causal=False) == "attention over what is filled"


def test_a_decoder_whose_rows_are_read_apart_is_compared_by_its_steps() -> None:
    """Not by runs of several new tokens in several rows. The file itself says so, and a fault in it is found."""
    llama = Llama.from_pretrained(goldens.folder("llama/llama3"))
    part, model = llama.part("fixed"), to_onnx(llama, cache="fixed", target=WRITING)
    report = part_parity(part, model, ExportOptions("cpu"))
    assert report.passed and report.weights is not None and not report.weights.damaged
    assert [c.sizes["sequence_length"] > 1 for c in report.comparisons if c.output == "logits"] == [True, *[False] * 4]
    node = next(node for node in model.graph.node if node.op_type == "GroupQueryAttention")
    node.attribute.append(onnx.helper.make_attribute("local_window_size", 2))
    assert not part_parity(part, model, ExportOptions("cpu")).passed


def test_only_files_that_need_it_say_that_rows_are_read_apart() -> None:
    def says(model: onnx.ModelProto) -> bool:
        return ROWS_APART in {entry.key for entry in model.metadata_props}

    assert says(exported(WRITING, OPTIONS[0]))
    assert not says(exported(Target("any", rows_apart=True), OPTIONS[0]))
    assert not says(exported(WRITING, {**OPTIONS[0], "is_causal": False}))


def test_generation_reads_several_tokens_behind_others_row_by_row() -> None:
    """Which the kernel that writes buffers takes; the logits are those of each row alone."""
    llama = Llama.from_pretrained(goldens.folder("llama/llama3"))
    memory = memory_of("a test", Session(to_onnx(llama, cache="fixed", target=WRITING), threads=1))
    ids = np.random.default_rng(0).integers(3, 40, (2, 9))
    together, alone = memory.slots(2, 40), memory.slots(2, 40)
    for part in (ids[:, :4], ids[:, 4:7], ids[:, 7:]):
        logits = together.read([0, 1], list(part))
        for row, expected in enumerate([alone.read([row], [tokens])[0] for row, tokens in enumerate(part)]):
            np.testing.assert_allclose(logits[row], expected, rtol=1e-5, atol=1e-6)


def test_the_command_exports_and_verifies_a_decoder_whose_rows_are_read_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint, file = goldens.folder("llama/llama3"), tmp_path / "model.onnx"
    command = ["export", checkpoint, "-o", file, "--cache", "fixed", "--target", "cpu", "--rows-apart"]
    assert in_process([*command, "--verbose"], monkeypatch) == 0
    assert "GroupQueryAttention, which writes the buffers" in capsys.readouterr().out
    assert in_process(["verify", checkpoint, file, "--cache", "fixed"], monkeypatch) == 0
    assert in_process(["export", checkpoint, "--for", "onnxruntime", "--rows-apart"], monkeypatch) == 2
    assert "--for onnxruntime: the layout decides rows-apart" in capsys.readouterr().err


def test_a_mask_over_the_keys_so_far_is_refused_with_what_to_write() -> None:
    x, buffer = lucid.ones(2, 2, 2, 4), lucid.zeros(2, 2, 10, 4)
    message = (
        r"the mask has shape \[2, 5\], which does not broadcast to the scores \(N, H, L, C\) = \[2, 2, 2, 10\]; it "
        r"covers the slots of the buffer: F.pad\(mask, \(0, 10 - mask.shape\[-1\]\)\)"
    )
    with pytest.raises(ValueError, match=message):
        ops.buffered_attention(x, x, x, buffer, buffer, lucid.tensor([3, 2]), lucid.zeros(2, 5))
