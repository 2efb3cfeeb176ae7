"""Lucid: attention models in plain Python on NumPy, exported to exact and lean ONNX graphs."""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from lucid import nn as nn
from lucid import ops as ops
from lucid._tensor import Tensor as Tensor
from lucid._tensor import TracedValueError as TracedValueError
from lucid.creation import arange as arange
from lucid.creation import empty as empty
from lucid.creation import eye as eye
from lucid.creation import full as full
from lucid.creation import ones as ones
from lucid.creation import rand as rand
from lucid.creation import randn as randn
from lucid.creation import tensor as tensor
from lucid.creation import zeros as zeros
from lucid.dims import Dim as Dim
from lucid.dims import Size as Size
from lucid.dims import SymbolicSizeError as SymbolicSizeError
from lucid.graph import Graph as Graph
from lucid.ops import concat as concat
from lucid.ops import exp as exp
from lucid.ops import log as log
from lucid.ops import matmul as matmul
from lucid.ops import maximum as maximum
from lucid.ops import minimum as minimum
from lucid.ops import sigmoid as sigmoid
from lucid.ops import softmax as softmax
from lucid.ops import sqrt as sqrt
from lucid.ops import stack as stack
from lucid.ops import take as take
from lucid.ops import tanh as tanh
from lucid.ops import tril as tril
from lucid.ops import triu as triu
from lucid.ops import where as where
from lucid.random import manual_seed as manual_seed
from lucid.threads import get_num_threads as get_num_threads
from lucid.threads import set_num_threads as set_num_threads
from lucid.trace import trace as trace
from lucid.types import DType as DType
from lucid.types import TensorType as TensorType
from lucid.types import bfloat16 as bfloat16
from lucid.types import bool_ as bool_
from lucid.types import float16 as float16
from lucid.types import float32 as float32
from lucid.types import float64 as float64
from lucid.types import int8 as int8
from lucid.types import int32 as int32
from lucid.types import int64 as int64
from lucid.types import spec as spec
from lucid.types import uint8 as uint8
from lucid.version import __version__ as __version__
from lucid.weights import WeightsError as WeightsError
from lucid.weights import load as load
from lucid.weights import save as save

if TYPE_CHECKING:
    from lucid import export as export
    from lucid import runtime as runtime
    from lucid import testing as testing

_LAZY = ("export", "inspection", "plot", "report", "runtime", "testing")


def __getattr__(name: str) -> ModuleType:
    """Load the parts that need more than NumPy, such as `lucid.export` and `lucid.runtime`, on first use."""
    if name in _LAZY:
        return import_module(f"lucid.{name}")
    raise AttributeError(f"module 'lucid' has no attribute {name!r}")
