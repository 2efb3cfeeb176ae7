"""The old place of `Tensor`: existing code has `from lucid._tensor import Tensor`."""

from lucid.ops.tensor import Tensor as Tensor
from lucid.ops.tensor import TracedValueError as TracedValueError
