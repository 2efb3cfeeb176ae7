"""Requests of strangers: each has an answer below 500, or 503, and none takes more than its bytes suggest."""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import os
import re
import socket
import subprocess
import sys
from contextlib import ExitStack

import numpy as np
import pytest

import lucid
from lucid.core.graph.types import as_dtype
from tests.batch.folders import exported
from tests.serving.servers import Server, decoder, free_port, served
from tests.waiting import PATIENCE, until

pytest.importorskip("lucid.serving", reason="needs the extra serve", exc_type=ModuleNotFoundError)
Image = pytest.importorskip("PIL.Image")

Limits = pytest.importorskip("lucid.serving.guard").Limits
EMBEDDINGS, CHAT, INFER = "/v1/embeddings", "/v1/chat/completions", "/v2/models/tiny/infer"
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(here) print\n%%EOF\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return exported(tmp_path_factory.mktemp("served"), "sentences/cls")


@pytest.fixture(scope="module")
def server(folder):
    with served(folder, name="tiny") as running:
        yield running


@pytest.fixture(scope="module")
def talking(tmp_path_factory):
    with served(decoder(tmp_path_factory.mktemp("talking")), name="tiny") as running:
        yield running


# Texts and numbers as JSON --------------------------------------------------------------------------------------------


def tensor(kind: str, data: list, **more) -> dict:
    return {"name": "text", "datatype": kind, "shape": [len(data)], "data": data} | more


@pytest.mark.parametrize("kind", ["BYTES", "INT64", "FP32", "BOOL"])
def test_many_short_texts_and_a_long_one_take_no_more_than_their_bytes(server, kind):
    reply = server.ask("POST", INFER, {"inputs": [tensor(kind, [""] * 500_000 + ["x" * 1_900_000])]})
    message = "text[0]: the text is empty" if kind == "BYTES" else f"input text has data that are not {kind}"
    assert (reply.status, reply.message) == (400, message)


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        ("INT64", [1, True], [1, 1]),
        ("INT64", [[1, 2], [3, -4]], [1, 2, 3, -4]),
        ("UINT64", [2**64 - 1], [2**64 - 1]),
        ("FP32", [1, 2.5, True], [1, 2.5, 1]),
        ("FP64", [2**64], [2.0**64]),
        ("BOOL", [0, 1, True, 2.5], [False, True, True, True]),
        ("INT8", [], []),
    ],
)
def test_numbers_of_json_are_those_of_the_type(kind, data, expected):
    tensors = pytest.importorskip("lucid.serving.tensors")
    shape = list(np.shape(data))
    array, size = tensors.read({**tensor(kind, data), "shape": shape}, b"", "inputs[0]")
    assert (array.ravel().tolist(), array.dtype.name, size) == (expected, kind.lower().replace("fp", "float"), 0)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("INT64", [2**63]), ("INT64", [1.5]), ("INT64", [10**400]), ("UINT8", [-1]), ("FP64", [10**400]),
        ("FP16", [1e6]), ("FP32", [1e300]), ("BF16", [1e39]), ("BF16", [3.4e38]), ("BF16", [10**400]),
        ("FP32", ["1"]), ("FP32", ["nan"]), ("FP32", [None]), ("FP32", [{}]), ("FP32", [[1], [2, 3]]), ("BOOL", ["x"]),
        ("INT64", ["NaN"]), ("BYTES", [["a"], "b"]), ("BYTES", [None]),
    ],
)  # fmt: skip
def test_data_of_another_type_are_refused(server, kind, data):
    reply = server.ask("POST", INFER, {"inputs": [tensor(kind, data)]})
    assert (reply.status, reply.message) == (400, f"input text has data that are not {kind}")


