"""models/deberta.py against transformers, and what is special in it: products with distances."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import lucid
from lucid import Tensor
from lucid.export import to_onnx
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.models.deberta import Deberta, DebertaConfig, DebertaSentenceEncoder
from tests.models import goldens


def test_far_distances_share_a_row() -> None:
    """Half of the buckets hold one distance each; those of the published models are 256, up to 512."""
    assert config(4).rows_of_distances().tolist() == [0, 1, 1, 2, 3, 4, 5, 6, 7, 7, 7]
    rows = config(256, 512).rows_of_distances()
    assert rows[512 - 128 : 512 + 129].tolist() == list(range(128, 385))
    far = {129: 385, 140: 393, 200: 425, 300: 463, 400: 489, 500: 510, 510: 511, 512: 511}
    assert {d: int(rows[512 + d]) for d in far} == far
    assert [int(rows[512 - d]) for d in far] == [512 - row if d < 512 else 0 for d, row in far.items()]


def test_without_buckets_each_distance_has_a_row() -> None:
    assert config(None).rows_of_distances().tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9]


def config(buckets: int | None, reach: int = 5) -> DebertaConfig:
    return DebertaConfig(9, 8, 1, 2, 8, max_distance=reach, num_buckets=buckets)


def test_keys_and_queries_of_distances_are_computed_in_the_export() -> None:
    """They depend on weights alone: products of three matrices fewer in each layer, for two arrays with names."""
    exported = to_onnx(Deberta.from_pretrained(goldens.folder("deberta/v3"))).graph
    inside = "encoder.layer.1.attention.self"
    products = [node for node in exported.node if node.op_type == "MatMul" and node.name.startswith(inside)]
    assert len(products) == 5  # queries, keys and values, and two with distances
    stored = {tensor.name: list(tensor.dims) for tensor in exported.initializer}
    assert (
        stored[f"{inside}.key_proj.weight.distances"] == stored[f"{inside}.query_proj.weight.distances"] == [4, 4, 16]
    )


def test_a_text_may_be_longer_than_the_distances_that_differ() -> None:
    """There are no embeddings of positions, so nothing ends at 12, the most in the config."""
    model = Deberta.from_pretrained(goldens.folder("deberta/v3"))
    assert model(lucid.ones(1, 40, dtype=lucid.int64)).shape == (1, 40, 16)


def test_sentence_embeddings_are_means_of_length_one_without_a_modules_json() -> None:
    encoder = lucid.models.load(goldens.folder("deberta/v3"), "sentence-similarity")
    assert isinstance(encoder, DebertaSentenceEncoder)
    ids, mask = lucid.tensor([[5, 6, 7, 0, 0]]), lucid.tensor([[1, 1, 1, 0, 0]])
    mean = Deberta.forward(encoder, ids, mask).numpy()[0, :3].mean(0)
    np.testing.assert_allclose(encoder(ids, mask).numpy()[0], mean / np.linalg.norm(mean), rtol=1e-5, atol=1e-6)


def test_a_language_model_head_is_read_as_the_authors_store_it(tmp_path: Path) -> None:
    """microsoft/deberta-v3-base has lm_predictions.lm_head.* and mask_predictions.*, transformers' own files cls.*."""
    source = goldens.folder("tasks/deberta_fill_mask")
    shutil.copy(source / "config.json", tmp_path)
    stored = {}
    for name, array in lucid.load(source).items():
        name = name.replace("cls.predictions.transform.", "lm_predictions.lm_head.")
        stored[name.replace("cls.predictions.", "lm_predictions.lm_head.")] = array
    stored["mask_predictions.dense.weight"] = np.zeros((16, 16), np.float32)
    lucid.save(tmp_path / "model.safetensors", stored)
    inputs = {name: Tensor(array) for name, array in goldens.cases("tasks/deberta_fill_mask")[0].inputs.items()}
    logits, expected = (lucid.models.load(folder)(**inputs) for folder in (tmp_path, source))
    np.testing.assert_array_equal(logits.numpy(), expected.numpy())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"relative_attention": False}, "relative_attention is False, supported: True"),
        ({"pos_att_type": "p2p"}, 'pos_att_type is \'p2p\', supported: "c2p", "p2c" or both'),
        ({"pos_att_type": None}, "pos_att_type is None, supported"),
        ({"position_buckets": 22}, "position_buckets is 22, expected 4 to 21, for distances up to 12"),
        ({"max_relative_positions": 1 << 30}, "max_relative_positions is 1073741824, expected a whole number from 1"),
        ({"norm_rel_ebd": "batch_norm"}, "norm_rel_ebd is 'batch_norm', supported: none, layer_norm"),
        ({"conv_kernel_size": 2}, "conv_kernel_size is 2, expected an odd number, or 0 for no convolution"),
        ({"attention_head_size": 8}, "attention_head_size is 8, supported: 4"),
        ({"embedding_size": 8}, "not supported here.*embedding_size = 8"),
    ],
    ids=str,
)
def test_an_option_that_is_not_supported_is_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Deberta.from_pretrained(goldens.copied("deberta/v3", tmp_path, **changes))
