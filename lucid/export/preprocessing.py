"""Preprocessing inside a file: ONNX nodes that compute inputs of a model from texts.

They are ONNX nodes and not ops: Lucid computes with numbers only, so no traced graph has a text in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from lucid.core.targets.runtimes import OWN, RUNTIMES
from lucid.export.builder import Builder, Strings
from lucid.export.target import ExportError


@dataclass(frozen=True)
class Preprocessing:
    """Nodes that compute inputs of a model within its file.

    Args:
        inputs: the names of the inputs that the file has for it: texts, one for each row of the batch.
        computes: the names of the inputs of models that it can compute.
        emit: emits the nodes for the names that the model has, and returns the ONNX value of each name. They
            have the types that the model expects.
    """

    inputs: Collection[str]
    computes: Collection[str]
    emit: Callable[[Builder, Collection[str]], Mapping[str, str]]

    def precede(self, build: Builder) -> None:
        """Emit the nodes before those of the model, which reads their results.

        Raises:
            ExportError: for a model without any of the inputs, or with other inputs of these names; for a target whose
                runtime does not have the operators.
        """
        runtime = build.target.runtime
        if not runtime.allows(OWN):
            choices = ", ".join(name for name, record in RUNTIMES.items() if record.allows(OWN))
            raise ExportError(
                f"preprocessing is written with operators of onnxruntime, got target {runtime.name!r}; choose one of "
                f"{choices}"
            )
        computed = {value.name: value for value in build.graph.inputs if value.name in self.computes}
        if not computed:
            raise ExportError(
                f"preprocessing computes {', '.join(self.computes)}; the model takes "
                f"{', '.join(value.name for value in build.graph.inputs) or 'nothing'}"
            )
        clash = sorted(build.names & {*self.inputs})
        if clash:
            raise ExportError(f"preprocessing reads {', '.join(clash)}, which is a name in the model; rename that")
        others = {
            name: kind for name, kind in build.inputs.items() if name not in map(build.name_of, computed.values())
        }
        batch = next(iter(computed.values())).type.shape[:1]
        build.inputs = {**dict.fromkeys(self.inputs, Strings(batch)), **others}
        with build.inside("preprocessing"):
            names = self.emit(build, computed)
        for name, value in computed.items():
            build.bind(value, names[name])
