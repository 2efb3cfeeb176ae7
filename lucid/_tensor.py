"""The old place of `Tensor`: existing code has `from lucid._tensor import Tensor`."""

from lucid.ops.tensor.tensor import Tensor as Tensor
from lucid.ops.tensor.tensor import TracedValueError as TracedValueError
