"""Folders of static embeddings, those of sentence-transformers and of Model2Vec: a table of tokens and a tokenizer.

The names of its weights tell what such a folder holds, as a config.json is missing or has no model_type::

    embedding.weight                        a vector for each token: a StaticEmbedding
    embeddings, perhaps weights, mapping    the same as Model2Vec stores it
    weight                                  a number for each token: a SparseStaticEmbedding
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lucid
from lucid.core.number_ranges import is_whole
from lucid.core.words.safe_text import show
from lucid.files.weights import NAMES
from lucid.models.checkpoints.config_file import MAX_TOKENIZER, ConfigError, read_json, read_optional_json

STATIC, MODEL2VEC, SPARSE = "static_embedding", "model2vec", "sparse_static_embedding"
TYPES = (STATIC, MODEL2VEC, SPARSE)
"""The types of these folders; sentence-transformers has no names for its own."""
TABLES = ("embedding.weight", "embeddings")
"""The names that the table of vectors may have."""
_LENGTH = 512  # Model2Vec's, of older folders
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"


def with_sizes(options: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The options of a folder's config.json; those of a static embedding with its model_type and its sizes.

    Raises:
        WeightsError: for an invalid weights file in a folder whose options have no model_type.
    """
    kind = options.get("model_type")
    if kind not in (None, MODEL2VEC) or not _holds_weights(folder):
        return dict(options)
    shapes = {name: array.shape for name, array in lucid.load(folder).items()}
    names, table = shapes.keys(), next((shapes[name] for name in TABLES if name in shapes), ())
    if len(table) == 2 and (names == {TABLES[0]} or names <= {TABLES[1], "weights", "mapping"}):
        tokens = (*shapes.get("mapping", table), 0)[0]
        return {**options, "model_type": kind or STATIC, "vocab_size": tokens, "hidden_size": table[1]}
    if kind is None and names == {"weight"} and len(shapes["weight"]) == 1:
        return {**options, "model_type": SPARSE, "vocab_size": shapes["weight"][0]}
    return dict(options)


def type_in(folder: Path) -> str | None:
    """The model_type of a folder: by its config.json, or that of a static embedding; None if nothing tells it.

    Raises:
        ConfigError: for a config.json that is not a JSON object.
        WeightsError: as `with_sizes`.
    """
    kind = _options(folder).get("model_type")
    return None if kind is None else str(kind)


def names_of_tables(folder: Path) -> str:
    """The names that the tensors of a static embedding have, for a message about a folder with one of another name.

    Raises:
        WeightsError: as `with_sizes`.
    """
    names = sorted(lucid.load(folder)) if _holds_weights(folder) else []
    if not 0 < len(names) <= len((*TABLES, "weights", "mapping")):
        return ""
    return (
        f"; a folder without one is read if it holds a static embedding, whose table is named {' or '.join(TABLES)} (a "
        f"weight for each token: weight), and this has {', '.join(map(show, names))}"
    )


def _options(folder: Path) -> dict[str, Any]:
    return with_sizes(read_optional_json(folder / "config.json"), folder)


def _holds_weights(folder: Path) -> bool:
    return any((folder / name).is_file() for name in NAMES)


def static_tokenizer(folder: Path) -> dict[str, dict[str, Any]]:
    """The content of tokenizer.json, if it is there, and tokenizer_config.json of a static embedding, as its library
    uses them; {} for another folder.

    Texts get no special tokens and no padding. Those of a `StaticEmbedding` are cut off as tokenizer.json says, or in a
    folder that Model2Vec reads at the max_length of config.json.

    Raises:
        ConfigError: for a file that is not a JSON object.
        WeightsError: as `with_sizes`.
    """
    options = _options(folder)
    kind = options.get("model_type")
    if kind not in TYPES or not _holds_weights(folder):  # an exported folder has the files as they come out here
        return {}
    about = read_optional_json(folder / TOKENIZER_CONFIG, MAX_TOKENIZER)
    if kind != SPARSE:
        about.pop("model_max_length", None)
    if kind == MODEL2VEC and not (folder / "modules.json").exists():
        about["model_max_length"] = options.get("max_length", _LENGTH)
    if not (folder / TOKENIZER).exists():
        return {TOKENIZER_CONFIG: about}
    tokenizer = read_json(folder / TOKENIZER, MAX_TOKENIZER)
    return {TOKENIZER: {**tokenizer, "post_processor": None, "padding": None}, TOKENIZER_CONFIG: about}


def token_ids(path: Path) -> dict[str, int]:
    """The ids of the tokens in a tokenizer.json, by their texts.

    Raises:
        ConfigError: for a file that has none, or of another form.
    """
    content = read_json(path, MAX_TOKENIZER)
    model, added = content.get("model"), content.get("added_tokens")
    vocabulary: object = model.get("vocab") if isinstance(model, dict) else None
    pairs: list[tuple[Any, Any]] = list(vocabulary.items()) if isinstance(vocabulary, dict) else []
    if isinstance(vocabulary, list):  # of a Unigram model: of each token its text and its score
        pairs = [(token[0], number) for number, token in enumerate(vocabulary) if isinstance(token, list) and token]
    tokens = [token for token in added if isinstance(token, dict)] if isinstance(added, list) else []
    pairs += [(token.get("content"), token.get("id")) for token in tokens]
    if not pairs or not all(isinstance(text, str) and is_whole(number) and number >= 0 for text, number in pairs):
        raise ConfigError(f"{path}: expected texts of tokens and their ids as model.vocab; get an intact copy")
    return dict(pairs)


def unknown_token(folder: Path, tokens: int) -> int | None:
    """The id of the token that stands for unknown words; None for a tokenizer without one among so many tokens."""
    model = read_optional_json(folder / TOKENIZER, MAX_TOKENIZER).get("model")
    if not isinstance(model, dict):  # loading the tokenizer says what is wrong with it
        return None
    vocabulary, token = model.get("vocab"), model.get("unk_token")
    if isinstance(vocabulary, dict):
        number = vocabulary.get(token) if isinstance(token, str) else None
    else:
        number = model.get("unk_id")  # of a Unigram model, whose vocabulary is a list
    return number if type(number) is int and 0 <= number < tokens else None
