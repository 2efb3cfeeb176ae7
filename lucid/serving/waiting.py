"""Work for a client that ends when the client disconnects or its time is over."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from http import HTTPStatus
from typing import Any, TypeVar

from starlette.requests import Request

from lucid.serving.responses import RequestError

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
