"""/v1/chat/completions: the answers of the language model, whole and as they are written."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

import lucid
from lucid.layouts import write_folder
from tests.serving.servers import decoder, served
from tests.waiting import PATIENCE, until

pytest.importorskip("lucid.serving", reason="needs the extra serve", exc_type=ModuleNotFoundError)
guard = pytest.importorskip("lucid.serving.guard")
messages_of = pytest.importorskip("lucid.serving.messages").messages_of
Writing = pytest.importorskip("lucid.serving.writing").Writing

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "abc"}]
ASKED = {"model": "decoder", "messages": MESSAGES, "temperature": 0, "max_tokens": 6}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return decoder(tmp_path_factory.mktemp("decoder"))


@pytest.fixture(scope="module")
def server(folder):
    with served(folder) as running:
        yield running


def answer(folder, **options) -> lucid.generation.chat.Answer:
    """What the language model says."""
    model = lucid.generation.chat.load_language_model(folder)
    result = model.answer(model.tokenizer.encode_chat(MESSAGES), **options)
    for _ in result:
        pass
    return result


def events(data: bytes) -> list[dict]:
    """The events of a stream, which its end closes."""
    lines = [line.removeprefix("data: ") for line in data.decode().split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def test_a_whole_answer_is_that_of_the_language_model(server, folder):
    reply = server.ask("POST", CHAT, ASKED)
    expected = answer(folder, max_new_tokens=6)
    (choice,) = reply.json["choices"]
    assert choice["message"] == {"role": "assistant", "content": expected.text}
    assert choice["finish_reason"] == ("length" if expected.ended_by == "length" else "stop")
    count = len(expected.ids)
    usage = {"prompt_tokens": expected.prompt_tokens, "completion_tokens": count}
    usage |= {"total_tokens": expected.prompt_tokens + count, "prompt_tokens_details": {"cached_tokens": 0}}
    assert reply.json["usage"] == usage


def test_a_stream_has_the_same_text_in_pieces(server, folder):
    reply = server.ask("POST", CHAT, {**ASKED, "stream": True, "stream_options": {"include_usage": True}})
    assert reply.headers["content-type"].startswith("text/event-stream")
    *chunks, usage = events(reply.data)
    pieces = [event["choices"][0]["delta"].get("content", "") for event in chunks]
    assert "".join(pieces) == answer(folder, max_new_tokens=6).text
    assert chunks[-1]["choices"][0]["finish_reason"] in ("length", "stop")
    assert (usage["choices"], usage["usage"]["completion_tokens"] > 0) == ([], True)


def test_sampling_is_asked_for_as_clients_do(server, folder):
    request = {**ASKED, "temperature": 0.7, "top_p": 0.9, "seed": 3}
    answers = [server.ask("POST", CHAT, request).json["choices"][0]["message"]["content"] for _ in range(2)]
    options = {"do_sample": True, "temperature": 0.7, "top_p": 0.9, "seed": 3}
    assert answers == [answer(folder, max_new_tokens=6, **options).text] * 2


def test_a_stop_string_ends_the_answer(server, folder):
    whole = answer(folder, max_new_tokens=6).text
    stop = whole[2]
    (choice,) = server.ask("POST", CHAT, {**ASKED, "stop": stop}).json["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (whole.partition(stop)[0], "stop")


def of_user(**fields):
    """A conversation of one message."""
    return {"messages": [{"role": "user", "content": "a", **fields}]}


def test_an_answer_is_taken_as_a_message_and_names_go_to_the_template(server):
    """Clients send answers with all fields of OpenAI's, null where there is nothing."""
    whole = server.ask("POST", CHAT, ASKED)
    empty = {"refusal": None, "annotations": [], "audio": None, "function_call": None, "tool_calls": None}
    history = [{**MESSAGES[0], "name": "ann"}, whole.json["choices"][0]["message"] | empty]
    assert server.ask("POST", CHAT, {**ASKED, "messages": [*history, MESSAGES[0]]}).status == 200
    assert messages_of({"messages": history[:1]})[0] == {**MESSAGES[0], "name": "ann"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"messages": []}, "messages is [], expected at least one message"),
        ({"messages": ["hi"]}, 'messages[0] is "hi", expected an object'),
        ({"messages": [{"role": "robot", "content": "a"}]}, 'messages[0].role is "robot", served: "system", "user"'),
        ({"messages": [{"role": "user"}]}, "messages[0].content is null, expected a string"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 'type is "image_url", served: "text"'),
        (of_user(contents="b"), "messages[0].contents is not served; leave it out"),
        (of_user(reasoning="b"), "messages[0].reasoning is not served; leave it out"),
        (of_user(name=3), "messages[0].name is 3, expected a string"),
        (of_user(refusal="no"), "messages[0].refusal is not served; leave it out"),
        (of_user(content=[{"type": "text", "text": "a", "image_url": "b"}]), "messages[0].content[0].image_url is not"),
        (of_user(tool_calls=[{"function": {"name": "f"}, "kind": 1}]), "messages[0].tool_calls[0].kind is not served"),
        (of_user(tool_calls=[{"function": {"name": "f", "args": "{}"}}]), "tool_calls[0].function.args is not served"),
        (
            of_user(tool_calls=[{"function": {"name": "f", "arguments": '{"x": NaN}'}}]),
            'tool_calls[0].function.arguments is "{\\"x\\": NaN}", expected an object in JSON',
        ),
        (
            {"tools": [{"function": {"name": "a"}}]},
            "tools are not served: the chat template of this model takes none; leave them out",
        ),
        ({"max_tokens": -1}, "max_tokens is -1, expected 1 or more"),
        ({"max_completion_tokens": 0}, "max_completion_tokens is 0, expected 1 or more"),
        ({"temperature": 1, "top_k": 0}, "top_k is 0, expected 1 or more"),
        ({"max_token": 5}, "max_token is not served; leave it out"),
        ({"reasoning_effort": "high"}, "reasoning_effort is not served; leave it out"),
        ({"reasoning_efort": "high"}, "reasoning_efort is not served; leave it out"),
        (
            {"temperature": float("nan")},
            "the body is not valid JSON: temperature is NaN, which JSON does not have; where NaN is served, it is the "
            'text "NaN"',
        ),
        ({"logit_bias": {"5": -float("inf")}}, "not valid JSON: logit_bias.5 is -Infinity, which JSON does not have"),
        ({"stop": False}, "stop is false, expected a string or a list"),
        ({"max_tokens": "6"}, 'max_tokens is "6", expected a whole number'),
        ({"temperature": -1}, "temperature is -1, expected 0 or more"),
        ({"temperature": 1, "top_p": 0}, "top_p is 0"),
        ({"stop": [""]}, 'stop[0] is "", expected a string that is not empty'),
        ({"messages": [{"role": "user", "content": "a" * 500}]}, "which leaves none for an answer"),
    ],
)
def test_what_is_not_served_says_so(server, change, message):
    reply = server.ask("POST", CHAT, {**ASKED, **change})
    assert (reply.status, message in reply.message) == (400, True), reply.message


