"""all-MiniLM-L6-v2 with its real weights against torch and transformers (tools/goldens/minilm.py)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import lucid
from examples.minilm import checkpoint, tokenize
from lucid.export import to_onnx
from lucid.models.bert import Bert, SentenceEncoder
from lucid.runtime import Session
from tests.console import in_process

Array = np.ndarray[Any, Any]
DATA = Path(__file__).parent / "data"
REFERENCE = json.loads((DATA / "minilm_reference.json").read_text())
EXPECTED = lucid.load(DATA / "minilm_reference.safetensors")
INPUTS = {name: EXPECTED[name] for name in ("input_ids", "attention_mask")}


@pytest.fixture(scope="module")
def model() -> SentenceEncoder:
    return SentenceEncoder.from_pretrained(checkpoint())


@pytest.fixture(scope="module")
def session(model: SentenceEncoder) -> Session:
    return Session(to_onnx(model))


def check(embeddings: Array, sentences: slice | list[int] = slice(None)) -> None:
    expected = EXPECTED["embeddings_float64"][sentences]
    cosine = (embeddings * expected).sum(-1) / np.linalg.norm(embeddings, axis=-1) / np.linalg.norm(expected, axis=-1)
    assert (cosine > 0.99999).all()
    np.testing.assert_allclose(embeddings, expected, atol=1e-6)
    similarity = np.array(REFERENCE["similarity"])[sentences][:, sentences]
    np.testing.assert_allclose(embeddings @ embeddings.T, similarity, atol=1e-4)


def test_the_tokens_are_those_of_the_reference() -> None:
    tokens = tokenize(checkpoint(), REFERENCE["sentences"])
    for name, array in tokens.items():
        np.testing.assert_array_equal(array, INPUTS[name])
    assert tokens["attention_mask"].sum(1).tolist() == REFERENCE["lengths"]


def test_eager(model: SentenceEncoder) -> None:
    long = int(np.argmax(REFERENCE["lengths"]))
    short = [index for index in range(len(REFERENCE["lengths"])) if index != long]
    for sentences in (short, [long]):  # separately: padding all of them to the long one takes seconds
        length = max(REFERENCE["lengths"][index] for index in sentences)
        inputs = {name: lucid.tensor(array[sentences, :length]) for name, array in INPUTS.items()}
        check(model(**inputs).numpy(), sentences)


def test_exported(session: Session) -> None:
    check(session.run(INPUTS)["sentence_embedding"])


def test_one_sentence_at_a_time(session: Session) -> None:
    rows = []
    for ids, mask, length in zip(*INPUTS.values(), REFERENCE["lengths"], strict=True):
        rows.append(
            session.run({"input_ids": ids[None, :length], "attention_mask": mask[None, :length]})["sentence_embedding"][
                0
            ]
        )
    check(np.stack(rows))


def test_the_hidden_states(model: SentenceEncoder) -> None:
    for index in REFERENCE["hidden_state_of"]:
        length = REFERENCE["lengths"][index]
        states = Bert.forward(model, lucid.tensor(INPUTS["input_ids"][index : index + 1, :length]))
        np.testing.assert_allclose(states.numpy()[0], EXPECTED[f"last_hidden_state.{index}"], atol=2e-5)


def test_verify_finds_200_flipped_bits_at_random_places(
    model: SentenceEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, random = tmp_path / "minilm.onnx", np.random.default_rng(0)
    to_onnx(model, path=path)
    exported = onnx.load(path)
    tensors = list(exported.graph.initializer)
    arrays = [onnx.numpy_helper.to_array(tensor).copy() for tensor in tensors]
    places = [(index, int(random.integers(arrays[index].size))) for index in range(len(tensors))]
    while len(set(places)) < 200:
        index = int(random.integers(len(tensors)))
        places.append((index, int(random.integers(arrays[index].size))))
    for index, number in set(places):
        width = arrays[index].itemsize
        arrays[index].reshape(-1).view(np.uint8)[width * number + random.integers(width)] ^= 1 << random.integers(8)
    for tensor, array in zip(tensors, arrays, strict=True):
        tensor.raw_data = array.tobytes()
    onnx.save(exported, path)
    start = time.process_time()
    assert in_process(["verify", str(checkpoint()), path, "--json"], monkeypatch) == 1
    assert time.process_time() - start < 60  # some 2 s
    weights = json.loads(capsys.readouterr().out)["weights"]
    assert sum(weight["numbers"] for weight in weights["different"]) == 200
    assert len(weights["different"]) == weights["stored"] == len(tensors)
