"""The cost of quantized weights: errors by layer and of the outputs, sizes and times.

`testing`, `cli` and the report import from it. Quantizing belongs to `nn.quantizing`.
"""

from lucid.core.words import package_names as _public
from lucid.testing.precision.measuring import precision_report as precision_report
from lucid.testing.precision.report import PrecisionReport as PrecisionReport

__all__ = _public.offered(globals())
__dir__ = __all__.copy
