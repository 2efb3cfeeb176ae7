"""modules.json of sentence-transformers: the encoder of a folder, and the layers after it.

It lists what reads texts, such as a Transformer, and what is made of its results; `TASKS` has what is known. Each layer
has a folder with its config::

    [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
     {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
     {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]

A Router has routes with modules of their own: of those that begin with an encoder there has to be one, as that of
documents where queries are a table of weights. If none does, the same holds for those tables.
"""

from __future__ import annotations

import os
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import lucid
from lucid import Tensor
from lucid.core.words.safe_text import show
from lucid.models.checkpoints.config import (
    Array,
    Config,
    ConfigError,
    parse_json,
    read_json,
    read_optional_json,
    write_json,
)
from lucid.models.checkpoints.static_files import MODEL2VEC, SPARSE, STATIC, TOKENIZER, token_ids, type_in
from lucid.nn import functional as F

POOLING, DENSE, NORMALIZE = "Pooling", "Dense", "Normalize"
SPLADE, SCORE, MASK = "SpladePooling", "LogitScore", "MultiVectorMask"
TABLE, SPARSE_TABLE, CLIP = "StaticEmbedding", "SparseStaticEmbedding", "CLIPModel"
TASKS = {
    "sentence-similarity": re.compile(rf"(Transformer {POOLING}|{TABLE}|{CLIP})( {DENSE}| {NORMALIZE})*"),
    "sparse-encoding": re.compile(rf"(Transformer|MLMTransformer) {SPLADE}|{SPARSE_TABLE}"),
    "multi-vector-encoding": re.compile(rf"Transformer( {DENSE})+( {MASK})?( {NORMALIZE})?"),
    "generative-reranking": re.compile(rf"Transformer {SCORE}"),
}
"""The task of a folder, by the kinds of its modules in order."""
SENTENCES, *MODULE_TASKS = TASKS
_IDENTITY = "torch.nn.modules.linear.Identity"
DENSE_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    _IDENTITY: lambda x: x,
    "torch.nn.modules.activation.Tanh": lambda x: x.tanh(),
    "torch.nn.modules.activation.ReLU": F.relu,
    "torch.nn.modules.activation.GELU": F.gelu,
    "torch.nn.modules.activation.SiLU": F.silu,
    "torch.nn.modules.activation.Sigmoid": lambda x: x.sigmoid(),
}

MODULES, ROUTES = "modules.json", "router_config.json"
PREFIX = "sentence_layers"  # of the names of their parameters in a model

ENCODER, _ROUTER = "Transformer", "Router"
_ENCODERS, _TABLES = (ENCODER, "MLMTransformer", CLIP), (TABLE, SPARSE_TABLE)
_FOLDERS = {  # of first modules: the types of their folders, and what these are
    TABLE: ((STATIC, MODEL2VEC), "weights that are embedding.weight, or Model2Vec's embeddings, weights and mapping"),
    SPARSE_TABLE: ((SPARSE,), "weights that are a weight for each token"),
    CLIP: (("clip",), "a config.json of model_type clip"),
}
_FAMILIES = ("sentence_transformers.", "pylate.models.Dense.")  # of types; PyLate has a Dense of its own
_LONG_KNOWN = (ENCODER, POOLING, DENSE, NORMALIZE, TABLE, CLIP)
_BY_ITS_LIBRARY = "its library computes it: SentenceTransformer(FOLDER).encode(texts)"
_PLAIN_NAME = re.compile(r"[\w-]{1,100}", re.ASCII)
_MODES = {  # by mode the option that older files have for it, in the order in which the results are joined
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}


@dataclass(frozen=True)
class SentenceLayer:
    """A layer after the encoder: what modules.json and its own config.json say of it."""

    name: str
    kind: str
    modes: tuple[str, ...] = ()  # of a Pooling; "max" or "sum" of a SpladePooling
    tokens: tuple[int, ...] = ()  # of a LogitScore, for and perhaps against; those that a MultiVectorMask leaves out
    in_features: int = 0  # of a Dense, as all below
    out_features: int = 0
    bias: bool = True
    activation: str = _IDENTITY


