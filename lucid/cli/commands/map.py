"""`lucid map`."""

from __future__ import annotations

from pathlib import Path

from lucid.batch import Predictor
from lucid.batch.mapping import open_rows
from lucid.cli import terminal
from lucid.cli.commands.generate import chosen_options, structure_of
from lucid.cli.errors import OK
from lucid.cli.exported_source import exported_source
from lucid.cli.options.commands import JobOptions, Map, PredictorOptions
from lucid.cli.options.groups import values_of
from lucid.cli.progress import in_a_log, rate
from lucid.core.process.threads import usable_cores
from lucid.generation.chat import load_defaults
from lucid.generation.chat.tokenizer_files import check_tokenizer
from lucid.generation.defaults import shown
from lucid.layouts.images.preprocessor import PIXELS, Preprocessor
from lucid.nn import Module


def run(options: Map) -> int:
    """Compute the rows and print their number; returns the exit code."""
    local = options.engine == "local"
    generation = {**chosen_options(options), **structure_of(options), "chat": options.chat or None}
    providers = options.providers or ["cpu"]
    columns = tuple(options.columns or ["text"])
    opened = open_rows(options.source, columns, options.output, **values_of(options, JobOptions))
    source = exported_source(options, options.task, providers, check=_check_reader)
    predictor = Predictor(
        source.folder,
        columns,
        options.output_column,
        **values_of(options, PredictorOptions),
        threads=options.threads or (usable_cores() if local else 1),
        providers=providers,
        adapter=source.adapter,
        prepack=True if local else None,  # a lone process has no use for weights that others can share
        generation={name: value for name, value in generation.items() if value not in (None, [])},
    )
    with in_a_log():
        summary = opened.map(predictor)
    if options.json:
        terminal.print_json({"folder": options.output, **summary._asdict()})
        return OK
    out = terminal.console()
    speed = f", {rate(summary.computed, summary.seconds, 'rows')}" if summary.computed else ""
    before = f", {summary.rows - summary.computed:,} by earlier runs" if summary.rows != summary.computed else ""
    out.line(f"computed    {summary.computed:,} of {summary.rows:,} rows{before}, in {summary.seconds:.1f} s{speed}")
    if summary.errors:
        out.line(f"no result   {summary.errors:,} row{'s' * (summary.errors != 1)}; the column error says why")
    taken = {name: value for name, value in load_defaults(source.folder).items() if generation.get(name) is None}
    if taken:
        out.line(f"options     of the checkpoint: {shown(taken)}")
    out.line(f"written     {options.output}")
    return OK


def _check_reader(checkpoint: Path, model: Module) -> None:
    """Refuse a checkpoint without the file by which rows become the inputs of its model."""
    inputs = model.input_specs()
    if PIXELS in inputs:
        Preprocessor.from_folder(checkpoint)
    elif "input_ids" in inputs:
        check_tokenizer(checkpoint)
