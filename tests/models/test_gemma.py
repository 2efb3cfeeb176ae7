"""models/gemma.py against transformers: Gemma 1, 2 and 3, and EmbeddingGemma."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

import lucid
from lucid.export import to_onnx
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.models.gemma import Gemma, GemmaSentenceEncoder
from lucid.models.parts.decoders import OffsetNorm
from lucid.testing import assert_parity
from tests.models import goldens


def test_earlier_names_of_the_text_model_are_read(tmp_path: Path) -> None:
    """As in google/gemma-3-4b-it."""
    folder = shutil.copytree(goldens.folder("gemma3/images"), tmp_path / "model")
    stored = {
        re.sub(
            r"^model\.language_model\.", "language_model.model.", re.sub(r"^model\.(vision|multi)", r"\1", key)
        ): array
        for key, array in lucid.load(folder).items()
    }
    assert any(key.startswith("language_model.model.layers.0") for key in stored)
    lucid.save(folder / "model.safetensors", stored)
    ids = lucid.tensor([[5, 6, 7]])
    earlier, now = (Gemma.from_pretrained(each)(ids) for each in (folder, goldens.folder("gemma3/images")))
    np.testing.assert_array_equal(earlier, now)


def test_a_two_sided_model_embeds_sentences_with_two_dense_layers(tmp_path: Path) -> None:
    """As in google/embeddinggemma-300m."""
    folder = shutil.copytree(goldens.folder("tasks/gemma3_feature_extraction"), tmp_path / "model")
    names = ["", "1_Pooling", "2_Dense", "3_Dense", "4_Normalize"]
    lines = [{"path": name, "type": f"sentence_transformers.models.{name[2:] or 'Transformer'}"} for name in names]
    (folder / "modules.json").write_text(json.dumps(lines))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    lucid.manual_seed(0)
    weights = [lucid.randn(30, 24).numpy(), lucid.randn(24, 30).numpy()]
    for name, weight in zip(names[2:4], weights, strict=True):
        (folder / name).mkdir()
        identity = "torch.nn.modules.linear.Identity"
        options = {"in_features": weight.shape[1], "out_features": weight.shape[0], "bias": False}
        (folder / name / "config.json").write_text(json.dumps({**options, "activation_function": identity}))
        lucid.save(folder / name / "model.safetensors", {"linear.weight": weight})
    encoder: Any = lucid.models.load(folder)
    ids, mask = lucid.tensor([[5, 6, 7, 0]]), lucid.tensor([[1, 1, 1, 0]])
    states: Any = lucid.models.load(folder, "feature-extraction")
    vector = states(ids, mask).numpy()[0, :3].mean(0) @ weights[0].T @ weights[1].T
    assert type(encoder) is GemmaSentenceEncoder
    np.testing.assert_allclose(encoder(ids, mask).numpy()[0], vector / np.linalg.norm(vector), rtol=1e-4, atol=1e-6)
    assert_parity(encoder)


def test_a_two_sided_model_writes_no_texts() -> None:
    with pytest.raises(ConfigError, match="use_bidirectional_attention is True, supported: False"):
        lucid.models.load(goldens.folder("tasks/gemma3_feature_extraction"), "text-generation")


def test_a_layer_is_lean() -> None:
    """Seven products, two rotations, attention, GELU and the gate, two sums; six norms, each with the addition of 1 to
    its weight, which is done when the model is loaded; and two reshapes around each norm of heads.
    """
    nodes = to_onnx(Gemma.from_pretrained(goldens.folder("gemma3/base"))).graph.node
    assert 0 < sum(node.name.startswith(("model.layers.1.", "model.layers.1/")) for node in nodes) <= 31


def test_weights_of_norms_are_stored_as_they_are() -> None:
    exported = to_onnx(Gemma.from_pretrained(goldens.folder("gemma3/base")))
    initializers = {tensor.name: numpy_helper.to_array(tensor) for tensor in exported.graph.initializer}
    for name, array in lucid.load(goldens.folder("gemma3/base")).items():
        if "norm" in name:
            np.testing.assert_array_equal(initializers[name], array)


def test_norms_add_one_to_their_weights_in_float32() -> None:
    """In bfloat16 1 + 1/512 is 1: the small weight would be lost."""
    norm, x = OffsetNorm(2, 0.0, 1.0), lucid.tensor([[3.0, -3.0]])
    norm.weight.numpy()[:] = 1 / 512
    norm.to(lucid.bfloat16)
    wide = norm(x.astype(lucid.bfloat16) * 200)
    assert wide.dtype == lucid.bfloat16
    largest = lucid.tensor([[1.0 + 1 / 512]]).astype(lucid.bfloat16).item()
    np.testing.assert_allclose(np.abs(wide.astype(lucid.float32)), largest)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("target", goldens.TARGETS)
def test_every_form_of_a_norm_adds_one(target: str, dtype: str) -> None:
    lucid.manual_seed(0)
    norm = OffsetNorm(8, 1e-6, 1.0)
    norm.weight.numpy()[:] = lucid.randn(8).numpy()
    x = lucid.randn(3, 8)
    expected = x.numpy() / np.sqrt((x.numpy() ** 2).mean(-1, keepdims=True) + 1e-6) * (1 + norm.weight.numpy())
    np.testing.assert_allclose(norm(x), expected, rtol=1e-5)
    assert_parity(norm.to(dtype), lucid.spec("N", 8, dtype=dtype), target=target)


@pytest.mark.parametrize(
    ("variant", "changes", "message"),
    [
        (
            "gemma2/base",
            {"model_type": "gemma4"},
            "model_type is 'gemma4', .*; supported: gemma, gemma2, gemma3_text, gemma3;",
        ),
        ("gemma3/images", {"tie_word_embeddings": False}, "tie_word_embeddings is False, supported: True"),
        ("gemma2/base", {"use_bidirectional_attention": True}, "use_bidirectional_attention is True, supported: False"),
        ("gemma2/base", {"final_logit_softcapping": -1.0}, "final_logit_softcapping is -1.0, expected a number from"),
        ("gemma2/base", {"sliding_window": None}, "sliding_window is null, expected int"),
        ("gemma2/base", {"head_dim": 7}, "heads are 7 wide, expected an even number"),
        ("gemma2/base", {"num_key_value_heads": 3}, "num_key_value_heads is 3, expected a divisor"),
        ("gemma3/base", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50.0, supported: None"),
        ("gemma3/base", {"layer_types": ["full_attention"]}, "layer_types is .*, supported: 3 of full_attention or"),
        ("gemma3/base", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0, expected a number"),
    ],
    ids=str,
)
def test_an_option_that_is_not_supported_is_named(
    tmp_path: Path, variant: str, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Gemma.from_pretrained(goldens.copied(variant, tmp_path, **changes))


def test_a_soft_cap_that_is_null_is_none_and_one_that_is_absent_is_that_of_gemma_2(tmp_path: Path) -> None:
    folder = goldens.copied("gemma2/base", tmp_path, attn_logit_softcapping=None)
    config = json.loads((folder / "config.json").read_text())
    del config["final_logit_softcapping"]
    (folder / "config.json").write_text(json.dumps(config))
    read = Gemma.from_pretrained(folder).config
    assert (read.attention_softcap, read.logits_softcap) == (0.0, 30.0)
