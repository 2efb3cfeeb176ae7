"""Answers: in JSON, errors in the form that the clients of a route read, and work that ends with its client."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Coroutine, Mapping
from http import HTTPStatus
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse

from lucid.core.words.safe_text import cut, encodable

INFERENCE = "/v2"
"""The first part of the routes of the Open Inference Protocol."""


_LONGEST = 2000  # characters of a message


class RequestError(Exception):
    """Why a request is not served.

    Attributes:
        status: of the response.
        message: what came, what was expected and what to do; its middle is cut out where it repeats long names.
        field: the field of the request that is wrong.
    """

    def __init__(self, message: str, field: str | None = None, status: int = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(message)
        if len(message) > _LONGEST:
            message = f"{message[: _LONGEST // 2]}...{message[-_LONGEST // 2 :]}"
        self.message, self.field, self.status = message, field and cut(field), int(status)


UNPROCESSABLE = 422
"""The status where the model makes NaN of a valid request: it would again, while clients try again after a 500."""
_LATER = HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS


def response(path: str, error: RequestError, headers: Mapping[str, str] | None = None) -> JsonAnswer:
    """The answer that clients of a route read: as OpenAI writes errors, or as the Open Inference Protocol does."""
    headers = {"Retry-After": "1"} if error.status in _LATER else headers
    if path == INFERENCE or path.startswith(f"{INFERENCE}/"):
        return JsonAnswer({"error": error.message}, error.status, headers)
    return JsonAnswer({"error": openai_error(error)}, error.status, headers)


def openai_error(error: RequestError) -> dict[str, str | None]:
    """An error as OpenAI's clients read it."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    return {"message": error.message, "type": kind, "param": error.field, "code": None}


_HALVES = re.compile("[\ud800-\udfff]")


def json_bytes(content: Any) -> bytes:
    """JSON that every client reads: half of a surrogate pair, which is no text, is shown by its escape."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _HALVES.sub(lambda half: encodable(half[0]).replace("\\", "\\\\"), text).encode()


class JsonAnswer(JSONResponse):
    """An answer in JSON, as `json_bytes` writes it."""

    def render(self, content: Any) -> bytes:
        """The bytes of the answer."""
        return json_bytes(content)


T = TypeVar("T")
GONE = 499
"""The status of a request whose client has disconnected, for logs and figures; nobody receives it."""


async def while_wanted(request: Request, work: Coroutine[Any, Any, T], seconds: float) -> T:
    """The result of the work.

    Raises:
        RequestError: if the client disconnected, or the work took too long.
    """
    doing, going = asyncio.create_task(work), asyncio.create_task(_gone(request))
    try:
        await asyncio.wait({doing, going}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        if going.done():
            raise RequestError("the client has gone", status=GONE)
        raise RequestError(
            f"the answer took longer than {seconds:g} s; try again later, or send less at a time",
            status=HTTPStatus.SERVICE_UNAVAILABLE,
        )
    finally:
        doing.cancel()
        going.cancel()


async def _gone(request: Request) -> None:
    """Wait until the client has gone. The body has been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
