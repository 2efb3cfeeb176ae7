"""`lucid inspect`."""

from __future__ import annotations

from dataclasses import replace

from lucid.cli import terminal
from lucid.cli.errors import OK
from lucid.cli.model_inputs import check_known, model_files, only_file
from lucid.cli.model_inputs import sizes as read_sizes
from lucid.cli.options.commands import Bench, Inspect
from lucid.cli.runtime_trials import loads_here
from lucid.core.words.progress import phase
from lucid.inspection import Inspection, inspect_model
from lucid.inspection.read import read
from lucid.inspection.report import graph_page
from lucid.inspection.shapes import free_sizes

_SIGNS = {True: ("yes", "green"), False: ("no", "red"), None: ("maybe", "yellow")}


def run(options: Inspect) -> int:
    """Inspect and show; returns the exit code."""
    page, files = options.graph, model_files(options.model)
    if page is not None:
        terminal.check_apart(page, options.json)
        only_file(options.model, files, "--graph: ")
    inspections = []
    for file in files:
        with phase("reading the file"):
            inspection = inspected(replace(options, model=file))
        inspections.append(replace(inspection, loaders=(*inspection.loaders, loads_here(file))))
    if page is not None:
        graph_page(files[0], page)
    if options.json:
        entries = [inspection.as_dict(options.depth) for inspection in inspections]
        terminal.print_json({"folder": str(options.model), "files": entries} if options.model.is_dir() else entries[0])
        return OK
    out = terminal.console(beside=page)
    for number, inspection in enumerate(inspections):
        if number:
            out.line()
        _print(out, inspection, options.depth)
    if page is not None:
        out.line()
        terminal.written(out, [page])
    return OK


def inspected(options: Inspect | Bench) -> Inspection:
    """The inspection of a file at the sizes of --size."""
    sizes = read_sizes(options.sizes)
    if sizes:
        check_known(sizes, set(free_sizes(read(options.model).model)))
    return inspect_model(options.model, sizes)


def _print(out: terminal.Output, inspection: Inspection, depth: int) -> None:
    for name, count in inspection.files:
        out.line(f"{name}  {terminal.size(count)}")
    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in inspection.opsets.items())
    out.line(f"made by {inspection.producer}; opset {opsets}; IR {inspection.ir_version}")
    out.line()
    out.inputs_and_outputs(inspection.inputs, inspection.outputs)
    total = max(inspection.flops, 1)
    rows = [
        (
            "  " * level + (module.name if level else "(all)"),
            module.nodes,
            terminal.amount(module.parameters),
            terminal.amount(module.cost.flops),
            f"{100 * module.cost.flops / total:.1f} %",
        )
        for level, module in inspection.modules.rows(depth)
    ]
    out.table(("module", "nodes>", "parameters>", "FLOPs>", "share>"), rows)
    sizes = ", ".join(f"{name}={value}" for name, value in inspection.sizes.items())
    notes = [f"FLOPs at {sizes}"] if sizes else []
    if inspection.modules.cost.unknown:
        notes.append(f"nodes without a known shape, not counted: {inspection.modules.cost.unknown}")
    if notes:
        out.line("; ".join(notes), style="dim")
    memory = inspection.memory
    at = f", at {memory.node}" if memory.node else ""
    uncounted = f"; values without a known shape, not counted: {memory.unknown}" if memory.unknown else ""
    out.line(f"memory  {terminal.size(memory.bytes)} for values at once{at}{uncounted}", style="dim")
    out.line()
    operators = list(inspection.operators.items())
    shown = ", ".join(f"{name} {count}" for name, count in operators[:12])
    rest = len(operators) - 12
    out.line(f"operators  {shown}{f'; further kinds: {rest}' if rest > 0 else ''}")
    out.line()
    loads = [(each.name, terminal.Styled(*_SIGNS[each.loads]), each.reason) for each in inspection.loaders]
    out.table(("loads in", "", "because"), loads)
