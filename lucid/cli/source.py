"""SOURCE on the command line: from `lucid.models.bert:Bert`, or from a checkpoint, to a model."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.abc import Loader
from importlib.util import module_from_spec, spec_from_file_location
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Protocol, runtime_checkable

import lucid
from lucid import models, nn, random
from lucid.cli import show
from lucid.cli.errors import short, usage
from lucid.nn.module import Module
from lucid.nn.stored import StoredWeight
from lucid.phases import phase
from lucid.tracing import Model
from lucid.weights import load


@runtime_checkable
class Pretrained(Protocol):
    """A class of models that reads its own checkpoints."""

    @property
    def from_pretrained(self) -> Callable[..., Module]:
        """Makes a model from a folder."""


def load_model(
    source: str,
    arguments: Mapping[str, Any],
    weights: Path | None = None,
    seed: int = 0,
    dequantize: bool = False,
    mapped: bool = False,
    task: str | None = None,
) -> Model:
    """The model that a SOURCE names, made with the arguments of `--set` and the weights of a checkpoint.

    A checkpoint makes the model that its config names. A class is called with the arguments, or its `from_pretrained`
    if there are weights. A function is called, too, unless it needs arguments that are not given: then it is itself the
    model. With `dequantize` the weights that a checkpoint has in few bits become parameters; `mapped` leaves those of a
    checkpoint in its element types, so that they stay in the file until they are read. `task` is what a checkpoint is
    read for.

    Raises:
        CommandError: if SOURCE does not name a model; the message lists what it could name.
    """
    if weights is not None and not weights.exists():
        raise usage(f"--weights: there is no file or folder {str(weights)!r}; check the path")
    path = checkpoint_of(source)
    with phase("building the model" if path is None and weights is None else "reading weights"):
        return _load(source, path, arguments, weights, seed, dequantize, mapped, task)


def _load(
    source: str,
    path: Path | None,
    arguments: Mapping[str, Any],
    weights: Path | None,
    seed: int,
    dequantize: bool,
    mapped: bool,
    task: str | None,
) -> Model:
    if path is not None:
        _no_arguments(source, arguments)
        if weights is not None:
            raise usage(f"--weights: SOURCE {source!r} is a checkpoint, which has weights; leave out --weights")
        _say_what_is_read(path)
        dtype: Literal["auto"] | None = "auto" if mapped else None
        read = models.load(path, task, dtype)  # reports itself what is wrong with a checkpoint
        held = sum(isinstance(module, StoredWeight) for module in read.modules()) if dequantize else 0
        if not held:
            return read
        show.Output(error=True).line(
            f"note  {path}: {held} weights are in few bits already; they become float32 first, and lose a second time"
        )
        return models.load(path, task, dtype, dequantize=True)
    if task is not None:
        raise usage(f"--task {task}: SOURCE {source!r} is no checkpoint; name the class for the task as SOURCE")
    found = _find(source)
    random.manual_seed(seed)
    if isinstance(found, type) and issubclass(found, Module):
        if weights is not None and isinstance(found, Pretrained):
            return found.from_pretrained(weights, **arguments)  # reports itself what is wrong with a checkpoint
        model = _call(source, found, arguments)
    elif isinstance(found, Module):
        _no_arguments(source, arguments)
        model = found
    elif inspect.isfunction(found) or inspect.ismethod(found):
        model = _call(source, found, arguments) if _bindable(found, arguments) or arguments else found
    else:
        raise usage(f"SOURCE {source!r} is {_kind(found)}, expected a Module or a function that makes one")
    if weights is not None:
        if not isinstance(model, Module):
            raise usage(f"--weights: {source!r} is a function; only a Module has weights to load")
        model.load_state_dict(load(weights))
    return model


def checkpoint_of(source: str) -> Path | None:
    """The path of a checkpoint: a folder, or a GGUF file; None if a SOURCE is something else."""
    path = Path(source)
    return path if path.is_dir() or (path.is_file() and path.suffix.lower() == ".gguf") else None


def beside(source: str, ending: str) -> Path:
    """Where a command without -o writes: beside a checkpoint, named after it.

    Raises:
        CommandError: if SOURCE is no checkpoint, or there is something already.
    """
    found = checkpoint_of(source)
    if found is None:
        raise usage(f"SOURCE {source!r} is no checkpoint to name the file after; give it, as -o model.onnx")
    path = found if found.name not in ("", "..") else Path(os.path.abspath(found))
    output = path.with_name((path.name if path.is_dir() else path.stem) + ending)
    if os.path.lexists(output):
        raise usage(f"{output} exists; give -o to write it again, or elsewhere")
    return output


def _say_what_is_read(path: Path) -> None:
    """Tell which weights of a folder are read, where it has pickles too."""
    pickled = sorted(file.name for file in path.glob("pytorch_model*.bin"))
    if pickled and any(path.glob("*.safetensors")):
        show.Output(error=True).line(f"note  {path}: the safetensors files are read, not {pickled[0]}")


def _find(source: str) -> Any:
    place, colon, name = source.rpartition(":")
    if not colon:
        if source.endswith(".py"):
            raise usage(f"SOURCE {source!r}: name a model, as {source}:Name; the file has {_contents(_file(source))}")
        return _builtin(source)
    if not place or not name:
        raise usage(f"SOURCE {source!r}: expected FILE.py:Name, package.module:name or nn.Name")
    module = _file(place) if place.endswith(".py") else _import(place, source)
    try:
        return attrgetter(name)(module)
    except AttributeError:
        raise usage(f"SOURCE {source!r}: {place} has no {name!r}; it has {_contents(module)}") from None


def _builtin(source: str) -> Any:
    try:
        return attrgetter(source.removeprefix("lucid."))(lucid)
    except AttributeError:
        known = ", ".join(f"nn.{name}" for name, value in vars(nn).items() if _is_model_class(value))
        raise usage(
            f"SOURCE {source!r}: lucid has nothing of this name; give FILE.py:Name, package.module:name, the path of a "
            f"checkpoint, or one of {known}"
        ) from None


def _file(place: str) -> ModuleType:
    """Import a file; if it is in a package, as a module of that package, so that its own imports work."""
    path = Path(place).resolve()
    if not path.exists():
        raise usage(f"SOURCE: there is no file {place!r}; check the path")
    if not path.is_file():
        raise usage(f"SOURCE: {place!r} is not a file; expected a Python file, as FILE.py:Name")
    folder, names = path.parent, [path.stem]
    while (folder / "__init__.py").exists():
        folder, names = folder.parent, [folder.name, *names]
    sys.path.insert(0, str(folder))
    if len(names) > 1:
        return _import(".".join(names), place)
    spec = spec_from_file_location(f"lucid_source_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise usage(f"SOURCE: {place!r} is not a Python file; expected FILE.py:Name")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    loader = spec.loader
    return _guarded(place, lambda: _execute(loader, module))


def _execute(loader: Loader, module: ModuleType) -> ModuleType:
    loader.exec_module(module)
    return module


def _import(name: str, place: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    return _guarded(place, lambda: import_module(name))


def _guarded(place: str, execute: Callable[[], ModuleType]) -> ModuleType:
    try:
        return execute()
    except (ImportError, SyntaxError) as error:
        raise usage(f"SOURCE {place!r} does not import: {type(error).__name__}: {short(error)}") from error
    except Exception as error:
        error.add_note(f"SOURCE {place!r} does not import:")
        raise


def _call(source: str, factory: Callable[..., Any], arguments: Mapping[str, Any]) -> Model:
    if not _bindable(factory, arguments):
        signature = inspect.signature(factory)
        shown = str(signature).replace("'", "")
        wanted = [p.name for p in signature.parameters.values() if p.default is p.empty and p.name not in arguments]
        unknown = [name for name in arguments if name not in signature.parameters]
        problem = f"has no argument {', '.join(unknown)}" if unknown else f"needs --set {wanted[0]}=..."
        raise usage(f"SOURCE {source!r} {problem}; it is {factory.__name__}{shown}")
    made = factory(**arguments)
    if not isinstance(made, Module) and not inspect.isfunction(made):
        raise usage(f"SOURCE {source!r} returned {_kind(made)}, expected a Module")
    return made


def _bindable(function: Callable[..., Any], arguments: Mapping[str, Any]) -> bool:
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError:
        return False
    return True


def _no_arguments(source: str, arguments: Mapping[str, Any]) -> None:
    if arguments:
        raise usage(f"--set {', '.join(arguments)}: {source!r} is already a model; leave out --set")


def _contents(module: ModuleType) -> str:
    own = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    names = [name for name, value in own.items() if _is_model_class(value) or isinstance(value, Module)]
    names += [name for name, value in own.items() if inspect.isfunction(value) and value.__module__ == module.__name__]
    return ", ".join(names) if names else "no Module and no function"


def _is_model_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Module) and value is not Module


def _kind(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}, which is not a Module"
    return "None" if value is None else f"of type {type(value).__name__}"
