"""Advice for tensors, modules and element types of other libraries, given where Lucid's are expected.

No library is imported: the module of a type says which library it is from.
"""

from __future__ import annotations

from typing import Any

_TO_NUMPY = {
    "torch": "x.detach().cpu().numpy()",
    "jax": "numpy.asarray(x)",
    "jaxlib": "numpy.asarray(x)",
    "tensorflow": "x.numpy()",
    "mlx": "numpy.array(x)",
    "keras": "keras.ops.convert_to_numpy(x)",
    "flax": "numpy.asarray(x)",
    "equinox": "numpy.asarray(x)",
}
MODULES = (
    "Lucid runs modules of its own: make the model with lucid.nn, save the weights as safetensors there and load them: "
    "model.load_state_dict(lucid.load(path))"
)
FROM_TORCH = "; or let lucid.from_torch(module, *examples) make it of torch's"


def library_of(value: Any) -> str:
    """The library of a value's type or of a base class; empty for any other value."""
    for class_ in type(value).__mro__:
        library = class_.__module__.partition(".")[0]
        if library in _TO_NUMPY:
            return "jax" if library == "jaxlib" else library
    return ""


def is_module(value: Any) -> bool:
    """Whether a value is a layer or a model of one of these libraries."""
    return bool(library_of(value)) and any(class_.__name__ in ("Module", "Layer") for class_ in type(value).__mro__)


def type_name(value: Any) -> str:
    """The name of a value's type for an error message, with its library."""
    library = library_of(value)
    return f"{library}'s {type(value).__name__}" if library else type(value).__name__


def advice(value: Any) -> str:
    """What to write instead of a tensor or a module of these libraries; empty for any other value."""
    library = library_of(value)
    if not library:
        return ""
    modules = MODULES + FROM_TORCH if library == "torch" else MODULES
    return modules if is_module(value) else f"write lucid.tensor({_TO_NUMPY[library]})"


def shown_type(value: Any) -> str:
    """The type and the advice, for the end of a message."""
    return "; ".join(filter(None, (type_name(value), advice(value))))


def misplaced_tensor(library: str, function: str) -> str:
    """The message for a function of another library that is given a tensor of Lucid."""
    return (
        f"{library}'s {function}: got a tensor of Lucid, which {library} does not compute with: write Lucid's function "
        f"or give it the array x.numpy(); if a module of {library} called it: {MODULES}"
    )


def check_model(where: str, model: Any) -> None:
    """Refuse a model of another library.

    Raises:
        TypeError: saying which it is, and how its weights become those of a model of Lucid.
    """
    if is_module(model):
        raise TypeError(f"{where}: got {shown_type(model)}")
