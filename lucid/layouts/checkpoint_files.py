"""The files of a checkpoint next to its weights, which other programs read: config, tokenizer, preprocessor."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from lucid.core.words.safe_text import encoded
from lucid.files.atomic import open_regular, write_atomically
from lucid.files.weights import WeightsError, files_of
from lucid.models.checkpoints.config import read_json
from lucid.models.checkpoints.pretrained import read_options
from lucid.models.checkpoints.sentence_files import MODULES, read_modules

CONFIG, TOKENIZER, TOKENIZER_CONFIG = "config.json", "tokenizer.json", "tokenizer_config.json"
OTHER_FILES = (
    "added_tokens.json",
    "chat_template.jinja",
    "generation_config.json",
    "merges.txt",
    "preprocessor_config.json",
    "processor_config.json",
    "sentence_bert_config.json",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "spiece.model",
    TOKENIZER,
    TOKENIZER_CONFIG,
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
)
"""Files that other programs read besides config.json and the weights."""

PROMPTS = "config_sentence_transformers.json"
"""The file of prompts that are put before texts, at the top of a checkpoint of sentence-transformers."""

_TOKENIZERS = (TOKENIZER, "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model")
_QUANTIZATION = "quantization_config"  # of the checkpoint's weights, and not of an ONNX file's
_BLOCK = 1 << 22


def text_module(name: str) -> Any:
    """A module of `lucid` that needs the extra `chat`: it is imported when a folder needs it.

    Raises:
        ModuleNotFoundError: naming the extra, if it is not installed.
    """
    return import_module(f"lucid.{name}")


def name_of(checkpoint: Path) -> str:
    """The name of a checkpoint's folder or file; for a link, that of the link."""
    path = Path(os.path.abspath(checkpoint))
    return path.name if path.is_dir() else path.stem


def files_home(checkpoint: Path) -> Path:
    """The folder of a checkpoint that has its config and tokenizer: a sentence encoder's may have one of its own."""
    modules = read_modules(checkpoint)
    return checkpoint if modules is None else modules.encoder


def copy_files(checkpoint: Path, folder: Path, names: tuple[str, ...] = OTHER_FILES) -> None:
    """Copy what there is of these files.

    Raises:
        OSError: if a file cannot be read or written.
    """
    for name in names:
        if (checkpoint / name).is_file():
            with open_regular(checkpoint / name) as source, write_atomically(folder / name) as file:
                shutil.copyfileobj(source, file)


def has_tokenizer(checkpoint: Path) -> bool:
    """Whether a checkpoint has one in any form that is copied or, from a GGUF file, written."""
    return is_gguf(checkpoint) or any((checkpoint / name).is_file() for name in _TOKENIZERS)


def is_gguf(checkpoint: Path) -> bool:
    """Whether it is a GGUF file, or a folder with one and no config.json."""
    return checkpoint.is_file() or (not (checkpoint / CONFIG).exists() and any(checkpoint.glob("*.gguf")))


def write_tokenizer(checkpoint: Path, folder: Path) -> None:
    """Copy the files of the tokenizer and the preprocessor, or make them of a GGUF file.

    Raises:
        ModuleNotFoundError: for a GGUF file without the extras `chat` and `gguf`.
        OSError: if a file cannot be read or written.
    """
    if is_gguf(checkpoint):
        chat = text_module("generation.chat")
        chat.save_tokenizer(chat.load_tokenizer(checkpoint), folder)
        return
    copy_files(checkpoint, folder)
    if (folder / TOKENIZER).exists() and not (folder / TOKENIZER_CONFIG).exists():
        write_json(folder / TOKENIZER_CONFIG, {})  # transformers.js insists on the file


def write_config(
    checkpoint: Path, folder: Path, known: Sequence[str] = (), more: Mapping[str, Any] | None = None
) -> None:
    """config.json: as it is in the checkpoint where nothing is added, or made of a GGUF file's metadata.

    Args:
        known: the values of model_type that a GGUF file may have.
        more: options to add.

    Raises:
        ConfigError, OSError: as `lucid.models.load`.
    """
    if is_gguf(checkpoint):
        write_json(folder / CONFIG, {**read_options(checkpoint, *known).options, **(more or {})})
        return
    if not (checkpoint / CONFIG).exists():
        return
    options = read_json(checkpoint / CONFIG)
    if not more and _QUANTIZATION not in options:
        copy_files(checkpoint, folder, (CONFIG,))
        return
    kept = {name: value for name, value in options.items() if name != _QUANTIZATION}
    write_json(folder / CONFIG, {**kept, **(more or {})})


def write_json(path: Path, content: object) -> None:
    """JSON as people read it.

    Raises:
        OSError: if it cannot be written.
    """
    with write_atomically(path) as file:
        file.write(encoded(json.dumps(content, indent=2, ensure_ascii=False) + "\n"))  # the escape is JSON's own


def sources(checkpoint: Path) -> dict[str, str]:
    """The SHA-256 of each file of a checkpoint that a folder is made of, by its path in the checkpoint."""
    if checkpoint.is_file():
        return {checkpoint.name: sha256(checkpoint)}
    home = files_home(checkpoint)
    found = [home / name for name in (CONFIG, *OTHER_FILES)]
    if is_gguf(checkpoint):
        found += sorted(checkpoint.glob("*.gguf"))
    else:
        found += _weights(home)
    modules = read_modules(checkpoint)
    if modules is not None:
        found += [checkpoint / name for name in (MODULES, PROMPTS)]
        layers = [checkpoint / layer.name for layer in modules.layers if (checkpoint / layer.name).is_dir()]
        found += [path for layer in layers for path in (layer / CONFIG, *_weights(layer))]
    there = dict.fromkeys(path for path in found if path.is_file())
    return {path.relative_to(checkpoint).as_posix(): sha256(path) for path in sorted(there)}


def _weights(home: Path) -> list[Path]:
    try:
        return files_of(home)
    except WeightsError:  # of a model of one's own: the folder has a tokenizer only
        return []


def sha256(path: Path) -> str:
    """The hash of a file, as `sha256sum` prints it."""
    found = hashlib.sha256()
    with open_regular(path) as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return found.hexdigest()
