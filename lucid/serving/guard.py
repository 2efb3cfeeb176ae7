"""The first checks of every request: the key and the limits; and figures about requests, for Prometheus."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import re
import secrets
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lucid.serving.bodies import shown
from lucid.serving.responses import GONE, RequestError, response

OPEN = ("/health", "/v2/health/live", "/v2/health/ready", "/", "/docs")
"""Paths that need no key: for monitoring, and the page, which asks for the key."""
WATCHED = (*OPEN, "/metrics")
"""Paths that are served however many requests there are."""
_PATIENCE = 1.0  # seconds that a body may always take to arrive


class Guard:
    """Refuses requests that exceed the limits before it reads them.

    Args:
        app: what serves the rest.
        limits: of requests.
        metrics: are told of each request.
        key: what clients send as `Authorization: Bearer KEY`; None lets everyone in.
        hosts: the names in `Host` that are served; "*" for all, and "*.example.org" for those that end so.
    """

    def __init__(
        self, app: ASGIApp, limits: Limits, metrics: Metrics, key: str | None, hosts: Sequence[str] = ("*",)
    ) -> None:
        self._app, self._limits, self._metrics = app, limits, metrics
        self._hosts = tuple(host.lower() for host in hosts)
        self._key = None if key is None else f"Bearer {key}".encode()
        self._now = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(receive, send, self._limits)
        unanswered = int(HTTPStatus.INTERNAL_SERVER_ERROR)  # what an error in the app is answered with, outside of here
        self._now += 1
        self._metrics.open.inc()
        try:
            if (refused := self._refused(scope)) is not None:
                await response(scope["path"], refused)(scope, receive, exchange.send)
            else:
                await self._app(scope, exchange.receive, exchange.send)
            unanswered = GONE
        except asyncio.CancelledError:
            unanswered = GONE
            raise
        finally:
            self._now -= 1
            self._metrics.open.dec()
            route = getattr(scope.get("route"), "path", "none")  # of Starlette's router; without one nothing was found
            seconds, status = time.perf_counter() - exchange.start, exchange.status
            if status is None or (unanswered == GONE and not exchange.whole):
                status = unanswered
            self._metrics.requests.labels(route, str(status)).inc()
            self._metrics.seconds.labels(route).observe(seconds)
            if LOG.isEnabledFor(logging.INFO):
                LOG.info(_line(scope, exchange.came, status, exchange.sent, seconds))

    def _refused(self, scope: Scope) -> RequestError | None:
        headers, path = Request(scope).headers, scope["path"]
        host = _HOST.match(headers.get("host", "").lower())
        if not any(name == "*" or _is_host(host and host[1], name) for name in self._hosts):
            return RequestError(
                f"Host is {shown(headers.get('host', ''))}, served: {', '.join(self._hosts)}; a server that is started "
                "with --host serves other names"
            )
        if (
            self._key is not None
            and path not in OPEN
            and not secrets.compare_digest(headers.get("authorization", "").encode(), self._key)
        ):
            return RequestError("the key is missing or wrong: send Authorization: Bearer KEY", status=401)
        if self._now > self._limits.requests and path not in WATCHED:
            return RequestError(
                f"{self._limits.requests} requests are being served, and no more are taken; try again later",
                status=HTTPStatus.SERVICE_UNAVAILABLE,
            )
        if (coding := headers.get("content-encoding", "identity").lower()) != "identity":
            return RequestError(f"the body is compressed ({coding}), which is not read; send it as it is", status=415)
        length = headers.get("content-length", "0")
        if length.isascii() and length.isdigit() and int(length) > self._limits.body:
            return _too_large(int(length), self._limits.body)
        return None


class _Exchange:
    """What an application receives and sends for a request, within the limits.

    Attributes:
        start, came: when the request came, for differences and as a time of day.
        status: of the answer; None before it.
        sent: how many bytes the answer has so far.
        whole: whether it has ended.
    """

    def __init__(self, receive: Receive, send: Send, limits: Limits) -> None:
        self._receive, self._send, self._limits = receive, send, limits
        self.start, self.came = time.perf_counter(), time.localtime()
        self.status: int | None = None
        self.sent, self.whole = 0, False
        self._body, self._coming = 0, True

    async def receive(self) -> Message:
        """The next part of the body, and after the last one that the client has gone.

        Raises:
            RequestError: for a body that is too large, or does not come in time.
        """
        patience = max(self._limits.seconds, _PATIENCE)
        try:  # afterwards the app waits for the client to go, as long as it likes
            left = max(self.start + patience - time.perf_counter(), 0.0)
            message = await (asyncio.wait_for(self._receive(), left) if self._coming else self._receive())
        except TimeoutError as error:
            raise RequestError(
                f"the body did not come within {patience:g} s; send less at a time", status=408
            ) from error
        self._coming = message.get("more_body", False)
        self._body += len(message.get("body", b""))
        if self._body > self._limits.body:
            raise _too_large(self._body, self._limits.body)
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.whole = not message.get("more_body", False)
        self.sent += len(message.get("body", b""))
        await self._send(message)


def _too_large(size: int, most: int) -> RequestError:
    return RequestError(f"the body has {size} bytes or more, at most {most} are read; send less at a time", status=413)


def check_key(key: str, where: str) -> None:
    """Refuse a key that clients cannot send in a header; the message does not show it.

    Raises:
        ValueError: for such a key, which `where` has.
    """
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError(f"{where} holds no key, expected one line of printable ASCII without spaces")


_HOST = re.compile(r"(\[[0-9a-f:.]*\]|[^:]+)(?::\d+)?\Z")  # a name or an address, and perhaps a port


def _is_host(host: str | None, name: str) -> bool:
    return host is not None and (host == name or (name.startswith("*.") and host.endswith(name[1:])))


LOG = logging.getLogger("lucid.serving.access")
"""A line for each request, in the common log format with the seconds at its end, at the level INFO; off by default."""
LOG.setLevel(logging.WARNING)


def _line(scope: Scope, came: time.struct_time, status: int, size: int, seconds: float) -> str:
    """A line of the log: without the query, headers and body."""
    host = (scope.get("client") or ("-",))[0]
    path = quote(scope["path"].encode("utf-8", "surrogateescape"), safe="/:")
    when = time.strftime("%d/%b/%Y:%H:%M:%S %z", came)
    line = f"{scope['method']} {path} HTTP/{scope.get('http_version', '1.1')}"
    return f'{host} - - [{when}] "{line}" {status} {size} {seconds:.3f}'


SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""The variable with the folder where the workers of a server put their figures together."""
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counters of a server: of a request they hold only the route, the status and the sizes."""

    def __init__(self) -> None:
        own = self._registry = CollectorRegistry()
        self.requests = Counter("lucid_requests", "requests answered", ["route", "status"], registry=own)
        self.seconds = Histogram(
            "lucid_request_seconds", "time to the end of the answer", ["route"], buckets=_SECONDS, registry=own
        )
        self.open = Gauge("lucid_open_requests", "requests now", multiprocess_mode="livesum", registry=own)
        self.rows = Histogram("lucid_batch_rows", "rows computed together", buckets=_ROWS, registry=own)
        self.tokens = Counter("lucid_tokens", "tokens read, kept from before, and written", ["kind"], registry=own)
        self.busy = Gauge("lucid_busy_slots", "answers being written", multiprocess_mode="livesum", registry=own)
        self.waiting = Gauge(
            "lucid_waiting_answers", "answers without a slot", multiprocess_mode="livesum", registry=own
        )

    def text(self) -> bytes:
        """All figures, of all workers."""
        if SHARED not in os.environ:
            return generate_latest(self._registry)
        _forget_dead_workers(Path(os.environ[SHARED]))
        shared = CollectorRegistry()
        MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
        return generate_latest(shared)


def _forget_dead_workers(shared: Path) -> None:
    """Remove the last gauges of workers that are gone, such as the number of their open requests."""
    for worker in {int(file.stem.rpartition("_")[2]) for file in shared.glob("gauge_live*_*.db")}:
        try:
            if sys.platform != "win32":  # where it would end the process
                os.kill(worker, 0)
        except ProcessLookupError:
            mark_process_dead(worker)  # type: ignore[no-untyped-call]
        except PermissionError:
            continue  # another user has a process of this number now


@dataclass(frozen=True)
class Limits:
    """Limits of requests; a larger request is refused with a message that names the limit.

    Args:
        body: the most bytes of a request.
        tokens: the most tokens of a request: of all its texts, or of a prompt and its answer.
        seconds: how long a request may wait and be computed. An answer that is being written ends there.
        requests: the most requests at a time; more are refused at once.

    Raises:
        ValueError: for a number that is not above 0, or not finite.
    """

    body: int = 4 << 20
    tokens: int = 32_768
    seconds: float = 60.0
    requests: int = 256

    def __post_init__(self) -> None:
        for field in fields(self):
            number = getattr(self, field.name)
            if not 0 < number < math.inf:
                raise ValueError(f"Limits: {field.name} is {number!r}, expected a finite number above 0")
