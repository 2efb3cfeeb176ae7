"""`lucid train` learns each task, gives the same bits whatever interrupts it, and names what it cannot learn from."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.runtime import Training, TrainingError
from tests.batch.rows import write_rows
from tests.chat.checkpoints import checkpoint
from tests.console import in_process
from tests.layout_checkpoints import whole

pytest.importorskip("lucid.batch", reason="needs the extra batch", exc_type=ModuleNotFoundError)

from lucid.batch import TrainingOptions, fine_tune  # after the check
from lucid.batch.fine_tuning import lowest
from lucid.batch.training_tasks import Columns, Generation, macro_f1, spearman
from lucid.cli.commands.train import label_counts
from lucid.generation.chat import load_tokenizer

ROWS = [{"text": ("pay " if row % 2 else "send ") + "abcdefgh"[: row % 8 + 1], "label": row % 2} for row in range(20)]
QUICK: dict[str, Any] = {"task": "text-classification", "num_train_epochs": 2, "batch_size": 6, "learning_rate": 0.02}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whole(tmp_path_factory.mktemp("encoder") / "encoder", "sentences/cls")


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("decoder") / "decoder")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("data") / "rows.jsonl", ROWS)


# What is learned ------------------------------------------------------------------------------------------------------


def test_a_classifier_gets_a_head_for_the_labels_of_the_data(encoder: Path, tmp_path: Path) -> None:
    names = ["send", "pay"]
    rows = "".join(f"{row['text']},{names[int(str(row['label']))]}\n" for row in ROWS)
    (tmp_path / "in.csv").write_text(f"body,kind\n{rows}", encoding="utf-8")
    options = {**QUICK, "num_train_epochs": 12, "columns": ["body"], "label_column": "kind"}
    history = fine_tune(encoder, tmp_path / "in.csv", tmp_path / "out", TrainingOptions(**options))
    assert history[-1]["train_loss"] < 0.5 * history[0]["train_loss"] and history[-1]["eval_accuracy"] == 1
    assert history[-1]["eval_macro_f1"] == 1
    model: Any = lucid.models.load(tmp_path / "out")
    assert type(model).__name__ == "BertForSequenceClassification" and model.config.num_labels == 2
    assert json.loads((tmp_path / "out" / "config.json").read_text())["id2label"] == {"0": "pay", "1": "send"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out"], "nothing else stays"


PAIRS = [{"sentence1": row["text"], "sentence2": "pay", "score": row["label"]} for row in ROWS]
TRIPLES = [{"anchor": row["text"], "positive": str(row["text"])[:5], "negative": "."} for row in ROWS]
DUETS = [{"anchor": row["anchor"], "positive": row["positive"]} for row in TRIPLES]
ANSWERS = [{"prompt": row["text"], "completion": "yes"} for row in ROWS]
TALKS = [
    {"messages": [{"role": "user", "content": row["text"]}, {"role": "assistant", "content": "yes"}]} for row in ROWS
]


@pytest.mark.parametrize(
    ("rows", "source", "options", "metric", "kind"),
    [
        (PAIRS, "encoder", {"learning_rate": 0.01}, "eval_spearman", "SentenceEncoder"),
        (TRIPLES, "encoder", {"learning_rate": 0.01, "val_set_size": 0}, "epoch", "SentenceEncoder"),
        (ANSWERS, "decoder", {"learning_rate": 0.003}, "eval_perplexity", "Llama"),
        (TALKS, "decoder", {"lora": 2, "bits": 4, "learning_rate": 0.02, "val_set_size": 0}, "epoch", "Llama"),
    ],
    ids=["scores", "in-batch negatives", "answers", "conversations, LoRA"],
)
def test_each_task_is_learned_and_read_again(
    rows: Any, source: str, options: Any, metric: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = write_rows(tmp_path / "rows.jsonl", rows)
    settings = TrainingOptions(num_train_epochs=3, batch_size=10, **options)
    history = fine_tune(request.getfixturevalue(source), place, tmp_path / "out", settings)
    assert len(history) == 3 and metric in history[-1]
    assert history[-1]["train_loss"] < 0.97 * history[0]["train_loss"]
    assert type(lucid.models.load(tmp_path / "out")).__name__ == kind
    assert (tmp_path / "out" / "adapter_config.json").exists() == ("lora" in options)


def test_of_prompts_and_conversations_the_answers_are_learned(decoder: Path) -> None:
    tokenizer = load_tokenizer(decoder)

    def learned(values: Sequence[Any], *columns: str) -> list[str]:
        example = Generation(None, tokenizer, Columns(columns, None), 40).example(values)
        return [tokenizer.library.id_to_token(each) for each in example.ids[example.learned]]

    assert learned(["ab", "cd"], "prompt", "completion") == ["c", "d", "</s>"]
    assert learned(["ab"], "text") == ["a", "b", "</s>"]
    talk = [("user", "ab"), ("assistant", "c"), ("user", "d"), ("assistant", "e")]
    messages = [{"role": role, "content": content} for role, content in talk]
    assert learned([messages], "messages") == ["c", "</s>", "e", "</s>"]
    assert learned([json.dumps(messages)], "messages") == ["c", "</s>", "e", "</s>"], "as in CSV"


def test_adapters_of_a_classifier_are_merged_or_written_with_its_head(
    encoder: Path, data: Path, tmp_path: Path
) -> None:
    for merge in (False, True):
        options = TrainingOptions(**QUICK, lora=2, target_modules=("query", "value"), merge=merge, val_set_size=0)
        fine_tune(encoder, data, tmp_path / f"out{merge}", options)
    whole, adapted = (lucid.models.load(tmp_path / f"out{merge}", "text-classification") for merge in (True, False))
    ids = lucid.tensor([[5, 6, 7]])
    np.testing.assert_allclose(whole(ids).numpy(), adapted(ids).numpy(), atol=1e-6)
    about = json.loads((tmp_path / "outFalse" / "adapter_config.json").read_text())
    assert about["base_model_name_or_path"] == str(encoder) and about["r"] == 2 and about["lora_alpha"] == 4
    assert about["modules_to_save"] == ["bert.pooler.dense", "classifier"]


def test_a_quantized_checkpoint_is_trained_as_floats(encoder: Path, tmp_path: Path) -> None:
    small = lucid.quantize(lucid.models.load(encoder), 4)
    source = shutil.copytree(encoder, tmp_path / "source")
    lucid.models.save(small, encoder, source)
    options = TrainingOptions(batch_size=20, learning_rate=0.01, val_set_size=0, freeze="embeddings.*")
    fine_tune(source, write_rows(tmp_path / "rows.jsonl", PAIRS), tmp_path / "out", options)
    model = lucid.models.load(tmp_path / "out")
    assert not any(isinstance(module, nn.QuantizedWeight) for module in model.modules())


def test_training_stops_early_and_writes_the_best_weights(encoder: Path, data: Path, tmp_path: Path) -> None:
    options = {**QUICK, "learning_rate": 1.0, "early_stopping_patience": 2, "num_train_epochs": 9, "eval_steps": 1}
    rows = [{**row, "label": 1 - int(str(row["label"]))} for row in ROWS[:4]]  # of which training takes it away
    options["eval_dataset"] = [str(write_rows(tmp_path / "eval.jsonl", rows))]
    history = fine_tune(encoder, data, tmp_path / "out", TrainingOptions(**options))
    losses = [entry["eval_loss"] for entry in history]
    assert len(losses) == losses.index(min(losses)) + 3 < 36
    assert json.loads((tmp_path / "out" / "lucid_training.json").read_text())["history"] == history
    model: Any = lucid.models.load(tmp_path / "out")
    logits = model(**batch_of(tmp_path / "out", [str(row["text"]) for row in rows]))
    loss = nn.functional.cross_entropy(logits, lucid.tensor([row["label"] for row in rows])).item()
    assert loss == pytest.approx(min(losses), rel=1e-4)


def test_an_evaluation_of_nan_is_the_best_only_among_such() -> None:
    history = [{"step": step, "eval_loss": loss} for step, loss in enumerate((math.nan, 2.0, math.nan, 1.0, 1.0))]
    assert lowest(history) == 3 and lowest(history[:2]) == 1 and lowest([history[0], history[2]]) == 0


def batch_of(folder: Path, texts: Sequence[str]) -> dict[str, Any]:
    library = load_tokenizer(folder).library
    library.enable_padding()
    encodings = library.encode_batch(list(texts))
    arrays = {
        "input_ids": [each.ids for each in encodings],
        "attention_mask": [each.attention_mask for each in encodings],
    }
    return {name: lucid.tensor(array) for name, array in arrays.items()}


def test_spearman_shares_ranks_of_equal_numbers() -> None:
    assert spearman(np.array([1.0, 2, 3, 4]), np.array([10.0, 20, 30, 40])) == pytest.approx(1)
    assert spearman(np.array([1.0, 2, 3, 4]), np.array([4.0, 3, 2, 1])) == pytest.approx(-1)
    assert spearman(np.array([1.0, 2, 2, 3]), np.array([1.0, 3, 2, 4])) == pytest.approx(0.9486833)  # scipy's
    assert spearman(np.ones(3), np.arange(3.0)) == 0


def test_the_f1_of_classes_is_the_mean_over_those_that_answers_or_labels_have() -> None:
    labels, answers = np.array([0, 0, 1, 1, 2, 4]), np.array([0, 1, 1, 1, 5, 4])
    assert macro_f1(answers, labels) == pytest.approx((2 / 3 + 0.8 + 0 + 1 + 0) / 5)  # scikit-learn's
    assert macro_f1(np.array([1, 1]), np.array([0, 0])) == 0 and macro_f1(labels, labels) == 1
    assert macro_f1(np.zeros(100, int), np.arange(100) // 99) == pytest.approx(198 / 398), "99 % are right"


# Interruptions --------------------------------------------------------------------------------------------------------

FROZEN = ("embeddings.*", "encoder.*")  # so that a step is exported in no time
INTERRUPTED = TrainingOptions(**QUICK, save_steps=2, early_stopping_patience=5, eval_steps=3, freeze=FROZEN)


@pytest.fixture(scope="module")
def uninterrupted(encoder: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "out"
    fine_tune(encoder, data, folder, INTERRUPTED)
    return folder


def at_call(number: int, function: Callable[..., Any], error: BaseException) -> Callable[..., Any]:
    """The function, whose call of this number raises an error first."""
    calls = 0

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            raise error
        return function(*arguments, **options)

    return counted


def same(folder: Path, other: Path) -> bool:
    names = sorted(path.name for path in other.iterdir())
    assert sorted(path.name for path in folder.iterdir()) == names
    return all((folder / name).read_bytes() == (other / name).read_bytes() for name in names)


def test_the_same_command_goes_on_to_the_same_bits(
    encoder: Path, data: Path, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    interrupts: list[tuple[Any, str, int, BaseException]] = [
        (Training, "step", 1, OSError(errno.EIO, "Input/output error")),  # before the first checkpoint: nothing stays
        (Training, "step", 4, KeyboardInterrupt()),  # between two checkpoints: Ctrl-C writes one
        (Training, "evaluate", 1, KeyboardInterrupt()),
        (Training, "save", 1, OSError(errno.ENOSPC, "No space left on device")),
        (lucid.models, "save", 1, OSError(errno.ENOSPC, "No space left on device")),  # at the very end
    ]
    for place, name, number, error in interrupts:
        with monkeypatch.context() as patch, pytest.raises(type(error)) as caught:
            patch.setattr(place, name, at_call(number, getattr(place, name), error))
            fine_tune(encoder, data, output, INTERRUPTED)
        assert not output.exists()
        note = f"{output}.training has its last checkpoint; the same command goes on from there"
        assert vars(caught.value).get("__notes__") == ([note] if os.listdir(tmp_path) else None)
    seen: list[Any] = []
    fine_tune(encoder, data, output, INTERRUPTED, begun=seen.append)
    assert seen[0].resumed == seen[0].steps == 6
    assert same(output, uninterrupted) and os.listdir(tmp_path) == ["out"]


def test_a_ctrl_c_right_after_a_step_loses_nothing_of_its_loss(
    encoder: Path, data: Path, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_step = Training.step

    def step(self: Training, **inputs: Any) -> float:
        loss = make_step(self, **inputs)
        if self.steps == 2:
            signal.raise_signal(signal.SIGINT)
        return loss

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Training, "step", step)
        fine_tune(encoder, data, tmp_path / "out", INTERRUPTED)
    fine_tune(encoder, data, tmp_path / "out", INTERRUPTED)
    assert same(tmp_path / "out", uninterrupted)


KILLED = """
import os, signal, sys
from lucid.batch import TrainingOptions, fine_tune
sync, calls = os.fsync, 0
def killed(descriptor):
    global calls
    calls += "checkpoint" in os.readlink(f"/proc/self/fd/{descriptor}")
    if calls == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    sync(descriptor)
