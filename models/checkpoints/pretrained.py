"""Reading published checkpoints: one `from_pretrained` for all models; the differences between models are data.

::

    class GPT2(Pretrained[GPT2Config]):
        checkpoint = Checkpoint(
            family=FAMILIES["gpt2"],                               # its types of checkpoints, and its other classes
            read=GPT2Config.read,                                  # from its options to the model's config
            ignored_options=["summary_.*"],                        # options that transformers reads for other uses
            renames=[(r"^h\\.", "transformer.h.")],                # the checkpoint's keys to the model's
            ignored_keys=[r"attn\\.bias$"],                        # arrays that the model does not use
            tied_keys={"lm_head.weight": "transformer.wte.weight"},  # one weight under two names
        )

A key that is neither read nor named there is an error, and so is an option that transformers' code reads; `config.py`
reads the options.
"""

from __future__ import annotations

import logging
import os
from collections import ChainMap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Self, TypeAlias, TypeVar

import lucid
from lucid import DType, nn
from lucid.core.words.suggestions import or_check
from lucid.files.hub import local_checkpoint
from lucid.models.checkpoints import fp8, mxfp4
from lucid.models.checkpoints.adapters import AdaptedWeights, find_adapters, titles, with_adapters
from lucid.models.checkpoints.adapters import Adapters as Adapters
from lucid.models.checkpoints.config import ACTIVATIONS as ACTIVATIONS
from lucid.models.checkpoints.config import MAX_CONFIG as MAX_CONFIG
from lucid.models.checkpoints.config import MAX_NUMBER as MAX_NUMBER
from lucid.models.checkpoints.config import QUANTIZATION, names_of
from lucid.models.checkpoints.config import Config as Config
from lucid.models.checkpoints.config import ConfigError as ConfigError
from lucid.models.checkpoints.config_file import read_or_list_refusals
from lucid.models.checkpoints.declarations import Family
from lucid.models.checkpoints.expert_weights import ExpertWeights
from lucid.models.checkpoints.gptq_awq import with_group_weights
from lucid.models.checkpoints.load_into import building, parameter_keys, renamed
from lucid.models.checkpoints.load_into import load_into as load_into
from lucid.models.checkpoints.lucid_format import METHOD, with_lucid_weights
from lucid.models.checkpoints.options_read import transformers_version
from lucid.models.checkpoints.quantized_weights import Weight
from lucid.models.checkpoints.static_files import names_of_tables, type_in
from lucid.nn.weights.layer_weights import declared_weights

C = TypeVar("C")
Auto: TypeAlias = Literal["auto"]
"""The element types of a checkpoint."""
IGNORED = "lucid.ignored_options"
"""The metadata key of exported files for options that were ignored on request."""
ADAPTERS = "lucid.adapters"
"""The metadata key of exported files for the adapters whose weights were merged."""

_log = logging.getLogger("lucid.models")


