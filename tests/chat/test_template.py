"""Chat templates: the text that transformers makes of a conversation; what a hostile template does is a clear error."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from lucid.generation.chat import ChatTemplate, ChatTemplateError
from lucid.generation.chat import template as template_module
from lucid.generation.chat.template_process import rendered
from tests.models import goldens

CASES = json.loads((goldens.folder("chat_templates") / "cases.json").read_text(encoding="utf-8"))
HELLO = [{"role": "user", "content": "Hello!"}]


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Grows with each process that is started from now on; none is left from before."""
    template_module._RENDERER.end()
    processes: list[Any] = []
    start = template_module._started
    monkeypatch.setattr(template_module, "_started", lambda: processes.append(start()) or processes[-1])
    return processes


@pytest.mark.parametrize("case", CASES["templates"], ids=lambda case: case["name"])
def test_the_text_is_that_of_transformers(case: dict[str, Any]) -> None:
    for conversation, expected in zip(CASES["conversations"], case["results"], strict=True):
        variables = {**CASES["special_tokens"], **conversation, "tools": None, "documents": None}
        result = rendered(case["template"], variables, 10_000)
        if "text" in expected:
            assert result == {"text": expected["text"]}
        else:
            (message,) = result.values()
            assert "text" not in result and message.endswith(expected["error"])


def test_a_template_is_rendered_in_a_process_of_its_own() -> None:
    template = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}{{ add_generation_prompt }}"
    text = ChatTemplate(template, "f.json", {"bos_token": "東"}).render([{"role": "user", "content": "é\ud800\n"}])
    assert text == "東é\ud800\nTrue"  # half of a pair, too, comes back as it was


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


