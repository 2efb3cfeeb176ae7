"""Conversations: each question goes to the model with what was said before, as far as there is room for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lucid.generation import LogitsError
from lucid.generation.chat import ChatTemplateError, Conversation, LanguageModel, load_language_model
from tests.chat.checkpoints import checkpoint


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    """A Llama of 64 positions."""
    return load_language_model(checkpoint(tmp_path_factory.mktemp("llama")))


def prompt_of(model: LanguageModel, messages: list[tuple[str, str]]) -> int:
    """How many tokens a conversation takes."""
    return len(model.tokenizer.encode_chat([{"role": role, "content": content} for role, content in messages]))


def test_earlier_messages_go_to_the_model_again(model: LanguageModel) -> None:
    conversation = Conversation(model, system="be brief")
    first = "".join(conversation.ask("ab", max_new_tokens=4))
    answer = conversation.ask("cd", max_new_tokens=4)
    messages = [("system", "be brief"), ("user", "ab"), ("assistant", first), ("user", "cd")]
    assert answer.prompt_tokens == prompt_of(model, messages)
    list(answer)
    assert [(m["role"], m["content"]) for m in conversation.messages] == [*messages, ("assistant", answer.text)]


def test_an_answer_reads_only_what_is_new(model: LanguageModel) -> None:
    conversation = Conversation(model)
    first = conversation.ask("abc", max_new_tokens=4)
    assert "".join(first) == first.text
    second = conversation.ask("de", max_new_tokens=4)
    assert "".join(second) == second.text
    assert second.kept >= first.prompt_tokens


def test_an_interrupted_answer_is_remembered_as_far_as_it_came(model: LanguageModel) -> None:
    conversation = Conversation(model)
    piece = next(iter(conversation.ask("ab")))
    assert conversation.messages[-1] == {"role": "assistant", "content": piece}
    assert conversation.ask("cd").prompt_tokens == prompt_of(
        model, [("user", "ab"), ("assistant", piece), ("user", "cd")]
    )


def test_the_oldest_is_forgotten_when_there_is_no_room(model: LanguageModel) -> None:
    conversation = Conversation(model, system="x")
    for question in ("a" * 9, "b" * 9, "c" * 9):
        list(conversation.ask(question, max_new_tokens=8))
    assert conversation.forgotten == 0
    list(conversation.ask("d" * 9, max_new_tokens=8))
    assert conversation.forgotten == 1
    contents = [message["content"] for message in conversation.messages]
    assert (contents[0], *contents[1::2]) == ("x", "b" * 9, "c" * 9, "d" * 9)


def test_as_much_as_has_room_is_kept(model: LanguageModel) -> None:
    """The prompt and a quarter of the positions, or what is asked for if that is less, take all positions at most."""
    for limit, room in ((None, 16), (4, 4), (40, 16)):
        taken = prompt_of(model, [("user", "ab"), ("assistant", ""), ("user", "")])
        for length in (64 - room - taken, 64 - room - taken + 1):
            conversation = Conversation(model)
            conversation.ask("ab")  # not computed: an empty answer
            answer = conversation.ask("c" * length, max_new_tokens=limit)
            assert conversation.forgotten == (length + taken + room > 64)
            assert len(list(answer)) == min(limit or 64, 64 - answer.prompt_tokens)


def test_a_question_without_room_is_an_error_and_changes_nothing(model: LanguageModel) -> None:
    conversation = Conversation(model)
    list(conversation.ask("ab", max_new_tokens=2))
    before = conversation.messages
    with pytest.raises(ValueError, match="the prompt has 73 tokens and the model 64 positions"):
        conversation.ask("a" * 70, max_new_tokens=2)
    assert (conversation.messages, conversation.forgotten) == (before, 0)
    assert conversation.ask("cd", max_new_tokens=2).prompt_tokens > 10


def test_a_template_that_refuses_a_conversation_changes_nothing(tmp_path: Path) -> None:
    template = "{% if messages | length > 1 %}{{ raise_exception('one only') }}{% endif %}{{ messages[0].content }}"
    conversation = Conversation(load_language_model(checkpoint(tmp_path, chat_template=template), eager=True))
    list(conversation.ask("ab", max_new_tokens=2))
    with pytest.raises(ChatTemplateError, match="refuses this conversation: one only"):
        conversation.ask("cd")
    assert len(conversation.messages) == 2


def test_logits_that_are_no_numbers_are_an_error(model: LanguageModel) -> None:
    with pytest.raises(LogitsError):
        list(Conversation(model).ask("ab", logits_processors=[lambda ids, logits: np.full_like(logits, np.nan)]))
