"""`from_torch`, which needs torch when it is called, and only then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeAlias

from lucid.nn.module import Module


class TorchImportError(ValueError):
    """A torch module that cannot be imported: the message names the operator or axis, the line, and what to do."""


Axes: TypeAlias = Sequence[Any] | Mapping[str, Any] | None


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
            mapping from inputs to axes. Equal names mean equal sizes. Without it, all axes that torch finds to be
            dynamic are: N is the first, L the second, and axes of equal size in the examples share a name.

    Returns:
        A module with the inputs of `forward`, by name; its outputs have the structure of torch's.

    Raises:
        ModuleNotFoundError: without torch.
        TorchImportError: for operators without a function, axes that torch fixes to one size, modules that change
            their state, and what torch cannot export.

    Source: https://docs.pytorch.org/docs/stable/export.html
    """
    if find_spec("torch") is None:
        raise ModuleNotFoundError("from_torch needs torch: pip install 'lucid-onnx[torch]'")
    imported: Module = import_module("lucid.importing.torch_modules").imported_module(module, examples, kwargs, dynamic)
    return imported
