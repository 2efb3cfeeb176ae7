"""/v1/embeddings, /v2 and what guards them: each answer is that of its own text, and what cannot be served says why."""

from __future__ import annotations

import base64
import http.client
import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import lucid
from tests.batch.folders import exported
from tests.serving.servers import Server, served
from tests.waiting import PATIENCE, until

pytest.importorskip("lucid.serving", reason="needs the extra serve", exc_type=ModuleNotFoundError)

EMBEDDINGS, INFER = "/v1/embeddings", "/v2/models/tiny/infer"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return exported(tmp_path_factory.mktemp("served"), "sentences/cls")


@pytest.fixture(scope="module")
def server(folder):
    with served(folder, name="tiny") as running:
        yield running


def embedding(folder, text: str) -> np.ndarray:
    """What a predictor says about a text."""
    return lucid.batch.Predictor(folder)({"text": [text]})["embedding"][0]


# Embeddings -----------------------------------------------------------------------------------------------------------


def test_a_text_has_the_vector_that_it_has_in_a_job(server, folder):
    reply = server.ask("POST", EMBEDDINGS, {"model": "tiny", "input": "a cat"})
    assert reply.status == 200
    (one,) = reply.json["data"]
    np.testing.assert_allclose(one["embedding"], embedding(folder, "a cat"), atol=1e-6)
    assert reply.json["usage"] == {"prompt_tokens": 5, "total_tokens": 5}


def test_fewer_dimensions_are_the_first_ones_with_length_1(server, folder):
    (one,) = server.ask("POST", EMBEDDINGS, {"model": "tiny", "input": "a cat", "dimensions": 5}).json["data"]
    first = embedding(folder, "a cat")[:5]
    np.testing.assert_allclose(one["embedding"], first / np.linalg.norm(first), atol=1e-6)
    request = {"model": "tiny", "input": "a cat", "dimensions": 5, "encoding_format": "base64"}
    (coded,) = server.ask("POST", EMBEDDINGS, request).json["data"]
    np.testing.assert_allclose(np.frombuffer(base64.b64decode(coded["embedding"]), "<f4"), one["embedding"], atol=1e-7)


def test_vectors_come_in_the_order_of_their_texts_also_in_base64(server, folder):
    texts = ["a cat sat", "b", "dogs"]
    reply = server.ask("POST", EMBEDDINGS, {"model": "tiny", "input": texts, "encoding_format": "base64"})
    for place, one in enumerate(reply.json["data"]):
        assert one["index"] == place
        vector = np.frombuffer(base64.b64decode(one["embedding"]), "<f4")
        np.testing.assert_allclose(vector, embedding(folder, texts[place]), atol=1e-6)


