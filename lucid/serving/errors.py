"""Answers to requests that cannot be served, in the form that the route's clients read."""

from __future__ import annotations

from http import HTTPStatus

from lucid.serving.answers import JsonAnswer

INFERENCE = "/v2"
"""Where the routes of the Open Inference Protocol begin."""


class RequestError(Exception):
    """Why a request is not served.

    Attributes:
        status: of the response.
        message: what came, what was expected and what to do.
        field: the field of the request that is wrong.
    """

    def __init__(self, message: str, field: str | None = None, status: int = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(message)
        self.message, self.field, self.status = message, field, int(status)


def response(path: str, error: RequestError) -> JsonAnswer:
    """The answer that clients of a route read: as OpenAI writes errors, or as the Open Inference Protocol does."""
    headers = {"Retry-After": "1"} if error.status == HTTPStatus.SERVICE_UNAVAILABLE else None
    if path == INFERENCE or path.startswith(f"{INFERENCE}/"):
        return JsonAnswer({"error": error.message}, error.status, headers)
    return JsonAnswer({"error": told(error)}, error.status, headers)


def told(error: RequestError) -> dict[str, str | None]:
    """An error as OpenAI's clients read it."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    return {"message": error.message, "type": kind, "param": error.field, "code": None}
