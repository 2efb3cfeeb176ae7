"""`lucid report`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from lucid.cli import terminal
from lucid.cli.commands.run import read_arrays
from lucid.cli.errors import OK, usage
from lucid.cli.model_inputs import arguments, check_known
from lucid.cli.model_inputs import sizes as read_sizes
from lucid.cli.on_demand import command_module
from lucid.cli.option_files import text_of
from lucid.cli.options.commands import Report
from lucid.cli.quantizing import load_quantized, text_calls
from lucid.cli.source import beside, checkpoint_in
from lucid.core.graph.graph import Graph
from lucid.core.graph.types import Array
from lucid.files.hub import published_name
from lucid.inspection.report.report import TARGETS, traced
from lucid.inspection.report.report import report as write_report
from lucid.nn.decoding import CausalDecoder

_LARGEST = 1 << 20  # bytes of a file of labels


def run(options: Report) -> int:
    """Collect and write; returns the exit code."""
    output = options.output or beside(options.source, ".html")
    if not output.parent.is_dir():
        raise usage(f"--output: the folder {str(output.parent)!r} does not exist; create it first")
    terminal.check_apart(output, options.json)
    sizes = read_sizes(options.sizes)
    if sizes and options.data is not None:
        raise usage("got both --size and --data, expected one: the data determine the sizes")
    labels = text_of(options.tokens, "--tokens", _LARGEST).splitlines() if options.tokens is not None else []
    arrays = read_arrays(options.data) if options.data is not None else None
    model, floating = load_quantized(options, mapped=False)
    kwargs = arguments(model, options)
    graph = traced(model, kwargs=kwargs)
    check_known(sizes, graph.sizes())
    checkpoint = checkpoint_in(options)
    if arrays is None and not sizes and checkpoint is not None:
        arrays, tokens = _sentence(graph, checkpoint)
        labels = labels or tokens
    targets = [str(target) for target in options.targets] or list(TARGETS)
    write_report(
        graph if floating is None else model,
        kwargs=kwargs,
        path=output,
        data=arrays,
        sizes=sizes,
        tokens=labels,
        targets=targets,
        seconds=options.seconds,
        name=options.source if checkpoint is None else published_name(checkpoint) or options.source,
        floating=floating,
        calls=None if floating is None else text_calls(options.text, checkpoint, isinstance(model, CausalDecoder)),
    )
    if options.json:
        terminal.print_json({"file": str(output), "bytes": terminal.bytes_of(output), "targets": targets})
    else:
        terminal.written(terminal.console(beside=output), [output])
    return OK


def _sentence(graph: Graph, checkpoint: Path) -> tuple[dict[str, Array] | None, list[str]]:
    """A sentence as the inputs of a model of texts, and its tokens; None for other models, and without a tokenizer."""
    types = {value.name: value.type.dtype.numpy for value in graph.inputs}
    if "input_ids" not in types or not types.keys() <= _OF_TEXTS.keys() or not all(map(find_spec, _NEEDED)):
        return None, []
    try:
        ids, tokens = command_module("calibration_texts").sentence(checkpoint)
    except (ValueError, OSError):  # random inputs do, and the page says so
        return None, []
    return {name: _OF_TEXTS[name](ids).astype(dtype) for name, dtype in types.items()}, tokens


_NEEDED = ("tokenizers", "jinja2")  # the extra `chat`
_OF_TEXTS: Mapping[str, Callable[[Array], Array]] = {
    "input_ids": np.asarray,
    "attention_mask": np.ones_like,
    "token_type_ids": np.zeros_like,
}
