"""`lucid export --for`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from lucid.cli import show
from lucid.cli.bits_options import FewBits
from lucid.cli.errors import FAILED, OK, usage
from lucid.cli.few_bits import load_beside_source
from lucid.cli.options import Reading
from lucid.cli.parity import cost_json, parity_json, print_cost, print_parity
from lucid.cli.source import beside, checkpoint_of
from lucid.cli.values import settings
from lucid.layouts import LAYOUTS, write_folder
from lucid.nn.module import Module


def run(
    *,
    source: str,
    output: Path | None,
    weights: Path | None,
    reading: Reading,
    arguments: list[str],
    seed: int,
    layout: str,
    target: str | None,
    cache: Any,
    capacity: int | None,
    dtype: str | None,
    external: bool,
    with_tokenizer: bool,
    with_preprocessor: bool,
    force: bool,
    other: list[str],
    check: bool,
    rtol: float | None,
    atol: float | None,
    few_bits: FewBits,
    json: bool,
) -> int:
    """Write the folder, check each model in it, show; returns the exit code. `other` are options of a single file."""
    if other:
        raise usage(f"--for {layout}: the layout decides {', '.join(other)}; leave it out")
    checkpoint = weights or checkpoint_of(source)
    if checkpoint is None:
        raise usage(
            f"--for {layout}: SOURCE {source!r} has no config and tokenizer; give a checkpoint (a folder or a GGUF "
            "file) as SOURCE or --weights"
        )
    output = output or beside(source, f"-{layout}", may_exist=True)
    model, original = load_beside_source(source, settings("--set", arguments), weights, seed, few_bits, reading)
    if not isinstance(model, Module):
        raise usage(f"--for {layout}: SOURCE {source!r} is a function, expected a Module")
    written = write_folder(
        model,
        checkpoint,
        output,
        layout=layout,
        target=target,
        cache=cache,
        capacity=capacity,
        dtype=dtype,
        external_data=external,
        with_tokenizer=with_tokenizer,
        with_preprocessor=with_preprocessor,
        check=check,
        rtol=rtol,
        atol=atol,
        force=force,
        command=sys.argv[1:],
        original=original,
    )
    costs = {one.file: one.cost for one in written if one.cost is not None}
    reports = {one.file: one.parity for one in written if one.parity is not None}
    files = sorted(path for path in output.rglob("*") if path.is_file())
    if json:
        data = {
            "folder": str(output),
            "for": LAYOUTS[layout].about,
            "files": [{"name": str(file), "bytes": show.bytes_of(file)} for file in files],
            "parity": {name: parity_json(report) for name, report in reports.items()} or None,
            "quantizing": {name: cost_json(cost) for name, cost in costs.items()} or None,
        }
        show.print_json(data)
    else:
        out = show.console()
        for report in reports.values():
            print_parity(out, report, brief=True)
        for cost in costs.values():
            print_cost(out, original, cost)
        if check and not costs:
            print_cost(out, original, None)
        show.written(out, files)
    return OK if all(report.passed for report in reports.values()) else FAILED
