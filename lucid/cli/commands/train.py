"""`lucid train`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from lucid import batch
from lucid.batch.fine_tuning import Begun
from lucid.cli import terminal
from lucid.cli.errors import OK, usage
from lucid.cli.options.groups import values_of
from lucid.cli.options.training import Train, TrainingOptions
from lucid.cli.progress import in_a_log
from lucid.cli.python_source import no_such_checkpoint
from lucid.files.hub import local_checkpoint

_SHOWN = ("num_train_epochs", "batch_size", "learning_rate", "lr_scheduler_type", "warmup_ratio")


_LABELS = 8  # that are shown with their rows


def label_counts(labels: Mapping[str, int]) -> str:
    """How many rows have each label; of many labels the most frequent ones and the rarest, which may be misspelled."""
    each = [f"{name} ({count:,})" for name, count in labels.items()]
    if len(each) > _LABELS:
        each[_LABELS - 1 : -1] = [f"{len(each) - _LABELS:,} others"]
    return ", ".join(each)


def run(options: Train) -> int:
    """Train and print each evaluation; returns the exit code."""
    out = terminal.Output(error=options.json)
    try:
        source = local_checkpoint(options.source)
        how = batch.TrainingOptions(**values_of(options, TrainingOptions))
    except (FileNotFoundError, ModuleNotFoundError, ValueError) as error:  # of the hub, and of wrong options
        raise usage(str(error)) from error
    if not source.exists():
        raise no_such_checkpoint(options.source)

    new = False

    def begun(run: Begun) -> None:
        nonlocal new
        new = True
        values = asdict(run.options)
        out.line(f"task        {run.options.task}, of the columns {', '.join(run.columns.all)}")
        out.line(f"rows        {run.rows:,} to learn from, {run.eval_rows:,} to evaluate with")
        if run.labels:
            out.line(f"labels      {label_counts(run.labels)}")
        if run.replaces_head:
            out.line("head        new, for these labels, in the place of the checkpoint's")
        if run.truncated:
            out.line(f"truncated   {run.truncated:,} of these rows, to {run.max_length:,} tokens")
        adapters = "" if how.lora is None else f", in adapters of rank {how.lora}, alpha {values['lora_alpha']:g}"
        out.line(f"trained     {run.trained:,} of {run.parameters:,} numbers{adapters}")
        out.line(f"options     {', '.join(f'{name} {values[name]}' for name in _SHOWN)}")
        resumed = f", after {run.resumed:,} of an earlier run" if run.resumed else ""
        out.line(f"steps       {run.steps:,}{resumed}")

    def evaluated(entry: Mapping[str, float]) -> None:
        measured = {name.replace("_", " "): number for name, number in entry.items() if name not in ("step", "epoch")}
        shown = ", ".join(f"{name} {number:.4g}" for name, number in measured.items())
        out.line(f"step {entry['step']:<6,} epoch {entry['epoch']:.3g}: {shown}")

    with in_a_log():
        history = batch.fine_tune(options.source, options.data, options.output, how, begun=begun, evaluated=evaluated)
    if options.json:
        terminal.print_json({"folder": str(options.output), "history": history})
        return OK
    if not new:
        out.line("note        this command has trained the folder before")
    if how.early_stopping_patience:
        best = min(history, key=lambda entry: entry["eval_loss"])
        out.line(f"best        step {best['step']:,}, whose weights are written")
    terminal.written_folder(out, options.output, False)
    return OK
