"""What a request asks of its answers: OpenAI's fields, and the options of `lucid.generation` by their own names."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

from lucid.generation import Constraint
from lucid.generation.chat.language_model import NEW_TOKENS, LanguageModel
from lucid.generation.chat.tokenizer import Tokenizer
from lucid.generation.defaults import over
from lucid.serving.bodies import Body
from lucid.serving.responses import RequestError
from lucid.serving.served_model import ServedModel

_NUMBERS = (
    *("temperature", "top_p", "min_p", "typical_p"),
    *("repetition_penalty", "frequency_penalty", "presence_penalty"),
)
_WHOLE = ("top_k", "no_repeat_ngram_size")
_STRUCTURES = ("json_schema", "regex", "grammar")
_MAX = ("max_completion_tokens", "max_tokens", "max_new_tokens")  # the first that is there counts
_MIN, _COUNT = ("min_tokens", "min_new_tokens"), ("n", "num_return_sequences")
MOST_LOGPROBS, _MOST_BIAS = 20, 100
SERVED = (
    *(*_NUMBERS, *_WHOLE, *_STRUCTURES, *_MAX, *_MIN, *_COUNT),
    *("seed", "stop", "logit_bias", "bad_words_ids", "suppress_tokens", "stream", "stream_options"),
)
ONLY_TOLD = ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key")
"""Fields that describe the client or change no answer."""


class Asked(NamedTuple):
    """What a request asks of its answers."""

    options: dict[str, Any]
    """The arguments of `LanguageModel.answer`, of the first answer."""
    times: int
    """How many answers each prompt has."""
    stream: bool
    usage: bool
    """Whether a stream ends with the number of tokens."""

    def of(self, number: int) -> dict[str, Any]:
        """The arguments of an answer: each has a seed of its own."""
        seed = self.options.get("seed")
        return self.options if seed is None else {**self.options, "seed": seed + number}


def asked(body: Body, model: ServedModel, prompt: int, field: str, usual: int | None = None) -> Asked:
    """Read the options of a request.

    Args:
        body: the request.
        model: that answers.
        prompt: how many tokens the prompt has.
        field: where the prompt is, for messages.
        usual: how many tokens are written where neither the request nor the checkpoint says; by default 512.

    Raises:
        RequestError: for a field that is wrong, and a prompt that leaves no room for an answer.
    """
    language = model.language
    assert language is not None
    options: dict[str, Any] = {name: body.get(name, float) for name in _NUMBERS if body.has(name)}
    options |= {name: body.get(name, int) for name in _WHOLE if body.has(name)}
    if body.has("temperature") and not options["temperature"] >= 0:
        raise body.wrong("temperature", "expected 0 or more")
    count = _first(body, _COUNT, 1)
    model.check_answers(count, "n")
    options |= {"min_new_tokens": _first(body, _MIN, 0) or None, "stop": _stops(body), "logit_bias": _biases(body)}
    words = body.get("bad_words_ids", list, [])
    if not all(isinstance(word, list) for word in words):
        raise body.wrong("bad_words_ids", "expected a list of lists of tokens")
    options |= {"bad_words_ids": words or None, "suppress_tokens": body.get("suppress_tokens", list, []) or None}
    size = language.tokenizer.library.get_vocab_size()
    for name, tokens in {
        "logit_bias": options["logit_bias"] or (),
        "bad_words_ids": [token for word in words for token in word],
        "suppress_tokens": options["suppress_tokens"] or (),
    }.items():
        if not all(type(token) is int and 0 <= token < size for token in tokens):
            raise body.wrong(name, f"expected ids of tokens below {size}")
    options = over(language.tokenizer.defaults, options)
    wanted = _first(body, _MAX, options.pop("max_new_tokens", usual or NEW_TOKENS))
    options["max_new_tokens"] = _room(model, language, prompt, wanted, count, field)
    if options.get("do_sample"):
        options["seed"] = abs(body.get("seed", int)) if body.has("seed") else secrets.randbits(32)
    usage = body.section("stream_options").get("include_usage", bool, False)
    return Asked(options, count, body.get("stream", bool, False), usage)


def constraint_of(body: Body, tokenizer: Tokenizer) -> Constraint | None:
    """What the answer must match: `response_format`, or the field `json_schema`, `regex` or `grammar`.

    Raises:
        RequestError: for several, and for what cannot be met.
    """
    given: dict[str, Any] = {name: body.any(name) for name in _STRUCTURES if body.has(name)}
    form = body.section("response_format")
    kind = form.get("type", str, "text")
    if kind == "json_object":
        given["json_schema"] = {"type": "object"}
    elif kind == "json_schema":
        given["json_schema"] = form.section("json_schema").get("schema", dict, {"type": "object"})
    elif kind != "text":
        raise form.wrong("type", "served: text, json_object or json_schema")
    return made_constraint(
        tokenizer, given, "response_format" if kind != "text" else next(iter(given), "response_format")
    )


def made_constraint(tokenizer: Tokenizer, given: Mapping[str, Any], field: str) -> Constraint | None:
    """A constraint of one kind.

    Raises:
        RequestError: for what cannot be met, and if the server lacks llguidance.
    """
    try:
        return tokenizer.constraint(**given)
    except (TypeError, ValueError) as error:
        raise RequestError(str(error), field) from error
    except ModuleNotFoundError as error:
        raise RequestError(f"{field} is not served here: {error}", field, 501) from error


def _room(model: ServedModel, language: LanguageModel, prompt: int, wanted: int, count: int, field: str) -> int:
    """How many tokens an answer may have, of those that are wanted."""
    positions = language.max_positions
    new = wanted if positions is None else min(wanted, positions - prompt)
    if new < 1:
        raise RequestError(
            f"{field} have {prompt} tokens and the model {positions} positions, which leaves none for an answer; "
            "send less",
            field,
        )
    model.check_tokens(prompt + new * count, field)
    return new


def _first(body: Body, names: tuple[str, ...], usual: int) -> int:
    """The first of these fields that is there, at least 1."""
    for name in names:
        if body.has(name):
            if (found := body.get(name, int)) < 1:
                raise body.wrong(name, "expected 1 or more")
            return found
    return usual


def _stops(body: Body) -> list[str]:
    stop = body.any("stop")
    stops = [stop] if isinstance(stop, str) else [] if stop is None else stop
    if not isinstance(stops, list) or not all(isinstance(one, str) and one for one in stops) or len(stops) > 4:
        raise body.wrong("stop", "expected a string or a list of up to 4 strings")
    return stops


def _biases(body: Body) -> dict[int, float] | None:
    found: dict[int, float] = {}
    for token in body.get("logit_bias", dict, {}):
        bias = body.section("logit_bias").get(token, float)
        if not token.isascii() or not token.isdigit() or not abs(bias) <= _MOST_BIAS:
            raise body.wrong("logit_bias", f"expected numbers from -{_MOST_BIAS} to {_MOST_BIAS} by the id of a token")
        found[int(token)] = bias
    return found or None