MEAN = SentenceLayer("0_Pooling", POOLING, ("mean",))
"""The layer that a table of vectors has by itself."""
USUAL_LAYERS = (SentenceLayer("1_Pooling", POOLING, ("mean",)), SentenceLayer("2_Normalize", NORMALIZE))
"""The layers of an encoder without modules.json: the mean, scaled to length 1."""
LAST_TOKEN = (SentenceLayer("1_Pooling", POOLING, ("lasttoken",)), SentenceLayer("2_Normalize", NORMALIZE))
"""The layers of a decoder without one, in which only the last token has seen all others."""


@dataclass(frozen=True)
class SentenceModules:
    """The content of a folder's modules.json: the folder of the encoder, and the layers after it."""

    encoder: Path
    layers: tuple[SentenceLayer, ...]
    folder: Path
    task: str = SENTENCES
    first: str = ENCODER
    types: Mapping[str, str] = field(default_factory=dict)
    """The types in modules.json by kind."""

    @property
    def weights(self) -> dict[str, Array]:
        """The weights of the layers by their names in a model, as far as they have files of their own.

        Raises:
            ConfigError: for a bias that a layer's config says it does not have.
        """
        weights: dict[str, Array] = {}
        for layer in self.layers:
            if layer.kind == DENSE and _holds_weights(self.folder / layer.name):
                held = lucid.load(self.folder / layer.name)
                if "linear.bias" in held and not layer.bias:
                    config = self.folder / layer.name / "config.json"
                    raise ConfigError(f"{config}: option bias is False, but the weights next to it have a linear.bias")
                weights |= {f"{PREFIX}.{layer.name}.{key}": array for key, array in held.items()}
        return weights

    def write(self, folder: Path, weights: Mapping[str, Tensor] = MappingProxyType({})) -> None:
        """Write modules.json and the configs of the layers next to the weights that a model has saved.

        `weights` by their names in the model: those of a Dense go to its folder too, where its library reads them.
        """
        layers = [layer for layer in self.layers if layer.kind == NORMALIZE or (self.folder / layer.name).is_dir()]
        listed = [("", self.first), *((layer.name, layer.kind) for layer in layers)]
        lines = [
            {"idx": index, "name": str(index), "path": path, "type": self._type(kind)}
            for index, (path, kind) in enumerate(listed)
        ]
        write_json(folder / MODULES, lines)
        for layer in layers:
            if (self.folder / layer.name / "config.json").exists():
                (folder / layer.name).mkdir(exist_ok=True)
                write_json(folder / layer.name / "config.json", read_json(self.folder / layer.name / "config.json"))
            first = f"{PREFIX}.{layer.name}."
            if own := {name.removeprefix(first): tensor for name, tensor in weights.items() if name.startswith(first)}:
                lucid.save(folder / layer.name / "model.safetensors", own)

    def _type(self, kind: str) -> str:
        """The type of a kind: what all releases of its library know, or else what modules.json has."""
        old = f"sentence_transformers.models.{kind}"
        return old if kind in _LONG_KNOWN else self.types.get(kind, old)


def write_modules(layers: tuple[SentenceLayer, ...], width: int, folder: Path) -> None:
    """Write modules.json and the pooling's config for an encoder that was read without them; `width` is that of its
    states.
    """
    for layer in layers:
        if layer.kind == POOLING:
            (folder / layer.name).mkdir()
            modes = {option: mode in layer.modes for mode, option in _MODES.items()}
            write_json(folder / layer.name / "config.json", {"word_embedding_dimension": width, **modes})
    SentenceModules(folder, layers, folder).write(folder)


