"""The inputs, sizes, part and target of a model, from `--set`, `--input`, `--call`, `--size`, `--part` and others."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from lucid.cli.errors import usage
from lucid.cli.options.groups import ExportedModelOptions, InputOptions, TargetOptions, values_of
from lucid.core.graph.types import DTYPES, TensorType, spec
from lucid.core.targets.runtimes import GENERAL
from lucid.export import Target
from lucid.nn.module import Module
from lucid.nn.published_model import PublishedModel
from lucid.tracing.inner_outputs import part_with_outputs
from lucid.tracing.parts import ModelPart, part_of
from lucid.tracing.trace import Model

_DIGITS = 18  # of a size: what int64 holds
_WORDS = {"true": True, "false": False, "none": None}
_FORM = "expected NAME:DTYPE:SIZES, such as query:float32:N,L,512, or NAME.0:... for the first item of a list"
_NAME = re.compile(r"[^\W\d]\w*(\.\d{1,4})*")


def settings(option: str, texts: Sequence[str]) -> dict[str, Any]:
    """`KEY=VALUE` texts. A value is a Python literal (8, 0.1, true, None, (1, 2)); anything else is text."""
    values: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            raise usage(f"{option} {text!r}: expected KEY=VALUE, such as num_heads=8")
        if key in values:
            raise usage(f"{option} {text!r}: {key} is given twice")
        values[key] = _value(value)
    return values


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # of what is no literal, or too deep
        return text


def inputs(texts: Sequence[str]) -> dict[str, Any]:
    """Specs from `NAME:DTYPE:SIZES`, or `NAME:SIZES` for float32; `NAME.0` and `NAME.1` are items of a list, which may
    be nested."""
    types: dict[str, TensorType] = {}
    for text in texts:
        name, *rest = text.split(":")
        if not _NAME.fullmatch(name) or len(rest) not in (1, 2):
            raise usage(f"--input {text!r}: {_FORM}")
        if name in types:
            raise usage(f"--input {text!r}: {name} is given twice")
        dtype = rest[0] if len(rest) == 2 else "float32"
        if dtype not in {known.name for known in DTYPES}:
            raise usage(f"--input {text!r}: dtype {dtype!r} is not one of {', '.join(known.name for known in DTYPES)}")
        try:
            types[name] = spec(*map(_size, rest[-1].split(",") if rest[-1] else []), dtype=dtype)
        except ValueError as error:
            raise usage(f"--input {text!r}: {error}") from error
    tree: dict[str, Any] = {}
    for name, kind in types.items():
        *outer, last = name.split(".")
        place = tree
        for part in outer:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise usage(f"--input {name}: {part} is an input already; give either {part} or its items")
        if last in place:
            raise usage(f"--input {name}: it has items already; give either {name} or its items")
        place[last] = kind
    return {name: _as_lists(name, items) for name, items in tree.items()}


def _as_lists(name: str, items: Any) -> Any:
    """Items with consecutive numbers as a list."""
    if not isinstance(items, dict):
        return items
    numbers = [str(number) for number in range(len(items))]
    if missing := sorted(set(numbers) - items.keys()):
        raise usage(f"--input: {name}.{missing[0]} is missing; number the items of {name} from 0")
    return [_as_lists(f"{name}.{number}", items[number]) for number in numbers]


def _size(text: str) -> str | int:
    text = text.strip()
    return int(text) if text.lstrip("-").isdecimal() else text


def sizes(texts: Sequence[str]) -> dict[str, int]:
    """Sizes from `NAME=N` texts, each with one or several separated by commas."""
    values: dict[str, int] = {}
    for text in texts:
        for part in text.split(","):
            name, equals, value = part.strip().rpartition("=")
            if not equals or not name or not value.isdecimal() or len(value) > _DIGITS:
                raise usage(f"--size {text!r}: expected NAME=N, such as L=128")
            if name in values:
                raise usage(f"--size {text!r}: {name} is given twice")
            values[name] = int(value)
    return values


def model_files(path: Path) -> list[Path]:
    """The file, or the ONNX files of a folder."""
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.rglob("*.onnx") if file.is_file())
    if not files and (path / "config.json").exists():
        raise usage(f"{path}: is a checkpoint, which has no ONNX file; export it before: lucid export {path}")
    if not files:
        raise usage(f"{path}: has no ONNX file; give an ONNX file, or the folder that `lucid export --for` wrote")
    return files


def only_file(path: Path, files: Sequence[Path], option: str = "") -> Path:
    """The one of these files of a folder; an error, which may begin with an option, that says how many there are."""
    if len(files) > 1:
        raise usage(f"{option}{path} holds {len(files)} ONNX files; give the path of one, such as {files[0]}")
    return files[0]


def check_known(sizes: Mapping[str, int], known: set[str]) -> None:
    """Raise an error for sizes that the model does not have."""
    unknown = sorted(sizes.keys() - known)
    if unknown:
        has = f"the model's sizes are {', '.join(sorted(known))}" if known else "all sizes of the model are fixed"
        raise usage(f"--size {', '.join(unknown)}: {has}")


def target_of(options: TargetOptions, name: str | None = None) -> Target:
    """The target of `--target`, or the one of this name where the option is not given."""
    values = values_of(options, TargetOptions)
    return Target(str(values.pop("target") or name or GENERAL), **values)


def part(model: Model, options: ExportedModelOptions) -> ModelPart:
    """The model, or its part for `--part` and `--cache`, with `--input`, `--call` and `--outputs`."""
    kwargs = {**_of_tokenizer(model, options), **arguments(model, options)}
    try:
        chosen = ModelPart(model, kwargs)
        if not (options.part is None and options.cache is None and options.capacity is None):
            chosen = part_of(model, options.part, options.cache, options.capacity, kwargs)
        return part_with_outputs(chosen, options.outputs) if options.outputs else chosen
    except ValueError as error:
        raise usage(str(error)) from None


def arguments(model: Model, options: InputOptions) -> dict[str, Any]:
    """The `kwargs` of `lucid.trace` from `--input` and `--call`, checked against the model's arguments."""
    specs, plain = inputs(options.inputs), settings("--call", options.call)
    check_arguments(model, "--input", specs)
    check_arguments(model, "--call", plain)
    both = sorted(specs.keys() & plain.keys())
    if both:
        raise usage(f"{', '.join(both)} is given both by --input and by --call; use one of them")
    if missing := missing_inputs(model, {*specs, *plain}):
        raise usage(f"the model does not know its inputs: describe them, as in {missing}; token ids are int64")
    return {**specs, **plain}


def missing_inputs(model: Model, described: Collection[str] = ()) -> str:
    """The options that describe the inputs that a model needs and does not know, as an example; none are empty."""
    known = model.input_specs() if isinstance(model, Module) else {}
    missing = [
        name
        for name, parameter in _parameters(model).items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and name not in {*known, *described}
    ]
    return " ".join(f"--input {name}:float32:N,..." for name in missing)


def check_arguments(model: Model, source: str, names: Collection[str]) -> None:
    """Refuse names that the model's `forward`, or the function, does not take; `source` says where they are from."""
    parameters = _parameters(model)
    unknown = [name for name in names if name not in parameters]
    if unknown and all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters.values()):
        raise usage(f"{source} {', '.join(unknown)}: the model takes {', '.join(parameters) or 'no arguments'}")


def _parameters(model: Model) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(model.forward if isinstance(model, Module) else model).parameters


def _of_tokenizer(model: Model, options: InputOptions) -> Mapping[str, TensorType]:
    """All inputs that the tokenizer makes, such as `token_type_ids`, if the model takes them; otherwise {}."""
    if options.inputs or not isinstance(model, PublishedModel):
        return {}
    inputs = model.full_input_specs()
    return inputs if inputs.keys() != model.input_specs().keys() else {}
