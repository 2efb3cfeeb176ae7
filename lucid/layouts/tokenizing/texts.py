"""The tokenizer of a checkpoint as part of an ONNX file, which then takes texts."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable

import numpy as np

import lucid
from lucid import Tensor
from lucid.core.words.progress import phase
from lucid.core.words.safe_text import visible
from lucid.export import Builder, Preprocessing, to_onnx
from lucid.layouts.tokenizing.byte_level import check_byte_level, emit_byte_level
from lucid.layouts.tokenizing.parity import DIFFICULT, of_every_kind
from lucid.layouts.tokenizing.reference import INPUTS, TEXT, NotExpressedError, Reference, reference_of
from lucid.layouts.tokenizing.wordpiece import check_wordpiece, emit_wordpiece
from lucid.runtime import Session

_MANY = 100  # added tokens that are tried
_Emit = Callable[[Builder, str, Reference, Collection[str]], dict[str, str]]
_KINDS: dict[str, tuple[Callable[[Reference], None], _Emit]] = {
    "WordPiece": (check_wordpiece, emit_wordpiece),
    "BPE": (check_byte_level, emit_byte_level),
}
_UNIGRAM = "onnxruntime-extensions 0.15 gives no mask for such models (SentencePiece), which tells padding from text"


def text_preprocessing(checkpoint: str | os.PathLike[str]) -> Preprocessing:
    """Preprocessing from texts (N) to `input_ids`, `attention_mask` and `token_type_ids`, for `lucid.export.to_onnx`.

    Texts are padded to the longest, and cut as the checkpoint says. The file needs onnxruntime-extensions when it runs,
    which `lucid.runtime.Session` registers by itself.

    Args:
        checkpoint: a folder with tokenizer.json and tokenizer_config.json.

    Raises:
        NotExpressedError: if any token of a tried text would differ from the tokenizer's; it says why.
        ModuleNotFoundError: if onnxruntime-extensions is not installed.
        FileNotFoundError, ValueError: as `lucid.generation.chat.load_tokenizer`.
    """
    reference = reference_of(checkpoint)
    preprocessing = _preprocessing(reference)
    texts = [*DIFFICULT, *_with_added_tokens(reference), "long " * reference.length]
    unlimited = reference.without_limit()
    with phase("comparing tokenizers"):
        _check(preprocessing, reference, [*([text] for text in texts), texts])
        _check(_preprocessing(unlimited), unlimited, [list(of_every_kind())])
    return preprocessing


def _with_added_tokens(reference: Reference) -> list[str]:
    tokens = [token["content"] for token in reference.parts["added_tokens"]]
    return [f"{token}, a{token}b {token.lower()} {token} {token} {token[:-1]}" for token in tokens[:_MANY]]


def _preprocessing(reference: Reference) -> Preprocessing:
    kind = reference.parts["model"]["type"]
    if kind not in _KINDS:
        why = _UNIGRAM if kind == "Unigram" else f"expected one of {', '.join(_KINDS)}"
        raise NotExpressedError(f"the tokenizer cannot be part of the file: its model is {kind}; {why}")
    check, emit = _KINDS[kind]
    try:
        check(reference)
    except NotExpressedError as error:
        raise NotExpressedError(f"the tokenizer cannot be part of the file: {error}") from None
    return Preprocessing((TEXT,), tuple(INPUTS), lambda build, names: emit(build, TEXT, reference, names))


def _check(preprocessing: Preprocessing, reference: Reference, batches: Iterable[list[str]]) -> None:
    """Compare the inputs that are made of texts.

    Raises:
        NotExpressedError: naming the first text with different tokens.
    """
    kind = lucid.spec("batch_size", "sequence_length", dtype=lucid.int64)
    exported = to_onnx(_inputs, kind, kind, preprocessing=preprocessing, output_names=["ids", "mask"])
    session = Session(exported)
    for texts in batches:
        results, expected = session.run({TEXT: np.array(texts, object)}), reference.encode(texts)
        for row, text in enumerate(texts):
            got = results["ids"][row][results["mask"][row] == 1].tolist()
            expected_ids = expected["input_ids"][row][expected["attention_mask"][row] == 1].tolist()
            if got != expected_ids:
                raise NotExpressedError(_different(text, got, expected_ids, reference))
        if not all(map(np.array_equal, results.values(), expected.values())):
            raise NotExpressedError("the tokenizer cannot be part of the file: it pads texts in another way")


def _inputs(input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
    return input_ids, attention_mask


def _different(text: str, got: list[int], expected: list[int], reference: Reference) -> str:
    same = next((at for at, pair in enumerate(zip(got, expected, strict=False)) if len({*pair}) > 1), None)
    at = min(len(got), len(expected)) if same is None else same
    shown = [visible(" ".join(map(reference.token, ids[max(0, at - 1) : at + 4]))) for ids in (got, expected)]
    begins = reference.library.encode(text).offsets[min(at, len(expected) - 1)][0]
    where = visible(repr(text[max(0, begins - 10) : begins + 20]))
    return (
        f"the tokenizer cannot be part of the file: at {where} onnxruntime-extensions finds the tokens {shown[0]}, the "
        f"checkpoint's tokenizer {shown[1]}; leave it outside"
    )
