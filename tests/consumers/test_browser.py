"""onnxruntime-web in headless Chromium: the page of `make web` opened from the disk, and other models in its wasm."""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium.webdriver.common.keys import Keys
from tokenizers import Tokenizer, processors

import lucid
from examples.browser import __main__ as browser_page
from examples.minilm import checkpoint as minilm
from examples.minilm import tokenize
from lucid.layouts import write_folder
from lucid.models.bert import SentenceEncoder
from lucid.tracing.inner_outputs import with_outputs
from tests.consumers import chromium
from tests.consumers.folders import TEXTS, WORK, close, computed, eager, sent
from tests.layout_checkpoints import whole

PACKAGES = browser_page.HERE / "node_modules"


@pytest.fixture(scope="module")
def page() -> Path:
    folder = WORK / "web"
    browser_page.build(folder, PACKAGES)
    return folder / "index.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Without a network."""
    with chromium.browser(120) as driver:
        offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        driver.execute_cdp_cmd("Network.enable", {})
        driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
        yield driver


@pytest.fixture(scope="module")
def opened(browser: Any, page: Path) -> Any:
    """The page, from the disk and without a network, once its model is open."""
    browser.get(page.as_uri())
    chromium.wait_until(lambda: " ms" in _status(browser), browser)
    return browser


def test_the_page_shows_the_similarities_that_python_computes(opened: Any) -> None:
    _type(opened, TEXTS)
    cells = opened.find_elements("css selector", "#similarities tbody td")
    shown = np.array([float(cell.text) for cell in cells]).reshape(len(TEXTS), len(TEXTS))
    vectors = computed("minilm", tokenize(minilm(), TEXTS))
    np.testing.assert_allclose(shown, vectors @ vectors.T, atol=0.02)  # 8 bits, and two digits


def test_tokens_vectors_and_attention_are_those_of_the_model_in_numpy(opened: Any) -> None:
    _type(opened, TEXTS)
    encodings = opened.execute_script(
        "return lucidPage.encoded.map(({ids, vector, layers, heads, weight}) => ({ids, vector: [...vector], weights:"
        " [...Array(layers).keys()].map(l => [...Array(heads).keys()].map(h => ids.map((_, i) => ids.map((_, j) =>"
        " weight(l, h, i, j)))))}))"
    )
    inputs = tokenize(minilm(), TEXTS)
    model = with_outputs(lucid.quantize(SentenceEncoder.from_pretrained(minilm()), bits=8), ["attentions"])
    vectors, *layers = (each.numpy() for each in model(**{k: lucid.tensor(v) for k, v in inputs.items()}).values())
    attentions = np.stack(layers, 1)
    for row, text in enumerate(encodings):
        count = int(inputs["attention_mask"][row].sum())
        assert text["ids"] == inputs["input_ids"][row, :count].tolist()
        np.testing.assert_allclose(text["vector"], vectors[row], atol=1e-5)
        np.testing.assert_allclose(text["weights"], attentions[row, ..., :count, :count], atol=1e-4)


def test_a_text_that_is_too_long_is_cut_as_the_checkpoint_says(opened: Any) -> None:
    text = "word " * 400
    _type(opened, [text])
    assert "cut to 256 tokens: 1" in _status(opened)
    (vector,) = opened.execute_script("return lucidPage.encoded.map(({vector}) => [...vector])")
    assert np.dot(vector, computed("minilm", tokenize(minilm(), [text]))[0]) > 0.999


def test_no_sentence_and_many_are_said(opened: Any) -> None:
    _type(opened, [])
    assert _status(opened) == "Type a sentence."
    _type(opened, ["a", "", "  ", *"bcdefghijklmnopqrst"])
    assert "16 sentences" in _status(opened)
    assert "only the first 16 lines are read" in _status(opened)


def test_the_map_is_read_by_keyboard(opened: Any) -> None:
    _type(opened, TEXTS[:1])
    opened.find_element("id", "head").send_keys(Keys.TAB)
    weight = opened.find_element("id", "weight")
    assert weight.text.startswith("[CLS] takes ")
    assert weight.text.endswith(" from [CLS]")
    opened.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    opened.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    assert weight.text.startswith("a takes ")
    assert weight.text.endswith(" from a")
    opened.switch_to.active_element.send_keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT)  # the second one leads nowhere
    assert weight.text.endswith(" from [CLS]")


