"""Where `Tensor` stood once: documents that people port code from write `from lucid._tensor import Tensor`."""

from lucid.ops.tensor import Tensor as Tensor
from lucid.ops.tensor import TracedValueError as TracedValueError