@pytest.mark.parametrize("kind", ["FP64", "FP32", "BF16"])
@pytest.mark.parametrize("number", ["1e400", "-1e400"])
def test_numbers_beyond_every_type_are_refused_as_well(server, kind, number):
    """Python reads them as infinity, which FP64 holds; infinity itself is sent as a text."""
    body = json.dumps({"inputs": [tensor(kind, [0])]}).replace('"data": [0]', f'"data": [{number}]').encode()
    reply = server.ask("POST", INFER, body)
    assert (reply.status, reply.message) == (400, f"input text has data that are not {kind}")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_lacks_are_refused_with_their_place(server, number):
    body = json.dumps({"inputs": [tensor("FP32", [[0, 1]], shape=[1, 2])]}).replace("1]]", f"{number}]]").encode()
    reply = server.ask("POST", INFER, body)
    place = f"the body is not valid JSON: inputs[0].data[0][1] is {number}, which JSON does not have; where {number} is"
    assert (reply.status, reply.message) == (400, f'{place} served, it is the text "{number}"')
    twice = server.ask("POST", INFER, f'{{"inputs": [], "id": {number}, "id": "a"}}'.encode())
    assert (twice.status, twice.message) == (400, "the body is not valid JSON: the name 'id' occurs twice")


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"outputz": [{"name": "y"}]}, "outputz"),
        ({"inputs": [{**tensor("INT64", [1]), "size": 1}]}, "inputs[0].size"),
        ({"outputs": [{"name": "y", "kind": 1}]}, "outputs[0].kind"),
        ({"outputs": [{"name": "y", "parameters": {"classification": 2}}]}, "outputs[0].parameters.classification"),
        ({"parameters": {"sequence_id": 7}}, "parameters.sequence_id"),
    ],
)
def test_fields_that_a_tensor_does_not_have_are_named(server, change, name):
    reply = server.ask("POST", INFER, {"inputs": [tensor("INT64", [1])], **change})
    assert reply.status == 400 and reply.message.startswith(f"{name} is not served; "), reply.message


@pytest.mark.parametrize(("kind", "name"), [("FP16", "float16"), ("FP64", "float64"), ("BF16", "bfloat16")])
def test_numbers_that_json_lacks_are_texts_in_both_directions(kind, name):
    tensors = pytest.importorskip("lucid.serving.tensors")
    array = np.array([[float("nan"), float("inf"), -float("inf"), 0.5]], as_dtype(name).numpy)
    entry, _ = tensors.written("y", array, binary=False)
    assert entry == {"name": "y", "datatype": kind, "shape": [1, 4], "data": ["NaN", "Infinity", "-Infinity", 0.5]}
    back, _ = tensors.read(entry, b"", "inputs[0]")
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back.astype("float64"), array.astype("float64"))
    entry, data = tensors.written("y", array, binary=True)
    assert data == array.tobytes() == tensors.read(entry, data, "inputs[0]")[0].tobytes()


def test_answers_have_no_bare_nan(folder):
    with served(folder, name="tiny") as server:
        server.app.state.model.session.run = lambda inputs: {"y": np.float32([float("nan")])}
        inputs = [{"name": "x", "datatype": "INT64", "shape": [1], "data": [1]}]
        text = server.ask("POST", INFER, {"inputs": inputs}).data.decode()
    assert json.loads(text, parse_constant=pytest.fail)["outputs"][0]["data"] == ["NaN"]


def test_a_text_of_which_the_model_makes_nan_is_not_tried_again(folder):
    with served(folder, name="tiny") as server:
        rows = server.app.state.model.rows
        run = rows.run
        rows.run = lambda batch: {name: np.full_like(values, np.nan) for name, values in run(batch).items()}
        for coded in ("float", "base64"):
            reply = server.ask("POST", EMBEDDINGS, {"model": "tiny", "input": ["a"], "encoding_format": coded})
            reason = "input[0]: the model makes NaN or infinity of it in embedding; leave it out, or check the weights"
            assert (reply.status, reply.message.startswith(reason)) == (422, True)


LONG = "k" * 500_000


@pytest.mark.parametrize(
    ("method", "path", "body", "beginning", "end"),
    [
        ("POST", EMBEDDINGS, {"model": "tiny", "input": "a", LONG: 1}, "kkk", "kkk is not served; leave it out"),
        ("POST", EMBEDDINGS, {"model": LONG, "input": "a"}, "there is no model 'kkk", "kkk'; this server has 'tiny'"),
        ("POST", INFER, {"inputs": [tensor("BOOL", ["a"], name=LONG)]}, "input kkk", "kkk has data that are not BOOL"),
        ("GET", f"/{LONG[:50_000]}", None, "GET /kkk", ", /, /docs"),
        ("POST", EMBEDDINGS, {"model": "tiny", "input": "a", "": 1}, '"" is not served; leave it out', ""),
    ],
)
def test_messages_do_not_repeat_long_names(server, method, path, body, beginning, end):
    reply = server.ask(method, path, body)
    assert reply.status in (400, 404) and len(reply.data) < 4000
    assert (reply.message.startswith(beginning), reply.message.endswith(end)) == (True, True), reply.message


@pytest.mark.parametrize("path", [EMBEDDINGS, INFER])
def test_a_compressed_body_is_told_apart(server, path):
    reply = server.ask("POST", path, gzip.compress(b"{}"), Content_Encoding="gzip")
    assert (reply.status, reply.message) == (415, "the body is compressed (gzip), which is not read; send it as it is")


