"""What a request holds, read and checked field by field."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, TypeVar

from starlette.requests import Request

from lucid.core.graph.types import is_whole
from lucid.serving.responses import RequestError

T = TypeVar("T")
_NAMES = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


class Body:
    """The object that a request holds."""

    def __init__(self, values: Mapping[str, Any], where: str = "") -> None:
        """`where` begins the names of fields in messages: "messages[0].", for example."""
        self._values, self._where = values, where

    def has(self, name: str) -> bool:
        """Whether a field is there and not null."""
        return self._values.get(name) is not None

    def any(self, name: str) -> Any:
        """A field of any type; None if it is absent."""
        return self._values.get(name)

    def get(self, name: str, kind: type[T], default: T | None = None) -> T:
        """A field of a type; the default if it is absent.

        Raises:
            RequestError: if it has another type, or is absent and has no default.
        """
        value = self._values.get(name)
        if value is None:
            if default is None:
                raise RequestError(f"{self._where}{name} is missing, expected {_NAMES[kind]}", self._where + name)
            return default
        if kind is float and is_whole(value) and abs(value) <= sys.float_info.max:
            value = float(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.wrong(name, f"expected {_NAMES[kind]}")
        return value

    def section(self, name: str) -> Body:
        """The object in a field; an empty one if it is absent."""
        return Body(self.get(name, dict, {}), f"{self._where}{name}.")

    def sections(self, name: str, default: list[Any] | None = None) -> list[Body]:
        """The objects of a list; the default if it is absent."""
        found = self.get(name, list, default)
        for place, one in enumerate(found):
            if not isinstance(one, dict):
                raise RequestError(f"{self._where}{name}[{place}] is {shown(one)}, expected an object", name)
        return [Body(one, f"{self._where}{name}[{place}].") for place, one in enumerate(found)]

    def wrong(self, name: str, remedy: str) -> RequestError:
        """The error for a field with a value that cannot be served."""
        return RequestError(f"{self._where}{name} is {shown(self._values.get(name))}, {remedy}", self._where + name)

    def refuse_others(self, *names: str) -> None:
        """Refuse fields other than these, unless they are empty: what is not served is never left out in silence."""
        for name, value in self._values.items():
            if name not in names and value:
                raise RequestError(f"{self._where}{name} is not served; leave it out", self._where + name)

    def only(self, name: str, *values: Any) -> None:
        """Require that a field, if it is there, has one of these values."""
        value = self._values.get(name)
        if value is not None and not any(value == one and type(value) is type(one) for one in values):
            raise self.wrong(name, f"served: {' or '.join(json.dumps(one) for one in values)}; leave it out")


def shown(value: Any) -> str:
    """The beginning of a value, for messages to who sent it."""
    text = json.dumps(value, ensure_ascii=True, default=str)
    return text if len(text) <= 60 else f"{text[:60]}..."


def parsed(data: bytes) -> Body:
    """The object in a body of JSON.

    Raises:
        RequestError: for anything else.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise RequestError(f"the body is {shown(value)}, expected a JSON object")
    return Body(value)


async def body_of(request: Request) -> Body:
    """The object that a request holds.

    Raises:
        RequestError: for another type of content, or a body that is no JSON object.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestError(f"the content type is {kind or 'not given'}, expected application/json", status=415)
    return parsed(await request.body())
