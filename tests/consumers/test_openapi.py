"""schemathesis draws requests from /openapi.json: none is an error of the server, and all answers are as described."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.batch.folders import exported
from tests.serving.servers import decoder, served

EXAMPLES = settings(
    max_examples=30,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
POSTED = {
    "language": {"POST /v1/completions", "POST /v1/chat/completions"},
    "sentences": {
        "POST /v1/embeddings",
        "POST /v2/models/{name}/infer",
        "POST /v2/models/{name}/versions/{version}/infer",
    },
}
"""What each model answers with 200, if its texts are readable."""
TEXTS = ("prompt", "input", "content")
TENSOR = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["a"]}
LEFT_OUT = ("regex", "grammar", "json_schema", "response_format", "logit_bias", "tools", "tool_choice", "outputs")


@pytest.fixture(scope="module", params=POSTED)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    where = tmp_path_factory.mktemp(request.param)
    folder = exported(where, "sentences/cls") if request.param == "sentences" else decoder(where, cache="fixed")
    with served(folder, name="tiny") as running:
        yield request.param, f"http://127.0.0.1:{running.port}/openapi.json"


def readable(value: Any, text: bool = False) -> Any:
    """A request as it is drawn, with texts that the small models read: they have a token for each letter, 40 in all."""
    if isinstance(value, dict):
        fields = {name: readable(one, text or name in TEXTS) for name, one in value.items() if name not in LEFT_OUT}
        fields |= {"content": "a"} if "role" in fields and not fields.get("content") else {}
        fields |= {"inputs": [TENSOR]} if "inputs" in fields else {}
        return fields | {name: fixed for name, fixed in {"arguments": "{}", "type": "text"}.items() if name in fields}
    if isinstance(value, list):
        return [readable(one, text) for one in value[:9]]
    if isinstance(value, str) and text:
        return "".join(chr(97 + ord(one) % 26) for one in value[:9]) or "a"
    return value % 40 if text and type(value) in (int, float) else value


def check(operation: schemathesis.APIOperation, mode: GenerationMode) -> set[int]:
    """Ask what is drawn, and the same with texts that can be read; the statuses."""
    statuses: set[int] = set()

    @seeded(0)
    @EXAMPLES
    @given(case=operation.as_strategy(generation_mode=mode))
    def drawn(case: schemathesis.Case) -> None:
        bodies = [case.body]
        if mode is GenerationMode.POSITIVE and isinstance(case.body, dict):
            bodies.append(readable(case.body))
        for body in bodies:
            case.body = body
            answer = case.call()
            statuses.add(answer.status_code)
            # What no table says (ids beyond the vocabulary, a prompt that is too long, ...) is refused all the same.
            case.validate_response(answer, excluded_checks=[positive_data_acceptance])

    drawn()
    return statuses


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_no_request_is_an_error_and_answers_are_as_described(server: tuple[str, str], mode: GenerationMode) -> None:
    """With invalid requests: all are refused."""
    model, address = server
    operations = [result.ok() for result in schemathesis.openapi.from_url(address).get_all_operations()]
    drawn = [one for one in operations if one.body or mode is GenerationMode.POSITIVE]  # without a body none is wrong
    statuses = {operation.label: check(operation, mode) for operation in drawn}
    if mode is GenerationMode.POSITIVE:
        assert POSTED[model] <= {label for label, codes in statuses.items() if 200 in codes}, statuses
