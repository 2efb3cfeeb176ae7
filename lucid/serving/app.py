"""The application: all routes of a model, behind the guard."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from lucid.batch.tasks import Choices
from lucid.core.number_ranges import at_least, check_all
from lucid.core.words.suggestions import did_you_mean
from lucid.runtime import Session
from lucid.serving import inference_routes, openai_routes
from lucid.serving.endpoints import Endpoint, description
from lucid.serving.guard import Guard, Limits, Metrics, check_key
from lucid.serving.responses import GONE, JsonAnswer, RequestError, response
from lucid.serving.served_model import ServedModel, servable
from lucid.serving.tables import HEALTH, OBJECT

_PAGE = Path(__file__).with_name("page.html")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; connect-src 'self'"
_ORIGIN = re.compile(
    r"(?!http://.*:80\Z|https://.*:443\Z)[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?|null"
)
"""A scheme, a host and perhaps a port, which is not the scheme's own."""
_RANGES = {"batch_tokens": at_least(1), "slots": at_least(1), "queue": at_least(0)}
_CORS: dict[str, Any] = {
    "allow_methods": ["GET", "POST"],
    "allow_headers": ["*"],
    "expose_headers": ["Retry-After", "Inference-Header-Content-Length"],
}


def application(
    folder: str | os.PathLike[str],
    *,
    name: str | None = None,
    limits: Limits | None = None,
    key: str | None = None,
    hosts: Sequence[str] = ("*",),
    providers: Sequence[str] = ("cpu",),
    threads: int | None = None,
    batch_tokens: int = 4096,
    slots: int = 4,
    queue: int = 64,
    origins: Sequence[str] = (),
    prompt: str | None = None,
    pooling: str | None = None,
    adapter: str | os.PathLike[str] | None = None,
) -> Starlette:
    """An ASGI application that serves the model of a folder.

    It has `/v1/models`, `/v1/embeddings` for a sentence encoder, `/v1/chat/completions` for a decoder with a chat
    template, the Open Inference Protocol below `/v2`, `/health`, `/metrics` for Prometheus, a page to try the model,
    and `/openapi.json`, which describes all of them. Texts of requests that
    come while the model is busy are computed together, and so are the tokens of answers.

    Args:
        folder: what `lucid export FOLDER --for onnxruntime` wrote.
        name: what clients call the model; by default the folder's name.
        limits: of requests.
        key: what clients must send as `Authorization: Bearer KEY`; without one everyone is served.
        hosts: names by which clients may address the server; other `Host` headers are rejected, which blocks DNS
            rebinding.
        origins: of the pages of other servers that browsers let ask this one (CORS), such as "https://example.org";
            "*" for all.
        providers, threads: of the `Session`.
        batch_tokens: the most tokens that are computed together, padding included.
        slots: how many answers are written at once.
        queue: how many answers may wait for a slot.
        prompt, pooling: as for `Predictor`.
        adapter: a file of `lucid.layouts.write_adapter`, for a model that was exported with inputs for adapters.

    Raises:
        FileNotFoundError: for a folder that is not there or is not exported; the message names the command.
        TypeError, ValueError: for a model of a task that is not served, an origin that no browser sends, a key that no
            header holds, a number out of range, and as `Session`.
    """
    check_all({"batch_tokens": batch_tokens, "slots": slots, "queue": queue}, _RANGES)
    if key is not None:
        check_key(key, "the argument key")
    for name_of_list, texts in (("hosts", hosts), ("origins", origins)):
        if isinstance(texts, str):
            raise TypeError(f"{name_of_list} is {texts!r}, expected a list, as [{texts!r}]")
    for origin in origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise ValueError(
                f"origins: {origin!r}, expected an origin as browsers send it, such as https://example.org or "
                "http://localhost:3000, without a path, a pattern or the scheme's own port; or * for all"
            )
    limits, metrics, exported = limits or Limits(), Metrics(), servable(folder)
    session = Session(exported.model, providers, threads=threads, spinning=False, huge_pages=True, adapter=adapter)
    choices = Choices(max_characters=limits.body, prompt=prompt, pooling=pooling)
    model = ServedModel(exported, session, choices, limits, metrics, name, batch_tokens, slots, queue)
    app = Starlette(
        routes=[endpoint.route() for endpoint in _endpoints(model)],
        middleware=[
            *([Middleware(CORSMiddleware, allow_origins=list(origins), **_CORS)] if origins else []),
            Middleware(Guard, limits=limits, metrics=metrics, key=key, hosts=hosts),
        ],
        exception_handlers={
            RequestError: _refused,
            HTTPException: _not_found,
            ClientDisconnect: _unread,
            Exception: _failed,
        },
    )
    app.state.model = model
    return app


def _endpoints(model: ServedModel) -> list[Endpoint]:
    async def health(request: Request) -> Response:
        return JsonAnswer({"status": "ok"})

    async def figures(request: Request) -> Response:
        return Response(model.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    async def page(request: Request) -> Response:
        return FileResponse(_PAGE, headers={"Content-Security-Policy": _POLICY})

    async def described(request: Request) -> Response:
        return JsonAnswer(description(endpoints, model.name))

    endpoints = [
        *openai_routes.endpoints(model),
        *inference_routes.endpoints(model),
        Endpoint("/health", health, "whether the server is there", HEALTH),
        Endpoint("/metrics", figures, "figures for Prometheus", "text/plain"),
        Endpoint("/openapi.json", described, "this description", OBJECT),
        Endpoint("/", page, "a page to try the model", "text/html"),
        Endpoint("/docs", page, "a page of this description", "text/html"),
    ]
    return endpoints


def paths_of(app: Starlette) -> list[str]:
    """The paths that an application answers, with the name of its model; those of the protocol without versions."""
    paths = [route.path_format for route in app.routes if isinstance(route, Route)]
    return [path.replace("{name}", app.state.model.name) for path in paths if "{version}" not in path]


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return response(request.url.path, error)


async def _not_found(request: Request, error: Exception) -> Response:
    """The answer to an unknown path, or a method that a path does not have."""
    assert isinstance(error, HTTPException)
    request_line = f"{request.method} {request.url.path}: {HTTPStatus(error.status_code).phrase}"
    headers = error.headers or {}
    if "Allow" in headers:
        hint = f"use {headers['Allow']}"
    else:
        paths, model = paths_of(request.app), request.app.state.model
        similar = did_you_mean(request.url.path, paths)
        hint = f"{model.name!r} is for {model.task}, and there are {', '.join(paths)}{similar}"
    return response(request.url.path, RequestError(f"{request_line}; {hint}", status=error.status_code), headers)


async def _failed(request: Request, error: Exception) -> Response:
    """The answer where the server is at fault; the traceback goes to its log."""
    message = f"the server failed: {type(error).__name__}; its log has the traceback"
    return response(request.url.path, RequestError(message, status=HTTPStatus.INTERNAL_SERVER_ERROR))


async def _unread(request: Request, error: Exception) -> Response:
    """The answer to a client that disconnects while it sends its body; nobody receives it."""
    return response(request.url.path, RequestError("the client has gone", status=GONE))
