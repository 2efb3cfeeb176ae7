"""Models of other libraries as modules of Lucid: `from_torch`, and `register` for operators that it does not know.

`lucid` offers `from_torch`. torch is imported here and nowhere else, and only when `from_torch` is called. Reading
checkpoints does not belong here: see `models.checkpoints`.
"""

from lucid.core.words import package_names as _public
from lucid.importing.table import register as register
from lucid.importing.torch_import import TorchImportError as TorchImportError
from lucid.importing.torch_import import from_torch as from_torch

__all__ = _public.offered(globals())


def __dir__() -> list[str]:
    return __all__