@pytest.mark.parametrize("size", [10**30, 1 << 63])
def test_sizes_beyond_those_of_arrays_are_refused(server, size):
    reply = server.ask("POST", INFER, {"inputs": [tensor("INT64", [], shape=[0, size])]})
    assert (reply.status, reply.message[:21]) == (400, "inputs[0].shape[1] is")
    many = [10**4000, 10**4000]  # whose product has more digits than Python writes
    assert server.ask("POST", INFER, {"inputs": [tensor("INT64", [], shape=many)]}).status == 400


def test_an_input_that_comes_twice_is_refused(server):
    reply = server.ask("POST", INFER, {"inputs": [tensor("BYTES", ["a"]), tensor("BYTES", ["b"])]})
    assert (reply.status, reply.message) == (400, 'inputs[1].name is "text", which an earlier input has; send it once')


def test_inputs_are_parts_of_the_body():
    """With a copy of what follows for each, a body of many inputs kept the server busy for seconds."""
    sizes = {"a": 3, "b": 0, "c": 2}
    inputs = [
        {"name": name, "datatype": "UINT8", "shape": [size], "parameters": {"binary_data_size": size}}
        for name, size in sizes.items()
    ]
    head = json.dumps({"inputs": inputs}).encode()
    data = head + b"vwxyz"
    _, arrays = lucid.serving.inference_routes._read(data, str(len(head)))
    assert {name: array.tobytes() for name, array in arrays.items()} == {"a": b"vwx", "b": b"", "c": b"yz"}
    assert np.shares_memory(arrays["c"], np.frombuffer(data, np.uint8))


def test_sizes_of_nothing_count_as_tokens(server):
    """No element, and yet a model would make as many vectors as there are rows."""
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = [{"name": name, "datatype": "INT64", "shape": [10**9, 0], "data": []} for name in names]
    reply = server.ask("POST", INFER, {"inputs": inputs})
    assert (reply.status, reply.message.startswith("inputs: the request takes 1000000000 tokens or more")) == (
        400,
        True,
    )


def test_tokens_are_counted_while_rows_are_read(server):
    """Beyond the limit nothing more is made of a request."""
    rows = server.app.state.model.rows
    seen, ready = [], rows.ready
    rows.ready = lambda row: seen.append(row) or ready(row)
    try:
        reply = server.ask("POST", INFER, {"inputs": [tensor("BYTES", ["abcdefgh"] * 50_000)]})
    finally:
        rows.ready = ready
    assert (reply.status, "at most 32768 are served" in reply.message) == (400, True)
    assert len(seen) <= 32768 // 8 + 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (EMBEDDINGS, {"model": "tiny", "input": ["a", "a " * 1_000_000]}),
        (INFER, {"inputs": [tensor("BYTES", ["a", "a " * 1_000_000])]}),
    ],
)
def test_a_text_of_too_many_characters_is_refused_before_tokens_are_made_of_it(server, path, body):
    read = []
    rows = server.app.state.model.rows
    ready = rows.ready
    rows.ready = lambda row: read.append(row) or ready(row)
    try:
        reply = server.ask("POST", path, body)
    finally:
        rows.ready = ready
    assert (reply.status, len(read)) == (400, 1)
    message = "[1]: the text has 2000000 characters, at most 1048576 are read: 32 for each of the 32768 tokens that are"
    assert message in reply.message


def test_a_conversation_of_too_many_characters_is_refused_before_tokens_are_made_of_it(talking):
    positions = talking.app.state.model.language.max_positions
    messages = [{"role": "user", "content": "a" * 16 * positions}] * 2
    for more, message in (
        ([], "messages: 2053 tokens are"),
        ([{"role": "user", "content": "a"}], "messages: the text has "),
    ):
        reply = talking.ask("POST", CHAT, {"model": "tiny", "messages": messages + more})
        assert (reply.status, reply.message.startswith(message)) == (400, True), reply.message


