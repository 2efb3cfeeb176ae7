"""How a checkpoint's own tokenizer makes the inputs of its model: what a tokenizer in a file has to agree with."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import tokenizers

from lucid.core.graph.types import Array
from lucid.files.hub import local_checkpoint
from lucid.generation.chat.tokenizer_files import load_tokenizer
from lucid.layouts.checkpoint_files import TOKENIZER_CONFIG, files_home, max_tokens
from lucid.models.checkpoints.static_files import TYPES, type_in

TEXT = "text"
"""The input of a file that takes texts."""

INPUTS = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
"""The inputs of models that a tokenizer makes, and what the library `tokenizers` calls them."""

_UNLIMITED = 1 << 16


class NotExpressedError(ValueError):
    """A tokenizer that cannot be part of an ONNX file; the message says why."""


@dataclass(frozen=True)
class Reference:
    """A tokenizer as its checkpoint uses it: texts are padded on the right, and cut to a length."""

    library: tokenizers.Tokenizer  # the tokenizer of the library `tokenizers`, which pads and cuts
    parts: dict[str, Any]  # the same as plain data, as tokenizer.json has it
    length: int  # the most tokens of a text
    padding: int  # the id of the padding
    # before, after: the ids that are added to every text.
    before: tuple[int, ...]
    after: tuple[int, ...]

    def encode(self, texts: Sequence[str]) -> dict[str, Array]:
        """The inputs (N, L) int64 by name."""
        encodings = self.library.encode_batch(list(texts))
        return {
            name: np.asarray([getattr(one, field) for one in encodings], np.int64) for name, field in INPUTS.items()
        }

    def without_limit(self) -> Self:
        """The reference without truncation, for texts of any length that is tried."""
        library = tokenizers.Tokenizer.from_str(self.library.to_str())
        library.no_truncation()
        return replace(self, library=library, length=_UNLIMITED)

    def token(self, number: int) -> str:
        """The text of a token."""
        return str(self.library.id_to_token(number))

    def text(self, ids: Sequence[int], between: str = "") -> str:
        """The texts of tokens, joined."""
        return between.join(map(self.token, ids))


def reference_of(checkpoint: str | os.PathLike[str]) -> Reference:
    """Read the tokenizer of a checkpoint.

    Raises:
        NotExpressedError: for one that pads or cuts on the left, or that does not say how long a text may be.
        FileNotFoundError, ValueError: as `lucid.generation.chat.load_tokenizer`.
    """
    path = local_checkpoint(checkpoint)
    home = files_home(path)
    tokenizer = load_tokenizer(home)
    for side in ("padding_side", "truncation_side"):
        if tokenizer.options.get(side, "right") != "right":
            raise NotExpressedError(f"{home}: {side} is {tokenizer.options[side]!r}, expected 'right'")
    library = tokenizer.library
    library.no_padding()
    library.no_truncation()
    parts = json.loads(library.to_str())
    example = library.encode("a")
    places = [number for number, special in enumerate(example.special_tokens_mask) if not special]
    if not places or any(example.type_ids):
        raise NotExpressedError(f"{home}: expected tokens for the text 'a', all of type 0; got {example.tokens}")
    padding = library.token_to_id(tokenizer.special_tokens.get("pad_token", ""))
    length = max_tokens(path)
    if length is None:
        remedy = (
            "a truncation into tokenizer.json"
            if type_in(home) in TYPES
            else f"model_max_length into {TOKENIZER_CONFIG}"
        )
        raise NotExpressedError(f"{home}: does not say how many tokens a text may have; write {remedy}")
    library.enable_padding(pad_id=padding or 0, pad_token=tokenizer.special_tokens.get("pad_token", ""))
    library.enable_truncation(length)
    return Reference(
        library, parts, length, padding or 0, tuple(example.ids[: places[0]]), tuple(example.ids[places[-1] + 1 :])
    )
