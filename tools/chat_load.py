"""Many clients of a served decoder at once: each answer is compared with the one that is given to its request alone.

    python -m tools.chat_load                      # 20,000 requests of 64 clients: some minutes
    python -m tools.chat_load --seconds 60         # as many of them as take a minute

Conversations of one to five turns with options of all kinds, whole and as streams, several answers at once, and clients that go
away, to a small decoder of the goldens in 8 slots. The clients are threads of the server's process. It prints a line of counts.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lucid
from lucid.layouts import write_folder
from tests.chat.checkpoints import checkpoint
from tests.serving.servers import Server, served

CLIENTS, CONVERSATIONS, POSITIONS = 64, 300, 4096
GONE, STREAMED = 0.05, 0.2  # shares of requests
WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "and",
    "saw",
    "one",
    "big",
    "red",
    "dog",
    "run",
    "over",
    "hills",
    "when",
    "rain",
    "came",
    "down",
]
OPTIONS: list[tuple[float, dict[str, Any]]] = [
    (0.3, {"top_p": 0.9}),
    (0.2, {"top_k": 5}),
    (0.2, {"repetition_penalty": 1.3}),
    (0.2, {"frequency_penalty": 0.5}),
    (0.2, {"logit_bias": {"9": 2.5}}),
    (0.2, {"stop": ["e", "th"]}),
    (0.2, {"prompt_lookup_num_tokens": 4}),
    (0.1, {"regex": "[a-m ]{3,30}"}),
    (0.1, {"n": 2}),
    (0.2, {"logprobs": True}),
]


def requests(draw: random.Random) -> Iterator[dict[str, Any]]:
    """Conversations and options."""
    for _ in range(CONVERSATIONS):
        roles = ("user", "assistant", "user", "assistant", "user")[: draw.choice([1, 1, 1, 3, 5])]
        texts = [" ".join(draw.choices(WORDS, k=draw.choice([1, 3, 8, 20]))) for _ in roles]
        asked: dict[str, Any] = {
            "messages": [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
        }
        asked |= {
            "max_tokens": draw.choice([1, 3, 8, 20, 40]),
            "temperature": draw.choice([0, 0, 0.7, 1.3]),
            "seed": draw.randrange(9),
        }
        for share, option in OPTIONS:
            asked |= option if draw.random() < share else {}
        yield {"model": "decoder", **asked}


class Client:
    """A connection, which is opened again after an error."""

    def __init__(self, server: Server) -> None:
        self._port = server.port
        self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=600)

    def ask(self, asked: dict[str, Any]) -> http.client.HTTPResponse:
        """The response, not yet read."""
        try:
            self._connection.request(
                "POST", "/v1/chat/completions", json.dumps(asked), {"Content-Type": "application/json"}
            )
            return self._connection.getresponse()
        except OSError:
            self.leave()
            raise

    def leave(self) -> None:
        """Close the connection, whatever is still to come; the next request opens another one."""
        self._connection.close()


def answers(client: Client, asked: dict[str, Any]) -> list[Any]:
    """What is answered: text, end and tokens of each choice.

    Raises:
        ValueError: for a status of an error.
    """
    reply = client.ask(asked)
    body = json.loads(reply.read())
    if reply.status != 200:
        raise ValueError(f"{reply.status}: {body}")
    tokens = [
        [one["token"] for one in (choice["logprobs"] or {"content": []})["content"]] for choice in body["choices"]
    ]
    return [
        (choice["message"]["content"], choice["finish_reason"], all_)
        for choice, all_ in zip(body["choices"], tokens, strict=True)
    ]


def streamed(client: Client, asked: dict[str, Any]) -> list[str]:
    """The texts of a stream."""
    lines = client.ask({**asked, "stream": True}).read().decode().split("\n\n")
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line and line != "data: [DONE]"]
    texts = [""] * asked.get("n", 1)
    for choice in (
        choice for event in events for choice in event["choices"]
    ):  # an event of an error has none: KeyError
        texts[choice["index"]] += choice["delta"].get("content", "")
    return texts


def load(folder: Path, pool: list[dict[str, Any]], alone: list[list[Any]], count: int, seconds: float) -> Counter[str]:
    """Ask as many requests as fit, and count what came of them."""
    counts: Counter[str] = Counter()
    todo, lock, end = iter(range(count)), threading.Lock(), time.monotonic() + seconds

    def ask(number: int) -> None:
        draw, client = random.Random(number), Client(server)
        while time.monotonic() < end:
            with lock:
                if next(todo, None) is None:
                    return
            place, how = draw.randrange(len(pool)), draw.random()
            texts = [text for text, _, _ in alone[place]]
            try:
                if how < GONE:
                    client.ask({**pool[place], "stream": True}).read(draw.choice([1, 50, 300]))
                    client.leave()
                    outcome = "left"
                elif how < GONE + STREAMED:
                    outcome = "equal, streamed" if streamed(client, pool[place]) == texts else "different"
                else:
                    outcome = "equal" if answers(client, pool[place]) == alone[place] else "different"
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                client.leave()
                outcome = f"failed: {error!r:.80}"
            with lock:
                counts[outcome] += 1

    with served(folder, slots=8, queue=200) as server:
        clients = [threading.Thread(target=ask, args=(number,)) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        time.sleep(1)
        assert server.figure("lucid_busy_slots") == server.figure("lucid_waiting_answers") == 0
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=7200)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lucid-chat-load-") as work:
        source, folder = checkpoint(Path(work, "checkpoint")), Path(work, "decoder")
        config = json.loads((source / "config.json").read_text())
        (source / "config.json").write_text(json.dumps({**config, "max_position_embeddings": POSITIONS}))
        write_folder(lucid.models.load(source), source, folder, layout="onnxruntime", check=False, cache="fixed")
        pool = list(requests(random.Random(0)))
        with served(folder, slots=1) as server:
            alone = [answers(Client(server), one) for one in pool]
        start = time.monotonic()
        counts = load(folder, pool, alone, asked.requests, asked.seconds)
        seconds = time.monotonic() - start
    print(f"{counts.total():,} requests of {CLIENTS} clients in {seconds:.0f} s: {dict(counts)}")
    return int(any(name == "different" or name.startswith("failed") for name in counts))


if __name__ == "__main__":
    sys.exit(main())