def test_layers_and_heads_are_chosen(opened: Any) -> None:
    _type(opened, TEXTS[:1])
    shown = set()
    for layer, head in (("0", "mean"), ("5", "mean"), ("5", "11")):
        for name, value in (("layer", layer), ("head", head)):
            opened.find_element("css selector", f"#{name} option[value='{value}']").click()
        shown.add(opened.find_element("id", "map").get_attribute("innerHTML"))
    assert len(shown) == 3


def test_on_a_phone_only_tables_scroll_sideways(opened: Any) -> None:
    _type(opened, TEXTS)
    phone = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    assert opened.execute_script("return document.documentElement.scrollWidth") == 360
    opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_report_is_beside_the_page(opened: Any) -> None:
    frame = opened.find_element("id", "graph")
    opened.execute_script("arguments[0].scrollIntoView()", frame)  # it is loaded when it is first seen
    opened.switch_to.frame(frame)
    chromium.wait_until(lambda: opened.execute_script("return typeof lucidReport === 'object'"), opened)
    assert "MiniLM" in opened.find_element("tag name", "h1").text
    opened.switch_to.default_content()


def test_the_page_learns_two_labels(opened: Any) -> None:
    learn, learnt, answer = (opened.find_element("id", name) for name in ("learn", "learnt", "answer"))
    chromium.wait_until(learn.is_enabled, opened)
    learn.click()
    chromium.wait_until(lambda: "%" in answer.text, opened)
    assert learnt.text.startswith("10 sentences learnt in ")
    losses = opened.execute_script("return lucidLearner.losses")
    assert losses[0] == pytest.approx(np.log(2), abs=1e-6) and losses[-1] < 0.1 * losses[0]
    assert _delivery(answer.text) > 75
    question = opened.find_element("id", "question")
    question.clear()
    question.send_keys("You billed me too much")
    chromium.wait_until(lambda: _delivery(answer.text) < 25, opened)


def test_what_was_learnt_is_there_on_the_next_visit(opened: Any) -> None:
    opened.refresh()
    chromium.wait_until(lambda: "%" in opened.find_element("id", "answer").text, opened)
    assert opened.find_element("id", "learnt").text == "Learnt on an earlier visit."


def test_a_label_without_sentences_is_said(opened: Any) -> None:
    opened.execute_script("document.getElementById('examples-1').value = '  '")
    opened.find_element("id", "learn").click()
    chromium.wait_until(lambda: opened.find_element("id", "learnt").text == "Type sentences for both labels.", opened)


@pytest.mark.parametrize("task", ["text-classification", "token-classification", "fill-mask", "question-answering"])
def test_the_page_of_a_task_answers_as_numpy_does(task: str, browser: Any, tmp_path: Path) -> None:
    source = whole(tmp_path / "source", f"tasks/bert_{task.replace('-', '_')}")
    tokens = source / "tokenizer.json"
    tokens.write_text(tokens.read_text().replace("<|user|>", "[MASK]"))
    tokenizer = Tokenizer.from_file(str(tokens))
    tokenizer.post_processor = processors.TemplateProcessing(
        "<s> $A </s>", "<s> $A </s> $B:1 </s>:1", [("<s>", 1), ("</s>", 2)]
    )
    tokenizer.save(str(tokens))
    model = lucid.models.load(source, task)
    with contextlib.chdir(PACKAGES.parent):
        write_folder(model, source, tmp_path / "page", layout="web", check=False)
    browser.get((tmp_path / "page" / "index.html").as_uri())
    answer = browser.find_element("id", "answer")
    chromium.wait_until(lambda: "Opening" not in answer.text, browser)
    pair = ("b c?", "a bad cab") if task == "question-answering" else ("a [MASK] b",)
    for name, typed in zip(("text", "passage"), pair, strict=False):
        script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
        browser.execute_script(script, browser.find_element("id", name), typed)
    encoded = tokenizer.encode(*pair)
    inputs = {"input_ids": encoded.ids, "attention_mask": encoded.attention_mask, "token_type_ids": encoded.type_ids}
    output = model(**{name: lucid.tensor([ids]) for name, ids in inputs.items()})
    arrays = [np.asarray(each.softmax(1 if task == "question-answering" else -1))[0] for each in _tensors(output)]
    lines = _answers(task, tokenizer, encoded, *arrays)
    chromium.wait_until(lambda: answer.text.split("\n") == lines, browser)
    note = browser.find_element("id", "note")
    assert note.text == ""
    browser.execute_script(script, browser.find_element("id", "text"), "a " * 1000)
    chromium.wait_until(lambda: re.fullmatch(r"The text is cut to \d+ tokens\.", note.text) is not None, browser)