# Lists within lists ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [101, 950, 100_000])
def test_lists_too_deep_to_be_walked_through_are_refused(server, talking, depth):
    """Python reads some 950 lists within each other, and fails when it writes them into a message or a prompt."""
    deep = "[" * depth + "]" * depth
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": f'{{"a": {deep}}}'}}
    body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "a"}], "max_tokens": 1})
    for target, path, text in (
        (server, EMBEDDINGS, f'{{"model": "tiny", "input": {deep}}}'),
        (server, INFER, f'{{"inputs": {deep}}}'),
        (talking, CHAT, body.replace('"a"', deep)),
        (talking, CHAT, body.replace('"max_tokens"', f'"temperature": {deep}, "max_tokens"')),
    ):
        reply = target.ask("POST", path, text.encode())
        assert (reply.status, "nested too deeply" in reply.message) == (400, True), reply.message
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [call]}]
    reply = talking.ask("POST", CHAT, {"model": "tiny", "messages": history})
    assert (reply.status, reply.message.split(" is ")[0]) == (400, "messages[1].tool_calls[0].function.arguments")


# Text that is none ----------------------------------------------------------------------------------------------------

HALF = "\ud800"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (EMBEDDINGS, {"model": HALF, "input": "a"}, 404),
        (EMBEDDINGS, {"model": "tiny", "input": HALF}, 400),
        (EMBEDDINGS, {"model": "tiny", "input": "a", HALF: "a"}, 400),
        (EMBEDDINGS, {"model": "tiny", "input": "a", "encoding_format": HALF}, 400),
        ("/v1/%ED%A0%80", {}, 404),
        ("/v1/models/%ED%A0%80", None, 404),
        ("/v2/models/%ED%A0%80/infer", {}, 404),
        (INFER, {"inputs": [tensor("BYTES", [HALF])]}, 400),
        (INFER, {"inputs": [{**tensor("BYTES", ["a"]), "name": HALF}]}, 400),
        (INFER, {"inputs": [tensor("BYTES", ["a"])], "outputs": [{"name": HALF}]}, 400),
        (INFER, {"inputs": [tensor("BYTES", ["a"])], "id": HALF}, 200),
    ],
)
def test_half_of_a_surrogate_pair_is_answered(server, path, body, status):
    reply = server.ask("GET" if body is None else "POST", path, body)
    assert reply.status == status
    assert json.loads(reply.data) and "ud800" not in reply.data.decode().replace("\\\\ud800", "")  # it is text


def test_half_of_a_surrogate_pair_in_a_conversation_is_answered(talking):
    request = {"model": "tiny", "messages": [{"role": "user", "content": "abc"}], "max_tokens": 2}
    for change in (
        {"messages": [{"role": "user", "content": HALF}]},
        {"messages": [{"role": HALF, "content": "a"}]},
        {HALF: 1},
        {"response_format": {"type": HALF}},
    ):
        reply = talking.ask("POST", CHAT, {**request, **change})
        assert (reply.status, bool(reply.message)) == (400, True)
    assert talking.ask("POST", CHAT, {**request, "stop": [HALF], "user": HALF}).status == 200


def test_a_model_named_by_bytes_that_are_no_text_is_served(folder):
    with served(folder, name=b"t\xff".decode("utf-8", "surrogateescape")) as server:
        assert server.ask("GET", "/v1/models").json["data"][0]["id"] == "t\\udcff"
        assert server.ask("GET", "/v1/models/other").status == 404


# Images ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    model = exported(tmp_path_factory.mktemp("images"), "vit/classifier")
    (model / "preprocessor_config.json").write_text(json.dumps({"size": {"height": 12, "width": 12}}))
    with served(model, name="tiny") as server:
        yield server


def classified(server: Server, name: str, *files: bytes):
    data = b"".join(len(file).to_bytes(4, "little") + file for file in files)
    header = {"name": name, "datatype": "BYTES", "shape": [len(files)], "parameters": {"binary_data_size": len(data)}}
    head = json.dumps({"inputs": [header]}).encode()
    return server.ask("POST", INFER, head + data, Inference_Header_Content_Length=str(len(head)))


def test_images_come_as_the_bytes_of_their_files(images, tmp_path):
    Image.new("RGB", (20, 10), "red").save(tmp_path / "a.png")
    reply = classified(images, "image", (tmp_path / "a.png").read_bytes())
    assert (reply.status, [one["name"] for one in reply.json["outputs"]]) == (200, ["label", "score"])
    url = f"data:image/png;base64,{base64.b64encode((tmp_path / 'a.png').read_bytes()).decode()}"
    coded = images.ask("POST", INFER, {"inputs": [{**tensor("BYTES", [url]), "name": "image"}]})
    assert coded.json == reply.json


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data:image/png;base64,iVBO*", "input image: the data URL is not valid base64: "),
        ("data:image/png;base64,\u00e9", "input image: the data URL is not valid base64: "),
        ("data:,red", 'input image is "data:,red", expected image files, each an element of BYTES: binary data (bin'),
        ("file:///a;base64,AAAA", 'input image is "file:///a;base64,AAAA", expected image files, '),
        ("data:image/png;base64,AAAA", "image[0]: it is not an image in a supported format"),
        ("data:;base64,", "image[0]: it is not an image in a supported format"),
    ],
)
def test_a_data_url_that_is_no_image_says_why(images, text, message):
    reply = images.ask("POST", INFER, {"inputs": [{**tensor("BYTES", [text]), "name": "image"}]})
    assert (reply.status, reply.message.startswith(message)) == (400, True), reply.message


