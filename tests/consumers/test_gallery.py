"""The projects of docs/gallery.md do what their pages say: search, a classifier in the browser, a service in Docker."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
import yaml

from examples.browser import __main__ as browser_page
from examples.classifier import __main__ as classifier
from examples.minilm import checkpoint as minilm
from examples.search import __main__ as search
from tests.consumers import chromium
from tests.consumers.folders import WORK, close, computed, tokens
from tests.pages import blocks, difference
from tests.serving.servers import free_port
from tests.waiting import PATIENCE, until

ROOT = Path(__file__).parents[2]
SERVICE = ROOT / "examples" / "service"


# Semantic search ------------------------------------------------------------------------------------------------------


def test_search_prints_what_its_page_shows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["search", "--store", str(WORK / "search")])
    search.main()
    page = blocks(ROOT / "examples" / "search" / "README.md")
    shown = next(block.printed for block in page if block.printed)
    assert difference(shown, capsys.readouterr().out) == ""


def test_search_embeds_what_is_new_and_forgets_what_is_gone(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Bees make honey.\n\nThe train is late.\n")
    embedded: list[str] = []
    embed = search.embedder(WORK / "search" / "minilm")

    def counted(columns: Any) -> Any:
        embedded.extend(columns["text"])
        return embed(columns)

    with duckdb.connect() as database:
        assert search.update(database, tmp_path, counted) == 2
        assert search.update(database, tmp_path, counted) == 0
        (tmp_path / "a.txt").write_text("Bees make honey.\n")
        (tmp_path / "b.md").write_text("Interest rates rose.\n")
        assert search.update(database, tmp_path, counted) == 1
        assert sorted(embedded) == ["Bees make honey.", "Interest rates rose.", "The train is late."]
        results = search.search(database, "insects", embed)
        assert [(file, passage) for _, file, passage in results] == [
            ("a.txt", "Bees make honey."),
            ("b.md", "Interest rates rose."),
        ]
    vectors = computed("minilm", tokens("minilm", ["insects", "Bees make honey."]))
    assert results[0][0] == pytest.approx(vectors[0] @ vectors[1], abs=1e-5)


# A classifier in the browser ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    """The page of the classifier, from the disk and without a network."""
    folder = WORK / "classifier"
    folder.mkdir()
    classifier.build(folder, classifier.HERE / "labelled.csv", browser_page.HERE / "node_modules")
    with chromium.browser(120) as driver:
        offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        driver.execute_cdp_cmd("Network.enable", {})
        driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
        driver.get((folder / "index.html").as_uri())
        yield driver


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("Where is my package?", "delivery"),
        ("You took the money two times", "billing"),
        ("The program stops with a strange message", "technical"),
    ],
)
def test_the_page_gives_a_text_its_label(page: Any, text: str, label: str) -> None:
    page.execute_script(
        "const [typed] = arguments, text = document.getElementById('text');"
        "document.getElementById('answer').replaceChildren();"
        "text.value = typed; text.dispatchEvent(new Event('input'))",
        text,
    )
    shown = _shown(page)
    assert sum(shown.values()) == pytest.approx(100, abs=1)
    assert max(shown, key=shown.__getitem__) == label


def _shown(page: Any) -> dict[str, int]:
    """The percentage of each label, once they are there."""
    end = time.monotonic() + PATIENCE
    while not (lines := page.find_elements("css selector", "#answer p")):
        assert time.monotonic() < end, (page.find_element("id", "answer").text, page.get_log("browser"))
        time.sleep(0.05)
    matches = [re.fullmatch(r"(\w+) (\d+) %", line.text) for line in lines]
    return {match[1]: int(match[2]) for match in matches if match}


# A service in Docker --------------------------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, each with its arguments."""
    text = re.sub(r"^#.*\n", "", (SERVICE / "Dockerfile").read_text(), flags=re.M).replace("\\\n", " ")
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


COMPOSE = yaml.safe_load((SERVICE / "compose.yaml").read_text())["services"]["minilm"]
HEALTH = json.loads(dict(instructions())["HEALTHCHECK"].partition("CMD ")[2])
COMMAND = json.loads(dict(instructions())["CMD"])


def lucid(command: list[str], **replaced: str) -> list[str]:
    """A command of the image, for this machine: other programs and folders."""
    assert command[0] == "lucid"
    return [sys.executable, "-m", "lucid", *(replaced.get(word.strip("/"), word) for word in command[1:])]


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """The port of the service, and its process: it is exported and started by the lines of the Dockerfile."""
    (export,) = (shlex.split(rest) for name, rest in instructions() if name == "RUN" and rest.startswith("lucid "))
    folder = str(WORK / "service")
    subprocess.run(lucid(export, weights=str(minilm()), model=folder), check=True, cwd=WORK)
    port = free_port()
    nowhere = {**os.environ, "HOME": "/nonexistent"}  # in the container nothing can be written
    with subprocess.Popen([*lucid(COMMAND, model=folder), "--port", str(port)], cwd="/", env=nowhere) as server:
        try:
            until(lambda: healthy(port) or server.poll() is not None)
            yield port, server
        finally:
            server.kill()


def healthy(port: int) -> bool:
    """Whether the health check of the Dockerfile passes."""
    assert HEALTH[:2] == ["python", "-c"]
    code = HEALTH[2].replace(":8000/", f":{port}/")
    return subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode == 0


def test_the_service_embeds_within_the_limits_of_its_container(service: tuple[int, subprocess.Popen[bytes]]) -> None:
    port, server = service
    assert healthy(port)
    texts = [f"sentence {number}, " * 40 for number in range(64)]
    body = json.dumps({"model": "minilm", "input": texts}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/embeddings", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        vectors = np.array([one["embedding"] for one in json.load(answer)["data"]])
    close(vectors[:2], computed("minilm", tokens("minilm", texts[:2])))

    status = dict(re.findall(r"(\w+):\s+(\d+)", Path(f"/proc/{server.pid}/status").read_text()))
    assert COMPOSE["mem_limit"] == "1g" and int(status["VmHWM"]) < 1 << 20, "KiB"
    assert int(status["Threads"]) < COMPOSE["pids_limit"]
    assert int(COMMAND[COMMAND.index("--threads") + 1]) == COMPOSE["cpus"]


def test_docker_stops_the_service_in_time(service: tuple[int, subprocess.Popen[bytes]]) -> None:
    port, server = service
    server.send_signal(signal.SIGTERM)
    assert server.wait(int(COMPOSE["stop_grace_period"].removesuffix("s"))) in (0, -signal.SIGTERM)
    assert not healthy(port)


def test_the_image_is_built_from_files_and_extras_that_exist() -> None:
    assert (SERVICE / COMPOSE["build"]["context"]).resolve() == ROOT
    assert ROOT / COMPOSE["build"]["dockerfile"] == SERVICE / "Dockerfile"
    sent = (SERVICE / "Dockerfile.dockerignore").read_text().split()
    assert sent[0] == "*" and all((ROOT / name[1:]).exists() for name in sent if name[0] == "!")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {"pyproject.toml", "setup.py", "lucid", "models", project["readme"], *project["license-files"]}
    assert needed == {name[1:] for name in sent if name[0] == "!"}
    (extras,) = re.findall(r"'/source\[([\w,]+)\]'", (SERVICE / "Dockerfile").read_text())
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    assert dict(instructions())["EXPOSE"] == "8000" and COMPOSE["ports"] == ["127.0.0.1:8000:8000"]
    assert dict(instructions())["USER"] != "root"
