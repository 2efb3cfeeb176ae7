"""The body of a request: JSON, checked against the table (a JSON Schema) that also describes it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, TypeAlias

from starlette.requests import Request

from lucid.core.number_ranges import is_whole
from lucid.core.words.safe_text import cut
from lucid.core.words.suggestions import did_you_mean, near
from lucid.files.untrusted import json_value
from lucid.serving.responses import RequestError

Schema: TypeAlias = Mapping[str, Any]
Fields: TypeAlias = dict[str, Any]
"""The object in a request, without fields that are null."""
_KINDS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "string": (str, "a string"),
    "integer": (int, "a whole number"),
    "number": ((int, float), "a number"),
    "boolean": (bool, "true or false"),
    "array": (list, "a list"),
    "object": (dict, "an object"),
}
_LEAST, _MOST = ("minimum", "minItems", "minLength"), ("maximum", "maxItems")
_LONGEST_NAME = 60  # of a field, for suggestions
EMPTY: Schema = {"enum": [None, False, 0, "", [], {}]}
"""The table of a field that is not served: nothing of a request is left out in silence."""


def checked(value: Any, schema: Schema, where: str) -> Any:
    """A value that fits a table: numbers as floats, objects without the fields that are null.

    Of JSON Schema it knows `type`, `enum`, `minimum`, `exclusiveMinimum`, `maximum`, `items`, `minItems`, `maxItems`,
    `minLength`, `properties`, `required`, `additionalProperties` and `anyOf`; `description` is what was expected.

    Raises:
        RequestError: for a value that does not fit; the message names the field, by `where`, and what was expected.
    """
    if schema is EMPTY:
        if value:
            raise RequestError(f"{where} is not served; leave it out", where)
        return value
    if "anyOf" in schema:
        return _any_of(value, schema, where)
    if "enum" in schema and not any(value == one and _typed(value, {"enum": [one]}) for one in schema["enum"]):
        raise wrong(value, where, f"served: {_listed(schema['enum'])}")
    if schema.get("type") == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON has one kind of numbers: 3.0 is a whole one
    if "type" in schema and not _typed(value, schema):
        raise wrong(value, where, f"expected {_expected(schema)}")
    if not _bounded(value, schema):
        raise wrong(value, where, f"expected {schema.get('description') or _bounds(schema)}")
    kind = schema.get("type")
    if kind == "array":
        if "items" in schema:
            return [checked(one, schema["items"], f"{where}[{place}]") for place, one in enumerate(value)]
    elif kind == "object":
        return _fields(value, schema, where)
    elif kind == "number":
        return float(value)
    return value


def _typed(value: Any, schema: Schema) -> bool:
    """Whether a value has the type of a table, whatever is in it."""
    if "enum" in schema:
        return type(value) in map(type, schema["enum"])
    kind = schema["type"]
    if not isinstance(value, _KINDS[kind][0]) or (isinstance(value, bool) and kind != "boolean"):
        return False
    return kind != "number" or not is_whole(value) or abs(value) <= sys.float_info.max


def _bounded(value: Any, schema: Schema) -> bool:
    """Whether a value of the right type is within the bounds of a table."""
    size = len(value) if isinstance(value, str | list) else value
    least = [schema[name] for name in _LEAST if name in schema]
    most = [schema[name] for name in _MOST if name in schema]
    beyond = "exclusiveMinimum" not in schema or size > schema["exclusiveMinimum"]
    return beyond and all(size >= bound for bound in least) and all(size <= bound for bound in most)


def _bounds(schema: Schema) -> str:
    """The bounds of a table, in words."""
    least, most = (next((schema[name] for name in names if name in schema), None) for names in (_LEAST, _MOST))
    beyond = schema.get("exclusiveMinimum")
    if beyond is not None:
        words = f"more than {beyond}" if most is None else f"more than {beyond} and at most {most}"
    elif least is None:
        words = f"at most {most}"
    else:
        words = f"{least} or more" if most is None else f"{least} to {most}"
    return words + {"array": " items", "string": " characters"}.get(schema["type"], "")


def _any_of(value: Any, schema: Schema, where: str) -> Any:
    """A value that fits one of several tables. One that has the type of a single table gets the error of that table."""
    typed = [one for one in schema["anyOf"] if _typed(value, one)]
    if len(typed) == 1 and isinstance(value, dict | list) and value:
        return checked(value, typed[0], where)
    for one in typed:
        try:
            return checked(value, one, where)
        except RequestError:
            continue
    raise wrong(value, where, f"expected {_expected(schema)}")


def _fields(value: Fields, schema: Schema, where: str) -> Fields:
    """The fields of an object that are there, each checked against its own table."""
    prefix = f"{where}." if where else ""
    others = schema.get("additionalProperties", {})
    fields = {}
    known = schema.get("properties", {})
    for name, one in value.items():
        if name in known:
            if one is not None:
                fields[name] = checked(one, known[name], prefix + name)
        elif others is EMPTY and one:
            raise _unserved(name, value, known, prefix)
        else:
            fields[name] = checked(one, others, prefix + name)
    for name in schema.get("required", ()):
        if name not in fields:
            raise RequestError(f"{prefix}{name} is missing, expected {_expected(known[name])}", prefix + name)
    return fields


def _unserved(name: str, value: Fields, known: Mapping[str, Schema], prefix: str) -> RequestError:
    """The error for a field that an object does not have: one that belongs further in, a misspelled one, or another."""
    if inner := next((outer for outer, table in known.items() if name in table.get("properties", {})), None):
        remedy = f"; put it into {prefix}{inner}"
    else:
        short = name[:_LONGEST_NAME]
        likely = [one for one in near(short, known) if one not in value and known[one] is not EMPTY]
        remedy = did_you_mean(short, likely) or "; leave it out"
    return RequestError(f"{prefix}{name or shown(name)} is not served{remedy}", prefix + name)


def _expected(schema: Schema) -> str:
    """The expectation of a table, in words."""
    if "description" in schema:
        return str(schema["description"])
    return _listed(schema["enum"]) if "enum" in schema else _KINDS[schema["type"]][1]


def _listed(values: list[Any]) -> str:
    *others, last = map(json.dumps, values)
    return f"{', '.join(others)} or {last}" if others else last


def wrong(value: Any, where: str, remedy: str) -> RequestError:
    """The error for a field with a value that cannot be served."""
    return RequestError(f"{where} is {shown(value)}, {remedy}", where)


def shown(value: Any) -> str:
    """The beginning of a value, for messages to who sent it."""
    return cut(json.dumps(value, ensure_ascii=True, default=str), 60)


def parsed(data: bytes, schema: Schema) -> Fields:
    """The object in a body of JSON.

    Raises:
        RequestError: for anything else, and for an object that does not fit the table.
    """
    try:
        value = json_value(data, standard=True, unique=True)
    except ValueError as error:
        raise RequestError(f"the body is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise RequestError(f"the body is {shown(value)}, expected a JSON object")
    return _fields(value, schema, "")


async def body_of(request: Request, schema: Schema) -> Fields:
    """The object that a request holds.

    Raises:
        RequestError: for another type of content, and as `parsed`.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestError(f"the content type is {kind or 'not given'}, expected application/json", status=415)
    return parsed(await request.body(), schema)
