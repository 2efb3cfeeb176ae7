"""Lines of torch code give the types, shapes and numbers that torch gives, or an error that says what to write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import Tensor
from lucid.export import to_onnx
from lucid.nn import functional
from lucid.runtime import Session
from tests.torch_meanings import ELSEWHERE, OPERANDS, SECTIONS, array_of, lines

TORCH: dict[str, Any] = json.loads((Path(__file__).parent / "goldens" / "torch_meanings.json").read_text("utf-8"))
OPERAND_TENSORS = {name: Tensor(array_of(name), dtype) for name, (_, _, dtype) in OPERANDS.items()}


REFUSALS = (TypeError, ValueError, IndexError, OverflowError, ZeroDivisionError)


def run(line: str, operands: dict[str, Tensor] = OPERAND_TENSORS) -> Any:
    """A line of torch code, computed by Lucid."""
    return eval(line, {"torch": lucid, "F": functional, "inf": float("inf"), **operands})  # our own lines


def flat(result: Any) -> list[Tensor]:
    """The tensors of a result."""
    return [each for part in result for each in flat(part)] if isinstance(result, (tuple, list)) else [result]


def check(line: str, tensors: list[Any], expected: Any) -> None:
    assert len(tensors) == len(expected["tensors"]), line
    for tensor, (dtype, shape, elements) in zip(tensors, expected["tensors"], strict=True):
        assert (str(tensor.dtype), list(tensor.shape)) == (dtype, shape), line
        got = tensor.numpy().astype(np.float64) if tensor.dtype.kind == "float" else tensor.numpy()
        near = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-6, "float64": 1e-12}.get(dtype, 0)
        np.testing.assert_allclose(got.reshape(-1), np.array(elements), rtol=near, atol=near, err_msg=line)


def test_every_line_was_run_by_torch() -> None:
    assert list(lines()) == list(TORCH)  # else: python -m tools.make_goldens torch_meanings
    assert ELSEWHERE.keys() <= TORCH.keys()


@pytest.mark.parametrize("section", SECTIONS)
def test_a_line_gives_what_torch_gives_or_says_what_to_write(section: str) -> None:
    for line in SECTIONS[section]:
        if line in ELSEWHERE:
            with pytest.raises(REFUSALS, match=ELSEWHERE[line]):
                run(line)
        elif "error" in TORCH[line]:
            with pytest.raises(REFUSALS):
                run(line)
        elif "value" in TORCH[line]:
            assert run(line) == TORCH[line]["value"], line
        else:
            check(line, flat(run(line)), TORCH[line])


def test_sums_with_numbers_outside_half_precision_are_rounded_once() -> None:
    """torch's kernels for a CPU give infinity."""
    half = OPERAND_TENSORS["half"] * 20000

    def model(x: Tensor) -> tuple[Tensor, ...]:
        return x - 70000, 7e4 - x, x + lucid.tensor(-70000.0), x - 1e-9

    x = half.numpy().astype(np.float64)
    expected = [each.astype(np.float16) for each in (x - 70000, 7e4 - x, x - 70000, x)]
    exported = Session(to_onnx(lucid.trace(model, half.numpy())), threads=1).run({"x": half.numpy()}).values()
    for want, eager, output in zip(expected, model(half), exported, strict=True):
        np.testing.assert_array_equal(eager.numpy(), want)
        np.testing.assert_array_equal(output, want)


EXPORTED = [line for line in TORCH if line not in ELSEWHERE and "tensors" in TORCH[line]]


def test_a_graph_and_its_file_give_what_torch_gives() -> None:
    """All lines as one model, whose inputs are their operands."""

    def model(*operands: Tensor) -> Any:
        by_name = dict(zip(OPERANDS, operands, strict=True))
        return [each for line in EXPORTED for each in flat(run(line, by_name))]

    graph = lucid.trace(model, *(tensor.numpy() for tensor in OPERAND_TENSORS.values()))
    session = Session(to_onnx(graph), threads=1)
    inputs = dict(zip(session.inputs, (t.numpy() for t in OPERAND_TENSORS.values()), strict=True))
    outputs = iter(session.run(inputs).values())
    for line in EXPORTED:
        check(line, [Tensor(next(outputs)) for _ in TORCH[line]["tensors"]], TORCH[line])
