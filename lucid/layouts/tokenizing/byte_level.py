"""Byte-level BPE tokenizers, as RoBERTa's, in ONNX nodes.

HfJsonTokenizer, an operator of onnxruntime-extensions, reads tokenizer.json. Version 0.15 passes over normalisers,
over a space before a text, and over the spaces that added tokens take with them, which are removed here.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from lucid.core.targets.runtimes import EXTENSIONS
from lucid.export import Builder
from lucid.layouts.tokenizing.characters import literally, pattern_of
from lucid.layouts.tokenizing.reference import NotExpressedError, Reference
from lucid.layouts.tokenizing.rows import constant, inputs_of_rows, replaced, vector

_SPACES = pattern_of(
    "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
)
"""Unicode's White_Space, as the library `tokenizers` has it."""


def check_byte_level(reference: Reference) -> None:
    """Raise NotExpressedError for a tokenizer of this kind of model that the operator has no options for."""
    steps = reference.parts["pre_tokenizer"] or {}
    kinds = [step["type"] for step in steps.get("pretokenizers", [steps]) if step]
    if "ByteLevel" not in kinds:
        raise NotExpressedError(
            f"its pre_tokenizer is {', '.join(kinds) or 'none'}, and a BPE tokenizer is written with ByteLevel only"
        )


def emit_byte_level(build: Builder, text: str, reference: Reference, inputs: Collection[str]) -> dict[str, str]:
    """The inputs of a model, by name, from texts (N)."""
    # The tokens around a text are part of it for the operator, which loses what a special token at the end begins with.
    before, after = (_repeated(build, reference.text(ids), text) for ids in (reference.before, reference.after))
    for token in reference.parts["added_tokens"]:
        text = _without_spaces(build, text, token)
    text = build.op("StringConcat", before, build.op("StringConcat", text, after, domain=EXTENSIONS), domain=EXTENSIONS)
    options = {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": False, "add_eos_token": False}
    ids, mask = build.ops(
        "HfJsonTokenizer",
        text,
        outputs=2,
        domain=EXTENSIONS,
        tokenizer_config=json.dumps(options),
        tokenizer_vocab=json.dumps({**reference.parts, "post_processor": None}, ensure_ascii=False),
    )
    counts = build.op("ReduceSum", mask, vector(1), keepdims=0)
    return inputs_of_rows(build, ids, counts, reference, inputs)


def _repeated(build: Builder, part: str, like: str) -> str:
    """One text as an array with the shape of another."""
    return build.op("Expand", constant(build, part), build.op("Shape", like))


def _without_spaces(build: Builder, text: str, token: Mapping[str, Any]) -> str:
    """Without the spaces that an added token takes with it, which the operator leaves."""
    left, right = (f"{_SPACES}*" if token[side] else "" for side in ("lstrip", "rstrip"))
    if not left and not right:
        return text
    return replaced(build, text, f"{left}({literally(token['content'])}){right}", r"\1")
