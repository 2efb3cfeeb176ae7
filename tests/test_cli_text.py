"""`lucid generate` and `lucid chat` as a person uses them: text as it comes, messages line by line, Ctrl-C."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import select
import signal
import subprocess
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import lucid
from examples.chat import __main__ as chat
from tests.chat.checkpoints import checkpoint, tokenizer
from tests.console import LUCID, in_process
from tests.models.test_gguf import converted
from tests.waiting import PATIENCE


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of 64 positions, exported to the cache."""
    path = checkpoint(tmp_path_factory.mktemp("llama"))
    with pytest.MonkeyPatch.context() as patched:
        assert in_process(["generate", path, "a", "-n", "1"], patched) == 0
    return path


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """A command in this process, with what it reads: its exit code, what it prints, and what it says on stderr."""

    def run(*arguments: object, read: str | bytes = "") -> tuple[int, str, str]:
        data = read.encode() if isinstance(read, str) else read
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
        code = in_process(arguments, monkeypatch)
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_generate_prints_the_text_and_tells_the_speed_elsewhere(call: Any, folder: Path) -> None:
    code, out, err = call("generate", folder, "abc", "-n", "6")
    assert (code, len(out)) == (0, 7) and out.endswith("\n")
    first, speed = err.strip().split(", then ")
    assert first.startswith("6 tokens, the first after 0.") and speed.endswith(" tokens/s")
    assert call("generate", folder, "abc", "-n", "6", "--eager")[:2] == (0, out)
    assert call("generate", folder, "-", "-n", "6", read="abc")[:2] == (0, out)


def test_generate_as_json(call: Any, folder: Path) -> None:
    code, out, err = call("generate", folder, "abc", "-n", "6", "--json")
    data = json.loads(out)
    assert (code, err, data["prompt_tokens"], data["ended_by"]) == (0, "", 3, "length")
    assert len(data["ids"]) == 6 and tokenizer().decode(data["ids"]) == data["text"]
    assert data["seconds_to_first_token"] > 0 and data["tokens_per_second"] > 0


def test_an_option_for_sampling_draws_and_a_seed_draws_the_same(call: Any, folder: Path) -> None:
    def text(*options: object) -> str:
        shown: str = call("generate", folder, "abc", "-n", "20", *options)[1]
        return shown

    likeliest = text()
    assert text() == text("--temperature", "1e-6", "--seed", "5") == likeliest
    hot = ["--temperature", "4", "--seed", "5"]
    for options in (["--seed", "6"], hot, [*hot, "--top-p", "0.9"], [*hot, "--min-p", "0.01"]):
        assert text(*options) == text(*options) != likeliest
    assert text(*hot, "--top-k", "1") == likeliest
    assert text("--temperature", "4") != text("--temperature", "4")  # without a seed
    assert text("--repetition-penalty", "1.5") != likeliest


def test_an_answer_is_json_of_a_schema_or_a_line_says_that_it_is_cut(call: Any, folder: Path, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"enum": ["abc", "abd"]}')
    vocabulary = checkpoint(tmp_path / "quoted")
    raw = json.loads((vocabulary / "tokenizer.json").read_text(encoding="utf-8"))
    raw["model"]["vocab"]['"'] = raw["model"]["vocab"].pop("<39>")
    (vocabulary / "tokenizer.json").write_text(json.dumps(raw), encoding="utf-8")
    code, out, err = call("generate", vocabulary, "abc", "--json-schema", schema)
    assert code == 0 and json.loads(out) in ("abc", "abd") and "not complete" not in err
    code, out, err = call("generate", vocabulary, "abc", "--json-schema", schema, "-n", "3")
    assert code == 0 and out == '"ab\n' and "the answer is not complete: --max-new-tokens ended it" in err
    assert call("chat", folder, "--regex", "x{3}", read="a\nb\n")[1] == "xxx\nxxx\n"
    grammar = tmp_path / "grammar.lark"
    grammar.write_text('start: "ab" "cd"')
    assert call("generate", folder, "abc", "--grammar", grammar)[1] == "abcd\n"
    schema.write_bytes(b'\xef\xbb\xbf{"enum": ["abc", "abd"]}')  # as some editors of Windows save it
    assert json.loads(call("generate", vocabulary, "abc", "--json-schema", schema)[1]) in ("abc", "abd")
    grammar.write_text('start: "ab" "cd"', encoding="utf-16")
    code, _, err = call("generate", folder, "abc", "--grammar", grammar)
    assert code == 2 and "--grammar " in err and "grammar.lark: is text in UTF-16, expected UTF-8; save it" in err
    schema.write_text('{"enum": ["abc"], "enum": ["abd"]}')
    code, _, err = call("generate", vocabulary, "abc", "--json-schema", schema)
    assert code == 2 and "is not valid JSON: the name 'enum' occurs twice" in err
    schema.write_text("{")
    code, _, err = call("generate", vocabulary, "abc", "--json-schema", schema)
    assert code == 2 and "--json-schema: " in err and "is not valid JSON" in err


