"""Comparing results: parity of eager and exported models, the first difference, the cost of quantizing.

Layouts, reports and the command import from it, and users' tests do. Looking at files belongs to `lucid.inspection`.
"""

from lucid.core.words import package_names as _public
from lucid.testing.outputs import compare_file as compare_file
from lucid.testing.overflow import Overflow as Overflow
from lucid.testing.overflow import half_precision_overflow as half_precision_overflow
from lucid.testing.parity import Divergence as Divergence
from lucid.testing.parity import assert_parity as assert_parity
from lucid.testing.parity import bisect as bisect
from lucid.testing.precision import PrecisionReport as PrecisionReport
from lucid.testing.precision import precision_report as precision_report
from lucid.testing.report import ParityError as ParityError
from lucid.testing.report import ParityReport as ParityReport
from lucid.testing.tolerance import Comparison as Comparison

__all__ = _public.offered(globals())
__dir__ = __all__.copy
