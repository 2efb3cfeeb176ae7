"""models/deepseek.py: the small cache, step by step and in generation, and the experts that groups leave to a token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.export import to_onnx
from lucid.generation import Generator
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.models.deepseek import Router, Routing
from lucid.runtime import Session
from tests.models import goldens

TEXT = np.random.default_rng(0).integers(3, 40, (2, 9))


@pytest.mark.parametrize("variant", ["deepseek_v2/base", "deepseek_v3/base"])
@pytest.mark.parametrize("capacity", [None, 12])
def test_the_cache_has_a_latent_vector_and_a_rotary_part_for_all_heads(variant: str, capacity: int | None) -> None:
    model: Any = lucid.models.load(goldens.folder(variant))
    whole, cache, start, logits = model(lucid.tensor(TEXT)).numpy(), model.empty_cache(2, capacity), 0, []
    for count in (4, 1, 3, 1):
        step, cache = model(lucid.tensor(TEXT[:, start : start + count]), past_key_values=cache)
        logits.append(step.numpy())
        start += count
    np.testing.assert_allclose(np.concatenate(logits, 1), whole, rtol=1e-4, atol=1e-5)
    slots = capacity or TEXT.shape[1]
    assert [(layer.key.shape, layer.value.shape) for layer in cache] == [((2, 1, slots, 12), (2, 1, slots, 4))] * 2


@pytest.mark.parametrize("kind", ["growing", "fixed"])
def test_an_exported_step_writes_the_tokens_of_the_eager_one(kind: str) -> None:
    model: Any = lucid.models.load(goldens.folder("deepseek_v3/base"))
    options: dict[str, Any] = {"max_new_tokens": 5, "attention_mask": [[1] * 9, [0, 0, *[1] * 7]]}
    session = Session(to_onnx(model, cache=kind, target="cpu"))
    tokens = [Generator(source).generate(TEXT, **options).tolist() for source in (model, session)]
    assert tokens[0] == tokens[1]


@pytest.mark.parametrize("sigmoid", [False, True])
def test_experts_are_of_the_best_groups(sigmoid: bool) -> None:
    """One token after the other, with sorted lists."""
    routing = Routing(6, 2, 1, 1, 0, sigmoid, groups=3, kept=1, normalized=sigmoid, factor=2.5)
    router, rng = Router(6, routing), np.random.default_rng(1)
    added = np.zeros(6, np.float32)
    router.weight = lucid.nn.Parameter(np.eye(6, dtype=np.float32))
    if sigmoid:
        added = rng.standard_normal(6).astype(np.float32)
        router.e_score_correction_bias = lucid.nn.Parameter(added)
    logits = rng.standard_normal((20, 6)).astype(np.float32)
    indices, weights = (part.numpy() for part in router(lucid.tensor(logits)))
    for row, chosen, shares in zip(logits, indices, weights, strict=True):
        scores = 1 / (1 + np.exp(-row)) if sigmoid else np.exp(row) / np.exp(row).sum()
        groups = (scores + added).reshape(3, 2)
        best = int((groups.sum(1) if sigmoid else groups.max(1)).argmax())
        assert sorted(chosen) == [2 * best, 2 * best + 1]
        expected = scores[chosen] / (scores[chosen].sum() if sigmoid else 1)
        np.testing.assert_allclose(shares, 2.5 * expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("variant", "changes", "message"),
    [
        ("deepseek_v2/base", {"topk_method": "noaux_tc"}, "'noaux_tc', supported: greedy, group_limited_greedy"),
        ("deepseek_v3/base", {"n_group": 8}, "n_group is 8, expected groups of 2 or more of the 8 experts"),
        ("deepseek_v3/base", {"num_experts_per_tok": 5}, "from 1 to 4, the experts of the groups of a token"),
        ("deepseek_v3/base", {"num_key_value_heads": 2}, "expected 4, as many as num_attention_heads"),
        ("deepseek_v3/base", {"hidden_act": "gelu"}, "hidden_act is 'gelu', supported: 'silu'"),
    ],
)
def test_an_option_that_is_not_supported_is_named(
    variant: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        lucid.models.load(goldens.copied(variant, tmp_path, **changes))