def test_the_prompt_of_the_checkpoint_is_before_each_text(folder, tmp_path):
    prompted = shutil.copytree(folder, tmp_path / "tiny")
    prompts = {"prompts": {"query": "look for "}, "default_prompt_name": "query"}
    (prompted / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    for prompt, text in ((None, "look for a cat"), ("query", "look for a cat"), ("", "a cat")):
        with served(prompted, prompt=prompt) as server:
            reply = server.ask("POST", EMBEDDINGS, {"model": "tiny", "input": "a cat"})
            np.testing.assert_allclose(reply.json["data"][0]["embedding"], embedding(folder, text), atol=1e-6)
    with pytest.raises(ValueError, match="has no prompt 'other'; there are 'query'"):
        lucid.serving.application(prompted, prompt="other")


def test_many_clients_at_once_each_get_their_own_answer(server, folder):
    texts = ["abcdefghijklmnopqrstuvwxyz"[: 1 + i % 20] for i in range(60)]
    expected = {text: embedding(folder, text) for text in set(texts)}
    before = server.figure("lucid_batch_rows_count")

    def ask(text: str) -> list[float]:
        return server.ask("POST", EMBEDDINGS, {"model": "tiny", "input": text}).json["data"][0]["embedding"]

    with ThreadPoolExecutor(12) as clients:
        for text, vector in zip(texts, clients.map(ask, texts), strict=True):
            np.testing.assert_allclose(vector, expected[text], atol=1e-6)
    assert 0 < server.figure("lucid_batch_rows_count") - before <= len(texts)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"input": "a"}, 400, "model is missing, expected a string"),
        ({"model": "other", "input": "a"}, 404, "there is no model 'other'; this server has 'tiny'"),
        ({"model": "tiny"}, 400, "input is missing, expected a string or a list of strings"),
        ({"model": "tiny", "input": [1, 2]}, 400, "input[0] is 1, expected a string"),
        ({"model": "tiny", "input": []}, 400, "input is [], expected"),
        ({"model": "tiny", "input": ["a", ""]}, 400, "input[1]: the text is empty"),
        ({"model": "tiny", "input": ["a"] * 2049}, 400, "expected a list of 1 to 2048 strings"),
        ({"model": "tiny", "input": "a", "dimensions": 300}, 400, "dimensions is 300, expected 1 to "),
        ({"model": "tiny", "input": "a", "input_type": "query"}, 400, "input_type is not served; leave it out"),
        ({"model": "tiny", "input": "a", "encoding_format": "x"}, 400, 'encoding_format is "x", served: "float" or'),
        ([1], 400, "the body is [1], expected a JSON object"),
        (b"{", 400, "the body is not valid JSON: "),
        (b"\xff\xfe{", 400, "the body is not valid JSON: "),
        (b'{"input": "a", "input": "b"}', 400, "the body is not valid JSON: the name 'input' occurs twice"),
        (b"[" * 100_000, 400, "the body is not valid JSON: "),
    ],
)
def test_what_is_no_request_says_what_is_wrong(server, body, status, message):
    reply = server.ask("POST", EMBEDDINGS, body)
    assert (reply.status, message in reply.message) == (status, True), reply.message


def test_other_content_other_paths_and_other_methods_are_refused(server):
    reply = server.ask("POST", EMBEDDINGS, b"{}", Content_Type="text/plain")
    assert (reply.status, reply.message) == (415, "the content type is text/plain, expected application/json")
    reply = server.ask("GET", "/v1/chat/completions")
    assert reply.status == 404
    assert "'tiny' is for sentence-similarity, and there are /v1/models, /v1/models/tiny, " in reply.message
    assert server.ask("GET", EMBEDDINGS).status == 405


def test_models_health_and_figures(server):
    (about,) = server.ask("GET", "/v1/models").json["data"]
    assert (about["id"], about["task"], about["fields"]) == ("tiny", "sentence-similarity", ["text"])
    assert server.ask("GET", "/v1/models/tiny").json == about
    assert server.ask("GET", "/v1/models/other").status == 404
    assert server.ask("GET", "/health").json == {"status": "ok"}
    before = server.figure("lucid_tokens_total")
    server.ask("POST", EMBEDDINGS, {"model": "tiny", "input": "abc"})
    assert server.figure("lucid_tokens_total") == before + 3
    text = server.ask("GET", "/metrics").data.decode()
    assert 'lucid_requests_total{route="/v1/embeddings",status="200"}' in text
    assert "abc" not in text


# Limits ---------------------------------------------------------------------------------------------------------------


def limited(folder, **limits):
    return served(folder, name="tiny", limits=lucid.serving.Limits(**limits))


@pytest.mark.parametrize(
    "limits", [{"body": 0}, {"tokens": -1}, {"seconds": 0.0}, {"seconds": float("inf")}, {"requests": 0}]
)
def test_limits_are_finite_and_above_0(limits):
    with pytest.raises(ValueError, match=rf"Limits: {next(iter(limits))} is \S+, expected a finite number above 0"):
        lucid.serving.Limits(**limits)


