"""`lucid inspect`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lucid.cli import show
from lucid.cli.errors import OK
from lucid.cli.trials import loads_here
from lucid.cli.values import check_known
from lucid.cli.values import sizes as read_sizes
from lucid.core.words.progress import phase
from lucid.inspection import Inspection, inspect_model
from lucid.inspection.read import read
from lucid.inspection.report import graph_page
from lucid.inspection.shapes import free_sizes

_SIGNS = {True: ("yes", "green"), False: ("no", "red"), None: ("maybe", "yellow")}


def run(*, model: Path, sizes: list[str], depth: int, graph: Path | None, json: bool) -> int:
    """Inspect and show; returns the exit code."""
    if graph is not None:
        show.check_apart(graph, json)
    given = read_sizes(sizes)
    if given:
        check_known(given, set(free_sizes(read(model).model.graph)))
    with phase("reading the file"):
        found = inspect_model(model, given)
    found = replace(found, loaders=(*found.loaders, loads_here(model)))
    if graph is not None:
        graph_page(model, graph)
    if json:
        show.print_json(found.as_dict(depth))
    else:
        _print(show.console(beside=graph), found, depth)
        if graph is not None:
            out = show.console(beside=graph)
            out.line()
            show.written(out, [graph])
    return OK


def _print(out: show.Output, found: Inspection, depth: int) -> None:
    for name, count in found.files:
        out.line(f"{name}  {show.size(count)}")
    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in found.opsets.items())
    out.line(f"made by {found.producer}; opset {opsets}; IR {found.ir_version}")
    out.line()
    ends = [("input", name, kind) for name, kind in found.inputs.items()]
    ends += [("output", name, kind) for name, kind in found.outputs.items()]
    out.table(("", "name", "type"), ends)
    out.line()
    total = max(found.flops, 1)
    rows = [
        (
            "  " * level + (module.name if level else "(all)"),
            module.nodes,
            show.amount(module.parameters),
            show.amount(module.cost.flops),
            f"{100 * module.cost.flops / total:.1f} %",
        )
        for level, module in found.modules.rows(depth)
    ]
    out.table(("module", "nodes>", "parameters>", "FLOPs>", "share>"), rows)
    sizes = ", ".join(f"{name}={value}" for name, value in found.sizes.items())
    notes = [f"FLOPs at {sizes}"] if sizes else []
    if found.modules.cost.unknown:
        notes.append(f"{found.modules.cost.unknown} nodes not counted: their shapes are not known")
    if notes:
        out.line("; ".join(notes), style="dim")
    out.line()
    operators = list(found.operators.items())
    shown = ", ".join(f"{name} {count}" for name, count in operators[:12])
    rest = len(operators) - 12
    out.line(f"operators  {shown}{f' and {rest} more kinds' if rest > 0 else ''}")
    out.line()
    loads = [(each.name, show.Styled(*_SIGNS[each.loads]), each.reason) for each in found.loaders]
    out.table(("loads in", "", "because"), loads)