def test_a_message_in_another_encoding_is_refused_and_the_others_answered(
    call: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONIOENCODING", raising=False)
    code, out, err = call("chat", folder, "-n", "2", read=b"ab\nK\xe4se\ncd\n")
    assert (code, len(out.splitlines())) == (1, 2)
    assert err.count("give it in UTF-8") == 1
    code, _, err = call("generate", folder, "-", read=b"K\xe4se")
    assert code == 2 and "the text is not valid Unicode" in err


def test_the_options_of_the_checkpoint_are_taken_and_shown(call: Any, folder: Path, tmp_path: Path) -> None:
    path = checkpoint(tmp_path)
    (path / "generation_config.json").write_text('{"do_sample": true, "temperature": 4.0, "eos_token_id": 2}')
    likeliest = call("generate", folder, "abc", "-n", "20")[1]
    for command in (("generate", path, "abc"), ("chat", path)):
        code, _, err = call(*command, "-n", "20", read="abc")
        assert code == 0 and "options of the checkpoint: do_sample=True, temperature=4.0\n" in err
    assert call("generate", path, "abc", "-n", "20")[1] != likeliest
    assert call("generate", path, "abc", "-n", "20", "--temperature", "0")[1] == likeliest
    options = ["--frequency-penalty", "2", "--presence-penalty", "1", "--no-repeat-ngram-size", "1"]
    out = call("generate", path, "abc", "-n", "20", *options, "--min-new-tokens", "20", "--typical-p", "0.9", "--json")[
        1
    ]
    assert len(json.loads(out)["ids"]) == len(set(json.loads(out)["ids"])) == 20


def test_drafts_from_the_prompt_change_no_token(call: Any, folder: Path, tmp_path: Path) -> None:
    path, text = checkpoint(tmp_path), "abcabcabc"
    for options in ([], ["--temperature", "0.8", "--seed", "3"], ["--eager"]):
        asked = ["generate", path, text, "-n", "20", *options]
        assert call(*asked, "--prompt-lookup-num-tokens", "4")[1] == call(*asked)[1]
    assert call("chat", path, "-n", "9", "--prompt-lookup-num-tokens", "4", read="abab\n")[0] == 0
    last = tmp_path / "last"
    last.mkdir()
    lucid.export.to_onnx(lucid.models.load(path), path=last / "model.onnx", cache="fixed", kwargs={"logits_to_keep": 1})
    for file in path.glob("*token*"):
        (last / file.name).write_bytes(file.read_bytes())
    code, _, err = call("generate", last, text, "--prompt-lookup-num-tokens", "4")
    assert code == 2 and "the file gives the logits of the last token alone; export it without logits_to_keep" in err


def test_a_stop_string_is_not_printed(call: Any, folder: Path) -> None:
    whole = call("generate", folder, "abc", "-n", "9")[1]
    assert (
        call("generate", folder, "abc", "-n", "9", "--stop", whole[3:5])[1] == whole[: whole.index(whole[3:5])] + "\n"
    )


def test_chat_answers_each_line(call: Any, folder: Path) -> None:
    code, out, err = call("chat", folder, "-n", "4", read="ab\n\n  \ncd\n")
    assert code == 0 and len(out.splitlines()) == 2
    assert err.count("tokens, the first after") == 2
    alone = call("chat", folder, "-n", "4", read="cd")[1]
    assert out.splitlines()[1] != alone.strip(), "what was said before matters"


def test_chat_tells_the_model_the_system_message_first(call: Any, tmp_path: Path) -> None:
    template = "{% if messages[0].content != 'be brief' %}{{ raise_exception('no system') }}{% endif %}ab"
    path = checkpoint(tmp_path, chat_template=template)
    assert call("chat", path, "-n", "2", "--system", "be brief", read="cd")[0] == 0
    assert "refuses this conversation: no system" in call("chat", path, "-n", "2", read="cd")[2]


def test_chat_says_when_it_forgets(call: Any, folder: Path) -> None:
    code, out, err = call("chat", folder, "-n", "8", read="a" * 20 + "\n" + "b" * 20 + "\n" + "c" * 20 + "\n")
    assert code == 0 and out and err.count("tokens, the first after") == 3
    assert "the conversation exceeds 64 positions: 1 of its messages and their answers are forgotten" in err


def test_a_message_that_cannot_be_answered_is_an_error_and_the_next_one_is_answered(call: Any, folder: Path) -> None:
    code, out, err = call("chat", folder, "-n", "4", read="a" * 70 + "\nab\n")
    assert code == 1 and out and err.count("tokens, the first after") == 1
    assert "lucid: " in err and "the prompt has 73 tokens and the model 64 positions" in err and "Traceback" not in err


def test_what_a_model_writes_does_not_act_on_the_terminal(call: Any, folder: Path, tmp_path: Path) -> None:
    path = checkpoint(tmp_path)
    raw = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))
    raw["decoder"] = {"type": "Replace", "pattern": {"String": "x"}, "content": "\x1b[2J\r\u202e"}
    (path / "tokenizer.json").write_text(json.dumps(raw), encoding="utf-8")
    _, out, _ = call("generate", path, "x", "-n", "2")
    assert out == "\\x1b[2J\\r\\u202e" * 2 + "\n"


