"""Chat templates: from a conversation to the text that a model was trained on."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lucid.core.words.safe_text import visible

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

    It is rendered in Jinja's sandbox and in a process of its own, which is ended when it takes too long or too much
    memory: a template is a program, and may be untrusted.

    Args:
        text: the template.
        where: the file that it is from, for messages.
        special_tokens: the tokens that it may name, such as ``{"bos_token": "<s>"}``.
        seconds: how long it may run.
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
        given = {
            "template": self.text,
            "variables": variables,
            "memory": _MEMORY,
            "seconds": math.ceil(self.seconds) + 1,
            "longest": _LONGEST,
        }
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-X", "utf8", str(_PROCESS)],
                input=json.dumps(given),
                capture_output=True,
                encoding="utf-8",
                timeout=self.seconds,
            )
        except subprocess.TimeoutExpired:
            raise self._error(f"did not end within {self.seconds:g} seconds") from None
        if done.returncode:  # Python's report of an error ends with its name and message
            last = done.stderr.strip().splitlines()[-1:] or [f"its process ended with code {done.returncode}"]
            raise self._error(f"fails: {last[0]}")
        answer: dict[str, str] = json.loads(done.stdout)
        for outcome, what in answer.items():
            if outcome != "text":
                raise self._error(f"{outcome}: {what}")
        return answer["text"]

    def _error(self, what: str) -> ChatTemplateError:
        shown = what if len(what) <= _SHOWN else what[:_SHOWN] + "..."
        return ChatTemplateError(f"{self.where}: the chat template {visible(shown)}")
