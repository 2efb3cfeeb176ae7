"""`lucid serve` under load: every answer is checked, and a worker is killed. It prints the figures of docs/reliability.md.

    lucid export FOLDER --for onnxruntime --external-data -o minilm      # a sentence encoder
    python -m tools.serving_load minilm                                  # 20,000 requests of 64 clients: some minutes

The clients are a process of their own on the same machine. Their texts have 3 to 60 words; an answer counts as right if it
is nearer than 1e-4 to the vector that a `Predictor` gives for its own text.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lucid.batch import Predictor
from lucid.core.graph.types import Array

WORDS = [
    "a",
    "cat",
    "sits",
    "on",
    "the",
    "rug",
    "while",
    "rain",
    "falls",
    "and",
    "interest",
    "rates",
    "rise",
    "again",
    "said",
    "bank",
    "of",
    "old",
    "town",
    "near",
    "river",
]


class Load(NamedTuple):
    """What clients saw: seconds of each answer, and how many answers were right, wrong and missing."""

    seconds: Array
    right: int
    wrong: int
    failed: int
    took: float
    longest_gap: float  # without any right answer

    def __str__(self) -> str:
        p50, p95, p99 = 1000 * np.percentile(self.seconds, [50, 95, 99])
        return (
            f"{self.right} right, {self.wrong} wrong, {self.failed} failed; {self.right / self.took:.0f} a second; "
            f"p50 {p50:.0f}, p95 {p95:.0f}, p99 {p99:.0f} ms; longest time without an answer {self.longest_gap:.2f} s"
        )


def texts(count: int) -> list[str]:
    """Different sentences, of 3 to 60 words, most of them short."""
    rng = np.random.default_rng(0)
    lengths = np.minimum(60, 3 + rng.geometric(0.08, count))
    return [" ".join([str(place), *rng.choice(WORDS, length)]) for place, length in enumerate(lengths)]


def ask(port: int, name: str, said: list[str], vectors: Array, clients: int, requests: int) -> Load:
    """So many clients in a closed loop, until so many requests are answered."""
    places = iter(range(requests))
    lock, seconds, ends = threading.Lock(), [], []
    counts = {"right": 0, "wrong": 0, "failed": 0}

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while True:
            with lock:
                place = next(places, None)
            if place is None:
                return
            body = json.dumps({"model": name, "input": said[place % len(said)]})
            start = time.perf_counter()
            try:
                connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
                reply = connection.getresponse()
                data = reply.read()
                verdict = "failed" if reply.status != 200 else "right"
            except (OSError, http.client.HTTPException):
                connection.close()
                verdict = "failed"
            end = time.perf_counter()
            if verdict == "right":
                vector = np.array(json.loads(data)["data"][0]["embedding"], np.float32)
                if np.abs(vector - vectors[place % len(said)]).max() > 1e-4:
                    verdict = "wrong"
            with lock:
                counts[verdict] += 1
                seconds.append(end - start)
                if verdict == "right":
                    ends.append(end)

    start = time.perf_counter()
    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gap = float(np.diff(np.sort(ends)).max(initial=0.0))
    return Load(np.array(seconds), **counts, took=time.perf_counter() - start, longest_gap=gap)


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[int, int]]:
    """The port and the process of a server that answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "lucid", "serve", str(folder), "--name", "served", "--port", str(port), *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            while True:
                assert server.poll() is None, "the server has ended"
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.1)
            yield port, server.pid
        finally:
            server.send_signal(signal.SIGINT)
            server.wait()


def workers(pid: int) -> list[int]:
    """The processes of a server that serve."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    serving = []
    for child in children:
        with suppress(FileNotFoundError):  # it has ended since
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                serving.append(int(child))
    return serving


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tools.serving_load", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--clients", type=int, default=64)
    asked = parser.parse_args()
    sentences = texts(2000)
    vectors = Predictor(asked.folder)({"text": sentences})["embedding"]
    with ProcessPoolExecutor(1, get_context("spawn")) as clients:

        def load(port: int, count: int, requests: int) -> Load:
            return clients.submit(ask, port, "served", sentences, vectors, count, requests).result()

        few = max(1, asked.requests // 10)
        for kind, options in (("batches", []), ("one by one", ["--batch-tokens", "1"])):
            with serving(asked.folder, *options) as (port, _):
                load(port, asked.clients, few)  # warm
                print(f"{kind}, 1 client:  {load(port, 1, few)}")
                requests = asked.requests if kind == "batches" else few * 2
                print(f"{kind}, {asked.clients} clients: {load(port, asked.clients, requests)}")
        with serving(asked.folder, "--workers", "2") as (port, pid):
            while len(workers(pid)) < 2:
                time.sleep(0.1)
            load(port, asked.clients, few)
            going = clients.submit(ask, port, "served", sentences, vectors, asked.clients, asked.requests // 2)
            time.sleep(5)
            first = workers(pid)[0]
            os.kill(first, signal.SIGKILL)
            start = time.perf_counter()
            while len(now := workers(pid)) < 2 or first in now:
                time.sleep(0.01)
            again = time.perf_counter() - start
            print(f"two workers, one killed: {going.result()}; another process after {again:.1f} s")


if __name__ == "__main__":
    main()
