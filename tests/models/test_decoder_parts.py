"""Decoders that are rows of the table of families: options that are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lucid
from lucid.models.checkpoints.pretrained import ConfigError
from tests.models import goldens


@pytest.mark.parametrize(
    ("variant", "options", "message"),
    [
        ("phi/base", {"tie_word_embeddings": True}, "tie_word_embeddings is True, supported: False"),
        (
            "stablelm/base",
            {"rope_parameters": {"partial_rotary_factor": 0.4}},
            "expected an even number of the 8 features",
        ),
        ("gpt_neox/base", {"rope_parameters": None, "rotary_pct": 0.1}, "rotary_pct is 0.1, expected an even number"),
        ("ministral3/base", {"rope_parameters": {"rope_type": "default"}}, "llama_4_scaling_beta is missing"),
        ("cohere/base", {"logit_scale": 0}, "logit_scale is 0, expected a number from 1e-09"),
        ("falcon/base", {"alibi": True}, "alibi is True, supported: False"),
        ("falcon/base", {"num_ln_in_parallel_attn": 2}, "num_ln_in_parallel_attn is 2, supported: 1"),
        ("falcon/grouped", {"parallel_attn": False}, "new_decoder_architecture is True, supported: False"),
        ("falcon/separate", {"num_kv_heads": 2}, "num_kv_heads is 2, supported: 4"),
        ("nemotron/base", {"hidden_act": "gelu_10"}, "hidden_act is 'gelu_10', supported: .*relu2"),
    ],
)
def test_an_option_that_is_not_valid_is_refused_by_name(
    variant: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        lucid.models.load(goldens.copied(variant, tmp_path, **options))
