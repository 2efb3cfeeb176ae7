"""torch's own operator and module samples, compared with eager code and every target: see goldens/README.md.

`tools/torch_samples` draws and compares all of them; these are the ones that it stored.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import lucid
from lucid import Tensor
from lucid.core.graph.types import Array
from lucid.export import ExportError, to_onnx
from lucid.files.weights import load
from lucid.runtime import Session
from tests.cases import case as in_case
from tests.test_ops import computed
from tests.torch_calls import Call, apart, decoded, difference, flat, scale_of

FOLDER = Path(__file__).parent / "goldens" / "torch_samples"
TARGETS = ("any", "cpu", "portable")


class Case(NamedTuple):
    """One sample: the call, torch's results, and the targets that refuse it."""

    name: str
    call: Call
    expected: list[Array]
    refused: list[str]


def read(name: str, entry: dict[str, Any], arrays: dict[str, Array]) -> Case:
    def tree(field: str) -> dict[str, Any]:
        return {key: decoded(value) for key, value in entry[field].items()}

    tensors = tuple(arrays[key] for key in entry["inputs"])
    arguments = tuple(decoded(value) for value in entry["arguments"])
    constructor = tree("constructor") if "constructor" in entry else None
    state = {key: arrays[value] for key, value in entry.get("state", {}).items()}
    call = Call(entry["call"], tensors, arguments, tree("options"), constructor, state)
    return Case(name, call, [arrays[key] for key in entry["results"]], entry.get("refused", []))


def read_all() -> dict[str, list[Case]]:
    """The cases by the name of Lucid's function or module, which may be several operators of torch."""
    cases: dict[str, list[Case]] = defaultdict(list)
    for path in sorted(FOLDER.glob("*.json")):
        arrays = load(path.with_suffix(".safetensors"))
        for name, entry in json.loads(path.read_text()).items():
            cases[entry["call"]].append(read(name, entry, arrays))
    return dict(cases)


CASES = read_all()


def check(case: Case, way: str, got: list[Array]) -> None:
    assert len(got) == len(case.expected), f"{case.name}, {way}"
    for result, want in zip(got, case.expected, strict=True):
        problem = difference(result, want, scale_of(case.call, case.expected))
        assert not problem, f"{case.name}, {way}: {problem}"


@pytest.mark.parametrize("name", CASES)
def test_eager_code_answers_as_torch_does(name: str) -> None:
    for case in CASES[name]:
        model = case.call.model()
        check(case, "eager", flat(model(*map(Tensor.from_array, case.call.tensors))))
        spread = [Tensor.from_array(apart(array)) for array in case.call.tensors]
        check(case, "eager, with gaps in memory", flat(model(*spread)))


@pytest.mark.parametrize("name", CASES)
def test_exported_models_answer_as_torch_does(name: str) -> None:
    """For every target; models that compute the same are run once."""
    seen = set[bytes]()
    for target in TARGETS:
        exported = [case for case in CASES[name] if target not in case.refused]
        if exported:
            with in_case(target):
                _answers_as_torch_does(exported, target, seen)


def _answers_as_torch_does(exported: list[Case], target: str, seen: set[bytes]) -> None:
    """All samples of one function as one model, with all their inputs and results."""
    inputs = [array for case in exported for array in case.call.tensors]
    models = [case.call.model() for case in exported]

    def model(*tensors: Tensor) -> list[Any]:
        rest = iter(tensors)
        return [run(*(next(rest) for _ in c.call.tensors)) for run, c in zip(models, exported, strict=True)]

    file = to_onnx(lucid.trace(model, *inputs), target=target)
    if (same := computed(file)) in seen:
        return
    seen.add(same)
    session = Session(file, threads=1)
    outputs = iter(session.run(dict(zip(session.inputs, inputs, strict=True))).values())
    for case in exported:
        check(case, target, [next(outputs) for _ in case.expected])


@pytest.mark.parametrize("target", TARGETS)
def test_what_a_target_cannot_compute_is_refused(target: str) -> None:
    for case in (case for cases in CASES.values() for case in cases if target in case.refused):
        with pytest.raises(ExportError):
            to_onnx(case.call.model(), *case.call.tensors, target=target)


def test_the_samples_cover_what_they_should() -> None:
    every = [case for cases in CASES.values() for case in cases]
    types = {str(array.dtype) for case in every for array in case.call.tensors}
    assert types == {str(dtype) for dtype in lucid.core.graph.types.DTYPES}
    assert any(not np.prod(array.shape) for case in every for array in case.call.tensors)
    assert any(np.isnan(array.astype(float)).any() for case in every for array in case.call.tensors)