def _tensors(output: Any) -> list[lucid.Tensor]:
    return [output] if isinstance(output, lucid.Tensor) else list(output)


def _answers(task: str, tokenizer: Tokenizer, encoded: Any, shares: np.ndarray, ends: np.ndarray | None = None) -> Any:
    """The lines of a page from probabilities."""
    if task == "text-classification":
        results: list[tuple[str | None, float]] = [(f"LABEL_{i}", share) for i, share in enumerate(shares)]
    elif task == "token-classification":
        results = [
            (f"{token} LABEL_{row.argmax()}", row.max()) for token, row in zip(encoded.tokens, shares, strict=True)
        ]
    elif task == "fill-mask":
        row = shares[encoded.tokens.index("[MASK]")]
        results = [(tokenizer.decode([i]) or tokenizer.id_to_token(i), row[i]) for i in row.argsort()[:-6:-1]]
    else:
        assert ends is not None
        places = range(encoded.type_ids.index(1), len(encoded.ids) - 1)
        first, last = max(
            ((i, j) for i in places for j in places if i <= j), key=lambda at: shares[at[0]] * ends[at[1]]
        )
        results = [(tokenizer.decode(encoded.ids[first : last + 1]), shares[first] * ends[last])]
    return [" ".join(f"{text} {100 * share:.0f} %".split()) for text, share in results]


@pytest.mark.parametrize("target", ["any", "portable"])
@pytest.mark.parametrize(
    "variant", ["gpt2/base", "llama/llama3", "qwen3/base", "gemma3/base", "t5/v1_1", "vit/classifier"]
)
def test_files_give_in_wasm_what_numpy_gives(variant: str, target: str, opened: Any) -> None:
    model = eager(variant)
    rng = np.random.default_rng(0)
    inputs = {
        name: np.full(_shape(spec), 1) if "mask" in name
        else rng.integers(3, 20, _shape(spec)) if spec.dtype == lucid.int64
        else rng.standard_normal(_shape(spec)).astype(np.float32)
        for name, spec in model.input_specs().items()
    }  # fmt: skip
    file = lucid.export.to_onnx(model, target=target).SerializeToString()
    outputs = _run(opened, file, inputs)
    graph = lucid.trace(model)
    expected = dict(zip(graph.output_names, graph.run(list(inputs.values())), strict=True))
    assert outputs.keys() == expected.keys()
    for name, array in expected.items():
        close(outputs[name].reshape(array.shape), array)


def test_nothing_was_logged_as_an_error(opened: Any) -> None:
    assert [entry["message"] for entry in opened.get_log("browser") if entry["level"] == "SEVERE"] == []


def _delivery(answer: str) -> int:
    """The percentage of the first label."""
    match = re.fullmatch(r"delivery (\d+) %, payment \d+ %", answer)
    assert match is not None, answer
    return int(match[1])


def _shape(spec: lucid.TensorType) -> tuple[int, ...]:
    sizes = {"N": 2, "L": 7}
    return tuple(size if isinstance(size, int) else sizes.get(str(size), 5) for size in spec.shape)


def _run(browser: Any, file: bytes, inputs: dict[str, Any]) -> dict[str, Any]:
    """What a file gives in onnxruntime-web, flat, by name."""
    done = browser.execute_async_script(
        "const [file, inputs, done] = arguments;"
        "const bytes = Uint8Array.from(atob(file), c => c.charCodeAt(0));"
        "const made = ({type, data, dims}) => new ort.Tensor(type,"
        " type === 'int64' ? BigInt64Array.from(data.map(BigInt)) : Float32Array.from(data), dims);"
        "ort.InferenceSession.create(bytes, {executionProviders: ['wasm']}).then(async session => {"
        " const found = await session.run(Object.fromEntries(Object.entries(inputs).map(([k, v]) => [k, made(v)])));"
        " done(Object.fromEntries(Object.entries(found).map(([k, v]) => [k, [...v.data].map(Number)])));"
        "}).catch(error => done(String(error)))",
        base64.b64encode(file).decode("ascii"),
        {name: sent(array) for name, array in inputs.items()},
    )
    assert isinstance(done, dict), done
    return {name: np.array(values) for name, values in done.items()}


def _type(browser: Any, lines: list[str]) -> None:
    """Put lines into the page, as a paste does, and wait until they are encoded."""
    browser.execute_async_script(
        "const [text, done] = arguments; lucidPage.typed.value = text; lucidPage.encode().then(done)", "\n".join(lines)
    )


def _status(browser: Any) -> str:
    text: str = browser.find_element("id", "status").text
    return text