@pytest.mark.parametrize(("kind", "number"), [("FP32", 1.5), ("INT64", 3), ("BOOL", True)])
def test_numbers_are_no_images(images, kind, number):
    reply = images.ask("POST", INFER, {"inputs": [{**tensor(kind, [number]), "name": "image"}]})
    assert (reply.status, reply.message.startswith(f'input image is "{number}", expected image files')) == (400, True)


def test_no_request_names_a_file_of_the_server(images, tmp_path):
    Image.new("RGB", (20, 10), "red").save(tmp_path / "a.png")
    place = str(tmp_path / "a.png")
    for name in ("image", "text"):
        reply = images.ask("POST", INFER, {"inputs": [{**tensor("BYTES", [place]), "name": name}]})
        assert reply.status == 400, reply.data
    assert reply.message.endswith("the model takes pixel_values, or for its task image, of BYTES")
    reply = classified(images, "image", place.encode())
    assert (reply.status, "image[0]: it is not an image in a supported format" in reply.message) == (400, True)


def test_an_image_that_is_a_program_is_not_run(images):
    reply = classified(images, "image", EPS)
    assert (reply.status, "PNG, JPEG, WEBP, GIF, BMP, TIFF" in reply.message) == (400, True)


def test_a_body_that_does_not_come_ends_with_its_time(folder):
    with (
        served(folder, name="tiny", limits=Limits(seconds=0.2)) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as slow,
    ):
        head = f"POST {INFER} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{{"
        slow.sendall(head.encode())
        assert slow.recv(1 << 16).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("path", [EMBEDDINGS, INFER])
@pytest.mark.parametrize("coming", ["Content-Length: 100\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"])
def test_a_client_that_goes_while_it_sends_its_body_is_no_error_of_the_server(folder, capfd, path, coming):
    with served(folder, name="tiny") as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as client:
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            client.sendall((head + coming).encode())
        route = path.replace("tiny", "{name}")
        until(lambda: server.figure(f'lucid_requests_total{{route="{route}",status="499"}}'))
    assert capfd.readouterr() == ("", "")


# Connections ----------------------------------------------------------------------------------------------------------

_SERVER = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (96, 192))
from lucid.serving.running import Settings, bound, make, serve
settings = Settings(sys.argv[1], {"name": "tiny", "threads": 1}, port=int(sys.argv[2]))
with bound(settings.host, settings.port) as sockets:
    serve(settings, make(settings), sockets, lambda: None)
"""


def status_of(port: int) -> int | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status
    except OSError:
        return None
    finally:
        connection.close()


@pytest.mark.skipif(sys.platform == "win32", reason="has no limit of open files for a process")
def test_connections_beyond_the_open_files_of_the_process_get_503(folder, tmp_path):
    port = free_port()
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen([sys.executable, "-c", _SERVER, folder, str(port)], stdout=log, stderr=log) as running,
    ):
        try:
            until(lambda: status_of(port) == 200)
            with ExitStack() as kept:
                for _ in range(120):
                    kept.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
                until(lambda: status_of(port) == 503)
                assert len(os.listdir(f"/proc/{running.pid}/fd")) < 192 if sys.platform == "linux" else True
            until(lambda: status_of(port) == 200)
        finally:
            running.terminate()
            running.wait(PATIENCE)
    written = (tmp_path / "log").read_text()
    assert "Traceback" not in written, written
    assert re.search(r"\d+ connections are open, as many as 192 open files allow; others get 503", written)
    assert written.count("others get 503") == 1


def test_the_answer_to_a_connection_too_many_says_when_to_come_back():
    connections = pytest.importorskip("lucid.serving.connections")
    head, body = connections.FULL.split(b"\r\n\r\n")
    assert b"HTTP/1.1 503 " in head and b"\r\nRetry-After: 1" in head and b"\r\nConnection: close" in head
    assert f"Content-Length: {len(body)}".encode() in head
    assert json.loads(body)["error"]["type"] == "server_error"