@pytest.mark.usefixtures("starts")
def test_a_process_that_ends_without_an_answer_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As the system ends one that has used up its time after this one is gone."""
    program = tmp_path / "gone.py"
    program.write_text("import os, signal; os.kill(os.getpid(), signal.SIGXCPU)")
    monkeypatch.setattr("lucid.generation.chat.template._PROCESS", program)
    with pytest.raises(ChatTemplateError, match="fails: its process ended with code -24"):
        ChatTemplate("", "f").render(HELLO)


def test_renderings_of_all_threads_use_one_process_in_turn(starts: list[Any]) -> None:
    templates = [ChatTemplate(f"{number} {{{{ messages[0].content }}}}", "f") for number in range(3)]

    def render(number: int) -> str:
        return templates[number % 3].render([{"role": "user", "content": "東" * number}])

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(render, range(30))) == [f"{number % 3} {'東' * number}" for number in range(30)]
    assert len(starts) == 1


@pytest.mark.parametrize(
    ("template", "first", "error", "second", "expected", "processes"),
    [
        ("{{ 10 ** (m.content | int) % 7 }}", "1000000000", "did not end within 0.3 seconds", "2", "2", 2),
        ("{{ 'x' * (m.content | int) }}", "1000000000000", "fails: MemoryError", "3", "xxx", 2),
        ("{{ 6 // (m.content | int) }}", "0", "fails: ZeroDivisionError", "3", "2", 2),
        ("{{ raise_exception('no') if m.content else 'yes' }}", "a", "refuses this conversation: no", "", "yes", 1),
    ],
    ids=["time", "memory", "error", "refusal"],
)
def test_the_rendering_after_an_error_works(
    template: str, first: str, error: str, second: str, expected: str, processes: int, starts: list[Any]
) -> None:
    """What a template fails with ends its process; what it refuses does not."""
    chat_template = ChatTemplate("{% set m = messages[0] %}" + template, "f")
    with pytest.raises(ChatTemplateError, match=f"^f: the chat template {error}"):
        (replace(chat_template, seconds=0.3) if "0.3" in error else chat_template).render(
            [{"role": "user", "content": first}]
        )
    assert chat_template.render([{"role": "user", "content": second}]) == expected
    assert len(starts) == processes


def test_a_process_that_something_else_has_ended_is_replaced(starts: list[Any]) -> None:
    template = ChatTemplate("{{ 1 + 1 }}", "f")
    assert template.render(HELLO) == "2"
    starts[0].kill()
    starts[0].wait()
    assert template.render(HELLO) == "2" and len(starts) == 2


def test_an_interrupt_from_the_terminal_does_not_end_the_process(starts: list[Any]) -> None:
    template = ChatTemplate("{{ 1 + 1 }}", "f")
    assert template.render(HELLO) == "2"
    starts[0].send_signal(signal.SIGINT)
    assert template.render(HELLO) == "2" and len(starts) == 1


def test_an_interrupted_rendering_does_not_answer_the_next(starts: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(process: Any, question: str, seconds: float) -> None:
        process.stdin.write(question + "\n")
        process.stdin.flush()
        raise KeyboardInterrupt

    template = ChatTemplate("{{ messages[0].content }}", "f")
    with monkeypatch.context() as patch:
        patch.setattr(template_module, "_exchanged", interrupted)
        with pytest.raises(KeyboardInterrupt):
            template.render([{"role": "user", "content": "first"}])
    assert template.render([{"role": "user", "content": "second"}]) == "second" and len(starts) == 2


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ seen is defined }}{% set seen = true %}", "False"),
        ("{% set kept = namespace(count=0) %}{% set kept.count = kept.count + 1 %}{{ kept.count }}", "1"),
        ("{% set turn = cycler('a', 'b') %}{{ turn.next() }}", "a"),
        ("{% set seen = {} %}{{ seen | length }}{{ dict.update(seen, a=1) or '' }}", "0"),
        ("{% macro f(seen={}) %}{{ seen | length }}{{ dict.update(seen, a=1) or '' }}{% endmacro %}{{ f() }}", "0"),
        ("{{ secret is defined }}", "False"),
    ],
)
def test_nothing_of_a_rendering_reaches_the_next(template: str, expected: str, starts: list[Any]) -> None:
    ChatTemplate(template, "f", {"secret": "s"}).render(HELLO)
    assert [ChatTemplate(template, "f").render(HELLO) for _ in range(2)] == [expected] * 2
    assert len(starts) == 1


def test_each_rendering_has_all_of_the_memory(starts: list[Any]) -> None:
    """Also where what one used hangs together in a circle, as a macro that calls itself does."""
    big = "{% set big = 'x' * (messages[0].content | int) %}"
    big += "{% macro f(n) %}{{ f(n - 1) if n else big | length }}{% endmacro %}{{ f(1) }}"
    assert [ChatTemplate(big, "f").render([{"content": "300000000"}]) for _ in range(2)] == ["300000000"] * 2
    assert len(starts) == 1


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.append(1) }}",
        "{% set raise_exception.seen = 1 %}",
        "{% set cycler.seen = 1 %}",
        "{{ self._TemplateReference__context.vars.update(seen=1) }}",
        "{{ raise_exception.__globals__.update(seen=1) }}",
    ],
)
def test_a_template_cannot_change_what_is_kept(template: str) -> None:
    with pytest.raises(ChatTemplateError, match="reaches outside its sandbox|non-namespace object"):
        ChatTemplate(template, "f").render(HELLO)


@pytest.mark.parametrize(
    ("n", "seconds", "code", "answers"),
    [(1, 10, 0, '{"text": "2"}\n{"text": "3"}\n'), (10**9, 0.3, -signal.SIGALRM, '{"text": "2"}\n')],
    ids=["its input ends", "its rendering does not"],
)
def test_the_process_ends_when_nobody_is_left_to_end_it(n: int, seconds: float, code: int, answers: str) -> None:
    question = {"template": "{{ 3 ** n % 7 }}", "memory": 1 << 29, "seconds": 10, "longest": 9, "variables": {"n": 2}}
    lines = "".join(json.dumps(q) + "\n" for q in (question, {**question, "seconds": seconds, "variables": {"n": n}}))
    done = subprocess.run([sys.executable, str(template_module._PROCESS)], input=lines, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (code, answers, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_renders_in_a_process_of_its_own() -> None:
    program = """if True:
        import os
        from lucid.generation.chat import template
        renders = template.ChatTemplate("{{ messages[0].content }}", "f").render
        renders([{"content": "before"}])
        first = template._RENDERER._process.pid
        reads, writes = os.pipe()
        child = os.fork()
        text = renders([{"content": "child" if child == 0 else "parent"}])
        if child == 0:
            os.write(writes, f"{text} {template._RENDERER._process.pid != first}".encode())
        else:
            os.waitpid(child, 0)
            print(os.read(reads, 99).decode(), text, template._RENDERER._process.pid == first)
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "child True parent True\n"


@pytest.mark.usefixtures("starts")
def test_the_process_imports_nothing_from_the_working_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "jinja2.py").write_text("raise SystemExit('the wrong jinja2')")
    monkeypatch.chdir(tmp_path)
    assert ChatTemplate("{{ 1 + 1 }}", "f").render(HELLO) == "2"
    assert os.listdir(tmp_path) == ["jinja2.py"]
