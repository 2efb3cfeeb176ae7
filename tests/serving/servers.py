"""Servers in threads of the tests' own process, and requests to them over real connections."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import lucid
from lucid.layouts import write_folder
from tests.chat.checkpoints import checkpoint
from tests.waiting import PATIENCE, until


class Reply(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    data: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.data)

    @property
    def message(self) -> str:
        """The message of an error: under /v1 it is in an object with more, under /v2 alone."""
        error = self.json["error"]
        return error if isinstance(error, str) else error["message"]


class Server(NamedTuple):
    """A server that listens."""

    port: int
    app: Any

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """One request; a body that is not bytes is sent as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if data is not None else {}
        connection.request(method, path, data, {**sent, **{k.replace("_", "-"): v for k, v in headers.items()}})
        response = connection.getresponse()
        reply = Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        connection.close()
        return reply

    def figure(self, name: str) -> float:
        """A figure of /metrics."""
        lines = self.ask("GET", "/metrics").data.decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


def free_port() -> int:
    """A port that is free, and is given to no program that asks for any: it is below those that systems give."""
    for port in range(20_000 + os.getpid() % 10_000, 32_000):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


@contextmanager
def served(folder: Path, **options: Any) -> Iterator[Server]:
    """A server for a folder."""
    import uvicorn  # noqa: PLC0415  # an extra

    from lucid.serving.connections import Connection  # noqa: PLC0415  # an extra

    class Prompt(uvicorn.Server):
        """Looks every 5 ms whether it is to end, not every 100."""

        async def main_loop(self) -> None:
            while not await self.on_tick(0):
                await asyncio.sleep(0.005)

    app = lucid.serving.application(folder, threads=1, **options)
    server = Prompt(uvicorn.Config(app, port=0, http=Connection, log_level="error", access_log=False))
    thread = threading.Thread(target=server.run)
    thread.start()
    until(lambda: server.started or not thread.is_alive())
    assert thread.is_alive()
    try:
        yield Server(server.servers[0].sockets[0].getsockname()[1], app)
    finally:
        server.should_exit = True
        thread.join()


def decoder(folder: Path, **options: Any) -> Path:
    """An exported decoder with a chat template; options of `write_folder`."""
    source, target = checkpoint(folder / "checkpoint"), folder / "decoder"
    write_folder(lucid.models.load(source), source, target, layout="onnxruntime", check=False, **options)
    return target