@dataclass(frozen=True, kw_only=True)
class Checkpoint(Generic[C]):
    """How the published checkpoints of a model are read.

    Args:
        family: declares the values of model_type in config.json that are accepted, and the classes by task.
        read: makes the model's config from the options of config.json.
        read_unlabelled: the same where the checkpoint has no head yet, so that nothing says how many labels there are.
        ignored_options: regular expressions for the whole names of options that transformers reads, but not for what
            this model computes: for training, or for heads that it does not have.
        renames: pairs (regular expression, replacement), applied in order to each key.
        ignored_keys: regular expressions found in keys (as renamed) of arrays that the model does not use; one that is
            the name of a parameter is used all the same.
        head: the task of a class with a head, by the name that Hugging Face's hub has for it.
        head_keys: regular expressions, each of which is found in a key (as renamed) of a checkpoint that has the head.
        head_names: by model_type what transformers' class with the head puts before the names of the model's weights,
            and what it calls layers of the head, by their names here; a new head gets these names.
        tied_keys: key -> key of the same weight. A stored copy under the first must equal the second, and is dropped;
            if the model has a weight of that name, it is loaded as a separate weight.
        stacked: arrays of the model in which those of a checkpoint are joined, before keys are renamed; see
            `ExpertWeights`.
        converted: makes other weights of those of a checkpoint, before that.
    """

    family: Family
    read: Callable[[Config], C]
    ignored_options: Sequence[str] = ()
    renames: Sequence[tuple[str, str]] = ()
    ignored_keys: Sequence[str] = ()
    tied_keys: Mapping[str, str] = field(default_factory=dict)
    read_unlabelled: Callable[[Config], C] | None = None
    head: str | None = None
    head_keys: Sequence[str] = ()
    head_names: Mapping[str, tuple[str, Mapping[str, str]]] = field(default_factory=dict)
    stacked: Mapping[str, Sequence[str]] = field(default_factory=dict)
    converted: Callable[[Mapping[str, Weight]], Mapping[str, Weight]] | None = None

    @property
    def model_types(self) -> tuple[str, ...]:
        """The values of model_type in config.json that are accepted."""
        return tuple(self.family.types)

    @property
    def task(self) -> str:
        """The task of the class, by the name that Hugging Face's hub has for it."""
        return self.family.task if self.head is None else self.head

    def weights(self, options: Config) -> Mapping[str, Weight]:
        """The weights of a checkpoint in the model's layout, under names of the checkpoint."""
        weights = options.weights if self.converted is None else self.converted(options.weights)
        return ExpertWeights(weights, self.stacked) if self.stacked else weights

    def tied(self, own: Collection[str]) -> dict[str, str]:
        """The `tied_keys` of a model that has these parameters, without copies that are parameters too."""
        return {copy: original for copy, original in self.tied_keys.items() if copy not in own}

    def sources(self, model: str, own: Collection[str], weights: Mapping[str, Weight]) -> dict[str, str]:
        """The keys of `weights` by the names of a model's parameters; `model` is its name in messages."""
        return parameter_keys(model, own, weights, self.renames, self.ignored_keys, self.tied(own))

    def renamed(self, key: str) -> str:
        """A key of the checkpoint as the model's name."""
        return renamed(key, self.renames)


class Source(NamedTuple):
    """What a model is read from."""

    folder: Path
    """A folder with config.json and weights, or a GGUF file."""
    read: Callable[[Config], Any]
    """Makes the config of its options."""
    more: Mapping[str, Weight] = MappingProxyType({})
    """Weights that have files of their own, by their names in the model."""


class Unread(NamedTuple):
    """The options of a config.json that a model was made without."""

    ignored: tuple[str, ...] = ()
    """The options that transformers' code of the model_type does not read."""
    on_request: tuple[str, ...] = ()
    """The options that the caller asked to ignore."""


