"""SOURCE on the command line: from `lucid.models.bert:Bert`, or from a checkpoint, to a model."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from lucid import models
from lucid.cli.errors import usage
from lucid.cli.model_inputs import inputs, settings
from lucid.cli.options.groups import ConfigOptions, InputOptions, ModelOptions, SourceOptions
from lucid.cli.python_source import find, is_import, no_such_source
from lucid.cli.terminal import Output
from lucid.core.process import random
from lucid.core.words.progress import phase
from lucid.core.words.suggestions import did_you_mean, or_check
from lucid.files.hub import hub_name, local_checkpoint, published_name
from lucid.files.weights import load
from lucid.importing import from_transformers
from lucid.layouts import LAYOUTS
from lucid.layouts.checkpoint_files import name_of, onnx_files
from lucid.layouts.manifest import MANIFEST
from lucid.models.checkpoints.adapter_files import CONFIG
from lucid.nn.module import Module
from lucid.nn.quantized import WeightModule
from lucid.tracing.trace import Model


@runtime_checkable
class Pretrained(Protocol):
    """A class of models that reads its own checkpoints."""

    @property
    def from_pretrained(self) -> Callable[..., Module]:
        """Makes a model from a folder."""


def load_model(options: ModelOptions, dequantize: bool = False, mapped: bool = False) -> Model:
    """The model that SOURCE names, made with the arguments of `--set` and the weights of a checkpoint.

    A checkpoint gives the model that its config names. A class is called with the arguments, or its `from_pretrained`
    if there are weights. A function is called as well, unless arguments are missing: then the function is the model.
    With `dequantize`, quantized weights become parameters. With `mapped`, weights keep their element types, so that
    they stay in the file until they are read.
    """
    if options.weights is not None and not options.weights.exists():
        raise usage(f"--weights: there is no file or folder {str(options.weights)!r}{or_check(options.weights)}")
    if options.trust_remote_code and options.via is None:
        raise usage("--trust-remote-code: Lucid runs no code of a checkpoint; torch does, with --via torch")
    arguments = settings("--set", options.arguments)
    path = checkpoint_of(options.source)
    random.manual_seed(options.seed)
    with phase("building the model" if path is None and options.weights is None else "reading weights"):
        if path is None:
            return _named(options, arguments)
        return _of_checkpoint(options, path, arguments, dequantize, mapped)


def _of_checkpoint(
    options: ModelOptions, path: Path, arguments: Mapping[str, Any], dequantize: bool, mapped: bool
) -> Model:
    _no_arguments(options.source, arguments)
    if options.weights is not None:
        raise usage(f"--weights: SOURCE {options.source!r} is a checkpoint, which has weights; leave out --weights")
    if options.via is not None:
        return _by_torch(options, path)
    _say_what_is_read(path)
    load_checkpoint = partial(
        models.load,
        path,
        options.task,
        "auto" if mapped else None,
        architecture=options.architecture,
        ignore=options.ignore_option,
        adapters=None if options.adapter_inputs else adapters_of(options),
    )
    return noting_second_rounding(load_checkpoint, path) if dequantize else load_checkpoint()


def noting_second_rounding(load: Callable[..., Module], path: Path) -> Module:
    """The model of a checkpoint whose weights will be quantized: as floats, with a note if they are quantized already.

    Args:
        load: loads it, as `lucid.models.load` with `dequantize=`.
        path: the checkpoint, for the note.
    """
    model = load()  # reports itself what is wrong with a checkpoint
    quantized = sum(isinstance(module, WeightModule) for module in model.modules())
    if not quantized:
        return model
    Output(error=True).line(
        f"note  {path}: {quantized} weights are quantized already; they become float32 first, and are rounded a second "
        "time"
    )
    return load(dequantize=True)


def _by_torch(options: ModelOptions, path: Path) -> Model:
    """A checkpoint that transformers reads."""
    if not path.is_dir():
        raise usage(f"--via torch: SOURCE {options.source!r} is a GGUF file, expected a folder; leave out --via")
    if options.ignore_option:
        raise usage("--ignore-option: with --via torch transformers reads config.json; leave it out")
    if options.adapter or (path / CONFIG).is_file():
        raise usage("--via torch merges no adapters: merge it with peft's merge_and_unload() first")
    return from_transformers(
        path,
        options.task,
        architecture=options.architecture,
        trust_remote_code=options.trust_remote_code,
        inputs=inputs(options.inputs) if isinstance(options, InputOptions) else {},
    )


def _named(options: ModelOptions, arguments: Mapping[str, Any]) -> Model:
    """The model that SOURCE names in Python."""
    source, weights = options.source, options.weights
    of_checkpoints = {
        "task": options.task,
        "architecture": options.architecture,
        "ignore-option": options.ignore_option,
        "adapter": options.adapter,
        "via": options.via,
    }
    for option, text in of_checkpoints.items():
        if text:
            shown = f"--{option} {text if isinstance(text, str) else text[0]}"
            raise usage(f"{shown}: SOURCE {source!r} is no checkpoint; name the class to load as SOURCE")
    value = find(source)
    random.manual_seed(options.seed)  # importing may have drawn numbers
    if isinstance(value, type) and issubclass(value, Module):
        if weights is not None and isinstance(value, Pretrained):
            return value.from_pretrained(weights, **arguments)  # reports itself what is wrong with a checkpoint
        model = _call(source, value, arguments)
    elif isinstance(value, Module):
        _no_arguments(source, arguments)
        model = value
    elif inspect.isfunction(value) or inspect.ismethod(value):
        model = _call(source, value, arguments) if _bindable(value, arguments) or arguments else value
    else:
        raise usage(f"SOURCE {source!r} is {_kind(value)}, expected a Module or a function that makes one")
    if weights is not None:
        if not isinstance(model, Module):
            raise usage(f"--weights: {source!r} is a function; only a Module has weights to load")
        model.load_state_dict(load(weights))
    return model


def adapters_of(options: ConfigOptions) -> dict[str, float]:
    """The adapters of `--adapter FOLDER[:WEIGHT]`."""
    weights: dict[str, float] = {}
    for text in options.adapter:
        folder, weight = _adapter(text)
        if folder in weights:
            raise usage(f"--adapter {text}: {folder} is given twice; give it once, with the sum of the weights")
        weights[folder] = weight
    return weights


def _adapter(text: str) -> tuple[str, float]:
    folder, colon, weight = text.rpartition(":")
    if Path(text).exists() or not colon:
        folder, weight = text, "1"
    try:
        number = float(weight)
    except ValueError:
        folder, number = text, 1.0
    if not Path(folder).exists() and hub_name(folder) is None:
        raise usage(f"--adapter {text}: there is no folder {folder!r}{or_check(folder)}")
    try:
        return str(local_checkpoint(folder)), number
    except (FileNotFoundError, ModuleNotFoundError) as error:  # of the hub, or of the extra that reads it
        raise usage(f"--adapter {text}: {error}") from error


def checkpoint_in(options: SourceOptions) -> Path | None:
    """The checkpoint of SOURCE or of --weights."""
    return options.weights or checkpoint_of(options.source)


def checkpoint_of(source: str) -> Path | None:
    """The path of a checkpoint, a folder or a GGUF file; None for any other SOURCE."""
    path = Path(source)
    return path if path.is_dir() or (path.is_file() and path.suffix.lower() == ".gguf") else None


def beside(source: str, ending: str, may_exist: bool = False) -> Path:
    """The default for -o: next to the checkpoint and named after it; here if the checkpoint is in the hub's cache."""
    checkpoint = checkpoint_of(source)
    if checkpoint is None:
        if not is_import(source):
            raise no_such_source(source)
        raise usage(f"SOURCE {source!r} is no checkpoint to name the file after; give it, as -o model{ending}")
    output = _beside(checkpoint, ending)
    if os.path.lexists(output) and not may_exist:
        raise usage(f"{output} exists; give -o with this name to overwrite it, or with another name")
    return output


