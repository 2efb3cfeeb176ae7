"""models/vision/segformer.py, dinov3.py and depth_anything.py: what is special, and what they refuse."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import Tensor
from lucid.layouts.images import Preprocessor
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.models.vision.depth_anything import DepthAnything
from lucid.models.vision.dinov3 import DINOv3
from tests.models import goldens


def test_metric_depths_are_those_of_transformers_for_any_size_of_images() -> None:
    model = DepthAnything.from_pretrained(goldens.folder("depth_anything/metric"))
    for case in goldens.cases("depth_anything/metric"):
        case.close("predicted_depth", model(Tensor(case.inputs["pixel_values"])), rtol=5e-6)


def test_hidden_states_of_dinov3_are_those_of_transformers() -> None:
    model = DINOv3.from_pretrained(goldens.folder("dinov3/base"))
    for case in goldens.cases("dinov3/base"):
        x, places = model.embeddings(Tensor(case.inputs["pixel_values"]))
        case.close("hidden_states.0", x, rtol=5e-6)
        case.close("hidden_states.1", model.layer[0](x, model.angles(*places)), rtol=5e-6)


def test_only_patches_are_turned() -> None:
    cos, sin = DINOv3.from_pretrained(goldens.folder("dinov3/base")).angles(4, 2)
    assert cos.shape == (1 + 2 + 8, 2)  # the class token, two registers, patches; half of a head of four
    np.testing.assert_array_equal(cos.numpy()[:3], 1)
    np.testing.assert_array_equal(sin.numpy()[:3], 0)
    assert (np.abs(sin.numpy()[3:]).max(1) > 0.1).all()


def test_each_task_loads_its_class() -> None:
    names = {variant: type(lucid.models.load(goldens.folder(f"segformer/{variant}"))).__name__ for variant in VARIANTS}
    assert names == VARIANTS


VARIANTS = {
    "base": "Segformer",
    "classifier": "SegformerForImageClassification",
    "segmentation": "SegformerForSemanticSegmentation",
}


def test_the_preprocessor_of_segformer_reads_images_alone(tmp_path: Path) -> None:
    options = {"do_normalize": True, "do_resize": True, "do_reduce_labels": True, "resample": 2}
    options |= {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
    options |= {"image_processor_type": "SegformerImageProcessor", "size": {"height": 8, "width": 8}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(options))
    assert Preprocessor.from_folder(tmp_path).window == (8, 8)


@pytest.mark.parametrize(
    ("variant", "section", "options", "message"),
    [
        ("segformer/base", "", {"num_attention_heads": [1, 5]}, r"expected divisors of the widths \[8, 12\]"),
        ("segformer/base", "", {"num_encoder_blocks": 3}, "expected 2, as many as hidden_sizes"),
        ("segformer/base", "", {"reshape_last_stage": False}, "reshape_last_stage is False, supported: True"),
        ("dinov3/base", "", {"num_attention_heads": 8}, "expected heads whose width is a multiple of 4"),
        ("depth_anything/base", "backbone_config", {"model_type": "swin"}, "model_type is 'swin', supported: 'dinov2'"),
        ("depth_anything/base", "backbone_config", {"out_indices": [1, 2, 4]}, "expected layers from 1 to 3, in order"),
        ("depth_anything/base", "", {"reassemble_factors": [2, 1]}, "supported: 3 of 8, 4, 2, 1, 0.5, 0.25"),
        ("depth_anything/base", "", {"neck_hidden_sizes": [4, 5]}, "expected 3, one for each of out_indices"),
        ("depth_anything/base", "", {"depth_estimation_type": "other"}, "supported: relative, metric"),
    ],
)
def test_an_option_that_is_not_supported_is_named(
    tmp_path: Path, variant: str, section: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        lucid.models.load(goldens.copied(variant, tmp_path, section, **options))


def test_sizes_of_stages_are_refused_alone_and_cannot_be_ignored(tmp_path: Path) -> None:
    """Their default has four stages, with which the other lists of the file would be wrong too."""
    shutil.copytree(goldens.folder("segformer/base"), tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text()) | {"hidden_sizes": 0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="option hidden_sizes is 0, expected list$"):
        lucid.models.load(tmp_path)
    with pytest.raises(ConfigError, match="hidden_sizes cannot be ignored, expected as many sizes as the checkpoint"):
        lucid.models.load(tmp_path, ignore="hidden_sizes")
