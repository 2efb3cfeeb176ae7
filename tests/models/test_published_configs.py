"""Option sets of published checkpoints, each with a tiny model of the same options, against transformers' answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.models.checkpoints.config import ConfigError
from lucid.models.checkpoints.families import MODEL_TYPES
from tests.cases import case
from tests.published import ROOT, inputs_of, option_sets, sample, sources, tiny, weights_of
from tools.make_published_page import PAGE, page

ANSWERS: dict[str, Any] = json.loads((ROOT / "answers.json").read_text("utf-8"))
SETS = option_sets()


def written(name: str, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tiny checkpoint of an option set, and what is known of it."""
    answer, options = ANSWERS["sets"][name], tiny(SETS[name])
    (folder / "config.json").write_text(json.dumps(options))
    lucid.save(folder / "model.safetensors", weights_of(ANSWERS["shapes"][answer["shapes"]]))
    return options, answer


def by_type(kind: str) -> dict[str, list[str]]:
    """The option sets with an answer of a kind, by model type."""
    names: dict[str, list[str]] = {}
    for name in (name for name, answer in ANSWERS["sets"].items() if kind in answer):
        names.setdefault(SETS[name]["model_type"], []).append(name)
    return names


@pytest.mark.parametrize("model_type", by_type("sample"))
def test_a_published_option_set_answers_as_in_transformers(model_type: str, tmp_path: Path) -> None:
    for name in by_type("sample")[model_type]:
        with case(name):
            _answers_as_in_transformers(name, tmp_path)


def _answers_as_in_transformers(name: str, tmp_path: Path) -> None:
    options, answer = written(name, tmp_path)
    model: Any = lucid.models.load(tmp_path)
    result = model(**{name: lucid.tensor(array) for name, array in inputs_of(options).items()})
    values = sample((result[0] if isinstance(result, tuple) else result).numpy())
    expected = answer["sample"]
    np.testing.assert_allclose(values, expected, rtol=0, atol=2e-5 * expected[-1])
    assert list(model.unread.ignored) == answer["ignored"]


@pytest.mark.parametrize("name", [name for name, answer in ANSWERS["sets"].items() if "refused" in answer])
def test_a_published_option_set_is_refused_by_name(name: str, tmp_path: Path) -> None:
    _, answer = written(name, tmp_path)
    with pytest.raises(ConfigError) as caught:
        lucid.models.load(tmp_path)
    assert answer["refused"] in str(caught.value)


def test_there_are_many_and_the_answers_are_of_all() -> None:
    loading = [name for name, answer in ANSWERS["sets"].items() if "sample" in answer]
    assert ANSWERS["sets"].keys() == SETS.keys()
    assert len(sources().keys() & loading) >= 150, "sets whose names and values are those of a file"
    assert {SETS[name]["model_type"] for name in loading} >= MODEL_TYPES.keys() - {
        "ministral",  # no checkpoint of this type is published without code of its own
        "ministral3",  # nor of this one without a model of images around it
        "qwen3_5",  # its options around those of a text model are of images, which are not read
        "qwen3_5_text",  # no checkpoint of this type is published by itself
        "siglip_text_model",
    }


def test_no_one_option_change_was_answered_otherwise() -> None:
    types = json.loads((ROOT / "changes.json").read_text("utf-8"))["types"]
    assert types.keys() == MODEL_TYPES.keys(), "python -m tools.published_configs changes TYPE"
    assert all(verdicts["equal"] > 20 and "WRONG" not in verdicts for verdicts in types.values())


def test_the_page_is_current() -> None:
    assert PAGE.read_text("utf-8") == page(), "python -m tools.make_published_page"