class Pretrained(nn.PublishedModel, Generic[C]):
    """A model made from a config, which says how its published checkpoints are read."""

    checkpoint: ClassVar[Checkpoint[Any]]
    typed: ClassVar[bool] = False
    """Whether the config says the element type of the parameters, its `dtype`, in which they are made then; those of
    other models are converted once they are loaded."""
    unread: Unread = Unread()
    adapters: Mapping[Path, float] = MappingProxyType({})
    """The folders of the adapters that were merged into its weights, with the weight of each."""
    kept_adapters: Mapping[Path, float] = MappingProxyType({})
    """The folders of the adapters that its layers take when it runs, with the weight of each."""

    def __init__(self, config: C) -> None:
        self.config = config

    @classmethod
    def from_pretrained(
        cls,
        folder: str | os.PathLike[str],
        dtype: DType | Auto = lucid.float32,
        *,
        dequantize: bool = False,
        ignore: Sequence[str] = (),
        adapters: Adapters = None,
    ) -> Self:
        """Read Hugging Face's config.json and weights (see `lucid.load`), or a GGUF file.

        Quantized weights of the checkpoint stay so: each is an `nn.QuantizedWeight` or `nn.Int8Weight` in the
        place of a parameter, where it holds what is stored exactly.

        Args:
            folder: the folder with config.json, a GGUF file, or a folder with one GGUF file and no config.json; or the
                name of one on Hugging Face's hub, as for `lucid.models.load`.
            dtype: the element type of the parameters, and of the scales of quantized weights. "auto": of each
                parameter that of the checkpoint, whose arrays are used without a copy: they stay in the mapped file
                (but those of single experts are joined, which is a copy).
            dequantize: whether quantized weights become parameters, as for `lucid.quantize`.
            ignore: options of the config that are read as if the file did not have them, such as one that is refused:
                ``("hidden_size",)``, or ``("text_config.hidden_act",)`` of an object. `unread` of the model names them.
            adapters: folders of LoRA adapters that are merged into the weights, as for `lucid.models.load`.

        Raises:
            ConfigError: for another architecture, an option that is not supported, one to `ignore` that it lacks, or a
                module in modules.json that is not known, in a model that has those.
            ModuleNotFoundError: for a GGUF file if the extra `gguf` is not installed.
            KeyError: listing all weights that are missing, unexpected or of another shape; nothing is loaded then.
            WeightsError: for an invalid weights file, or an adapter of another base model.
            OSError: if a file is missing.
        """
        known, source = cls.checkpoint, cls.source(local_checkpoint(folder))

        def read_config(ignore: Sequence[str]) -> tuple[Config, C]:
            options = _read_options(source.folder, known.model_types, ignore, adapters, dtype == "auto")
            config = source.read(options)
            options.done(known.ignored_options)
            return options, config

        options, config = read_or_list_refusals(read_config, ignore)
        if cls.typed and dtype != "auto":
            config = replace(config, dtype=dtype)  # type: ignore[type-var]  # a dataclass
        weights = known.weights(options)
        weights = ChainMap(dict(source.more), weights) if source.more else weights  # type: ignore[arg-type]
        with building(options.where, weights):
            model = cls(config)
        tied = known.tied(model.state_dict())
        if isinstance(options.weights, AdaptedWeights):
            options.weights.check_shared(tied, known.renamed)
            model.adapters = {adapter.folder: adapter.weight for adapter in options.weights.adapters}
        load_into(model, weights, known.renames, known.ignored_keys, tied, dequantize, dtype == "auto")
        model.unread = Unread(options.ignored, options.dropped)
        _say_what_is_unread(options)
        if isinstance(options.weights, AdaptedWeights):
            _say_what_is_merged(options.weights, options.where)
        return model if cls.typed or dtype in (lucid.float32, "auto") else model.to(dtype)

    @classmethod
    def source(cls, folder: Path) -> Source:
        """What a checkpoint is read from."""
        return Source(folder, cls.checkpoint.read)

    @classmethod
    def new_deviation(cls, options: Config) -> float:
        """The deviation of new matrices, such as those of a new head, by the options of config.json."""
        return float(options.options.get("initializer_range") or 0.02)

    def file_notes(self) -> Mapping[str, str]:
        notes = {IGNORED: names_of(self.unread.on_request), ADAPTERS: ", ".join(titles(self.adapters))}
        return {key: text for key, text in notes.items() if text}

    @classmethod
    def fits(cls, options: Config) -> bool:
        """Whether the names of a checkpoint's weights are those that this class loads. No weight is read."""
        known = cls.checkpoint
        fresh = options.again()
        try:
            config = known.read(fresh)
            fresh.done(known.ignored_options)
            weights = known.weights(options)
            with building(options.where, weights):
                own = cls(config).state_dict()
            sources = known.sources(cls.__name__, own, weights)
        except (KeyError, ValueError):
            return False
        tied = known.tied(own)
        return {tied.get(name, name) for name in sources} == own.keys()

    def checkpoint_keys(self, options: Config) -> dict[str, str]:
        """The checkpoint's key for each parameter of this model; `options` are those of the checkpoint."""
        own = {*self.state_dict(), *(place.key for place in declared_weights(self))}
        return self.checkpoint.sources(type(self).__name__, own, self.checkpoint.weights(options))

    @property
    def task(self) -> str:
        return self.checkpoint.task


def check_pretrained(user: str, model: object) -> None:
    """Refuse what is no model of a checkpoint; `user` begins the message.

    Raises:
        TypeError: naming what it is.
    """
    if not isinstance(model, Pretrained):
        raise TypeError(f"{user}: got a {type(model).__name__}, expected a model of a checkpoint (lucid.models.load)")


