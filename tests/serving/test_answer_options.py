"""What clients ask of answers over HTTP: options, several answers, log probabilities, structure, tools, completions."""

from __future__ import annotations

import json
import random
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

import lucid
from lucid.generation.options import _RANGES
from lucid.serving.bodies import checked
from lucid.serving.responses import RequestError
from lucid.serving.tables import OPTIONS as FIELDS
from tests.chat.checkpoints import tokenizer as letters
from tests.serving.servers import decoder, served
from tests.serving.test_chat_route import ASKED, CHAT, MESSAGES, events

pytest.importorskip("lucid.serving", reason="needs the extra serve", exc_type=ModuleNotFoundError)

TEXT = "/v1/completions"
TOOL_TEMPLATE = (
    "{{ bos_token }}{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{% for m in messages %}"
    "{{ '<|user|>' if m.role == 'user' else '' }}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments.a }}{% endfor %}\n{% endfor %}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An exported decoder whose template takes tools, and whose vocabulary has what JSON is written with."""
    model_folder = decoder(tmp_path_factory.mktemp("decoder"))
    raw = json.loads((model_folder / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = raw["model"]["vocab"]
    for new, letter in zip('"{}:,', "vwxyz", strict=True):
        vocabulary[new] = vocabulary.pop(letter)
    (model_folder / "tokenizer.json").write_text(json.dumps(raw), encoding="utf-8")
    about = json.loads((model_folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    (model_folder / "tokenizer_config.json").write_text(json.dumps({**about, "chat_template": TOOL_TEMPLATE}))
    (model_folder / "chat_template.jinja").unlink(missing_ok=True)
    return model_folder


@pytest.fixture(scope="module")
def server(folder):
    with served(folder) as running:
        yield running


@pytest.fixture(scope="module")
def model(folder):
    return lucid.generation.chat.load_language_model(folder)


def expected(model, ids, **options) -> str:
    return "".join(model.answer(ids, max_new_tokens=6, **options))


def texts(reply) -> list[str]:
    assert reply.status == 200, reply.data
    return [choice["message"]["content"] if "message" in choice else choice["text"] for choice in reply.json["choices"]]


OPTIONS = [
    {"frequency_penalty": 1.5, "presence_penalty": 0.5},
    {"repetition_penalty": 1.7},
    {"no_repeat_ngram_size": 1},
    {"min_p": 0.1, "temperature": 2.0, "seed": 5},
    {"top_k": 3, "temperature": 2.0, "seed": 6},
    {"typical_p": 0.5, "seed": 7},
    {"suppress_tokens": [4, 5, 6, 7], "bad_words_ids": [[8], [9, 10]]},
    {"prompt_lookup_num_tokens": 3},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options_have_the_names_and_meanings_that_they_have_in_python(server, model, options):
    reply = server.ask("POST", TEXT, {"model": "decoder", "prompt": "abc", "max_tokens": 6, **options})
    assert texts(reply) == [expected(model, model.tokenizer.encode("abc"), **options)]


def test_biases_and_counts_may_have_openais_names_or_those_of_python(server):
    request = {"model": "decoder", "prompt": "abc", "temperature": 0}
    assert texts(server.ask("POST", TEXT, {**request, "logit_bias": {"7": 100}, "max_tokens": 6})) == ["d" * 6]
    for most, least in (("max_tokens", "min_tokens"), ("max_new_tokens", "min_new_tokens")):
        ended = {**request, "logit_bias": {"2": 100}, most: 6}
        counts = [
            server.ask("POST", TEXT, one).json["usage"]["completion_tokens"] for one in (ended, {**ended, least: 4})
        ]
        assert counts == [1, 5]


def test_several_answers_have_seeds_one_after_the_other(server):
    request = {"model": "decoder", "prompt": "abc", "max_tokens": 6, "temperature": 3.0, "seed": 11}
    several = server.ask("POST", TEXT, {**request, "n": 3})
    alone = [texts(server.ask("POST", TEXT, {**request, "seed": seed}))[0] for seed in (11, 12, 13)]
    assert texts(several) == alone and len(set(alone)) == 3
    usage = several.json["usage"]
    assert usage["completion_tokens"] == 18 and usage["total_tokens"] == usage["prompt_tokens"] + 18
    pieces = events(server.ask("POST", TEXT, {**request, "n": 3, "stream": True}).data)
    streamed = ["", "", ""]
    for event in pieces:
        (choice,) = event["choices"]
        streamed[choice["index"]] += choice["text"]
    assert streamed == alone


def test_log_probabilities_are_those_of_the_generator(server, model):
    ids = model.tokenizer.encode_chat(MESSAGES)
    stream = model.answer(ids, max_new_tokens=6, logprobs=3)
    list(stream)
    whole = server.ask("POST", CHAT, {**ASKED, "logprobs": True, "top_logprobs": 3})
    content = whole.json["choices"][0]["logprobs"]["content"]
    assert [one["token"] for one in content] == [model.tokenizer.decode([one.token]) for one in stream.logprobs]
    np.testing.assert_allclose([one["logprob"] for one in content], [one.logprob for one in stream.logprobs], atol=1e-4)
    assert [len(one["top_logprobs"]) for one in content] == [3] * 6
    assert all(one["top_logprobs"][0]["token"] == one["token"] for one in content)
    parts = events(server.ask("POST", CHAT, {**ASKED, "logprobs": True, "top_logprobs": 3, "stream": True}).data)
    streamed = [one for event in parts for one in (event["choices"][0]["logprobs"] or {"content": []})["content"]]
    assert [one["token"] for one in streamed] == [one["token"] for one in content]


def test_each_token_has_its_log_probability_and_its_bytes(server):
    """Also a part of a character, a token of a stop string, and in streams those after the last piece."""
    request = {**ASKED, "max_tokens": 9, "logprobs": True, "top_logprobs": 1, "regex": "東東ab", "stop": "ab"}
    (choice,) = server.ask("POST", CHAT, request).json["choices"]
    whole = choice["logprobs"]["content"]
    assert choice["message"]["content"] == "東東"
    assert bytes(byte for one in whole for byte in one["bytes"]) == "東東ab".encode()
    parts = [
        event["choices"][0]["logprobs"] for event in events(server.ask("POST", CHAT, {**request, "stream": True}).data)
    ]
    assert [one for part in parts if part for one in part["content"]] == whole
    request = {"model": "decoder", "prompt": "a", "logprobs": 0, "regex": "東a東"}
    (choice,) = server.ask("POST", TEXT, request).json["choices"]
    assert choice["logprobs"]["text_offset"] == [0, 0, 0, 1, 2, 2, 2]
    parts = [
        event["choices"][0] for event in events(server.ask("POST", TEXT, {**request, "n": 2, "stream": True}).data)
    ]
    for index in range(2):
        streamed = [part["logprobs"] for part in parts if part["index"] == index and part["logprobs"]]
        assert [offset for one in streamed for offset in one["text_offset"]] == [0, 0, 0, 1, 2, 2, 2]


# Structured answers and tools -----------------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {"ab": {"enum": ["c", "d"]}},
    "required": ["ab"],
    "additionalProperties": False,
}


def test_an_answer_is_json_of_the_schema_or_is_cut_which_is_said(server):
    form = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}
    request = {**ASKED, "max_tokens": 40}
    for options in ({"response_format": form}, {"json_schema": SCHEMA}):
        (choice,) = server.ask("POST", CHAT, {**request, **options}).json["choices"]
        assert json.loads(choice["message"]["content"])["ab"] in ("c", "d") and choice["finish_reason"] == "stop"
    (choice,) = server.ask("POST", CHAT, {**request, "response_format": form, "max_tokens": 4}).json["choices"]
    assert choice["message"]["content"].startswith("{") and choice["finish_reason"] == "length"
    (choice,) = server.ask("POST", CHAT, {**request, "response_format": {"type": "json_object"}, "seed": 1}).json[
        "choices"
    ]
    assert choice["message"]["content"].startswith("{")
    assert re.fullmatch("ab{3}", texts(server.ask("POST", CHAT, {**request, "regex": "ab{3}"}))[0])
    assert texts(server.ask("POST", TEXT, {"model": "decoder", "prompt": "a", "grammar": 'start: "abc"'})) == ["abc"]


TOOL = {
    "type": "function",
    "function": {
        "name": "find",
        "parameters": {
            "type": "object",
            "properties": {"a": {"enum": ["b", "c"]}},
            "required": ["a"],
            "additionalProperties": False,
        },
    },
}


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "find"}}], ids=str)
def test_a_forced_call_has_arguments_of_the_schema(server, choice):
    request = {
        **ASKED,
        "max_tokens": 50,
        "tools": [TOOL],
        "tool_choice": choice,
        "logit_bias": {"30": -100, "31": -100},
    }
    (whole,) = server.ask("POST", CHAT, request).json["choices"]
    (call,) = whole["message"]["tool_calls"]
    assert (whole["finish_reason"], whole["message"]["content"], call["type"]) == ("tool_calls", None, "function")
    assert call["function"]["name"] == "find" and json.loads(call["function"]["arguments"])["a"] in ("b", "c")
    *_, last = events(server.ask("POST", CHAT, {**request, "stream": True}).data)
    (streamed,) = last["choices"][0]["delta"]["tool_calls"]
    assert (streamed["index"], streamed["function"]) == (0, call["function"])


