"""Chat templates: from a conversation to the text that a model was trained on."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lucid.core.words.safe_text import cut, visible

_PROCESS = Path(__file__).with_name("template_process.py")
_MEMORY = 1 << 29  # bytes
_LONGEST = 1 << 24  # characters of the text
_SHOWN = 300  # characters of a message from a template

Message = Mapping[str, Any]
"""``{"role": "user", "content": "..."}``; the roles are "system", "user" and "assistant", with tools also "tool"."""


class ChatTemplateError(ValueError):
    """A chat template that does not parse, fails, refuses a conversation, or does not end."""


@dataclass(frozen=True)
class ChatTemplate:
    """A template of a checkpoint, in Jinja, with what transformers lets templates use.

    It is rendered in Jinja's sandbox and in another process, which is ended when it takes too long or too much memory:
    a template is a program, and may be untrusted. The process is started by the first rendering and serves the later
    ones, of all templates, in turn; nothing of one reaches the next.

    Args:
        text: the template.
        where: the file that it is from, for messages.
        special_tokens: the tokens that it may name, such as ``{"bos_token": "<s>"}``.
        seconds: how long a rendering may take.
    """

    text: str
    where: str
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 10.0

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """The text of a conversation.

        Args:
            messages: what was said so far, first to last.
            tools: what the model may call, as OpenAI's API and transformers describe it; only some templates read them.
            add_generation_prompt: whether the text ends with what precedes an answer of the assistant.

        Raises:
            ChatTemplateError: if the template does not parse, fails, refuses the conversation, reaches outside its
                sandbox, or takes too long or too much memory.
        """
        variables = {
            **self.special_tokens,
            "messages": [dict(message) for message in messages],
            "tools": None if tools is None else [dict(tool) for tool in tools],
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        request = {
            "template": self.text,
            "variables": variables,
            "memory": _MEMORY,
            "seconds": self.seconds + 1,
            "longest": _LONGEST,
        }
        try:
            answer = _RENDERER.answer(json.dumps(request), self.seconds)
        except TimeoutError:
            raise self._error(f"did not end within {self.seconds:g} seconds") from None
        for outcome, what in answer.items():
            if outcome != "text":
                raise self._error(f"{outcome}: {what}")
        return answer["text"]

    def _error(self, what: str) -> ChatTemplateError:
        return ChatTemplateError(f"{self.where}: the chat template {visible(cut(what, _SHOWN))}")


class _Renderer:
    """The process that renders templates, started when there is none; threads take turns.

    It is ended after a failure, a time-out or an interrupt of this thread: what it still writes must not answer the
    next question.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the process, as after a fork, where the pipes belong to the parent."""
        self._turn = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def answer(self, question: str, seconds: float) -> dict[str, str]:
        """The answer of `template_process.py` to a line, or the reason why it ended, under "fails".

        Raises:
            TimeoutError: if it takes longer than `seconds`.
        """
        with self._turn:
            if self._process is None or self._process.poll() is not None:  # or something else has ended it
                self.end()
                self._process = _started()
            answer = {"fails": ""}
            try:
                answer = _exchanged(self._process, question, seconds)
            finally:
                if "fails" in answer:
                    self.end()
            return answer

    def end(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(OSError), process:  # closing its input writes what it did not read
                pass


def _started() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-X", "utf8", "-W", "ignore", str(_PROCESS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,  # only Python's report of why it does not start: renderings write nothing there
        encoding="utf-8",
        errors="replace",
    )


def _exchanged(process: subprocess.Popen[str], question: str, seconds: float) -> dict[str, str]:
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(seconds, end)  # not every system can wait for a pipe with a limit of time
    timer.start()
    try:
        with suppress(OSError):  # the process has ended; why, it says below
            process.stdin.write(question + "\n")
            process.stdin.flush()
        line = process.stdout.readline()
        if not line.endswith("\n"):  # Python's report of an error ends with its name and message
            last = process.stderr.read().strip().splitlines()[-1:]
            line = json.dumps({"fails": last[0] if last else f"its process ended with code {process.wait()}"})
    finally:
        timer.cancel()
        timer.join()  # from here on it ends nothing
    if late.is_set():
        raise TimeoutError
    answer: dict[str, str] = json.loads(line)
    return answer


_RENDERER = _Renderer()
atexit.register(_RENDERER.end)
if sys.platform != "win32":
    os.register_at_fork(after_in_child=_RENDERER.reset)
