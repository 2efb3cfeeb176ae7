"""The commands of `lucid chat`, messages of several lines, and what is typed while an answer is written."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lucid.cli.dialogue import Dialogue, joined
from lucid.generation.chat import LanguageModel, load_language_model
from tests.chat.checkpoints import checkpoint


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    folder = checkpoint(tmp_path_factory.mktemp("llama"))
    (folder / "generation_config.json").write_text('{"repetition_penalty": 1.5, "eos_token_id": 2}')
    return load_language_model(folder, eager=True)


@pytest.fixture
def dialogue(model: LanguageModel) -> Dialogue:
    return Dialogue(model, {"max_new_tokens": 3, "repetition_penalty": 1.5}, "be brief")


def test_help_names_every_command(dialogue: Dialogue, capsys: pytest.CaptureFixture[str]) -> None:
    assert dialogue.obey("/help")
    shown = capsys.readouterr().err
    assert all(command in shown for command in ("/help", "/clear", "/system", "/set", "/save FILE", "/bye", '"""'))
    assert not dialogue.obey("/bye")


def test_set_changes_an_option_and_forgets_it_again(dialogue: Dialogue, capsys: pytest.CaptureFixture[str]) -> None:
    dialogue.obey("/set temperature 0.7")
    assert dialogue.choice["do_sample"] and dialogue.choice["temperature"] == 0.7 and dialogue.choice["seed"] >= 0
    dialogue.obey("/set seed 5")
    assert dialogue.choice["seed"] == 5
    dialogue.obey("/set temperature 0")
    assert dialogue.choice == {"max_new_tokens": 3, "repetition_penalty": 1.5, "do_sample": False}
    dialogue.obey("/set repetition-penalty 2")
    dialogue.obey("/set repetition-penalty")  # the checkpoint's
    capsys.readouterr()
    dialogue.obey("/set")
    assert capsys.readouterr().err == "max_new_tokens=3, do_sample=False, repetition_penalty=1.5\n"


def test_clear_and_system_begin_again_and_save_writes_what_was_said(dialogue: Dialogue, tmp_path: Path) -> None:
    list(dialogue.conversation.ask("ab", **dialogue.choice))
    dialogue.obey(f"/save {tmp_path / 'said.json'}")
    roles = [message["role"] for message in json.loads((tmp_path / "said.json").read_text())]
    assert roles == ["system", "user", "assistant"]
    dialogue.obey("/clear")
    assert dialogue.conversation.messages == [{"role": "system", "content": "be brief"}]
    dialogue.obey("/system answer in rhyme")
    assert dialogue.conversation.messages == [{"role": "system", "content": "answer in rhyme"}]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/clera", "there is no command /clera; did you mean /clear"),
        ("/x", "there is no command /x; /help shows them"),
        ("/set temprature 1", "there is no option temprature; did you mean temperature"),
        ("/set top_p 3", "top_p is 3, expected more than 0 and at most 1"),
        ("/set top_p hot", "top_p is 'hot', expected a number"),
        ("/set top_k 2.5", "top_k is 2.5, expected a whole number"),
        ("/set max_new_tokens 0", "max_new_tokens is 0, expected 1 or more"),
        ("/save", "/save needs the name of a file"),
    ],
)
def test_a_wrong_command_says_what_is_wrong_and_changes_nothing(dialogue: Dialogue, line: str, message: str) -> None:
    before = dict(dialogue.choice)
    with pytest.raises(ValueError, match=message):
        dialogue.obey(line)
    assert dialogue.choice == before


def test_lines_between_quotes_are_one_message() -> None:
    lines = ["a", '"""b', "", "c", 'd"""', '"""e"""', "f", '"""g', "h"]
    assert list(joined(iter(lines))) == ["a", "b\n\nc\nd", "e", "f", "g\nh"]


def test_what_is_typed_during_an_answer_is_read_by_the_next_question_and_not_shown() -> None:
    code = (
        "import select, sys; from lucid.cli.terminal import unseen\n"
        "with unseen():\n    print('begin', flush=True); select.select([sys.stdin], [], []); print('end')\n"
        "print('got', input('> '))"
    )
    ours, theirs = pty.openpty()
    streams: Any = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True, **streams) as running:
        os.close(theirs)
        seen = ""
        while "begin" not in seen:
            seen += os.read(ours, 1024).decode()
        os.write(ours, b"ahead\n")
        while "got ahead" not in seen:
            seen += os.read(ours, 1024).decode()
        assert running.wait() == 0
    os.close(ours)
    assert "ahead" not in seen.partition("end")[0]
