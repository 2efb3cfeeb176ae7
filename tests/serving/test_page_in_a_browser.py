"""The page to try a model, in headless Chromium: its form has the task's fields, and it shows what the API answers."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lucid
from lucid.layouts import write_folder
from tests.batch.folders import exported
from tests.batch.test_retrieval_rows import exported as exported_with_a_module
from tests.layout_checkpoints import whole
from tests.models.test_retrieval import NEW
from tests.serving.servers import Server, decoder, served
from tests.waiting import until

pytest.importorskip("lucid.serving", reason="needs the extra serve", exc_type=ModuleNotFoundError)
pytest.importorskip("selenium.webdriver", reason="needs selenium, which drives the browser")
Image = pytest.importorskip("PIL.Image", reason="needs the extra batch, for images")

from tests.consumers import chromium  # noqa: E402  # it needs selenium

DROP = """
const moved = new DataTransfer(), [name, data] = arguments
if (name) moved.items.add(new File([Uint8Array.from(atob(data), one => one.charCodeAt())], name))
else moved.setData("text", data)
document.body.dispatchEvent(new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer: moved }))
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium.browser(120) as driver:
        yield driver


def opened(browser: Any, server: Server) -> None:
    browser.get(f"http://127.0.0.1:{server.port}/")
    until(lambda: browser.find_elements("css selector", "form button"))


def sent(browser: Any) -> str:
    """What the page shows next of a form that is sent."""
    before = len(browser.find_elements("css selector", "main > *"))
    browser.find_element("css selector", "form button").click()
    until(lambda: browser.find_element("css selector", "form button").text == "Send")
    until(lambda: len(browser.find_elements("css selector", "main > *")) > before)
    text: str = browser.find_elements("css selector", "main > :not(form)")[-1].text
    return text


def results(server: Server, **values: str) -> dict[str, Any]:
    """What the API answers."""
    inputs = [{"name": name, "datatype": "BYTES", "shape": [1], "data": [value]} for name, value in values.items()]
    reply = server.ask("POST", "/v2/models/tiny/infer", {"inputs": inputs})
    return {one["name"]: one["data"] for one in reply.json["outputs"]}


def images(folder: Path, variant: str, task: str) -> Path:
    source, target = whole(folder / "checkpoint", variant), folder / "exported"
    write_folder(lucid.models.load(source, task), source, target, layout="onnxruntime", check=False)
    options = {"image_processor_type": "ViTImageProcessor", "size": {"height": 12, "width": 12}}
    (target / "preprocessor_config.json").write_text(json.dumps(options))
    return target


def picture(path: Path, color: str) -> str:
    """The data URL of an image, which is written too."""
    Image.new("RGB", (20, 10), color).save(path)
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"


def test_images_are_chosen_dropped_or_pasted(browser: Any, tmp_path: Path) -> None:
    red, blue = (picture(tmp_path / f"{color}.png", color) for color in ("red", "blue"))
    (tmp_path / "none.png").write_text("no image")
    with served(images(tmp_path, "vit/classifier", "image-classification"), name="tiny") as server:
        expected = {}
        for url in (red, blue):
            answer = results(server, image=url)
            expected[url] = f"label {answer['label'][0]}\nscore {100 * answer['score'][0]:.1f} %"
        assert expected[red] != expected[blue]
        opened(browser, server)
        file, line = browser.find_elements("css selector", "form input")
        file.send_keys(str(tmp_path / "red.png"))
        assert sent(browser) == expected[red]
        assert browser.find_element("css selector", "main img").get_property("naturalWidth") == 20
        browser.execute_script(DROP, "blue.png", blue.partition(",")[2])
        assert sent(browser) == expected[blue]
        line.send_keys(red)
        assert sent(browser) == expected[red]
        browser.execute_script(DROP, None, blue)
        assert sent(browser) == expected[blue]
        file.send_keys(str(tmp_path / "none.png"))
        assert sent(browser).startswith("image[0]: it is not an image in a supported format: PNG, JPEG")
        (tmp_path / "none.png").write_bytes(bytes(4 << 20))
        file.send_keys(str(tmp_path / "none.png"))
        assert "at most 4194304 are read; send less at a time" in sent(browser)


def test_vectors_are_shortened(browser: Any, tmp_path: Path) -> None:
    with served(images(tmp_path / "clip", "clip/images", "image-feature-extraction"), name="tiny") as server:
        numbers = results(server, image=picture(tmp_path / "red.png", "red"))["embedding"]
        opened(browser, server)
        browser.find_element("css selector", "form input").send_keys(str(tmp_path / "red.png"))
        shown = sent(browser)
    assert shown.startswith("embedding [") and shown.endswith(f", ... {len(numbers)} in all]")
    first = [float(one) for one in shown.removeprefix("embedding [").split(", ")[:6]]
    assert first == pytest.approx(numbers[:6], rel=1e-3)
    kind, options = f"{NEW}.splade_pooling.SpladePooling", {"pooling_strategy": "max"}
    splade = exported_with_a_module(tmp_path / "splade", "tasks/distilbert_fill_mask", kind, options)
    with served(splade, name="tiny") as server:
        opened(browser, server)
        lines = sent(browser).splitlines()
    assert len(lines) == 3 and lines[0].startswith("A cat sits on a rug. indices: [")
    assert all(", values: [" in line and " in all]" in line for line in lines)


def test_a_pair_has_two_fields_and_both_are_needed(browser: Any, tmp_path: Path) -> None:
    with served(exported(tmp_path, "tasks/bert_reranking"), name="tiny") as server:
        (score,) = results(server, text="a", pair="cat")["score"]
        opened(browser, server)
        text, pair = browser.find_elements("css selector", "form textarea")
        assert [one.get_attribute("placeholder") for one in (text, pair)] == ["text", "pair"]
        text.send_keys("a\n")
        assert browser.switch_to.active_element == pair
        pair.send_keys("cat")
        *both, shown = sent(browser).splitlines()
    assert both == ["a", "cat"] and float(shown.removeprefix("score ")) == pytest.approx(score, abs=1e-4)


def test_a_text_has_its_label(browser: Any, tmp_path: Path) -> None:
    with served(exported(tmp_path, "tasks/bert_text_classification"), name="tiny") as server:
        answer = results(server, text="a cat")
        opened(browser, server)
        browser.find_element("css selector", "form textarea").send_keys("a cat")
        assert sent(browser) == f"a cat\nlabel {answer['label'][0]}\nscore {100 * answer['score'][0]:.1f} %"


def test_a_conversation_is_streamed(browser: Any, tmp_path: Path) -> None:
    with served(decoder(tmp_path), name="tiny") as server:
        request = {"model": "tiny", "messages": [{"role": "user", "content": "a cat"}]}
        expected = server.ask("POST", "/v1/chat/completions", request).json["choices"][0]["message"]["content"]
        opened(browser, server)
        browser.find_element("css selector", "form textarea").send_keys("a cat")
        sent(browser)
        user, answer = browser.find_elements("css selector", "main > .said")
        assert (user.text, answer.get_property("textContent")) == ("a cat", expected)
