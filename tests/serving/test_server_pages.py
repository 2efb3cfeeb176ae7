"""Parts of a server next to its answers: a page, a description of its routes, CORS, an access log."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import lucid
from tests.batch.folders import exported
from tests.serving.servers import Server, decoder, served
from tests.waiting import PATIENCE, until

pytest.importorskip("lucid.serving", reason="needs the extra serve", exc_type=ModuleNotFoundError)

CHAT, TEXT, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
ORIGIN = "https://pages.example"
LOG = "lucid.serving.access"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return decoder(tmp_path_factory.mktemp("decoder"))


@pytest.fixture(scope="module")
def server(folder: Path) -> Any:
    with served(folder, name="tiny") as running:
        yield running


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with served(exported(tmp_path_factory.mktemp("sentences"), "sentences/cls"), name="tiny") as running:
        yield running


# The description ------------------------------------------------------------------------------------------------------


def test_every_route_is_described(server: Server) -> None:
    described = server.ask("GET", "/openapi.json").json
    assert described["openapi"] == "3.1.0" and described["info"]["version"] == lucid.__version__
    paths = {route.path_format for route in server.app.routes}
    assert described["paths"].keys() == paths
    assert all(one["summary"] for methods in described["paths"].values() for one in methods.values())


SHORT = {"model": "tiny", "max_tokens": 1}
VALID = {
    CHAT: {**SHORT, "messages": [{"role": "user", "content": "a"}]},
    TEXT: {**SHORT, "prompt": "a"},
    EMBEDDINGS: {"model": "tiny", "input": "a"},
}
ANYTHING = {"anyOf": [{}, {"type": "null"}]}


@pytest.mark.parametrize("path", VALID)
def test_each_field_is_checked_as_it_is_described(path: str, server: Server, sentences: Server) -> None:
    """An object in a list is a value of none; null is as good as none where a field may be left out."""
    target = sentences if path == EMBEDDINGS else server
    content = target.ask("GET", "/openapi.json").json["paths"][path]["post"]["requestBody"]["content"]
    schema = content["application/json"]["schema"]
    for name, field in schema["properties"].items():
        reply = target.ask("POST", path, {**VALID[path], name: [{}]})
        refused = reply.status == 400 and reply.json["error"]["param"].startswith(name)
        assert refused is (field != ANYTHING), (name, reply)
        reply = target.ask("POST", path, {**VALID[path], name: None})
        assert (reply.status == 400) is (name in schema["required"]), (name, reply)
    reply = target.ask("POST", path, {**VALID[path], "unknown": 1})
    assert (reply.status, reply.json["error"]["message"]) == (400, "unknown is not served; leave it out")


def test_numbers_of_json_may_have_a_point(server: Server) -> None:
    reply = server.ask("POST", TEXT, {**VALID[TEXT], "max_tokens": 2.0, "temperature": 0})
    assert reply.json["usage"]["completion_tokens"] == 2
    reply = server.ask("POST", TEXT, {**VALID[TEXT], "max_tokens": 2.5})
    assert reply.json["error"]["message"] == "max_tokens is 2.5, expected a whole number"


def test_a_wrong_path_and_a_wrong_method_say_what_there_is(server: Server) -> None:
    message = server.ask("POST", "/chat/completions").json["error"]["message"]
    assert "\n" not in message
    assert message.startswith("POST /chat/completions: Not Found; 'tiny' is for text-generation, and there are /v1/m")
    assert message.endswith(f"; did you mean {CHAT}?")
    assert server.ask("GET", "/v2/model").json["error"].startswith("GET /v2/model: Not Found; 'tiny' is for text-g")
    reply = server.ask("GET", CHAT)
    assert (reply.status, reply.headers["allow"]) == (405, "POST")
    assert reply.json["error"]["message"] == f"GET {CHAT}: Method Not Allowed; use POST"


def test_a_fault_of_the_server_is_an_error_as_the_others_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with served(folder) as server:
        monkeypatch.setattr("lucid.serving.guard.Metrics.text", lambda metrics: 1 / 0)
        reply = server.ask("GET", "/metrics")
    error = reply.json["error"]
    assert (reply.status, error["type"]) == (500, "server_error")
    assert error["message"] == "the server failed: ZeroDivisionError; its log has the traceback"
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_what_is_no_request_of_http_is_an_error_as_the_others_are(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as client:
        client.sendall(b"\x16\x03\x01\x02\x00\r\n\r\n")  # as TLS begins
        head, body = b"".join(iter(partial(client.recv, 1 << 16), b"")).split(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n")
    assert json.loads(body)["error"]["message"].endswith("Expected HTTP/1.1, without TLS")


# The page -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_the_page_needs_nothing_from_elsewhere_and_no_key(path: str, folder: Path) -> None:
    with served(folder, key="secret") as server:
        reply = server.ask("GET", path)
        assert server.ask("GET", "/openapi.json").status == 401
    assert reply.headers["content-type"].startswith("text/html")
    text = reply.data.decode()
    assert not re.search(r"https?://|\ssrc=|<link|@import|innerHTML", text)
    assert "connect-src 'self'" in reply.headers["content-security-policy"]


# CORS -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "origin",
    [
        *("example.org", "https://example.org/", "https://Example.org", "https://", ""),
        *("https://*.example.org", "https://a@b.org", "https://bücher.de", "https://b.org:443", "http://[::1]:80"),
    ],
)
def test_an_origin_that_no_browser_sends_is_refused(folder: Path, origin: str) -> None:
    with pytest.raises(
        ValueError, match=f"origins: '{re.escape(origin)}', expected an origin as browsers send it, such as https:"
    ):
        lucid.serving.application(folder, origins=[ORIGIN, origin])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batch_tokens": 0}, ValueError, "batch_tokens is 0, expected 1 or more"),
        ({"slots": 1.5}, TypeError, "slots is 1.5, expected a whole number"),
        ({"queue": -5}, ValueError, "queue is -5, expected 0 or more"),
        ({"key": ""}, ValueError, "the argument key holds no key, expected one line of printable ASCII without spaces"),
        ({"hosts": "localhost"}, TypeError, r"hosts is 'localhost', expected a list, as \['localhost'\]"),
        ({"origins": ORIGIN}, TypeError, "origins is 'https://pages.example', expected a list, as"),
    ],
    ids=str,
)
def test_options_of_an_application_are_checked_first(options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{message}"):
        lucid.serving.application("nowhere", **options)


def test_origins_of_every_kind_of_browser_are_taken(folder: Path) -> None:
    origins = [
        *("http://localhost:3000", "http://[::1]:8080", "https://a_b.xn--bcher-kva.de:80", "http://10.0.0.1:443"),
        *("chrome-extension://abc", "tauri://localhost", "null", "*"),
    ]
    assert lucid.serving.application(folder, origins=origins).state.model.task == "text-generation"


def test_pages_of_named_origins_may_ask_and_others_not(folder: Path) -> None:
    with served(folder, name="tiny", key="secret", origins=[ORIGIN]) as server:
        preflight = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "authorization"}
        reply = server.ask("OPTIONS", CHAT, Origin=ORIGIN, **preflight)
        assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, ORIGIN)
        assert "POST" in reply.headers["access-control-allow-methods"]
        assert server.ask("OPTIONS", CHAT, Origin="https://other.example", **preflight).status == 400
        for key, status in (("secret", 200), ("wrong", 401)):  # an error is read too
            reply = server.ask("POST", CHAT, VALID[CHAT], Origin=ORIGIN, Authorization=f"Bearer {key}")
            assert (reply.status, reply.headers["access-control-allow-origin"]) == (status, ORIGIN)
    with served(folder) as server:
        assert "access-control-allow-origin" not in server.ask("GET", "/health", Origin=ORIGIN).headers


# The access log -------------------------------------------------------------------------------------------------------


def test_the_access_log_has_a_line_for_each_request_and_nothing_that_it_holds(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    assert not logging.getLogger(LOG).isEnabledFor(logging.INFO)  # off by default
    with caplog.at_level(logging.INFO, LOG):
        server.ask("POST", TEXT, {**VALID[TEXT], "prompt": "mine"})
        server.ask("GET", "/v1/models?secret=1")
        server.ask("GET", "/a%0Ab%22")
        until(lambda: len(caplog.messages) == 3)  # a line comes after its answer
    pattern = r'127\.0\.0\.1 - - \[\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\] "(.*)" (\d+) \d+ \d+\.\d{3}'
    matches = [re.fullmatch(pattern, line) for line in caplog.messages]
    assert [one and one.groups() for one in matches] == [
        (f"POST {TEXT} HTTP/1.1", "200"),
        ("GET /v1/models HTTP/1.1", "200"),
        ("GET /a%0Ab%22 HTTP/1.1", "404"),
    ]


# Figures of several workers -------------------------------------------------------------------------------------------

_WORKERS = """
import os
from lucid.serving.guard import Metrics
metrics = Metrics()
metrics.open.inc()
if (worker := os.fork()) == 0:
    metrics.open.inc()
    metrics.rows.observe(1)
    os._exit(0)
os.waitpid(worker, 0)
print(metrics.text().decode())
"""


def test_requests_that_a_killed_worker_was_answering_are_not_counted_for_ever(tmp_path: Path) -> None:
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    text = subprocess.run([sys.executable, "-c", _WORKERS], env=environment, check=True, capture_output=True, text=True)
    assert "lucid_open_requests 1.0" in text.stdout.splitlines()
    assert "lucid_batch_rows_count 1.0" in text.stdout.splitlines()  # what it has done stays
