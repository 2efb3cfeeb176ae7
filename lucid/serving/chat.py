"""/v1/chat/completions: an answer to a conversation, whole or as a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid.generation import TokenLogprob
from lucid.generation.chat.language_model import Answer
from lucid.generation.chat.tokenizer import Tokenizer
from lucid.serving.answer_options import RequestOptions, constraint_of, read_request_options
from lucid.serving.bodies import Fields, wrong
from lucid.serving.messages import CALLS, Tools, messages_of, tools_of
from lucid.serving.responses import RequestError
from lucid.serving.served_model import ServedModel
from lucid.serving.writing import reason


def answers_of(model: ServedModel, body: Fields) -> tuple[list[Answer], RequestOptions, list[ChatForm]]:
    """The answers that a request asks for, not yet begun.

    Raises:
        RequestError: for a conversation that has no room, or a field that is wrong or not served.
    """
    language = model.language
    assert language is not None
    tokenizer = language.tokenizer
    assert tokenizer.chat_template is not None
    messages, tools = messages_of(body), tools_of(body, tokenizer.chat_template.text)
    model.check_characters(sum(len(message["content"]) for message in messages), "messages")
    try:
        ids = tokenizer.encode_chat(messages, tools.definitions or None)
    except ValueError as error:
        raise RequestError(f"messages: {error}", "messages") from error
    request_options = read_request_options(body, model, len(ids), "messages")
    options: dict[str, Any] = {"constraint": constraint_of(body, tokenizer, tools.schema), "logprobs": _logprobs(body)}
    try:
        answers = [
            language.answer(ids, **request_options.of(number), **options) for number in range(request_options.times)
        ]
    except (TypeError, ValueError) as error:
        raise RequestError(str(error)) from error
    return answers, request_options, [ChatForm(tokenizer, tools)] * len(answers)


def _logprobs(body: Fields) -> int | None:
    """How many likely tokens are listed with each token; None for no log probabilities."""
    top: int = body.get("top_logprobs", 0)
    if not body.get("logprobs", False):
        if top:
            raise wrong(top, "top_logprobs", 'but "logprobs" is not true; add it')
        return None
    return top


class ChatForm:
    """An answer as OpenAI's chat writes it. With tools, a stream names the called tools at its end."""

    kind, event, identity = "chat.completion", "chat.completion.chunk", "chatcmpl"

    def __init__(self, tokenizer: Tokenizer, tools: Tools) -> None:
        self._tokenizer, self._tools = tokenizer, tools

    def whole(self, answer: Answer) -> dict[str, Any]:
        """The message."""
        content, calls = self._tools.read(self._marked(answer))
        content = content if calls else answer.text
        message: dict[str, Any] = {"role": "assistant", "content": content or None if calls else content}
        if calls:
            message["tool_calls"] = calls
        logprobs = self._logprobs(answer.logprobs and answer.logprobs[: len(answer.ids)])
        return {"message": message, "finish_reason": "tool_calls" if calls else reason(answer), "logprobs": logprobs}

    def _marked(self, answer: Answer) -> str:
        """The text, with the special tokens between calls where the model has written them."""
        library = self._tokenizer.library
        if library.token_to_id(CALLS) not in answer.ids:
            return answer.text
        ids = [token for token in answer.ids if token not in self._tokenizer.eos_token_ids]
        return str(library.decode(ids, skip_special_tokens=False))

    def first(self) -> dict[str, Any]:
        """The role of the speaker."""
        return {"delta": {"role": "assistant", "content": ""}}

    def piece(self, text: str, logprobs: Sequence[TokenLogprob] | None) -> dict[str, Any] | None:
        """A part of the content."""
        if self._tools.definitions:
            return None
        return {"delta": {"content": text}, "logprobs": self._logprobs(logprobs)}

    def last(self, answer: Answer, logprobs: Sequence[TokenLogprob] | None) -> dict[str, Any]:
        """The end, and the text that was held back."""
        if not self._tools.definitions:
            return {"delta": {}, "finish_reason": reason(answer), "logprobs": self._logprobs(logprobs or None)}
        choice = self.whole(answer)
        message = choice.pop("message")
        calls = [{"index": index, **call} for index, call in enumerate(message.pop("tool_calls", []))]
        return {**choice, "delta": {"content": message["content"]} | ({"tool_calls": calls} if calls else {})}

    def _logprobs(self, logprobs: Sequence[TokenLogprob] | None) -> dict[str, Any] | None:
        if logprobs is None:
            return None
        ends = self._tokenizer.eos_token_ids
        content = [
            {**self._token(one.token, one.logprob), "top_logprobs": [self._token(*other) for other in one.top]}
            for one in logprobs
            if one.token not in ends
        ]
        return {"content": content, "refusal": None}

    def _token(self, token: int, logprob: float) -> dict[str, Any]:
        data = self._tokenizer.bytes_of(token)
        return {"token": data.decode(errors="replace"), "logprob": max(logprob, -9999.0), "bytes": list(data)}
