"""Reading the text side of a checkpoint, an exported folder or a GGUF file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from lucid.core.number_ranges import is_whole
from lucid.core.words.safe_text import visible
from lucid.files.atomic import open_regular, write_atomically
from lucid.files.hub import local_checkpoint
from lucid.generation import defaults
from lucid.generation.chat.template import ChatTemplate
from lucid.generation.chat.tokenizer import Tokenizer
from lucid.models.checkpoints.adapters import find_file
from lucid.models.checkpoints.config_file import MAX_TOKENIZER, read_optional_json
from lucid.models.checkpoints.pretrained import gguf_module
from lucid.models.checkpoints.static_files import TOKENIZER, TOKENIZER_CONFIG, static_tokenizer

# The files with ids and the number of positions, by precedence: onnxruntime-genai's, then those of transformers.
_GENERATION = "generation_config.json"
_CONFIGS = ("genai_config.json", _GENERATION, "config.json")
# transformers' class for tokenizers that are all in tokenizer.json; onnxruntime-genai accepts only known classes.
_CLASS = "PreTrainedTokenizerFast"
_POSITIONS = ("context_length", "max_position_embeddings", "n_positions", "model_max_length")


def load_tokenizer(source: str | os.PathLike[str]) -> Tokenizer:
    """Read what a checkpoint says about text.

    Args:
        source: a folder with tokenizer.json (a checkpoint, or an exported model with the same files next to it), a GGUF
            file, a folder with one, or the name of a checkpoint on Hugging Face's hub. Files that the folder of an
            adapter does not have are those of its base model.

    Raises:
        FileNotFoundError: if there is no tokenizer.
        ModuleNotFoundError: for a GGUF file if the extra `gguf` is not installed.
        ValueError: for a file that is not what its name says, such as a ConfigError for a GGUF file.
    """
    path = local_checkpoint(source)
    file = check_tokenizer(path)
    return _from_folder(path) if file.name == TOKENIZER else _from_gguf(file)


def check_tokenizer(path: Path) -> Path:
    """The file with the tokenizer of a checkpoint or an exported folder, unread: its tokenizer.json or its GGUF file.

    Raises:
        FileNotFoundError: if there is none.
    """
    if (file := find_file(path, TOKENIZER)).exists():
        return file
    files = sorted(path.glob("*.gguf")) if path.is_dir() else [path]
    if len(files) == 1:
        return files[0]
    where = path if path.name else Path(os.path.abspath(path))  # such as "."
    raise FileNotFoundError(
        f"{where}: has no tokenizer.json and no GGUF file; expected one of them: a tokenizer of another kind is "
        "converted by transformers' AutoTokenizer.from_pretrained(...).save_pretrained(...)"
    )


def decoder_name(folder: Path) -> str | None:
    """The file that a genai_config.json names as the decoder; None if there is none.

    Raises:
        ValueError: for anything but a name in this folder.
    """
    name = _section(_section(_read_json(folder / "genai_config.json"), "model"), "decoder").get("filename")
    if name is not None and (not isinstance(name, str) or not name or Path(name).name != name):
        raise ValueError(
            f"{folder / 'genai_config.json'}: the decoder's filename is {visible(str(name)[:80])}, expected the name "
            "of a file in the same folder"
        )
    return name


def load_defaults(folder: Path) -> dict[str, Any]:
    """The options that the generation_config.json of a checkpoint or an exported folder recommends.

    Raises:
        ValueError: for a file that is not what its name says, or a value out of range.
    """
    path = find_file(folder, _GENERATION)
    return defaults.from_config(_read_json(path), str(path))


def _from_folder(folder: Path) -> Tokenizer:
    static = static_tokenizer(folder)
    library = _library(find_file(folder, TOKENIZER), static.get(TOKENIZER))
    about = static[TOKENIZER_CONFIG] if static else _read_json(find_file(folder, TOKENIZER_CONFIG))
    special = _special_tokens({**_read_json(find_file(folder, "special_tokens_map.json")), **about})
    configs = [_read_json(find_file(folder, name)) for name in _CONFIGS]
    configs[0] = _section(configs[0], "model")
    return Tokenizer(
        where=str(folder),
        library=library,
        eos_token_ids=_eos_ids(folder, configs) or _ids_of(library, special.get("eos_token")),
        special_tokens=special,
        options={name: value for name, value in about.items() if name != "chat_template"},
        chat_template=_template(folder, about, special),
        max_positions=_positions([*configs, about]),
        defaults=load_defaults(folder),
    )


def save_tokenizer(tokenizer: Tokenizer, folder: str | os.PathLike[str]) -> None:
    """Write the files that `load_tokenizer` reads, next to an exported model.

    They are tokenizer.json, tokenizer_config.json and generation_config.json, as transformers writes them, and as
    onnxruntime-genai reads them too.

    Args:
        folder: one that exists.

    Raises:
        OSError: if a file cannot be written.
    """
    # That class makes token_type_ids unless it is told what the model takes.
    about: dict[str, object] = {"tokenizer_class": _CLASS, "model_input_names": ["input_ids", "attention_mask"]}
    about |= {**tokenizer.special_tokens, **tokenizer.options}
    if tokenizer.chat_template is not None:
        about["chat_template"] = tokenizer.chat_template.text
    if tokenizer.max_positions is not None:
        about["model_max_length"] = tokenizer.max_positions
    texts = {
        "tokenizer.json": tokenizer.library.to_str(),
        "tokenizer_config.json": json.dumps(about, indent=2),
        "generation_config.json": json.dumps({"eos_token_id": list(tokenizer.eos_token_ids), **tokenizer.defaults}),
    }
    for name, text in texts.items():
        with write_atomically(Path(folder) / name) as file:
            file.write(text.encode("utf-8"))


def _library(path: Path, changed: Mapping[str, Any] | None) -> tokenizers.Tokenizer:
    """The tokenizer of a tokenizer.json, or of its content after changes."""
    text = _read_text(path) if changed is None else json.dumps(changed)
    try:
        return tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises nothing narrower
        error.add_note(f"{path}: the library tokenizers {tokenizers.__version__} does not read it:")
        raise


def _ids_of(library: tokenizers.Tokenizer, token: str | None) -> tuple[int, ...]:
    number = None if token is None else library.token_to_id(token)
    return () if number is None else (number,)


def _special_tokens(options: Mapping[str, Any]) -> dict[str, str]:
    """Tokens by name, such as eos_token: each is text, or an object with its text in it."""
    tokens = {}
    for name, value in options.items():
        token = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(token, str):
            tokens[name] = token
    return tokens


def _eos_ids(folder: Path, configs: list[dict[str, Any]]) -> tuple[int, ...]:
    """The ids of the first config that gives any: one, or a list."""
    for name, config in zip(_CONFIGS, configs, strict=True):
        value = config.get("eos_token_id")
        ids = value if isinstance(value, list) else [] if value is None else [value]
        if not all(is_whole(number) and number >= 0 for number in ids):
            raise ValueError(
                f"{folder / name}: eos_token_id is {visible(str(value)[:80])}, expected an id or a list of ids"
            )
        if ids:
            return tuple(ids)
    return ()


def _positions(configs: Sequence[Mapping[str, Any]]) -> int | None:
    """The first number of positions in the configs; transformers writes 1e30 for "any number", which does not count."""
    counts = (_count(config.get(name)) for config in configs for name in _POSITIONS)
    return next((count for count in counts if count is not None), None)


def _count(value: object) -> int | None:
    return value if is_whole(value) and 0 < value < 1 << 31 else None


def _template(folder: Path, about: Mapping[str, Any], special: Mapping[str, str]) -> ChatTemplate | None:
    """The file chat_template.jinja, or the option chat_template: text, or a list of templates with names."""
    path = find_file(folder, "chat_template.jinja")
    if path.exists():
        return ChatTemplate(_read_text(path), str(path), special)
    path = folder / "tokenizer_config.json"
    template = about.get("chat_template")
    if isinstance(template, list):
        named = {one["name"]: one.get("template") for one in template if isinstance(one, dict) and "name" in one}
        if "default" not in named:
            shown = visible(", ".join(map(str, named))[:80]) or "nothing"
            raise ValueError(f"{path}: chat_template names {shown}, expected a template with the name default")
        template = named["default"]
    if template is None:
        return None
    if not isinstance(template, str):
        raise ValueError(
            f"{path}: chat_template is a {type(template).__name__}, expected text, or a list of named ones"
        )
    return ChatTemplate(template, str(path), special)


def _read_json(path: Path) -> dict[str, Any]:
    return read_optional_json(path, MAX_TOKENIZER)  # added tokens take megabytes


def _read_text(path: Path) -> str:
    with open_regular(path) as file:
        data = file.read(MAX_TOKENIZER + 1)
    if len(data) > MAX_TOKENIZER:
        raise ValueError(f"{path}: more than {MAX_TOKENIZER >> 20} MiB, the most that is read of it; download it again")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not text in UTF-8 (byte {error.start}); download it again") from None


def _section(options: Mapping[str, Any], name: str) -> dict[str, Any]:
    section = options.get(name, {})
    return section if isinstance(section, dict) else {}


def _from_gguf(path: Path) -> Tokenizer:
    header = gguf_module("gguf_file", path).read_header(path)
    words = gguf_module("gguf_tokenizer", path).tokenizer_in(header)
    special = {f"{name}_token": words.tokenizer.id_to_token(number) for name, number in words.special.items()}
    template = words.chat_template
    return Tokenizer(
        where=str(path),
        library=words.tokenizer,
        eos_token_ids=tuple(dict.fromkeys(words.special[name] for name in ("eos", "eot") if name in words.special)),
        special_tokens=special,
        chat_template=None if template is None else ChatTemplate(template, str(path), special),
        max_positions=_count(header.metadata.get(f"{header.metadata.get('general.architecture')}.context_length")),
        defaults=defaults.from_gguf(header.metadata, str(path)),
    )