def read_modules(source: str | os.PathLike[str]) -> SentenceModules | None:
    """What the modules.json of a checkpoint's folder lists; None without one, or if it lists the encoder alone.

    Raises:
        ConfigError: for a module or an option that is not known here, by its name.
        OSError: if a file is missing.
    """
    folder = Path(source)
    path = folder / MODULES
    if not folder.is_dir() or not path.exists():
        return None
    lines = [_read_line(line, str(path), first=not index) for index, line in enumerate(_listed(path))]
    if lines[0][:2] == (_ROUTER, ""):
        lines = [*_route(folder), *lines[1:]]
    kinds = [line.kind for line in lines]
    if kinds == [ENCODER]:  # of a cross-encoder, whose head is the model's own
        return None
    task = next((task for task, order in TASKS.items() if order.fullmatch(" ".join(kinds))), None)
    if task is None and kinds[0] not in (*_ENCODERS, *_TABLES):
        supported = ", ".join((ENCODER, *_FOLDERS))
        raise ConfigError(f"{path}: begins with {kinds[0]}, supported: {supported}; {_alone(folder, lines[0].path)}")
    if task is None:
        raise ConfigError(
            f"{path}: lists {', '.join(kinds)}; supported: Transformer, Pooling, and then any of Dense and Normalize; "
            f"{TABLE} or {CLIP}, and then the same; Transformer, SpladePooling; {SPARSE_TABLE}; Transformer, Dense and "
            f"perhaps MultiVectorMask; Transformer, LogitScore; {_alone(folder, lines[0].path)}"
        )
    encoder = folder / lines[0].path
    expected, described = _FOLDERS.get(kinds[0], ((), ""))
    if expected and (kind := type_in(encoder)) not in expected:
        content = "nothing of a known type" if kind is None else f"a checkpoint of model_type {show(kind)}"
        raise ConfigError(
            f"{path}: begins with {kinds[0]}, and {encoder} holds {content}; expected {described}; "
            f"{_alone(folder, lines[0].path)}"
        )
    layers = [_read_layer(folder, line.kind, line.path, task) for line in lines[1:]]
    if kinds[0] == TABLE:
        layers.insert(0, MEAN)
    if task == "multi-vector-encoding" and MASK not in kinds:  # PyLate's own files
        prompts = folder / "config_sentence_transformers.json"
        skipped = _skipped(folder, Config(read_optional_json(prompts), str(prompts)))
        layers.append(SentenceLayer("mask", MASK, tokens=skipped))
    names = Counter(layer.name for layer in layers)
    if twice := [name for name, count in names.items() if count > 1]:
        raise ConfigError(f"{path}: two modules have the name {show(twice[0])}; give each a folder of its own")
    types = {line.kind: line.type for line in lines}
    return SentenceModules(encoder, tuple(layers), folder, task, kinds[0], types)


def first_folder(folder: Path) -> Path:
    """The folder of the encoder, whatever modules.json lists after it: that of the first module, or all of the folder.

    Raises:
        ConfigError: for a modules.json of another form.
    """
    path = folder / MODULES
    if (folder / "config.json").exists() or not path.exists():
        return folder
    return folder / _read_line(_listed(path)[0], str(path), first=True).path


def _route(folder: Path) -> list[_Line]:
    """The modules of a Router's one route with an encoder, or without any with a table."""
    path = folder / ROUTES
    options = Config(read_json(path), str(path))
    types, structure = options.get("types", dict), options.get("structure", dict)
    routes = {
        name: [_read_line({"type": types.get(part), "path": part}, str(path), first=False) for part in parts]
        for name, parts in structure.items()
        if isinstance(parts, list) and parts
    }
    encoders, tables = (
        [lines for lines in routes.values() if lines[0].kind in kinds] for kinds in (_ENCODERS, _TABLES)
    )
    known = encoders or tables
    if len(known) != 1:
        alone = ", ".join(lines[0].path for lines in known)
        raise ConfigError(
            f"{path}: {len(known)} of its routes {', '.join(routes)} begin with an encoder that is read here, expected "
            "one; " + (f"to read one alone, give its folder: {alone}" if alone else _BY_ITS_LIBRARY)
        )
    return known[0]


def _alone(folder: Path, name: str) -> str:
    """What to do with modules that are not known: the first may be a checkpoint by itself."""
    if not (folder / name / "config.json").exists():
        return _BY_ITS_LIBRARY
    if name:
        return f"to read {name} alone, give the folder {folder / name}"
    return "to read the encoder alone, give the task feature-extraction"


def _listed(path: Path) -> list[Any]:
    modules = parse_json(path)
    if not isinstance(modules, list) or not modules:
        raise ConfigError(f"{path}: expected a JSON list of modules, found {show(modules)}")
    return modules


class _Line(NamedTuple):
    """A module of modules.json, and the last part of its type."""

    kind: str
    path: str
    type: str


