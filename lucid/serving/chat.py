"""/v1/chat/completions: an answer to a conversation, whole or as it is written."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from lucid.generation import EngineFull, LogitsError
from lucid.generation.chat.language_model import Answer
from lucid.generation.chat.template import Message
from lucid.serving.bodies import Body
from lucid.serving.responses import JsonAnswer, RequestError, json_bytes, openai_error, while_wanted
from lucid.serving.served_model import ServedModel

NEW_TOKENS = 512
"""How many tokens an answer has at most where a request does not say, or as many as the model has positions for."""
_SERVED = (
    *("model", "messages", "max_tokens", "max_completion_tokens", "stop", "temperature", "top_p", "seed"),
    *("stream", "stream_options", "n", "logprobs", "frequency_penalty", "presence_penalty", "response_format"),
)
_ONLY_TOLD = ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key")
"""Fields that describe the client or change no answer."""
_ROLES = ("system", "user", "assistant", "developer")


async def complete(model: ServedModel, request: Request, body: Body) -> Response:
    """The answer to a request.

    Raises:
        RequestError: for a conversation that has no room, or a field that is wrong or not served.
    """
    answer = await asyncio.to_thread(_answer, model, body)
    writing = _Writing(model, answer)
    if body.get("stream", bool, False):
        usage = body.section("stream_options").get("include_usage", bool, False)
        return StreamingResponse(_events(model, writing, usage), media_type="text/event-stream")
    text = await while_wanted(request, _whole(writing), model.limits.seconds + 5)  # the answer ends by itself
    said = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": said, "finish_reason": _reason(answer), "logprobs": None}
    return JsonAnswer({**_head(model, "chat.completion"), "choices": [choice], "usage": _usage(answer)})


def _answer(model: ServedModel, body: Body) -> Answer:
    """The answer that a request asks for, not yet begun."""
    language = model.language
    assert language is not None
    body.refuse_others(*_SERVED, *_ONLY_TOLD)
    body.only("n", 1)
    body.only("logprobs", False)
    for name in ("frequency_penalty", "presence_penalty"):
        body.only(name, 0, 0.0)
    if body.section("response_format").get("type", str, "text") != "text":
        raise RequestError("response_format is not served; leave it out", "response_format")
    messages = _messages(body)
    model.check_characters(sum(len(message["content"]) for message in messages), "messages")
    try:
        ids = language.tokenizer.encode_chat(messages)
    except ValueError as error:
        raise RequestError(f"messages: {error}", "messages") from error
    most = "max_completion_tokens" if body.has("max_completion_tokens") else "max_tokens"
    wanted = body.get(most, int, NEW_TOKENS)
    if wanted < 1:
        raise body.wrong(most, "expected 1 or more")
    positions = language.max_positions
    new = wanted if positions is None else min(wanted, positions - len(ids))
    if new < 1:
        raise RequestError(
            f"messages have {len(ids)} tokens and the model {positions} positions, which leaves none for an answer; "
            "send fewer messages, or shorter ones",
            "messages",
        )
    model.check_tokens(len(ids) + new, "messages")
    stop = body.any("stop")
    stops = [stop] if isinstance(stop, str) else [] if stop is None else stop
    if not isinstance(stops, list) or not all(isinstance(one, str) and one for one in stops) or len(stops) > 4:
        raise body.wrong("stop", "expected a string or a list of up to 4 strings")
    try:
        return language.answer(ids, max_new_tokens=new, stop=stops, **_sampling(body))
    except (TypeError, ValueError) as error:
        raise RequestError(str(error)) from error


def _messages(body: Body) -> list[Message]:
    found: list[Message] = []
    for message in body.sections("messages"):
        role = message.get("role", str)
        if role not in _ROLES:
            raise message.wrong("role", f"served: {', '.join(_ROLES)}")
        content = message.any("content")
        if isinstance(content, list):
            parts = message.sections("content")
            for part in parts:
                part.only("type", "text")
            content = "".join(part.get("text", str) for part in parts)
        if not isinstance(content, str):
            raise message.wrong("content", "expected a string, or a list of texts")
        found.append({"role": "system" if role == "developer" else role, "content": content})
    if not found:
        raise body.wrong("messages", "expected at least one message")
    return found


def _sampling(body: Body) -> dict[str, Any]:
    """Options of `Generator.stream`: a temperature of 0 is the likeliest token; without one it is 1."""
    temperature = body.get("temperature", float, 1.0)
    options: dict[str, Any] = {}
    if temperature > 0:
        options = {"do_sample": True, "temperature": temperature}
        if body.has("top_p"):
            options["top_p"] = body.get("top_p", float)
        if body.has("seed"):
            options["seed"] = abs(body.get("seed", int))
    elif not temperature >= 0:
        raise body.wrong("temperature", "expected 0 or more")
    return options


class _Writing:
    """An answer that a thread of its own reads piece by piece, while others are written too."""

    def __init__(self, model: ServedModel, answer: Answer) -> None:
        """Take part in the next steps.

        Raises:
            RequestError: if as many answers are written and wait as may.
        """
        self.model, self.answer = model, answer
        try:
            answer.begin()
        except EngineFull as error:
            raise RequestError(
                "as many answers are written and wait as this server takes; try again later",
                status=HTTPStatus.TOO_MANY_REQUESTS,
            ) from error
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + model.limits.seconds
        self._end = loop.call_at(self._deadline, answer.cancel)

    async def pieces(self) -> AsyncIterator[str]:
        """The pieces. If the reader stops, or the time is over, the answer ends."""
        loop = asyncio.get_running_loop()
        found: asyncio.Queue[str | None] = asyncio.Queue()

        def write() -> None:
            if loop.time() > self._deadline:  # it waited for a thread
                self.answer.cancel()
            for piece in self.answer:
                loop.call_soon_threadsafe(found.put_nowait, piece)

        writing = loop.run_in_executor(self.model.writers, write)
        writing.add_done_callback(lambda _: found.put_nowait(None))
        try:
            while (piece := await found.get()) is not None:
                yield piece
            await writing
            if not self.answer.ids:
                raise RequestError("other answers took too long; try again later", status=503)
        except LogitsError as error:
            raise RequestError(str(error), status=HTTPStatus.INTERNAL_SERVER_ERROR) from error
        finally:
            self._end.cancel()
            self.answer.cancel()
            read, written = self.answer.prompt_tokens - self.answer.kept, len(self.answer.ids)
            self.model.metrics.tokens.labels("read").inc(read)
            self.model.metrics.tokens.labels("written").inc(written)


async def _whole(writing: _Writing) -> str:
    return "".join([piece async for piece in writing.pieces()])


async def _events(model: ServedModel, writing: _Writing, usage: bool) -> AsyncIterator[str]:
    head = _head(model, "chat.completion.chunk")

    def event(delta: dict[str, str], reason: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        return _event({**head, "choices": [choice]})

    yield event({"role": "assistant", "content": ""})
    try:
        async for piece in writing.pieces():
            yield event({"content": piece})
    except RequestError as error:  # the status has been sent long ago
        yield _event({"error": openai_error(error)})
        return
    yield event({}, _reason(writing.answer))
    if usage:
        yield _event({**head, "choices": [], "usage": _usage(writing.answer)})
    yield "data: [DONE]\n\n"


def _event(values: dict[str, Any]) -> str:
    return f"data: {json_bytes(values).decode()}\n\n"


def _head(model: ServedModel, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()), "model": model.name}


def _reason(answer: Answer) -> str:
    """Why an answer ended; without a reason of its own its time was over."""
    return "stop" if answer.ended_by in ("eos", "stop") else "length"


def _usage(answer: Answer) -> dict[str, Any]:
    read, written = answer.prompt_tokens, len(answer.ids)
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    return {**usage, "prompt_tokens_details": {"cached_tokens": answer.kept}}
