"""models/vision/resnet.py, detr.py and rt_detr.py: what is special, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import Tensor
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.models.vision.detr import DetrForObjectDetection, sines
from lucid.models.vision.resnet import HalvingMean, ResNet, timm_config, timm_renames
from lucid.models.vision.rt_detr import Places, RTDetrForObjectDetection, _nearest
from lucid.testing import assert_parity
from tests.models import goldens

BACKBONE = "model.backbone.conv_encoder.model."
TIMM_NAMES = {
    "embedder.embedder.convolution": "conv1",
    "embedder.embedder.normalization": "bn1",
    "encoder.stages.0.layers.0.layer.0.convolution": "layer1.0.conv1",
    "encoder.stages.2.layers.5.layer.2.normalization": "layer3.5.bn3",
    "encoder.stages.3.layers.0.shortcut.convolution": "layer4.0.downsample.0",
    "encoder.stages.3.layers.0.shortcut.normalization": "layer4.0.downsample.1",
}


def test_each_name_of_timm_is_that_of_a_weight() -> None:
    """timm has names of its own for the weights of the ResNet in the published files of DETR."""
    own = DetrForObjectDetection.checkpoint
    for name, theirs in TIMM_NAMES.items():
        assert own.renamed(f"{BACKBONE}{theirs}.weight") == f"{BACKBONE}{name}.weight"
    names = {name.removesuffix(".weight") for name in ResNet(timm_config("resnet50", 3)).state_dict()}
    assert names.issuperset(TIMM_NAMES)
    assert timm_renames("^")[0] == ("(^)conv1\\.", r"\1embedder.embedder.convolution.")


def test_a_backbone_of_timm_computes_what_the_same_of_transformers_does(tmp_path: Path) -> None:
    """Its sizes come from its name, so this has the widths of ResNet-18."""
    sizes = {"hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2], "layer_type": "basic", "embedding_size": 64}
    stages = {"out_features": ["stage4"], "out_indices": [4]}
    theirs = goldens.copied("detr/objects", tmp_path / "theirs", "backbone_config", **sizes, **stages)
    whole = DetrForObjectDetection.checkpoint.read(lucid.models.checkpoints.config.Config.read(theirs))
    lucid.manual_seed(0)
    model = DetrForObjectDetection(whole)
    lucid.save(theirs / "model.safetensors", model.state_dict())
    timm = goldens.copied(
        "detr/objects", tmp_path / "timm", backbone_config=None, use_timm_backbone=True, backbone="resnet18"
    )
    back = {
        **{f"encoder.stages.{i}.layers.": f"layer{i + 1}." for i in range(4)},
        **{f".layer.{i}.convolution": f".conv{i + 1}" for i in range(2)},
        **{f".layer.{i}.normalization": f".bn{i + 1}" for i in range(2)},
        **{"embedder.embedder.convolution": "conv1", "embedder.embedder.normalization": "bn1"},
        **{"shortcut.convolution": "downsample.0", "shortcut.normalization": "downsample.1"},
    }

    def renamed(name: str) -> str:
        for own, other in back.items() if name.startswith(BACKBONE) else ():
            name = name.replace(own, other)
        return name

    lucid.save(timm / "model.safetensors", {renamed(name): array for name, array in model.state_dict().items()})
    pixels = lucid.randn(1, 3, 40, 33)
    for output, expected in zip(lucid.models.load(timm)(pixels), model(pixels), strict=True):
        np.testing.assert_array_equal(output.numpy(), expected.numpy())


def test_a_mask_of_another_size_stands_for_the_image() -> None:
    """transformers.js gives 64 x 64 for images of any size."""
    model = DetrForObjectDetection.from_pretrained(goldens.folder("detr/objects"))
    case = goldens.cases("detr/objects")[1]
    pixels = Tensor(case.inputs["pixel_values"])
    case.close("logits", model(pixels, lucid.ones(1, 64, 64, dtype=lucid.int64))[0], rtol=2e-6)


def test_places_are_shares_of_what_is_kept() -> None:
    """The last kept row and column are at 2 pi, whatever the padding."""
    whole, padded = sines(lucid.ones(1, 2, 3), 8), sines(lucid.tensor([[[1.0, 1, 1, 0], [1, 1, 1, 0]]]), 8)
    np.testing.assert_array_equal(whole.numpy(), padded.numpy()[:, :, :3])
    np.testing.assert_allclose(whole.numpy()[0, 1, 2, ::4], [0, 0], atol=1e-5)  # sin(2 pi) of row and column


def test_masks_of_an_image_that_is_all_padding_are_numbers() -> None:
    """As in transformers, where all places have the same share then."""
    model: Any = lucid.models.load(goldens.folder("detr/masks"))
    pixels = lucid.tensor(np.random.default_rng(0).standard_normal((2, 3, 64, 64)).astype(np.float32))
    mask = lucid.tensor(np.arange(2).reshape(2, 1, 1) + np.zeros((2, 64, 64), np.int64))
    image = model.detr.model.encode(pixels, mask)
    shares = model.shares(model.detr.model.decode(image), image).numpy()
    np.testing.assert_allclose(shares[0], 1 / (shares.shape[2] * shares.shape[3]), rtol=1e-6)
    both, alone = model(pixels, mask)[2].numpy(), model(pixels[1:], mask[1:])[2].numpy()
    assert np.isfinite(both).all()
    np.testing.assert_allclose(both[1:], alone, rtol=1e-4, atol=1e-5)


def test_an_odd_end_is_the_mean_of_the_pixels_inside_the_image() -> None:
    image = lucid.tensor([[[[1.0, 2, 3], [3, 4, 5], [6, 8, 9]]]])
    assert HalvingMean()(image).tolist() == [[[[2.5, 4], [7, 9]]]]


def test_points_are_read_between_places_and_outside_are_zero() -> None:
    """An image of 1 x 2 places, and points in the middle of both, between them, at the left edge, and outside."""
    places, weights = _nearest(lucid.tensor([[0.25, 0.75, 0.5, 0.0, 2.0]]), lucid.tensor([[2]]))
    assert places.tolist() == [[[0, 1], [1, 0], [0, 1], [0, 0], [0, 0]]]
    assert weights.tolist() == [[[1, 0], [1, 0], [0.5, 0.5], [0, 0.5], [0, 0]]]


def test_nan_in_an_image_is_nan_in_what_is_found() -> None:
    model = RTDetrForObjectDetection.from_pretrained(goldens.folder("rt_detr/objects"))
    pixels = np.zeros((1, 3, 64, 96), np.float32)
    pixels[0, 1, 5, 7] = np.nan
    exported = lucid.runtime.Session(lucid.export.to_onnx(model), threads=1)
    for results in (model(lucid.tensor(pixels)), exported(pixels)):
        assert all(np.isnan(result.numpy()).all() for result in results)


def test_anchors_stand_in_the_middle_of_places_and_not_at_the_edge() -> None:
    logits, valid = Places([(1, 2), (1, 100)]).anchors()
    np.testing.assert_allclose(logits.sigmoid().numpy()[:2], [[0.25, 0.5, 0.05, 0.05], [0.75, 0.5, 0.05, 0.05]])
    assert valid.numpy()[:, 0].tolist() == [True, True, False, *[True] * 98, False]  # 0.005 is too near


def test_any_size_of_images_is_read_where_transformers_takes_multiples_of_32() -> None:
    model = RTDetrForObjectDetection.from_pretrained(goldens.folder("rt_detr/objects"))
    assert_parity(model, lucid.spec(2, 3, 70, 101))


def test_each_task_loads_its_class() -> None:
    names = {variant: type(lucid.models.load(goldens.folder(f"detr/{variant}"))).__name__ for variant in VARIANTS}
    assert names == VARIANTS


VARIANTS = {"base": "Detr", "objects": "DetrForObjectDetection", "masks": "DetrForSegmentation"}


@pytest.mark.parametrize(
    ("variant", "section", "options", "message"),
    [
        ("resnet/features", "", {"layer_type": "other"}, "layer_type is 'other', supported: basic, bottleneck"),
        ("detr/base", "", {"dilation": True}, "dilation is True, supported: False"),
        ("detr/base", "", {"position_embedding_type": "learned"}, "supported: 'sine'"),
        ("detr/base", "", {"d_model": 18}, "expected a divisor of the width 18|expected a multiple of 4"),
        ("detr/base", "backbone_config", {"model_type": "swin"}, "supported: 'resnet' or 'timm_backbone'"),
        ("detr/base", "backbone_config", {"out_features": ["stage1"]}, "expected 'stage4' as the last"),
        ("rt_detr/basic", "", {"learn_initial_query": True}, "supported: False"),
        ("rt_detr/basic", "", {"eval_size": [640, 640]}, "eval_size is .640, 640., supported: None"),
        ("rt_detr/basic", "", {"encode_proj_layers": [3]}, "expected levels from 0 to 2"),
        ("rt_detr/basic", "", {"encoder_in_channels": [8, 8, 8]}, r"expected \[8, 12, 16\]"),
        ("rt_detr/basic", "backbone_config", {"model_type": "hgnet_v2"}, "supported: 'rt_detr_resnet'"),
        ("rt_detr_v2/objects", "", {"decoder_method": "discrete"}, "supported: 'default'"),
        ("detr/base", "", {"backbone_config": {"model_type": "timm_backbone", "backbone": "x"}}, "supported: resnet18"),
    ],
)
def test_an_option_that_is_not_supported_is_named(
    tmp_path: Path, variant: str, section: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        lucid.models.load(goldens.copied(variant, tmp_path, section, **options))