def _read_line(line: Any, where: str, first: bool) -> _Line:
    if not isinstance(line, Mapping) or not all(isinstance(line.get(key), str) for key in ("type", "path")):
        raise ConfigError(f'{where}: lists {show(line)}, expected an object with a "type" and a "path"')
    full, path = line["type"], line["path"]
    path = "" if first and path == "." else path  # as Model2Vec writes it
    if not full.startswith(_FAMILIES):
        raise ConfigError(
            f"{where}: lists a module of type {show(full)}, which is not one of sentence-transformers; "
            "to read an encoder alone, give the task feature-extraction"
        )
    kind = full.rpartition(".")[2]
    if not (_PLAIN_NAME.fullmatch(path) if path else first):
        raise ConfigError(f"{where}: the path of {show(kind)} is {show(path)}, expected the name of a folder in it")
    return _Line(kind, path, full)


def _skipped(folder: Path, options: Config) -> tuple[int, ...]:
    """The ids of the words of documents that have no vector, by default those of punctuation."""
    words = options.get("skiplist_words", list, list(string.punctuation))
    if not all(isinstance(word, str) for word in words):
        raise options.wrong("skiplist_words", "expected a list of words")
    path = folder / TOKENIZER
    if words and not path.exists():
        raise ConfigError(
            f"{path}: is missing, which has the ids of the words that documents leave out (skiplist_words, by default "
            "punctuation); get the tokenizer of the checkpoint"
        )
    ids = token_ids(path) if words else {}
    return tuple(sorted({ids[word] for word in words if word in ids}))


def _read_layer(folder: Path, kind: str, name: str, task: str) -> SentenceLayer:
    path, of = folder / name / "config.json", "sentence_embedding" if task == SENTENCES else "token_embeddings"
    options = Config(read_optional_json(path) if kind == NORMALIZE else read_json(path), str(path))
    if kind == NORMALIZE:
        options.only("module_input_name", of)
        options.only("module_output_name", of)
        layer = SentenceLayer(name, kind)
    elif kind == POOLING:
        layer = SentenceLayer(name, kind, _read_modes(options))
    elif kind == SPLADE:
        options.get("word_embedding_dimension", int, 0)
        options.get("embedding_dimension", int, 0)
        options.get("chunk_size", int, 0)
        modes = options.one_of("pooling_strategy", ("max", "sum"), "max")
        twice = options.one_of("activation_function", ("relu", "log1p_relu"), "relu")
        layer = SentenceLayer(name, kind, (modes,), activation=twice)
    elif kind == SCORE:
        options.only("module_input_name", "causal_logits")
        tokens = [options.whole("true_token_id", low=0)]
        tokens += [options.whole("false_token_id", low=0)] if options.has("false_token_id") else []
        layer = SentenceLayer(name, kind, tokens=tuple(tokens))
    elif kind == MASK:
        options.only("skiplist_tasks", ["document"])
        options.only("keep_only_token_ids", None)
        layer = SentenceLayer(name, kind, tokens=_skipped(folder, options) if options.has("skiplist_words") else ())
    else:
        options.only("module_input_name", of)
        options.only("module_output_name", of)
        options.only("use_residual", False)
        layer = SentenceLayer(
            name,
            kind,
            in_features=options.whole("in_features", high=1 << 16),
            out_features=options.whole("out_features", high=1 << 16),
            bias=options.get("bias", bool, True),
            activation=options.one_of("activation_function", DENSE_ACTIVATIONS, "torch.nn.modules.activation.Tanh"),
        )
    options.done()
    return layer


def _read_modes(options: Config) -> tuple[str, ...]:
    """The modes of a Pooling, in the order in which they are joined."""
    options.get("word_embedding_dimension", int, 0)
    options.get("embedding_dimension", int, 0)
    options.only("include_prompt", True)
    old = tuple(mode for mode, name in _MODES.items() if options.get(name, bool, False))
    if not options.has("pooling_mode"):
        return old or ("mean",)
    modes = options.options["pooling_mode"]
    if isinstance(modes, list):
        options.get("pooling_mode", list)
    else:
        modes = [options.get("pooling_mode", str)]
    if not modes or not all(isinstance(mode, str) and mode in _MODES for mode in modes):
        raise options.wrong("pooling_mode", f"supported: {', '.join(_MODES)}, or a list of these")
    return tuple(modes)


def _holds_weights(folder: Path) -> bool:
    """Whether a layer's folder has weights; `lucid.models.save` stores them with the encoder's."""
    return any(path.suffix in (".safetensors", ".bin") for path in folder.iterdir())
