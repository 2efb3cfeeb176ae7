"""Models of other libraries as modules of Lucid: `from_torch`, and `register` for operators that it does not know.

`lucid` offers `from_torch`; `from_transformers` is for checkpoints that `lucid.models` does not read. torch is imported
here and nowhere else, and only when one of them is called.
"""

from lucid.core.words import package_names as _public
from lucid.importing.torch_import import TorchImportError as TorchImportError
from lucid.importing.torch_import import from_torch as from_torch
from lucid.importing.torch_import import from_transformers as from_transformers
from lucid.importing.torch_import import register as register

__all__ = _public.offered(globals())
__dir__ = __all__.copy
