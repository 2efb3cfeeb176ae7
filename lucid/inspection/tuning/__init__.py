"""Which forms of a model's nodes are fastest where it will run, found by measuring them there.

`cli` and the benchmarks import from it. Choosing a form by default belongs to `lucid.export`.
"""

from lucid.core.words import public as _public
from lucid.export.tuned.tuned_file import TunedTableError as TunedTableError
from lucid.export.tuned.tuned_table import TunedForm as TunedForm
from lucid.export.tuned.tuned_table import TunedTable as TunedTable
from lucid.inspection.tuning.timing import in_turns as in_turns
from lucid.inspection.tuning.tuning import Tuning as Tuning
from lucid.inspection.tuning.tuning import tune as tune

__all__ = _public.offered(globals())


def __dir__() -> list[str]:
    return __all__
