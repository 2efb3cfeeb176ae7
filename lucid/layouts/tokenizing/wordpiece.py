"""WordPiece tokenizers, as BERT has them, in ONNX nodes.

The operator BertTokenizer of onnxruntime-extensions 0.15 differs from the library `tokenizers` in words with unknown
characters, in Korean, in special tokens within a text, and more. So it is not used. A table replaces each character
(`characters.py`), and the operator WordpieceTokenizer finds the pieces of one word at a time. A word with an unknown
piece becomes unknown.
"""

from __future__ import annotations

import json
from collections.abc import Collection

import numpy as np

from lucid.core.sizes.dims import dim
from lucid.core.targets.runtimes import EXTENSIONS, OWN
from lucid.export import Builder
from lucid.export.builder import Strings
from lucid.layouts.tokenizing.characters import Characters, characters_of, literally, pattern_of
from lucid.layouts.tokenizing.reference import NotExpressedError, Reference
from lucid.layouts.tokenizing.rows import INT64, constant, inputs_of_rows, number, replaced, vector


def check_wordpiece(reference: Reference) -> None:
    """Raise NotExpressedError for parts of a tokenizer with such a model that are not as BERT's."""
    parts = reference.parts
    for name, expected in (("normalizer", "BertNormalizer"), ("pre_tokenizer", "BertPreTokenizer")):
        kind = (parts[name] or {}).get("type")
        if kind != expected:
            raise NotExpressedError(f"its {name} is {kind}, and a WordPiece tokenizer is written with {expected} only")
    vocabulary, unknown = parts["model"]["vocab"], parts["model"]["unk_token"]
    if unknown not in vocabulary:
        raise NotExpressedError(f"its unk_token {unknown!r} is not in its vocabulary")
    if not reference.before or not all(
        reference.token(one) in vocabulary for one in reference.before + reference.after
    ):
        raise NotExpressedError("it adds no token of its vocabulary before a text, as BERT's [CLS]")
    for token in parts["added_tokens"]:
        text = token["content"]
        words = reference.library.pre_tokenizer.pre_tokenize_str(text)
        if any(token[name] for name in ("normalized", "lstrip", "rstrip", "single_word")) or len(words) < 2:
            raise NotExpressedError(
                f"its added token {text!r} is not found as BERT's special tokens are, such as [MASK]"
            )


def emit_wordpiece(build: Builder, text: str, reference: Reference, inputs: Collection[str]) -> dict[str, str]:
    """The inputs of a model, by name, from texts (N)."""
    words = _words(build, text, reference)  # (N, W), where "" is no word
    flat = build.op("Reshape", words, vector(-1))
    model = reference.parts["model"]
    vocabulary = {token["content"]: token["id"] for token in reference.parts["added_tokens"]} | model["vocab"]
    tokens, _, starts, ends = build.ops(
        "WordpieceTokenizer",
        flat,
        np.zeros(0, np.int64),
        outputs=4,
        domain=EXTENSIONS,
        vocab=json.dumps(vocabulary, ensure_ascii=False),
        suffix_indicator=model["continuing_subword_prefix"],
        unknown_token=model["unk_token"],
        max_input_chars_per_word=model["max_input_chars_per_word"],
    )
    build.types[tokens] = Strings((dim("pieces"),))  # onnx's checker ends the process where it does not know this
    ids = build.op(
        "LabelEncoder",
        tokens,
        domain="ai.onnx.ml",
        keys_strings=list(vocabulary),
        values_int64s=list(vocabulary.values()),
        default_int64=vocabulary[model["unk_token"]],
    )
    is_unknown = build.op("Equal", ids, number(vocabulary[model["unk_token"]]))
    ids, word = _known_words(build, ids, is_unknown, starts, ends)
    size = build.op("Shape", words)
    row = build.op("Div", word, build.op("Slice", size, vector(1), vector(2)))
    none = build.op("ConstantOfShape", build.op("Slice", size, vector(0), vector(1)), value=vector(0))
    counts = build.op("ScatterElements", none, row, _ones(build, row), axis=0, reduction="add")
    first = build.op("Gather", build.op("CumSum", counts, number(0), exclusive=1), row)
    many = build.op("Squeeze", build.op("Shape", ids))
    column = build.op("Sub", build.op("Range", number(0), many, number(1)), first)
    widest = build.op("ReduceMax", counts, keepdims=1)
    shape = build.op("Concat", build.op("Shape", counts), widest, axis=0)
    empty = build.op("ConstantOfShape", shape, value=vector(reference.padding))
    place = build.op("Concat", *(build.op("Unsqueeze", one, vector(1)) for one in (row, column)), axis=1)
    return inputs_of_rows(build, build.op("ScatterND", empty, place, ids), counts, reference, inputs)


