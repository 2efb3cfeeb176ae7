"""Answers in JSON, and errors in the form that the clients of a route read."""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse

from lucid.core.words.safe_text import encodable

INFERENCE = "/v2"
"""Where the routes of the Open Inference Protocol begin."""


class RequestError(Exception):
    """Why a request is not served.

    Attributes:
        status: of the response.
        message: what came, what was expected and what to do.
        field: the field of the request that is wrong.
    """

    def __init__(self, message: str, field: str | None = None, status: int = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(message)
        self.message, self.field, self.status = message, field, int(status)


def response(path: str, error: RequestError) -> JsonAnswer:
    """The answer that clients of a route read: as OpenAI writes errors, or as the Open Inference Protocol does."""
    headers = {"Retry-After": "1"} if error.status == HTTPStatus.SERVICE_UNAVAILABLE else None
    if path == INFERENCE or path.startswith(f"{INFERENCE}/"):
        return JsonAnswer({"error": error.message}, error.status, headers)
    return JsonAnswer({"error": told(error)}, error.status, headers)


def told(error: RequestError) -> dict[str, str | None]:
    """An error as OpenAI's clients read it."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    return {"message": error.message, "type": kind, "param": error.field, "code": None}


_HALVES = re.compile("[\ud800-\udfff]")


def json_bytes(content: Any, allow_nan: bool = False) -> bytes:
    """JSON that every client reads: half of a surrogate pair, which is no text, is shown by its escape."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=allow_nan, separators=(",", ":"))
    return _HALVES.sub(lambda half: encodable(half[0]).replace("\\", "\\\\"), text).encode()


class JsonAnswer(JSONResponse):
    """An answer in JSON, as `json_bytes` writes it."""

    def render(self, content: Any) -> bytes:
        """The bytes of the answer."""
        return json_bytes(content)
