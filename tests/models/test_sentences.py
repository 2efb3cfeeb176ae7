"""Sentence encoders obey modules.json and the configs of its layers; whatever these ask for beyond is an error."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.models.bert import Bert, SentenceEncoder
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.models.parts.sentences import Normalize, Pooling
from lucid.runtime import Session
from tests.models import goldens

MODES = ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]


def written(
    folder: Path, variant: str, change: dict[str, Any] | None = None, file: str = "1_Pooling/config.json"
) -> Path:
    """A golden checkpoint, with other options in one of its files."""
    shutil.copytree(goldens.folder(variant), folder, dirs_exist_ok=True)
    options = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps({**options, **(change or {})}))
    return folder


def listed(folder: Path, *lines: tuple[str, str]) -> Path:
    """The same with another modules.json."""
    written(folder, "sentences/cls")
    (folder / "modules.json").write_text(json.dumps([{"type": kind, "path": path} for kind, path in lines]))
    return folder


def test_a_checkpoint_with_cls_pooling_is_not_embedded_by_the_mean() -> None:
    encoder: Any = lucid.models.load(goldens.folder("sentences/cls"))
    ids, mask = lucid.tensor([[0, 5, 6, 7, 0]]), lucid.tensor([[0, 1, 1, 1, 0]])
    first = Bert.forward(encoder, ids, mask).numpy()[0, 1]
    np.testing.assert_allclose(encoder(ids, mask).numpy()[0], first / np.linalg.norm(first), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("variant", ["cls", "dense", "joined", "last_then_max"])
def test_padding_moves_no_embedding(variant: str) -> None:
    encoder: Any = lucid.models.load(goldens.folder(f"sentences/{variant}"))
    text = [5, 6, 7]
    alone = encoder(lucid.tensor([text]))
    padded = encoder(lucid.tensor([[*text, 0, 0]]), lucid.tensor([[1, 1, 1, 0, 0]]))
    np.testing.assert_allclose(padded.numpy(), alone.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_padding_on_either_side_pools_the_same(mode: str) -> None:
    states = lucid.tensor(np.random.default_rng(0).standard_normal((1, 3, 4)).astype(np.float32))
    pool, padding = Pooling((mode,)), lucid.zeros(1, 2, 4)
    left, right = lucid.cat([padding, states], 1), lucid.cat([states, padding], 1)
    expected = pool(states, None).numpy()
    np.testing.assert_allclose(pool(right, lucid.tensor([[1, 1, 1, 0, 0]])).numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(pool(left, lucid.tensor([[0, 0, 1, 1, 1]])).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", [lucid.float32, lucid.float16, lucid.bfloat16])
@pytest.mark.parametrize("mode", MODES)
def test_a_row_without_tokens_gives_zeros_and_leaves_other_rows_alone(mode: str, dtype: lucid.DType) -> None:
    """sentence-transformers 6.2 gives the same but for max, where it gives -inf and, of length one, NaN."""
    states = lucid.tensor(np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)).astype(dtype)
    pool, length_one = Pooling((mode,)), Normalize()
    mask = lucid.tensor([[1, 1, 1], [0, 0, 0]])
    pooled = pool(states, mask)
    empty = states[1, 0] if mode == "cls" else states[1, 0] * 0
    np.testing.assert_array_equal(pooled.numpy()[1], empty.numpy())
    np.testing.assert_array_equal(pooled.numpy()[0], pool(states[:1], mask[:1]).numpy()[0])
    if mode != "cls":
        np.testing.assert_array_equal(length_one(pooled).numpy()[1], empty.numpy())
    exported = Session(lucid.export.to_onnx(pool, states, mask)).run({"states": states, "attention_mask": mask})
    np.testing.assert_array_equal(exported["output"][1], empty.numpy())


def test_the_tokenizers_segments_are_accepted() -> None:
    encoder: Any = lucid.models.load(goldens.folder("sentences/cls"))
    ids = lucid.tensor([[5, 6, 7]])
    embeddings = encoder(input_ids=ids, attention_mask=ids * 0 + 1, token_type_ids=ids * 0)
    np.testing.assert_allclose(embeddings.numpy(), encoder(ids).numpy(), rtol=1e-5, atol=1e-6)


def test_without_modules_the_embedding_is_the_mean_of_length_one() -> None:
    encoder: Any = lucid.models.load(goldens.folder("bert/base"), "sentence-similarity")
    assert [type(layer).__name__ for layer in encoder.sentence_layers.values()] == ["Pooling", "Normalize"]
    assert encoder.sentence_layers["1_Pooling"].modes == ("mean",)


def test_a_pooling_that_names_no_mode_takes_the_mean(tmp_path: Path) -> None:
    source = written(tmp_path, "sentences/cls", {"pooling_mode_cls_token": False})
    model: Any = lucid.models.load(source)
    assert model.sentence_layers["1_Pooling"].modes == ("mean",)


def test_a_cross_encoders_modules_have_no_pooling_and_its_head_decides(tmp_path: Path) -> None:
    source = shutil.copytree(goldens.folder("tasks/bert_reranking"), tmp_path / "model")
    line = {"type": "sentence_transformers.base.modules.transformer.Transformer", "path": ""}
    (source / "modules.json").write_text(json.dumps([line]))
    assert type(lucid.models.load(source)).__name__ == "BertForSequenceClassification"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"include_prompt": False}, "option include_prompt is False, supported: True"),
        ({"pooling_mode": "median"}, "option pooling_mode is 'median', supported: cls, max, mean,"),
        ({"pooling_mode": ["mean", 3]}, r"option pooling_mode is \['mean', 3\], supported: cls"),
        ({"pooling_mode": []}, "supported: cls"),
        (
            {"pooling_mode_median": True},
            "not supported here, so the results could be wrong: pooling_mode_median = True",
        ),
    ],
    ids=str,
)
def test_a_pooling_that_is_not_understood_is_an_error(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=r"1_Pooling.config\.json: .*" + message):
        lucid.models.load(written(tmp_path, "sentences/cls", change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activation_function": "my.Act"}, "option activation_function is 'my.Act', supported: torch"),
        ({"use_residual": True}, "option use_residual is True, supported: False"),
        ({"module_input_name": "token_embeddings"}, "supported: 'sentence_embedding'"),
        ({"in_features": -1}, "option in_features is -1, expected a whole number"),
    ],
    ids=str,
)
def test_a_dense_layer_that_is_not_understood_is_an_error(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=r"2_Dense.config\.json: .*" + message):
        lucid.models.load(written(tmp_path, "sentences/dense", change, "2_Dense/config.json"))


def test_a_norm_of_other_vectors_is_an_error(tmp_path: Path) -> None:
    source = written(tmp_path, "sentences/cls")
    (source / "2_Normalize").mkdir()
    (source / "2_Normalize" / "config.json").write_text(json.dumps({"module_input_name": "token_embeddings"}))
    with pytest.raises(
        ConfigError, match=r"2_Normalize.config\.json: .* is 'token_embeddings', supported: 'sentence_emb"
    ):
        lucid.models.load(source)


def test_a_bias_that_the_config_denies_is_an_error(tmp_path: Path) -> None:
    source = written(tmp_path, "sentences/dense", {"bias": False}, "2_Dense/config.json")
    with pytest.raises(
        ConfigError, match=r"2_Dense.config\.json: option bias is False, but the weights .* linear\.bias"
    ):
        lucid.models.load(source)


def test_a_dense_layer_of_another_size_or_without_weights_is_an_error(tmp_path: Path) -> None:
    source = written(tmp_path, "sentences/dense", {"out_features": 7}, "2_Dense/config.json")
    with pytest.raises(KeyError, match=r"sentence_layers\.2_Dense\.linear\.weight has shape"):
        lucid.models.load(source)
    (source / "2_Dense" / "model.safetensors").unlink()
    with pytest.raises(KeyError, match=r"missing: .*sentence_layers\.2_Dense\.linear\.weight"):
        lucid.models.load(source)


ST, IDENTITY = "sentence_transformers.models", "torch.nn.modules.linear.Identity"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            [(f"{ST}.Transformer", ""), (f"{ST}.Pooling", "1_Pooling"), (f"{ST}.LSTM", "2_LSTM")],
            "lists Transformer, Pooling, LSTM; supported: Transformer, Pooling, and then any of Dense and Normalize",
        ),
        ([(f"{ST}.Transformer", ""), (f"{ST}.Normalize", "1_Normalize")], "lists Transformer, Normalize; supported"),
        ([(f"{ST}.Transformer", ""), (f"{ST}.Pooling", "")], "path of 'Pooling' is '', expected the name of a folder"),
        (
            [(f"{ST}.BoW", "")],
            "begins with BoW, supported: .* alone, give the task",
        ),
        (
            [(f"{ST}.BoW", "1_Pooling")],
            "supported: Transformer, .*; to read 1_Pooling alone, give the folder",
        ),
        ([(f"{ST}.BoW", "0_BoW"), (f"{ST}.Dense", "1_Dense")], "begins with BoW, supported: Transformer"),
        (
            [("my_models.Pooling", "1_Pooling")],
            "'my_models.Pooling', which is not one of .*; to read an encoder",
        ),
        ([(f"{ST}.Transformer", "../other")], r"path of 'Transformer' is '\.\./other', expected the name of a folder"),
    ],
)
def test_modules_that_are_not_understood_are_errors(tmp_path: Path, lines: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"modules\.json: .*{message}"):
        lucid.models.load(listed(tmp_path, *lines))


def test_an_encoder_of_t5_gives_sentence_embeddings(tmp_path: Path) -> None:
    """As sentence-t5 and GTR: a T5EncoderModel, the mean, a Dense without a bias, and lengths of 1."""
    source = shutil.copytree(goldens.folder("t5/v1_1"), tmp_path / "model")
    options = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**options, "architectures": ["T5EncoderModel"]}))
    stored = {key: a for key, a in lucid.load(source).items() if key.startswith(("shared.", "encoder."))}
    lucid.save(source / "model.safetensors", stored)
    ids, mask = lucid.tensor([[5, 6, 7], [8, 1, 0]]), lucid.tensor([[1, 1, 1], [1, 1, 0]])
    states: Any = lucid.models.load(source)
    assert type(states).__name__ == "T5EncoderStates"
    listed_modules = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Dense", "2_Dense"), ("Normalize", "3_Normalize")]
    lines = [{"type": f"{ST}.{kind}", "path": path} for kind, path in listed_modules]
    (source / "modules.json").write_text(json.dumps(lines))
    shutil.copytree(goldens.folder("sentences/cls") / "1_Pooling", source / "1_Pooling")
    (source / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    (source / "2_Dense").mkdir()
    dense = {"in_features": 16, "out_features": 8, "bias": False, "activation_function": IDENTITY}
    (source / "2_Dense" / "config.json").write_text(json.dumps(dense))
    weight = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
    lucid.save(source / "2_Dense" / "model.safetensors", {"linear.weight": weight})
    encoder: Any = lucid.models.load(source)
    x, kept = states(ids, mask).numpy(), mask.numpy()[..., None]
    expected = ((x * kept).sum(1) / kept.sum(1)) @ weight.T
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(encoder(ids, mask).numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("content", ["{}", "[]", "[3]", '[{"type": 3, "path": ""}]', "[", "null"])
def test_a_modules_json_of_another_form_is_an_error(tmp_path: Path, content: str) -> None:
    written(tmp_path, "sentences/cls")
    (tmp_path / "modules.json").write_text(content)
    with pytest.raises(ConfigError, match=r"modules\.json"):
        lucid.models.load(tmp_path)


def test_a_layer_without_its_config_is_an_error(tmp_path: Path) -> None:
    written(tmp_path, "sentences/cls")
    (tmp_path / "1_Pooling" / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match="1_Pooling"):
        lucid.models.load(tmp_path)


def test_modules_of_an_architecture_without_sentence_encoders_are_an_error(tmp_path: Path) -> None:
    source = shutil.copytree(goldens.folder("gpt2/base"), tmp_path / "model")
    shutil.copytree(goldens.folder("sentences/cls") / "1_Pooling", source / "1_Pooling")
    shutil.copy(goldens.folder("sentences/cls") / "modules.json", source)
    with pytest.raises(ConfigError, match="'sentence-similarity' is not known for model_type gpt2; its modules.json"):
        lucid.models.load(source)
    assert type(lucid.models.load(source, "text-generation")).__name__ == "GPT2"


@pytest.mark.parametrize("variant", ["sentences/dense", "sentences/last_then_max"])
def test_what_is_saved_is_read_again_with_its_layers(tmp_path: Path, variant: str) -> None:
    source = goldens.folder(variant)
    model: Any = lucid.quantize(SentenceEncoder.from_pretrained(source), 8, block=16)
    lucid.models.save(model, source, tmp_path)
    again: Any = lucid.models.load(tmp_path)
    ids = lucid.tensor([[5, 6, 7]])
    np.testing.assert_array_equal(again(ids).numpy(), model(ids).numpy())
    assert type(lucid.models.load(tmp_path, "feature-extraction")) is Bert


def test_all_layers_of_an_encoder_in_half_precision_are_in_half_precision() -> None:
    model = lucid.models.load(goldens.folder("sentences/dense"), dtype=lucid.float16)
    assert {p.dtype for p in model.parameters()} == {lucid.float16}
