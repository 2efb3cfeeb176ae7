"""How a traced model becomes a file, as one value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lucid.core.graph.types import DTypeLike
from lucid.core.targets.runtimes import GENERAL
from lucid.export.preprocessing import Preprocessing
from lucid.export.target import Target


@dataclass(frozen=True)
class ExportOptions:
    """The arguments of `to_onnx` that say how a traced model becomes a file; `to_onnx` describes each."""

    # For which target. Where an exported file is compared, a name means the target in its metadata.
    target: Target | str = GENERAL
    dtype: DTypeLike | None = None
    keep_io_types: bool = True
    input_names: Sequence[str] | None = None
    output_names: Sequence[str] | None = None
    preprocessing: Preprocessing | None = None

    def where(self) -> Target:
        """The target itself, also if it is named."""
        return Target.of(self.target, None, None)


DEFAULT = ExportOptions()
