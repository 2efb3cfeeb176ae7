"""LoRA adapters: the weights that PEFT merges, where a base model is found, and what is refused by its name."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.models.checkpoints.adapters import AdaptedWeights
from lucid.models.checkpoints.families import MODEL_TYPES
from lucid.models.checkpoints.pretrained import ADAPTERS, ConfigError, _read_options
from lucid.models.checkpoints.quantized_weights import as_array
from tests.models import goldens

FOLDER = goldens.ROOT / "adapters"
LLAMA = goldens.folder("llama/llama3")
Q = "model.layers.0.self_attn.q_proj"
RNG = np.random.default_rng(5)


def base_of(name: str) -> Path:
    """The golden checkpoint that a golden adapter names."""
    path = FOLDER / name / "adapter_config.json"
    return goldens.folder(json.loads(path.read_text())["base_model_name_or_path"])


def base_and_adapters(name: str) -> tuple[Path, dict[Path, float]]:
    """The base model of a golden, and its adapters."""
    listed = FOLDER / name / "adapters.json"
    if not listed.exists():
        return base_of(name), {FOLDER / name: 1.0}
    weights = json.loads(listed.read_text())
    return base_of(next(iter(weights))), {FOLDER / other: weight for other, weight in weights.items()}


def write(folder: Path, tensors: Mapping[str, Any], base: Path | str = "org/base", **options: Any) -> Path:
    """An adapter of rank 2 unless the options say otherwise."""
    folder.mkdir(exist_ok=True, parents=True)
    config = {"peft_type": "LORA", "base_model_name_or_path": str(base), "r": 2, "lora_alpha": 4, **options}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    lucid.save(folder / "adapter_model.safetensors", {f"base_model.model.{key}": x for key, x in tensors.items()})
    return folder


def numbers(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def pair(layer: str, inputs: int = 24, outputs: int = 32, rank: int = 2) -> dict[str, Any]:
    return {f"{layer}.lora_A.weight": numbers(rank, inputs), f"{layer}.lora_B.weight": numbers(outputs, rank)}


def weights(base: Path, adapters: Any, rounded: bool = False) -> Any:
    return _read_options(base, tuple(MODEL_TYPES), (), adapters, rounded).weights


@pytest.mark.parametrize(
    ("variant", "newer", "stored"),
    [
        ("vit/base", "layers.0.attention.q_proj", "encoder.layer.0.attention.attention.query"),
        ("vit/base", "layers.0.mlp.fc1", "encoder.layer.0.intermediate.dense"),
        ("deit/base", "layers.1.attention.o_proj", "encoder.layer.1.attention.output.dense"),
        ("dinov2/base", "encoder.layer.0.attention.v_proj", "encoder.layer.0.attention.attention.value"),
        ("dinov2_with_registers/base", "encoder.layer.0.attention.k_proj", "encoder.layer.0.attention.attention.key"),
        ("swin/base", "encoder.layers.0.blocks.0.mlp.fc2", "encoder.layers.0.blocks.0.output.dense"),
    ],
)
def test_layers_have_their_names_of_recent_releases_of_transformers(
    variant: str, newer: str, stored: str, tmp_path: Path
) -> None:
    base = goldens.folder(variant)
    before = lucid.load(base)[f"{stored}.weight"]
    adapter = write(tmp_path, pair(newer, before.shape[1], before.shape[0]))
    merged = weights(base, adapter)[f"{stored}.weight"]
    a, b = lucid.load(adapter / "adapter_model.safetensors").values()
    np.testing.assert_allclose(merged, before + 2 * b @ a, rtol=1e-5, atol=1e-6)


# As PEFT merges -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.iterdir()))
def test_merged_weights_are_those_of_peft(name: str) -> None:
    base, adapters = base_and_adapters(name)
    merged, before = weights(base, adapters, rounded=True), lucid.load(base)
    expected = lucid.load(FOLDER / name / "merged.safetensors")
    names = {key if key in merged else key.partition(".")[2]: array for key, array in expected.items()}
    assert names.keys() == merged.changes.keys()
    for key, array in names.items():
        weight = as_array(merged[key])
        assert weight.dtype == array.dtype
        error = np.abs(np.float32(weight) - np.float32(array)).max() / np.abs(np.float32(array)).max()
        assert error <= (2e-7 if "dora" in name or name in ("bert", "vit") else 0), (key, error)
    for key in merged.keys() & before.keys() - names.keys():
        assert np.array_equal(as_array(merged[key]), before[key])
    lucid.models.load(base, adapters=adapters)


def test_a_base_in_half_precision_is_rounded_only_where_its_types_are_kept() -> None:
    base, adapters = base_and_adapters("bfloat16")
    tensors = lucid.load(FOLDER / "bfloat16" / "adapter_model.safetensors")
    a, b = (tensors[f"base_model.model.{Q}.lora_{part}.weight"] for part in "AB")
    exact = np.float32(lucid.load(base)[f"{Q}.weight"]) + np.float32(8 / 4) * (b @ a)
    model = lucid.models.load(base, adapters=adapters)
    np.testing.assert_array_equal(model.state_dict()[f"{Q}.weight"].numpy(), exact)
    kept = lucid.models.load(base, dtype="auto", adapters=adapters).state_dict()[f"{Q}.weight"]
    assert kept.dtype == lucid.bfloat16
    np.testing.assert_array_equal(kept.numpy(), exact.astype(kept.numpy().dtype))


def test_a_weight_is_merged_when_it_is_asked_for_and_others_stay_in_the_file() -> None:
    merged = weights(LLAMA, FOLDER / "one_layer", rounded=True)
    assert isinstance(merged, AdaptedWeights)
    assert (
        merged["model.layers.0.self_attn.v_proj.weight"] is merged.checkpoint["model.layers.0.self_attn.v_proj.weight"]
    )
    changed = "model.layers.1.self_attn.v_proj.weight"
    assert merged[changed] is not merged[changed]


def test_folders_are_given_in_several_ways() -> None:
    one, other = FOLDER / "patterns", FOLDER / "one_layer"

    def merged(adapters: Any) -> Any:
        return (
            lucid.models.load(LLAMA, adapters=adapters).state_dict()["model.layers.1.self_attn.v_proj.weight"].numpy()
        )

    for same in (str(one), [one], {one: 1}, {str(one): 1.0}):
        np.testing.assert_array_equal(merged(same), merged(one))
    np.testing.assert_array_equal(merged([one, other]), merged({one: 1, other: 1.0}))
    half = (merged({other: 1.0}) + merged(())) / 2
    np.testing.assert_allclose(merged({other: 0.5}), half, atol=1e-6)


def test_a_quantized_weight_is_dequantized_first_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(LLAMA, tmp_path / "base")
    small = lucid.quantize(lucid.models.load(LLAMA), 8, block=16)
    lucid.models.save(small, LLAMA, tmp_path / "base")
    adapter = write(tmp_path / "a", pair(Q))
    with caplog.at_level(logging.INFO, "lucid.models"):
        model = lucid.models.load(tmp_path / "base", adapters=adapter)
    assert "1 quantized weights became floating point" in caplog.text
    assert f"merged the adapter {adapter} with weight 1: 1 layers, and 0 weights as a whole" in caplog.text
    state, tensors = model.state_dict(), lucid.load(adapter / "adapter_model.safetensors")
    a, b = (tensors[f"base_model.model.{Q}.lora_{part}.weight"] for part in "AB")
    before = lucid.models.load(tmp_path / "base", dequantize=True).state_dict()[f"{Q}.weight"].numpy()
    np.testing.assert_allclose(state[f"{Q}.weight"].numpy(), before + 2 * (b @ a), atol=1e-5)
    assert f"{Q.replace('q_proj', 'k_proj')}.weight.packed" in state


# What an adapter says of its model ------------------------------------------------------------------------------------


def test_an_adapter_brings_the_head_of_its_task_and_its_labels() -> None:
    model = lucid.models.load(goldens.folder("bert/base"), adapters=FOLDER / "bert")
    assert type(model).__name__ == "BertForSequenceClassification"
    assert model(lucid.tensor([[5, 2, 9]])).shape == (1, 3)


def test_the_head_of_an_adapter_takes_the_place_of_the_layers_of_a_sentence_encoder(tmp_path: Path) -> None:
    """Its modules.json made the model a sentence encoder again, without the head and without a word."""
    base = goldens.copied("bert/base", tmp_path / "base")
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
    (base / "modules.json").write_text(json.dumps(modules))
    (base / "1_Pooling").mkdir()
    (base / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    assert lucid.models.load(base).checkpoint.task == "sentence-similarity"
    model = lucid.models.load(base, adapters=FOLDER / "bert")
    expected = lucid.models.load(goldens.folder("bert/base"), adapters=FOLDER / "bert")
    ids = lucid.tensor([[5, 2, 9]])
    np.testing.assert_array_equal(model(ids).numpy(), expected(ids).numpy())


def test_a_head_that_was_trained_apart_from_its_table_is_a_weight_of_its_own() -> None:
    state = lucid.models.load(LLAMA, adapters=FOLDER / "saved").state_dict()
    saved = lucid.load(FOLDER / "saved" / "adapter_model.safetensors")
    for name in ("lm_head.weight", "model.embed_tokens.weight"):
        np.testing.assert_array_equal(state[name].numpy(), saved[f"base_model.model.{name}"])


def test_tokens_that_were_added_make_the_vocabulary_larger(tmp_path: Path) -> None:
    table = numbers(44, 24)
    tensors = {"model.embed_tokens.weight": table, "lm_head.weight": table, **pair(Q)}
    model = lucid.models.load(LLAMA, adapters=write(tmp_path, tensors))
    assert model(lucid.tensor([[43, 1]])).shape == (1, 2, 44)
    assert "lm_head.weight" not in model.state_dict()  # both are equal: they are shared as before
    (tmp_path / "saved").mkdir()
    lucid.models.save(model, LLAMA, tmp_path / "saved")
    assert lucid.models.load(tmp_path / "saved")(lucid.tensor([[43, 1]])).shape == (1, 2, 44)


def test_a_weight_that_two_layers_share_is_changed_only_if_it_was_trained_so(tmp_path: Path) -> None:
    name = "model.embed_tokens"
    tensors = {f"{name}.lora_embedding_A": numbers(2, 40), f"{name}.lora_embedding_B": numbers(24, 2)}
    with pytest.raises(lucid.WeightsError, match=r"changes model.embed_tokens.weight, which is also lm_head.weight"):
        lucid.models.load(LLAMA, adapters=write(tmp_path, tensors))
    state = lucid.models.load(LLAMA, adapters=write(tmp_path, tensors, ensure_weight_tying=True)).state_dict()
    assert not np.array_equal(state[f"{name}.weight"].numpy(), lucid.load(LLAMA)[f"{name}.weight"])


# Where the base model is ----------------------------------------------------------------------------------------------


def test_an_adapter_as_source_is_merged_into_the_folder_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(LLAMA, tmp_path / "base")
    adapter = write(tmp_path / "sql", pair(Q), base="base")
    model = lucid.models.load(adapter)
    assert model.adapters == {adapter: 1.0} and model.file_notes() == {ADAPTERS: "sql"}
    expected = lucid.models.load(LLAMA, adapters=adapter).state_dict()
    np.testing.assert_array_equal(model.state_dict()[f"{Q}.weight"].numpy(), expected[f"{Q}.weight"].numpy())
    (adapter / "config.json").write_text("{}")  # trainers leave one there; it has no weights
    both = lucid.models.load(adapter, adapters={FOLDER / "one_layer": 0.5})
    assert both.file_notes() == {ADAPTERS: "sql, one_layer (weight 0.5)"}


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ("meta-llama/Llama-3.2-1B", "of 'meta-llama/Llama-3.2-1B', which is no folder of a model here"),
        ("", "of a base model that it does not name"),
        (None, "of a base model that it does not name"),
        ("a\0b", r"of 'a\x00b', which is no folder"),
        (["base"], r"of ['base'], which is no folder"),
        (".", "of '.', which is no folder of a model here"),
    ],
)
def test_an_adapter_without_its_base_model_says_where_to_give_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: Any, message: str
) -> None:
    monkeypatch.chdir(write(tmp_path / "a", pair(Q)))
    (tmp_path / "a" / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}))
    with pytest.raises(ConfigError) as caught:
        lucid.models.load(tmp_path / "a")
    assert message in str(caught.value) and f"lucid export BASE --adapter {tmp_path / 'a'}" in str(caught.value)


def test_an_adapter_beside_its_base_model_may_be_merged_already_so_it_is_asked_for(tmp_path: Path) -> None:
    source = write(goldens.copied("llama/llama3", tmp_path), pair(Q))
    with pytest.raises(ConfigError, match=r"beside its base model, whose weights may have it already; to merge it, "):
        lucid.models.load(source)
    assert lucid.models.load(source, adapters=source).file_notes() == {ADAPTERS: tmp_path.name}
    (source / "adapter_config.json").unlink()
    with pytest.raises(ConfigError, match=r"has an adapter \(PEFT's adapter_model.safetensors\) beside its base"):
        lucid.models.load(source)


def test_the_encoder_of_a_sentence_folder_may_be_an_adapter(tmp_path: Path) -> None:
    source = goldens.folder("sentences/cls")
    shutil.copytree(source, tmp_path / "base")
    shutil.copytree(source, tmp_path / "tuned")
    (tmp_path / "tuned" / "model.safetensors").unlink()
    width = json.loads((source / "config.json").read_text())["hidden_size"]
    layer = "encoder.layer.0.attention.self.query"
    write(tmp_path / "tuned", pair(layer, width, width), base=tmp_path / "base")
    ids = lucid.tensor([[5, 2, 9]])
    tuned, plain = (lucid.models.load(tmp_path / name) for name in ("tuned", "base"))
    assert type(tuned) is type(plain)
    assert not np.allclose(tuned(ids).numpy(), plain(ids).numpy())


# What is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"peft_type": "IA3"}, "option peft_type is 'IA3', supported: LORA; PeftModel"),
        ({"peft_type": "PREFIX_TUNING"}, "option peft_type is 'PREFIX_TUNING', supported: LORA"),
        ({"peft_type": None}, "option peft_type is missing"),
        ({"layer_replication": [[0, 2]]}, "layer_replication is [[0, 2]], which repeats layers of the base model"),
        ({"trainable_token_indices": [3]}, "trainable_token_indices is [3], expected trainable_tokens_delta in"),
        ({"use_qalora": True}, "use_qalora is True, which pools the inputs and is not merged here"),
        (
            {"init_lora_weights": "pissa"},
            "init_lora_weights is 'pissa', which changes the weights of the base model too",
        ),
        ({"lora_turbo": 3}, "not supported here, so the results could be wrong: lora_turbo = 3"),
        ({"r": 0}, "option r is 0, expected a whole number from 1"),
        ({"r": 1 << 40}, "option r is 1099511627776, expected a whole number"),
        ({"r": 3}, "expected (3, inputs) and (outputs, 3) for r = 3"),
        ({"rank_pattern": {"q_proj": 1}}, "expected (1, inputs) and (outputs, 1) for r = 1"),
        ({"rank_pattern": {"q_proj": "2"}}, "expected a number for 'q_proj'"),
        ({"alpha_pattern": {"q_proj": 10**400}}, "expected a number for 'q_proj'"),
        ({"alpha_pattern": {"(a+)+": 2}}, "expected regular expressions of at most 3 repetitions and none of a group"),
        ({"alpha_pattern": {"a*b*c*d*e": 2}}, "at most 3 repetitions and none of a group, found 'a*b*c*d*e'"),
        ({"alpha_pattern": {"(": 2}}, "at most 3 repetitions and none of a group, found '('"),
        ({"lora_alpha": 1e400}, "option lora_alpha is inf, expected a finite number"),
        ({"use_dora": True}, "has no lora_magnitude_vector, expected one of 32 numbers as use_dora is true"),
    ],
)
def test_an_option_that_is_not_merged_is_named(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, lucid.WeightsError)) as caught:
        lucid.models.load(LLAMA, adapters=write(tmp_path, pair(Q), **options))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({}, "has no tensors, expected those of an adapter"),
        (pair("model.layers.9.self_attn.q_proj"), "'model.layers.9.self_attn.q_proj' fit no weight of"),
        (pair("lm_head", 24, 40), "'lm_head' fit no weight of"),  # it shares the table
        (pair(Q, inputs=16), "has lora_A [2, 16] and lora_B [32, 2], but its weight in"),
        (pair(Q, rank=3), "has lora_A [3, 24] and lora_B [32, 3], expected (2, inputs) and (outputs, 2) for r = 2"),
        ({f"{Q}.lora_A.weight": numbers(2, 24)}, "has lora_A, expected lora_A and lora_B"),
        ({f"{Q}.lora_A.weight": numbers(2), f"{Q}.lora_B.weight": numbers(32, 2)}, "has lora_A [2] and lora_B"),
        ({**pair(Q), f"{Q}.lora_magnitude_vector": numbers(32)}, "expected none as use_dora is false"),
        ({**pair(Q), f"{Q}.lora_B.bias": numbers(32)}, "has no bias of this shape to add it to"),
        ({**pair(Q), f"{Q}.lora_E": numbers(2)}, "lora_E', which no LoRA of PEFT has"),
        ({key: np.int32(x) for key, x in pair(Q).items()}, "is int32, expected one of float16, bfloat16, float32"),
        ({key: x * np.float32(np.nan) for key, x in pair(Q).items()}, "has NaN or infinity"),
        (pair("a" * 300), "expected names that begin with base_model.model., as PEFT writes them"),
    ],
)
def test_tensors_that_fit_no_weight_are_named(tmp_path: Path, tensors: dict[str, Any], message: str) -> None:
    with pytest.raises(lucid.WeightsError) as caught:
        lucid.models.load(LLAMA, adapters=write(tmp_path, tensors))
    assert message in str(caught.value) and str(tmp_path) in str(caught.value)


def test_a_tensor_that_takes_the_place_of_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match=r"model.layers.0.extra.weight"):
        lucid.models.load(LLAMA, adapters=write(tmp_path, {"model.layers.0.extra.weight": numbers(2, 2)}))


TABLE = "model.embed_tokens"


@pytest.mark.parametrize(
    ("indices", "table", "message"),
    [
        (None, TABLE, "trainable_token_indices is None, expected 2 different rows"),
        ([3], TABLE, "expected 2 different rows of 'model.embed_tokens', for trainable_tokens_delta [2, 24]"),
        ([3, 3], TABLE, "expected 2 different rows"),
        ([3, -1], TABLE, "expected 2 different rows"),
        ({"lm_head": [3, 4]}, TABLE, "expected 2 different rows"),
        ([3, 40], TABLE, "has shape [2, 24] and rows up to 40, but"),
        ([3, 4], Q, "of 'model.layers.0.self_attn.q_proj' has shape [2, 24] and rows up to 4, but"),
    ],
)
def test_rows_of_a_table_that_are_not_there_are_named(tmp_path: Path, indices: Any, table: str, message: str) -> None:
    width = 24 if table == TABLE else 25
    tensors = {f"{table}.token_adapter.trainable_tokens_delta": numbers(2, width), **pair(Q)}
    with pytest.raises((ConfigError, lucid.WeightsError)) as caught:
        lucid.models.load(LLAMA, adapters=write(tmp_path, tensors, trainable_token_indices=indices))
    assert message.replace("24", str(width)) in str(caught.value)


def test_experts_that_fit_no_parameter_are_named(tmp_path: Path) -> None:
    base, experts = goldens.folder("mixtral/base"), "model.layers.0.mlp.experts"
    tensors = pair(experts, 24, 73, 8)
    adapter = write(tmp_path, tensors, target_parameters=["mlp.experts.gate_up_proj"])
    with pytest.raises(lucid.WeightsError, match=rf"'{experts}' fit no weight of"):
        lucid.models.load(base, adapters=adapter)
    with pytest.raises(lucid.WeightsError, match=r"target_parameters, joined experts in .*, which can only be merged"):
        lucid.models.with_adapter_inputs(lucid.models.load(base), adapter)


def test_an_adapter_of_another_type_of_model_is_refused() -> None:
    with pytest.raises(lucid.WeightsError, match=r"and 10 more fit no weight|fit no weight of .*llama3/config.json"):
        lucid.models.load(LLAMA, adapters=FOLDER / "whisper")


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"has no adapter_config.json; give the folder of an adapter"):
        lucid.models.load(LLAMA, adapters=tmp_path)
    (write(tmp_path, pair(Q)) / "adapter_model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no adapter_model.safetensors; PEFT writes it by"):
        lucid.models.load(LLAMA, adapters=tmp_path)
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(lucid.WeightsError, match=r"adapter_model.safetensors.*an empty file"):
        lucid.models.load(LLAMA, adapters=tmp_path)


def test_two_adapters_that_cannot_both_hold_are_refused(tmp_path: Path) -> None:
    first, again = FOLDER / "saved", FOLDER / "x" / ".." / "saved"
    with pytest.raises(ConfigError, match=r"is given twice as an adapter; give it once, with the sum of the weights"):
        lucid.models.load(LLAMA, adapters=[first, again])
    whole = write(tmp_path, {"model.embed_tokens.weight": numbers(40, 24)})
    with pytest.raises(lucid.WeightsError, match=r"model.embed_tokens.weight is also changed by .*saved"):
        lucid.models.load(LLAMA, adapters=[first, whole])
    with pytest.raises(ConfigError, match=r"replaces 'lm_head.weight', which has no part of 0.5; give it the weight 1"):
        lucid.models.load(LLAMA, adapters={first: 0.5})
    with pytest.raises(ConfigError, match=r"has DoRA's lengths of rows, which has no part of 2"):
        lucid.models.load(LLAMA, adapters={FOLDER / "dora": 2})
    with pytest.raises(ValueError, match=r"the weight of this adapter is nan, expected a finite number"):
        lucid.models.load(LLAMA, adapters={first: float("nan")})
