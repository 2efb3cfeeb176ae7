"""How many connections a process accepts: as many as its limit of open files allows, less a reserve."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus

from uvicorn.protocols.http.h11_impl import H11Protocol

from lucid.serving.responses import RequestError, json_bytes, openai_error

if sys.platform != "win32":
    import resource

_QUEUE = 2048  # connections that wait to be accepted, at most
_ROUNDS = 4  # times that a full queue may be accepted before the first of these connections is closed again
_ENOUGH = 10_240  # open files; systems give 256 or 1024 to start with, and more to who asks
_OWN = 256  # open files of the process's own at most: of models, figures, and the processes of chat templates


def _closing(error: RequestError) -> bytes:
    """An answer that ends the connection, without a request that could be read."""
    body = json_bytes({"error": openai_error(error)})
    status = HTTPStatus(error.status)
    later = [b"Retry-After: 1"] if status == HTTPStatus.SERVICE_UNAVAILABLE else []
    return b"\r\n".join(
        [
            b"HTTP/1.1 %d %s" % (status, status.phrase.encode()),
            b"Content-Type: application/json",
            b"Content-Length: %d" % len(body),
            *later,
            b"Connection: close",
            b"",
            body,
        ]
    )


_MANY = RequestError("too many connections are open; try again later", status=HTTPStatus.SERVICE_UNAVAILABLE)
FULL = _closing(_MANY)
"""The answer to a connection beyond the limit."""


@dataclass(frozen=True)
class Room:
    """The room of a process for connections."""

    files: int | None  # how many open files it may have; None for any number
    queue: int = _QUEUE  # how many connections may wait to be accepted
    connections: float = float("inf")  # how many may be open


def ask_for_files() -> None:
    """Raise this process's limit of open files as far as needed and allowed."""
    if sys.platform != "win32":
        files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        target = _ENOUGH if most == resource.RLIM_INFINITY else min(_ENOUGH, most)
        if files != resource.RLIM_INFINITY and files < target:
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, most))


@cache
def room() -> Room:
    """The room of this process, by the files that it may open and has open when it is first asked."""
    if sys.platform == "win32":  # has no limit of this kind
        return Room(None)
    else:
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files == resource.RLIM_INFINITY:
            return Room(None)
        free = max(0, files - len(os.listdir("/dev/fd")))
        queue = min(_QUEUE, max(1, free // 8))
        return Room(files, queue, max(1, free - _ROUNDS * queue - min(_OWN, free // 4)))


class Connection(H11Protocol):
    """A connection of uvicorn's: beyond the limit it is answered with 503 and closed; without a first request it is
    closed after the time that connections may be idle.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Called by asyncio when a client has connected."""
        super().connection_made(transport)
        if len(self.connections) > room().connections:
            _tell_once()
            transport.write(FULL)
            transport.close()
        else:
            self.loop.call_later(self.timeout_keep_alive, self._close_unused)

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn for what is no HTTP request: the answer has the form of the other errors."""
        self.transport.write(_closing(RequestError(f"{msg} Expected HTTP/1.1, without TLS")))
        self.transport.close()

    def _close_unused(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()


@cache
def _tell_once() -> None:
    logging.getLogger("uvicorn.error").warning(
        f"{room().connections} connections are open, as many as {room().files} open files allow; others get 503 "
        "(ulimit -n allows more)"
    )
