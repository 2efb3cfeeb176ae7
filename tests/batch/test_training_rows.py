"""What `lucid train` makes of rows: labels, the tokens that are learned, and the rows of each step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers.processors import TemplateProcessing

import lucid
from lucid.files.weights import WeightsError
from tests.batch.rows import write_rows
from tests.chat.checkpoints import checkpoint
from tests.console import in_process
from tests.layout_checkpoints import whole
from tests.models import goldens

pytest.importorskip("lucid.batch", reason="needs the extra batch", exc_type=ModuleNotFoundError)

from lucid.batch import TrainingOptions, fine_tune  # after the check
from lucid.batch.fine_tuning import adapter_targets
from lucid.batch.rows import RowError
from lucid.batch.texts import TextReader
from lucid.batch.training_tasks import Columns, Generation, Labels, Similarity
from lucid.generation.chat import load_tokenizer

FROZEN = ("embeddings.*", "encoder.*")  # so that a step is exported in no time


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whole(tmp_path_factory.mktemp("encoder") / "encoder", "sentences/cls")


# Labels ---------------------------------------------------------------------------------------------------------------


def test_labels_with_leading_zeros_are_names_of_their_own() -> None:
    labels = Labels.of([Labels.key(value) for value in ("7", "007", "10", 7)])
    assert labels.names == ["007", "10", "7"]
    assert [labels.number(value) for value in ("007", "7", 7, 7.0)] == [0, 2, 2, 2]
    assert Labels.of([Labels.key(value) for value in ("10", "9", "0")]).names == ["0", "9", "10"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "the label is missing"),
        (" \t", "the label is missing"),
        (None, "the label is missing"),
        (float("nan"), "the label is missing"),
        ("pay ", "the label is 'pay ', expected no spaces around it"),
        ("p\udcff", r"the label is 'p\udcff', expected text in UTF-8"),
        (float("inf"), "the label is inf, expected a name or a whole number"),
        ([1], r"the label is [1], expected a name or a whole number"),
    ],
)
def test_a_label_that_is_none_is_an_error(value: Any, message: str) -> None:
    with pytest.raises(RowError) as caught:
        Labels.key(value)
    assert str(caught.value) == message


def test_a_number_of_thousands_of_digits_is_a_name() -> None:
    assert Labels.key("9" * 5000) == "9" * 5000


# Tokens ---------------------------------------------------------------------------------------------------------------


def test_the_end_that_the_tokenizer_adds_is_learned(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(checkpoint(tmp_path / "decoder"))
    expected = ["c", "d", "</s>"]
    for template in ("<s> $A </s>", "<s> $A", "$A"):
        tokenizer.library.post_processor = TemplateProcessing(template, special_tokens=[("<s>", 1), ("</s>", 2)])
        example = Generation(None, tokenizer, Columns(("prompt", "completion"), None), 40).example(["ab", "cd"])
        assert [tokenizer.library.id_to_token(each) for each in example.ids[example.learned]] == expected
        assert example.ids.tolist().count(2) == 1


def test_rows_of_which_something_is_cut_off_are_counted(tmp_path: Path) -> None:
    """A row whose last tokens are not read was trained on without a word."""
    tokenizer = load_tokenizer(checkpoint(tmp_path / "decoder"))
    learner = Generation(None, tokenizer, Columns(("prompt", "completion"), None), 4)
    for completion in ("c", "cdcd", "cdcdcdcd"):
        assert learner.example(["ab", completion]).ids.size <= 4
    assert (learner.truncated, learner.max_length) == (2, 4)

    model = lucid.models.load(goldens.folder("sentences/cls"))
    reader = TextReader(tokenizer, {}, tuple(model.input_specs()), 4, 100)
    pairs = Similarity(model, reader, Columns(("sentence1", "sentence2"), None))
    for second in ("c", "cdcdcdcd"):
        pairs.example(["ab", second])
    assert (pairs.truncated, pairs.max_length) == (1, 4)


# Heads ----------------------------------------------------------------------------------------------------------------


def test_a_head_of_one_number_is_no_head_for_classes(tmp_path: Path) -> None:
    source = whole(tmp_path / "source", "tasks/bert_reranking")
    rows = write_rows(tmp_path / "rows.jsonl", [{"text": word, "label": 0} for word in "abcd"])
    with pytest.raises(ValueError, match="its head has num_labels 1 and problem_type .*, expected two classes or more"):
        fine_tune(source, rows, tmp_path / "out", TrainingOptions(task="text-classification"))


@pytest.mark.parametrize("lora", [None, 2])
def test_a_head_for_other_labels_takes_the_place_of_the_checkpoints(
    lora: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = whole(tmp_path / "source", "tasks/bert_text_classification")
    rows = write_rows(tmp_path / "rows.jsonl", [{"text": "ab"[n % 2], "label": ["no", "yes"][n % 2]} for n in range(4)])
    command = ["train", source, rows, "--epochs", 1, "--val-set-size", 0, "-o", tmp_path / "out"]
    command += ["--lora", lora] if lora else ["--freeze", "*encoder.*"]
    assert in_process(command, monkeypatch) == 2
    message = "the labels of the checkpoint's head, which new_head (--new-head) replaces"
    assert f"line 1 of {rows}: the label is 'no', expected one of LABEL_0, LABEL_1, LABEL_2, {message}" in (
        " ".join(capsys.readouterr().err.split())
    )
    assert in_process([*command, "--new-head"], monkeypatch) == 0
    assert "\nhead        new, for these labels, in the place of the checkpoint's\n" in capsys.readouterr().out
    model: Any = lucid.models.load(tmp_path / "out", "text-classification")
    assert model.config.num_labels == 2
    assert (
        in_process(
            ["export", tmp_path / "out", "--for", "onnxruntime", "-o", tmp_path / "m", "--no-check"], monkeypatch
        )
        == 0
    )
    for folder in ("out", "m"):  # of adapters the export had the base model's labels, or LABEL_0 and LABEL_1
        assert json.loads((tmp_path / folder / "config.json").read_text())["id2label"] == {"0": "no", "1": "yes"}


def test_a_new_head_is_for_classes(encoder: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [{"anchor": word, "positive": word} for word in "abcd"])
    with pytest.raises(ValueError, match="new_head: for text-classification, and the task is sentence-similarity"):
        fine_tune(encoder, rows, tmp_path / "out", TrainingOptions(new_head=True))


def test_a_text_without_the_end_where_a_class_is_read_is_an_error(tmp_path: Path) -> None:
    source = whole(tmp_path / "source", "bart/text_classification")
    rows = write_rows(tmp_path / "rows.jsonl", [{"text": word, "label": 0} for word in "abcd"])
    with pytest.raises(ValueError, match="line 1 of .*: its tokens lack the end, id 2, at which the model reads"):
        fine_tune(source, rows, tmp_path / "out", TrainingOptions(task="text-classification"))


def test_a_decoder_without_an_id_of_padding_is_no_classifier_of_batches(tmp_path: Path) -> None:
    source = whole(tmp_path / "source", "tasks/llama_text_classification")
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "pad_token_id": None}))
    rows = write_rows(tmp_path / "rows.jsonl", [{"text": word, "label": 0} for word in "abcd"])
    with pytest.raises(ValueError, match="the config of the checkpoint has no pad_token_id, before which"):
        fine_tune(source, rows, tmp_path / "out", TrainingOptions(task="text-classification"))


def test_batches_are_padded_by_the_id_that_the_model_knows(tmp_path: Path) -> None:
    """A classifier on a decoder looks for the last token before it, in `lucid map` as well."""
    source = whole(tmp_path / "source", "tasks/llama_text_classification")
    tokenizer = load_tokenizer(source)
    reader = TextReader(tokenizer, {"pad_token_id": 7}, ("input_ids",), None, 100)
    batch = reader.arrays([reader.ready([text]).data for text in ("a", "abc")])
    assert batch["input_ids"][0, 1:].tolist() == [7, 7]
    reader = TextReader(tokenizer, {"pad_token_id": -1}, ("input_ids",), None, 100)  # as old configs have
    assert reader.arrays([reader.ready([text]).data for text in ("a", "abc")])["input_ids"][0, 1:].tolist() == [0, 0]


def test_adapters_are_not_on_a_head_that_is_trained_whole(encoder: Path, tmp_path: Path) -> None:
    """peft would leave them out when it reads the folder."""
    rows = write_rows(tmp_path / "rows.jsonl", [{"text": "ab"[row % 2], "label": row % 2} for row in range(4)])
    options = TrainingOptions(
        task="text-classification", num_train_epochs=1, lora=2, target_modules=["dense"], val_set_size=0
    )
    fine_tune(encoder, rows, tmp_path / "out", options)
    about = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert about["modules_to_save"] == ["bert.pooler.dense", "classifier"]
    assert not {*about["modules_to_save"]} & {*about["target_modules"]}


@pytest.mark.parametrize("variant", ["qwen3_next/base", "gpt_oss/base", "mixtral/base"])
def test_networks_with_experts_get_no_adapters(variant: str) -> None:
    """peft takes their names for experts, in the layers without experts too, or refuses their routers."""
    model: Any = lucid.models.load(goldens.folder(variant))
    targets = adapter_targets(model, set())
    assert any(name.endswith("q_proj.weight") for name in targets)
    assert not any(".mlp." in name for name in targets)
    message = r"gate_proj' matches no parameter.* no adapters of networks with experts \((block_sparse_moe|mlp)\)"
    with pytest.raises(ValueError, match=message):
        adapter_targets(model, set(), ["gate_proj"])


# The rows of a step ---------------------------------------------------------------------------------------------------


def test_a_pair_that_would_be_a_step_of_its_own_belongs_to_the_last_one(encoder: Path, tmp_path: Path) -> None:
    """Alone its loss would be 0, in training and in the mean of an evaluation."""
    words = "abcdefghijk"
    rows = write_rows(tmp_path / "rows.jsonl", [{"anchor": word, "positive": f"z{word}z"} for word in words])
    options: dict[str, Any] = {"batch_size": 5, "num_train_epochs": 2, "eval_steps": 1, "val_set_size": 0}
    history = fine_tune(encoder, rows, tmp_path / "out", TrainingOptions(**options, freeze=["embeddings.*"]))
    assert [entry["step"] for entry in history] == [1, 2, 3, 4], "of 5 and 6 rows"
    assert all(entry["train_loss"] > 0.1 for entry in history)
    options |= {"val_set_size": 0.1, "num_train_epochs": 1}
    (entry, *_) = fine_tune(encoder, rows, tmp_path / "held", TrainingOptions(**options, freeze=["embeddings.*"]))
    assert entry["eval_loss"] > 0.1, "two rows are held out, not one"


def test_one_pair_is_not_enough_to_evaluate_with(encoder: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [{"anchor": word, "positive": word} for word in "abcd"])
    one = write_rows(tmp_path / "one.jsonl", [{"anchor": "a", "positive": "b"}])
    with pytest.raises(ValueError, match="that to evaluate with is 1, expected 2 or more of each"):
        fine_tune(encoder, rows, tmp_path / "out", TrainingOptions(eval_dataset=[str(one)]))


# Files ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ['[{"text": "a", "label": 0}]', '[\n  {"text": "a", "label": 0}\n]'])
def test_a_json_array_is_named_with_what_to_do(text: str, encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(text)
    with pytest.raises(ValueError, match=r"line 1 of .*rows.jsonl begins a JSON array, expected a line for each obj"):
        fine_tune(encoder, tmp_path / "rows.jsonl", tmp_path / "out", TrainingOptions(task="text-classification"))


def test_a_flipped_byte_in_a_checkpoint_is_noticed(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_rows(tmp_path / "rows.jsonl", [{"text": "ab"[row % 2], "label": row % 2} for row in range(12)])
    options = TrainingOptions(
        task="text-classification", batch_size=4, freeze=FROZEN, save_steps=1, eval_steps=1, early_stopping_patience=9
    )
    work = tmp_path / "out.training"
    with monkeypatch.context() as patch, pytest.raises(OSError, match="full"):
        patch.setattr(lucid.models, "save", lambda *_: (_ for _ in ()).throw(OSError("full")))
        fine_tune(encoder, data, tmp_path / "out", options)
    for path in (work / "checkpoint.safetensors", *work.glob("best-*.safetensors")):
        kept = path.read_bytes()
        arrays = lucid.load(path)
        name = next(name for name, array in arrays.items() if array.dtype == np.float32 and array.size > 8)
        place = kept.index(arrays[name].tobytes()) + 5
        path.write_bytes(kept[:place] + bytes([kept[place] ^ 1]) + kept[place + 1 :])
        with pytest.raises(WeightsError, match="its checksum is not that of its numbers") as caught:
            fine_tune(encoder, data, tmp_path / "out", options)
        assert caught.value.__notes__ == [f"to begin again, remove {work}"]
        path.write_bytes(kept)
    fine_tune(encoder, data, tmp_path / "out", options)
    assert not work.exists()
