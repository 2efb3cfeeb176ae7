"""`from_torch`, `from_transformers` and `register`, which need torch when they are called, and only then."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeAlias

from lucid.core.graph.types import TensorType
from lucid.core.torch_names.argument_names import torch_names
from lucid.core.words.suggestions import did_you_mean
from lucid.files.hub import local_checkpoint
from lucid.importing.complex_numbers import OF_COMPLEX
from lucid.importing.table import TABLE
from lucid.nn.module import Module
from lucid.nn.published_model import PublishedModel


class TorchImportError(ValueError):
    """A torch module that cannot be imported: the message names the operator or axis, the line, and what to do."""


Axes: TypeAlias = Sequence[Any] | Mapping[str, Any] | Mapping[int, Any] | None


@torch_names
def from_torch(
    module: Any,
    *examples: Any,
    kwargs: Mapping[str, Any] | None = None,
    dynamic: Sequence[Axes] | Mapping[str, Axes] | None = None,
) -> Module:
    """A torch module as a module of Lucid, which runs on NumPy and is exported like any other.

    torch exports the module (`torch.export`); each operator becomes a call of Lucid's function for it. Parameters and
    buffers share torch's memory and have its `state_dict` keys; nodes have the paths of torch's modules.

    Args:
        module: a `torch.nn.Module` in evaluation mode, a `torch.export.ExportedProgram`, or the path of a .pt2 file.
        examples: tensors in the order of the module's `forward`; lists, tuples and dicts of tensors are taken as well.
            None for a program or a file.
        kwargs: arguments of `forward` by name: tensors, or Python values, which become constants.
        dynamic: for each input, the names of its axes and numbers for fixed ones: ``[("N", "L"), ("N", "L")]``, or a
            mapping from inputs to axes; by place, an input's axes are ``{0: "N"}``. Equal names mean equal sizes.
            Without it, all axes that torch finds to be dynamic are: N is the first, L the second, and axes of equal
            size in the examples share a name. An axis whose size has to be a multiple of 3 is named "3*L".

    Returns:
        A module with the inputs of `forward`, by name; its outputs have the structure of torch's.

    Raises:
        ModuleNotFoundError: without torch.
        TypeError: for ``dynamic_shapes`` of torch, which is `dynamic` here.
        TorchImportError: for operators without a function, axes that torch fixes to one size, modules that change
            their state, and what torch cannot export.

    Source: https://docs.pytorch.org/docs/stable/export.html
    """
    if find_spec("torch") is None:
        raise ModuleNotFoundError("from_torch needs torch: pip install 'lucid-onnx[torch]'")
    imported: Module = import_module("lucid.importing.torch_modules").imported_module(module, examples, kwargs, dynamic)
    return imported


def from_transformers(
    folder: str | os.PathLike[str],
    task: str | None = None,
    *,
    architecture: str | None = None,
    trust_remote_code: bool = False,
    inputs: Mapping[str, TensorType] | None = None,
) -> PublishedModel:
    """A checkpoint as transformers reads it, imported by `from_torch`, with the inputs and outputs of our own models.

    For model types that `lucid.models.load` does not know; where it does, it needs no torch, and its files are leaner.
    Nothing else is asked of the network.

    Args:
        folder: a folder with config.json and weights, as transformers saves it, or a name of Hugging Face's hub.
        task: what the model is for, as Hugging Face's hub calls it; by default what `architectures` of config.json
            says.
        architecture: the class of transformers, such as "PhiForCausalLM", instead of that in config.json.
        trust_remote_code: whether transformers may run code that the checkpoint brings along.
        inputs: types of inputs instead of those that the checkpoint's files describe, such as
            ``{"pixel_values": lucid.spec("N", 3, 256, 320)}``.

    Returns:
        A module in float32 with `task`; for text-generation an `nn.CausalDecoder`, for text2text-generation an
        `nn.EncoderDecoder`, whose caches grow.

    Raises:
        ModuleNotFoundError: without torch or transformers.
        TorchImportError: for a checkpoint that transformers does not read, a task that it has no class for, weights
            that the checkpoint does not have, caches other than of keys and values; and as `from_torch`.
    """
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"from_transformers needs {' and '.join(missing)}: pip install 'lucid-onnx[torch]' transformers"
        )
    modules = import_module("lucid.importing.transformers_checkpoints")
    imported: PublishedModel = modules.imported_checkpoint(
        local_checkpoint(folder), task, architecture, trust_remote_code, inputs or {}
    )
    return imported


def register(name: str, function: Callable[..., Any]) -> None:
    """Add a row to the table, or replace one.

    Args:
        name: the operator, as the error of `from_torch` names it: `"aten.cummax.default"`, `"mylib.norm.default"`. The
            library that defines it has to be imported.
        function: what computes it. It gets the operator's arguments in their order, tensors as `lucid.Tensor`, without
            those about devices and memory, and returns what the operator returns. A complex tensor is a
            `lucid.importing.complex_numbers.Complex`, a pair of a real and an imaginary one.

    Raises:
        TypeError: for a name that is no text, or a function that cannot be called.
        ValueError: for an operator that torch does not have, where torch is installed.
    """
    if not isinstance(name, str) or not callable(function):
        raise TypeError(f"register: got {name!r} and {function!r}, expected an operator's name and a function")
    if name not in TABLE and find_spec("torch") is not None and not _is_operator(name):
        raise ValueError(
            f"register: torch has no operator {name!r}{did_you_mean(name, TABLE)}; expected a name such as "
            "'aten.cummax.default': import the library that defines the operator first"
        )
    TABLE[name] = function


def _is_operator(name: str) -> bool:
    torch = import_module("torch")
    value = torch.ops
    for part in name.removesuffix(OF_COMPLEX).split("."):
        value = getattr(value, part, None)
    return isinstance(value, torch._ops.OpOverload)
