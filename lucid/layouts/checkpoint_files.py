"""The files of a checkpoint next to its weights, which other programs read: config, tokenizer, preprocessor."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lucid.core.number_ranges import is_whole
from lucid.files.atomic import open_regular, write_atomically
from lucid.files.hub import folder_name
from lucid.files.weights import WeightsError, files_of
from lucid.models.checkpoints.adapter_files import CONFIG as ADAPTER_CONFIG
from lucid.models.checkpoints.adapter_files import weights_file
from lucid.models.checkpoints.adapters import base_of, find_file
from lucid.models.checkpoints.config import QUANTIZATION, ConfigError, read_json, read_optional_json, write_json
from lucid.models.checkpoints.config_file import MAX_TOKENIZER
from lucid.models.checkpoints.pretrained import Pretrained, read_options
from lucid.models.checkpoints.sentence_files import MODULES, read_modules
from lucid.models.checkpoints.static_files import TOKENIZER as TOKENIZER
from lucid.models.checkpoints.static_files import TOKENIZER_CONFIG as TOKENIZER_CONFIG
from lucid.models.checkpoints.static_files import TYPES, static_tokenizer, type_in
from lucid.nn.module import Module

CONFIG = "config.json"
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
_BLOCK = 1 << 22


def text_module(name: str) -> Any:
    """A module of `lucid` that needs the extra `chat`: it is imported when a folder needs it.

    Raises:
        ModuleNotFoundError: naming the extra, if it is not installed.
    """
    return import_module(f"lucid.{name}")


def name_of(checkpoint: Path) -> str:
    """The name of a checkpoint's folder or file; for a link, that of the link, and of the hub's cache the hub's."""
    path = Path(os.path.abspath(checkpoint))
    return folder_name(path) if path.is_dir() else path.stem


def files_home(checkpoint: Path) -> Path:
    """The folder of a checkpoint that has its config and tokenizer: a sentence encoder's may have one of its own."""
    modules = read_modules(checkpoint)
    return checkpoint if modules is None else modules.encoder


def max_tokens(checkpoint: Path) -> int | None:
    """The most tokens of a text, as sentence-transformers or transformers cuts them; None if the files do not say.

    Without an option that says it, as static embeddings have none, it is the length to which tokenizer.json cuts.
    """
    home, name = files_home(checkpoint), "sentence_bert_config.json"
    limits = [read_optional_json(folder / name).get("max_seq_length") for folder in (home, checkpoint)]
    static = static_tokenizer(home)
    about = static[TOKENIZER_CONFIG] if static else read_optional_json(home / TOKENIZER_CONFIG, MAX_TOKENIZER)
    limits.append(about.get("model_max_length"))
    truncation = read_optional_json(file_of(checkpoint, TOKENIZER), MAX_TOKENIZER).get("truncation")
    limits.append(truncation.get("max_length") if isinstance(truncation, dict) else None)
    for count in limits:
        if is_whole(count) and 2 < count < 1 << 20:
            return count
    return None


def copy_files(checkpoint: Path, folder: Path, names: tuple[str, ...] = OTHER_FILES) -> None:
    """Copy those of these files that exist.

    Raises:
        OSError: if a file cannot be read or written.
    """
    for name in names:
        if (checkpoint / name).is_file():
            with open_regular(checkpoint / name) as source, write_atomically(folder / name) as file:
                shutil.copyfileobj(source, file)


def file_of(checkpoint: Path, name: str) -> Path:
    """The path of one of these files; an adapter without the file has that of its base model."""
    return find_file(files_home(checkpoint), name)


def has_tokenizer(checkpoint: Path) -> bool:
    """Whether a checkpoint has one in any form that is copied or, from a GGUF file, written."""
    return is_gguf(files_home(checkpoint)) or any(file_of(checkpoint, name).is_file() for name in _TOKENIZERS)


def is_gguf(checkpoint: Path) -> bool:
    """Whether it is a GGUF file, or a folder with one and no config.json."""
    return checkpoint.is_file() or (not (checkpoint / CONFIG).exists() and any(checkpoint.glob("*.gguf")))


def write_tokenizer(checkpoint: Path, folder: Path) -> None:
    """Copy the files of the tokenizer and the preprocessor, or make them of a GGUF file.

    Files of an adapter replace those of its base model. The tokenizer of a static embedding adds no special tokens.

    Raises:
        ModuleNotFoundError: for a GGUF file without the extras `chat` and `gguf`.
        OSError: if a file cannot be read or written.
    """
    home = files_home(checkpoint)
    if is_gguf(home):
        chat = text_module("generation.chat")
        chat.save_tokenizer(chat.load_tokenizer(home), folder)
        return
    base = base_of(home)
    if base is not None:
        write_tokenizer(base, folder)
    copy_files(home, folder)
    for name, content in static_tokenizer(home).items():
        write_json(folder / name, content)
    if (folder / TOKENIZER).exists() and not (folder / TOKENIZER_CONFIG).exists():
        write_json(folder / TOKENIZER_CONFIG, {})  # transformers.js insists on the file


