"""Chat templates: the text that transformers makes of a conversation; what a hostile template does is a clear error."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from lucid.generation.chat import ChatTemplate, ChatTemplateError
from lucid.generation.chat.template_process import rendered
from tests.models import goldens

CASES = json.loads((goldens.folder("chat_templates") / "cases.json").read_text(encoding="utf-8"))
HELLO = [{"role": "user", "content": "Hello!"}]


@pytest.mark.parametrize("case", CASES["templates"], ids=lambda case: case["name"])
def test_the_text_is_that_of_transformers(case: dict[str, Any]) -> None:
    for conversation, expected in zip(CASES["conversations"], case["results"], strict=True):
        variables = {**CASES["special_tokens"], **conversation, "tools": None, "documents": None}
        found = rendered(case["template"], variables, 10_000)
        if "text" in expected:
            assert found == {"text": expected["text"]}
        else:
            (message,) = found.values()
            assert "text" not in found and message.endswith(expected["error"])


def test_a_template_is_rendered_in_a_process_of_its_own() -> None:
    template = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}{{ add_generation_prompt }}"
    found = ChatTemplate(template, "f.json", {"bos_token": "東"}).render([{"role": "user", "content": "é\ud800\n"}])
    assert found == "東é\ud800\nTrue"  # half of a pair, too, comes back as it was


def test_the_prompt_for_an_answer_can_be_left_out() -> None:
    template = ChatTemplate("{{ add_generation_prompt }}", "f.json")
    assert template.render(HELLO, add_generation_prompt=False) == "False"


def test_the_day_is_known() -> None:
    assert rendered("{{ strftime_now('%Y') }}", {}, 99)["text"] in {str(datetime.now().year + y) for y in (-1, 0)}


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% if %}", "does not parse: line 1: Expected an expression"),
        ("\n{{ 1 +", "does not parse: line 2: unexpected"),
        ("{{ 1 / 0 }}", "fails: ZeroDivisionError: division by zero"),
        ("{{ ''.__class__.__mro__ }}", "reaches outside its sandbox: access to attribute '__class__' of 'str'"),
        ("{{ raise_exception('no tools\x1b[2J') }}", r"refuses this conversation: no tools\\x1b\[2J"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "fails: RecursionError"),
        ("{% for a in range(10 ** 9) %}{% endfor %}", "fails: OverflowError: Range too big"),
        ("{{ 'x' * 10 ** 12 }}", "fails: MemoryError"),
        ("{{ ('%' ~ 10 ** 12 ~ 'd') % 1 }}", "fails: MemoryError"),
        (
            "{% for a in range(99999) %}{{ 'x' * 9999 }}{% endfor %}",
            "fails: it writes more than 16777216 characters",
        ),
        ("{{ lipsum.__globals__['os'].popen('id').read() }}", "reaches outside its sandbox"),
        ("{% include '/etc/passwd' %}", "fails"),
    ],
)
def test_what_is_wrong_is_said_with_the_file(template: str, message: str) -> None:
    with pytest.raises(ChatTemplateError, match=f"^dir/tokenizer_config.json: the chat template {message}") as caught:
        ChatTemplate(template, "dir/tokenizer_config.json").render(HELLO)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{{ 10 ** (10 ** 9) % 7 }}",  # one operation, which nothing inside the process could end
    ],
    ids=["loops", "macros", "one operation"],
)
def test_a_template_without_end_is_ended(template: str) -> None:
    with pytest.raises(ChatTemplateError, match=r"^f: the chat template did not end within 0\.3 seconds$"):
        ChatTemplate(template, "f", seconds=0.3).render(HELLO)


def test_a_process_that_ends_without_an_answer_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As the system ends one that has used up its time after this one is gone."""
    program = tmp_path / "gone.py"
    program.write_text("import os, signal; os.kill(os.getpid(), signal.SIGXCPU)")
    monkeypatch.setattr("lucid.generation.chat.template._PROCESS", program)
    with pytest.raises(ChatTemplateError, match="fails: its process ended with code -24"):
        ChatTemplate("", "f").render(HELLO)


def test_the_process_imports_nothing_from_the_working_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "jinja2.py").write_text("raise SystemExit('the wrong jinja2')")
    monkeypatch.chdir(tmp_path)
    assert ChatTemplate("{{ 1 + 1 }}", "f").render(HELLO) == "2"
    assert os.listdir(tmp_path) == ["jinja2.py"]
