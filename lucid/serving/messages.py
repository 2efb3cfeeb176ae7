"""The conversation of a request: its messages, the tools that the model may call, and the calls in an answer."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass, field
from typing import Any

from lucid.files.untrusted import json_value
from lucid.generation.chat.template import Message
from lucid.serving.bodies import Fields, shown, wrong
from lucid.serving.responses import RequestError

_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)  # as Qwen, Hermes, SmolLM3 and others write one
CALLS = "[TOOL_CALLS]"
"""The token of Mistral's models before a list of calls, or before each: ``[TOOL_CALLS]name[ARGS]{...}``."""
_NAMED = re.compile(r"\s*([\w.-]+)\s*(?:\[CALL_ID\]\w*)?\[ARGS\]\s*(.*)", re.DOTALL)
_NONE = {"type": "object", "properties": {}, "additionalProperties": False}
"""The schema of a function without parameters, which takes no arguments."""


def messages_of(body: Fields) -> list[Message]:
    """The messages of a request, as chat templates read them.

    Raises:
        RequestError: for one without content, and calls whose arguments are no object in JSON.
    """
    messages: list[Message] = []
    for place, message in enumerate(body["messages"]):
        where = f"messages[{place}]"
        calls = [
            _called(call["function"], f"{where}.tool_calls[{number}].function")
            for number, call in enumerate(message.get("tool_calls", []))
        ]
        content = message.get("content", "" if calls else None)
        if isinstance(content, list):
            content = "".join(part["text"] for part in content)
        if content is None:
            raise wrong(content, f"{where}.content", "expected a string, or a list of texts")
        role = message["role"]
        entry: dict[str, Any] = {"role": "system" if role == "developer" else role, "content": content}
        if calls:
            entry["tool_calls"] = [{"type": "function", "function": call} for call in calls]
        if "name" in message:
            entry["name"] = message["name"]
        if role == "tool":
            entry["tool_call_id"] = message.get("tool_call_id", "")
        messages.append(entry)
    return messages


def _called(function: Fields, where: str) -> dict[str, Any]:
    """A call of an earlier answer; templates take its arguments as an object."""
    arguments, expected = function.get("arguments", "{}"), "expected an object in JSON, as a string"
    try:
        value = json_value(arguments, standard=True, unique=True)
    except ValueError as error:
        raise wrong(arguments, f"{where}.arguments", f"{expected} ({error})") from None
    if not isinstance(value, dict):
        raise wrong(arguments, f"{where}.arguments", expected)
    return {"name": function["name"], "arguments": value}


@dataclass(frozen=True)
class Tools:
    """The tools of a request."""

    # As the request has them, for the chat template; empty where no tool may be called.
    definitions: list[dict[str, Any]] = field(default_factory=list)
    schemas: dict[str, dict[str, Any]] = field(default_factory=dict)  # of the arguments, by name
    forced: tuple[str, ...] = ()  # the names of which the answer must call one; empty where it may be a text

    @property
    def schema(self) -> dict[str, Any] | None:
        """The JSON schema of a forced call."""
        calls = [
            {
                "type": "object",
                "properties": {"name": {"const": name}, "arguments": {"$ref": f"#/$defs/{place}"}},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
            for place, name in enumerate(self.forced)
        ]
        parts = {str(place): _moved(self.schemas[name], f"#/$defs/{place}") for place, name in enumerate(self.forced)}
        return {"anyOf": calls, "$defs": parts} if calls else None

    def read(self, text: str) -> tuple[str, list[dict[str, Any]]]:
        """The text of an answer without its calls, and the calls as OpenAI's clients read them."""
        if not self.definitions:
            return text, []
        content, *parts = text.split(CALLS)
        if parts:
            parts = [_NAMED.sub(r'{"name": "\1", "arguments": \2}', part) for part in parts]
        elif parts := _CALL.findall(text):
            content = _CALL.sub("", text)
        else:
            content, parts = "", [text]
        calls = [call for part in parts for call in self._calls(part)]
        return (content.strip(), calls) if calls else (text, [])

    def _calls(self, text: str) -> list[dict[str, Any]]:
        try:
            value = json_value(text, standard=True, unique=True)
        except ValueError:
            return []
        calls = []
        for one in value if isinstance(value, list) else [value]:
            arguments = one.get("arguments", one.get("parameters")) if isinstance(one, dict) else None
            name = one.get("name") if isinstance(one, dict) else None
            if not isinstance(arguments, dict) or not isinstance(name, str) or name not in self.schemas:
                return []
            function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
            calls.append({"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function})
        return calls


def _moved(schema: Any, place: str) -> Any:
    """A JSON schema as a part of another one: references to its own parts are moved along."""
    if isinstance(schema, list):
        return [_moved(one, place) for one in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {key: _moved(value, place) for key, value in schema.items()}
    reference = schema.get("$ref")
    return moved | {"$ref": place + reference[1:]} if isinstance(reference, str) and reference[:1] == "#" else moved


def tools_of(body: Fields, template: str) -> Tools:
    """The tools of a request for a model with this chat template.

    Raises:
        RequestError: for a choice of another tool, several of one name, and a template that takes none.
    """
    choice, definitions = body.get("tool_choice", "auto"), body.get("tools", [])
    if choice == "none" or not definitions:
        if choice not in ("none", "auto"):
            raise wrong(choice, "tool_choice", "but the request has no tools; add them")
        return Tools()
    if "tools" not in template:
        raise RequestError("tools are not served: the chat template of this model takes none; leave them out", "tools")
    schemas: dict[str, dict[str, Any]] = {}
    for place, tool in enumerate(definitions):
        name = tool["function"]["name"]
        if name in schemas:
            raise wrong(name, f"tools[{place}].function.name", "which an earlier tool has; give it another name")
        schemas[name] = tool["function"].get("parameters", _NONE)
    if choice == "auto":
        return Tools(definitions, schemas)
    if choice == "required":
        return Tools(definitions, schemas, tuple(schemas))
    name = choice["function"]["name"]
    if name not in schemas:
        raise wrong(choice, "tool_choice", f"expected one of the functions {shown(list(schemas))}")
    return Tools(definitions, schemas, (name,))