def _beside(checkpoint: Path, ending: str) -> Path:
    path = checkpoint if checkpoint.name not in ("", "..") else Path(os.path.abspath(checkpoint))
    return (Path() if published_name(checkpoint) else path.parent) / (name_of(path) + ending)


def ending_for(layout: str | None) -> str:
    """How the default for -o ends: of a file, or of the folder for a layout."""
    return ".onnx" if layout is None else f"-{layout}"


def export_of(source: str) -> Path:
    """The export of a checkpoint: the only file or folder at a default for -o, or the only ONNX file in its folder."""
    checkpoint = checkpoint_of(source)
    if checkpoint is None:
        if not is_import(source):
            raise no_such_source(source)
        raise usage(f"SOURCE {source!r} is no checkpoint, by whose name its export is found; give MODEL.ONNX after it")
    if (checkpoint / MANIFEST).is_file():
        raise usage(f"SOURCE {source!r} is an export; give the checkpoint that it was made of before it")
    defaults = [_beside(checkpoint, ending_for(layout)) for layout in (None, *LAYOUTS)]
    exports = [*onnx_files(checkpoint), *(path for path in defaults if path.exists())]
    if len(exports) == 1:
        return exports[0]
    there = f"has the exports {', '.join(map(str, exports))}" if exports else f"has no export, such as {defaults[0]}"
    raise usage(f"SOURCE {source!r} {there}; give MODEL.ONNX after it")


def _say_what_is_read(path: Path) -> None:
    """Print which weights of a folder are read, if it has pickles next to other files."""
    pickled = sorted(file.name for file in path.glob("pytorch_model*.bin"))
    if pickled and any(path.glob("*.safetensors")):
        Output(error=True).line(f"note  {path}: the safetensors files are read, not {pickled[0]}")


def _call(source: str, factory: Callable[..., Any], arguments: Mapping[str, Any]) -> Model:
    if not _bindable(factory, arguments):
        signature = inspect.signature(factory)
        parameters = str(signature.replace(return_annotation=signature.empty)).replace("'", "")
        missing = [p.name for p in signature.parameters.values() if p.default is p.empty and p.name not in arguments]
        unknown = [name for name in arguments if name not in signature.parameters]
        problem = f"has no argument {', '.join(unknown)}" if unknown else f"needs --set {missing[0]}=..."
        suggestion = did_you_mean(unknown[0], signature.parameters) if unknown else ""
        raise usage(f"SOURCE {source!r} {problem}; it is {factory.__name__}{parameters}{suggestion}")
    model = factory(**arguments)
    if not isinstance(model, Module) and not inspect.isfunction(model):
        raise usage(f"SOURCE {source!r} returned {_kind(model)}, expected a Module")
    return model


def _bindable(function: Callable[..., Any], arguments: Mapping[str, Any]) -> bool:
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError:
        return False
    return True


def _no_arguments(source: str, arguments: Mapping[str, Any]) -> None:
    if arguments:
        raise usage(f"--set {', '.join(arguments)}: {source!r} is already a model; leave out --set")


def _kind(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}, which is not a Module"
    return "None" if value is None else f"a value of type {type(value).__name__}"
