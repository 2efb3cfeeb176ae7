"""A public address of `Tensor`: `from lucid._tensor import Tensor`."""

from lucid.ops.tensor.tensor import Tensor as Tensor