def test_bodies_and_tokens_beyond_the_limit_are_refused(folder):
    with limited(folder, body=200, tokens=10) as server:
        reply = server.ask("POST", EMBEDDINGS, {"model": "tiny", "input": "a" * 300})
        assert (reply.status, "at most 200 are read" in reply.message) == (413, True)
        reply = server.ask("POST", EMBEDDINGS, {"model": "tiny", "input": ["abcd", "efgh", "ijkl"]})
        assert (reply.status, reply.message) == (
            400,
            "input: the request takes 12 tokens or more, at most 10 are served; send less at a time",
        )
        assert server.ask("POST", EMBEDDINGS, {"model": "tiny", "input": "abcd"}).status == 200


def test_a_body_that_does_not_say_its_size_is_read_up_to_the_limit(folder):
    with limited(folder, body=200) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        pieces = iter([b'{"model": "', b"a" * 500])
        connection.request("POST", EMBEDDINGS, pieces, {"Content-Type": "application/json"}, encode_chunked=True)
        assert connection.getresponse().status == 413
        connection.close()


class Held:
    """A model that computes only when it is let."""

    def __init__(self, server: Server) -> None:
        self.go, self.rows = threading.Event(), []
        model = server.app.state.model
        run = model.rows.run

        def held(batch):
            assert self.go.wait(PATIENCE)
            self.rows += batch
            return run(batch)

        model.rows.run = held


def test_requests_beyond_the_limit_are_refused_at_once_and_health_is_not(folder):
    with limited(folder, requests=2) as server, ThreadPoolExecutor(2) as clients:
        held = Held(server)
        futures = [clients.submit(server.ask, "POST", EMBEDDINGS, {"model": "tiny", "input": "a"}) for _ in range(2)]
        until(lambda: server.figure("lucid_open_requests") == 3)  # with the one for the figures
        reply = server.ask("POST", EMBEDDINGS, {"model": "tiny", "input": "a"})
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        assert reply.message == "2 requests are being served, and no more are taken; try again later"
        assert server.ask("GET", "/health").status == 200
        held.go.set()
        assert [one.result().status for one in futures] == [200, 200]
        assert server.ask("POST", EMBEDDINGS, {"model": "tiny", "input": "a"}).status == 200


def test_a_request_that_takes_too_long_is_ended(folder):
    with limited(folder, seconds=0.05) as server:
        held = Held(server)
        reply = server.ask("POST", EMBEDDINGS, {"model": "tiny", "input": "a"})
        held.go.set()
        assert (reply.status, "longer than 0.05 s" in reply.message) == (503, True)


def test_what_a_client_that_has_gone_asked_for_is_not_computed(folder):
    with limited(folder) as server, ThreadPoolExecutor(1) as clients:
        held = Held(server)
        first = clients.submit(server.ask, "POST", EMBEDDINGS, {"model": "tiny", "input": "a"})
        until(lambda: server.figure("lucid_batch_rows_count") == 1)
        leaving = http.client.HTTPConnection("127.0.0.1", server.port)
        leaving.request(
            "POST", EMBEDDINGS, json.dumps({"model": "tiny", "input": "b"}), {"Content-Type": "application/json"}
        )
        until(lambda: server.figure("lucid_open_requests") == 3)
        leaving.close()
        until(lambda: server.figure("lucid_open_requests") == 2)
        held.go.set()
        assert first.result().status == 200
        assert len(held.rows) == 1
        assert 'status="499"' in server.ask("GET", "/metrics").data.decode()


def test_with_a_key_only_those_who_have_it_are_served(folder):
    with served(folder, key="secret") as server:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
            reply = server.ask("GET", "/v1/models", **headers)
            assert (reply.status, "the key is missing or wrong" in reply.message) == (401, True)
        assert server.ask("GET", "/metrics").status == 401
        assert server.ask("GET", "/v1/models", Authorization="Bearer secret").status == 200
        assert server.ask("GET", "/health").status == 200


