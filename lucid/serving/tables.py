"""The tables of requests and answers, as JSON Schema: requests are checked against them, and /openapi.json has them."""

from __future__ import annotations

from typing import Any

from lucid.serving.bodies import EMPTY, Schema

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}
ANY: Schema = {}
_LONGEST_AXIS = (1 << 63) - 1
MOST_AXES = 16
MOST_TEXTS = 2048
MOST_LOGPROBS = 20


def whole(least: int | None = None, most: int | None = None) -> Schema:
    """A whole number."""
    bounds = {"minimum": least, "maximum": most}
    return {"type": "integer", **{name: bound for name, bound in bounds.items() if bound is not None}}


def one_of(*values: Any) -> Schema:
    """One of these values."""
    return {"enum": list(values)}


def items(of: Schema, least: int = 0, most: int | None = None, what: str | None = None) -> Schema:
    """A list; `what` says in words what is expected."""
    bounds = {"minItems": least or None, "maxItems": most, "description": what}
    return {"type": "array", "items": of, **{name: bound for name, bound in bounds.items() if bound is not None}}


def either(*schemas: Schema, what: str) -> Schema:
    """A value that fits one of several tables."""
    return {"anyOf": list(schemas), "description": what}


def fields(required: str = "", others: Schema = ANY, **properties: Schema) -> Schema:
    """An object: the names of fields that must be there, and the table of fields that are not named."""
    return {"type": "object", "properties": properties, "required": required.split(), "additionalProperties": others}


def answer(**properties: Schema) -> Schema:
    """An object of an answer, which has these fields and no others."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def maybe(schema: Schema) -> Schema:
    """A field of an answer that may be null."""
    return {"anyOf": [schema, {"type": "null"}]}


# Requests -------------------------------------------------------------------------------------------------------------

_PROBABILITY: Schema = {"type": "number", "exclusiveMinimum": 0, "maximum": 1}
_IDS = items(whole(0), least=1)
_SOME = {"type": "string", "minLength": 1, "description": "a string that is not empty"}
OPTIONS: dict[str, Schema] = {
    "temperature": {"type": "number", "minimum": 0},
    **dict.fromkeys(("top_p", "typical_p"), _PROBABILITY),
    "min_p": {"type": "number", "minimum": 0, "maximum": 1},
    "repetition_penalty": {"type": "number", "exclusiveMinimum": 0},
    **dict.fromkeys(("frequency_penalty", "presence_penalty"), NUMBER),
    "seed": whole(),
    **dict.fromkeys(("max_completion_tokens", "max_tokens", "max_new_tokens", "n", "num_return_sequences"), whole(1)),
    **dict.fromkeys(("top_k", "prompt_lookup_num_tokens"), whole(1)),
    **dict.fromkeys(("min_tokens", "min_new_tokens", "no_repeat_ngram_size"), whole(0)),
    "stop": either(_SOME, items(_SOME, most=4), what="a string or a list of up to 4 strings"),
    "logit_bias": {
        "type": "object",
        "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
        "description": "numbers from -100 to 100 by the id of a token",
    },
    "bad_words_ids": items(items(whole()), what="a list of lists of tokens"),
    "suppress_tokens": items(whole()),
    "json_schema": OBJECT,
    "regex": TEXT,
    "grammar": TEXT,
    "response_format": fields(
        "type",
        EMPTY,
        type=one_of("text", "json_object", "json_schema"),
        json_schema=fields(
            "name schema",
            EMPTY,
            name=TEXT,
            schema={"type": "object", "description": 'a JSON Schema; for any object ask for the type "json_object"'},
            strict=FLAG,
            description=TEXT,
        ),
    ),
    "stream": FLAG,
    "stream_options": fields("", EMPTY, include_usage=FLAG),
}
"""The options that a request may have."""
_TOLD: dict[str, Schema] = dict.fromkeys(
    (
        *("user", "metadata", "store", "service_tier", "safety_identifier"),
        *("prompt_cache_key", "prompt_cache_retention"),
    ),
    ANY,
)
"""Fields that describe the client or change no answer."""
_OPENAIS = dict.fromkeys(("reasoning_effort", "verbosity", "web_search_options"), EMPTY)
"""Fields of OpenAI's API that are not served and are no misspelled ones."""
_PART = fields("type text", EMPTY, type=one_of("text"), text=TEXT)
_CALL = fields(
    "function",
    EMPTY,
    id=TEXT,
    type=one_of("function"),
    function=fields("name", EMPTY, name=TEXT, arguments=TEXT),
    index=whole(0),  # of a streamed answer
)
_MESSAGE = fields(
    "role",
    EMPTY,
    role=one_of("system", "user", "assistant", "developer", "tool"),
    content=either(TEXT, items(_PART), what="a string, or a list of texts"),
    name=TEXT,
    tool_calls=items(_CALL),
    tool_call_id=TEXT,
)
_TOOL = fields("function", type=one_of("function"), function=fields("name", name=TEXT, parameters=OBJECT))
CHAT = fields(
    "model messages",
    EMPTY,
    model=TEXT,
    messages=items(_MESSAGE, least=1, what="at least one message"),
    logprobs=FLAG,
    top_logprobs=whole(0, MOST_LOGPROBS),
    tools=items(_TOOL),
    tool_choice=either(
        one_of("none", "auto", "required"),
        fields("function", EMPTY, type=one_of("function"), function=fields("name", EMPTY, name=TEXT)),
        what="none, auto, required, or one of the functions",
    ),
    parallel_tool_calls=FLAG,
    **OPTIONS,
    **_TOLD,
    **_OPENAIS,
)
COMPLETION = fields(
    "model prompt",
    EMPTY,
    model=TEXT,
    prompt=either(
        TEXT,
        _IDS,
        items(either(TEXT, _IDS, what="a text, or the ids of tokens"), least=1),
        what="a text, the ids of tokens, or a list of either",
    ),
    logprobs=whole(0, MOST_LOGPROBS),
    echo=one_of(False),
    best_of=one_of(1),
    **OPTIONS,
    **_TOLD,
    **_OPENAIS,
)


