"""BERT and its variations, exported once, against transformers; test_every_target.py has the rest of that."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.export import to_onnx
from lucid.models.bert import Bert, SentenceEncoder
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.runtime import Session
from tests.models import goldens

GOLDENS = Path(__file__).parents[1] / "goldens"
FAMILIES = ("bert", "roberta", "distilbert", "xlm_roberta", "camembert", "electra", "ernie", "mpnet")
FAMILIES += ("roformer", "nomic_bert", "jina_embeddings_v3", "esm")
FOLDERS = [folder for family in FAMILIES for folder in sorted((GOLDENS / family).iterdir())]


@cache
def model(folder: Path) -> Bert:
    return Bert.from_pretrained(folder)


@cache
def exported(folder: Path, inputs: tuple[str, ...]) -> Session:
    """One export for all sizes of the calls with these arguments."""
    return Session(to_onnx(model(folder), *specs(inputs)))


def specs(inputs: Iterable[str]) -> list[lucid.TensorType]:
    """Specs with symbolic sizes for these inputs, the first arguments."""
    arguments = ("input_ids", "attention_mask", "token_type_ids")
    assert tuple(inputs) == arguments[: len(tuple(inputs))]
    return [lucid.spec("N", "L", dtype=lucid.int64) for _ in inputs]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_one_export_with_the_inputs_of_a_call_serves_all_its_sizes(folder: Path) -> None:
    for case in goldens.cases(f"{folder.parent.name}/{folder.name}"):
        results = exported(folder, tuple(case.inputs)).run(case.inputs)
        case.close("last_hidden_state", results["last_hidden_state"], rtol=1e-5)


@pytest.mark.parametrize("opset", [17, 18])
def test_exported_for_older_runtimes(opset: int) -> None:
    case = next(case for case in goldens.cases("bert/base") if case.name == "right_padding")
    session = Session(to_onnx(model(GOLDENS / "bert" / "base"), *specs(case.inputs), opset=opset))
    case.close("last_hidden_state", session.run(case.inputs)["last_hidden_state"], rtol=1e-5)


def test_the_exported_model_has_the_checkpoints_names() -> None:
    names = {tensor.name for tensor in to_onnx(model(GOLDENS / "bert" / "base")).graph.initializer}
    assert "encoder.layer.0.attention.self.query.weight.T" in names
    assert "embeddings.LayerNorm.bias" in names


# Rotary positions and proteins ----------------------------------------------------------------------------------------


def test_rotary_frequencies_that_a_checkpoint_stores_are_taken(tmp_path: Path) -> None:
    folder, key = (
        copy_of(GOLDENS / "esm" / "base", tmp_path),
        "esm.encoder.layer.*.attention.self.rotary_embeddings.inv_freq",
    )
    weights = lucid.load(folder)
    usual = Bert.from_pretrained(folder)(lucid.tensor([[5, 6, 7]])).numpy()
    lucid.save(folder / "model.safetensors", {**weights, key: weights[key] * 0})
    without_places = Bert.from_pretrained(folder)(lucid.tensor([[5, 6, 5]])).numpy()
    np.testing.assert_allclose(without_places[0, 0], without_places[0, 2], rtol=1e-4, atol=1e-5)
    assert np.abs(usual[0, 0] - without_places[0, 0]).max() > 1e-2


def test_a_masked_residue_is_zero_and_the_others_grow_as_after_dropout() -> None:
    esm, plain = model(GOLDENS / "esm" / "base"), lucid.tensor([[5, 6, 7, 8]])
    table = esm.embeddings.word_embeddings.weight.numpy()
    np.testing.assert_allclose(esm.hidden_states(plain)[0].numpy()[0], table[[5, 6, 7, 8]] * 0.88, rtol=1e-6)
    masked = esm.hidden_states(lucid.tensor([[5, 32, 7, 8]]))[0].numpy()[0]
    np.testing.assert_allclose(masked, table[[5, 5, 7, 8]] * 0.88 / 0.75 * [[1], [0], [1], [1]], rtol=1e-6)


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        ("nomic_bert", {"prenorm": True}, "option prenorm is True, supported: False"),
        ("nomic_bert", {"head_dim": 8}, "option head_dim is 8, supported: 4"),
        ("esm", {"position_embedding_type": "relative_key"}, "supported: absolute, rotary"),
        ("esm", {"is_folding_model": True}, "option is_folding_model is True, supported: False"),
    ],
)
def test_what_these_encoders_do_not_have_is_refused(
    family: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        Bert.from_pretrained(copy_of(GOLDENS / family / "base", tmp_path, **options))


def test_options_of_nomic_bert_as_published_are_read(tmp_path: Path) -> None:
    names = {
        "n_embd": 16,
        "n_layer": 2,
        "n_head": 4,
        "n_inner": 20,
        "rotary_emb_base": 1000,
        "layer_norm_epsilon": 1e-12,
    }
    config = {"model_type": "nomic_bert", "vocab_size": 40, "activation_function": "swiglu", **names}
    folder = copy_of(GOLDENS / "nomic_bert" / "base", tmp_path)
    (folder / "config.json").write_text(json.dumps(config))
    assert Bert.from_pretrained(folder).config == model(GOLDENS / "nomic_bert" / "base").config


def test_a_text_longer_than_the_table_of_angles_is_an_error() -> None:
    with pytest.raises(ValueError, match="25 tokens, but the checkpoint has 24 positions"):
        model(GOLDENS / "roformer" / "base")(lucid.ones(1, 25, dtype=lucid.int64))


# Sentence embeddings --------------------------------------------------------------------------------------------------


def test_sentence_embeddings_are_means_of_length_one_that_padding_does_not_move() -> None:
    encoder = SentenceEncoder.from_pretrained(GOLDENS / "bert" / "base")
    ids, mask = lucid.tensor([[5, 6, 7, 0, 0]]), lucid.tensor([[1, 1, 1, 0, 0]])
    states = Bert.forward(encoder, ids, mask).numpy()[0, :3].mean(0)
    np.testing.assert_allclose(encoder(ids, mask).numpy()[0], states / np.linalg.norm(states), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(encoder(ids, mask).numpy(), encoder(ids[:, :3]).numpy(), rtol=1e-4, atol=1e-5)


# Checkpoints that do not fit ------------------------------------------------------------------------------------------


def copy_of(folder: Path, target: Path, **options: Any) -> Path:
    config = json.loads((folder / "config.json").read_text()) | options
    (target / "config.json").write_text(json.dumps(config))
    (target / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    return target


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"model_type": "gpt2"}, ConfigError, "option model_type is 'gpt2', supported: bert, roberta, distilbert"),
        ({"is_decoder": True}, ConfigError, "option is_decoder is True, supported: False"),
        ({"hidden_act": "snake"}, ConfigError, "option hidden_act is 'snake', supported: gelu"),
        ({"position_embedding_type": "relative_key"}, ConfigError, "position_embedding_type"),
        ({"hidden_size": "8"}, ConfigError, "option hidden_size is '8', expected int"),
        ({"hidden_size": None}, ConfigError, "option hidden_size is null, expected int"),
        ({"num_hidden_layers": 1}, KeyError, "encoder.layer: 2 given, expected 1, the number in the model"),
        ({"vocab_size": 5}, KeyError, "embeddings.word_embeddings.weight has shape"),
    ],
    ids=str,
)
def test_a_checkpoint_that_asks_for_something_else_is_an_error(
    tmp_path: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    folder = copy_of(GOLDENS / "bert" / "base", tmp_path, **options)
    with pytest.raises(error, match=message):
        Bert.from_pretrained(folder)


def test_mpnet_has_as_many_buckets_as_its_published_code_uses(tmp_path: Path) -> None:
    folder = copy_of(GOLDENS / "mpnet" / "base", tmp_path, relative_attention_num_buckets=16)
    with pytest.raises(ConfigError, match="relative_attention_num_buckets is 16, supported: 32"):
        Bert.from_pretrained(folder)


def test_too_many_tokens_are_an_error() -> None:
    bert = model(GOLDENS / "bert" / "base")
    with pytest.raises(ValueError, match=r"\d+ tokens, but the checkpoint has \d+ positions; truncate the input"):
        bert(lucid.zeros(1, bert.config.max_positions + 1, dtype=lucid.int64))