def test_hosts_that_are_not_named_are_refused(folder):
    with served(folder, hosts=["localhost"]) as server:
        assert server.ask("GET", "/health", Host="localhost:80").status == 200
        for host in ("pages.example", "localhost.pages.example", "localhost:80.pages.example", ""):
            reply = server.ask("GET", "/health", Host=host)
            message = f'Host is "{host}", served: localhost; a server that is started with --host serves other names'
            assert (reply.status, reply.message) == (400, message)
            assert server.ask("GET", "/v2/health/live", Host=host).json == {"error": message}
    with served(folder, hosts=["[::1]", "*.Example"]) as server:
        for host, status in (("[::1]:80", 200), ("::1", 400), ("pages.example", 200), ("example", 400)):
            assert server.ask("GET", "/health", Host=host).status == status


def test_nothing_of_a_request_is_logged(folder, capfd):
    with served(folder, name="tiny") as server:
        server.ask("POST", EMBEDDINGS, {"model": "tiny", "input": "my words"})
        server.ask("POST", EMBEDDINGS, {"model": "tiny", "input": ["my words", None]})
        server.ask("GET", "/my words".replace(" ", "%20"))
    assert "my" not in "".join(capfd.readouterr())


# The Open Inference Protocol ------------------------------------------------------------------------------------------


def infer(server, *inputs, **more):
    return server.ask("POST", INFER, {"inputs": list(inputs), **more})


def ids(rows) -> list[dict]:
    array = np.array(rows, np.int64)
    shape = list(array.shape)
    arrays = {"input_ids": array, "attention_mask": np.ones_like(array), "token_type_ids": np.zeros_like(array)}
    return [
        {"name": name, "datatype": "INT64", "shape": shape, "data": value.ravel().tolist()}
        for name, value in arrays.items()
    ]


def test_the_protocol_describes_server_and_model(server):
    assert server.ask("GET", "/v2").json["name"] == "lucid"
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/tiny/ready", "/v2/models/tiny/versions/1/ready"):
        assert server.ask("GET", path).status == 200
    metadata = server.ask("GET", "/v2/models/tiny").json
    assert metadata["inputs"][0] == {"name": "input_ids", "datatype": "INT64", "shape": [-1, -1]}
    assert metadata["outputs"][0]["datatype"] == "FP32"
    for path in ("/v2/models/other", "/v2/models/tiny/versions/7"):
        reply = server.ask("GET", path)
        assert (reply.status, "there is no" in reply.json["error"]) == (404, True)


def test_tensors_are_computed_as_the_file_computes_them(server, folder):
    inputs = ids([[5, 6, 7], [8, 9, 10]])
    reply = infer(server, *inputs, id="mine", outputs=[{"name": "sentence_embedding"}])
    session = lucid.runtime.Session(folder / "model.onnx")
    expected = session.run({one["name"]: np.array(one["data"]).reshape(one["shape"]) for one in inputs})
    (output,) = reply.json["outputs"]
    assert (reply.json["id"], reply.json["model_name"], output["datatype"]) == ("mine", "tiny", "FP32")
    np.testing.assert_allclose(np.reshape(output["data"], output["shape"]), expected["sentence_embedding"], atol=1e-6)


def test_texts_are_computed_by_the_task(server, folder):
    reply = infer(server, {"name": "text", "datatype": "BYTES", "shape": [2], "data": ["a cat", "b"]})
    (output,) = reply.json["outputs"]
    expected = np.stack([embedding(folder, "a cat"), embedding(folder, "b")])
    np.testing.assert_allclose(np.reshape(output["data"], output["shape"]), expected, atol=1e-6)


def test_tensors_may_be_bytes_behind_the_json(server, folder):
    texts = b"".join(len(text).to_bytes(4, "little") + text for text in (b"a cat", b"b"))
    text_input = {"name": "text", "datatype": "BYTES", "shape": [2, 1], "parameters": {"binary_data_size": len(texts)}}
    head = json.dumps({"inputs": [text_input], "parameters": {"binary_data_output": True}}).encode()
    reply = server.ask("POST", INFER, head + texts, Inference_Header_Content_Length=str(len(head)))
    length = int(reply.headers["inference-header-content-length"])
    (output,) = json.loads(reply.data[:length])["outputs"]
    vectors = np.frombuffer(reply.data[length:], "<f4").reshape(output["shape"])
    np.testing.assert_allclose(vectors, np.stack([embedding(folder, text) for text in ("a cat", "b")]), atol=1e-6)


