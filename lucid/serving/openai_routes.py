"""The routes of OpenAI's API that a model serves: models, embeddings, completions and chats below /v1."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lucid.batch.rows import Kind
from lucid.batch.tasks import SENTENCES
from lucid.serving import chat, completions
from lucid.serving.bodies import Body, body_of
from lucid.serving.responses import JsonAnswer, RequestError, while_wanted
from lucid.serving.served_model import ServedModel

EMBEDDING, MOST_TEXTS = "embedding", 2048


def routes(model: ServedModel) -> list[Route]:
    """The routes that the task of a model has."""

    async def models(request: Request) -> Response:
        return JsonAnswer({"object": "list", "data": [_described(model)]})

    async def one_model(request: Request) -> Response:
        check_name(model, request.path_params["name"])
        return JsonAnswer(_described(model))

    async def embeddings(request: Request) -> Response:
        body = await body_of(request)
        return await while_wanted(request, _embeddings(model, body), model.limits.seconds)

    async def conversation(request: Request) -> Response:
        body = await body_of(request)
        check_name(model, body.get("model", str))
        return await chat.complete(model, request, body)

    async def text(request: Request) -> Response:
        body = await body_of(request)
        check_name(model, body.get("model", str))
        return await completions.complete(model, request, body)

    found = [Route("/v1/models", models), Route("/v1/models/{name:path}", one_model)]
    if model.rows is not None and EMBEDDING in model.rows.columns and model.task in SENTENCES:
        found.append(Route("/v1/embeddings", embeddings, methods=["POST"]))
    if model.language is not None:
        found.append(Route("/v1/completions", text, methods=["POST"]))
        if model.language.tokenizer.chat_template is not None:
            found.append(Route("/v1/chat/completions", conversation, methods=["POST"]))
    return found


def check_name(model: ServedModel, name: str) -> None:
    """Refuse a request for another model."""
    if name != model.name:
        raise RequestError(f"there is no model {name!r}; this server has {model.name!r}", "model", 404)


def _described(model: ServedModel) -> dict[str, Any]:
    return {"id": model.name, "object": "model", "created": model.created, "owned_by": "lucid"}


async def _embeddings(model: ServedModel, body: Body) -> Response:
    check_name(model, body.get("model", str))
    body.refuse_others("model", "input", "encoding_format", "dimensions", "user")
    assert model.rows is not None
    column = model.rows.columns[EMBEDDING]
    whole, width = column.kind is Kind.VECTOR, column.width
    body.only("encoding_format", "float", *(["base64"] if whole else []))
    dimensions = body.get("dimensions", int, width)
    if dimensions != width and not (whole and 1 <= dimensions < width):
        raise body.wrong("dimensions", f"expected {f'1 to {width}' if whole else width}")
    given = body.any("input")
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise body.wrong("input", "expected a string or a list of strings")
    if len(texts) > MOST_TEXTS:
        raise RequestError(f"input has {len(texts)} texts, at most {MOST_TEXTS} are served at a time", "input")
    found, tokens = await model.results([(text,) for text in texts], "input")
    coded = body.any("encoding_format") == "base64"
    data = [
        {"object": "embedding", "index": index, "embedding": _vector(one[EMBEDDING], dimensions, coded)}
        for index, one in enumerate(found)
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
