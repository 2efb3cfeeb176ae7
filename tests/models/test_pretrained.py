"""models/_config.py and _pretrained.py: configs are read option by option, weights key by key, the same for all."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Self

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.models import bert, clip, whisper
from lucid.models._pretrained import Checkpoint, Config, ConfigError, Pretrained, load_into
from lucid.models.llama import Llama
from tests.models.zoo import ZOO


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


def test_a_large_size_is_compared_with_shapes_where_the_weights_have_to_be_computed() -> None:
    def weights() -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
        raise AssertionError("a config needs no numbers")

    options = Config({"vocab": 100_000, "width": 100_001}, "model.gguf", weights, lambda: {"table": (100_000, 8)})
    assert options.size("vocab") == 100_000
    with pytest.raises(
        ConfigError, match="width is 100001, expected a whole number from 1 to 100000, the longest axis"
    ):
        options.size("width")


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


def test_an_activation_is_known_by_its_name() -> None:
    assert config(act="gelu_new").activation("act") == "gelu_new"
    assert config().activation("act", "relu") == "relu"
    with pytest.raises(ConfigError, match="option act is 'mish', supported: gelu, gelu_new"):
        config(act="mish").activation("act")


# One way of reading for all models ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TwoConfig:
    width: int
    tied: bool

    @classmethod
    def read(cls, options: Config) -> Self:
        return cls(options.size("dim"), options.get("tied", bool))


class Two(Pretrained[TwoConfig]):
    checkpoint = Checkpoint(
        model_types=("two",),
        read=TwoConfig.read,
        ignored_options=["colou?r"],
        renames=[("^old_", "")],
        ignored_keys=["^triangle$"],
        tied_keys={"last.weight": "first.weight"},
    )

    def __init__(self, config: TwoConfig) -> None:
        super().__init__(config)
        self.first = nn.Linear(config.width, config.width, bias=False)
        self.last = None if config.tied else nn.Linear(config.width, config.width, bias=False)


def folder(path: Path, weights: dict[str, float], **options: object) -> Path:
    (path / "config.json").write_text(json.dumps({"model_type": "two", "dim": 2, "color": 1} | options))
    lucid.save(path / "model.safetensors", {key: np.full((2, 2), value, "f") for key, value in weights.items()})
    return path


def test_a_model_says_as_data_how_it_is_read(tmp_path: Path) -> None:
    two = Two.from_pretrained(folder(tmp_path, {"old_first.weight": 1, "triangle": 2}, tied=True))
    assert two.config == TwoConfig(2, tied=True)
    assert {key: value.numpy().max() for key, value in two.state_dict().items()} == {"first.weight": 1}


def test_a_key_is_tied_where_the_model_has_no_weight_of_its_own_there(tmp_path: Path) -> None:
    weights = {"first.weight": 1.0, "last.weight": 2.0}
    untied = Two.from_pretrained(folder(tmp_path, weights, tied=False))
    assert {key: value.numpy().max() for key, value in untied.state_dict().items()} == weights
    with pytest.raises(ValueError, match=r"last\.weight differs from first\.weight, expected one weight"):
        Two.from_pretrained(folder(tmp_path, weights, tied=True))


def test_what_a_model_neither_reads_nor_ignores_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="could be wrong: colours = 1"):
        Two.from_pretrained(folder(tmp_path, {"first.weight": 1}, tied=True, colours=1))
    with pytest.raises(KeyError, match=r"unexpected: square"):
        Two.from_pretrained(folder(tmp_path, {"first.weight": 1, "square": 1}, tied=True))


READERS = list(dict.fromkeys(entry.read for entry in ZOO))


@pytest.mark.parametrize("model", READERS, ids=lambda model: model.__name__)
def test_every_model_is_read_the_same_way(model: type[Pretrained[object]]) -> None:
    assert issubclass(model, Pretrained)
    assert model is Llama or model.from_pretrained.__func__ is Pretrained.from_pretrained.__func__  # type: ignore[attr-defined]


def test_configs_have_one_vocabulary() -> None:
    """An option has the same name in all configs, usually Hugging Face's; old names of configs remain as aliases."""
    configs = {
        value
        for name in ("bert", "clip", "gpt2", "llama", "t5", "vit", "whisper")
        for value in vars(import_module(f"lucid.models.{name}")).values()
        if isinstance(value, type) and is_dataclass(value) and value.__module__ == f"lucid.models.{name}"
    }
    assert len(configs) == 11 and all(config.__name__.endswith("Config") for config in configs)
    used = {field.name for config in configs for field in fields(config)}
    assert used >= {"vocab_size", "hidden_size", "num_layers", "num_heads", "intermediate_size", "max_positions", "eps"}
    assert not used & {"vocabulary", "width", "layers", "heads", "inner", "positions", "kv_heads", "channels"}
    assert (bert.Options, clip.Tower, whisper.Stack) == (
        bert.BertConfig,
        clip.CLIPTowerConfig,
        whisper.WhisperStackConfig,
    )
