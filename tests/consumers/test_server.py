"""OpenAI's and Triton's own clients ask a running `lucid serve`, and get what NumPy computes."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import openai
import pytest
import tritonclient.http as triton

import lucid
from lucid.generation.chat import load_language_model
from tests.consumers.folders import TEXTS, WORK, close, computed, exported, tokens
from tests.serving.servers import free_port
from tests.waiting import PATIENCE, until
from tools.serving_load import workers

KEY = "a-key"


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[int, int]]:
    """The port of a server in a process of its own, and its number."""
    port = free_port()
    command = [sys.executable, "-m", "lucid", "serve", folder.name, "--name", "served", "--port", str(port), *options]
    with subprocess.Popen(command, cwd=WORK, env={**os.environ, "LUCID_API_KEY": KEY}) as server:
        try:
            _wait_for(port, server)
            yield port, server.pid
        finally:
            server.send_signal(signal.SIGINT)
            assert server.wait(PATIENCE) in (0, 130, -signal.SIGINT)


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + PATIENCE
    while server.poll() is None and time.monotonic() < end:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the server does not answer")


def client(port: int, key: str = KEY) -> openai.OpenAI:
    """To be closed: `with client(port) as asked`."""
    return openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key, max_retries=0)


@pytest.fixture(scope="module")
def embeddings() -> Iterator[int]:
    with serving(exported("minilm", "onnxruntime", "--external-data")) as (port, _):
        yield port


@pytest.fixture(scope="module")
def chat() -> Iterator[int]:
    with serving(exported("smollm2", "onnxruntime")) as (port, _):
        yield port


def test_openai_lists_the_model_and_embeds_texts(embeddings: int) -> None:
    with client(embeddings) as api:
        assert [model.id for model in api.models.list()] == ["served"]
        response = api.embeddings.create(model="served", input=TEXTS)  # in base64, as this client asks for them
        close([one.embedding for one in response.data], computed("minilm", tokens("minilm")))
        floats = api.embeddings.create(model="served", input=TEXTS[0], encoding_format="float")
        close(floats.data[0].embedding, computed("minilm", tokens("minilm", TEXTS[:1]))[0])


def test_openai_reads_our_errors(embeddings: int) -> None:
    with client(embeddings) as api, client(embeddings, "wrong") as stranger:
        with pytest.raises(openai.BadRequestError, match=r"input\[1\]: the text is empty"):
            api.embeddings.create(model="served", input=["a", ""])
        with pytest.raises(openai.NotFoundError, match="there is no model 'other'"):
            api.embeddings.create(model="other", input="a")
        with pytest.raises(openai.AuthenticationError, match="the key is missing or wrong"):
            stranger.models.list()


def test_openai_reads_that_the_server_is_busy_and_tries_again() -> None:
    """503 with Retry-After, as the client expects it: by default it asks again, and is served."""
    folder = exported("minilm", "onnxruntime", "--external-data")
    texts = ["a sentence of some length, again and again " * 8] * 64
    with serving(folder, "--max-requests", "1") as (port, _), client(port) as api, ThreadPoolExecutor(4) as clients:
        requests = [clients.submit(api.embeddings.create, model="served", input=texts) for _ in range(4)]
        failed = [one.exception() for one in requests if one.exception() is not None]
        assert failed
        for error in failed:
            assert isinstance(error, openai.InternalServerError)
            assert error.status_code == 503
            assert error.response.headers["retry-after"] == "1"
            assert error.type == "server_error"
            assert "1 requests are being served, and no more are taken" in error.message
        patient = api.with_options(max_retries=20)
        again = [clients.submit(patient.embeddings.create, model="served", input=texts[:8]) for _ in range(4)]
        assert [len(one.result().data) for one in again] == [8] * 4


def test_openai_chats_whole_and_as_a_stream(chat: int) -> None:
    with client(chat) as opened:
        completions = opened.chat.completions
        question = [{"role": "user", "content": "What is the capital of France?"}]
        options = {"model": "served", "messages": question, "temperature": 0, "max_tokens": 12}
        whole = completions.create(**options)
        model = load_language_model(exported("smollm2", "onnxruntime"))
        expected = "".join(model.answer(model.tokenizer.encode_chat(question), max_new_tokens=12))
        assert whole.choices[0].message.content == expected
        stream = completions.create(**options, stream=True, stream_options={"include_usage": True})
        events = list(stream)
        text = "".join(event.choices[0].delta.content or "" for event in events if event.choices)
        assert text == whole.choices[0].message.content
        again, first = events[-1].usage, whole.usage
        assert (again.prompt_tokens, again.completion_tokens) == (first.prompt_tokens, first.completion_tokens)
        assert again.prompt_tokens_details.cached_tokens == again.prompt_tokens - 1  # it was read already


def test_openai_asks_for_structure_for_several_answers_and_for_log_probabilities(chat: int) -> None:
    with client(chat) as opened:
        question = [{"role": "user", "content": "Which city has the Louvre? Answer in JSON."}]
        schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        form = {
            "type": "json_schema",
            "json_schema": {"name": "place", "schema": {**schema, "additionalProperties": False}},
        }
        request = {"model": "served", "messages": question, "temperature": 0, "max_tokens": 30}
        answer = opened.chat.completions.create(**request, response_format=form)
        assert answer.choices[0].finish_reason == "stop" and list(json.loads(answer.choices[0].message.content)) == [
            "city"
        ]
        several = opened.chat.completions.create(**request, n=2, logprobs=True, top_logprobs=2, extra_body={"top_k": 5})
        assert several.choices[0].message.content == several.choices[1].message.content
        tokens = several.choices[0].logprobs.content
        assert tokens[0].logprob == tokens[0].top_logprobs[0].logprob > tokens[0].top_logprobs[1].logprob
        text = opened.completions.create(model="served", prompt="The capital of France is", max_tokens=2, temperature=0)
        assert text.choices[0].text == " Paris." and text.usage.completion_tokens == 2


def test_openai_asks_for_seeds_biases_and_streams_of_completions(chat: int) -> None:
    with client(chat) as opened:
        request = {"model": "served", "prompt": "The capital of France is", "max_tokens": 6}
        drawn = [opened.completions.create(**request, temperature=1.5, seed=seed).choices[0].text for seed in (3, 3, 4)]
        assert drawn[0] == drawn[1] != drawn[2]
        model = load_language_model(exported("smollm2", "onnxruntime"))
        (token,) = model.tokenizer.encode(" cat")[-1:]
        biased = opened.completions.create(**request, temperature=0, logit_bias={str(token): 100})
        assert biased.choices[0].text == " cat" * 6
        whole = opened.completions.create(**request, temperature=0, logprobs=1)
        stream = opened.completions.create(**request, temperature=0, logprobs=1, stream=True)
        choices = [event.choices[0] for event in stream]
        assert "".join(choice.text for choice in choices) == whole.choices[0].text
        offsets = [offset for choice in choices if choice.logprobs for offset in choice.logprobs.text_offset]
        assert offsets == whole.choices[0].logprobs.text_offset


def test_openai_has_a_function_called() -> None:
    """By a template that takes tools, which SmolLM2's does not."""
    folder = shutil.copytree(exported("smollm2", "onnxruntime"), WORK / "tools")
    about = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    about["chat_template"] = "{% if tools %}{{ tools | tojson }}{% endif %}" + about["chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps(about), encoding="utf-8")
    parameters = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
    function = {"name": "weather", "parameters": {**parameters, "additionalProperties": False}}
    request: dict[str, Any] = {
        "model": "served",
        "messages": [{"role": "user", "content": "How is the weather in Rome?"}],
    }
    request |= {"tools": [{"type": "function", "function": function}], "tool_choice": "required", "max_tokens": 40}
    with serving(folder) as (port, _), client(port) as opened:
        (choice,) = opened.chat.completions.create(**request).choices
        (call,) = choice.message.tool_calls
        assert (choice.finish_reason, call.function.name) == ("tool_calls", "weather")
        assert json.loads(call.function.arguments)["city"] in ("Paris", "Rome")
        answered = [choice.message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
        request |= {"messages": [*request["messages"], *answered], "tool_choice": "none"}
        assert opened.chat.completions.create(**request).choices[0].message.content


def test_openai_asks_for_fewer_dimensions(embeddings: int) -> None:
    with client(embeddings) as api:
        whole = computed("minilm", tokens("minilm"))[:, :64]
        expected = whole / np.linalg.norm(whole, axis=1, keepdims=True)
        for form in ("base64", "float"):
            response = api.embeddings.create(model="served", input=TEXTS, dimensions=64, encoding_format=form)
            read = [one.embedding for one in response.data]
            if form == "base64":
                read = [np.frombuffer(base64.b64decode(one), "<f4") for one in read]
            close(read, expected)


def test_triton_reads_the_model_and_infers_by_tensors_and_by_texts(embeddings: int) -> None:
    headers = MappingProxyType({"Authorization": f"Bearer {KEY}"})  # the client writes to what it is given
    with triton.InferenceServerClient(f"127.0.0.1:{embeddings}") as api:
        assert api.is_server_live()
        assert api.is_server_ready()
        assert api.is_model_ready("served", headers=dict(headers))
        metadata = api.get_model_metadata("served", headers=dict(headers))
        assert {one["name"]: one["datatype"] for one in metadata["outputs"]} == {"sentence_embedding": "FP32"}
        expected = computed("minilm", tokens("minilm"))
        arrays = tokens("minilm")
        arrays["token_type_ids"] = 0 * arrays["input_ids"]
        for binary in (True, False):
            inputs = []
            for name, array in arrays.items():
                inputs.append(triton.InferInput(name, array.shape, "INT64"))
                inputs[-1].set_data_from_numpy(array, binary_data=binary)
            outputs = [triton.InferRequestedOutput("sentence_embedding", binary_data=binary)]
            result = api.infer("served", inputs, outputs=outputs, headers=dict(headers))
            close(result.as_numpy("sentence_embedding"), expected)
            text = triton.InferInput("text", [len(TEXTS)], "BYTES")
            text.set_data_from_numpy(np.array(TEXTS, object), binary_data=binary)
            outputs = [triton.InferRequestedOutput("embedding", binary_data=binary)]
            close(api.infer("served", [text], outputs=outputs, headers=dict(headers)).as_numpy("embedding"), expected)
        with pytest.raises(triton.InferenceServerException, match="there is no output 'logits'"):
            api.infer("served", [text], outputs=[triton.InferRequestedOutput("logits")], headers=dict(headers))


@contextmanager
def asking(port: int, folder: Path) -> Iterator[list[Exception]]:
    """Clients that ask a server before, meanwhile and afterwards; their errors. A wrong answer is raised."""
    texts = [f"sentence number {number}" for number in range(40)]
    expected = lucid.batch.Predictor(folder)({"text": texts})["embedding"]
    failed: list[Exception] = []
    right: list[int] = []
    stop = threading.Event()

    def ask(first: int) -> None:
        number = first
        while not stop.is_set():
            try:
                with client(port) as api:
                    response = api.embeddings.create(model="served", input=texts[number % 40])
            except openai.APIConnectionError as error:
                failed.append(error)
            else:
                close(response.data[0].embedding, expected[number % 40])
                right.append(number)
            number += 1

    with ThreadPoolExecutor(4) as clients:
        askers = [clients.submit(ask, 7 * number) for number in range(4)]
        try:
            until(lambda: len(right) >= 8)
            yield failed
            after = len(right)
            until(lambda: len(right) >= after + 8)
        finally:
            stop.set()
        for one in askers:
            one.result()


def replaced(pid: int, old: set[int]) -> bool:
    """Whether there are two workers and none of the old ones."""
    return len(again := workers(pid)) == 2 and not old & set(again)


def test_a_worker_that_is_killed_is_started_again_and_no_answer_is_wrong() -> None:
    """What it was answering fails; the others go on."""
    folder = exported("minilm", "onnxruntime", "--external-data")
    with serving(folder, "--workers", "2") as (port, pid), asking(port, folder) as failed:
        first, _ = workers(pid)
        os.kill(first, signal.SIGKILL)
        until(lambda: replaced(pid, {first}))
    assert len(failed) <= 8, failed


def test_workers_that_are_told_to_open_the_folder_again_refuse_no_request() -> None:
    """Each goes on until its successor is ready."""
    folder = exported("minilm", "onnxruntime", "--external-data")
    with serving(folder, "--workers", "2") as (port, pid), asking(port, folder) as failed:
        before = set(workers(pid))
        os.kill(pid, signal.SIGHUP)
        until(lambda: replaced(pid, before))
    assert not failed
