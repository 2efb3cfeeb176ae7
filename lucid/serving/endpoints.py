"""A route with its inputs and outputs; all of them together as an OpenAPI description."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lucid.core.version import __version__
from lucid.serving.bodies import Schema, body_of
from lucid.serving.responses import INFERENCE
from lucid.serving.tables import ERROR, INFERENCE_ERROR

_JSON, _BINARY = "application/json", "application/octet-stream"
_PARAMETER = re.compile(r"\{(\w+)(?::path)?\}")


class Endpoint(NamedTuple):
    """A route."""

    path: str  # as Starlette writes it
    answer: Callable[..., Awaitable[Response]]  # called with a request, and with what it holds if it has a table
    about: str  # a line on what it does
    gives: Schema | str | None = None  # the table of answers, or the type of their content; None for no content
    takes: Schema | None = None  # the table of requests, which are then sent by POST
    streams: bool = False  # whether an answer may be a stream of events
    binary: bool = False  # whether tensors may follow the JSON as bytes; then `answer` reads what a request holds

    def route(self) -> Route:
        """The route, which checks requests against the table."""
        if self.takes is None:
            return Route(self.path, self.answer)

        async def checked(request: Request) -> Response:
            assert self.takes is not None
            return await self.answer(request, await body_of(request, self.takes))

        return Route(self.path, self.answer if self.binary else checked, methods=["POST"])


def description(endpoints: Sequence[Endpoint], model: str) -> dict[str, Any]:
    """The OpenAPI description of the routes of a model."""
    paths: dict[str, Any] = {}
    for one in endpoints:
        paths[_PARAMETER.sub(r"{\1}", one.path)] = {"get" if one.takes is None else "post": _operation(one, model)}
    return {"openapi": "3.1.0", "info": {"title": f"{model}, served by Lucid", "version": __version__}, "paths": paths}


def _operation(one: Endpoint, model: str) -> dict[str, Any]:
    names = _PARAMETER.findall(one.path)
    known = {"name": model, "version": "1"}
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"enum": [known[name]]}} for name in names]
    operation: dict[str, Any] = {"summary": one.about, "parameters": parameters}
    if one.takes is not None:
        content = {_JSON: {"schema": _nullable(_of_model(one.takes, model))}}
        if one.binary:
            content[_BINARY] = {"schema": {"type": "string", "format": "binary"}}
        operation["requestBody"] = {"required": True, "content": content}
    error = INFERENCE_ERROR if one.path.startswith(INFERENCE) else ERROR
    operation["responses"] = {
        "200": {"description": "the answer", **_content(one)},
        "default": {"description": "why there is none", "content": {_JSON: {"schema": error}}},
    }
    return operation


def _content(one: Endpoint) -> dict[str, Any]:
    """The content of answers."""
    if one.gives is None:
        return {}
    if isinstance(one.gives, str):
        return {"content": {one.gives: {"schema": {"type": "string"}}}}
    kinds: dict[str, Any] = {_JSON: {"schema": one.gives}}
    if one.streams:
        kinds["text/event-stream"] = {"schema": {"type": "string"}}
    if one.binary:
        kinds[_BINARY] = {"schema": {"type": "string", "format": "binary"}}
    return {"content": kinds}


def _of_model(schema: Schema, model: str) -> Schema:
    """The table of a request for the one model that there is; for another name the answer is 404."""
    properties = schema["properties"]
    return {**schema, "properties": {**properties, "model": {"enum": [model]}}} if "model" in properties else schema


def _nullable(schema: Schema) -> Schema:
    """The table, in which a field that may be left out may also be null."""
    nullable = dict(schema)
    if "properties" in nullable:
        nullable["properties"] = {
            name: each if name in nullable.get("required", ()) else {"anyOf": [each, {"type": "null"}]}
            for name, each in ((name, _nullable(one)) for name, one in nullable["properties"].items())
        }
    if "items" in nullable:
        nullable["items"] = _nullable(nullable["items"])
    if "anyOf" in nullable:
        nullable["anyOf"] = [_nullable(one) for one in nullable["anyOf"]]
    return nullable