def _say_what_is_merged(weights: AdaptedWeights, where: str) -> None:
    """One line in the log for each adapter, and a warning about quantized weights that it dequantized."""
    for adapter in weights.adapters:
        _log.info(
            "%s: merged the adapter %s with weight %g: %d layers, and %d weights as a whole",
            *(where, adapter.folder, adapter.weight, len(adapter.layers), len(adapter.saved)),
        )
    if weights.dequantized:
        _log.warning(
            "%s: %d quantized weights became floating point, as adapters change them",
            *(where, len(weights.dequantized)),
        )


def _say_what_is_unread(options: Config) -> None:
    """One line in the log, and a warning if code in the folder may read options that transformers does not."""
    if options.ignored:
        _log.info(
            "%s: ignored, as transformers %s does not read them for model_type %s: %s",
            *(options.where, transformers_version(), options.model_type, names_of(options.ignored)),
        )
    strange = [name for name in options.ignored if options.reads is None or name not in options.reads.unread]
    if strange and "auto_map" in (*options.options, *options.dropped):
        _log.warning(
            "%s: auto_map names code of the checkpoint's own, which may read these options; they are ignored here: %s",
            *(options.where, names_of(strange)),
        )


def read_options(
    source: str | os.PathLike[str], *known: str, ignore: Sequence[str] = (), adapters: Adapters = None
) -> Config:
    """The options of a checkpoint without those to `ignore`; its model_type must be one of those given, if any are.

    Raises:
        ConfigError, ModuleNotFoundError, WeightsError, OSError: as `Pretrained.from_pretrained`.
    """
    path = local_checkpoint(source)
    return read_or_list_refusals(lambda without: _read_options(path, known, without, adapters), ignore)


def _read_options(
    source: Path, model_types: Sequence[str], ignore: Sequence[str], adapters: Adapters, rounded: bool = False
) -> Config:
    """The options of a checkpoint and of its weights, adapters merged; `rounded` as for `AdaptedWeights`."""
    path, chosen = find_adapters(source, adapters)
    return with_adapters(_read_base(path, model_types, ignore), chosen, rounded)


def _read_base(path: Path, model_types: Sequence[str], ignore: Sequence[str]) -> Config:
    """The options of a folder's config.json, or of a GGUF file."""
    files = [path]
    if path.is_dir():
        described = (path / "config.json").exists() or type_in(path) is not None
        files = [] if described else sorted(path.glob("*.gguf"))
        if not files and not described:
            raise FileNotFoundError(
                f"{path}: has no config.json; give the folder of a checkpoint, as it was downloaded, or a GGUF file"
                f"{names_of_tables(path)}"
            )
    elif path.suffix.lower() != ".gguf" and not path.is_file():
        files = []
    if not path.exists():
        missing = path if path.suffix.lower() == ".gguf" else path / "config.json"
        raise FileNotFoundError(f"there is no file {str(missing)!r}{or_check(path)}")
    if not files:
        options = Config.read(path, *model_types, ignore=ignore)
        if not options.has(QUANTIZATION):
            return options
        readers = {
            METHOD: with_lucid_weights,
            mxfp4.METHOD: mxfp4.without_quantization,
            fp8.METHOD: fp8.with_fp8_weights,
        }
        return readers.get(str(options.get(QUANTIZATION, dict).get("quant_method")), with_group_weights)(options)
    if len(files) > 1:
        raise ConfigError(f"{path}: holds {len(files)} GGUF files, expected one; give the path of the one to read")
    config: Config = gguf_module("gguf", files[0]).read_config(files[0], *model_types, ignore=ignore)
    return config


def gguf_module(name: str, path: Path) -> ModuleType:
    """A module of this package that reads GGUF files. It is imported when there is one: `gguf` takes 0.3 s.

    Raises:
        ModuleNotFoundError: naming the file at `path`, if the extra `gguf` is not installed.
    """
    if find_spec("gguf") is None:
        raise ModuleNotFoundError(f"{path}: reading GGUF files needs gguf: pip install 'lucid-onnx[gguf]'")
    return import_module(f"lucid.models.checkpoints.{name}")
