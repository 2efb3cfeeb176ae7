"""Answers as they are written, whole or as a stream of events, in the form that a route gives them."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from lucid.generation import EngineFull, LogitsError, TokenLogprob
from lucid.generation.chat.language_model import Answer
from lucid.serving.answer_options import RequestOptions
from lucid.serving.responses import UNPROCESSABLE, JsonAnswer, RequestError, json_bytes, openai_error, while_wanted
from lucid.serving.served_model import ServedModel


class Form(Protocol):
    """How a route writes an answer."""

    kind: str
    """The type of a whole answer."""
    event: str
    """The type of an event."""
    identity: str
    """The beginning of ids."""

    def whole(self, answer: Answer) -> dict[str, Any]:
        """The fields of a choice, with its finish_reason."""

    def first(self) -> dict[str, Any] | None:
        """The fields of the event before the first piece."""

    def piece(self, text: str, logprobs: Sequence[TokenLogprob] | None) -> dict[str, Any] | None:
        """The fields of the event for a piece of text and its tokens; None where nothing is sent yet."""

    def last(self, answer: Answer, logprobs: Sequence[TokenLogprob] | None) -> dict[str, Any]:
        """The fields of the last event, with the tokens after the last piece, such as those of a stop string."""


class Piece(NamedTuple):
    """A part of an answer, and how many tokens it had after it."""

    text: str
    tokens: int


async def respond(
    model: ServedModel, request: Request, answers: Sequence[Answer], options: RequestOptions, forms: Sequence[Form]
) -> Response:
    """The response with these answers, each in its form; it begins them.

    Raises:
        RequestError: if all slots are taken and the queue is full.
    """
    writings = _begun(model, answers)
    route = forms[0]
    head = {"id": f"{route.identity}-{uuid.uuid4().hex}", "created": int(time.time()), "model": model.name}
    if options.stream:
        head |= {"object": route.event}
        return _Stream(writings, _events(writings, head, options, forms))
    await while_wanted(request, _all(writings), model.limits.seconds + 5)  # the answers end by themselves
    choices = [
        {"index": index, **form.whole(answer)} for index, (form, answer) in enumerate(zip(forms, answers, strict=True))
    ]
    return JsonAnswer({**head, "object": route.kind, "choices": choices, "usage": _usage(answers, options.times)})


class Writing:
    """An answer that its own thread reads piece by piece, while others are written."""

    def __init__(self, model: ServedModel, answer: Answer) -> None:
        """Take part in the next steps.

        Raises:
            RequestError: if all slots are taken and the queue is full.
        """
        self.model, self.answer = model, answer
        try:
            answer.begin()
        except EngineFull as error:
            raise RequestError(
                "this server writes and queues as many answers as it takes; try again later",
                status=HTTPStatus.TOO_MANY_REQUESTS,
            ) from error
        model.count_answers()
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + model.limits.seconds
        self._end = loop.call_at(self._deadline, answer.cancel)

    async def pieces(self) -> AsyncIterator[Piece]:
        """The pieces. If the reader stops, or the time is over, the answer ends."""
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[Piece | ValueError | None] = asyncio.Queue()

        def write() -> None:
            if loop.time() > self._deadline:  # it waited for a thread
                self.answer.cancel()
            try:
                for text in self.answer:
                    loop.call_soon_threadsafe(queue.put_nowait, Piece(text, len(self.answer.ids)))
            except ValueError as error:  # an option that does not fit the model, or a constraint that is too complex
                loop.call_soon_threadsafe(queue.put_nowait, error)  # the reader may have stopped: it is no fault

        writing = loop.run_in_executor(self.model.writers, write)
        writing.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (piece := await queue.get()) is not None:
                self.model.count_answers()
                if isinstance(piece, ValueError):
                    of_model = isinstance(piece, LogitsError) and piece.option is None
                    status = UNPROCESSABLE if of_model else HTTPStatus.BAD_REQUEST
                    raise RequestError(str(piece), status=status) from piece
                yield piece
            await writing
            if not self.answer.ids:
                raise RequestError("other answers took too long; try again later", status=503)
        finally:
            self.close()
            kept, tokens = self.answer.kept, self.model.metrics.tokens
            tokens.labels("read").inc(self.answer.prompt_tokens - kept)
            tokens.labels("kept").inc(kept)
            tokens.labels("written").inc(len(self.answer.ids))

    def close(self) -> None:
        """End the answer."""
        self._end.cancel()
        self.answer.cancel()
        self.model.count_answers()


def _begun(model: ServedModel, answers: Sequence[Answer]) -> list[Writing]:
    writings: list[Writing] = []
    try:
        for answer in answers:
            writings.append(Writing(model, answer))
    except RequestError:
        _close(writings)
        raise
    return writings


def _close(writings: Sequence[Writing]) -> None:
    for writing in writings:
        writing.close()


class _Stream(StreamingResponse):
    """Events of answers, which end with the response: the client may have gone before the first event."""

    def __init__(self, writings: Sequence[Writing], events: AsyncIterator[str]) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._writings = writings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            _close(self._writings)


async def _all(writings: Sequence[Writing]) -> None:
    async for _ in _merged(writings):
        pass


async def _merged(writings: Sequence[Writing]) -> AsyncIterator[tuple[int, Piece | None]]:
    """The pieces of several answers by their numbers, as they come; None after the last of each."""
    queue: asyncio.Queue[tuple[int, Piece | None]] = asyncio.Queue()

    async def read(number: int, writing: Writing) -> None:
        async for piece in writing.pieces():
            queue.put_nowait((number, piece))
        queue.put_nowait((number, None))

    tasks = [asyncio.create_task(read(number, writing)) for number, writing in enumerate(writings)]
    for task in tasks:
        task.add_done_callback(
            lambda done: queue.put_nowait((-1, None)) if done.cancelled() or done.exception() else None
        )
    try:
        for _ in tasks:
            while True:
                number, piece = await queue.get()
                if number < 0:
                    await asyncio.gather(*(task for task in tasks if task.done()))
                await asyncio.sleep(0)  # a client that has gone is noticed before the next piece is sent
                yield number, piece
                if piece is None:
                    break
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _events(
    writings: Sequence[Writing], head: dict[str, Any], options: RequestOptions, forms: Sequence[Form]
) -> AsyncIterator[str]:
    def event(index: int, fields: dict[str, Any]) -> str:
        return _event({**head, "choices": [{"index": index, "finish_reason": None, "logprobs": None, **fields}]})

    for index, form in enumerate(forms):
        if (first := form.first()) is not None:
            yield event(index, first)
    sent = [0] * len(writings)
    try:
        async for index, piece in _merged(writings):
            answer, form = writings[index].answer, forms[index]
            tokens = len(answer.ids) if piece is None else piece.tokens
            logprobs = answer.logprobs and answer.logprobs[sent[index] : tokens]
            if piece is None:
                yield event(index, form.last(answer, logprobs))
                continue
            sent[index] = tokens
            if (fields := form.piece(piece.text, logprobs)) is not None:
                yield event(index, fields)
    except RequestError as error:  # the status has been sent long ago
        yield _event({"error": openai_error(error)})
        return
    if options.usage:
        yield _event({**head, "choices": [], "usage": _usage([one.answer for one in writings], options.times)})
    yield "data: [DONE]\n\n"


def _event(values: dict[str, Any]) -> str:
    return f"data: {json_bytes(values).decode()}\n\n"


def reason(answer: Answer) -> str:
    """Why an answer ended; without a reason of its own its time was over."""
    return "stop" if answer.ended_by in ("eos", "stop") else "length"


def _usage(answers: Sequence[Answer], count: int) -> dict[str, Any]:
    """The tokens of all answers; a prompt counts once."""
    read, written = sum(one.prompt_tokens for one in answers[::count]), sum(len(one.ids) for one in answers)
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    return {**usage, "prompt_tokens_details": {"cached_tokens": sum(one.kept for one in answers[::count])}}
