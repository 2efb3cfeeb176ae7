"""What computes eager calls: NumPy, or onnxruntime inside a with statement."""

from lucid.core.words import public as _public
from lucid.eager.onnxruntime_engine import onnxruntime_kernels as onnxruntime_kernels

__all__ = _public.offered(globals())


def __dir__() -> list[str]:
    return __all__