def embeddings(width: int | None, whole_vectors: bool) -> Schema:
    """The request for embeddings; if each text has one vector, `dimensions` asks for its first numbers."""
    texts = items(TEXT, least=1, most=MOST_TEXTS, what=f"a list of 1 to {MOST_TEXTS} strings")
    return fields(
        "model input",
        EMPTY,
        model=TEXT,
        input=either(TEXT, texts, what="a string or a list of strings"),
        encoding_format=one_of("float", *(["base64"] if whole_vectors else [])),
        dimensions=whole(1, width) if whole_vectors else one_of(width),
        user=ANY,
    )


def inference(datatypes: list[str]) -> Schema:
    """The request of the Open Inference Protocol."""
    shape = items(whole(0, _LONGEST_AXIS), most=MOST_AXES, what="a list of whole numbers of 0 or more")
    tensor = fields(
        "name datatype shape",
        EMPTY,
        name=TEXT,
        datatype=one_of(*datatypes),
        shape={**shape, "maxItems": MOST_AXES},
        parameters=fields(binary_data_size=whole(0), shared_memory_region=EMPTY),
        data={"type": "array"},
    )
    parameters = fields(binary_data=FLAG, classification=EMPTY, shared_memory_region=EMPTY)
    output = fields("name", EMPTY, name=TEXT, parameters=parameters)
    parameters = fields(binary_data_output=FLAG, sequence_id=EMPTY)
    return fields("inputs", EMPTY, id=TEXT, inputs=items(tensor), outputs=items(output), parameters=parameters)


# Answers --------------------------------------------------------------------------------------------------------------

_REASON = one_of("stop", "length", "tool_calls")
_USAGE = answer(
    prompt_tokens=whole(0),
    completion_tokens=whole(0),
    total_tokens=whole(0),
    prompt_tokens_details=answer(cached_tokens=whole(0)),
)
_TOKEN = {"token": TEXT, "logprob": NUMBER, "bytes": items(whole(0, 255))}
_LOGPROBS = answer(content=items(answer(**_TOKEN, top_logprobs=items(answer(**_TOKEN)))), refusal={"type": "null"})
_TEXT_LOGPROBS = answer(
    tokens=items(TEXT),
    token_logprobs=items(NUMBER),
    top_logprobs=items({"type": "object", "additionalProperties": NUMBER}),
    text_offset=items(whole(0)),
)
_CALLED = answer(id=TEXT, type=one_of("function"), function=answer(name=TEXT, arguments=TEXT))
_SAID = fields(
    "role content", {"not": ANY}, role=one_of("assistant"), content=maybe(TEXT), tool_calls=items(_CALLED, least=1)
)


def _answers(kind: str, **choice: Schema) -> Schema:
    choices = items(answer(index=whole(0), finish_reason=_REASON, **choice))
    return answer(id=TEXT, object=one_of(kind), created=whole(0), model=TEXT, choices=choices, usage=_USAGE)


CHAT_ANSWER = _answers("chat.completion", message=_SAID, logprobs=maybe(_LOGPROBS))
COMPLETION_ANSWER = _answers("text_completion", text=TEXT, logprobs=maybe(_TEXT_LOGPROBS))
MODEL = answer(id=TEXT, object=one_of("model"), created=whole(0), owned_by=TEXT, task=TEXT, fields=items(TEXT))
MODELS = answer(object=one_of("list"), data=items(MODEL))
EMBEDDINGS = answer(
    object=one_of("list"),
    data=items(
        answer(
            object=one_of("embedding"),
            index=whole(0),
            embedding=either(
                TEXT,
                items(NUMBER),
                items(items(NUMBER)),
                answer(indices=items(whole(0)), values=items(NUMBER)),
                what="numbers, their bytes in base64, vectors, or a sparse vector",
            ),
        )
    ),
    model=TEXT,
    usage=answer(prompt_tokens=whole(0), total_tokens=whole(0)),
)
HEALTH = answer(status=one_of("ok"))
SERVER = answer(name=TEXT, version=TEXT, extensions=items(TEXT))
_TENSOR = answer(name=TEXT, datatype=TEXT, shape=items(whole(-1)))
METADATA = answer(name=TEXT, versions=items(TEXT), platform=TEXT, inputs=items(_TENSOR), outputs=items(_TENSOR))
INFERENCE = fields(
    "model_name model_version outputs",
    model_name=TEXT,
    model_version=TEXT,
    id=TEXT,
    outputs=items(
        fields("name datatype shape", name=TEXT, datatype=TEXT, shape=items(whole(0)), data={"type": "array"})
    ),
)
ERROR = answer(error=answer(message=TEXT, type=TEXT, param=maybe(TEXT), code={"type": "null"}))
INFERENCE_ERROR = answer(error=TEXT)
