"""`jit`, `compiler`, `cuda`, ...: names of torch by which ported code asks where it runs; `autograd.Function`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator, nullcontext
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

from lucid.core.graph.scope import is_tracing
from lucid.core.torch_names.argument_names import Device, check_device
from lucid.core.torch_names.missing_names import why_absent
from lucid.core.words.package_names import unknown

F = TypeVar("F", bound=Callable[..., Any])

contiguous_format, preserve_format = "contiguous_format", "preserve_format"
channels_last, strided = "channels_last", "strided"


class device(Device):  # noqa: N801  # torch's name
    """The CPU, where torch asks for a device.

    Raises:
        ValueError: for another one.
    """

    def __init__(self, type: Any = "cpu", index: int | None = None) -> None:
        check_device("device", type)
        name, _, number = str(type).partition(":")
        super().__init__(name, int(number) if number else index)


def is_grad_enabled() -> bool:
    """False: there is no tape; `lucid.value_and_grad` gives the gradients of a function."""
    return False


def is_autocast_enabled(device_type: str = "cpu") -> bool:
    """False: nothing is converted to another element type unasked."""
    return False


class autocast(nullcontext[None], ContextDecorator):  # noqa: N801  # torch's name
    """Does nothing, in ``with`` or as a decorator, with ``enabled=False``.

    Raises:
        ValueError: with `enabled`, for which one exports in half precision.
    """

    def __init__(self, device_type: str = "cpu", dtype: Any = None, enabled: bool = True, **unused: Any) -> None:
        super().__init__()
        if enabled:
            raise ValueError("autocast: convert the model, model.to(lucid.float16), or export it with dtype=")


class Namespace:
    """A name with a few functions of torch; for the others, what to write."""

    def __init__(self, name: str, **functions: Any) -> None:
        self._name = name
        vars(self).update(functions)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    else:

        def __getattr__(self, name: str) -> NoReturn:
            raise unknown(f"lucid.{self._name}", name, vars(self), self._why(name))

        def _why(self, name: str) -> str:
            return why_absent(self._name, name) or why_absent("lucid", self._name)

    def __dir__(self) -> list[str]:
        return [name for name in vars(self) if not name.startswith("_")]


@overload
def _unchanged(function: F, **options: Any) -> F: ...
@overload
def _unchanged(function: object = None, **options: Any) -> Callable[[F], F]: ...
def _unchanged(function: Any = None, **options: Any) -> Any:
    """A decorator that changes nothing, with or without arguments."""
    return function if callable(function) else _unchanged


def _no(*_: Any) -> bool:
    """False."""
    return False


def _none(*_: Any) -> int:
    """0."""
    return 0


_marks = dict.fromkeys(("script", "ignore", "unused", "export", "script_if_tracing"), _unchanged)
jit = Namespace("jit", is_tracing=is_tracing, is_scripting=_no, **_marks)
compiler = Namespace(
    "compiler",
    is_compiling=is_tracing,
    is_exporting=is_tracing,
    is_dynamo_compiling=is_tracing,
    **dict.fromkeys(("disable", "allow_in_graph", "assume_constant_result"), _unchanged),
)
onnx = Namespace("onnx", is_in_onnx_export=is_tracing)
_absent = dict.fromkeys(("is_available", "is_built", "is_initialized", "is_current_stream_capturing"), _no)
cuda, xpu, mps = (Namespace(name, **_absent, device_count=_none) for name in ("cuda", "xpu", "mps"))
distributed = Namespace("distributed", **_absent)


def _registered(name: str, function: Any = None, *rest: Any, **options: Any) -> Any:
    """The function itself, which is called as it is."""
    return _unchanged if function is None else function


library = Namespace("library", **dict.fromkeys(("custom_op", "register_fake", "register_autograd"), _registered))
backends = Namespace("backends", cuda=cuda, mps=mps)
accelerator = Namespace("accelerator", **_absent, current_accelerator=lambda: None)


class _Context:
    """The context of `Function.forward`: nothing that it keeps for gradients is read."""

    needs_input_grad = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Nothing is kept."""

    mark_non_differentiable = mark_dirty = set_materialize_grads = save_for_forward = save_for_backward


class _Function:
    """The base of functions with gradients of their own: `apply` computes `forward`, and `backward` is never called."""

    @staticmethod
    def forward(*arguments: Any) -> Any:
        """Compute the outputs; subclasses define this, with a context before the arguments or with `setup_context`."""
        raise NotImplementedError("a Function has a forward(ctx, ...)")

    setup_context: Any = None

    @classmethod
    def apply(cls, *arguments: Any) -> Any:
        """The outputs."""
        return cls.forward(*arguments) if cls.setup_context else cls.forward(_Context(), *arguments)


autograd = Namespace("autograd", Function=_Function, function=Namespace("autograd", Function=_Function))
