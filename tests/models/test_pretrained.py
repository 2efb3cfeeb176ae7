"""models/checkpoints: configs are read option by option, weights key by key, the same for all."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.models.checkpoints.declarations import Family, ModelType
from lucid.models.checkpoints.pretrained import Checkpoint, Config, ConfigError, Pretrained, load_into
from lucid.nn import functional as F
from lucid.quantization import Blocks
from tests.cases import in_one_test
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
    options = config(rope=3)
    options.only("rope", 3, 4)
    options.done()


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


# Quantized weights --------------------------------------------------------------------------------------------------


class Tied(nn.Module):
    """A table that is also an output layer, a layer, and a parameter that nothing multiplies with."""

    def __init__(self, dtype: lucid.DType = lucid.float32) -> None:
        self.table, self.layer = nn.Embedding(8, 32, dtype=dtype), nn.Linear(32, 8, dtype=dtype)
        self.other = nn.Parameter(np.zeros((8, 32), dtype.numpy))

    def forward(self, ids: lucid.Tensor) -> lucid.Tensor:
        return F.linear(self.table(ids), self.table.weight) + self.layer(self.table(ids) + self.other[0])


def quantized_blocks(**scales: float) -> Blocks:
    codes = np.random.default_rng(0).integers(0, 16, (8, 32), np.uint8)
    of = {"scales": 0.5, **scales}
    return Blocks(codes, np.full((8, 1), of["scales"], np.float32), None, 4, 32)


def stored() -> dict[str, np.ndarray | Blocks]:
    weights: dict[str, np.ndarray | Blocks] = {name: quantized_blocks() for name in ("wte", "layer.weight", "other")}
    return {**weights, "layer.bias": np.ones(8, np.float32)}


TIED = {"tied": {"head.weight": "table.weight"}, "renames": [("^wte$", "table.weight")]}


def test_blocks_take_the_place_of_the_weights_of_layers_and_tables() -> None:
    model, floats = Tied(), Tied()
    load_into(model, stored(), **TIED)
    load_into(floats, stored(), **TIED, dequantize=True)
    assert isinstance(model.layer.weight, nn.QuantizedWeight)
    assert isinstance(model.table.weight, nn.QuantizedWeight)
    assert isinstance(model.other, nn.Parameter)  # it is not the weight of a layer: dequantized
    assert not any(isinstance(module, nn.QuantizedWeight) for module in floats.modules())
    np.testing.assert_array_equal(floats.layer.weight, quantized_blocks().dequantized())
    np.testing.assert_array_equal(model.other, floats.other)
    ids = lucid.tensor([[1, 7]])
    np.testing.assert_allclose(model(ids), floats(ids), rtol=1e-6)


def test_layers_that_share_a_parameter_share_what_takes_its_place() -> None:
    model = nn.Sequential(nn.Embedding(8, 32), nn.Linear(32, 8, bias=False))
    model[1].weight = model[0].weight
    load_into(model, {"0.weight": quantized_blocks(), "1.weight": quantized_blocks()})
    assert isinstance(model[0].weight, nn.QuantizedWeight) and model[1].weight is model[0].weight


class Transposed(nn.Module):
    """x @ kernel, as GPT-2 stores the weights of its layers."""

    quantizable: ClassVar = {"kernel": "transposed"}

    def __init__(self) -> None:
        self.kernel = nn.Parameter(np.zeros((32, 8), np.float32))

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        return F.linear(x, self.kernel, transposed=True)


@pytest.mark.parametrize("dequantize", [False, True])
def test_blocks_have_their_outputs_first_also_where_a_parameter_has_them_last(dequantize: bool) -> None:
    model = Transposed()
    load_into(model, {"kernel": quantized_blocks()}, dequantize=dequantize)
    assert isinstance(model.kernel, nn.QuantizedWeight) is not dequantize
    rows = model(lucid.tensor(np.eye(32, dtype=np.float32)))
    np.testing.assert_array_equal(rows.numpy().T, quantized_blocks().dequantized())


def test_the_scales_have_the_element_type_of_the_parameter() -> None:
    model = Tied(lucid.float16)
    load_into(model, stored(), **TIED)
    assert model.table.weight.dtype == lucid.float16
    with pytest.raises(OverflowError, match="scales: .* does not fit float16"):
        load_into(Tied(lucid.float16), {**stored(), "layer.weight": quantized_blocks(scales=1e6)}, **TIED)


def test_the_same_weight_may_be_stored_twice() -> None:
    weights = {**stored(), "head.weight": quantized_blocks()}
    load_into(Tied(), weights, **TIED)
    load_into(Tied(), {**weights, "head.weight": quantized_blocks().dequantized()}, **TIED)
    with pytest.raises(ValueError, match=r"head.weight differs from wte, expected one weight"):
        load_into(Tied(), {**weights, "head.weight": quantized_blocks(scales=0.25)}, **TIED)


def test_nothing_is_loaded_where_blocks_do_not_fit() -> None:
    model = Tied()
    before = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    weights = {**stored(), "extra": quantized_blocks(), "layer.bias": np.ones(9, np.float32)}
    weights["layer.weight"] = quantized_blocks().rows(np.arange(3))
    message = r"unexpected: extra; layer.weight has shape \[3, 32\], expected \[8, 32\]; layer.bias has shape \[9\]"
    with pytest.raises(KeyError, match=message):
        load_into(model, weights, **TIED)
    assert all(tensor.numpy() is before[name] for name, tensor in model.state_dict().items())


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
        family=Family(tasks={"feature-extraction": "two.Two"}, types={"two": ModelType()}),
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


@in_one_test(READERS)
def test_every_model_is_read_the_same_way(model: type[Pretrained[object]]) -> None:
    assert issubclass(model, Pretrained)
    assert model.from_pretrained.__func__ is Pretrained.from_pretrained.__func__  # type: ignore[attr-defined]


def test_configs_have_one_vocabulary() -> None:
    """An option has the same name in all configs, usually Hugging Face's; old names of configs remain as aliases."""
    configs = {
        value
        for name in (
            "albert",
            "clip",
            "vision.convnext",
            "gemma",
            "gpt2",
            "llama",
            "mixtral",
            "modernbert",
            "phi3",
            "siglip",
            "vision.swin",
            "t5",
            "vision.vit",
            "wav2vec2",
            "whisper",
        )
        for value in vars(import_module(f"lucid.models.{name}")).values()
        if isinstance(value, type) and is_dataclass(value) and value.__module__ == f"lucid.models.{name}"
    }
    assert len(configs) >= 15 and all(config.__name__.endswith("Config") for config in configs)
    used = {field.name for config in configs for field in fields(config)}
    assert used >= {"vocab_size", "hidden_size", "num_layers", "num_heads", "intermediate_size", "max_positions", "eps"}
    assert not used & {"vocabulary", "width", "layers", "heads", "inner", "positions", "kv_heads", "channels"}
