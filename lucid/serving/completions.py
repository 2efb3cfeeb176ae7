"""/v1/completions: the continuation of a text, whole or as a stream."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Sequence
from typing import Any

from lucid.generation import TokenLogprob
from lucid.generation.chat.language_model import Answer
from lucid.generation.chat.tokenizer import Tokenizer
from lucid.serving.answer_options import RequestOptions, constraint_of, read_request_options
from lucid.serving.bodies import Fields, wrong
from lucid.serving.responses import RequestError
from lucid.serving.served_model import ServedModel
from lucid.serving.writing import reason

_NEW_TOKENS = 16  # as OpenAI's API says


def answers_of(model: ServedModel, body: Fields) -> tuple[list[Answer], RequestOptions, list[TextForm]]:
    """The continuations of one prompt or several, not yet begun.

    Raises:
        RequestError: for a prompt that has no room, or a field that is wrong or not served.
    """
    language = model.language
    assert language is not None
    prompts = _prompts(model, body)
    longest = max(prompts, key=len)
    request_options = read_request_options(body, model, len(longest), "prompt", _NEW_TOKENS)
    model.check_answers(len(prompts) * request_options.times, "prompt")
    options: dict[str, Any] = {"constraint": constraint_of(body, language.tokenizer), "logprobs": body.get("logprobs")}
    try:
        answers = [
            language.answer(ids, **request_options.of(number), **options)
            for ids in prompts
            for number in range(request_options.times)
        ]
    except (TypeError, ValueError) as error:
        raise RequestError(str(error)) from error
    return answers, request_options, [TextForm(language.tokenizer) for _ in answers]


def _prompts(model: ServedModel, body: Fields) -> list[list[int]]:
    """The ids of each prompt: a text, or ids, or a list of either."""
    language, prompt = model.language, body["prompt"]
    assert language is not None
    several = prompt if isinstance(prompt, list) and not isinstance(prompt[0], int) else [prompt]
    model.check_answers(len(several), "prompt")  # before the texts are read
    ids = []
    for one in several:
        if isinstance(one, str):
            model.check_characters(len(one), "prompt")
            try:
                ids.append(language.tokenizer.encode(one))
            except ValueError as error:
                raise RequestError(f"prompt: {error}", "prompt") from error
            continue
        size = language.tokenizer.library.get_vocab_size()
        if not all(token < size for token in one):
            raise wrong(prompt, "prompt", f"expected ids of tokens below {size}")
        ids.append(one)
    return ids


class TextForm:
    """An answer as OpenAI's completions write it."""

    kind, event, identity = "text_completion", "text_completion", "cmpl"

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._characters = getincrementaldecoder("utf-8")("replace")  # a token may be a part of a character
        self._offset = 0

    def whole(self, answer: Answer) -> dict[str, Any]:
        """The text."""
        logprobs = self._logprobs(answer.logprobs and answer.logprobs[: len(answer.ids)])
        return {"text": answer.text, "finish_reason": reason(answer), "logprobs": logprobs}

    def first(self) -> None:
        """Nothing comes before the text."""

    def piece(self, text: str, logprobs: Sequence[TokenLogprob] | None) -> dict[str, Any]:
        """A part of the text."""
        return {"text": text, "logprobs": self._logprobs(logprobs)}

    def last(self, answer: Answer, logprobs: Sequence[TokenLogprob] | None) -> dict[str, Any]:
        """The end."""
        return {"text": "", "finish_reason": reason(answer), "logprobs": self._logprobs(logprobs or None)}

    def _logprobs(self, logprobs: Sequence[TokenLogprob] | None) -> dict[str, Any] | None:
        if logprobs is None:
            return None
        kept = [one for one in logprobs if one.token not in self._tokenizer.eos_token_ids]
        offsets = []
        for one in kept:
            offsets.append(self._offset)
            self._offset += len(self._characters.decode(self._tokenizer.bytes_of(one.token)))
        return {
            "tokens": [self._text(one.token) for one in kept],
            "token_logprobs": [max(one.logprob, -9999.0) for one in kept],
            "top_logprobs": [{self._text(token): max(logprob, -9999.0) for token, logprob in one.top} for one in kept],
            "text_offset": offsets,
        }

    def _text(self, token: int) -> str:
        return self._tokenizer.bytes_of(token).decode(errors="replace")