def test_make_chat_answers_one_question_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], folder: Path
) -> None:
    monkeypatch.setattr("examples.chat.__main__.checkpoint", lambda: folder)
    monkeypatch.setattr("sys.argv", ["chat", "--max-new-tokens", "3"])
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(SystemExit) as end:
        chat.main()
    question, answer = capfd.readouterr().out.split("\n", 1)
    assert (end.value.code, question) == (0, chat.QUESTION) and answer


# Errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--top-p", "3"], "top_p is 3.0, expected more than 0 and at most 1"),
        (["--temperature", "-1"], "temperature is -1.0, expected at least 1e-6"),
        (["--top-k", "0"], "greater than or equal to 1"),
        (["--repetition-penalty", "nan"], "repetition_penalty is nan, expected a finite number"),
        (["--stop", ""], "stop has an empty string"),
        (["--eager", "--threads", "2"], "--eager runs NumPy: leave out --provider and --threads"),
        (["-n", "0"], "greater than or equal to 1"),
    ],
)
@pytest.mark.parametrize("command", ["generate", "chat"])
def test_a_wrong_option_ends_with_2(command: str, options: list[str], message: str, call: Any, folder: Path) -> None:
    text = ["abc"] if command == "generate" else []
    code, out, err = call(command, folder, *text, *options)
    assert (code, out) == (2, "") and message in err


def test_a_source_that_cannot_be_used_is_a_clear_error(call: Any, tmp_path: Path) -> None:
    gpt2 = checkpoint(tmp_path / "gpt2", "gpt2/base", chat_template=None)
    encoder = checkpoint(tmp_path / "bert", "bert/base")
    gguf = converted("llama/llama2", tmp_path / "llama.gguf")
    hostile = checkpoint(
        tmp_path / "hostile", chat_template="{% for a in range(9) %}{{ a.__class__.__mro__ }}{% endfor %}"
    )
    (tmp_path / "unknown").mkdir()
    (tmp_path / "unknown" / "config.json").write_text('{"model_type": "mamba"}')
    tokenizer().save(str(tmp_path / "unknown" / "tokenizer.json"))
    for arguments, message in [
        (["generate", tmp_path / "unknown", "abc"], "option model_type is 'mamba', torch may read it: "),
        (["generate", encoder, "abc"], "is the checkpoint of a Bert, which does not continue texts"),
        (["generate", gguf, "abc"], "metadata tokenizer.ggml.model is None, supported: gpt2"),
        (["generate", gpt2, ""], "the text is empty, expected at least one token to continue from"),
        (["generate", gpt2, "a" * 30], "the prompt has 30 tokens and the model 24 positions"),
        (["generate", gpt2, "abc", "-n", "50"], "take 53 positions, the model has 24; shorten one of them"),
        (["chat", gpt2], "has no chat template, so the model was not trained on conversations"),
        (["chat", hostile], "reaches outside its sandbox: access to attribute '__class__' of 'int' object is unsafe"),
    ]:
        code, out, err = call(*arguments, read="ab\n")
        expected = 1 if arguments[0] == "chat" else 2  # a conversation goes on after a message that failed
        assert (code, out) == (expected, "") and message in err and "Traceback" not in err, err
        assert len(err.splitlines()) <= 2