def check_vocabulary(checkpoint: Path, rows: int) -> None:
    """Refuse a tokenizer that gives ordinary texts ids for which a model's table of tokens has no rows.

    Tokens that were added to the vocabulary do not count: published models have some that stand for images, and no row
    for them.

    Raises:
        ConfigError: naming the largest id and the rows; also for a tokenizer.json that is not a JSON object.
    """
    file = file_of(checkpoint, TOKENIZER)
    model = read_optional_json(file, MAX_TOKENIZER).get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, list):  # of a Unigram model
        largest = len(vocabulary) - 1
    else:  # loading the tokenizer says what else is wrong with it
        ids = vocabulary.values() if isinstance(vocabulary, dict) else ()
        largest = max((number for number in ids if isinstance(number, int)), default=-1)
    if largest >= rows:
        raise ConfigError(
            f"{file}: its tokens have ids up to {largest}, and the model's table has {rows} rows, for ids up to "
            f"{rows - 1}; give the tokenizer that the model was trained with"
        )


def write_config(model: Module, checkpoint: Path, folder: Path, more: Mapping[str, Any] | None = None) -> None:
    """config.json: as it is in the checkpoint where nothing is added, or made of what else tells the options: a GGUF
    file's metadata, or the weights of a static embedding.

    Args:
        model: what was loaded from the checkpoint; with adapters, its head and its vocabulary are theirs.
        checkpoint: what has the config.
        folder: where to write.
        more: options to add.

    Raises:
        ConfigError, OSError: as `lucid.models.load`.
    """
    home = files_home(checkpoint)
    known, adapters = (model.checkpoint.model_types, model.adapters) if isinstance(model, Pretrained) else ((), {})
    if is_gguf(home) or type_in(home) in TYPES:
        write_json(folder / CONFIG, {**read_options(home, *known, adapters=adapters).options, **(more or {})})
        return
    path = find_file(home, CONFIG)
    if not path.exists():
        return
    options = read_json(path)
    if adapters:
        more = {**read_options(home, *known, adapters=adapters).options, **(more or {})}
    elif not more and QUANTIZATION not in options:
        copy_files(home, folder, (CONFIG,))
        return
    kept = {name: value for name, value in options.items() if name != QUANTIZATION}  # of weights, not of an ONNX file
    write_json(folder / CONFIG, {**kept, **(more or {})})


def sources(checkpoint: Path, adapters: Mapping[Path, float] = MappingProxyType({})) -> dict[str, str]:
    """The SHA-256 of each file of a checkpoint that a folder is made of, by its path in the checkpoint.

    Files of adapters, and of the base model of a checkpoint that is an adapter, have the name of their folder in front.
    """
    if checkpoint.is_file():
        return {checkpoint.name: sha256(checkpoint)} | _of_adapters(adapters)
    home = files_home(checkpoint)
    base = base_of(home)
    if base is not None:
        own = {path.name: sha256(path) for path in (home / name for name in OTHER_FILES) if path.is_file()}
        of_base = {f"{folder_name(base)}/{file}": digest for file, digest in sources(base).items()}
        return of_base | own | _of_adapters(adapters)
    paths = [home / name for name in (CONFIG, *OTHER_FILES)]
    if is_gguf(checkpoint):
        paths += sorted(checkpoint.glob("*.gguf"))
    else:
        paths += _weights(home)
    modules = read_modules(checkpoint)
    if modules is not None:
        paths += [checkpoint / name for name in (MODULES, PROMPTS)]
        layers = [checkpoint / layer.name for layer in modules.layers if (checkpoint / layer.name).is_dir()]
        paths += [path for layer in layers for path in (layer / CONFIG, *_weights(layer))]
    there = dict.fromkeys(path for path in paths if path.is_file())
    return {path.relative_to(checkpoint).as_posix(): sha256(path) for path in sorted(there)} | _of_adapters(adapters)


def _of_adapters(adapters: Mapping[Path, float]) -> dict[str, str]:
    return {
        f"{folder_name(folder)}/{path.name}": sha256(path)
        for folder in adapters
        for path in (folder / ADAPTER_CONFIG, weights_file(folder))
    }


def _weights(home: Path) -> list[Path]:
    try:
        return files_of(home)
    except WeightsError:  # a folder with a tokenizer alone, for a model that was not loaded from it
        return []


def onnx_files(folder: Path) -> list[Path]:
    """The ONNX files of a folder of one of the layouts; none for a checkpoint."""
    return sorted(file for place in (".", "onnx") for file in (folder / place).glob("*.onnx"))


def sha256(path: Path) -> str:
    """The hash of a file, as `sha256sum` prints it."""
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
