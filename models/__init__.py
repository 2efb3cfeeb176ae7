"""Whole models, one readable file each, that read published checkpoints: `lucid.models`.

Models use the public names of `lucid` only. Exporting and generating do not belong here.

::

    model = lucid.models.load("folder with config.json and model.safetensors")     # or a GGUF file

Modules have the names of published checkpoints, and so do the weights of exported models; a file says where it has
others. In the repository the files are in `models/`, where `lucid/__init__.py` finds them; an installed `lucid`
contains them.
"""

from importlib import import_module as _import_module
from pathlib import Path as _Path
from typing import Any as _Any

if __name__ != "lucid.models":  # at the top of a clone Python would run the files a second time, under another name
    raise ImportError("this is lucid.models: import it by that name, run python -m lucid.models.NAME")

from lucid.core.words import package_names as _public
from lucid.models.checkpoints.adapter_inputs import save_adapter as save_adapter
from lucid.models.checkpoints.adapter_inputs import with_adapter as with_adapter
from lucid.models.checkpoints.adapter_inputs import with_adapter_inputs as with_adapter_inputs
from lucid.models.checkpoints.loading import load as load
from lucid.models.checkpoints.loading import save as save
from lucid.models.checkpoints.pretrained import Pretrained as Pretrained
from lucid.models.checkpoints.registry import register as register

_FILES = (file.stem for file in _Path(__file__).parent.glob("[!_]*.py"))
__all__ = _public.offered(globals(), "checkpoints", "parts", *_FILES)
__dir__ = __all__.copy


def __getattr__(name: str) -> _Any:
    if name not in __all__:
        raise _public.unknown(f"module {__name__!r}", name, __all__)
    return _import_module(f"{__name__}.{name}")
