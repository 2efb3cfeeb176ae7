"""Sizes beyond the tables of a model: the file says how large they may be, and a session says which input is larger."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

import lucid
from lucid import nn
from lucid.core.targets.runtimes import SIZE_LIMITS
from lucid.runtime import Session
from lucid.runtime.runs import NOT_COMPUTED
from tests.models import goldens


def limits(model: onnx.ModelProto) -> dict[str, int]:
    """What a file says."""
    return json.loads(next((entry.value for entry in model.metadata_props if entry.key == SIZE_LIMITS), "{}"))


class Table(nn.Module):
    """Words with learned positions, the first of which is at an offset."""

    def __init__(self, rows: int, offset: int = 0) -> None:
        self.words, self.places, self.offset = nn.Embedding(50, 8), nn.Embedding(rows, 8), offset

    def forward(self, ids: lucid.Tensor) -> lucid.Tensor:
        """(N, L, 8)."""
        return self.words(ids) + self.places(lucid.arange(ids.shape[1]) + self.offset)


IDS = lucid.spec("N", "L", dtype="int64")


@pytest.mark.parametrize(("rows", "offset", "most"), [(7, 0, 7), (16, 2, 14)])
@pytest.mark.parametrize("target", ["any", "cpu", "portable"])
def test_a_sequence_beyond_the_table_is_named_with_the_limit(rows, offset, most, target):
    model = lucid.export.to_onnx(Table(rows, offset), IDS, target=target)
    assert limits(model) == {"L": most}
    session = Session(model)
    assert session.run({"ids": np.ones((2, most), np.int64)})["output"].shape == (2, most, 8)
    message = rf"Session: input ids has L = {most + 1} at axis 1, at most {most} positions; truncate the input"
    with pytest.raises(ValueError, match=message):
        session.run({"ids": np.ones((2, most + 1), np.int64)})
    with pytest.raises(ValueError, match=message):
        session(np.ones((2, most + 1), np.int64))


@pytest.mark.parametrize("variant", ["bert/base", "roberta/base", "gpt2/base", "albert/base", "distilbert/base"])
def test_the_limit_of_a_family_of_models_is_what_runs(variant):
    eager = lucid.models.load(goldens.folder(variant))
    model = lucid.export.to_onnx(eager, kwargs=eager.input_specs())
    ((name, most),) = limits(model).items()
    session = Session(model)

    def inputs(length):
        return {
            key: np.full([length if size == name else 1 for size in shape], 2 if key == "input_ids" else 1, kind.numpy)
            for key, (kind, shape) in session.inputs.items()
        }

    session.run(inputs(most))
    with pytest.raises(ValueError, match=f"has {name} = {most + 1} at axis 1, at most {most} positions"):
        session.run(inputs(most + 1))
    with pytest.raises((ValueError, IndexError)):
        eager(**{key: lucid.tensor(array) for key, array in inputs(most + 1).items()})


def test_models_without_tables_and_of_fixed_sizes_say_nothing():
    assert limits(lucid.export.to_onnx(nn.Linear(4, 4), ("N", 4))) == {}
    assert limits(lucid.export.to_onnx(Table(7), lucid.spec(2, 5, dtype="int64"))) == {}


@pytest.mark.parametrize("text", ["{", "[7]", '{"L": "7"}', '{"L": -1}', '{"L": true}', "[" * 100_000, '{"M": 3}'])
def test_limits_that_are_none_change_nothing(text):
    """A file may contain anything: a run succeeds or fails as it does without such an entry."""
    model = lucid.export.to_onnx(Table(7), IDS)
    next(entry for entry in model.metadata_props if entry.key == SIZE_LIMITS).value = text
    session = Session(model)
    session.run({"ids": np.ones((2, 7), np.int64)})
    with pytest.raises(NOT_COMPUTED):
        session.run({"ids": np.ones((2, 8), np.int64)})


def test_what_runs_is_never_refused():
    """The limit only explains a failure."""
    model = lucid.export.to_onnx(Table(7), IDS)
    next(entry for entry in model.metadata_props if entry.key == SIZE_LIMITS).value = '{"L": 3}'
    assert Session(model).run({"ids": np.ones((2, 7), np.int64)})["output"].shape == (2, 7, 8)


def test_nothing_else_of_a_file_changes():
    model = lucid.export.to_onnx(Table(7), IDS)
    kept = [entry.key for entry in model.metadata_props]
    assert kept == ["lucid.onnxruntime", "lucid.target", SIZE_LIMITS]
