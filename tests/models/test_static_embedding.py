"""Static embeddings, dense and sparse, as sentence-transformers and Model2Vec read them; CLIP as a first module."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.batch import Predictor, TrainingOptions, fine_tune
from lucid.layouts import write_folder
from lucid.models.checkpoints.config import ConfigError
from lucid.models.static_embedding import SparseStaticEncoder, StaticEncoder
from lucid.testing import assert_parity
from tests.batch.rows import write_rows
from tests.models import goldens

KINDS = {"normalized": StaticEncoder, "model2vec": StaticEncoder, "sparse": SparseStaticEncoder}
ST = "sentence_transformers.models"


def source(folder: Path, variant: str) -> Path:
    """A copy of a folder of the goldens, to change."""
    return shutil.copytree(goldens.folder(f"static_embedding/{variant}"), folder / variant)


def modules(folder: Path, *lines: tuple[str, str]) -> Path:
    """The same with another modules.json."""
    (folder / "modules.json").write_text(json.dumps([{"type": f"{ST}.{kind}", "path": path} for kind, path in lines]))
    return folder


def embedded(checkpoint: Path, folder: Path, texts: list[str]) -> list[Any]:
    """The embeddings of texts by an exported folder."""
    write_folder(lucid.models.load(checkpoint), checkpoint, folder, layout="onnxruntime", check=False)
    columns = Predictor(folder)({"text": texts})
    assert list(columns["error"]) == [None] * len(texts)
    return list(columns["embedding"])


@pytest.mark.parametrize("variant", KINDS)
def test_ids_give_what_sentence_transformers_makes_of_them(variant: str) -> None:
    model: Any = lucid.models.load(goldens.folder(f"static_embedding/{variant}"))
    assert type(model) is KINDS[variant]
    for case in goldens.cases(f"static_embedding/{variant}"):
        answer = model(**{name: lucid.tensor(array) for name, array in case.inputs.items()})
        case.close("sentence_embedding", answer, 2e-6)


@pytest.mark.parametrize("variant", KINDS)
def test_exported_it_takes_any_number_of_texts_and_any_length(variant: str) -> None:
    model = lucid.models.load(goldens.folder(f"static_embedding/{variant}"))
    for target in goldens.TARGETS:
        assert_parity(model, target=target)
    shapes = {name: [str(size) for size in spec.shape] for name, spec in model.input_specs().items()}
    assert shapes == {"input_ids": ["N", "L"], "attention_mask": ["N", "L"]}


@pytest.mark.parametrize("variant", ["normalized", "model2vec"])
def test_texts_are_embedded_as_by_sentence_transformers(variant: str, tmp_path: Path) -> None:
    """No special tokens, unknown words as they are, and the length of tokenizer.json, which the last text exceeds."""
    checkpoint = goldens.folder(f"static_embedding/{variant}")
    expected = json.loads((checkpoint / "texts.json").read_text())
    vectors = embedded(checkpoint, tmp_path / "exported", expected["texts"])
    np.testing.assert_allclose(np.stack(vectors), expected["embeddings"], rtol=1e-5, atol=1e-6)


def test_weights_of_queries_are_those_of_sentence_transformers(tmp_path: Path) -> None:
    checkpoint = goldens.folder("static_embedding/sparse")
    expected = json.loads((checkpoint / "texts.json").read_text())
    vectors = embedded(checkpoint, tmp_path / "exported", expected["texts"])
    for row, weights in zip(vectors, np.array(expected["embeddings"]), strict=True):
        np.testing.assert_array_equal(row["indices"], np.flatnonzero(weights))
        np.testing.assert_allclose(row["values"], weights[weights != 0], rtol=1e-6)


def test_without_modules_a_folder_is_read_as_model2vec_reads_it(tmp_path: Path) -> None:
    """Which leaves out unknown words, and scales the mean as its option normalize says."""
    checkpoint = source(tmp_path, "model2vec")
    (checkpoint / "modules.json").unlink()
    expected = json.loads((checkpoint / "texts.json").read_text())
    assert not np.allclose(expected["embeddings"], expected["by_model2vec"], atol=1e-2)
    vectors = embedded(checkpoint, tmp_path / "exported", expected["texts"])
    np.testing.assert_allclose(
        np.stack(vectors), expected["by_model2vec"], rtol=0, atol=5e-4
    )  # which adds up in float16
    states, vector = lucid.models.load(checkpoint).states_and_embedding(input_ids=lucid.tensor([[5, 1, 7]]))  # type: ignore[attr-defined]
    assert states.shape == (1, 3, 8)
    np.testing.assert_allclose(vector.numpy(), lucid.models.load(checkpoint)(lucid.tensor([[5, 7]])).numpy(), rtol=1e-6)  # type: ignore[operator]


def test_model2vec_cuts_texts_off_at_its_own_length(tmp_path: Path) -> None:
    checkpoint = source(tmp_path, "model2vec")
    options = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(options | {"max_length": 3}))
    whole, cut = embedded(checkpoint, tmp_path / "whole", ["The cat sat on the mat.", "the cat sat"])
    assert not np.allclose(whole, cut, atol=1e-2)  # with modules.json, as sentence-transformers
    (checkpoint / "modules.json").unlink()
    whole, cut = embedded(checkpoint, tmp_path / "cut", ["The cat sat on the mat.", "the cat sat"])
    np.testing.assert_array_equal(whole, cut)


def test_a_text_without_tokens_is_zeros() -> None:
    model: Any = lucid.models.load(goldens.folder("static_embedding/normalized"))
    ids, mask = lucid.tensor([[5, 6], [0, 0]]), lucid.tensor([[1, 1], [0, 0]])
    assert model(ids, mask).numpy()[1].tolist() == [0.0] * 8
    sparse: Any = lucid.models.load(goldens.folder("static_embedding/sparse"))
    assert not sparse(ids, mask).numpy()[1].any()


def test_layers_after_the_table_are_read(tmp_path: Path) -> None:
    checkpoint = modules(source(tmp_path, "normalized"), ("StaticEmbedding", ""), ("Dense", "1_Dense"))
    (checkpoint / "1_Dense").mkdir()
    options = {"in_features": 8, "out_features": 2, "activation_function": "torch.nn.modules.linear.Identity"}
    (checkpoint / "1_Dense" / "config.json").write_text(json.dumps(options))
    weight = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)
    lucid.save(checkpoint / "1_Dense" / "model.safetensors", {"linear.weight": weight, "linear.bias": weight[:, 0]})
    table = lucid.load(checkpoint)["embedding.weight"]
    model: Any = lucid.models.load(checkpoint)
    expected = table[[5, 9]].mean(0) @ weight.T + weight[:, 0]
    np.testing.assert_allclose(model(lucid.tensor([[5, 9]])).numpy()[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("variant", KINDS)
def test_a_tokenizer_with_more_tokens_than_the_table_is_an_error(variant: str, tmp_path: Path) -> None:
    """A text with one of them would end a whole job."""
    checkpoint = source(tmp_path, variant)
    tokenizer = json.loads((checkpoint / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["zebra"] = 44
    (checkpoint / "tokenizer.json").write_text(json.dumps(tokenizer))
    expected = (
        r"tokenizer.json: its tokens have ids up to 44, and the model's table has 40 rows, for ids up to 39; give"
    )
    with pytest.raises(ConfigError, match=expected):
        write_folder(lucid.models.load(checkpoint), checkpoint, tmp_path / "out", layout="onnxruntime")
    assert not (tmp_path / "out").exists()


def test_a_table_of_another_name_is_told_the_names_that_are_read(tmp_path: Path) -> None:
    lucid.save(tmp_path / "model.safetensors", {"vectors": np.ones((40, 8), np.float32)})
    with pytest.raises(FileNotFoundError, match=r"no config.json.* named embedding.weight or embeddings .* 'vectors'$"):
        lucid.models.load(tmp_path)


@pytest.mark.parametrize("names", [["1_Dense", "1_Dense"], ["0_Pooling"]], ids=str)
def test_two_layers_of_one_name_are_an_error(names: list[str], tmp_path: Path) -> None:
    """The second would take the place of the first, or of the mean that a table has by itself."""
    checkpoint = modules(source(tmp_path, "normalized"), ("StaticEmbedding", ""), *(("Dense", name) for name in names))
    options = {"in_features": 8, "out_features": 8, "activation_function": "torch.nn.modules.linear.Identity"}
    weight = np.eye(8, dtype=np.float32)
    for name in {*names}:
        (checkpoint / name).mkdir()
        (checkpoint / name / "config.json").write_text(json.dumps(options))
        lucid.save(checkpoint / name / "model.safetensors", {"linear.weight": weight, "linear.bias": weight[0]})
    with pytest.raises(ConfigError, match=rf"two modules have the name '{names[0]}'; give each a folder of its own"):
        lucid.models.load(checkpoint)


@pytest.mark.parametrize("variant", KINDS)
@pytest.mark.parametrize("bits", [None, 8])
def test_what_is_saved_is_read_again(variant: str, bits: int | None, tmp_path: Path) -> None:
    checkpoint = goldens.folder(f"static_embedding/{variant}")
    model: Any = lucid.models.load(checkpoint)
    if bits is not None and variant != "sparse":
        model = lucid.quantize(model, bits, block=16, smallest_table=1)
    lucid.models.save(model, checkpoint, tmp_path)
    again: Any = lucid.models.load(tmp_path)
    ids = lucid.tensor([[5, 6, 1, 7]])
    np.testing.assert_array_equal(again(ids).numpy(), model(ids).numpy())


def test_half_precision_keeps_the_numbers_of_the_table() -> None:
    model = lucid.models.load(goldens.folder("static_embedding/model2vec"), dtype="auto")
    kinds = {name: tensor.dtype for name, tensor in model.state_dict().items()}
    assert kinds == {"embedding.weight": lucid.float16, "mapping": lucid.int64, "weights": lucid.float32}


def test_a_mapping_may_have_any_type_of_integers(tmp_path: Path) -> None:
    checkpoint = source(tmp_path, "model2vec")
    weights = dict(lucid.load(checkpoint))
    before: Any = lucid.models.load(checkpoint)
    lucid.save(checkpoint / "model.safetensors", weights | {"mapping": weights["mapping"].astype(np.uint8)})
    after: Any = lucid.models.load(checkpoint)
    ids = lucid.tensor([[5, 6, 1, 7]])
    np.testing.assert_array_equal(after(ids).numpy(), before(ids).numpy())


@pytest.mark.parametrize(
    ("model", "skipped"),
    [
        ({"vocab": {"[UNK]": 3}, "unk_token": "[UNK]"}, 3),
        ({"vocab": [["<unk>", 0.0]], "unk_id": 0}, 0),
        ({"vocab": {"[UNK]": 3}, "unk_token": ["[UNK]"]}, None),
        ({"vocab": {"[UNK]": 40}, "unk_token": "[UNK]"}, None),
        ({"vocab": {"[UNK]": True}, "unk_token": "[UNK]"}, None),
        ({"vocab": [], "unk_id": 10**30}, None),
        ({"vocab": [], "unk_id": -1}, None),
        ("WordPiece", None),
        ([], None),
        (None, None),
    ],
    ids=str,
)
def test_the_token_of_unknown_words_is_one_of_the_vocabulary(model: Any, skipped: int | None, tmp_path: Path) -> None:
    checkpoint = source(tmp_path, "model2vec")
    (checkpoint / "modules.json").unlink()
    (checkpoint / "tokenizer.json").write_text(json.dumps({"model": model}))
    encoder: Any = lucid.models.load(checkpoint)
    assert encoder.config.skipped == skipped
    assert encoder(lucid.tensor([[5, 6]])).numpy().any()


@pytest.mark.parametrize("length", ["3", True, 0, -1, 1e300])
def test_a_length_of_texts_that_is_no_count_is_an_error(length: object, tmp_path: Path) -> None:
    checkpoint = source(tmp_path, "model2vec")
    (checkpoint / "modules.json").unlink()
    options = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(options | {"max_length": length}))
    with pytest.raises(ConfigError, match=r"option max_length is .*, expected (int|a whole number from 1)"):
        lucid.models.load(checkpoint)


@pytest.mark.parametrize("has_modules", [True, False])
def test_a_trained_table_is_read_as_the_one_it_was_made_of(has_modules: bool, tmp_path: Path) -> None:
    checkpoint = source(tmp_path, "model2vec")
    if not has_modules:
        (checkpoint / "modules.json").unlink()
    rows = write_rows(tmp_path / "rows.jsonl", [{"anchor": word, "positive": "mat"} for word in ("cat", "sat")])
    fine_tune(checkpoint, rows, tmp_path / "out", TrainingOptions(num_train_epochs=1, val_set_size=0))
    before, after = (lucid.models.load(folder) for folder in (checkpoint, tmp_path / "out"))
    assert after.config == before.config
    assert (tmp_path / "out" / "modules.json").exists() == has_modules


@pytest.mark.parametrize("place", [9, -1])
def test_a_mapping_to_rows_that_are_not_there_is_an_error(place: int, tmp_path: Path) -> None:
    checkpoint = source(tmp_path, "model2vec")
    weights = {name: array.copy() for name, array in lucid.load(checkpoint).items()}
    weights["mapping"][3] = place
    lucid.save(checkpoint / "model.safetensors", weights)
    with pytest.raises(ConfigError, match=rf"the mapping next to it has int64 from .*{place}.*expected .* from 0 to 8"):
        lucid.models.load(checkpoint)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("StaticEmbedding", "expected weights that are embedding.weight, or Model2Vec's embeddings, .*; to read the"),
        ("SparseStaticEmbedding", "expected weights that are a weight for each token"),
        ("CLIPModel", "expected a config.json of model_type clip"),
    ],
)
def test_a_first_module_over_another_folder_is_an_error(kind: str, message: str, tmp_path: Path) -> None:
    checkpoint = shutil.copytree(goldens.folder("sentences/cls"), tmp_path / "model")
    with pytest.raises(ConfigError, match=rf"begins with {kind}, and .* a checkpoint of model_type 'bert'; {message}"):
        lucid.models.load(modules(checkpoint, (kind, "")))
    lucid.save(checkpoint / "model.safetensors", {"other": np.zeros(3, np.float32)})
    (checkpoint / "config.json").unlink()
    with pytest.raises(ConfigError, match=rf"begins with {kind}, and .* holds nothing of a known type"):
        lucid.models.load(checkpoint)


def test_a_table_of_words_by_a_path_is_refused_by_its_option(tmp_path: Path) -> None:
    checkpoint = source(tmp_path, "sparse")
    (checkpoint / "config.json").write_text(json.dumps({"frozen": True, "path": "idf.json"}))
    with pytest.raises(ConfigError, match=r"config\.json: not supported here, .*: path = 'idf.json'"):
        lucid.models.load(checkpoint)


def test_the_tables_of_a_router_are_read_by_their_folder(tmp_path: Path) -> None:
    """Queries of inference-free SPLADE: the Router itself is read as the encoder of documents."""
    router = tmp_path / "router"
    router.mkdir()
    query = shutil.copytree(goldens.folder("static_embedding/sparse"), router / "query_0_SparseStaticEmbedding")
    (query / "modules.json").unlink()
    assert type(lucid.models.load(query)) is SparseStaticEncoder
    place = {"types": {query.name: f"{ST}.SparseStaticEmbedding"}, "structure": {"query": [query.name]}}
    (router / "router_config.json").write_text(json.dumps({**place, "parameters": {}}))
    model: Any = lucid.models.load(modules(router, ("Router", "")))
    assert type(model) is SparseStaticEncoder
    (case, *_) = goldens.cases("static_embedding/sparse")
    case.close("sentence_embedding", model(lucid.tensor(case.inputs["input_ids"])), 2e-6)


def test_layouts_whose_runtime_reads_no_file_of_it_are_refused(tmp_path: Path) -> None:
    checkpoint = goldens.folder("static_embedding/normalized")
    model = lucid.models.load(checkpoint)
    with pytest.raises(ValueError, match="computes a StaticEmbedding itself, and reads no ONNX file"):
        write_folder(model, checkpoint, tmp_path / "out", layout="sentence-transformers", check=False)
    with pytest.raises(ValueError, match="optimum reads types of transformers, not static_embedding; use layout"):
        write_folder(model, checkpoint, tmp_path / "out", layout="optimum", check=False)


# CLIP -----------------------------------------------------------------------------------------------------------------


def clip(folder: Path, *more: tuple[str, str]) -> Path:
    """sentence-transformers' CLIP: transformers' checkpoint in the folder of the first module."""
    shutil.copytree(goldens.folder("clip/quick_gelu"), folder / "clip" / "0_CLIPModel")
    return modules(folder / "clip", ("CLIPModel", "0_CLIPModel"), *more)


def test_clip_as_a_first_module_embeds_texts(tmp_path: Path) -> None:
    expected: dict[str, Any] = json.loads((goldens.ROOT / "retrieval.json").read_text())["clip"]
    model: Any = lucid.models.load(clip(tmp_path))
    assert (type(model).__name__, list(model.output_names)) == ("CLIPSentenceEncoder", ["sentence_embedding"])
    inputs = {name: lucid.tensor(expected[name]) for name in ("input_ids", "attention_mask")}
    np.testing.assert_allclose(model(**inputs).numpy(), expected["texts"], rtol=1e-4, atol=1e-5)
    assert_parity(model)


def test_images_of_such_a_clip_are_another_task(tmp_path: Path) -> None:
    expected: dict[str, Any] = json.loads((goldens.ROOT / "retrieval.json").read_text())["clip"]
    model: Any = lucid.models.load(clip(tmp_path), "image-feature-extraction")
    size = model.input_specs()["pixel_values"].shape[1:]
    pixels = np.linspace(-1, 1, int(np.prod(size)), dtype=np.float32).reshape(1, *size)
    np.testing.assert_allclose(model(lucid.tensor(pixels))[0].numpy(), expected["images"], rtol=1e-4, atol=1e-5)


def test_layers_after_clip_are_read(tmp_path: Path) -> None:
    model: Any = lucid.models.load(clip(tmp_path, ("Normalize", "1_Normalize")))
    vector = model(lucid.tensor([[5, 6, 7]])).numpy()[0]
    assert np.linalg.norm(vector) == pytest.approx(1, rel=1e-6)


# First modules that are not read --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kinds", ["BoW Dense", "WordEmbeddings Pooling", "WordEmbeddings LSTM Pooling", "CNN Pooling"])
def test_other_first_modules_are_refused_by_their_class_with_what_computes_them(kinds: str, tmp_path: Path) -> None:
    first, *others = kinds.split()
    lines = [(first, f"0_{first}"), *((kind, f"{place}_{kind}") for place, kind in enumerate(others, 1))]
    supported = "Transformer, StaticEmbedding, SparseStaticEmbedding, CLIPModel"
    remedy = r"its library computes it: SentenceTransformer\(FOLDER\)\.encode\(texts\)"
    with pytest.raises(ConfigError, match=rf"begins with {first}, supported: {supported}; {remedy}"):
        lucid.models.load(modules(tmp_path, *lines))
