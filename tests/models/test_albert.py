"""models/albert.py against transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lucid
from lucid import Tensor
from lucid.export import to_onnx
from lucid.models.albert import Albert, AlbertSentenceEncoder
from lucid.models.checkpoints.pretrained import ConfigError
from tests.models import goldens

VARIANTS = ["albert/base", "albert/masked_lm"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_states_are_those_of_transformers(variant: str) -> None:
    model = Albert.from_pretrained(goldens.folder(variant))
    for case in goldens.cases(variant):
        inputs = {name: Tensor(array) for name, array in case.inputs.items()}
        embedded = model.embeddings(inputs["input_ids"], inputs.get("token_type_ids"))
        case.close("hidden_states.0", model.encoder.embedding_hidden_mapping_in(embedded), rtol=1e-5)
        case.close("last_hidden_state", model(**inputs), rtol=1e-5)


def test_a_shared_weight_is_stored_once() -> None:
    """Three layers, each of six products, and the weights of one."""
    exported = to_onnx(Albert.from_pretrained(goldens.folder("albert/base"))).graph
    products = [node for node in exported.node if node.op_type == "MatMul"]
    stored = {tensor.name for tensor in exported.initializer}
    weights = {name for node in products for name in node.input if name in stored}
    assert (len(products), len(weights)) == (19, 7)


def test_sentence_embeddings_are_means_of_length_one_without_a_modules_json() -> None:
    encoder = lucid.models.load(goldens.folder("albert/base"), "sentence-similarity")
    assert isinstance(encoder, AlbertSentenceEncoder)
    ids, mask = lucid.tensor([[5, 6, 7, 0, 0]]), lucid.tensor([[1, 1, 1, 0, 0]])
    mean = Albert.forward(encoder, ids, mask).numpy()[0, :3].mean(0)
    np.testing.assert_allclose(encoder(ids, mask).numpy()[0], mean / np.linalg.norm(mean), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"num_hidden_groups": 4},
            ConfigError,
            "num_hidden_groups is 4, expected a whole number from 1 to 3, the number",
        ),
        (
            {"num_hidden_groups": 2},
            KeyError,
            "encoder.albert_layer_groups: 1 given, expected 2, the number in the model",
        ),
        ({"net_structure_type": 1}, ConfigError, "net_structure_type is 1, supported: 0"),
        ({"position_embedding_type": "relative_key"}, ConfigError, "position_embedding_type"),
        ({"hidden_act": "mish"}, ConfigError, "hidden_act is 'mish', supported: gelu"),
    ],
    ids=str,
)
def test_a_checkpoint_that_asks_for_something_else_is_an_error(
    tmp_path: Path, changes: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Albert.from_pretrained(goldens.copied("albert/base", tmp_path, **changes))


def test_too_many_tokens_are_an_error() -> None:
    albert = Albert.from_pretrained(goldens.folder("albert/base"))
    with pytest.raises(ValueError, match="25 tokens, but the checkpoint has 24 positions; truncate the input"):
        albert(lucid.zeros(1, 25, dtype=lucid.int64))
