"""models/llama.py: what decoders tell of texts, at their last token. Goldens are in tests/models/zoo.py."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lucid
from lucid import Tensor
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.models.llama import LlamaForSequenceClassification, LlamaSentenceEncoder, LlamaStates
from tests.models import goldens


@pytest.mark.parametrize(
    ("variant", "architecture", "expected"),
    [
        ("qwen3/base", "Qwen3ForCausalLM", "Llama"),
        ("qwen3/base", "Qwen3Model", "LlamaStates"),
        ("tasks/llama_text_classification", "LlamaForSequenceClassification", "LlamaForSequenceClassification"),
    ],
)
def test_the_architecture_says_what_a_checkpoint_is_for(
    tmp_path: Path, variant: str, architecture: str, expected: str
) -> None:
    assert type(lucid.models.load(goldens.copied(variant, tmp_path, architectures=[architecture]))).__name__ == expected


def test_states_of_a_checkpoint_that_writes_are_those_before_its_output_layer() -> None:
    states = lucid.models.load(goldens.folder("llama/llama3"), "feature-extraction")
    for case in goldens.cases("llama/llama3"):
        output = states(**{name: Tensor(array) for name, array in case.inputs.items()})
        case.close("last_hidden_state", output, rtol=1e-5)


def test_embeddings_are_those_of_the_layers_that_modules_json_lists(tmp_path: Path) -> None:
    """As in Qwen3-Embedding: the last token, with padding on either side; without a modules.json it is the same."""
    folder = goldens.copied("tasks/qwen3_feature_extraction", tmp_path, architectures=["Qwen3ForCausalLM"])
    kinds = ("models.Transformer", ""), ("models.Pooling", "1_Pooling"), ("models.Normalize", "2_Normalize")
    modules = [
        {"idx": i, "path": path, "type": f"sentence_transformers.{kind}"} for i, (kind, path) in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 24, "pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    encoder = lucid.models.load(folder)
    assert isinstance(encoder, LlamaSentenceEncoder)
    last = LlamaStates.forward(encoder, lucid.tensor([[5, 6, 7]])).numpy()[0, -1]
    ids, mask = lucid.tensor([[5, 6, 7, 0, 0]]), lucid.tensor([[1, 1, 1, 0, 0]])
    np.testing.assert_allclose(encoder(ids, mask).numpy()[0], last / np.linalg.norm(last), rtol=1e-5, atol=1e-6)
    (folder / "modules.json").unlink()
    plain = lucid.models.load(folder, "sentence-similarity")
    np.testing.assert_array_equal(plain(ids, mask).numpy(), encoder(ids, mask).numpy())


def test_without_a_padding_token_the_mask_or_else_the_last_place_decides() -> None:
    model = LlamaForSequenceClassification.from_pretrained(goldens.folder("tasks/llama_text_classification"))
    ids = lucid.tensor([[5, 6, 0]])
    assert model.last_places(ids).tolist() == [1]  # type: ignore[union-attr]
    padded = model(lucid.tensor([[5, 6]])).numpy()
    np.testing.assert_allclose(model(ids).numpy(), padded, rtol=1e-5, atol=1e-6)
    model.config = replace(model.config, pad_token_id=None)
    assert abs(model(ids).numpy() - padded).max() > 1e-3
    for kept, place in (([[1, 1, 0]], 1), ([[0, 1, 1]], 2)):
        assert model.last_places(ids, lucid.tensor(kept)).tolist() == [place]  # type: ignore[union-attr]
    np.testing.assert_allclose(model(ids, lucid.tensor([[1, 1, 0]])).numpy(), padded, rtol=1e-5, atol=1e-6)


def test_labels_that_do_not_fit_the_task_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"score\.weight has 3 labels, expected 1"):
        lucid.models.load(goldens.folder("tasks/llama_text_classification"), "reranking")
    with pytest.raises(
        ConfigError, match="has no weights for task 'text-classification'; .*: text-generation, feature-e"
    ):
        lucid.models.load(goldens.folder("qwen3/base"), "text-classification")


def test_a_classifier_of_texts_does_not_drop_the_bias_of_one_of_tokens(tmp_path: Path) -> None:
    source = goldens.copied("tasks/llama_text_classification", tmp_path, architectures=["LlamaForTokenClassification"])
    stored = dict(lucid.load(source))
    lucid.save(source / "model.safetensors", {**stored, "score.bias": np.ones(3, np.float32)})
    assert type(lucid.models.load(source)).__name__ == "LlamaForTokenClassification"
    with pytest.raises(ConfigError, match="no weights for task 'text-classification'; .*: feature-extraction, "):
        lucid.models.load(source, "text-classification")
    with pytest.raises(KeyError, match=r"unexpected: score\.bias"):
        LlamaForSequenceClassification.from_pretrained(source)
