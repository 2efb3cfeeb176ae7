"""Checkpoints in FP8 with a scale for each rectangle of a weight: the model of the products."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lucid
from lucid import WeightsError
from lucid.models.checkpoints.pretrained import ConfigError
from tests.models import goldens

Array = np.ndarray[Any, Any]
QUANTIZATION = {
    **{"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [16, 8]},
    "modules_to_not_convert": ["lm_head"],
}


def written(variant: str, folder: Path, **changed: object) -> dict[str, Array]:
    """A golden whose projections are in FP8, and its weights as numbers of float32."""
    folder.mkdir()
    options = json.loads((goldens.folder(variant) / "config.json").read_text())
    options["quantization_config"] = {**QUANTIZATION, **changed}
    (folder / "config.json").write_text(json.dumps(options))
    stored: dict[str, Array] = {}
    numbers: dict[str, Array] = {}
    for key, array in lucid.load(goldens.folder(variant)).items():
        stored[key] = numbers[key] = np.array(array)
        if key.endswith("_proj.weight"):
            outputs, inputs = array.shape
            scales = np.linspace(0.5, 2, -(-outputs // 16) * -(-inputs // 8), dtype=np.float32)
            scales = scales.reshape(-(-outputs // 16), -1)
            stored[key], stored[f"{key}_scale_inv"] = array.astype(ml_dtypes.float8_e4m3fn), scales
            wide = scales.repeat(16, 0)[:outputs].repeat(8, 1)[:, :inputs]
            numbers[key] = stored[key].astype(np.float32) * wide
    lucid.save(folder / "model.safetensors", stored)
    return numbers


@pytest.mark.parametrize("variant", ["qwen3/base", "deepseek_v3/base"])
def test_weights_are_the_products(variant: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "lucid.models")
    numbers = written(variant, tmp_path / "fp8")
    (tmp_path / "floats").mkdir()
    (tmp_path / "floats" / "config.json").write_text((goldens.folder(variant) / "config.json").read_text())
    lucid.save(tmp_path / "floats" / "model.safetensors", numbers)
    state, expected = (lucid.models.load(tmp_path / name).state_dict() for name in ("fp8", "floats"))
    assert state.keys() == expected.keys()
    for key, tensor in expected.items():
        np.testing.assert_array_equal(state[key].numpy(), tensor.numpy(), err_msg=key)
    count = sum(key.endswith("_proj.weight") for key in numbers)
    assert f"dequantized to float32: {count} weights in FP8" in caplog.text


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"activation_scheme": "static"}, "activation_scheme is 'static', supported: 'dynamic'"),
        ({"weight_block_size": [16]}, r"weight_block_size is \[16\], expected two whole numbers"),
        ({"expert_dtype": "fp4"}, "expert_dtype is 'fp4', supported: 'fp8'"),
        ({"rotation": True}, "rotation = True"),
    ],
)
def test_other_formats_are_refused_by_name(changed: dict[str, object], message: str, tmp_path: Path) -> None:
    written("qwen3/base", tmp_path / "fp8", **changed)
    with pytest.raises(ConfigError, match=message):
        lucid.models.load(tmp_path / "fp8")


@pytest.mark.parametrize(
    ("part", "array", "message"),
    [
        (
            "_scale_inv",
            np.ones((1, 1), np.float32),
            r"weight_scale_inv is float32 \[1, 1\], expected float \[2, 3\] for fp8",
        ),
        (
            "_scale_inv",
            np.full((2, 3), np.inf, np.float32),
            "weight times its scale is (inf|nan|-inf) at .*, expected finite",
        ),
        ("", np.ones((32, 24), np.float32), r"weight is float32 \[32, 24\], expected float8_e4m3fn"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(part: str, array: Array, message: str, tmp_path: Path) -> None:
    written("qwen3/base", tmp_path / "fp8")
    stored = dict(lucid.load(tmp_path / "fp8"))
    stored[f"model.layers.0.self_attn.q_proj.weight{part}"] = array
    lucid.save(tmp_path / "fp8" / "model.safetensors", stored)
    with pytest.raises(WeightsError, match=message):
        lucid.models.load(tmp_path / "fp8")
