"""The server itself: uvicorn, in this process or in several that share one address."""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.supervisors import Multiprocess

from lucid.core.process.threads import usable_cores
from lucid.serving.app import application
from lucid.serving.connections import Connection, ask_for_files, room
from lucid.serving.guard import LOG, SHARED, Limits

KEY = "LUCID_API_KEY"
"""The variable with the key that clients must send."""
_SETTINGS = "LUCID_SERVING"
_PARALLELISM = "TOKENIZERS_PARALLELISM"  # off: each request has a thread; in a pool short texts wait for long ones
_LOCAL = ("127.0.0.1", "localhost", "::1")
_START = 600  # seconds in which a worker must open the model, to replace another one
_HEADERS = 64 << 10  # the most bytes of a request's headers


@dataclass(frozen=True)
class Settings:
    """The settings of a server."""

    # folder, limits, options: of `application`; the key is in the environment.
    folder: str
    options: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    # host, port: where it listens.
    host: str = "127.0.0.1"
    port: int = 8000
    # Processes, each with the model: one that ends is started again. They share the cores unless `options` has
    # `threads`. External weight files are in memory once.
    workers: int = 1
    access_log: bool = False  # whether it writes a line for each request to stderr

    @property
    def hosts(self) -> list[str]:
        """The values of `Host` that are served: on this machine alone, only names of this machine."""
        return [*_LOCAL, f"[{_LOCAL[-1]}]"] if self.host in _LOCAL else ["*"]


@contextmanager
def bound(host: str, port: int) -> Iterator[list[socket.socket]]:
    """A socket for each address of the host, which does not listen yet: a server that cannot have its address ends
    before it loads a model, and clients are refused until it listens.

    Raises:
        OSError: for a port that is taken or not permitted, or a host that is not an address of this machine.
    """
    sockets: list[socket.socket] = []
    errors: list[OSError] = []
    with ExitStack() as opened:
        with _naming(host, port):
            addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, kind, protocol, _, address in dict.fromkeys(addresses):
                try:
                    sockets.append(opened.enter_context(_bound(family, kind, protocol, address)))
                except OSError as error:
                    errors.append(error)
            # A name such as localhost may also stand for an address of IPv6, which this machine may not have.
            if errors and (not sockets or any(one.errno == errno.EADDRINUSE for one in errors)):
                raise errors[0]
        yield sockets


@contextmanager
def _naming(host: str, port: int) -> Iterator[None]:
    """Errors of sockets name the address, and what to do."""
    try:
        yield
    except (OSError, UnicodeError) as error:  # of a name that no host has
        reason = error.strerror if isinstance(error, OSError) else error
        raise OSError(
            f"cannot listen at {host}, port {port}: {reason}; give another --port or --host, or stop the program that "
            "uses this one"
        ) from error


def _bound(family: int, kind: int, protocol: int, address: Any) -> socket.socket:
    with ExitStack() as opened:
        bound_socket = opened.enter_context(socket.socket(family, kind, protocol))
        if os.name == "posix":  # a port that has only closing connections left is free
            bound_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, True)
        if family == socket.AF_INET6:
            bound_socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, True)
        bound_socket.bind(address)
        opened.pop_all()
    return bound_socket


def make(settings: Settings) -> Starlette:
    """The application of these settings, and its access log; the key is in the environment."""
    if settings.access_log:
        LOG.setLevel(logging.INFO)
        LOG.addHandler(logging.StreamHandler())
    threads = settings.options.get("threads") or max(1, usable_cores() // settings.workers)
    options = {**settings.options, "limits": settings.limits, "hosts": settings.hosts, "threads": threads}
    return application(settings.folder, key=os.environ.get(KEY) or None, **options)


def configured() -> Starlette:
    """The application of a worker, whose settings are in the environment."""
    settings = json.loads(os.environ[_SETTINGS])
    return make(Settings(**settings | {"limits": Limits(**settings["limits"])}))


def serve(
    settings: Settings, app: Starlette | None, sockets: Sequence[socket.socket], announce: Callable[[], None]
) -> None:
    """Serve until SIGINT or SIGTERM; requests that are being served are finished first.

    Args:
        settings: of the server.
        app: `make(settings)`; None for several workers, each of which makes its own.
        sockets: of its address, as `bound` makes them.
        announce: called once the server listens; the first clients may have to wait for workers to open the model.

    Raises:
        OSError: if another program listens there by now.
    """
    ask_for_files()
    os.environ.setdefault(_PARALLELISM, "false")
    options: dict[str, Any] = {
        "log_level": "warning",
        "access_log": False,  # `Guard` writes one that has the time of an answer
        "server_header": False,
        "http": Connection,
        "ws": "none",
        "backlog": room().queue,
        "h11_max_incomplete_event_size": _HEADERS,
        "timeout_keep_alive": 30,
        "timeout_graceful_shutdown": int(settings.limits.seconds) + 1,
    }
    with _naming(settings.host, settings.port):  # another program may listen there meanwhile
        for each in sockets:
            each.listen(room().queue)
    announce()
    if app is not None:
        with suppress(KeyboardInterrupt):  # which uvicorn raises again when it has ended
            uvicorn.Server(uvicorn.Config(app, **options)).run(list(sockets))
        return
    os.environ[_SETTINGS] = json.dumps(asdict(settings))
    with tempfile.TemporaryDirectory(prefix="lucid-serve-") as shared:
        os.environ[SHARED] = shared
        config = uvicorn.Config(f"{__name__}:configured", factory=True, workers=settings.workers, **options)
        _Workers(config, list(sockets)).run()


class _Workers(Multiprocess):
    """uvicorn's supervisor of workers, which starts those again that end, and on SIGHUP replaces all, one by one."""

    def restart_all(self) -> None:
        """Replace the workers; a new one has longer to open the model than one that runs has to answer."""
        usual, self.config.timeout_worker_healthcheck = self.config.timeout_worker_healthcheck, _START
        try:
            super().restart_all()
        finally:
            self.config.timeout_worker_healthcheck = usual
