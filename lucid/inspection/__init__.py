"""Inspect an ONNX file from any exporter: modules, parameters, cost, and what can load it.

`cli` imports from it. Comparing results belongs to `lucid.testing`.
"""

from lucid.core.words import package_names as _public
from lucid.inspection.cost import Cost as Cost
from lucid.inspection.inspect import Inspection as Inspection
from lucid.inspection.inspect import inspect_model as inspect_model
from lucid.inspection.tree import ModuleCost as ModuleCost

__all__ = _public.offered(globals())
__dir__ = __all__.copy
