"""The tokens of a long text that is cut off are those of the whole text, of which only a beginning is read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import tokenizers

from lucid.generation.chat.long_texts import tokenized, truncated

MOST = 16
WORDS = "a an the cat cats dog rugs rates, rose. don't 1234567 12 111 11".split()
WORDS += "été 東京 résumé [SEP] \u0301x ｆｕｌｌ ... aaaa".split()


def trained(model: Any, trainer: Any, split: Any, normalizer: Any = None) -> Any:
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer, tokenizer.normalizer = split, normalizer
    tokenizer.train_from_iterator([" ".join(WORDS)] * 3, trainer)
    tokenizer.add_special_tokens(["[SEP]"])
    return tokenizer


def kinds() -> dict[str, Callable[[], Any]]:
    models, trainers = tokenizers.models, tokenizers.trainers
    split, normalizers = tokenizers.pre_tokenizers, tokenizers.normalizers
    letters = split.ByteLevel.alphabet()

    def pieces() -> Any:
        return trainers.BpeTrainer(vocab_size=400, initial_alphabet=letters, show_progress=False)

    def bytes_(*before: Any, regex: bool = False) -> Any:
        return split.Sequence([*before, split.ByteLevel(add_prefix_space=False, use_regex=regex)])

    def groups() -> Any:  # of three digits, counted from the right
        return split.Split(tokenizers.Regex(r"\d{1,3}(?=(?:\d{3})*(?!\d))"), "isolated")

    return {
        "WordPiece": lambda: trained(
            models.WordPiece(unk_token="[UNK]"),
            trainers.WordPieceTrainer(vocab_size=80, special_tokens=["[UNK]"], show_progress=False),
            split.BertPreTokenizer(),
            normalizers.BertNormalizer(),
        ),
        "bytes": lambda: trained(models.BPE(), pieces(), bytes_(regex=True), normalizers.NFC()),
        "digits from the right": lambda: trained(models.BPE(), pieces(), bytes_(groups(), regex=True)),
        "Unigram": lambda: trained(
            models.Unigram(),
            trainers.UnigramTrainer(vocab_size=60, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False),
            split.Metaspace(),
            normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(tokenizers.Regex(" {2,}"), " ")]),
        ),
        "no words": lambda: trained(models.BPE(), pieces(), bytes_()),
        # Of an odd number of words the first is alone, else none is.
        "no words, by twos": lambda: tokenizers.Tokenizer(
            models.Unigram([("<unk>", -20.0), ("a ", -10.0), ("a a ", -1.0)], unk_id=0)
        ),
    }


@cache
def texts() -> list[str]:
    """Long texts: ordinary, of one word, of a long first word, of digits, of spaces."""
    random = np.random.default_rng(0)

    def mixed(count: int) -> str:
        ends = random.choice([" ", "  ", "\n", ""], count, p=[0.7, 0.1, 0.1, 0.1])
        return "".join(map("".join, zip(random.choice(WORDS, count), ends, strict=True)))

    one = [
        "a" * 9001,
        "1" * 9001 + " a b c",
        "a b " + "1" * 8000,
        "x" * 3000 + " and so on" * 2000,
        "東" * 9000,
        "東東。" * 3000,
        "12." * 3000 + "1" * 5000,
    ]
    spaces = [" " * 9000 + "a", "a" + " " * 9000 + "b", "a " * 9000, "a " * 9001]
    return [*map(mixed, (500, 900, 3001, 9000)), *one, *spaces]


class Seen:
    """A tokenizer that notes how many characters it reads."""

    def __init__(self, library: Any) -> None:
        self._library, self.characters = library, 0
        self.truncation = library.truncation

    def encode(self, text: str, *rest: Any, **options: Any) -> Any:
        self.characters += len(text)
        return self._library.encode(text, *rest, **options)

    def encode_batch(self, texts: list[str], **options: Any) -> Any:
        self.characters += sum(map(len, texts))
        return self._library.encode_batch(texts, **options)


@pytest.mark.parametrize("kind", kinds())
def test_the_tokens_are_those_of_the_whole_text(kind):
    library = kinds()[kind]()
    for text in texts():
        library.no_truncation()
        whole = library.encode(text)
        for most in (130, MOST, 1):
            library.enable_truncation(most)
            whole.truncate(most)
            encoding = truncated(library, text)
            assert (encoding.ids, encoding.type_ids) == (whole.ids, whole.type_ids), text[:80]


SPACES, MARKS = "the cat rose. ", "été,東京。été、東"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *((kind, SPACES) for kind in ("WordPiece", "bytes", "digits from the right", "Unigram")),
        *((kind, MARKS) for kind in ("WordPiece", "bytes", "digits from the right")),  # Unigram splits at spaces alone
    ],
)
def test_what_is_cut_off_is_not_read(kind, text):
    library = kinds()[kind]()
    library.enable_truncation(MOST)
    seen = Seen(library)
    truncated(seen, text * 50_000)
    assert seen.characters == 2048


@pytest.mark.parametrize("cut", [None, {"max_length": MOST, "direction": "left"}])
def test_a_text_is_read_whole_where_its_end_counts(cut):
    library = kinds()["WordPiece"]()
    if cut is not None:
        library.enable_truncation(**cut)
    text = "the cat rose. " * 500 + "dog"
    assert truncated(library, text).ids == library.encode(text).ids


def test_other_threads_run_while_a_long_text_is_read():
    """Another thread has more turns than those before and after each reading, however many readings that takes."""
    library, turns, readings = kinds()["no words"](), [], []

    def read():
        while len(turns) < 10 + 2 * len(readings) and len(readings) < 100:
            readings.append(tokenized(library, "the cat rose. " * 5_000))

    reading = threading.Thread(target=read)
    reading.start()
    while reading.is_alive():
        time.sleep(0.001)
        turns.append(None)
    assert len(turns) >= 10 + 2 * len(readings)


def test_a_pair_and_a_text_without_special_tokens_are_those_of_the_library():
    library = kinds()["WordPiece"]()
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single="[SEP] $A", pair="$A [SEP] $B:1", special_tokens=[("[SEP]", library.token_to_id("[SEP]"))]
    )
    for text in ("the cat", "the cat " * 1000):
        for pair in (None, "a dog"):
            for special in (True, False):
                encoding = tokenized(library, text, pair, add_special_tokens=special)
                whole = library.encode(text, pair, add_special_tokens=special)
                assert (encoding.ids, encoding.type_ids) == (whole.ids, whole.type_ids)
