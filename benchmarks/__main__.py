"""``python -m benchmarks``: measure, print tables, write results, plots and the pages of figures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import (
    attention,
    attention_options,
    costs,
    decoding,
    eager_calls,
    eager_models,
    encoders,
    experts,
    few_bits,
    lengths,
    limit,
    lookups,
    machine,
    minilm,
    modules,
    peers,
    products,
    report,
    streams,
    training,
    whole_models,
    windows,
)
from benchmarks.bench import Bench
from benchmarks.cores import Cores
from benchmarks.harness import FULL, QUICK
from benchmarks.results import Line, Results
from benchmarks.zoo import ZOO

DOCS = Path(__file__).parents[1] / "docs"

SECTIONS: dict[str, Callable[[Bench], list[Line]]] = {
    "causal": attention.causal,
    "dynamic": attention.dynamic,
    "lengths": lengths.lengths,
    "unmasked": attention.unmasked,
    "padding": attention.padding,
    "scaled": attention.scaled,
    "windows": windows.windows,
    "options": attention_options.options,
    "growing": attention_options.growing,
    "limit": limit.limit,
    "mha": modules.multi_head,
    "minilm": minilm.latency,
    "models": whole_models.models,
    "steps": decoding.steps,
    "decoders": decoding.decoders,
    "products": products.products,
    "encoders": encoders.encoders,
    "few_bits": few_bits.decoders,
    "billion": few_bits.billion,
    "experts": experts.layers,
    "capacity": decoding.capacity,
    "overhead": decoding.overhead,
    "engine": streams.engine,
    "lookup": lookups.lookup,
    "eager": modules.eager,
    "eager_calls": eager_calls.calls,
    "eager_models": eager_models.models,
    "training": training.steps,
    "memory": costs.memory,
    "exports": costs.exports,
    "large": costs.large,
    "install": costs.install,
}


# With --quick: two minutes in all.
MAIN_SECTIONS = ("causal", "dynamic", "unmasked", "mha", "minilm", "eager", "eager_calls")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"fewer rounds of the main sizes, of {', '.join(MAIN_SECTIONS)} if no section is named; about two minutes",
    )
    parser.add_argument(
        "--only", nargs="+", choices=SECTIONS, metavar="SECTION", help=f"some of: {', '.join(SECTIONS)}"
    )
    parser.add_argument(
        "--rows",
        nargs="+",
        default=[],
        choices=[entry.name for entry in ZOO],
        metavar="ROW",
        help="with --only models: these alone; the other rows are kept",
    )
    parser.add_argument("--threads", type=int, default=2, help="threads of an op (2)")
    parser.add_argument("--pages", action="store_true", help="measure nothing: write the pages of figures")
    parser.add_argument("--output", type=Path, help="folder for results and plots (docs/benchmarks, with --quick none)")
    options = parser.parse_args(arguments)
    if options.rows and options.only != ["models"]:
        parser.error("--rows is for --only models, whose rows take almost a minute each")
    if options.pages:
        write_pages()
        return 0
    if peers.torch is not None:
        peers.torch.set_threads(options.threads)
    else:
        print("torch is not installed: ratios are to one Attention node in onnxruntime\n")
    folder = options.output or (None if options.quick else DOCS / "benchmarks")
    file = None if folder is None else folder / f"{machine.slug()}.json"  # one file for each machine
    results = Results() if file is None else Results.load(file)
    cores = Cores(results.machine.get("core_to_core_ns"))
    bench = Bench(QUICK if options.quick else FULL, options.threads, options.quick, tuple(options.rows), cores)
    results.machine = machine.describe(bench.threads, results.machine)
    print(report.machine(results) + "\n")
    for name in options.only or (MAIN_SECTIONS if options.quick else SECTIONS):
        lines = SECTIONS[name](bench)
        results.machine = machine.describe(bench.threads, results.machine) | {"core_to_core_ns": cores.nearest}
        for section in dict.fromkeys([name, *(line.section for line in lines)]):
            results.machine["dates"] = {**results.machine["dates"], section: f"{datetime.now(UTC):%Y-%m-%d}"}
            put = results.renew if options.rows else results.replace
            put(section, [line for line in lines if line.section == section])
            if results.of(section):
                print(report.terminal(results, section), flush=True)
        if file is not None:
            results.save(file)
    if folder is not None:
        write(results, folder)
    return 0


def write(results: Results, folder: Path) -> None:
    """Write the plots and, if they are those of the docs, the pages of figures."""
    try:
        from benchmarks import plots  # noqa: PLC0415  # needs matplotlib
    except ModuleNotFoundError:
        print("matplotlib is not installed: no plots")
    else:
        plots.write(results, folder)
    if folder == DOCS / "benchmarks":
        write_pages()


def write_pages() -> None:
    """Write a page for each measured processor, and the tables of the other pages."""
    folder = DOCS / "benchmarks"
    machines = {file: Results.load(file) for file in sorted(folder.glob("*.json"))}
    for file, measured in machines.items():
        file.with_suffix(".md").write_text(report.machine_page(measured), encoding="utf-8")
    ordered = sorted(machines.values(), key=lambda measured: -len(measured.lines))  # on every machine the same
    for page in report.PAGES:
        report.update_page(page, ordered)


if __name__ == "__main__":
    sys.exit(main())
