"""models/vision/convnext.py: what both versions have, and which options they read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lucid
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.models.vision.convnext import ConvNext, ConvNextConfig, ConvNextForImageClassification, ResponseNorm
from tests.models import goldens


def test_each_version_has_its_own_scales() -> None:
    sizes = {"hidden_sizes": (4, 8), "depths": (1, 1)}
    names = [
        {name for name in ConvNext(config).state_dict() if "stages.0.layers.0" in name}
        for config in (ConvNextConfig(**sizes), ConvNextConfig(version=2, layer_scale=False, **sizes))
    ]
    both = {f"encoder.stages.0.layers.0.{name}" for name in ("layer_scale_parameter", "grn.weight", "grn.bias")}
    assert names[0] - names[1] | names[1] - names[0] == both


def test_a_response_is_relative_to_that_of_all_channels() -> None:
    norm = ResponseNorm(2)
    norm.weight.assign(np.ones((1, 1, 1, 2), np.float32))
    x = np.array([3.0, 0.0, 4.0, 5.0], np.float32).reshape(1, 1, 2, 2)  # two places, two channels, both of length 5
    np.testing.assert_allclose(norm(lucid.Tensor(x)).numpy(), 2 * x, rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_stages": 3}, "num_stages is 3, supported: 2"),
        ({"depths": [1]}, r"depths is \[1\], expected a list of 2 whole numbers"),
        ({"hidden_sizes": [8, "x"]}, "hidden_sizes is .* expected a list of 1 to 100 whole numbers from 1 to 65536"),
    ],
)
def test_an_option_that_is_not_supported_is_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ConvNext.from_pretrained(goldens.copied("convnext/base", tmp_path, **changes))


def test_an_encoder_is_not_a_classifier() -> None:
    with pytest.raises(KeyError, match=r"no classifier\.weight; load it for another task"):
        ConvNextForImageClassification.from_pretrained(goldens.folder("convnext/base"))