TEXT = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["a"]}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([{**TEXT, "shape": [2]}], "input text has 1 elements, and its shape [2] 2"),
        ([{**TEXT, "shape": [-1]}], "inputs[0].shape[0] is -1, expected 0 to "),
        ([{**TEXT, "datatype": "TEXT"}], 'inputs[0].datatype is "TEXT", served: "BOOL", '),
        ([{**TEXT, "data": [1]}], "input text has data that are not BYTES"),
        ([{**TEXT, "data": [[1, 2], [3]]}], "input text has data that are not BYTES"),
        ([{**TEXT, "data": [""]}], "text[0]: the text is empty"),
        ([{**TEXT, "shape": [0], "data": []}], "the inputs have no texts"),
        (
            [{**TEXT, "parameters": {"binary_data_size": 9}}],
            "binary_data_size is 9, expected at most the 0 bytes that are left",
        ),
        ([{**TEXT, "parameters": {"shared_memory_region": "x"}}], "shared_memory_region"),
        ([{**TEXT, "name": "words"}], "inputs missing: attention_mask, input_ids, token_type_ids; unknown: words"),
        (
            [{**TEXT, "name": "image"}],
            "the model takes input_ids, attention_mask, token_type_ids, or for its task text, ",
        ),
        ([TEXT, {**TEXT, "name": "pair"}], ", or for its task text, of BYTES"),
        ([7], "inputs[0] is 7, expected an object"),
        ([{"name": "input_ids", "datatype": "INT8", "shape": [1], "data": [300]}], "data that are not INT8"),
        ([{"name": "input_ids", "datatype": "INT64", "shape": [1], "data": [1.5]}], "data that are not INT64"),
        (ids([5]), "input input_ids has shape [1], expected [batch_size, sequence_length]"),
        (ids([[1, 4000]]), "inputs: input_ids[0, 1] is 4000, expected 0 to "),
        (ids([[1, 2], [5, -4]]), "inputs: input_ids[1, 1] is -4, expected 0 to "),
        (ids([[]]), "input_ids has sequence_length = 0 at axis 1"),
        ([{**TEXT, "shape": [0, 10**30], "data": []}], "inputs[0].shape[1] is 1000000000000"),
        ([{**TEXT, "shape": [0, 1 << 62, 1 << 62], "data": []}], "expected sizes of an array"),
        ([{**TEXT, "name": "\ud800", "shape": [2]}], "input \\ud800 has 1 elements"),
    ],
)
def test_tensors_that_do_not_fit_say_why(server, inputs, message):
    reply = infer(server, *inputs)
    assert (reply.status, message in reply.json["error"]) == (400, True), reply.json


def test_an_error_in_the_server_counts_as_500(folder):
    with served(folder, name="tiny") as server:
        before = server.figure('lucid_requests_total{route="/v2/models/{name}/infer",status="500"}')
        server.app.state.model.check_tokens = lambda *_: 1 / 0
        assert infer(server, *ids([[1, 2]])).status == 500
        assert server.figure('lucid_requests_total{route="/v2/models/{name}/infer",status="500"}') == before + 1


def test_a_length_of_the_json_that_is_no_number_is_refused(server):
    for length in ("9" * 5000, "x", "-1"):
        reply = server.ask("POST", INFER, b"{}", Inference_Header_Content_Length=length)
        assert (reply.status, "expected at most the 2 bytes" in reply.json["error"]) == (400, True)


def test_an_output_that_there_is_not_is_named(server):
    reply = infer(server, TEXT, outputs=[{"name": "logits"}])
    assert (reply.status, reply.json["error"]) == (400, "there is no output 'logits'; there are embedding")
