"""The forms that compute a node exactly on a target, each as a model."""

from __future__ import annotations

from dataclasses import dataclass

from lucid.core.graph.graph import Graph
from lucid.core.sizes.dims import names_of
from lucid.export.builder import Builder
from lucid.export.explain import FEW_BITS
from lucid.export.exporter import export_graph
from lucid.export.onnx_file.writer import in_memory
from lucid.export.registry import EXPANDED, forms_of
from lucid.export.target import Target
from lucid.export.tuned.site import Site
from lucid.export.tuned.tuned_table import TunedForm, TunedTable
from lucid.inspection.tuning.isolated import isolated
from lucid.ops.op import Op

# How long these take depends on their integers, which say how much of a buffer is filled.
_BY_VALUE = ("buffered_attention", "write_at")


@dataclass(frozen=True)
class Contest:
    """A node that several forms may compute, as a graph of its own, and the names of these forms."""

    key: str
    alone: Graph
    forms: tuple[str, ...]

    @property
    def sizes(self) -> set[str]:
        """The names of the symbolic sizes on which its time may depend."""
        return names_of(size for value in self.alone.inputs for size in value.type.shape)

    def models(self, target: Target) -> dict[str, bytes]:
        """The model of each form that computes the node exactly, by name; first that of the form taken by default.

        A form that writes the same model as one before it is left out.
        """
        default, model = _taken(self.alone, target)
        found = {default: model}
        for name in self.forms:
            first = TunedTable(target.name, (TunedForm(self.key, name, default),))
            taken, model = _taken(self.alone, target.with_table(first))
            if taken == name and model not in found.values():
                found[name] = model
        return found


def contests(graph: Graph, target: Target) -> list[Contest]:
    """The distinct nodes of a graph that several forms may compute.

    Not those of primitives, whose forms differ in what they compute rightly and not in time; nor those in loops, and
    those for which the user insists on a form. The body of an op on quantized weights unpacks them, and onnxruntime
    would keep them so: it is not taken for its speed.
    """
    build = Builder(graph, target, [value.name for value in graph.inputs], [])
    found: dict[str, Contest] = {}
    for node in graph.nodes():
        if not isinstance(node.op, Op) or node.op.body is None or node.op.name in _BY_VALUE:
            continue
        forms = forms_of(node.op, target)
        if not forms or target.insisted(node.op.name) != "auto":
            continue
        site = Site.of(build, node, forms)
        if site.key not in found:
            names = [form.name for form in forms] + [EXPANDED] * (node.op.name not in FEW_BITS)
            found[site.key] = Contest(site.key, isolated(graph, site), tuple(names))
    return list(found.values())


def _taken(alone: Graph, target: Target) -> tuple[str, bytes]:
    """The form that the node takes, and the model."""
    assembled, lowering = export_graph(alone, target)
    model: bytes = in_memory(assembled).SerializeToString()
    return lowering.decisions[-1].taken, model
