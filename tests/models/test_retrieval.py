"""Sparse encoders, encoders of a vector a token and generative rerankers against sentence-transformers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.models.checkpoints.config import ConfigError
from lucid.testing import assert_parity
from tests.models import goldens

EXPECTED: dict[str, Any] = json.loads((goldens.ROOT / "retrieval.json").read_text())
FIRST = "sentence_transformers.base.modules.transformer.Transformer"
NEW, OLD = "sentence_transformers.sparse_encoder.modules", "sentence_transformers.sparse_encoder.models"


def folder(tmp: Path, variant: str, *modules: tuple[str, str, dict[str, Any] | None]) -> Path:
    """A golden with a modules.json: types, paths, and the options of modules."""
    target = shutil.copytree(goldens.folder(variant), tmp / "model")
    (target / "modules.json").write_text(json.dumps([{"type": kind, "path": path} for kind, path, _ in modules]))
    for _, path, options in modules:
        if options is not None:
            (target / path).mkdir()
            (target / path / "config.json").write_text(json.dumps(options))
    return target


def answer(model: Any, side: str = "right") -> Any:
    return model(**{name: lucid.tensor(value) for name, value in EXPECTED[side].items()})


@pytest.mark.parametrize("strategy", ["max", "sum"])
@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
def test_splade_weighs_every_token_there_is(tmp_path: Path, strategy: str, activation: str) -> None:
    options = {"pooling_strategy": strategy, "activation_function": activation, "word_embedding_dimension": 40}
    modules = ((f"{OLD}.MLMTransformer", "", None), (f"{OLD}.SpladePooling", "1_SpladePooling", options))
    model = lucid.models.load(folder(tmp_path, "tasks/distilbert_fill_mask", *modules))
    assert (type(model).__name__, model.checkpoint.task) == ("BertSparseEncoder", "sparse-encoding")
    np.testing.assert_allclose(answer(model), EXPECTED[f"{strategy} {activation}"], atol=2e-5)
    assert_parity(model)


def routed(tmp: Path, **routes: list[tuple[str, dict[str, Any] | None]]) -> Path:
    """A Router of sentence-transformers: for each route its modules, each with options, or None for the encoder."""
    source = tmp / "router"
    source.mkdir()
    (source / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Router", "path": ""}]))
    structure = {
        route: [f"{route}_{place}_{kind}" for place, (kind, _) in enumerate(modules)]
        for route, modules in routes.items()
    }
    parts = {name: part for route, names in structure.items() for name, part in zip(names, routes[route], strict=True)}
    types = {name: f"{OLD}.{kind}" for name, (kind, _) in parts.items()}
    (source / "router_config.json").write_text(json.dumps({"types": types, "structure": structure, "parameters": {}}))
    for name, (_, options) in parts.items():
        if options is None:
            shutil.copytree(goldens.folder("tasks/distilbert_fill_mask"), source / name)
        else:
            (source / name).mkdir()
            (source / name / "config.json").write_text(json.dumps(options))
    return source


SPLADE = [("MLMTransformer", None), ("SpladePooling", {"pooling_strategy": "max"})]


def test_a_router_with_one_encoder_is_read_as_its_route(tmp_path: Path) -> None:
    """As SPLADE for documents alone, whose queries are a table of weights."""
    source = routed(tmp_path, query=[("SparseStaticEmbedding", {"frozen": False})], document=SPLADE)
    model = lucid.models.load(source)
    assert model.checkpoint.task == "sparse-encoding"
    np.testing.assert_allclose(answer(model), EXPECTED["max relu"], atol=2e-5)
    (tmp_path / "saved").mkdir()
    lucid.models.save(model, source, tmp_path / "saved")
    np.testing.assert_array_equal(answer(lucid.models.load(tmp_path / "saved")), answer(model))


def test_a_router_with_several_encoders_names_their_folders(tmp_path: Path) -> None:
    source = routed(tmp_path, query=SPLADE, document=SPLADE)
    message = "2 of its routes query, document begin with an encoder .*, expected one; .* query_0_MLM.*, document_0_MLM"
    with pytest.raises(ConfigError, match=rf"router_config\.json: {message}"):
        lucid.models.load(source)


def test_a_router_without_an_encoder_is_refused(tmp_path: Path) -> None:
    source = routed(tmp_path, query=[("WordEmbeddings", {})])
    with pytest.raises(ConfigError, match="0 of its routes query begin with an encoder .*, expected one; its library"):
        lucid.models.load(source)


def test_newer_files_call_the_first_module_transformer(tmp_path: Path) -> None:
    modules = (
        ("sentence_transformers.base.modules.transformer.Transformer", "", None),
        (f"{NEW}.SpladePooling", "1_S", {}),
    )
    model = lucid.models.load(folder(tmp_path, "tasks/distilbert_fill_mask", *modules))
    np.testing.assert_allclose(answer(model), EXPECTED["max relu"], atol=2e-5)
    (tmp_path / "saved").mkdir()
    lucid.models.save(model, tmp_path / "model", tmp_path / "saved")
    types = [line["type"] for line in json.loads((tmp_path / "saved" / "modules.json").read_text())]
    assert types == [
        "sentence_transformers.models.Transformer",
        f"{NEW}.SpladePooling",
    ]  # which sentence-transformers has
    again = lucid.models.load(tmp_path / "saved")
    np.testing.assert_array_equal(answer(again), answer(model))


@pytest.mark.parametrize("tokens", [(7, 9), (7,)])
def test_a_reranker_takes_the_logit_of_yes_less_that_of_no(tmp_path: Path, tokens: tuple[int, ...]) -> None:
    options = {"true_token_id": tokens[0], "false_token_id": tokens[1] if len(tokens) > 1 else None}
    options["module_input_name"] = "causal_logits"
    modules = (
        ("sentence_transformers.base.modules.transformer.Transformer", "", None),
        ("sentence_transformers.cross_encoder.modules.logit_score.LogitScore", "1_LogitScore", options),
    )
    model = lucid.models.load(folder(tmp_path, "qwen3/base", *modules))
    assert (type(model).__name__, model.checkpoint.task) == ("LlamaGenerativeReranker", "generative-reranking")
    expected = EXPECTED[f"tokens {tokens}"]
    np.testing.assert_allclose(answer(model, "left"), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(answer(model)[1], expected[1], rtol=1e-4, atol=1e-5)  # padded on the right
    assert_parity(model)


def test_a_reranker_needs_the_tokens_that_it_scores() -> None:
    with pytest.raises(ConfigError, match=r"Reranker: no token is scored, expected a modules\.json with a LogitScore"):
        lucid.models.llama.LlamaGenerativeReranker.from_pretrained(goldens.folder("llama/llama3"))


def colbert(tmp: Path, dense: str) -> Path:
    options = {
        "in_features": 16,
        "out_features": 4,
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    if not dense.startswith("pylate"):
        options |= {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
    target = folder(tmp, "bert/base", (FIRST, "", None), (dense, "1_Dense", options))
    lucid.save(target / "1_Dense" / "model.safetensors", {"linear.weight": np.array(EXPECTED["dense"], np.float32)})
    (target / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": 5, ",": 6, "b": 7}}}))
    return target


@pytest.mark.parametrize("dense", ["pylate.models.Dense.Dense", "sentence_transformers.base.modules.dense.Dense"])
def test_colbert_gives_a_vector_a_token_and_no_punctuation_of_documents(tmp_path: Path, dense: str) -> None:
    model = lucid.models.load(colbert(tmp_path, dense))
    assert (type(model).__name__, model.checkpoint.task) == ("BertMultiVectorEncoder", "multi-vector-encoding")
    vectors, mask = answer(model)
    kept = np.array(EXPECTED["right"]["attention_mask"], bool)
    np.testing.assert_allclose(vectors.numpy()[kept], np.array(EXPECTED["vectors"])[kept], atol=1e-5)
    np.testing.assert_array_equal(mask, EXPECTED["mask"])
    assert_parity(model)


def test_bge_m3_has_three_heads(tmp_path: Path) -> None:
    model_folder = tmp_path / "model"
    shutil.copytree(goldens.folder("sentences/cls"), model_folder)
    rng = np.random.default_rng(0)
    weights = {"sparse_linear": rng.normal(size=(1, 16)), "colbert_linear": rng.normal(size=(16, 16))}
    weights = {name: weight.astype(np.float32) for name, weight in weights.items()}
    for name, weight in weights.items():
        lucid.save(model_folder / f"{name}.pt", {"weight": weight, "bias": np.full(len(weight), 0.1, np.float32)})
    dense, sparse, vectors = answer(lucid.models.load(model_folder, "hybrid-encoding"))
    states, mask = (
        answer(lucid.models.load(model_folder, "feature-extraction")).numpy(),
        np.array(EXPECTED["right"]["attention_mask"]),
    )
    np.testing.assert_array_equal(dense, answer(lucid.models.load(model_folder)))
    expected = np.maximum(states @ weights["sparse_linear"].T + 0.1, 0)[..., 0] * mask
    np.testing.assert_allclose(sparse, expected, rtol=1e-4, atol=1e-5)
    expected = states[:, 1:] @ weights["colbert_linear"].T + 0.1
    expected *= mask[:, 1:, None] / np.linalg.norm(expected, axis=-1, keepdims=True)
    np.testing.assert_allclose(vectors, expected, rtol=1e-4, atol=1e-5)
    assert_parity(lucid.models.load(model_folder, "hybrid-encoding"))


def test_a_skip_list_needs_the_tokenizer(tmp_path: Path) -> None:
    model_folder = colbert(tmp_path, "pylate.models.Dense.Dense")
    (model_folder / "config_sentence_transformers.json").write_text(json.dumps({"skiplist_words": ["b"]}))
    np.testing.assert_array_equal(answer(lucid.models.load(model_folder))[1][0], [1, 1, 0, 1, 1])
    many = [["<unk>", 0.0], *([f"▁{'x' * 1000}{i}", -1.0] for i in range(4_200))]  # more than a config.json may have
    unigram = {"model": {"type": "Unigram", "vocab": [*many[:7], ["b", -2.0], *many[7:]]}, "added_tokens": None}
    (model_folder / "tokenizer.json").write_text(json.dumps(unigram, ensure_ascii=False))
    np.testing.assert_array_equal(answer(lucid.models.load(model_folder))[1][0], [1, 1, 0, 1, 1])
    for wrong in ({}, {"model": []}, {"model": {"vocab": {"b": "7"}}}, {"model": {"vocab": [[["b"], 0.0]]}}):
        (model_folder / "tokenizer.json").write_text(json.dumps(wrong))
        with pytest.raises(ConfigError, match=r"tokenizer\.json: expected texts of tokens and their ids as model"):
            lucid.models.load(model_folder)
    (model_folder / "config_sentence_transformers.json").write_text(json.dumps({"skiplist_words": [["b"]]}))
    with pytest.raises(ConfigError, match=r"skiplist_words is \[\['b'\]\], expected a list of words"):
        lucid.models.load(model_folder)
    for options in ({"skiplist_words": ["b"]}, {}):
        (model_folder / "config_sentence_transformers.json").write_text(json.dumps(options))
        (model_folder / "tokenizer.json").unlink(missing_ok=True)
        with pytest.raises(ConfigError, match=r"tokenizer\.json: is missing, which has the ids .*; get the tokenizer"):
            lucid.models.load(model_folder)
    (model_folder / "config_sentence_transformers.json").write_text(json.dumps({"skiplist_words": []}))
    np.testing.assert_array_equal(answer(lucid.models.load(model_folder))[1][0], [1, 1, 1, 1, 1])


def test_what_a_folder_is_for_is_what_its_modules_say(tmp_path: Path) -> None:
    model_folder = colbert(tmp_path, "pylate.models.Dense.Dense")
    with pytest.raises(ConfigError, match="is for the task multi-vector-encoding, got sentence-similarity"):
        lucid.models.load(model_folder, "sentence-similarity")
    assert type(lucid.models.load(model_folder, "feature-extraction")).__name__ == "Bert"
    with pytest.raises(ConfigError, match="'sparse-encoding' needs a modules.json that is for it"):
        lucid.models.load(goldens.folder("bert/masked_lm"), "sparse-encoding")
    (model_folder / "modules.json").write_text(json.dumps([{"type": f"{NEW}.SparseAutoEncoder", "path": ""}]))
    with pytest.raises(ConfigError, match="begins with SparseAutoEncoder, supported: Transformer"):
        lucid.models.load(model_folder)
