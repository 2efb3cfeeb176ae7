"""Steps of a session: what one returns is handed to the next as onnxruntime left it."""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid import Tensor
from lucid.export import to_onnx
from lucid.runtime import RunCancelled, Session, session
from lucid.runtime.ort_values import numpy_of, ort_value
from lucid.runtime.runs import quiet
from lucid.runtime.stepping import Carried, Stepping


def running_sums(x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
    """The total of all columns so far, and these columns."""
    present = lucid.concat([past, x], axis=1)
    return present.sum(1), present


def stepping(dtype: str = "float32") -> Stepping:
    x, past = lucid.spec("N", "L", 3, dtype=dtype), lucid.spec("N", "P", 3, dtype=dtype)
    model = to_onnx(running_sums, x, past, output_names=["total", "present"])
    return Stepping(Session(model), {"past": "present"})


def column(*values: float, dtype: lucid.DType = lucid.float32) -> np.ndarray:
    """One column (N, 1, 3) for rows of these values."""
    return np.tile(np.array(values).reshape(-1, 1, 1), (1, 1, 3)).astype(dtype.numpy)


def test_a_step_takes_what_the_step_before_returned() -> None:
    steps = stepping()
    carried = steps.zeros({"past": (2, 0, 3)})
    for value, total in ((1, 1), (10, 11), (100, 111)):
        outputs, carried = steps.run({"x": column(value, 2 * value)}, carried)
        assert list(outputs) == ["total"]
        np.testing.assert_array_equal(outputs["total"], [[total] * 3, [2 * total] * 3])
    np.testing.assert_array_equal(numpy_of(carried.values["past"])[1, :, 0], [2, 20, 200])


def test_a_step_leaves_what_it_was_given() -> None:
    steps = stepping()
    _, once = steps.run({"x": column(1)}, steps.zeros({"past": (1, 0, 3)}))
    for _ in range(2):
        outputs, _ = steps.run({"x": column(5)}, once)
        assert outputs["total"].tolist() == [[6, 6, 6]]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_rows_are_taken_in_any_order_and_number(dtype: str) -> None:
    steps, kind = stepping(dtype), getattr(lucid, dtype)
    _, carried = steps.run({"x": column(1, 2, 3, dtype=kind)}, steps.zeros({"past": (3, 0, 3)}))
    taken = steps.rows(carried, np.array([2, 2, 0, 1]))
    outputs, _ = steps.run({"x": column(10, 20, 30, 40, dtype=kind)}, taken)
    assert outputs["total"][:, 0].tolist() == [13, 23, 31, 42]


def test_no_rows_and_no_columns_can_be_carried() -> None:
    steps = stepping()
    outputs, carried = steps.run({"x": column()}, steps.zeros({"past": (0, 0, 3)}))
    assert outputs["total"].shape == (0, 3)
    assert steps.rows(carried, np.zeros(0, np.int64)).values["past"].shape() == [0, 1, 3]


@pytest.mark.parametrize(
    ("array", "error", "message"),
    [
        (np.zeros((1, 0, 4), np.float32), ValueError, r"input past has shape \[1, 0, 4\], expected \[N, P, 3\]"),
        (
            np.zeros((2, 0, 3), np.float32),
            ValueError,
            "input past has size 2 at axis 0, expected N = 1, as in x axis 0",
        ),
        (np.zeros((1, 0, 3), np.float16), TypeError, "input past has dtype float16, expected float32"),
    ],
)
def test_what_another_model_returned_is_refused(array: np.ndarray, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        stepping().run({"x": column(1)}, Carried({"past": ort_value(array)}))


def test_inputs_of_other_names_are_refused() -> None:
    with pytest.raises(KeyError, match="inputs missing: past; unknown: cache"):
        stepping().run({"x": column(1)}, Carried({"cache": ort_value(column(1))}))


def test_a_step_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here as soon as the run begins."""
    steps = stepping()
    begin = session.onnxruntime.RunOptions

    def cancelled() -> session.onnxruntime.RunOptions:
        options = begin()
        options.terminate = True
        return options

    monkeypatch.setattr(session.onnxruntime, "RunOptions", cancelled)
    with pytest.raises(RunCancelled, match="the run was cancelled"):
        steps.run({"x": column(1)}, steps.zeros({"past": (1, 0, 3)}))


def test_a_run_asks_for_no_option_that_is_absent() -> None:
    """The error that onnxruntime's Python would catch takes longer than all else in a run of a small model."""
    assert quiet().get_run_config_entry("gpu_graph_id") == "0"
