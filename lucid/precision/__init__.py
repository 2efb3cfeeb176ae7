"""What weights in few bits cost: errors by layer and of the outputs, sizes and times."""

from lucid import public as _public
from lucid.precision.measuring import precision_report as precision_report
from lucid.precision.report import PrecisionReport as PrecisionReport

__all__ = _public.offered(globals())


def __dir__() -> list[str]:
    return __all__