os.fsync = killed
fine_tune(*sys.argv[1:4], eval(sys.argv[4]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="names its open files by /proc")
def test_a_run_that_is_killed_while_it_writes_goes_on_to_the_same_bits(
    encoder: Path, data: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    command = [sys.executable, "-c", KILLED, str(encoder), str(data), str(output), repr(INTERRUPTED)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert (tmp_path / "out.training" / "checkpoint.safetensors").exists()
    seen: list[Any] = []
    fine_tune(encoder, data, output, INTERRUPTED, begun=seen.append)
    assert seen[0].resumed == 2
    assert same(output, uninterrupted) and os.listdir(tmp_path) == ["out"]


def test_a_folder_that_was_trained_so_is_left_as_it_is(encoder: Path, data: Path, uninterrupted: Path) -> None:
    before = [(path.name, path.stat().st_mtime_ns) for path in sorted(uninterrupted.iterdir())]
    work = uninterrupted.with_name("out.training")  # the run was killed before it could remove the folder
    work.mkdir()
    (work / "run.json").write_text("{}")
    history = fine_tune(encoder, data, uninterrupted, INTERRUPTED)
    assert len(history) == 2 and os.listdir(uninterrupted.parent) == ["out"]
    assert [(path.name, path.stat().st_mtime_ns) for path in sorted(uninterrupted.iterdir())] == before
    with pytest.raises(FileExistsError, match="the folder is not empty; give the name of a new one"):
        fine_tune(encoder, data, uninterrupted, TrainingOptions(**QUICK))


def test_another_source_or_other_options_do_not_go_on(
    encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Training, "step", at_call(3, Training.step, KeyboardInterrupt()))
        fine_tune(encoder, data, output, INTERRUPTED)
    other = whole(tmp_path / "other", "sentences/cls")
    weights = lucid.load(other / "model.safetensors")
    lucid.save(other / "model.safetensors", {name: array + 0.5 for name, array in weights.items()})
    more = write_rows(tmp_path / "more.jsonl", ROWS[:6])
    for arguments, message in (
        ((other, data, INTERRUPTED), r"whose source differed.*model.safetensors is new or has changed"),
        ((encoder, more, INTERRUPTED), r"whose data differed.*more.jsonl is new or has changed"),
        ((encoder, data, TrainingOptions(**{**QUICK, "seed": 1})), r"whose options differed.*seed: 0, now 1"),
    ):
        with pytest.raises(ValueError, match=message):
            fine_tune(*arguments[:2], output, arguments[2])


def test_a_loss_that_is_not_finite_names_the_step_and_the_layer(encoder: Path, data: Path, tmp_path: Path) -> None:
    options = {**QUICK, "freeze": FROZEN, "learning_rate": 3e38, "max_grad_norm": 0, "warmup_ratio": 0, "save_steps": 1}
    with pytest.raises(TrainingError, match=r"at step 1 the loss is nan, first in .+") as caught:
        fine_tune(encoder, data, tmp_path / "out", TrainingOptions(**options))
    assert caught.value.__notes__ == [
        f"to begin again with other options, such as a lower learning rate, remove {tmp_path / 'out.training'}"
    ]


@pytest.mark.parametrize(("share", "patience"), [(0, 0), (0.1, 0), (0.1, 1)])
def test_weights_that_are_not_finite_after_the_last_step_are_not_written(
    encoder: Path, data: Path, tmp_path: Path, share: float, patience: int
) -> None:
    options = {"freeze": FROZEN, "learning_rate": 3.4e38, "max_grad_norm": 0, "warmup_ratio": 0, "batch_size": 20}
    options |= {"num_train_epochs": 1, "val_set_size": share, "weight_decay": 10.0, "early_stopping_patience": patience}
    with pytest.raises(TrainingError, match="the last step has given weights of NaN, infinity or near it"):
        fine_tune(encoder, data, tmp_path / "out", TrainingOptions(**QUICK | options))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("output", [".", ""])
def test_the_working_folder_is_refused_by_its_name(
    output: str, encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    with pytest.raises(FileExistsError, match="work: the working folder cannot be replaced; give the name of a new"):
        fine_tune(encoder, data, output, TrainingOptions(**QUICK))
    assert os.listdir(tmp_path) == ["work"]


@pytest.mark.skipif(sys.platform == "win32", reason="folders have no locks there")
def test_two_processes_do_not_train_into_one_folder(
    encoder: Path, data: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    output, errors = tmp_path / "out", list[str]()

    def second(_: Any) -> None:
        with pytest.raises(
            FileExistsError, match=r"out\.training: another process is at it; wait until it has ended"
        ) as caught:
            fine_tune(encoder, data, output, INTERRUPTED)
        errors.append(str(caught.value))

    fine_tune(encoder, data, output, INTERRUPTED, begun=second)
    assert errors and same(output, uninterrupted) and os.listdir(tmp_path) == ["out"]


# What cannot be learned from ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "rows", "options", "message"),
    [
        (
            "encoder",
            [{"body": "a", "label": 0}],
            {},
            "has no column 'text'; its columns are body, label; name another one .--column",
        ),
        (
            "encoder",
            [{"text": "a"}],
            {},
            "has no column 'label'; its columns are text; name another one .--label-column",
        ),
        (
            "encoder",
            ROWS,
            {"task": None},
            "its columns are text, label, of which sentence-similarity has no texts; give the task text-classification",
        ),
        ("head", PAIRS, {}, "text-classification has no texts; give the task sentence-similarity .--task"),
        ("encoder", [{"text": "a"}], {"task": "sentence-similarity"}, "no texts; give the task text-generation"),
        ("encoder", [{"body": "a"}], {"task": None}, "has no column 'sentence1'; its columns are body; name another"),
        ("encoder", [*ROWS, {"text": "a"}], {}, "^1 of 21 rows .* the first: line 21 of .*r.jsonl: the label is mis"),
        ("encoder", [*ROWS, {"text": " ", "label": 0}], {}, "line 21 of .*: the text is empty; mend or remove them"),
        ("encoder", [{"text": "a", "label": 0.5}], {}, "the label is 0.5, expected a name or a whole number"),
        ("encoder", ROWS[:1], {}, "all rows have the label 0, expected two labels or more"),
        (
            "head",
            [{"text": "a", "label": 3}],
            {},
            "the label is 3, expected one of LABEL_0, LABEL_1, LABEL_2, the labels of the checkpoint's head",
        ),
        ("head", [{"text": "a", "label": "LABEL_O"}], {}, "'LABEL_O', expected one of .*; did you mean LABEL_0 or "),
        ("encoder", [{**PAIRS[0], "score": 5}], {"task": None}, "the score is 5, expected a number from -1 to 1"),
        ("encoder", ROWS, {"task": "text-generation"}, "'text-generation' is not known for model_type bert"),
        ("encoder", ROWS, {"columns": ["text", "text"]}, "the columns of texts are text, text, expected each once"),
        ("encoder", PAIRS, {"task": None, "columns": ["score"]}, "reads 2 or 3 columns of texts, got 1: score"),
        (
            "decoder",
            [{"prompt": "abcdef", "completion": "g"}],
            {"task": None, "max_length": 4},
            "4 tokens have no answer",
        ),
        ("decoder", [{"messages": "ab"}], {"task": None, "columns": ["text"]}, "has no column 'text'"),
        (
            "decoder",
            [{"messages": "[{'role': 'user'}]"}],
            {"task": None},
            "messages are \"\\[{'role.*, in a text as JSON",
        ),
        (
            "decoder",
            [{"messages": '[{"role": "user", "role": "assistant"}]'}],
            {"task": None},
            "\\(the name 'role' occurs twice\\), expected a list",
        ),
        (
            "decoder",
            [{"messages": '{"role": "user"}'}],
            {"task": None},
            "expected a list of them.* name the column text",
        ),
        (
            "decoder",
            [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "name": "b", "content": " "}]}],
            {"task": None},
            "message 1, of the assistant, is empty: only its end would be learned",
        ),
        ("encoder", ROWS, {"freeze": ["nothing.*"]}, "freeze: 'nothing.\\*' matches no parameter"),
        ("encoder", ROWS, {"freeze": ["*"]}, "freeze: \\* leaves no parameter to train"),
        ("encoder", ROWS, {"lora": 2, "freeze": ["encoder.*"]}, "freeze: encoder.\\* leaves no adapter to train; with"),
        (
            "encoder",
            ROWS,
            {"columns": ["text", "label"]},
            "column 'label' is what is learned, and cannot be one of the",
        ),
        ("encoder", ROWS, {"lora": 2, "target_modules": ["q_proj"]}, "'\\*.q_proj' matches no parameter"),
        (
            "encoder",
            ROWS,
            {"lora": 2, "target_modules": ["qury"]},
            "'\\*.qury' .* parameter; did you mean query.; there",
        ),
        ("encoder", ROWS, {"freeze": ["encoderr.*"]}, "freeze: 'encoderr.\\*' .*; did you mean encoder.; there are"),
        (
            "encoder",
            DUETS,
            {"task": None, "batch_size": 1},
            "batch_size is 1, the .* from is 18, .* expected 2 or more of each",
        ),
        ("encoder", DUETS[:1], {"task": None}, "batch_size is 6, the .* from is 1, expected 2 or more of each"),
        ("vision", ROWS, {}, "model_type vit has no head for text-classification"),
    ],
)
def test_what_cannot_be_learned_from_is_named_and_leaves_nothing(
    source: str, rows: Any, options: Any, message: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "run").mkdir()
    variants = {"head": "tasks/bert_text_classification", "vision": "vit/base"}
    place = whole(tmp_path / source, variants[source]) if source in variants else request.getfixturevalue(source)
    with pytest.raises((ValueError, KeyError), match=message):
        fine_tune(
            place, write_rows(tmp_path / "r.jsonl", rows), tmp_path / "run" / "out", TrainingOptions(**QUICK | options)
        )
    assert os.listdir(tmp_path / "run") == []


@pytest.mark.parametrize(("content", "message"), [(None, "has no tokenizer.json"), ("{}", "does not read it")])
@pytest.mark.parametrize("task", ["text-classification", "sentence-similarity"])
def test_a_checkpoint_without_a_tokenizer_is_named(
    task: str, content: str | None, message: str, tmp_path: Path, encoder: Path
) -> None:
    source = shutil.copytree(encoder, tmp_path / "source")
    file = next(source.rglob("tokenizer.json"))
    file.unlink() if content is None else file.write_text(content)
    rows = ROWS if task == "text-classification" else [*PAIRS]
    with pytest.raises(Exception, match=r"(?s).*") as error:
        fine_tune(source, write_rows(tmp_path / "r.jsonl", rows), tmp_path / "out", TrainingOptions(task=task))
    text = "".join([str(error.value), *getattr(error.value, "__notes__", [])])
    assert message in text and str(file.parent) in text and not list(tmp_path.glob("out*"))


@pytest.mark.parametrize(
    ("error", "options", "message"),
    [
        (
            ValueError,
            {"task": "text-clasification"},
            "task 'text-clasification' is not trained: choose one of text-classification, sentence-similarity, "
            "text-generation; did you mean text-classification?",
        ),
        (ValueError, {"batch_size": 0}, "batch_size is 0, expected 1 or more"),
        (ValueError, {"num_train_epochs": 0}, "num_train_epochs is 0, expected 1 or more"),
        (ValueError, {"num_train_epochs": -1}, "num_train_epochs is -1, expected 1 or more"),
        (ValueError, {"eval_steps": -1}, "eval_steps is -1, expected 1 or more"),
        (ValueError, {"save_steps": -1}, "save_steps is -1, expected 1 or more"),
        (ValueError, {"early_stopping_patience": -1}, "early_stopping_patience is -1, expected 0 or more"),
        (ValueError, {"lora": 0}, "lora is 0, expected 1 or more"),
        (ValueError, {"lora": 2, "lora_alpha": 0}, "lora_alpha is 0, expected more than 0 and at most 3.4e38"),
        (ValueError, {"learning_rate": 1e300}, "learning_rate is 1e+300, expected more than 0 and at most 3.4e38"),
        (ValueError, {"learning_rate": float("nan")}, "learning_rate is nan, expected a finite number"),
        (ValueError, {"weight_decay": -0.1}, "weight_decay is -0.1, expected 0 or more and at most 3.4e38"),
        (ValueError, {"warmup_ratio": 1}, "warmup_ratio is 1, expected a share of at least 0, below 1"),
        (ValueError, {"lora": 2, "bits": 3}, "bits is 3, expected 4 or 8"),
        (TypeError, {"batch_size": 2.5}, "batch_size is 2.5, expected a whole number"),
        (TypeError, {"learning_rate": "0.1"}, "learning_rate is '0.1', expected a number"),
    ],
)
def test_options_out_of_their_range_are_named(error: type[Exception], options: Any, message: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        TrainingOptions(**options)


# The command ----------------------------------------------------------------------------------------------------------


def test_the_command_prints_what_it_takes_and_each_evaluation(
    encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", encoder, data, "--task", "text-classification", "--epochs", 1, "-o", tmp_path / "out"]
    command += ["--max-length", 3, *(word for pattern in FROZEN for word in ("--freeze", pattern))]
    with monkeypatch.context() as patch:
        patch.setattr(Training, "step", at_call(2, Training.step, KeyboardInterrupt()))
        assert in_process(command, monkeypatch) == 130
    assert "interrupted\n  " in (err := capsys.readouterr().err) and "the same command goes on" in err
    assert in_process(command, monkeypatch) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "task        text-classification, of the columns text, label",
        "rows        18 to learn from, 2 to evaluate with",
        "labels      0 (10), 1 (10)",
        "truncated   20 of these rows, to 3 tokens",
    ]
    assert lines[5].startswith("options     num_train_epochs 1, batch_size 16, learning_rate 5e-05, ")
    assert lines[6] == "steps       2, after 1 of an earlier run"
    assert lines[7].startswith("step 2      epoch 1: train loss 0.") and "eval accuracy" in lines[7]
    assert lines[8].startswith(f"written     {tmp_path / 'out'}, 6 files")
    assert in_process([*command, "--json"], monkeypatch) == 0, "it is there already"
    assert json.loads(capsys.readouterr().out)["history"][0]["step"] == 2


def test_of_many_labels_the_most_frequent_ones_and_the_rarest_are_shown() -> None:
    labels = {"a": 1200, "b": 40, "c": 30, "d": 20, "e": 10, "f": 9, "g": 8, "h": 7}
    assert label_counts(labels) == "a (1,200), b (40), c (30), d (20), e (10), f (9), g (8), h (7)"
    shown = "a (1,200), b (40), c (30), d (20), e (10), f (9), g (8), 2 others, bb (1)"
    assert label_counts({**labels, "i": 2, "bb": 1}) == shown


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--val-set-size", 1], 2, "val_set_size is 1.0, expected a share of at least 0, below 1"),
        (["--bits", 4], 2, "bits: for adapters; give their rank, such as lora=8 (--lora 8)"),
        (["--early-stopping-patience", 1, "--val-set-size", 0], 2, "there is no evaluation"),
        (["--column", "body"], 2, "has no column 'body'; its columns are text, label"),
    ],
)
def test_errors_take_a_line_and_have_the_exit_codes_of_the_page(
    options: Any,
    code: int,
    message: str,
    encoder: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["train", encoder, data, "--task", "text-classification", "-o", tmp_path / "out"]
    assert in_process([*command, *options], monkeypatch) == code
    err = capsys.readouterr().err
    assert message in err and err.startswith("lucid: ") and len(err.splitlines()) == 1
