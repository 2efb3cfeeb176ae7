"""Quantized checkpoints as Lucid writes them: read again they are the same, and damaged ones are errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import WeightsError, nn
from lucid.models.checkpoints.config import ConfigError
from tests.models import goldens
from tests.models.test_gguf import converted

VARIANTS = [
    "bert/base",
    "clip/gelu",
    "gpt2/base",
    "llama/llama3",
    "qwen2/window",
    "roberta/base",
    "t5/v1_1",
    "vit/base",
]
PART = "model.layers.0.mlp.up_proj.weight"
IDS = np.array([[5, 9, 3]])
BYTES = {"bits": 8, "block": None}


def written(folder: Path, variant: str = "llama/llama3", **options: Any) -> nn.Module:
    model = lucid.quantize(lucid.models.load(goldens.folder(variant)), **{"block": 16, **options})
    folder.mkdir(exist_ok=True)
    lucid.models.save(model, goldens.folder(variant), folder)
    return model


def assert_same(model: nn.Module, reference: nn.Module) -> None:
    state, expected = model.state_dict(), reference.state_dict()
    assert state.keys() == expected.keys()
    for name, tensor in expected.items():
        assert state[name].dtype == tensor.dtype, name
        np.testing.assert_array_equal(state[name].numpy(), tensor.numpy(), err_msg=name)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_saved_checkpoint_is_read_as_it_was(variant: str, tmp_path: Path) -> None:
    model = written(tmp_path, variant)
    assert_same(lucid.models.load(tmp_path), model)


@pytest.mark.parametrize(
    "options",
    [
        {"bits": 8},
        {"symmetric": True},
        {"bits": {"*.mlp.*": 8, "*.self_attn.*": 4}},
        {**BYTES, "activations": "dynamic"},
        {**BYTES, "activations": "dynamic_rows", "bits": {"*.mlp.*": 8}},
        {**BYTES, "activations": "static", "smallest_table": 1, "calibration": [IDS]},
    ],
    ids=str,
)
def test_every_format_is_read_as_it_was(options: dict[str, Any], tmp_path: Path) -> None:
    model: Any = written(tmp_path, **options)
    loaded: Any = lucid.models.load(tmp_path)
    assert_same(loaded, model)
    assert repr(loaded) == repr(model)
    np.testing.assert_array_equal(loaded(IDS).numpy(), model(IDS).numpy())


def test_a_model_in_float_too_and_the_numbers_of_a_quantized_one(tmp_path: Path) -> None:
    model = lucid.models.load(goldens.folder("llama/llama3"))
    lucid.models.save(model, goldens.folder("llama/llama3"), tmp_path)
    assert_same(lucid.models.load(tmp_path), model)
    small: Any = written(tmp_path)
    numbers: Any = lucid.models.load(tmp_path, dequantize=True)
    weight = small.model.layers[0].mlp.up_proj.weight
    eye = lucid.tensor(np.eye(weight.shape[1], dtype=np.float32))
    np.testing.assert_allclose(numbers.model.layers[0].mlp.up_proj.weight.numpy(), weight(eye).numpy().T, rtol=1e-6)


def test_a_gguf_file_has_the_options_of_a_folder(tmp_path: Path) -> None:
    path = converted("llama/llama2", tmp_path / "model.gguf")
    model = lucid.quantize(lucid.models.load(path, dequantize=True), 8, block=16)
    (tmp_path / "small").mkdir()
    lucid.models.save(model, path, tmp_path / "small")
    loaded = lucid.models.load(tmp_path / "small")
    assert_same(loaded, model)
    assert loaded.config == model.config


def test_half_precision_is_rounded_as_it_is_in_the_file_with_scales_in_float32(tmp_path: Path) -> None:
    """ "auto" leaves the parameters in the mapped file; the codes are those of the widened weights."""
    folder = goldens.folder("llama/bfloat16_sharded")
    mapped: Any = lucid.models.load(folder, dtype="auto")
    assert {parameter.dtype for parameter in mapped.parameters()} == {lucid.bfloat16}
    assert not mapped.model.layers[0].mlp.up_proj.weight.numpy().flags.owndata
    small = lucid.quantize(mapped, block=16, dtype="float32")
    wide = lucid.quantize(lucid.models.load(folder), block=16)
    assert_same(small.to("float32"), wide)
    lucid.models.save(
        lucid.quantize(lucid.models.load(folder, dtype="auto"), block=16, dtype="float32"), folder, tmp_path
    )
    assert_same(lucid.models.load(tmp_path), wide)


def damaged(folder: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    """Change the arrays and the options of a folder."""
    arrays = {name: array.copy() for name, array in lucid.load(folder).items()}
    options = json.loads((folder / "config.json").read_text())
    change(arrays, options["quantization_config"])
    lucid.save(folder / "model.safetensors", arrays)
    (folder / "config.json").write_text(json.dumps(options))


def part(name: str, change: Callable[[Any], Any]) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    """A change of an array of one weight."""
    return lambda arrays, _: arrays.update({f"{PART}.{name}": change(arrays[f"{PART}.{name}"])})


def set_weight_options(kind: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    """A change of what the options say of that weight."""
    return lambda _, options: options["weights"].update({PART: kind})


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            part("scales", lambda array: array[:1]),
            WeightsError,
            r"up_proj.weight.scales is float32 \[1\], expected float \[36\] for 24 inputs in 8 bits by row; get an",
        ),
        (lambda arrays, _: arrays.pop(f"{PART}.codes"), WeightsError, "up_proj.weight.codes is missing, which quant"),
        (part("codes", lambda array: array[0]), WeightsError, r"codes has shape \[24\], expected 2 axes"),
        (part("codes", lambda array: array.astype(np.uint8)), WeightsError, "up_proj.weight.codes is uint8"),
        (part("scales", lambda array: array * np.nan), WeightsError, "up_proj.weight.scales has NaN or infinity"),
        (part("input_scale", np.zeros_like), WeightsError, "up_proj.weight.input_scale is 0.0, expected a finite"),
        (
            lambda arrays, _: arrays.pop(f"{PART}.input_zero_point"),
            WeightsError,
            "up_proj.weight has no input_zero_point; get an intact copy",
        ),
        (set_weight_options({"activations": "some"}), ConfigError, "or .*one of null, dynamic, dynamic_rows, static"),
    ],
)
def test_a_damaged_folder_in_bytes_is_an_error(
    change: Any, error: type[Exception], message: str, tmp_path: Path
) -> None:
    written(tmp_path, **BYTES, activations="static", calibration=[IDS])
    damaged(tmp_path, change)
    with pytest.raises(error, match=message):
        lucid.models.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            part("scales", lambda array: array[:, :1]),
            WeightsError,
            r"up_proj.weight.scales is float32 \[36, 1\], expected float \[36, 2\] for 24 inputs in 4 bits and blocks "
            "of 16; get an intact copy of the folder, or quantize again",
        ),
        (lambda arrays, _: arrays.pop(f"{PART}.scales"), WeightsError, "up_proj.weight has no scales"),
        (lambda arrays, _: arrays.pop(f"{PART}.packed"), WeightsError, "up_proj.weight.packed is missing, which quant"),
        (part("packed", lambda array: array.astype(np.int8)), WeightsError, "up_proj.weight.packed is int8"),
        (part("scales", lambda array: array * np.nan), WeightsError, "up_proj.weight: Blocks: scales are nan"),
        (
            lambda _, options: options["weights"].pop(PART),
            KeyError,
            "missing: model.layers.0.mlp.up_proj.weight; une",
        ),
        (set_weight_options([4, 32, 24]), WeightsError, r"packed is uint8 \[36, 2, 8\], expected uint8 \[36, 1, 16\]"),
        (set_weight_options([3, 32, 24]), ConfigError, "bits is 3, expected one of 4, 8"),
        (set_weight_options(4), ConfigError, r"up_proj.weight' is 4, expected \[bits, block, inputs\]"),
        (lambda _, options: options.update(version=2), ConfigError, "so the results could be wrong: version = 2"),
    ],
)
def test_a_damaged_folder_is_an_error(change: Any, error: type[Exception], message: str, tmp_path: Path) -> None:
    written(tmp_path)
    damaged(tmp_path, change)
    with pytest.raises(error, match=message):
        lucid.models.load(tmp_path)


def test_a_weight_that_is_stored_in_another_way_is_an_error(tmp_path: Path) -> None:
    model: Any = lucid.models.load(goldens.folder("llama/llama3"))

    class Other(nn.quantized.WeightModule):
        pass

    model.model.layers[0].mlp.up_proj.weight = Other()
    with pytest.raises(ValueError, match="up_proj.weight is a Other, which a checkpoint does not hold"):
        lucid.models.save(model, goldens.folder("llama/llama3"), tmp_path)
    assert list(tmp_path.iterdir()) == []
