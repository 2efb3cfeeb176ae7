"""models/phi3.py against transformers: Phi-3 and Phi-4."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lucid import Tensor, nn
from lucid.export import to_onnx
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.models.phi3 import Phi3
from tests.models import goldens

VARIANTS = ["phi3/base", "phi3/long"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_cosines_are_those_of_transformers(variant: str) -> None:
    model = Phi3.from_pretrained(goldens.folder(variant))
    for case in goldens.cases(variant):
        cos, _ = model.model.rope(Tensor(case.outputs["position_ids"]))
        expected = case.outputs["rotary_cos"][..., : cos.shape[-1]]
        assert abs(cos.numpy() - expected).max() <= 2e-7


def test_a_layer_is_lean() -> None:
    """Four products, two splits, two rotations, attention, SiLU and the gate, two sums, two norms."""
    nodes = to_onnx(Phi3.from_pretrained(goldens.folder("phi3/base"))).graph.node
    assert 0 < sum(node.name.startswith(("model.layers.1.", "model.layers.1/")) for node in nodes) <= 16


def test_factors_of_frequencies_must_be_as_many() -> None:
    with pytest.raises(ValueError, match="LongRopeScaling: got 3 factors for 4 frequencies"):
        nn.RotaryEmbedding(8, scaling=nn.LongRopeScaling(2.0, (1.0,) * 3, (2.0,) * 3))
    assert nn.LongRopeScaling(2.0, attention_factor=1.5).magnitude == 1.5
    assert nn.LongRopeScaling(32.0).magnitude == pytest.approx(1.1902, abs=1e-4)  # of Phi-3-mini-128k


LONG = {"rope_type": "longrope", "short_factor": [1.0, 1.2], "long_factor": [1.5, 6.0], "partial_rotary_factor": 0.75}


def test_both_spellings_of_the_kind_are_read(tmp_path: Path) -> None:
    """transformers 5 writes the published option again, next to its own."""
    config = json.loads((goldens.folder("phi3/long") / "config.json").read_text())
    rope = {**config["rope_parameters"], "type": config["rope_parameters"]["rope_type"]}
    model = Phi3.from_pretrained(goldens.copied("phi3/long", tmp_path, rope_parameters=rope))
    assert model.config == Phi3.from_pretrained(goldens.folder("phi3/long")).config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention_bias": True}, "attention_bias is True, supported: False"),
        (
            {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}},
            "rope_type is 'yarn', supported: default, longrope",
        ),
        ({"rope_parameters": LONG | {"long_factor": [1.0]}}, r"long_factor is \[1.0\], expected 2 positive numbers"),
        ({"rope_parameters": LONG | {"short_factor": [1.0, 0]}}, r"short_factor is \[1.0, 0\], expected 2 positive"),
        ({"rope_parameters": LONG | {"long_factor": None}}, "option long_factor is missing, expected list"),
        (
            {"rope_parameters": {"partial_rotary_factor": 0.5}},
            "partial_rotary_factor is 0.5, expected an even number of",
        ),
        ({"rope_parameters": LONG | {"mscale": 1.0}}, "not supported here.*mscale = 1.0"),
        ({"num_key_value_heads": 3}, "num_key_value_heads is 3, expected a divisor"),
        ({"hidden_act": "mish"}, "hidden_act is 'mish', supported: gelu"),
    ],
    ids=str,
)
def test_an_option_that_is_not_supported_is_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Phi3.from_pretrained(goldens.copied("phi3/long", tmp_path, **changes))
