"""Lucid: attention models in plain Python on NumPy, exported to exact and lean ONNX graphs.

Everything loads on first use: the `lucid` command prints its help without loading NumPy, and onnx and onnxruntime load
with `lucid.export` and `lucid.runtime`.
"""

import os as _os
import sys as _sys
from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from lucid.core.torch_names.missing_names import why_absent as _why_absent
from lucid.core.version import __version__ as __version__
from lucid.core.words import package_names as _public

_here = _os.path.dirname(__file__)
if not _os.path.isfile(_os.path.join(_here, "models", "__init__.py")):
    __path__.append(_os.path.dirname(_here))  # in a repository `models/`, which is `lucid.models`, is next to `lucid/`

_os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # otherwise onnxruntime reports its use to its maker

if TYPE_CHECKING:
    from lucid import batch as batch
    from lucid import export as export
    from lucid import generation as generation
    from lucid import gradients as gradients
    from lucid import importing as importing
    from lucid import inspection as inspection
    from lucid import layouts as layouts
    from lucid import losses as losses
    from lucid import models as models
    from lucid import nn as nn
    from lucid import ops as ops
    from lucid import optim as optim
    from lucid import quantization as quantization
    from lucid import runtime as runtime
    from lucid import serving as serving
    from lucid import testing as testing
    from lucid.core.offered import *  # noqa: F403  # re-exports each of its names
    from lucid.ops.tensor import tensor as _tensor  # noqa: F401  # an address of `Tensor`
    from lucid.runtime.compiled import compile as compile
else:
    _PARTS = (
        "batch",
        "export",
        "generation",
        "gradients",
        "importing",
        "inspection",
        "layouts",
        "losses",
        "models",
        "nn",
        "ops",
        "optim",
        "quantization",
        "runtime",
        "serving",
        "testing",
    )

    def __getattr__(name: str) -> Any:
        if name == "__all__":  # used by a star import
            return _load()
        if name == "compile":  # not in `core.offered`: it needs onnx and onnxruntime
            globals()[name] = _import_module("lucid.runtime.compiled").compile
            return globals()[name]
        if name == "_tensor":  # an address of `Tensor`
            return _import_module("lucid.ops.tensor.tensor")
        if name.startswith("_"):  # Python and its tools look up such names; lucid has none of them
            raise _public.unknown(f"module {__name__!r}", name, [])
        if name in _PARTS:
            return _import_module(f"lucid.{name}")
        _load()
        if name not in globals():
            raise _public.unknown(f"module {__name__!r}", name, __dir__(), _why_absent("lucid", name))
        return globals()[name]

    class _Namespaces:
        """Finds what `lucid` offers as a namespace without a file of its own: `import lucid.linalg`."""

        @staticmethod
        def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
            package, _, attribute = name.rpartition(".")
            if package != __name__ or attribute not in (*__dir__(), "_tensor"):
                return None
            kinds = type(_sys), _import_module("lucid.core.torch_names.namespaces").Namespace
            if not isinstance(__getattr__(attribute), kinds):
                return None
            return _import_module("importlib.machinery").ModuleSpec(name, _Namespaces)

        @staticmethod
        def create_module(spec: Any) -> None:
            return None

        @staticmethod
        def exec_module(module: Any) -> None:
            _sys.modules[module.__name__] = __getattr__(module.__name__.rpartition(".")[2])

    _sys.meta_path.append(_Namespaces)

    def __dir__() -> list[str]:
        return sorted({*_load(), *_PARTS, "compile", "__version__"})

    def _load() -> list[str]:
        api = vars(_import_module("lucid.core.offered"))
        offered = {name: value for name, value in api.items() if not name.startswith("_")}
        globals().update(offered)
        return list(offered)
