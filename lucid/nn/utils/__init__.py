"""torch's `nn.utils`, as far as a model needs it to run: sequences of several lengths, and weights in two parts.

`nn` and every room above may import from it. What only trains a model does not belong here.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from lucid.core.torch_names.missing_names import why_absent as _why_absent
from lucid.core.words import package_names as _public
from lucid.nn.utils import parametrizations as parametrizations
from lucid.nn.utils import rnn as rnn
from lucid.nn.utils.parametrizations import remove_weight_norm as remove_weight_norm
from lucid.nn.utils.parametrizations import weight_norm_by_name as weight_norm

__all__ = ["parametrizations", "remove_weight_norm", "rnn", "weight_norm"]
__dir__ = __all__.copy


if not _TYPE_CHECKING:  # type checkers know the names

    def __getattr__(name: str) -> object:
        raise _public.unknown(f"module {__name__!r}", name, __all__, _why_absent("utils", name))