@pytest.mark.parametrize(("name", "extra"), [("jinja2", "chat"), ("gguf", "gguf")])
def test_what_is_not_installed_is_said(name: str, extra: str, folder: Path, tmp_path: Path) -> None:
    """In a new process, where the library cannot be found."""
    source = converted("llama/llama2", tmp_path / "llama.gguf") if name == "gguf" else folder
    hide = f"import sys; sys.modules[{name!r}] = None; from lucid.cli.console import main; main()"
    command = [str(LUCID.with_name("python")), "-c", hide, "generate", str(source), "abc"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.endswith(f"pip install 'lucid-onnx[{extra}]'\n"), done.stderr


CTRL_C, CTRL_D = b"\x03", b"\x04"

# Ctrl-C ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported model that writes for minutes."""
    path = checkpoint(tmp_path_factory.mktemp("endless"))
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 10**6, "eos_token_id": None}))
    lucid.export.to_onnx(lucid.models.load(path), path=path / "model.onnx", cache="growing")
    return path


def hear_interrupts() -> None:
    """A shell's background jobs ignore them, and so do the programs that they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def killed_at_last(running: subprocess.Popen[bytes]) -> Iterator[None]:
    """So that a program that does not end fails the test instead of holding it up; a failed test ends it at once."""
    timer = threading.Timer(PATIENCE, running.kill)
    timer.start()
    try:
        yield
    except BaseException:
        running.kill()
        raise
    finally:
        timer.cancel()


def terminal() -> None:
    """Make the standard input the controlling terminal, so that its Ctrl-C is a signal."""
    hear_interrupts()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def keep_output(terminal: int) -> None:
    """Else its Ctrl-C throws away what was written and not yet read."""
    attributes = termios.tcgetattr(terminal)
    attributes[3] |= termios.NOFLSH
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)


def test_ctrl_c_ends_generate(endless: Path) -> None:
    command = [str(LUCID), "generate", str(endless), "abc", "-n", "900000"]
    with (
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=hear_interrupts
        ) as running,
        killed_at_last(running),
    ):
        assert running.stdout is not None and running.stderr is not None
        shown = running.stdout.read(5)
        running.send_signal(signal.SIGINT)
        shown += running.stdout.read()
        assert running.wait() == 130
        assert len(shown) > 5 and shown.endswith(b"\n")
        assert running.stderr.read() == b"lucid: interrupted\n"


def test_ctrl_c_ends_an_answer_and_ctrl_d_the_conversation(endless: Path) -> None:
    """On a terminal."""
    ours, theirs = pty.openpty()
    keep_output(theirs)
    command = [str(LUCID), "chat", str(endless), "-n", "900000"]
    with (
        subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=terminal,
        ) as running,
        killed_at_last(running),
    ):
        os.close(theirs)
        seen = ""

        def wait_for(what: str) -> None:
            nonlocal seen
            while what not in seen:
                seen += os.read(ours, 1 << 16).decode(errors="replace")
            seen = seen.split(what, 1)[1]

        wait_for("> ")
        for _ in range(2):
            os.write(ours, b"ab\n")
            wait_for("ab")
            while len(seen) < 200:
                seen += os.read(ours, 1 << 16).decode(errors="replace")
            os.write(ours, 2 * CTRL_C)  # twice: once more while the first is being handled
            wait_for("interrupted")
            wait_for("> ")
        # Where a message is asked for, it is asked for again. Between showing its prompt and waiting for keys, Python's
        # readline does not hear a signal, for some microseconds: no person is as fast, but this test is.
        for _ in range(2):
            os.write(ours, CTRL_C)
            while not select.select([ours], [], [], 5)[0]:
                os.write(ours, CTRL_C)
            wait_for("> ")
        os.write(ours, CTRL_D)
        assert running.wait() == 0
    os.close(ours)