def test_a_function_without_parameters_is_called_without_arguments(server):
    tool = {"type": "function", "function": {"name": "find"}}
    request = {
        **ASKED,
        "max_tokens": 50,
        "tools": [tool],
        "tool_choice": "required",
        "temperature": 1,
        "seed": 5,
        "n": 4,
    }
    for choice in server.ask("POST", CHAT, request).json["choices"]:
        (call,) = choice["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {}


@pytest.mark.parametrize("name", sorted(FIELDS.keys() & _RANGES.keys() - {"seed", "temperature"}))
def test_a_field_may_have_the_numbers_that_its_option_may_be(name):
    """Seeds may be negative and temperatures 0, as OpenAI's; any other number is refused by the name of the field."""
    allowed = _RANGES[name]
    for number in (-1e9, -2, -1, -0.5, 0, 1e-9, 0.5, 1, 1.5, 2, 1e9):
        if allowed.whole and not float(number).is_integer():
            continue
        try:
            checked(number, FIELDS[name], name)
            served_number = True
        except RequestError as error:
            assert error.field == name
            served_number = False
        assert served_number == allowed.holds(number), number


def test_functions_may_have_definitions_of_the_same_name(server):
    """References lead to the definitions of their own function, whichever comes last."""
    kinds = {"find": "b", "get": "c"}
    tools = []
    for name, kind in kinds.items():
        parameters = {"type": "object", "properties": {"a": {"$ref": "#/$defs/Kind"}}, "required": ["a"]}
        parameters |= {"additionalProperties": False, "$defs": {"Kind": {"enum": [kind]}}}
        tools.append({"type": "function", "function": {"name": name, "parameters": parameters}})
    for several in (tools, tools[::-1]):
        request = {**ASKED, "max_tokens": 50, "tools": several, "tool_choice": "required"}
        (choice,) = server.ask("POST", CHAT, request).json["choices"]
        (call,) = choice["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {"a": kinds[call["function"]["name"]]}


def test_a_conversation_with_calls_goes_through_the_template(server, model):
    called = {"id": "1", "type": "function", "function": {"name": "find", "arguments": '{"a": "b"}'}}
    messages = [*MESSAGES, {"role": "assistant", "content": None, "tool_calls": [called]}]
    messages += [{"role": "tool", "tool_call_id": "1", "content": "d"}]
    reply = server.ask("POST", CHAT, {**ASKED, "messages": messages, "tools": [TOOL]})
    rendered = model.tokenizer.encode("<s>find<|user|>abcfindbd")
    assert texts(reply) == [expected(model, rendered)]


def test_calls_that_a_model_writes_by_itself_are_read():
    tools = lucid.serving.messages.Tools([TOOL], {"find": {}})
    tagged = 'so: <tool_call>\n{"name": "find", "arguments": {"a": 1}}\n</tool_call>'
    content, (call,) = tools.read(tagged)
    assert content == "so:" and call["function"] == {"name": "find", "arguments": '{"a": 1}'}
    content, (call,) = tools.read('{"name": "find", "parameters": {}}')
    assert (content, call["function"]["arguments"]) == ("", "{}")
    for text in (
        "find it",
        '{"name": "other", "arguments": {}}',
        "[1]",
        '"find"',
        '{"name": ["find"], "arguments": {}}',
        '{"name": "find", "arguments": {"a": 1, "a": 2}}',
    ):
        assert tools.read(text) == (text, [])


def test_calls_of_mistrals_models_are_read_though_what_separates_them_is_no_text():
    library = letters()
    library.add_special_tokens(["[TOOL_CALLS]", "[ARGS]"])
    library.add_tokens(['{"a": 1}'])
    tokenizer = lucid.generation.chat.Tokenizer(where="x", library=library, eos_token_ids=(2,))
    tools = lucid.serving.messages.Tools([TOOL], {"find": {}, "get": {}})

    def written(text: str) -> dict:
        ids = [*library.encode(text, add_special_tokens=False).ids, 2]
        answer = SimpleNamespace(ids=ids, text=tokenizer.decode(ids), logprobs=None, ended_by="eos")
        return lucid.serving.chat.ChatForm(tokenizer, tools).whole(answer)["message"]

    message = written('so[TOOL_CALLS]find[ARGS]{"a": 1}')
    assert (message["content"], message["tool_calls"][0]["function"]["arguments"]) == ("so", '{"a": 1}')
    assert written("so[TOOL_CALLS]find[ARGS]") == {"role": "assistant", "content": "sofind"}  # cut: it is no call
    for text, names in {
        'so [TOOL_CALLS] [{"name": "find", "arguments": {"a": 1}}]': ["find"],
        'so [TOOL_CALLS]find[ARGS]{"a": 1}[TOOL_CALLS]get[CALL_ID]Ab1[ARGS]{}': ["find", "get"],
    }.items():
        content, calls = tools.read(text)
        assert (content, [call["function"]["name"] for call in calls]) == ("so", names)


# Completions ----------------------------------------------------------------------------------------------------------


def test_a_completion_continues_texts_and_ids(server, model):
    request = {"model": "decoder", "temperature": 0, "max_tokens": 6}
    (a,), (b,) = (texts(server.ask("POST", TEXT, {**request, "prompt": prompt})) for prompt in ("abc", "de"))
    assert a == expected(model, model.tokenizer.encode("abc"))
    assert texts(server.ask("POST", TEXT, {**request, "prompt": ["abc", "de"]})) == [a, b]
    assert texts(server.ask("POST", TEXT, {**request, "prompt": model.tokenizer.encode("abc")})) == [a]
    assert texts(server.ask("POST", TEXT, {**request, "prompt": [model.tokenizer.encode("de")]})) == [b]
    usage = server.ask("POST", TEXT, {**request, "prompt": ["abc", "de"], "n": 2}).json["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (5, 24)
    reply = server.ask("POST", TEXT, {**request, "prompt": "abc", "logprobs": 2, "stream": True})
    parts = [event["choices"][0] for event in events(reply.data)]
    assert "".join(part["text"] for part in parts) == a and parts[-1]["finish_reason"] == "length"
    assert [len(part["logprobs"]["top_logprobs"]) for part in parts[:-1]] == [1] * 6


def test_a_decoder_without_a_chat_template_has_completions_only(folder, tmp_path):
    plain = shutil.copytree(folder, tmp_path / "plain")
    about = json.loads((plain / "tokenizer_config.json").read_text())
    del about["chat_template"]
    (plain / "tokenizer_config.json").write_text(json.dumps(about))
    with served(plain) as server:
        assert server.ask("POST", TEXT, {"model": "plain", "prompt": "abc"}).status == 200
        assert server.ask("POST", CHAT, {**ASKED, "model": "plain"}).status == 404


def calling(*texts: str) -> list[dict]:
    """A conversation with calls of these arguments."""
    return [{"role": "assistant", "tool_calls": [{"function": {"name": "find", "arguments": text}} for text in texts]}]


@pytest.mark.parametrize(
    ("path", "change", "message"),
    [
        (TEXT, {"n": 17}, "n: the request asks for 17 answers, at most 16 are written at a time; ask for fewer"),
        (TEXT, {"logit_bias": {"a": 1}}, "logit_bias is "),
        (TEXT, {"logit_bias": {"4": 101}}, "logit_bias.4 is 101, expected -100 to 100"),
        (TEXT, {"logit_bias": {"400": 1}}, "expected ids of tokens below 40"),
        (TEXT, {"logit_bias": {"4": 1, "04": 2}}, "expected ids of tokens below 40"),
        (CHAT, {"top_logprobs": 2}, 'top_logprobs is 2, but "logprobs" is not true'),
        (CHAT, {"logprobs": True, "top_logprobs": 21}, "top_logprobs is 21, expected 0 to 20"),
        (
            CHAT,
            {"response_format": {"type": "xml"}},
            'response_format.type is "xml", served: "text", "json_object" or "json_schema"',
        ),
        (
            CHAT,
            {"response_format": {"type": "json_schema", "schema": SCHEMA}},
            "response_format.schema is not served; put it into response_format.json_schema",
        ),
        (
            TEXT,
            {"response_format": {"type": "json_schema"}},
            "response_format.json_schema is missing, expected an object with a name and a schema",
        ),
        (
            CHAT,
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            'json_schema.schema is missing, expected a JSON Schema; for any object ask for the type "json_object"',
        ),
        (
            CHAT,
            {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
            "response_format.json_schema.name is missing, expected a string",
        ),
        (
            TEXT,
            {"response_format": {"type": "json_object", "json_schema": {"name": "x", "schema": SCHEMA}}},
            'response_format.json_schema is given with the type "json_object", expected "json_schema"',
        ),
        (CHAT, {"response_format": {"json_schema": {}}}, "response_format.json_schema.name is missing"),
        (CHAT, {"response_format": {}}, "response_format.type is missing"),
        (
            CHAT,
            {"response_format": {"type": "text", "foo": 1}},
            "response_format.foo is not served; leave it out",
        ),
        (CHAT, {"stream_options": {"continuous_usage": True}}, "stream_options.continuous_usage is not served"),
        (
            CHAT,
            {"stream_options": {"include_usage": True}},
            'which is for streams; add "stream": true, or leave it out',
        ),
        (
            TEXT,
            {"max_tokens": 3, "max_new_tokens": 4},
            "max_tokens is 3 and max_new_tokens is 4, which name one option; leave one out",
        ),
        (CHAT, {"n": 1, "num_return_sequences": 2}, "n is 1 and num_return_sequences is 2, which name one option"),
        (TEXT, {"temprature": 0.5}, "temprature is not served; did you mean temperature?"),
        (TEXT, {"json_schema": {"enum": []}}, "constraint: the JSON schema cannot be read: Unsatisfiable schema"),
        (TEXT, {"json_schema": {}, "regex": "a"}, "json_schema and regex each say what the answer must be; leave all"),
        (
            TEXT,
            {"json_schema": SCHEMA, "response_format": {"type": "json_object"}},
            "json_schema and response_format each say what the answer must be; leave all but one out",
        ),
        (TEXT, {"json_schema": {"$ref": "#"}}, "nothing matches the JSON schema"),
        (CHAT, {"tools": [{"type": "web"}]}, 'tools[0].type is "web", served: "function"'),
        (CHAT, {"tools": [TOOL], "tool_choice": "find"}, "expected none, auto, required, or one of the functions"),
        (
            CHAT,
            {"tools": [TOOL], "tool_choice": {"function": "find"}},
            'tool_choice.function is "find", expected an object',
        ),
        (CHAT, {"tools": [TOOL], "tool_choice": {"function": {"name": [1]}}}, "tool_choice.function.name is [1]"),
        (CHAT, {"tool_choice": "required"}, "but the request has no tools; add them"),
        (CHAT, {"tools": [TOOL, TOOL]}, 'tools[1].function.name is "find", which an earlier tool has; give it another'),
        (CHAT, {"tools": [TOOL], "tool_choice": "required", "regex": "a"}, "regex and tool_choice each say what"),
        (TEXT, {"stop": list("abcde")}, 'stop is ["a", "b", "c", "d", "e"], expected at most 4 items'),
        (TEXT, {"top_p": 0}, "top_p is 0, expected more than 0 and at most 1"),
        (TEXT, {"top_k": 0}, "top_k is 0, expected 1 or more"),
        (CHAT, {"messages": calling('{"a": 1}', "{b")}, '[1].function.arguments is "{b", expected an object in JSON'),
        (CHAT, {"messages": calling("[1]")}, 'arguments is "[1]", expected an object in JSON, as a string'),
        (CHAT, {"messages": calling('{"a": 1, "a": 2}')}, "as a string (the name 'a' occurs twice)"),
        (TEXT, {"min_tokens": 9}, "min_tokens is 9, expected at most 6, as many tokens as the answer may have"),
        (TEXT, {"suppress_tokens": list(range(40))}, "suppress_tokens gave -inf as the largest of 40 logits"),
        (TEXT, {"regex": "a", "min_tokens": 3}, "constraint gave -inf as the largest of 40 logits"),
        (TEXT, {"prompt": ""}, "prompt: the text is empty"),
        (TEXT, {"prompt": []}, "prompt is []"),
        (TEXT, {"prompt": [400]}, "prompt is [400], expected ids of tokens below 40"),
        (TEXT, {"prompt": [True]}, "expected a text, the ids of tokens, or a list of either"),
        (TEXT, {"prompt": [""] * 17}, "the request asks for 17 answers, at most 16"),
        (TEXT, {"prompt": ["a"] * 5, "n": 4}, "prompt: the request asks for 20 answers"),
        (TEXT, {"prompt": "a", "echo": True}, "echo is true, served: false"),
        (TEXT, {"prompt": "a", "best_of": 2}, "best_of is 2, served: 1"),
        (TEXT, {"prompt": "a", "suffix": "b"}, "suffix is not served"),
    ],
    ids=str,
)
def test_what_cannot_be_asked_says_why(server, path, change, message):
    request = ASKED if path == CHAT else {"model": "decoder", "prompt": "a", "max_tokens": 6}
    reply = server.ask("POST", path, {**request, **change})
    assert (reply.status, message in reply.message) == (400, True), reply.message


VALUES = [
    *(None, True, 0, -1, 3, 1e400, -1e308, 1e-320, 0.5, float("nan"), 10**30, "", "a", "\ud800", "(a", "a{2}"),
    *([], [1], [[1]], [[]], ["a"], [None], [{}], [0.5], {}, {"a": 1}, {"4": 1e400}, {"4": [1]}, {"type": 5}),
    *({"type": "json_schema", "json_schema": []}, {"include_usage": 1}, {"enum": [1]}, {"$ref": "#"}, "start: /a+/"),
]


@pytest.mark.parametrize("seed", range(2))
def test_no_value_of_any_field_is_an_error_of_the_server(server, seed):
    draw = random.Random(seed)
    for _ in range(60):
        fields = draw.sample([*FIELDS, "prompt", "logprobs", "echo"], draw.choice([1, 2, 3]))
        request = {
            "model": "decoder",
            "prompt": "abc",
            "max_tokens": 2,
            **{name: draw.choice(VALUES) for name in fields},
        }
        reply = server.ask("POST", TEXT, request)
        assert reply.status in (200, 400), request
