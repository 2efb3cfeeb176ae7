"""The values of the options `--set`, `--input` and `--size`."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from lucid.cli.errors import usage
from lucid.core.graph.types import DTYPES, TensorType, spec

_DIGITS = 18  # of a size: what int64 holds
_WORDS = {"true": True, "false": False, "none": None}
_FORM = "expected NAME:DTYPE:SIZES, such as query:float32:N,L,512"


def settings(option: str, texts: Sequence[str]) -> dict[str, Any]:
    """`KEY=VALUE` texts. A value is a Python literal (8, 0.1, true, None, (1, 2)); anything else is text."""
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            raise usage(f"{option} {text!r}: expected KEY=VALUE, such as num_heads=8")
        if key in found:
            raise usage(f"{option} {text!r}: {key} is given twice")
        found[key] = _value(value)
    return found


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def inputs(texts: Sequence[str]) -> dict[str, TensorType]:
    """`NAME:DTYPE:SIZES` texts, or `NAME:SIZES` for float32."""
    found: dict[str, TensorType] = {}
    for text in texts:
        name, *rest = text.split(":")
        if not name.isidentifier() or len(rest) not in (1, 2):
            raise usage(f"--input {text!r}: {_FORM}")
        if name in found:
            raise usage(f"--input {text!r}: {name} is given twice")
        dtype = rest[0] if len(rest) == 2 else "float32"
        if dtype not in {known.name for known in DTYPES}:
            raise usage(f"--input {text!r}: dtype {dtype!r} is not one of {', '.join(known.name for known in DTYPES)}")
        try:
            found[name] = spec(*map(_size, rest[-1].split(",") if rest[-1] else []), dtype=dtype)
        except ValueError as error:
            raise usage(f"--input {text!r}: {error}") from error
    return found


def _size(text: str) -> str | int:
    text = text.strip()
    return int(text) if text.lstrip("-").isdecimal() else text


def sizes(texts: Sequence[str]) -> dict[str, int]:
    """`NAME=N` texts, each one or several separated by commas."""
    found: dict[str, int] = {}
    for text in texts:
        for part in text.split(","):
            name, equals, value = part.strip().rpartition("=")
            if not equals or not name or not value.isdecimal() or len(value) > _DIGITS:
                raise usage(f"--size {text!r}: expected NAME=N, such as L=128")
            if name in found:
                raise usage(f"--size {text!r}: {name} is given twice")
            found[name] = int(value)
    return found


def check_known(given: Mapping[str, int], known: set[str]) -> None:
    """Raise an error for sizes that the model does not have."""
    unknown = sorted(given.keys() - known)
    if unknown:
        existing = f"the model's sizes are {', '.join(sorted(known))}" if known else "all sizes of the model are fixed"
        raise usage(f"--size {', '.join(unknown)}: {existing}")
