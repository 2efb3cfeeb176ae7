"""Quantized weights as NumPy arrays: their layout, and the ways to find codes for them.

`ops`, `nn` and every room above import from it. Modules and tensors do not belong here.
"""

from lucid.core.words import package_names as _public
from lucid.quantization.blocks import Blocks as Blocks
from lucid.quantization.fit import fit as fit
from lucid.quantization.gptq import Hessian as Hessian
from lucid.quantization.gptq import gptq as gptq
from lucid.quantization.hqq import hqq as hqq
from lucid.quantization.int8 import Grid8 as Grid8
from lucid.quantization.int8 import Rows as Rows
from lucid.quantization.int8 import by_row as by_row
from lucid.quantization.int8 import grid_between as grid_between
from lucid.quantization.ranges import Histogram as Histogram
from lucid.quantization.ranges import entropy as entropy
from lucid.quantization.ranges import minmax as minmax
from lucid.quantization.ranges import percentile as percentile
from lucid.quantization.rtn import rtn as rtn

__all__ = _public.offered(globals())
__dir__ = __all__.copy
