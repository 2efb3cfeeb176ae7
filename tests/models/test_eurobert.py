"""EuroBERT: a token sees those after it, and a classifier of texts pools in one of three ways."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import lucid
from lucid.models.eurobert import EuroBert, EuroBertForSequenceClassification
from lucid.testing import assert_parity
from tests.models import goldens

IDS, MASK = lucid.tensor([[5, 6, 7, 0], [8, 9, 3, 4]]), lucid.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])


def test_a_token_sees_those_after_it_and_no_padding() -> None:
    encoder = EuroBert.from_pretrained(goldens.folder("eurobert/base"))
    states = encoder(IDS, MASK).numpy()
    np.testing.assert_allclose(encoder(IDS[:1, :3]).numpy()[0], states[0, :3], rtol=1e-4, atol=1e-5)
    assert np.abs(encoder(IDS[:1, :2]).numpy()[0] - states[0, :2]).max() > 1e-2


@pytest.mark.parametrize("pooling", ["bos", "mean", "late"])
def test_a_classifier_pools_states_or_logits_of_what_is_not_padding(pooling: str) -> None:
    config = replace(EuroBert.from_pretrained(goldens.folder("eurobert/base")).config, num_labels=3)
    lucid.manual_seed(0)
    model = EuroBertForSequenceClassification(replace(config, head_pooling=pooling))
    states, kept = lucid.Tensor(model.states(IDS, MASK).numpy()), MASK.numpy()[..., None]

    def mean(x: lucid.Tensor) -> np.ndarray:
        return (x.numpy() * kept).sum(1) / kept.sum(1)

    def head(x: lucid.Tensor) -> lucid.Tensor:
        return model.score(lucid.nn.functional.gelu(model.dense(x)))

    expected = {
        "bos": lambda: head(states[:, 0]).numpy(),
        "mean": lambda: head(lucid.Tensor(mean(states).astype("float32"))).numpy(),
        "late": lambda: mean(head(states)),
    }
    np.testing.assert_allclose(model(IDS, MASK).numpy(), expected[pooling](), rtol=1e-4, atol=1e-6)
    assert_parity(model)
