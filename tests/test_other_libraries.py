"""Tensors, modules and element types of other libraries are errors that name the library and say what to write.

The libraries are not needed: what is from them is known by the module of its type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import Tensor, nn, ops
from lucid.core.words.other_libraries import is_module, library_of
from lucid.generation import Generator
from lucid.nn import functional as F


def kind(name: str, module: str, *bases: type) -> Any:
    """A class as a library has it."""
    return type(name, bases, {"__module__": module, "__call__": lambda self, x: x})


TORCH = kind("Tensor", "torch")()
WEIGHT = kind("Parameter", "torch.nn.parameter", type(TORCH))()
LINEAR = kind("Linear", "torch.nn.modules.linear", kind("Module", "torch.nn.modules.module"))()
OWN = type("Own", (type(LINEAR),), {})()  # a class of the user's, derived from torch's
X = lucid.ones(2, 3)
WRITE = r"torch's (Tensor|Parameter).*; write lucid\.tensor\(x\.detach\(\)\.cpu\(\)\.numpy\(\)\)"
MAKE = r"torch's (Linear|Own).*; Lucid runs modules of its own: make the model with lucid\.nn, save the weights"

TENSORS: dict[str, Callable[[Any], Any]] = {
    "add": lambda t: X + t,
    "added to": lambda t: t + X,
    "matmul": lambda t: X @ t,
    "relu": lambda t: F.relu(t),
    "exp": lambda t: ops.exp(t),
    "linear": lambda t: F.linear(X, t),
    "layer": lambda t: nn.Linear(3, 2)(t),
    "embedding": lambda t: nn.Embedding(2, 3)(t),
    "attention": lambda t: F.scaled_dot_product_attention(t, X, X),
    "multi-head attention": lambda t: nn.MultiHeadAttention(4, 2)(t),
    "concat": lambda t: lucid.cat([X, t]),
    "where": lambda t: lucid.where(t, X, X),
    "gather": lambda t: X.gather(0, t),
    "masked_fill": lambda t: X.masked_fill(t, 0.0),
    "clamp": lambda t: X.clamp(min=t),
    "scan": lambda t: ops.scan(lambda c, e: (c, e), t, X),
    "traced": lambda t: lucid.trace(lambda x: x * t, ("N", 3)),
}
MODELS: dict[str, Callable[[Any], Any]] = {
    "trace": lambda m: lucid.trace(m, ("N", 3)),
    "trace of a method": lambda m: lucid.trace(m.__call__, ("N", 3)),
    "to_onnx": lambda m: lucid.export.to_onnx(m, ("N", 3)),
    "explain": lambda m: lucid.export.explain(m, ("N", 3)),
    "assert_parity": lambda m: lucid.testing.assert_parity(m, ("N", 3)),
    "quantize": lambda m: lucid.quantize(m),
    "Generator": lambda m: Generator(m),
    "Sequential": lambda m: nn.Sequential(m),
    "ModuleList": lambda m: nn.ModuleList([m]),
}


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("tensor", [TORCH, WEIGHT], ids=["tensor", "parameter"])
def test_a_tensor_of_another_library_says_how_it_becomes_one_of_lucid(name: str, tensor: Any) -> None:
    with pytest.raises(TypeError, match=WRITE):
        TENSORS[name](tensor)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("model", [LINEAR, OWN], ids=["torch's", "derived"])
def test_a_module_of_another_library_says_how_its_weights_are_taken(name: str, model: Any) -> None:
    with pytest.raises(TypeError, match=MAKE):
        MODELS[name](model)


@pytest.mark.parametrize(
    ("library", "module", "write"),
    [
        ("jax", "jaxlib._jax", "numpy.asarray(x)"),
        ("tensorflow", "tensorflow.python.framework.ops", "x.numpy()"),
        ("mlx", "mlx.core", "numpy.array(x)"),
        ("keras", "keras.src.backend.common.variables", "keras.ops.convert_to_numpy(x)"),
    ],
)
def test_each_library_has_its_way_to_numpy(library: str, module: str, write: str) -> None:
    with pytest.raises(TypeError) as error:
        F.relu(kind("Array", module)())
    assert str(error.value).endswith(f"got {library}'s Array; write lucid.tensor({write})")


def test_a_tensor_of_lucid_given_to_torch() -> None:
    """torch calls `__torch_function__` of what its functions are given."""

    def linear(x: Any) -> None: ...

    with pytest.raises(TypeError, match=r"torch's linear: got a tensor of Lucid.* x\.numpy\(\); if a module of torch"):
        Tensor.__torch_function__(linear, (Tensor,), (X,))


def test_an_element_type_of_another_library() -> None:
    for call in (lambda d: lucid.zeros(2, dtype=d), lambda d: X.to(d), lambda d: lucid.spec("N", dtype=d)):
        with pytest.raises(TypeError, match="is torch's, expected Lucid's, such as lucid.float32, or its name"):
            call(kind("dtype", "torch")())


def test_an_index_of_another_library_is_named() -> None:
    with pytest.raises(TypeError, match=r"indexing: got torch's Tensor, expected an integer, .* or an integer tensor"):
        X[TORCH]


def test_weights_of_torch_are_named_where_arrays_are_wanted(tmp_path: Any) -> None:
    with pytest.raises(TypeError, match="torch's Parameter, expected a NumPy array"):
        nn.Linear(2, 2).weight.assign(WEIGHT)
    with pytest.raises(TypeError, match="torch's Parameter, expected a NumPy array"):
        lucid.save(tmp_path / "weights.safetensors", {"weight": WEIGHT})


def test_what_is_from_no_library_is_called_by_its_name() -> None:
    assert not any(map(library_of, (X, np.ones(2), nn.Linear(2, 2), "text", object())))
    assert not is_module(nn.Linear(2, 2))
    assert not is_module(TORCH)
    with pytest.raises(TypeError, match="relu: expected a tensor, an array or a number, got object$"):
        F.relu(object())  # type: ignore[arg-type]
