"""One page about a model: its graph, cost, attention maps, errors, files by target. It works without a network.

`cli` imports from it. What is measured or compared belongs to `inspection` and `testing`.
"""

from lucid.core.words import package_names as _public
from lucid.inspection.report.report import graph_page as graph_page
from lucid.inspection.report.report import report as report

__all__ = _public.offered(globals())
__dir__ = __all__.copy
