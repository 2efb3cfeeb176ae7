"""models/mixtral.py against transformers: Mixtral, Qwen2-MoE and Qwen3-MoE, Granite MoE, OLMoE, gpt-oss."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.export import to_onnx
from lucid.generation import Generator
from lucid.models.checkpoints.mxfp4 import dequantized
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.models.mixtral import Mixtral
from lucid.runtime import Session
from tests.models import goldens


def test_the_experts_of_a_layer_are_one_array_under_transformers_key() -> None:
    folder = goldens.folder("mixtral/base")
    state, stored = Mixtral.from_pretrained(folder).state_dict(), lucid.load(folder)
    own = "model.layers.1.block_sparse_moe.experts.2"
    joined = np.concatenate([stored[f"{own}.w1.weight"], stored[f"{own}.w3.weight"]])
    np.testing.assert_array_equal(state["model.layers.1.mlp.experts.gate_up_proj"].numpy()[2], joined)
    np.testing.assert_array_equal(state["model.layers.1.mlp.experts.down_proj"].numpy()[2], stored[f"{own}.w2.weight"])


def test_a_checkpoint_with_joined_experts_is_read(tmp_path: Path) -> None:
    folder = goldens.folder("qwen3_moe/step")
    model = lucid.models.load(folder)
    lucid.models.save(model, folder, tmp_path)
    assert "model.layers.1.mlp.experts.gate_up_proj" in lucid.load(tmp_path)
    ids = lucid.tensor([[3, 1, 4]])
    np.testing.assert_array_equal(lucid.models.load(tmp_path)(ids).numpy(), model(ids).numpy())


@pytest.mark.parametrize(("variant", "most"), [("mixtral/base", 75), ("qwen3_moe/step", 75)])
def test_a_layer_is_lean(variant: str, most: int) -> None:
    nodes = to_onnx(Mixtral.from_pretrained(goldens.folder(variant))).graph.node
    assert 0 < sum(node.name.startswith(("model.layers.0.", "model.layers.0/")) for node in nodes) <= most


@pytest.mark.parametrize("cache", ["growing", "fixed"])
def test_the_exported_model_writes_the_tokens_of_the_eager_one(cache: str) -> None:
    model = Mixtral.from_pretrained(goldens.folder("qwen3_moe/step"))
    session = Session(to_onnx(model, cache=cache, target="cpu"), threads=1)
    prompt = np.array([[5, 9, 2], [7, 7, 1]])
    tokens = [Generator(source).generate(prompt, max_new_tokens=6) for source in (model, session)]
    np.testing.assert_array_equal(*tokens)


def test_a_missing_expert_is_named(tmp_path: Path) -> None:
    folder = goldens.folder("mixtral/base")
    shutil.copy(folder / "config.json", tmp_path / "config.json")
    arrays = dict(lucid.load(folder))
    del arrays["model.layers.0.block_sparse_moe.experts.2.w2.weight"]
    lucid.save(tmp_path / "model.safetensors", arrays)
    with pytest.raises(
        KeyError, match=r"missing: model\.layers\.0\.mlp\.experts\.down_proj; unexpected: .*experts\.0\.w2"
    ):
        Mixtral.from_pretrained(tmp_path)


def test_experts_that_cannot_be_joined_are_listed_with_all_else(tmp_path: Path) -> None:
    folder = goldens.folder("mixtral/base")
    shutil.copy(folder / "config.json", tmp_path / "config.json")
    arrays = dict(lucid.load(folder))
    experts, joined = "model.layers.0.block_sparse_moe.experts", "model.layers.0.mlp.experts"
    spare = "model.layers.7.mlp.experts"  # of a layer that the model does not have
    arrays[f"{experts}.0.w2.weight"] = np.zeros((24, 35), np.float32)
    arrays[f"{experts}.1.w3.weight"] = np.zeros((), np.float32)
    arrays[f"{experts}.3.w1.weight"] = arrays[f"{experts}.3.w1.weight"].astype(np.float16)
    arrays[f"{spare}.0.down_proj.weight"] = np.zeros((24, 36), np.float32)
    arrays[f"{spare}.1.down_proj.weight"] = np.zeros((24, 37), np.float32)
    del arrays["model.norm.weight"]
    lucid.save(tmp_path / "model.safetensors", arrays)
    with pytest.raises(KeyError) as caught:
        Mixtral.from_pretrained(tmp_path)
    why = "as others that are joined in"
    assert str(caught.value).split("; ") == [
        "Mixtral: nothing loaded",
        f"missing: {joined}.down_proj, {joined}.gate_up_proj, model.norm.weight",
        f"unexpected: {spare}.down_proj",
        f"{spare}.1.down_proj.weight has shape [24, 37], expected [24, 36], {why} {spare}.down_proj",
        f"{experts}.1.w3.weight has shape [], expected [36, 24], {why} {joined}.gate_up_proj",
        f"{experts}.3.w1.weight has dtype float16, expected float32, {why} {joined}.gate_up_proj",
        f"{experts}.0.w2.weight has shape [24, 35], expected [24, 36], {why} {joined}.down_proj",
    ]


@pytest.mark.parametrize(
    ("variant", "changes", "message"),
    [
        (
            "mixtral/base",
            {"num_experts_per_tok": 5},
            "num_experts_per_tok is 5, expected a whole number from 1 to 4, the",
        ),
        ("mixtral/base", {"hidden_act": "gelu"}, "hidden_act is 'gelu', supported: silu"),
        ("mixtral/base", {"num_local_experts": None}, "num_experts is missing"),
        ("qwen3_moe/base", {"mlp_only_layers": ["all"]}, r"mlp_only_layers is \['all'\], expected numbers of layers"),
    ],
)
def test_an_option_that_is_not_supported_is_named(
    tmp_path: Path, variant: str, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Mixtral.from_pretrained(goldens.copied(variant, tmp_path, **changes))


# MXFP4 ----------------------------------------------------------------------------------------------------------------


def test_mxfp4_is_read_number_by_number() -> None:
    """All codes, two in a byte, the first in the low half, times the powers of two of their groups."""
    codes = np.tile(np.arange(16, dtype=np.uint8), (1, 2, 4)).reshape(1, 2, 2, 32)
    scales = np.array([[[127, 128], [126, 0]]], np.uint8)
    weight = dequantized("w", codes[..., ::2] + 16 * codes[..., 1::2], scales)
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
    expected = np.tile(values, 2) * np.exp2(scales.astype(np.float64) - 127)[..., None]
    np.testing.assert_array_equal(weight.astype(np.float64), expected.reshape(1, 2, 64))


@pytest.mark.parametrize(
    ("blocks", "scales", "message"),
    [
        (np.zeros((1, 2, 2, 16), np.uint8), None, r"w: _blocks are uint8 \[1, 2, 2, 16\] and _scales nothing"),
        (np.zeros((1, 2, 2, 8), np.uint8), np.zeros((1, 2, 2), np.uint8), r"\[1, 2, 2, 8\] .*expected uint8 \[E, N"),
        (np.zeros((1, 2, 2, 16), np.int8), np.zeros((1, 2, 2), np.uint8), "_blocks are int8"),
    ],
)
def test_mxfp4_of_other_arrays_is_an_error(blocks: Any, scales: Any, message: str) -> None:
    with pytest.raises(lucid.WeightsError, match=message):
        dequantized("w", blocks, scales)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"swiglu_limit": 5.0}, "swiglu_limit is 5.0, supported: 7.0"),
        ({"rope_parameters": None}, "rope_parameters is None, expected an object that says how positions are scaled"),
    ],
)
def test_options_of_gpt_oss_that_are_not_computed_are_refused(
    changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        lucid.models.load(goldens.copied("gpt_oss/base", tmp_path, **changes))
