"""SOURCE as a name in Python: `lucid.models.bert:Bert`, `net.py:Net` or `nn.Linear`."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from operator import attrgetter
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

import lucid
from lucid import nn
from lucid.cli.errors import CommandError, short, usage
from lucid.core.words.suggestions import did_you_mean, near, or_check, paths_near
from lucid.core.words.user_code import located_errors
from lucid.nn.module import Module

_FORMS = "a checkpoint (a folder, a GGUF file or OWNER/NAME of the hub), FILE.py:Name, package.module:name or nn.Name"


def is_import(source: str) -> bool:
    """Whether SOURCE has the form of a Python name; otherwise it is the path of a checkpoint."""
    return (
        _place_and_name(source) is not None
        or source.endswith(".py")
        or source.partition(".")[0] in ("lucid", *dir(lucid))
    )


def _place_and_name(source: str) -> tuple[str, str] | None:
    """What is before and after the last colon; None without one, for paths with a drive and for URLs."""
    place, colon, name = source.rpartition(":")
    return (place, name) if colon and not {"/", "\\"} & set(name) else None


def no_such_source(source: str) -> CommandError:
    """The error for a SOURCE that is neither a checkpoint nor a Python name."""
    if os.path.exists(source):
        return usage(f"SOURCE {source!r} is no checkpoint{_what_to_do_with(Path(source))}")
    similar = [*paths_near(source), *near(source, modules_of_nn())][:3]
    end = f"; did you mean {' or '.join(similar)}?" if similar else f"; give {_FORMS}"
    return usage(f"SOURCE {source!r}: there is no such file or folder{end}")


def no_such_checkpoint(source: str) -> CommandError:
    """The error for a SOURCE of a command that takes checkpoints alone, where there is no such file or folder."""
    if is_import(source):
        return usage(
            f"SOURCE {source!r} names a model in Python, and this command needs a checkpoint, with its config and "
            "tokenizer; give a folder, a GGUF file or OWNER/NAME of the hub"
        )
    return usage(f"there is no file or folder {source!r}{or_check(source)}")


def _what_to_do_with(file: Path) -> str:
    if file.suffix == ".onnx":
        return ", but a model that is exported already: inspect, run and bench take it, and verify with its SOURCE"
    if file.suffix in (".safetensors", ".bin", ".pt", ".pth"):
        return ": it has no config; give its folder, or the model's class as SOURCE and this file as --weights"
    return f"; give {_FORMS}"


def find(source: str) -> Any:
    """The object that SOURCE names."""
    parts = _place_and_name(source)
    if parts is None:
        if source.endswith(".py"):
            raise usage(
                f"SOURCE {source!r}: name a model, as {source}:Name; the file has {_listed(_offered(_file(source)))}"
            )
        return _builtin(source)
    place, name = parts
    if not place or not name:
        raise usage(f"SOURCE {source!r}: expected FILE.py:Name, package.module:name or nn.Name")
    module = _file(place) if place.endswith(".py") else _import(place, source)
    try:
        return attrgetter(name)(module)
    except AttributeError:
        names = _offered(module)
        it_has = did_you_mean(name, names) or f"; it has {_listed(names)}"
        raise usage(f"SOURCE {source!r}: {place} has no {name!r}{it_has}") from None


def _builtin(source: str) -> Any:
    if not is_import(source):
        raise no_such_source(source)
    try:
        return attrgetter(source.removeprefix("lucid."))(lucid)
    except AttributeError:
        suggestion = did_you_mean(source, modules_of_nn()) or f"; it has {', '.join(modules_of_nn())}"
        raise usage(f"SOURCE {source!r}: lucid has nothing of this name{suggestion}") from None


def modules_of_nn() -> list[str]:
    """Names of the modules of `lucid.nn`, as SOURCE."""
    return [f"nn.{name}" for name in dir(nn) if _is_model_class(getattr(nn, name))]


def _file(place: str) -> ModuleType:
    """Import a file; if it is in a package, as a module of that package, so that its own imports work."""
    path = Path(place).resolve()
    if not path.exists():
        raise usage(f"SOURCE: there is no file {place!r}{or_check(place)}")
    if not path.is_file():
        raise usage(f"SOURCE: {place!r} is not a file; expected a Python file, as FILE.py:Name")
    own = Path(lucid.models.__file__).parent
    if path.is_relative_to(own):  # in a repository the folder is not in `lucid`
        return _import(".".join(("lucid.models", *path.relative_to(own).with_suffix("").parts)), place)
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
    with _importing(place):
        spec.loader.exec_module(module)
    return module


def _import(name: str, place: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    with _importing(place):
        module = import_module(name)
    return module


@contextmanager
def _importing(place: str) -> Iterator[None]:
    """Inside, errors of the user's code get their line, and errors about SOURCE become one line."""
    try:
        with located_errors():
            yield
    except (ImportError, SyntaxError) as error:
        suggestion = _module_meant(error.name or "") if isinstance(error, ModuleNotFoundError) else ""
        raise usage(f"SOURCE {place!r} does not import: {type(error).__name__}: {short(error)}{suggestion}") from error


def _module_meant(name: str) -> str:
    """A suggestion for a missing module, from the modules of its package."""
    package, _, module = name.rpartition(".")
    places = getattr(sys.modules.get(package), "__path__", None) if package else [str(Path.cwd())]
    return did_you_mean(module, (entry.name for entry in iter_modules(places))) if places else ""


def _offered(module: ModuleType) -> list[str]:
    """The models and functions that a module defines; if there are none, the models that it imports."""
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    models = [name for name, value in public.items() if _is_model_class(value) or isinstance(value, Module)]
    functions = [name for name, value in public.items() if inspect.isfunction(value)]
    values = {name: public[name] for name in (*models, *functions)}
    own = [name for name, value in values.items() if isinstance(value, Module) or value.__module__ == module.__name__]
    return own or models


def _listed(names: list[str]) -> str:
    return ", ".join(names) if names else "no Module and no function"


def _is_model_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Module) and value is not Module
