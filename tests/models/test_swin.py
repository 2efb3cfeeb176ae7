"""models/vision/swin.py against transformers, and what its windows demand of an image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lucid
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.models.vision.swin import Swin, SwinForImageClassification
from tests.models import goldens


@pytest.mark.parametrize("variant", ["swin/base", "swin/classifier"])
def test_hidden_states_are_those_of_transformers(variant: str) -> None:
    model = Swin.from_pretrained(goldens.folder(variant))
    for case in goldens.cases(variant):
        x = model.embeddings(lucid.Tensor(case.inputs["pixel_values"]))
        for number, stage in enumerate(model.encoder["layers"]):
            for index, layer in enumerate(stage.blocks):
                case.close(f"{number}.hidden_states.{index}", x.flatten(1, 2), rtol=5e-6)
                x = layer(x)
            case.close(f"{number}.hidden_states.{len(stage.blocks)}", x.flatten(1, 2), rtol=5e-6)
            x = x if stage.downsample is None else stage.downsample(x)


@pytest.mark.parametrize("size", [(18, 12), (13, 27)])
def test_images_of_another_size_are_a_spec(size: tuple[int, int]) -> None:
    model = Swin.from_pretrained(goldens.folder("swin/base"))
    lucid.testing.assert_parity(model, lucid.spec("N", 3, *size))


def test_a_patch_does_not_see_the_other_side_of_the_image() -> None:
    """In a layer with shifted windows, which go over the border: 18 patches, and windows that begin at the second."""
    layer = Swin.from_pretrained(goldens.folder("swin/base")).encoder["layers"][0].blocks[1]
    x = np.random.default_rng(0).normal(size=(1, 9, 9, 8)).astype(np.float32)
    changed = x.copy()
    changed[:, :, -1] += 1
    moved = abs(layer(lucid.Tensor(changed)).numpy() - layer(lucid.Tensor(x)).numpy()).max((0, 1, 3))
    assert (moved > 0).tolist() == [False] * 7 + [True] * 2  # with a shift of 1 the last window has the columns 7, 8


def test_sizes_that_are_not_numbers_are_refused() -> None:
    model = Swin.from_pretrained(goldens.folder("swin/base"))
    with pytest.raises(ValueError, match=r"shape \[N, 3, H, W\], expected .* with numbers for H and W: .* lucid\.spec"):
        lucid.export.to_onnx(model, lucid.spec("N", 3, "H", "W"))


def test_an_image_smaller_than_a_window_is_refused() -> None:
    model = Swin.from_pretrained(goldens.folder("swin/base"))
    with pytest.raises(ValueError, match="a stage has 5 x 2 patches, expected a window of 3 x 3 or more"):
        model(lucid.zeros(1, 3, 20, 8))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_heads": [2, 5]}, r"num_heads is \[2, 5\], expected divisors of the widths of stages, 8, 16"),
        ({"num_heads": [2]}, r"num_heads is \[2\], expected a list of 2 whole numbers"),
        ({"depths": []}, r"depths is \[\], expected a list of 1 to 100 whole numbers"),
        ({"window_size": 40}, "window_size is 40, expected a whole number from 1 to 16, the size of an image"),
    ],
)
def test_an_option_that_is_not_supported_is_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SwinForImageClassification.from_pretrained(goldens.copied("swin/classifier", tmp_path, **changes))


def test_what_older_checkpoints_store_beside_weights_is_not_used(tmp_path: Path) -> None:
    folder = goldens.copied("swin/classifier", tmp_path)
    stored = dict(lucid.load(folder))
    table = "swin.encoder.layers.0.blocks.0.attention.self.relative_position_index"
    lucid.save(folder / "model.safetensors", {**stored, table: np.zeros((9, 9), np.int64)})
    model = SwinForImageClassification.from_pretrained(folder)
    for case in goldens.cases("swin/classifier"):
        case.close("logits", model(lucid.tensor(case.inputs["pixel_values"])), rtol=1e-5)


def test_an_encoder_is_not_a_classifier() -> None:
    with pytest.raises(KeyError, match=r"no classifier\.weight; load it for another task"):
        SwinForImageClassification.from_pretrained(goldens.folder("swin/base"))
