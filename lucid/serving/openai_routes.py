"""The routes of OpenAI's API that a model serves: models, embeddings, completions and chats below /v1."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from lucid.batch.rows import Kind
from lucid.batch.tasks import SENTENCES
from lucid.generation.chat.language_model import Answer
from lucid.serving import chat, completions, tables
from lucid.serving.answer_options import RequestOptions
from lucid.serving.bodies import Fields
from lucid.serving.endpoints import Endpoint
from lucid.serving.responses import JsonAnswer, RequestError, while_wanted
from lucid.serving.served_model import ServedModel
from lucid.serving.writing import Form, respond

EMBEDDING = "embedding"

_Answers: TypeAlias = Callable[[ServedModel, Fields], tuple[Sequence[Answer], RequestOptions, Sequence[Form]]]


def endpoints(model: ServedModel) -> list[Endpoint]:
    """The routes that the task of a model has."""

    async def models(request: Request) -> Response:
        return JsonAnswer({"object": "list", "data": [_described(model)]})

    async def one_model(request: Request) -> Response:
        check_name(model, request.path_params["name"])
        return JsonAnswer(_described(model))

    async def embeddings(request: Request, body: Fields) -> Response:
        check_name(model, body["model"])
        return await while_wanted(request, _embeddings(model, body), model.limits.seconds)

    def written(answers_of: _Answers) -> Callable[[Request, Fields], Awaitable[Response]]:
        async def answer(request: Request, body: Fields) -> Response:
            check_name(model, body["model"])
            return await respond(model, request, *await asyncio.to_thread(answers_of, model, body))

        return answer

    listed = [
        Endpoint("/v1/models", models, "the name of the model, its task and its fields", tables.MODELS),
        Endpoint("/v1/models/{name:path}", one_model, "the model", tables.MODEL),
    ]
    if model.rows is not None and EMBEDDING in model.rows.columns and model.task in SENTENCES:
        column = model.rows.columns[EMBEDDING]
        takes = tables.embeddings(column.width, column.kind is Kind.VECTOR)
        listed.append(Endpoint("/v1/embeddings", embeddings, "embeddings of texts", tables.EMBEDDINGS, takes))
    if model.language is not None:
        about, gives = "the continuation of a text", tables.COMPLETION_ANSWER
        route = written(completions.answers_of)
        listed.append(Endpoint("/v1/completions", route, about, gives, tables.COMPLETION, streams=True))
        if model.language.tokenizer.chat_template is not None:
            about, gives = "the next message of a conversation", tables.CHAT_ANSWER
            route = written(chat.answers_of)
            listed.append(Endpoint("/v1/chat/completions", route, about, gives, tables.CHAT, streams=True))
    return listed


def check_name(model: ServedModel, name: str) -> None:
    """Refuse a request for another model."""
    if name != model.name:
        raise RequestError(f"there is no model {name!r}; this server has {model.name!r}", "model", 404)


def _described(model: ServedModel) -> dict[str, Any]:
    """As OpenAI describes models, with the task and the inputs that /v2 takes for it; the page makes a form of them."""
    about = {"task": model.task, "fields": model.fields}
    return {"id": model.name, "object": "model", "created": model.created, "owned_by": "lucid", **about}


async def _embeddings(model: ServedModel, body: Fields) -> Response:
    assert model.rows is not None
    dimensions, entry = body.get("dimensions", model.rows.columns[EMBEDDING].width), body["input"]
    texts = [entry] if isinstance(entry, str) else entry
    rows, tokens = await model.results([(text,) for text in texts], "input")
    coded = body.get("encoding_format") == "base64"
    data = [
        {"object": "embedding", "index": index, "embedding": _vector(one[EMBEDDING], dimensions, coded)}
        for index, one in enumerate(rows)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return JsonAnswer({"object": "list", "data": data, "model": model.name, "usage": usage})


def _vector(vector: Any, dimensions: int, coded: bool) -> Any:
    """Numbers, bytes of numbers, a list of vectors, or ``{"indices": [...], "values": [...]}``.

    Of fewer dimensions a vector has the first ones, divided by their length, as in OpenAI's API (Kusupati et al. 2022).
    """
    if isinstance(vector, dict):
        return {name: part.tolist() for name, part in vector.items()}
    numbers = np.asarray(vector, "<f4")
    if numbers.ndim == 1 and dimensions < numbers.size:
        numbers = numbers[:dimensions]
        numbers = numbers / max(float(np.linalg.norm(numbers)), np.finfo(np.float32).tiny)
    return base64.b64encode(numbers.astype("<f4").tobytes()).decode("ascii") if coded else numbers.tolist()
