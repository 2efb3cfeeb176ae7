"""What models share: decoders, heads, layers of two stacks, options of configs, and the models' demonstrations.

Models import from it; layouts know its sentence encoders. Whole models and the reading of files do not belong here. The
names in its files that have no leading underscore are public.
"""

from importlib import import_module as _import_module
from pathlib import Path as _Path
from typing import Any as _Any

from lucid.core.words import package_names as _public

__all__ = sorted(file.stem for file in _Path(__file__).parent.glob("[!_]*.py"))
__dir__ = __all__.copy


def __getattr__(name: str) -> _Any:
    if name not in __all__:
        raise _public.unknown(f"module {__name__!r}", name, __all__)
    return _import_module(f"{__name__}.{name}")
