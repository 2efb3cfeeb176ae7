"""transformers.js in headless Chromium loads the folders that are written for it, and gives what NumPy gives."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lucid.generation import Generator
from tests.consumers import chromium
from tests.consumers.folders import TEXTS, WORK, close, computed, eager, exported, tokens

PACKAGES = Path(__file__).parent / "node_modules"
PAGE = """<!doctype html><title>transformers.js</title><script type="module">
import * as transformers from "/node_modules/@huggingface/transformers/dist/transformers.min.js";
transformers.env.allowRemoteModels = false;
transformers.env.allowLocalModels = true;
transformers.env.localModelPath = "/";
transformers.env.backends.onnx.wasm.wasmPaths = "/node_modules/onnxruntime-web/dist/";
window.transformers = transformers;
</script>"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The folders and packages, behind a server of this machine alone."""
    modules = WORK / "node_modules"
    if not modules.is_symlink():
        os.symlink(PACKAGES, modules)
    (WORK / "page.html").write_text(PAGE)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(WORK))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def page(address: str) -> Iterator[Any]:
    with chromium.browser(180) as driver:
        driver.get(f"{address}/page.html")
        yield driver


def evaluate(page: Any, lines: str, *values: Any) -> Any:
    """What lines of JavaScript return, in which `values` is the array of arguments."""
    done = page.execute_async_script(
        "const done = arguments[arguments.length - 1], values = [...arguments].slice(0, -1);"
        "const ready = async () => { while (!window.transformers) await new Promise(r => setTimeout(r, 20)); };"
        f"ready().then(async () => {{ {lines} }}).then(done, error => done({{error: String(error.stack ?? error)}}))",
        *values,
    )
    assert not (isinstance(done, dict) and "error" in done), (done, page.get_log("browser"))
    return done


def test_the_pipeline_of_features_gives_our_embeddings(page: Any) -> None:
    folder = exported("minilm", "transformers.js")
    embeddings = evaluate(
        page,
        "const run = await transformers.pipeline('feature-extraction', values[0], {dtype: 'fp32'});"
        "return (await run(values[1], {pooling: 'mean', normalize: true})).tolist();",
        folder.name,
        TEXTS,
    )
    close(embeddings, computed("minilm", tokens("minilm")))


def test_without_options_the_file_is_the_one_that_the_config_says(page: Any) -> None:
    folder = exported("minilm", "transformers.js", "--bits", "8")
    embeddings = evaluate(
        page,
        "const run = await transformers.pipeline('feature-extraction', values[0]);"
        "return (await run(values[1], {pooling: 'mean', normalize: true})).tolist();",
        folder.name,
        TEXTS,
    )
    assert (np.array(embeddings) * computed("minilm", tokens("minilm"))).sum(1).min() > 0.99


@pytest.mark.parametrize("variant", ["gpt2/base", "llama/llama3"])
def test_decoders_write_our_tokens(page: Any, variant: str) -> None:
    prompt = [5, 9, 3, 11, 7]
    ids = evaluate(
        page,
        "const {AutoModelForCausalLM, Tensor} = transformers;"
        "const model = await AutoModelForCausalLM.from_pretrained(values[0]);"
        "const tensor = numbers => new Tensor('int64', BigInt64Array.from(numbers.map(BigInt)), [1, numbers.length]);"
        "const inputs = {input_ids: tensor(values[1]), attention_mask: tensor(values[1].map(() => 1))};"
        "const ids = await model.generate({...inputs, max_new_tokens: 8, do_sample: false, eos_token_id: -1});"
        "return ids.tolist()[0].map(Number);",
        exported(variant, "transformers.js").name,
        prompt,
    )
    expected = Generator(eager(variant)).generate(np.array([prompt]), max_new_tokens=8)
    assert [ids[len(prompt) :]] == expected.tolist()
