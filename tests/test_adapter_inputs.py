"""Adapters as inputs: with each adapter, one file computes what the model with that adapter merged computes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pyarrow.parquet as pq
import pytest

import lucid
from lucid.export import to_onnx
from lucid.layouts import write_adapter, write_folder
from lucid.models import with_adapter_inputs
from lucid.runtime import ModelError, Session
from lucid.testing import assert_parity, bisect
from lucid.testing.part_parity import part_parity
from tests.chat.checkpoints import checkpoint
from tests.console import in_process
from tests.models import goldens
from tests.models.test_adapters import FOLDER, LLAMA, Q, numbers, pair, write
from tests.serving.servers import served

IDS = np.array([[5, 2, 9, 31], [7, 7, 1, 0]])
SEVERAL = [FOLDER / "patterns", FOLDER / "one_layer"]


def exported(model: Any, path: Path, **options: Any) -> Session:
    to_onnx(model, path=path, **options)
    return Session(path)


def output(session: Session, adapter: Path | None = None, **more: Any) -> Any:
    known: dict[str, Any] = {"input_ids": IDS, "attention_mask": np.ones_like(IDS), "token_type_ids": 0 * IDS}
    inputs = {name: known[name] for name in session.inputs}
    return next(iter(session.run({**inputs, **more}, adapter).values()))


def merged(base: Path, adapters: Any) -> Any:
    output = lucid.models.load(base, adapters=adapters)(lucid.tensor(IDS))
    return (output if isinstance(output, lucid.Tensor) else output[0]).numpy()


def test_one_file_serves_a_model_and_its_adapters(tmp_path: Path) -> None:
    model = with_adapter_inputs(lucid.models.load(LLAMA), SEVERAL)
    session = exported(model, tmp_path / "model.onnx")
    np.testing.assert_allclose(output(session), merged(LLAMA, None), atol=1e-5)
    for adapter in SEVERAL:
        file = tmp_path / f"{adapter.name}.onnx_adapter"
        write_adapter(model, adapter, file)
        np.testing.assert_allclose(output(session, file), merged(LLAMA, adapter), atol=2e-5)
    np.testing.assert_allclose(output(session), merged(LLAMA, None), atol=1e-5)


def test_a_and_b_are_inputs_with_defaults_and_the_others_stay_as_they_are(tmp_path: Path) -> None:
    model = with_adapter_inputs(lucid.models.load(LLAMA), FOLDER / "one_layer")
    session = exported(model, tmp_path / "model.onnx")
    assert session.inputs == exported(lucid.models.load(LLAMA), tmp_path / "base.onnx").inputs
    layers = ["model.layers.1.self_attn.v_proj", "model.layers.1.self_attn.o_proj"]
    assert list(session.optional) == [f"{layer}.lora_{part}.weight" for layer in layers for part in "AB"]
    assert [shape for _, shape in session.optional.values()] == [(24, "rank"), ("rank", 16), (32, "rank"), ("rank", 24)]
    a, b = numbers(24, 5), numbers(5, 16)
    sizes = {name: [5 if size == "rank" else size for size in shape] for name, (_, shape) in session.optional.items()}
    zeros = {name: np.zeros(shape, np.float32) for name, shape in sizes.items()}
    weights = {**zeros, f"{layers[0]}.lora_A.weight": a, f"{layers[0]}.lora_B.weight": b}
    tensors = {f"{layers[0]}.lora_A.weight": a.T.copy(), f"{layers[0]}.lora_B.weight": b.T.copy()}
    adapter = write(tmp_path / "a", tensors, r=5, lora_alpha=5)
    np.testing.assert_allclose(output(session, **weights), merged(LLAMA, adapter), atol=2e-5)
    with pytest.raises(ValueError, match=r"has size 5 at axis 0, expected rank = 4, as in"):
        output(session, **{**weights, f"{layers[0]}.lora_A.weight": numbers(24, 4)})


@pytest.mark.parametrize("options", [{}, {"cache": "growing"}, {"cache": "fixed", "capacity": 9}])
def test_every_part_takes_them_and_agrees_with_numpy(tmp_path: Path, options: Any) -> None:
    model = with_adapter_inputs(lucid.models.load(LLAMA), FOLDER / "patterns")
    session = exported(model, tmp_path / "model.onnx", **options)
    assert len(session.optional) == 28
    if not options:
        assert assert_parity(model).passed and bisect(model) is None
        return
    report = part_parity(model.part(options["cache"], options.get("capacity")), tmp_path / "model.onnx")
    assert report.passed and report.weights is not None and not report.weights.damaged


def test_a_quantized_model_takes_adapters(tmp_path: Path) -> None:
    small = lucid.quantize(lucid.models.load(LLAMA), 8, block=16)
    model = with_adapter_inputs(small, FOLDER / "one_layer")
    session = exported(model, tmp_path / "model.onnx")
    write_adapter(model, FOLDER / "one_layer", tmp_path / "a.onnx_adapter")
    for file, exact in (
        (tmp_path / "a.onnx_adapter", merged(LLAMA, FOLDER / "one_layer")),
        (None, small(lucid.tensor(IDS)).numpy()),
    ):
        assert np.abs(output(session, file) - exact).max() < 0.05 * np.abs(exact).max()  # inputs are rounded too


def test_layers_of_gpt2_and_tables_take_them(tmp_path: Path) -> None:
    base = goldens.folder("gpt2/base")
    width, outputs = lucid.load(base)["transformer.h.0.attn.c_attn.weight"].shape
    layers = pair("transformer.h.0.attn.c_attn", width, outputs) | pair("transformer.h.1.attn.c_proj", width, width)
    bert, table = goldens.folder("bert/base"), "embeddings.word_embeddings"
    rows, columns = lucid.load(bert)[f"{table}.weight"].shape
    vectors = {f"{table}.lora_embedding_A": numbers(2, rows), f"{table}.lora_embedding_B": numbers(columns, 2)}
    for source, tensors in ((base, layers), (bert, vectors)):
        adapter = write(tmp_path / "a", tensors)
        model = with_adapter_inputs(lucid.models.load(source), adapter)
        write_adapter(model, adapter, tmp_path / "a.onnx_adapter")
        session = exported(model, tmp_path / "model.onnx")
        np.testing.assert_allclose(output(session), merged(source, None), atol=2e-5)
        np.testing.assert_allclose(output(session, tmp_path / "a.onnx_adapter"), merged(source, adapter), atol=5e-5)


def test_a_table_that_is_saved_with_its_adapter_replaces_nothing(tmp_path: Path) -> None:
    """PEFT saves the table of an adapter of embeddings as well."""
    source, table = goldens.folder("bert/base"), "embeddings.word_embeddings"
    stored = lucid.load(source)[f"{table}.weight"]
    rows, columns = stored.shape
    tensors = {f"{table}.lora_embedding_A": numbers(2, rows), f"{table}.lora_embedding_B": numbers(columns, 2)}
    adapter = write(tmp_path / "a", {**tensors, f"{table}.base_layer.weight": np.asarray(stored)})
    model = with_adapter_inputs(lucid.models.load(source), adapter)
    write_adapter(model, adapter, tmp_path / "a.onnx_adapter")
    logits = output(exported(model, tmp_path / "model.onnx"), tmp_path / "a.onnx_adapter")
    np.testing.assert_allclose(logits, merged(source, adapter), atol=5e-5)
    changed = write(tmp_path / "b", {**tensors, f"{table}.base_layer.weight": np.asarray(stored) + 1})
    with pytest.raises(lucid.WeightsError, match="has a weight in the place of 'embeddings.word_embeddings.weight'"):
        with_adapter_inputs(lucid.models.load(source), changed)


def test_a_weight_multiplies_what_an_adapter_adds(tmp_path: Path) -> None:
    model = with_adapter_inputs(lucid.models.load(LLAMA), {FOLDER / "one_layer": 0.5})
    write_adapter(model, FOLDER / "one_layer", tmp_path / "a.onnx_adapter")
    logits = output(exported(model, tmp_path / "model.onnx"), tmp_path / "a.onnx_adapter")
    np.testing.assert_allclose(logits, merged(LLAMA, {FOLDER / "one_layer": 0.5}), atol=2e-5)


@pytest.mark.parametrize("cache", ["growing", "fixed"])
def test_a_session_has_an_adapter_of_its_own_for_all_its_runs(tmp_path: Path, cache: Any) -> None:
    adapter, file = FOLDER / "patterns", tmp_path / "a.onnx_adapter"
    model = with_adapter_inputs(lucid.models.load(LLAMA), adapter)
    to_onnx(model, path=tmp_path / "model.onnx", cache=cache)
    write_adapter(model, adapter, file)
    session, prompt = Session(tmp_path / "model.onnx", adapter=file), [[1, 2, 3]]

    def text(decoder: Any) -> list[int]:
        (ids,) = lucid.generation.Generator(decoder).generate(prompt, max_new_tokens=6)
        return [int(token) for token in ids]

    with_it, without = (text(lucid.models.load(LLAMA, adapters=used)) for used in (adapter, None))
    assert with_it != without and text(session) == with_it
    session.adapter = None
    assert text(session) == without
    with pytest.raises(ModelError, match=r"expected a file of an adapter"):
        Session(tmp_path / "model.onnx", adapter=adapter / "adapter_config.json")


@pytest.mark.parametrize("cache", ["growing", "fixed"])
def test_an_engine_keeps_what_it_has_read_for_the_adapter_that_read_it(tmp_path: Path, cache: Any) -> None:
    adapter, file = FOLDER / "patterns", tmp_path / "a.onnx_adapter"
    model = with_adapter_inputs(lucid.models.load(LLAMA), adapter)
    to_onnx(model, path=tmp_path / "model.onnx", cache=cache)
    write_adapter(model, adapter, file)
    session, prompt = Session(tmp_path / "model.onnx", threads=1), [1, 2, 3, 4, 5, 6]
    expected = {
        used: lucid.generation.Generator(lucid.models.load(LLAMA, adapters=used and adapter))
        .generate(prompt, max_new_tokens=6)[0]
        .tolist()
        for used in (None, file)
    }
    engine = lucid.generation.Engine(session, slots=3)
    kept = []
    for session.adapter in (None, file, file, None):
        request = engine.submit(prompt, max_new_tokens=6)
        assert list(request) == expected[session.adapter]
        kept.append(request.kept)
    assert kept == [0, 0, 5, 5]
    changed = engine.submit(prompt, max_new_tokens=6)
    engine.step()
    engine.step()
    session.adapter = file  # in the middle: nobody keeps what both have read
    list(changed)
    for session.adapter in (None, file):
        assert list(engine.submit(prompt, max_new_tokens=6)) == expected[session.adapter]


def test_exported_folders_are_asked_and_served_with_an_adapter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, adapter, folder = checkpoint(tmp_path / "source"), FOLDER / "patterns", tmp_path / "made"
    model: Any = with_adapter_inputs(lucid.models.load(source), adapter)
    write_folder(model, source, folder, layout="onnxruntime", check=False)

    def answer(path: Path, *adapters: str) -> str:
        options = [text for each in adapters for text in ("--adapter", each)]
        code = in_process(["generate", path, "ab", "-n", "6", "--json", *options], monkeypatch)
        printed = capsys.readouterr()
        return str(json.loads(printed.out)["ids"]) if code == 0 else printed.err

    expected, file = answer(source, str(adapter)), str(folder / "patterns.onnx_adapter")
    assert answer(folder, file) == expected != answer(folder)
    assert "is an exported model, into which no adapter is merged; give one file" in answer(folder, str(adapter))
    (tmp_path / "rows.csv").write_text("text\nab\n")
    for name, adapter_options in (("with", ["--adapter", file]), ("without", [])):
        options = ["-n", "6", "-o", tmp_path / name, *adapter_options]
        assert in_process(["map", folder, tmp_path / "rows.csv", *options], monkeypatch) == 0
    capsys.readouterr()
    rows = [pq.read_table(tmp_path / name)["answer"].to_pylist() for name in ("with", "without")]
    words = lucid.generation.chat.load_tokenizer(folder)
    assert rows[0] == [words.decode(json.loads(expected))] != rows[1]
    message = {"model": "made", "messages": [{"role": "user", "content": "ab"}], "max_tokens": 6, "temperature": 0}
    replies: list[Any] = []
    for adapter_file in (file, None):
        with served(folder, adapter=adapter_file) as server:
            replies.append(server.ask("POST", "/v1/chat/completions", message).json["choices"])
    assert replies[0] != replies[1]


def test_half_precision_and_compiled_models_work(tmp_path: Path) -> None:
    model = with_adapter_inputs(lucid.models.load(LLAMA), FOLDER / "one_layer")
    to_onnx(model, path=tmp_path / "half.onnx", dtype="float16", keep_io_types=False)
    file = onnx.load(tmp_path / "half.onnx")
    kinds = {tensor.name: tensor.data_type for tensor in file.graph.initializer}
    assert kinds["model.layers.1.self_attn.v_proj.lora_A.weight"] == onnx.TensorProto.FLOAT16
    np.testing.assert_allclose(lucid.compile(model)(lucid.tensor(IDS)).numpy(), merged(LLAMA, None), atol=1e-5)


@pytest.mark.parametrize(
    ("adapter", "message"),
    [
        ("dora", "has DoRA's lengths of rows, which can only be merged"),
        ("saved", "has a weight in the place of 'lm_head.weight', which can only be merged"),
        ("whisper", "is no layer of this Llama that takes adapters when it runs"),
    ],
)
def test_what_can_only_be_merged_is_refused(adapter: str, message: str) -> None:
    with pytest.raises(lucid.WeightsError) as caught:
        with_adapter_inputs(lucid.models.load(LLAMA), FOLDER / adapter)
    assert message in str(caught.value)


def test_adapters_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    base = lucid.models.load(LLAMA)
    with pytest.raises(lucid.WeightsError, match=r"has lora_A \[2, 16\] and lora_B \[32, 2\], expected \(r, 24\) and"):
        with_adapter_inputs(base, write(tmp_path / "a", pair(Q, inputs=16)))
    table = "model.embed_tokens"
    tensors = {f"{table}.lora_embedding_A": numbers(2, 40), f"{table}.lora_embedding_B": numbers(24, 2)}
    with pytest.raises(lucid.WeightsError, match=r"whose weight is also lm_head.weight"):
        with_adapter_inputs(base, write(tmp_path / "a", tensors))
    model = with_adapter_inputs(base, FOLDER / "one_layer")
    with pytest.raises(lucid.WeightsError, match=r"q_proj' takes no adapter in this model; give this adapter"):
        write_adapter(model, write(tmp_path / "a", pair(Q)), tmp_path / "a.onnx_adapter")
    assert not (tmp_path / "a.onnx_adapter").exists()


def test_a_file_that_is_no_adapter_of_the_model_is_refused(tmp_path: Path) -> None:
    model = with_adapter_inputs(lucid.models.load(LLAMA), SEVERAL)
    session = exported(with_adapter_inputs(lucid.models.load(LLAMA), FOLDER / "one_layer"), tmp_path / "model.onnx")
    file = tmp_path / "a.onnx_adapter"
    write_adapter(model, FOLDER / "patterns", file)
    with pytest.raises(ModelError, match=r"down_proj.lora_A.weight, .*which the model does not take"):
        output(session, file)
    file.write_bytes(b"version https://git-lfs.github.com/spec/v1")
    with pytest.raises(ModelError, match=r"expected a file of an adapter, as lucid.layouts.write_adapter writes"):
        output(session, file)
    with pytest.raises(FileNotFoundError):
        output(session, tmp_path / "missing")


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    first, second = (write(tmp_path / name, pair("model.layers.1.self_attn.v_proj", 24, 16)) for name in "ab")
    model = with_adapter_inputs(lucid.models.load(LLAMA), [first, second])
    session, file = exported(model, tmp_path / "model.onnx"), tmp_path / "a.onnx_adapter"
    for number, adapter in enumerate((first, second)):
        write_adapter(model, adapter, file)
        os.utime(file, ns=(number, number))
        np.testing.assert_allclose(output(session, file), merged(LLAMA, adapter), atol=2e-5)
