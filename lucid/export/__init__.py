"""Export to ONNX. The only part of Lucid that builds ONNX models.

Every room above it may import from it. Running a model does not belong here, nor does `lucid.nn`: an exporter sees
graphs only.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from lucid.core.words import package_names as _public
from lucid.export.builder import Builder as Builder
from lucid.export.explain import Explanation as Explanation
from lucid.export.exporter import explain as explain
from lucid.export.exporter import to_onnx as to_onnx
from lucid.export.form import refuse as refuse
from lucid.export.onnx_file.check import WeightWarning as WeightWarning
from lucid.export.preprocessing import Preprocessing as Preprocessing
from lucid.export.registry import lowers as lowers
from lucid.export.target import ExportError as ExportError
from lucid.export.target import Target as Target
from lucid.export.training import evaluation_step as evaluation_step
from lucid.export.training import training_step as training_step

__all__ = _public.offered(globals())
__dir__ = __all__.copy


if not _TYPE_CHECKING:  # type checkers know the names

    def __getattr__(name: str) -> object:
        raise _public.unknown(f"module {__name__!r}", name, __all__)