def _words(build: Builder, text: str, reference: Reference) -> str:
    """The words of each text, with the tokens that are added before and after it."""
    characters = characters_of(reference.library, len(reference.parts["added_tokens"]))
    other, *stand_ins = _stand_ins(characters)
    becomes = dict(characters.replaced)
    # Special tokens are found in the text as it is. Each becomes a character that is removed otherwise.
    text = replaced(build, text, pattern_of(stand_ins), other)
    for token, character in zip(_longest_first(reference), stand_ins, strict=True):
        text = replaced(build, text, literally(token), character)
        becomes[character] = f" {token} "
    text = replaced(build, text, characters.removed_pattern, "")
    text = replaced(build, text, pattern_of(characters.spaces), " ")
    text = replaced(build, text, f"({pattern_of(characters.alone)})", r" \1 ")
    listed = "\n".join(f"{character}\t{words}" for character, words in becomes.items())
    letters = build.op("StringMapping", _split(build, text, ""), domain=EXTENSIONS, map=listed)
    joined = build.op("StringJoin", letters, constant(build, ""), vector(1), domain=EXTENSIONS)
    before, after = (reference.text(ids, " ") for ids in (reference.before, reference.after))
    parts = build.op("Concat", *(_column(build, part, joined) for part in (before, joined, after)), axis=1)
    return _split(build, build.op("StringJoin", parts, constant(build, " "), vector(1), domain=EXTENSIONS), " ")


def _known_words(build: Builder, ids: str, is_unknown: str, starts: str, ends: str) -> tuple[str, str]:
    """The ids (K), without the known pieces of unknown words, and the number of the word of each.

    WordpieceTokenizer gives the pieces of a word up to the one that is unknown.
    """
    length = build.op("Shape", ids)
    count = build.op("CumSum", build.op("Cast", is_unknown, to=INT64), number(0))
    before = build.op("Concat", vector(0), count, axis=0)  # how many pieces before each are unknown
    gone = build.op("Sub", build.op("Gather", before, ends), build.op("Gather", before, starts))
    room = build.op("ConstantOfShape", build.op("Add", length, vector(1)), value=vector(0))
    began = build.op("ScatterElements", room, starts, _ones(build, starts), axis=0, reduction="add")
    nth = build.op("Sub", build.op("CumSum", began, number(0)), number(1))  # the last one that begins here or before
    word = build.op("Slice", nth, vector(0), length)
    known = build.op("Equal", build.op("Gather", gone, word), number(0))
    kept = build.op("Or", is_unknown, known)
    return build.op("Compress", ids, kept), build.op("Compress", word, kept)


def _stand_ins(characters: Characters) -> list[str]:
    """The character that replaces these in texts, and one for each special token."""
    if len(characters.removed) <= characters.special:
        raise NotExpressedError("its normaliser removes too few characters, expected one for each special token")
    return characters.removed[-characters.special - 1 :]


def _longest_first(reference: Reference) -> list[str]:
    return sorted((token["content"] for token in reference.parts["added_tokens"]), key=len, reverse=True)


def _split(build: Builder, text: str, separator: str) -> str:
    """Texts (N) divided, as rows (N, M) that are filled up with ""."""
    options = {"mark": 0, "pad_value": "", "separators": [separator], "mincharnum": 1}
    return build.op("Tokenizer", text, domain=OWN, **options)


def _column(build: Builder, part: str, like: str) -> str:
    if part == like:
        return build.op("Unsqueeze", like, vector(1))
    shape = build.op("Concat", build.op("Shape", like), vector(1), axis=0)
    return build.op("Expand", constant(build, part), shape)


def _ones(build: Builder, like: str) -> str:
    return build.op("ConstantOfShape", build.op("Shape", like), value=vector(1))