def test_texts_in_parts_are_joined(server):
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "bc"}]
    whole = server.ask("POST", CHAT, ASKED).json["choices"]
    request = {**ASKED, "messages": [{"role": "user", "content": parts}]}
    assert server.ask("POST", CHAT, request).json["choices"] == whole


def test_a_decoder_has_no_embeddings(server):
    assert server.ask("POST", "/v1/embeddings", {"model": "decoder", "input": "a"}).status == 404


class Steps:
    """The steps of a server's engine, which wait until they are let; and how many answers each continued."""

    def __init__(self, server) -> None:
        self.engine = server.app.state.model.language._engine
        self.go, self.together = threading.Event(), []
        run = self.engine._memory.read

        def held(slots, parts, last=1):
            if max(map(len, parts)) == 1:
                self.together.append(len(slots))
                assert self.go.wait(PATIENCE)
            return run(slots, parts, last)

        self.engine._memory.read = held

    def until(self, active: int) -> None:
        """Wait until so many answers are written."""
        until(lambda: self.engine.active == active)


def streamed(server, request: dict) -> http.client.HTTPConnection:
    """A connection on which an answer has begun."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    connection.request("POST", CHAT, json.dumps({**request, "stream": True}), {"Content-Type": "application/json"})
    connection.getresponse().read(10)
    return connection


LONG = {**ASKED, "max_tokens": 40, "temperature": 1, "seed": 1}


def test_an_answer_whose_reader_has_gone_is_not_written_to_its_end(folder):
    with served(folder) as server:
        steps = Steps(server)
        connection = streamed(server, LONG)
        until(lambda: steps.together)
        connection.close()
        steps.until(active=0)
        steps.go.set()
        until(lambda: server.figure(f'lucid_requests_total{{route="{CHAT}",status="499"}}') == 1)
    assert steps.together == [1]


def test_a_stream_whose_reader_has_gone_before_it_begins_leaves_its_slot(folder):
    app = lucid.serving.application(folder, threads=1, slots=1, queue=0)
    headers = [(b"host", b"a"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": CHAT, "headers": headers, "query_string": b""}

    async def first(request: dict) -> int:
        """The status; the client is gone as soon as the request is read."""
        body = json.dumps(request).encode()
        incoming, statuses = [{"type": "http.request", "body": body}, {"type": "http.disconnect"}], []

        async def receive() -> dict:
            return incoming.pop(0)

        async def send(message: dict) -> None:
            statuses.append(message.get("status"))
            await asyncio.sleep(0)  # as a server does whose client reads slowly

        await app(scope, receive, send)
        return statuses[0]

    async def several() -> list[int]:
        return [await first({**LONG, "stream": True}) for _ in range(3)]

    assert asyncio.run(several()) == [200] * 3


def test_a_stream_sends_one_piece_before_it_can_hear_that_its_reader_has_gone(folder):
    """Also where many are written: the loop has its turn after each."""
    app = lucid.serving.application(folder, threads=1)
    headers = [(b"host", b"a"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": CHAT, "headers": headers, "query_string": b""}

    async def heard() -> list[bool]:
        turned, heard = asyncio.Event(), []
        incoming = [{"type": "http.request", "body": json.dumps({**LONG, "stream": True}).encode()}]
        turned.set()

        async def receive() -> dict:
            return incoming.pop(0) if incoming else await asyncio.Event().wait()

        async def send(message: dict) -> None:
            if not message.get("body"):
                return
            heard.append(turned.is_set())
            while len(heard) == 2 and app.state.model.language.active:  # until the whole answer is written
                await asyncio.sleep(0.01)
            turned.clear()
            asyncio.get_running_loop().call_soon(turned.set)

        await app(scope, receive, send)
        return heard[:-1]  # the last one only says that it is the last

    pieces = asyncio.run(heard())
    assert len(pieces) > 10 and all(pieces)


def test_an_error_behind_what_a_reader_still_takes_is_no_fault_of_the_server(caplog):
    class Failing:
        prompt_tokens, kept, ids = 1, 0, (5,)

        def __iter__(self):
            yield "a"
            raise ValueError("an option that does not fit the model")

        def begin(self) -> None: ...

        def cancel(self) -> None: ...

    model = SimpleNamespace(
        count_answers=lambda: None, limits=guard.Limits(), writers=ThreadPoolExecutor(1), metrics=guard.Metrics()
    )

    async def read() -> None:
        pieces = Writing(model, Failing()).pieces()
        assert (await anext(pieces)).text == "a"
        model.writers.shutdown()
        await asyncio.sleep(0.01)  # by now the loop knows the error as well
        await pieces.aclose()

    asyncio.run(read())
    gc.collect()  # errors that nobody has read are written when they go
    assert caplog.messages == []


@pytest.mark.parametrize("end", ["the time is over", "the reader has gone"])
def test_an_answer_without_text_ends_at_its_next_token(folder, end, monkeypatch):
    """Special tokens give no piece of text."""
    monkeypatch.setattr("lucid.generation.choice.Chooser.choose", lambda *_: 3)
    limits = lucid.serving.Limits(seconds=1 if end == "the time is over" else 60)
    with served(folder, limits=limits) as server, ThreadPoolExecutor(1) as clients:
        steps = Steps(server)
        if end == "the time is over":
            reply = clients.submit(server.ask, "POST", CHAT, LONG)
            until(lambda: steps.together)
            steps.until(active=0)
            steps.go.set()
            # After the prompt, and after the step that was under way.
            assert reply.result().json["usage"]["completion_tokens"] == 2
            assert reply.result().json["choices"][0]["finish_reason"] == "length"
        else:
            connection = streamed(server, LONG)
            until(lambda: steps.together)
            connection.close()
            steps.until(active=0)
            steps.go.set()
    assert steps.together == [1]


@pytest.mark.parametrize("cache", ["growing", "fixed"])
def test_several_answers_are_written_at_once(tmp_path, cache):
    folder = decoder(tmp_path, cache=cache)
    requests = [{**ASKED, "messages": [{"role": "user", "content": text}]} for text in ("abc", "ddef", "b", "ghi")]
    with served(folder, slots=2) as server, ThreadPoolExecutor(4) as clients:
        expected = [server.ask("POST", CHAT, one).json["choices"] for one in requests]
        steps = Steps(server)
        replies = [clients.submit(server.ask, "POST", CHAT, one) for one in requests]
        until(lambda: steps.engine.active + steps.engine.waiting == len(requests))
        steps.go.set()
        assert [reply.result().json["choices"] for reply in replies] == expected
        assert max(steps.together) == 2


def test_more_answers_than_may_wait_are_refused_with_when_to_come_back(folder):
    with served(folder, slots=1, queue=0) as server:
        steps = Steps(server)
        connection = streamed(server, LONG)
        steps.until(active=1)
        reply = server.ask("POST", CHAT, ASKED)
        assert (reply.status, reply.headers["retry-after"]) == (429, "1")
        assert "this server writes and queues as many answers as it takes; try again later" in reply.message
        connection.close()
        steps.until(active=0)
        steps.go.set()
        assert server.ask("POST", CHAT, ASKED).status == 200
        reply = server.ask("POST", CHAT, {**ASKED, "n": 2})  # there is never room for two
        assert (reply.status, "asks for 2 answers, at most 1 are written" in reply.message) == (400, True)


def test_the_next_turn_of_a_conversation_reads_only_what_is_new(folder):
    with served(folder) as server:
        first = server.ask("POST", CHAT, ASKED).json
        assert first["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
        messages = [*MESSAGES, first["choices"][0]["message"], {"role": "user", "content": "de"}]
        usage = server.ask("POST", CHAT, {**ASKED, "messages": messages}).json["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] >= first["usage"]["prompt_tokens"]


def test_figures_tell_what_is_written_waits_and_is_kept(folder):
    with served(folder, slots=1) as server, ThreadPoolExecutor(1) as clients:
        kept = [server.ask("POST", CHAT, ASKED).json["usage"] for _ in range(2)][-1]
        assert server.figure('lucid_tokens_total{kind="kept"}') == kept["prompt_tokens_details"]["cached_tokens"] > 0
        steps = Steps(server)
        connection = streamed(server, LONG)
        waiting = clients.submit(server.ask, "POST", CHAT, ASKED)
        until(lambda: (server.figure("lucid_busy_slots"), server.figure("lucid_waiting_answers")) == (1, 1))
        connection.close()
        steps.go.set()
        assert waiting.result().status == 200
        until(lambda: (server.figure("lucid_busy_slots"), server.figure("lucid_waiting_answers")) == (0, 0))


def test_a_folder_that_is_replaced_while_it_is_served_changes_no_answer(tmp_path):
    """A server goes on with the model that it has opened; the next one opens the new folder."""
    folder = decoder(tmp_path, cache="fixed", external_data=True)
    with served(folder) as server:
        before = server.ask("POST", CHAT, ASKED).json["choices"]
        source = tmp_path / "checkpoint"
        model = lucid.models.load(source)
        model.load_state_dict({name: 0.5 * value.numpy() for name, value in model.state_dict().items()})
        write_folder(model, source, folder, layout="onnxruntime", check=False, cache="fixed", external_data=True)
        assert server.ask("POST", CHAT, ASKED).json["choices"] == before
    with served(folder) as server:
        assert server.ask("POST", CHAT, ASKED).json["choices"] != before


def test_a_request_of_which_the_model_makes_nan_is_not_tried_again(folder, monkeypatch):
    def broken(self, ids, logits):
        raise lucid.generation.LogitsError("generate: the model gave NaN")

    with served(folder) as server:
        monkeypatch.setattr("lucid.generation.choice.Chooser.choose", broken)
        reply = server.ask("POST", CHAT, ASKED)
        assert (reply.status, reply.message) == (422, "generate: the model gave NaN")


def test_an_answer_ends_when_its_time_is_over(folder):
    limits = lucid.serving.Limits(seconds=1e-9)
    with served(folder, limits=limits) as server:
        reply = server.ask("POST", CHAT, ASKED)
        assert (reply.status, "too long" in reply.message) == (503, True)
        reply = server.ask("POST", CHAT, {**ASKED, "stream": True})
        assert "too long" in reply.data.decode().split("\n\n")[1]
