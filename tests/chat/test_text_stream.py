"""Text as it comes: the pieces are what decoding all tokens gives, whole characters, and end before a stop string."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from lucid.generation.chat.text_stream import TextStream


def byte_tokenizer() -> Tokenizer:
    """A token for each byte, and for a few words."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ["Ġth", "Ġthe", "th"]
    vocabulary = {token: number for number, token in enumerate([*alphabet, *words])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [("t", "h"), ("Ġ", "th"), ("Ġth", "e")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def sentencepiece_like() -> Tokenizer:
    """As Llama 2's: a mark before each word, and bytes for what has no token. The first mark is not text."""
    vocabulary = {token: number for number, token in enumerate(["<unk>", "▁one", "▁two", "▁", "s", "!"])}
    vocabulary |= {f"<0x{byte:02X}>": len(vocabulary) + byte for byte in range(256)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    strip = decoders.Strip(content=" ", left=1)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), strip]  # type: ignore[list-item]
    )
    return tokenizer


TEXTS = [
    "the other, then the third",
    "naïve 東京は日本の首都です。 Привет שלום",
    "👩\u200d👩\u200d👧 🙂 e\u0301",
    " two  spaces \n\n and\ttabs\r\n",
    "a literal \ufffd in the text\ufffd",
    "",
]


def pieces(decode: Callable[[list[int]], str], ids: Sequence[int], stop: Sequence[str] = ()) -> list[str]:
    stream = TextStream(decode, stop)
    parts = []
    for token in ids:
        parts.append(stream.add(token))
        if stream.stopped:
            break
    return [piece for piece in [*parts, stream.end()] if piece]


@pytest.mark.parametrize("text", TEXTS)
def test_together_the_pieces_are_the_text(text: str) -> None:
    tokenizer = byte_tokenizer()
    parts = pieces(tokenizer.decode, tokenizer.encode(text).ids)
    assert "".join(parts) == text
    assert "\ufffd" in text or not any("\ufffd" in piece for piece in parts), "no half of a character"


def test_a_word_comes_when_its_token_does() -> None:
    tokenizer = byte_tokenizer()
    assert pieces(tokenizer.decode, tokenizer.encode("of the é").ids) == ["o", "f", " the", " ", "é"]


@pytest.mark.parametrize(
    "tokens", [["▁one", "▁two", "s", "!"], ["▁", "<0xE6>", "<0x9D>", "<0xB1>", "<0xC3>", "<0xA9>"]]
)
def test_a_tokens_text_may_depend_on_the_token_before(tokens: list[str]) -> None:
    tokenizer = sentencepiece_like()
    ids = [tokenizer.token_to_id(token) for token in tokens]
    assert "".join(pieces(tokenizer.decode, ids)) == tokenizer.decode(ids) in ("one twos!", "東é")


def test_bytes_that_are_no_text_come_as_replacement_characters() -> None:
    tokenizer = byte_tokenizer()
    half = tokenizer.encode("é").ids[:1]
    assert "".join(pieces(tokenizer.decode, [*half, *tokenizer.encode("x").ids])) == "\ufffdx"
    assert "".join(pieces(tokenizer.decode, half)) == "\ufffd"  # the text ends within a character
    assert "".join(pieces(tokenizer.decode, half * 40)) == "\ufffd" * 40


def test_a_character_after_bytes_that_are_no_text_is_whole() -> None:
    tokenizer = byte_tokenizer()
    first, second = tokenizer.encode("é").ids
    for count in range(12):
        ids = [second] * count + [first, second, *tokenizer.encode("x").ids]
        assert "".join(pieces(tokenizer.decode, ids, ["x"])) == "\ufffd" * count + "é"


def test_special_tokens_have_no_text() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens(["<end>"])
    end, words = tokenizer.token_to_id("<end>"), tokenizer.encode("the").ids
    assert "".join(pieces(tokenizer.decode, [end, *words, end, end, *words])) == "thethe"


@pytest.mark.parametrize("kind", ["words", "half characters", "special"])
def test_each_token_costs_the_same(kind: str) -> None:
    """However many came before: the tokens that are decoded for one more do not grow."""
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens(["<end>"])
    lengths = []

    def decode(ids: list[int]) -> str:
        lengths.append(len(ids))
        return tokenizer.decode(ids)

    token = {"words": "Ġthe", "half characters": "Ã", "special": "<end>"}[kind]
    pieces(decode, [tokenizer.token_to_id(token)] * 300)
    assert max(lengths) <= 16


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("one two three", ["two"], "one "),
        ("one two three", ["tree", "th"], "one two "),
        ("one two three", ["three", "two t"], "one "),  # the first in the text, not in the list
        ("ababac.", ["abac"], "ab"),
        ("one\n\ntwo", ["\n\n"], "one"),
        ("the end", ["end."], "the end"),  # what could have become a stop string is text after all
        ("the en", ["end"], "the en"),
        ("", ["x"], ""),
        ("東京です", ["京"], "東"),
    ],
)
def test_a_stop_string_ends_the_text_before_it(text: str, stop: list[str], expected: str) -> None:
    tokenizer = byte_tokenizer()
    parts = pieces(tokenizer.decode, tokenizer.encode(text).ids, stop)
    assert "".join(parts) == expected


def test_a_stop_string_costs_no_more_than_the_text_before_it() -> None:
    """A string of megabytes, as a client may send, took minutes for each token."""

    class Counted(str):
        cuts = 0

        def __getitem__(self, part: Any) -> str:
            Counted.cuts += 1
            return str(self)[part]

    assert "".join(pieces(lambda ids: "a" * len(ids), range(5), [Counted("a" * 9999)])) == "aaaaa"
    assert 0 < Counted.cuts < 50


def test_random_tokens_give_the_text_of_all_of_them() -> None:
    """Words, bytes and special tokens in any order; half characters may come as more than one replacement character."""
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens(["<end>"])
    random = np.random.default_rng(0)
    for _ in range(100):
        ids = random.integers(0, tokenizer.get_vocab_size(), random.integers(1, 30)).tolist()
        text, expected = "".join(pieces(tokenizer.decode, ids)), tokenizer.decode(ids)
        assert text.replace("\ufffd", "") == expected.replace("\ufffd", "")
