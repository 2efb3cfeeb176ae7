"""The options of a request's answers: OpenAI's fields, and the options of `lucid.generation` by their own names."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

from lucid.generation import Constraint
from lucid.generation.chat.language_model import NEW_TOKENS, LanguageModel
from lucid.generation.chat.tokenizer import Tokenizer
from lucid.generation.constraints import STRUCTURES
from lucid.generation.defaults import over
from lucid.serving.bodies import Fields, wrong
from lucid.serving.responses import RequestError
from lucid.serving.served_model import ServedModel

_SAME = (
    *("temperature", "top_p", "min_p", "typical_p", "top_k", "no_repeat_ngram_size", "prompt_lookup_num_tokens"),
    *("repetition_penalty", "frequency_penalty", "presence_penalty", "bad_words_ids", "suppress_tokens"),
)
"""Options with the same name in Python."""
_MAX = ("max_completion_tokens", "max_tokens", "max_new_tokens")
_DIGITS = 18  # of the id of a token
_MIN, _COUNT = ("min_tokens", "min_new_tokens"), ("n", "num_return_sequences")


class RequestOptions(NamedTuple):
    """The options of a request's answers."""

    options: dict[str, Any]  # the arguments of `LanguageModel.answer`, of the first answer
    times: int  # how many answers each prompt has
    stream: bool
    usage: bool  # whether a stream ends with the number of tokens

    def of(self, number: int) -> dict[str, Any]:
        """The arguments of an answer: each has a seed of its own."""
        seed = self.options.get("seed")
        return self.options if seed is None else {**self.options, "seed": seed + number}


def read_request_options(
    body: Fields, model: ServedModel, prompt: int, field: str, usual: int | None = None
) -> RequestOptions:
    """Read the options of a request.

    Args:
        body: the request.
        model: that answers.
        prompt: how many tokens the prompt has.
        field: where the prompt is, for messages.
        usual: how many tokens are written where neither the request nor the checkpoint says; by default 512.

    Raises:
        RequestError: for ids of no token, too many answers, options that contradict each other, and a prompt that
            leaves no room for an answer.
    """
    language = model.language
    assert language is not None
    options: dict[str, Any] = {name: body[name] for name in _SAME if body.get(name) not in (None, [])}
    count = _first(body, _COUNT, 1)
    model.check_answers(count, "n")
    stop = body.get("stop", [])
    options |= {"min_new_tokens": _first(body, _MIN, 0) or None, "stop": [stop] if isinstance(stop, str) else stop}
    size = language.tokenizer.library.get_vocab_size()
    biases = {_token(token): bias for token, bias in body.get("logit_bias", {}).items()}
    options["logit_bias"] = biases or None
    for name, tokens in {
        "logit_bias": biases,
        "bad_words_ids": [token for word in options.get("bad_words_ids", []) for token in word],
        "suppress_tokens": options.get("suppress_tokens", []),
    }.items():
        if not all(0 <= token < size for token in tokens):
            raise wrong(body[name], name, f"expected ids of tokens below {size}")
    options = over(language.tokenizer.defaults, options)
    most_new = _first(body, _MAX, options.pop("max_new_tokens", usual or NEW_TOKENS))
    options["max_new_tokens"] = most = _room(model, language, prompt, most_new, count, field)
    for name in _MIN:
        if body.get(name, 0) > most:
            raise wrong(body[name], name, f"expected at most {most}, as many tokens as the answer may have")
    if options.get("do_sample"):
        options["seed"] = abs(body["seed"]) if "seed" in body else secrets.randbits(32)
    stream, usage = body.get("stream", False), body.get("stream_options", {}).get("include_usage", False)
    if usage and not stream:
        raise wrong(
            body["stream_options"], "stream_options", 'which is for streams; add "stream": true, or leave it out'
        )
    return RequestOptions(options, count, stream, usage)


def constraint_of(body: Fields, tokenizer: Tokenizer, call: Mapping[str, Any] | None = None) -> Constraint | None:
    """The constraint of an answer: `response_format`, the field `json_schema`, `regex` or `grammar`, or a forced call.

    Args:
        body: the request.
        tokenizer: of the model.
        call: the schema of the call that the answer must be; None if it may be a text.

    Raises:
        RequestError: for several constraints, a schema and a type that do not belong together, what cannot be met, and
            if the server lacks llguidance.
    """
    structures: dict[str, dict[str, Any]] = {name: {name: body[name]} for name in STRUCTURES if name in body}
    form = body.get("response_format", {})
    kind = form.get("type", "text")
    if kind != "json_schema" and "json_schema" in form:
        raise RequestError(
            f'response_format.json_schema is given with the type "{kind}", expected "json_schema"',
            "response_format.json_schema",
        )
    if kind == "json_object":
        structures["response_format"] = {"json_schema": {"type": "object"}}
    elif kind == "json_schema":
        if "json_schema" not in form:
            raise RequestError(
                "response_format.json_schema is missing, expected an object with a name and a schema",
                "response_format.json_schema",
            )
        structures["response_format"] = {"json_schema": form["json_schema"]["schema"]}
    if call is not None:
        structures["tool_choice"] = {"json_schema": call}
    if not structures:
        return None
    (field, structure), *others = structures.items()
    if others:
        raise RequestError(
            f"{' and '.join(structures)} each say what the answer must be; leave all but one out", others[-1][0]
        )
    try:
        return tokenizer.constraint(**structure)
    except (TypeError, ValueError) as error:
        raise RequestError(str(error), field) from error
    except ModuleNotFoundError as error:
        raise RequestError(f"{field} is not served here: {error}", field, 501) from error


def _room(model: ServedModel, language: LanguageModel, prompt: int, most_new: int, count: int, field: str) -> int:
    """How many tokens an answer may have, of those that are wanted."""
    positions = language.max_positions
    new = most_new if positions is None else min(most_new, positions - prompt)
    if new < 1:
        raise RequestError(
            f"{field}: {prompt} tokens are given and the model has {positions} positions, which leaves none for an "
            "answer; send less",
            field,
        )
    model.check_tokens(prompt + new * count, field)
    return new


def _first(body: Fields, names: tuple[str, ...], usual: int) -> int:
    """The value of these names of one field.

    Raises:
        RequestError: for several that differ.
    """
    values = {name: body[name] for name in names if name in body}
    if len({*values.values()}) > 1:
        listed = " and ".join(f"{name} is {value}" for name, value in values.items())
        raise RequestError(f"{listed}, which name one option; leave one out", list(values)[-1])
    return next(iter(values.values()), usual)


def _token(name: str) -> int:
    """The id of a token that is the name of a field, as JSON has them; -1, which no token has, for another name."""
    number = int(name) if name.isascii() and name.isdigit() and len(name) < _DIGITS else -1
    return number if str(number) == name else -1  # 04 would be the name of a token that has another one
