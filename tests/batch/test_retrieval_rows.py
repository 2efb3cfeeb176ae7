"""Sparse vectors and a vector for each token, of rows and of requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lucid
from lucid.batch import Predictor
from lucid.batch.rows import result_schema, with_results
from lucid.layouts import write_folder
from tests.chat.checkpoints import tokenizer
from tests.layout_checkpoints import whole
from tests.models.test_retrieval import FIRST, NEW
from tests.serving.servers import served

DENSE = "sentence_transformers.base.modules.dense.Dense"
TEXTS = ["a cat", "so. it is", "interest rates rose"]


def exported(folder: Path, variant: str, kind: str, options: dict[str, Any]) -> Path:
    """The exported folder of a golden with a module after it."""
    source = whole(folder / "checkpoint", variant)
    modules = [{"type": FIRST, "path": ""}, {"type": kind, "path": "1_Module"}]
    (source / "modules.json").write_text(json.dumps(modules))
    (source / "1_Module").mkdir()
    (source / "1_Module" / "config.json").write_text(json.dumps(options))
    if kind == DENSE:
        weight = np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)
        lucid.save(source / "1_Module" / "model.safetensors", {"linear.weight": weight})
    prompts = {"prompts": {"query": "q ", "document": ""}, "default_prompt_name": "document"}
    (source / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    write_folder(lucid.models.load(source), source, folder / "exported", layout="onnxruntime", check=False)
    return folder / "exported"


@pytest.fixture(scope="module")
def splade(tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = {"pooling_strategy": "max"}
    return exported(
        tmp_path_factory.mktemp("splade"), "tasks/distilbert_fill_mask", f"{NEW}.splade_pooling.SpladePooling", options
    )


@pytest.fixture(scope="module")
def colbert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
    options = {"in_features": 16, "out_features": 4, "bias": False, **names}
    return exported(tmp_path_factory.mktemp("colbert"), "bert/base", DENSE, options)


def outputs(folder: Path, text: str) -> Any:
    """What the checkpoint gives for a text alone."""
    output = lucid.models.load(folder.parent / "checkpoint")(lucid.tensor([tokenizer().encode(text).ids]))
    return output.numpy()[0] if isinstance(output, lucid.Tensor) else [part.numpy()[0] for part in output]


def arrow(folder: Path, columns: dict[str, Any]) -> pa.Table:
    """The columns as a job writes them; a row with an error has none."""
    passed = pa.RecordBatch.from_pydict({"text": list(columns["text"])})
    schema = result_schema(passed.schema, Predictor(folder).columns)
    results = {name: columns[name] for name in ("embedding", "error")}
    return pa.Table.from_batches([with_results(passed, schema, results)])


def test_a_sparse_vector_has_the_tokens_of_weight(splade: Path) -> None:
    columns = Predictor(splade)({"text": np.array([*TEXTS, ""])})
    for text, vector in zip(TEXTS, columns["embedding"], strict=False):
        expected = outputs(splade, text)
        assert vector["indices"].tolist() == np.flatnonzero(expected).tolist() and len(vector["indices"]) < len(
            expected
        )
        np.testing.assert_allclose(vector["values"], expected[vector["indices"]], atol=1e-5)
    rows = arrow(splade, columns)["embedding"].to_pylist()
    assert rows[3] is None and rows[0]["indices"] == columns["embedding"][0]["indices"].tolist()


def test_documents_leave_punctuation_out_and_queries_do_not(colbert: Path) -> None:
    documents, queries = (
        Predictor(colbert, prompt=prompt)({"text": np.array([*TEXTS, ""])}) for prompt in (None, "query")
    )
    for text, document, query in zip(TEXTS, documents["embedding"], queries["embedding"], strict=False):
        vectors, kept = outputs(colbert, text)
        np.testing.assert_allclose(document, vectors[kept != 0], atol=1e-5)
        np.testing.assert_allclose(query, outputs(colbert, f"q {text}")[0], atol=1e-5)
    assert len(documents["embedding"][1]) < len(tokenizer().encode(TEXTS[1]).ids), "the full stop"
    rows = arrow(colbert, documents)["embedding"].to_pylist()
    assert rows[3] is None and np.shape(rows[0]) == documents["embedding"][0].shape


def test_requests_get_sparse_and_multiple_vectors(splade: Path, colbert: Path) -> None:
    request = {"model": "exported", "input": TEXTS[:1]}
    for folder in (splade, colbert):
        (expected,) = Predictor(folder)({"text": np.array(TEXTS[:1])})["embedding"]
        with served(folder) as server:
            (one,) = server.ask("POST", "/v1/embeddings", request).json["data"]
            bytes_ = server.ask("POST", "/v1/embeddings", request | {"encoding_format": "base64"})
            text = {"name": "text", "datatype": "BYTES", "shape": [1], "data": TEXTS[:1]}
            tensors = server.ask("POST", "/v2/models/exported/infer", {"inputs": [text]})
        embedding = one["embedding"]
        assert embedding == ({k: v.tolist() for k, v in expected.items()} if folder is splade else expected.tolist())
        assert bytes_.status == 400 and "encoding_format" in bytes_.json["error"]["message"]
        assert tensors.status == 400 and "ask /v1/embeddings, or send input_ids" in str(tensors.json)
