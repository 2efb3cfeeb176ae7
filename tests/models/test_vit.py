"""models/vision/vit.py against transformers: ViT, DeiT and DINOv2."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lucid
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.models.vision.swin import SwinConfig, SwinForMaskedImageModeling
from lucid.models.vision.vit import ViT, ViTConfig, ViTForImageClassification, ViTForMaskedImageModeling, stretch
from lucid.testing import assert_parity
from tests.models import goldens


@pytest.mark.parametrize("variant", ["vit/base", "dinov2/base"])
def test_the_exported_weights_have_the_checkpoint_s_names(variant: str) -> None:
    exported = lucid.export.to_onnx(ViT.from_pretrained(goldens.folder(variant)))
    names = {initializer.name.removesuffix(".T") for initializer in exported.graph.initializer}
    unused = ("pooler.", "embeddings.mask_token", "embeddings.position_embeddings", "attention.attention")
    used = {name for name in lucid.load(goldens.folder(variant)) if not any(part in name for part in unused)}
    assert used <= names


def test_stretching_to_the_same_size_changes_nothing() -> None:
    np.testing.assert_array_equal(stretch(5, 5), np.eye(5))


def test_stretching_keeps_constants() -> None:
    np.testing.assert_allclose(stretch(3, 7).sum(1), np.ones(7), rtol=1e-6)


def test_an_image_of_another_size_is_refused() -> None:
    model = ViT.from_pretrained(goldens.folder("vit/base"))
    with pytest.raises(ValueError, match=r"\(16, 12\), the model was trained on \(12, 12\)"):
        model(lucid.zeros(1, 3, 16, 12))


def test_an_encoder_is_not_a_classifier() -> None:
    with pytest.raises(KeyError, match=r"no classifier\.weight; load it for another task"):
        ViTForImageClassification.from_pretrained(goldens.folder("vit/base"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "mish"}, "hidden_act is 'mish', supported: gelu"),
        ({"model_type": "swin"}, "model_type is 'swin', supported: vit, deit, dinov2"),
    ],
)
def test_an_option_that_is_not_supported_is_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ViT.from_pretrained(goldens.copied("vit/base", tmp_path, **changes))


SMALL = {"image_size": (8, 16), "patch_size": 4, "hidden_size": 16}


@pytest.mark.parametrize(
    "model",
    [
        ViTForMaskedImageModeling(ViTConfig(**SMALL, num_layers=1, num_heads=2, intermediate_size=24, pixels=4)),
        SwinForMaskedImageModeling(SwinConfig(**SMALL, depths=(1, 1), num_heads=(2, 4), window_size=1, pixels=8)),
    ],
    ids=["vit", "swin"],
)
def test_hidden_patches_are_restored_alike_in_a_file(model: lucid.nn.Module) -> None:
    assert_parity(model, target="portable")
    pixels, hidden = lucid.ones(1, 3, 8, 16), np.zeros((1, 8), bool)
    assert model(pixels).shape == (1, 3, 8, 16)
    np.testing.assert_array_equal(model(pixels, lucid.tensor(hidden)).numpy(), model(pixels).numpy())
    hidden[0, 5] = True
    assert not np.allclose(model(pixels, lucid.tensor(hidden)).numpy(), model(pixels).numpy())
