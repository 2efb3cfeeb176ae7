"""A conversation: the messages so far, as many as the positions of the model hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid.generation.chat.language_model import NEW_TOKENS, Answer, LanguageModel
from lucid.generation.chat.template import Message


class Conversation:
    """Questions and answers; each question goes to the model with the messages before it.

    If the messages exceed the positions of the model, the oldest question and its answer are forgotten, then the next.
    A quarter of the positions, or `max_new_tokens` if that is less, is kept for the answer. The system message is never
    forgotten.

    Args:
        model: writes the answers.
        system: the system message; many templates have one of their own.

    Attributes:
        forgotten: how many questions were forgotten so far.
    """

    def __init__(self, model: LanguageModel, system: str | None = None) -> None:
        self._model = model
        self._system: list[Message] = [] if system is None else [{"role": "system", "content": system}]
        self._turns: list[tuple[str, Answer]] = []
        self.forgotten = 0

    @property
    def messages(self) -> list[Message]:
        """The messages that go to the model with the next question; an interrupted answer counts as far as it came."""
        return self._told(self._turns)

    def ask(
        self, question: str, *, max_new_tokens: int | None = None, stop: str | Sequence[str] = (), **options: Any
    ) -> Answer:
        """The answer to a question, which is computed as it is iterated over.

        Args:
            question: what the user says.
            max_new_tokens, stop, options: as `LanguageModel.answer`; fewer tokens if there is no room for so many.

        Raises:
            ValueError: for a question that has no room even alone, `ChatTemplateError` if the template cannot be
                rendered, and as `LanguageModel.answer`; the conversation is then as before.
        """
        message: Message = {"role": "user", "content": question}
        tokenizer, turns = self._model.tokenizer, self._turns
        positions, most = self._model.max_positions, max_new_tokens or NEW_TOKENS
        while True:
            ids = tokenizer.encode_chat([*self._told(turns), message])
            if positions is None or not turns or len(ids) + min(most, positions // 4) <= positions:
                break
            turns = turns[1:]
        if positions is not None and max_new_tokens is not None:
            max_new_tokens = min(max_new_tokens, max(1, positions - len(ids)))
        answer = self._model.answer(ids, max_new_tokens=max_new_tokens, stop=stop, **options)
        self.forgotten += len(self._turns) - len(turns)
        self._turns = [*turns, (question, answer)]
        return answer

    def _told(self, turns: Sequence[tuple[str, Answer]]) -> list[Message]:
        messages = list(self._system)
        for question, answer in turns:
            messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer.text}]
        return messages
