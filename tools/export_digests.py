"""Digests of the exports of all samples: they show that a change of the exporter changed nothing else.

python -m tools.export_digests > before.txt     in the checkout before the change
python -m tools.export_digests --against before.txt     after it: prints what differs, and fails if anything does

A line is the case, the target, the first digits of the SHA-256 of the model's bytes, and its nodes, those in branches
included. Cases are every model of `models/` with each golden, every module, every op, and the forms of attention.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import get_args

import onnx

import lucid
from lucid.core.graph.graph import Graph
from lucid.core.targets.runtimes import RUNTIMES
from lucid.export import ExportError, Target, to_onnx
from lucid.export.target import AttentionForm
from tests.models.zoo import ZOO, Entry
from tests.module_samples import MODULES
from tests.samples import SAMPLES, Sample

TARGETS = tuple(RUNTIMES)


def cases() -> Iterator[tuple[str, Callable[[], Graph]]]:
    """Name and graph of everything that is exported."""
    for entry in ZOO:
        yield f"model {entry.variant}", partial(trace_of_model, entry)
    for name, (module, specs) in MODULES.items():
        yield f"module {name}", partial(lucid.trace, module, *specs)
    for sample in SAMPLES:
        for dtype in sample.dtypes:
            if sample.exported:
                yield f"op {sample.name} {dtype}", partial(trace_of, sample, dtype)


def trace_of_model(entry: Entry) -> Graph:
    """The graph of a model of the zoo."""
    return lucid.trace(entry.load())


def trace_of(sample: Sample, dtype: lucid.DType) -> Graph:
    """The graph of a single op; its inputs are those of the graph."""

    def model(*given: lucid.Tensor) -> object:  # whose name is in the digests
        rest = iter(given)
        return sample.op(*(None if a is None else next(rest) for a in sample.inputs), **sample.attributes)

    arrays = [a for a in (*sample.inputs, *sample.carriers) if a is not None]
    return lucid.trace(model, *(a.type(dtype) for a in arrays))


def nodes_of(graph: onnx.GraphProto) -> int:
    """The nodes of a graph and of its branches."""
    inside = [a.g for node in graph.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    return len(graph.node) + sum(map(nodes_of, inside))


def digests() -> Iterator[tuple[str, str]]:
    """Case and target, then digest and nodes, or the reason if the export is refused."""
    for name, make in cases():
        graph = make()
        forms: tuple[AttentionForm, ...] = get_args(AttentionForm) if name.startswith("op attention") else ("auto",)
        for target in TARGETS:
            for form in forms:
                key = f"{name}\t{target}\t{form}"
                try:
                    model = to_onnx(graph, target=Target(target, attention=form))
                except ExportError:
                    yield key, "refused"
                else:
                    del model.metadata_props[:]  # what the file says of itself
                    digest = hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()[:16]
                    yield key, f"{digest}\t{nodes_of(model.graph)} nodes"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="a table printed before the change")
    against = parser.parse_args().against
    start = time.perf_counter()
    now = dict(digests())
    print(f"{len(now)} exports in {time.perf_counter() - start:.1f} s", file=sys.stderr)
    if against is None:
        print("\n".join(f"{key}\t{value}" for key, value in now.items()))
        return 0
    before = {}
    for line in against.read_text(encoding="utf-8").splitlines():
        case, target, form, *value = line.split("\t")
        before[f"{case}\t{target}\t{form}"] = "\t".join(value)
    changed = [key for key in before.keys() | now.keys() if before.get(key) != now.get(key)]
    for key in sorted(changed):
        print(f"{key}: {before.get(key, 'not there')} -> {now.get(key, 'not there')}")
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main())
