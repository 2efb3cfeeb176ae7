"""models/_pretrained.py: configs are read option by option, weights key by key."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import lucid
from lucid import nn
from models._pretrained import Config, ConfigError, load_into


def config(**options: object) -> Config:
    return Config(options, "config.json")


def test_values_are_checked_for_their_type() -> None:
    options = config(width=8, eps=1, bias=True, name="x", empty=None)
    assert options.get("width", int) == 8
    assert options.get("eps", float) == 1.0
    assert options.get("empty", int, 3) == options.get("absent", int, 3) == 3
    for name, kind, message in (
        ("bias", int, "option bias is True, expected int"),
        ("width", str, "option width is 8, expected str"),
        ("name", float, "option name is 'x', expected float"),
        ("empty", int, "option empty is missing, expected int"),
    ):
        with pytest.raises(ConfigError, match=message):
            options.get(name, kind)


def test_what_was_not_asked_for_must_be_known_to_change_nothing() -> None:
    harmless = {"architectures": ["X"], "attn_pdrop": 0.1, "use_cache": True, "nothing": None, "none": {}}
    config(**harmless).done()
    config(**harmless, summary_type="cls").done(ignore=["summary_.*"])
    with pytest.raises(ConfigError, match="so the results could be wrong: rope = 3; mode = 'x'"):
        config(**harmless, rope=3, mode="x").done()
    asked = config(rope=3)
    asked.only("rope", 3, 4)
    asked.done()


def test_sections_are_read_to_the_end_as_well() -> None:
    options = config(text={"width": 8, "strange": 1})
    assert options.section("text").get("width", int) == 8
    with pytest.raises(ConfigError, match=r"config\.json, text: .* strange = 1"):
        options.done()


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "not valid JSON"), ("[1]", "holds a JSON list"), ('{"a": 1}', "model_type is missing")],
)
def test_a_file_that_is_no_config_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=message):
        Config.read(tmp_path, "gpt2")
    with pytest.raises(FileNotFoundError):
        Config.read(tmp_path / "nowhere", "gpt2")


def test_the_architecture_must_be_one_of_those_expected(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    assert Config.read(tmp_path, "roberta", "bert").model_type == "bert"
    with pytest.raises(ConfigError, match="model_type is 'bert', supported: gpt2"):
        Config.read(tmp_path, "gpt2")


def arrays(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {name.replace("_", "."): np.ones(shape, np.float32) for name, shape in shapes.items()}


def test_keys_are_renamed_ignored_and_tied() -> None:
    layer = nn.Linear(2, 3)
    stored = arrays(old_weight=(3, 2), old_bias=(3,), mask=(4,), copy=(3, 2))
    load_into(layer, stored, [(r"^old\.", "")], ignore=["^mask$"], tied={"copy": "weight"})
    assert layer.weight.numpy() is stored["old.weight"]


def test_a_tied_copy_alone_is_enough() -> None:
    layer = nn.Linear(2, 3, bias=False)
    load_into(layer, arrays(copy=(3, 2)), tied={"copy": "weight"})
    np.testing.assert_array_equal(layer.weight, np.ones((3, 2)))


def test_nothing_is_loaded_where_keys_do_not_fit() -> None:
    layer = nn.Linear(2, 3)
    before = layer.weight.numpy().copy()
    with pytest.raises(KeyError, match="missing: bias; unexpected: extra; weight has shape"):
        load_into(layer, arrays(weight=(9, 9), extra=(1,)))
    with pytest.raises(ValueError, match=r"both a\.weight and weight would be loaded as weight"):
        load_into(layer, {**arrays(a_weight=(3, 2)), **arrays(weight=(3, 2))}, [(r"^a\.", "")])
    np.testing.assert_array_equal(layer.weight, before)
    assert isinstance(layer.weight, lucid.Tensor)
